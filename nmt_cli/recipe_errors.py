"""What is wrong with a dictionary that pydantic refuses, in words: every fault at once, each with the nearest right name."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from .errors import did_you_mean, shown

Sections = Mapping[str, type[BaseModel]]

MOST = 30
"""Errors that are shown of one dictionary."""
LIMITS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le"), "greater_than": ("more than", "gt"), "less_than": ("less than", "lt")}
"""pydantic's names of bounds: how messages say them, and where pydantic keeps the bound."""


def describe(error: ValidationError, values: dict[str, Any], whole: type[BaseModel]) -> str:
    """All faults of `values`, a line each below "has … faults:"; `whole` is what they should have been."""
    sections = {name: field.annotation for name, field in whole.model_fields.items() if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)}
    lines = _faults(error, sections)
    if (more := error.error_count() - MOST) > 0:
        return f"has {error.error_count():,} faults:\n" + "\n".join(f"  - {line}" for line in [*lines, f"… and {more:,} more"])
    lines += [line for line in _contradictions_besides(error, values, whole, sections) if line not in lines]
    noun = "fault" if len(lines) == 1 else "faults"
    return f"has {len(lines)} {noun}:\n" + "\n".join(f"  - {line}" for line in lines)


def _faults(error: ValidationError, sections: Sections) -> list[str]:
    lines = []
    for fault in error.errors()[:MOST]:
        place = ".".join(str(part) for part in fault["loc"])
        section, _, key = place.partition(".")
        if fault["type"] == "extra_forbidden":
            inside = list(sections[section].model_fields) if key and section in sections else list(sections)
            lines.append(f"{place}: unknown {'key' if key else 'section'}.{_elsewhere(key, section, sections) or did_you_mean(key or section, inside)}")
        elif fault["type"] == "value_error":
            lines += [f"{place + ': ' if place else ''}{line}" for line in str(fault["ctx"]["error"]).splitlines()]
        elif fault["type"] == "missing":
            lines.append(f"{place}: this section is missing")
        elif fault["type"] in LIMITS:
            words, bound = LIMITS[fault["type"]]
            lines.append(f"{place} = {shown(fault['input'])}: expected {words} {fault['ctx'][bound]:,}")
        else:
            lines.append(f"{place or 'the recipe'} = {shown(fault['input'])}: {fault['msg'][:1].lower()}{fault['msg'][1:]}")
    return lines


def _elsewhere(key: str, section: str, sections: Sections) -> str:
    homes = [name for name, model in sections.items() if key in model.model_fields and name != section]
    return f" It belongs in [{homes[0]}]." if homes else ""


def _contradictions_besides(error: ValidationError, values: dict[str, Any], whole: type[BaseModel], sections: Sections) -> list[str]:
    """Contradictions that show once the faulty keys are left out; those that speak of a left-out key are not named."""
    left_out, sound = set(), copy.deepcopy(values)
    for fault in error.errors():
        if fault["type"] == "value_error" or not fault["loc"]:
            continue
        *path, key = [part for part in fault["loc"] if isinstance(part, str)]
        table = sound
        for part in path:
            table = table.get(part, {})
        left_out.add(key)
        table.pop(key, None)
    try:
        whole.model_validate(sound)
    except ValidationError as more:
        return [line for line in _faults(more, sections) if not any(key in line for key in left_out)]
    return []
