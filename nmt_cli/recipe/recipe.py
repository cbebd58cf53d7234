"""The whole recipe: its keys of earlier versions, the rules that join its sections, and its faults in words."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ..console import warn_once
from ..errors import RecipeError, did_you_mean, shown, shown_name
from .sections import (
    BYTES_PER_PARAMETER,
    LATEST,
    MOST_PARAMETERS,
    DataSection,
    DecodeSection,
    ModelSection,
    Section,
    TrainSection,
)

RETIRED = {
    "decode.prune": (0.0, "nmt 0.1.0 retired this key. decode.lookahead says when search gives up a hypothesis."),
    "decode.coverage_penalty": (0.0, "there is no coverage penalty any more. A larger decode.alpha does the same."),
}
"""A key that is read and ignored → the value that had no effect, and the text of the warning about any other value."""


RENAMED: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "model.norm": ("residual", ("post", "pre")),  # `norm` is now the kind of norm
    "data.target_pieces": ("target_tokenization", None),
}
"""The old name of a key → its new name, and the values with which the old name is still read; None: any value."""


def with_present_names(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `values` with the keys in RENAMED under their present names. Raises RecipeError for a key given twice."""
    for old, (now, old_values) in RENAMED.items():
        section, key = old.split(".")
        table = values.get(section)
        if not isinstance(table, dict) or key not in table or (old_values and table[key] not in old_values):
            continue
        if now in table and table[now] != table[key]:
            raise RecipeError(
                f"{where}: {old} = {shown(table[key])} is the old name of {section}.{now}, which is "
                f"{shown(table[now])} here. Remove one of the two."
            )
        values = {**values, section: {now if name == key else name: value for name, value in table.items()}}
    return values


def without_retired(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `values` without the keys in RETIRED; warn about keys that had an effect."""
    for retired, (neutral, why) in RETIRED.items():
        section, key = retired.split(".")
        table = values.get(section)
        if isinstance(table, dict) and key in table:
            values = {**values, section: {name: value for name, value in table.items() if name != key}}
            if table[key] != neutral:
                warn_once(f"{retired} = {table[key]!r} is ignored: {why}", where)
    return values


# Errors, all at once
MOST = 30
"""Largest number of errors that are listed for one dictionary."""


LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "greater_than": ("more than", "gt"),
    "less_than": ("less than", "lt"),
}
"""pydantic's names of bounds → the words in messages, and the key under which pydantic stores the bound."""


def describe(error: ValidationError, values: dict[str, Any]) -> str:
    """Return "has N errors:" and a line for each error of a recipe's `values`."""
    lines, count = _lines(error), error.error_count()
    if count > MOST:
        lines.append(f"… and {count - MOST:,} more")
    else:
        lines += [line for line in _contradictions_besides(error, values) if line not in lines]
        count = len(lines)
    return f"has {count:,} error{'s' * (count != 1)}:\n" + "\n".join(f"  - {line}" for line in lines)


def _lines(error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors()[:MOST]:
        path = shown_name(".".join(str(part) for part in item["loc"]))
        section, _, key = path.partition(".")
        if item["type"] == "extra_forbidden":
            homes = [name for name, kind in SECTIONS.items() if key in kind.model_fields and name != section]
            inside = SECTIONS[section].model_fields if key and section in SECTIONS else SECTIONS
            hint = f" It belongs in [{homes[0]}]." if homes else did_you_mean(key or section, list(inside))
            lines.append(f"{path}: unknown {'key' if key else 'section'}.{hint}")
        elif item["type"] == "value_error":
            lines += [f"{path + ': ' if path else ''}{line}" for line in str(item["ctx"]["error"]).splitlines()]
        elif item["type"] == "missing":
            lines.append(f"{path}: this section is missing")
        elif item["type"] in LIMITS:
            words, bound = LIMITS[item["type"]]
            lines.append(f"{path} = {shown(item['input'])}: expected {words} {item['ctx'][bound]:,}")
        else:
            lines.append(f"{path or 'the recipe'} = {shown(item['input'])}: {item['msg'][:1].lower()}{item['msg'][1:]}")
    return lines


def _contradictions_besides(error: ValidationError, values: dict[str, Any]) -> list[str]:
    """Return the contradictions of `values` without the wrong keys, except those that mention a wrong key."""
    left_out, remaining = set(), copy.deepcopy(values)
    for item in error.errors():
        if item["type"] == "value_error" or not item["loc"]:
            continue
        *path, key = [part for part in item["loc"] if isinstance(part, str)]
        table = remaining
        for part in path:
            table = table.get(part, {})
        left_out.add(key)
        table.pop(key, None)
    try:
        Recipe.model_validate(remaining)
    except ValidationError as more:
        return [line for line in _lines(more) if not any(key in line for key in left_out)]
    return []


class Recipe(Section):
    """The whole experiment."""

    name: str = Field(default="", exclude=True)
    """The name of the recipe's file without .toml; not a key of the file."""
    data: DataSection
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    decode: DecodeSection = DecodeSection()

    def contradictions(self) -> Iterator[str]:
        data, model, train = self.data, self.model, self.train
        if model.tie_embeddings and not data.joint_vocab:
            yield "model.tie_embeddings = true needs data.joint_vocab = true: two vocabularies cannot share one matrix"
        if train.both_directions and not data.joint_vocab:
            yield "train.both_directions = true needs data.joint_vocab = true: source and target change places"
        if model.monotonic_attention and (
            not data.terminals or (data.terminals, data.target_tokenization) == ("words", "bpe")
        ):
            yield (
                f'model.monotonic_attention = true with data.terminals = "{data.terminals}" and '
                f'data.target_tokenization = "{data.target_tokenization}": '
                "it is for parsers, and which words a tree has must follow from its tokens: both, tags, xx, or "
                "words that are one token each"
            )
        if data.max_length >= model.max_positions:
            yield (
                f"data.max_length = {data.max_length} must be below model.max_positions = "
                f"{model.max_positions}: a sentence and its end symbol would not fit"
            )
        if data.max_length >= train.batch_tokens:
            yield f"data.max_length = {data.max_length} must be below train.batch_tokens = {train.batch_tokens}"
        parameters = model.parameters(data.vocab_size, data.target_size)
        if parameters > MOST_PARAMETERS:
            yield (
                f"the model has about {parameters:,} parameters, which take "
                f"{parameters * BYTES_PER_PARAMETER / 2**40:,.1f} TiB to train: expected at most "
                f"{MOST_PARAMETERS:,}. Reduce model.d_model, model.d_ff, the layers or data.vocab_size"
            )

    def folder(self, parent: str, option: str) -> Path:
        """Return PARENT/NAME, the default folder of a command. The user can choose another folder by `option`.

        Raises RecipeError if the recipe's name cannot be the name of a folder in PARENT.
        """
        if self.name in ("", LATEST) or self.name.startswith(".") or not self.name.isprintable() or "/" in self.name:
            why = (
                f"{parent}/{LATEST} is kept for the link to the latest run"
                if self.name == LATEST
                else "expected a name that can be printed and does not begin with a dot"
            )
            raise RecipeError(
                f"the recipe's name {shown(self.name)} cannot name a folder in {parent}/: {why}. Rename the "
                f"recipe's file, or give {option} DIR."
            )
        return Path(parent) / self.name

    @property
    def constraint_values(self) -> dict[str, str]:
        """Values of the constraints in `decode.constraints` that come from other sections of the recipe."""
        return {name: self.data.terminals for name in self.decode.constraints if name == "tree"}

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dictionary for JSON; `from_dict` reads it back."""
        return {"name": self.name, **self.model_dump()}

    @staticmethod
    def from_dict(values: dict[str, Any], where: str) -> Recipe:
        """Check a plain dictionary and return its recipe.

        `where` names the dictionary in error messages. Old names of keys are read; retired keys are ignored.

        Raises RecipeError.
        """
        values = without_retired(with_present_names(values, where), where)
        try:
            return Recipe.model_validate(values)
        except ValidationError as error:
            try:
                description = describe(error, values)
            except RecursionError:
                raise _too_deep(where) from None
        raise RecipeError(f"{where} {description}")


def _too_deep(where: str) -> RecipeError:
    return RecipeError(
        f"{where} is nested too deeply: expected sections of keys, whose values are numbers, texts, true, false or "
        "lists of texts."
    )


SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "model": ModelSection,
    "train": TrainSection,
    "decode": DecodeSection,
}
