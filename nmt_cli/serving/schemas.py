"""Bodies of requests for the OpenAPI description.

`parameters` reads the requests, because each request may come in several forms.
"""

from __future__ import annotations

from typing import Any

from ..registry import FORMATS


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


_TEXTS = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
PARAMETERS: dict[str, dict[str, Any]] = {
    "q": _TEXTS,
    "source": _text('Source language, or "auto".', example="en"),
    "target": _text("Target language.", example="de"),
    "format": _text("Format of the texts.", enum=[*FORMATS], default="text"),
    "alternatives": {"type": "integer", "description": "Other translations of each text.", "default": 0},
    "file": _text("A file, .txt or .html.", format="binary"),
    "api_key": _text("API key, where the server requires one."),
    "text": _TEXTS,
    "target_lang": _text("Target language.", example="DE"),
    "source_lang": _text("Source language; without it, it is detected."),
    "tag_handling": _text("Kind of markup.", enum=[name for name in FORMATS if name != "text"]),
    "split_sentences": _text("Where sentences end.", enum=["0", "1", "nonewlines"]),
    "show_billed_characters": {"type": "boolean", "description": "Return the characters of each text."},
}
"""Name → schema."""


def body(required: str, optional: str = "api_key", kind: str = "") -> dict[str, Any]:
    """Return OpenAPI's description of a body with these PARAMETERS, as JSON and a form, or of this media type."""
    names, more = required.split(), optional.split()
    schema = {"type": "object", "required": names, "properties": {name: PARAMETERS[name] for name in names + more}}
    kinds = [kind] if kind else ["application/json", "application/x-www-form-urlencoded"]
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
