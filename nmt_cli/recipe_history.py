"""Recipe keys of earlier versions: renamed keys are read under their old names, retired keys are ignored.

TOML file, --set, stored recipe ──▶ with_present_names ──▶ without_retired ──▶ Recipe
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .console import warn_once
from .errors import RecipeError, shown


@dataclass(frozen=True)
class Retired:
    """A key in recipes, runs and model folders of earlier versions. It is read and ignored."""

    since: str
    """The first version without the key."""
    neutral: Any
    """The value that had no effect. Any other value is ignored with a warning."""
    why: str
    """Text for the warning: what replaces the key."""


RETIRED = {"decode.prune": Retired("0.1.0", 0.0, "decode.lookahead says when search gives up a hypothesis.")}


@dataclass(frozen=True)
class Renamed:
    """A key that has a new name. The old name is read if the key has one of `values` (None: any value)."""

    now: str
    values: tuple[str, ...] | None = None


RENAMED = {
    "model.norm": Renamed("residual", ("post", "pre")),  # `norm` is now the kind of norm
    "data.target_pieces": Renamed("target_tokenization"),
}


def with_present_names(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `values` with the keys in RENAMED under their present names. Raises RecipeError for a key given twice."""
    for old, renamed in RENAMED.items():
        section, _, key = old.partition(".")
        table = values.get(section)
        if (
            not isinstance(table, dict)
            or key not in table
            or (renamed.values is not None and table[key] not in renamed.values)
        ):
            continue
        if renamed.now in table and table[renamed.now] != table[key]:
            raise RecipeError(
                f"{where}: {old} = {shown(table[key])} is the old name of {section}.{renamed.now}, which is {shown(table[renamed.now])} here. Remove one of the two."
            )
        values = {
            **values,
            section: {**{name: value for name, value in table.items() if name != key}, renamed.now: table[key]},
        }
    return values


def without_retired(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `values` without the keys in RETIRED; warn about keys that had an effect."""
    for key_path, retired in RETIRED.items():
        section, _, key = key_path.partition(".")
        table = values.get(section)
        if isinstance(table, dict) and key in table:
            values = {**values, section: {name: value for name, value in table.items() if name != key}}
            if table[key] != retired.neutral:
                warn_once(
                    f"{key_path} = {table[key]!r} is ignored: nmt {retired.since} retired this key. {retired.why}",
                    where,
                )
    return values
