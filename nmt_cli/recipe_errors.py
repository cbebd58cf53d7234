"""Describes the errors of a dictionary that pydantic refuses: all at once, each with the nearest correct name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from .errors import did_you_mean, shown, shown_name

Sections = Mapping[str, type[BaseModel]]

MOST = 30
"""Largest number of errors that are listed for one dictionary."""
LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "greater_than": ("more than", "gt"),
    "less_than": ("less than", "lt"),
}
"""pydantic's names of bounds → the words in messages, and the key under which pydantic stores the bound."""


def describe(error: ValidationError, values: dict[str, Any], whole: type[BaseModel]) -> str:
    """Return "has N errors:" and a line for each error of `values`; `whole` is the pydantic model of the values."""
    sections = {
        name: field.annotation
        for name, field in whole.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    lines = _lines(error, sections)
    if (more := error.error_count() - MOST) > 0:
        return f"has {error.error_count():,} errors:\n" + "\n".join(
            f"  - {line}" for line in [*lines, f"… and {more:,} more"]
        )
    lines += [line for line in _contradictions_besides(error, values, whole, sections) if line not in lines]
    noun = "error" if len(lines) == 1 else "errors"
    return f"has {len(lines)} {noun}:\n" + "\n".join(f"  - {line}" for line in lines)


def _lines(error: ValidationError, sections: Sections) -> list[str]:
    lines = []
    for item in error.errors()[:MOST]:
        path = shown_name(".".join(str(part) for part in item["loc"]))
        section, _, key = path.partition(".")
        if item["type"] == "extra_forbidden":
            inside = list(sections[section].model_fields) if key and section in sections else list(sections)
            lines.append(
                f"{path}: unknown {'key' if key else 'section'}.{_elsewhere(key, section, sections) or did_you_mean(key or section, inside)}"
            )
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


def _elsewhere(key: str, section: str, sections: Sections) -> str:
    homes = [name for name, model in sections.items() if key in model.model_fields and name != section]
    return f" It belongs in [{homes[0]}]." if homes else ""


def _contradictions_besides(
    error: ValidationError, values: dict[str, Any], whole: type[BaseModel], sections: Sections
) -> list[str]:
    """Check `values` again without the wrong keys, and return the contradictions that remain, except those that mention a wrong key."""
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
        whole.model_validate(remaining)
    except ValidationError as more:
        return [line for line in _lines(more, sections) if not any(key in line for key in left_out)]
    return []
