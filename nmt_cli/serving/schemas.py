"""Schemas of requests for the OpenAPI description.

`parameters` reads the requests, because each request may come in several forms.
"""

from __future__ import annotations

from typing import Any

from ..registry import FORMATS

Schema = dict[str, Any]


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _object(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


_TEXTS: Schema = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_KEY = _text("API key, where the server requires one.")
_SOURCE, _TARGET = _text('Source language, or "auto".', example="en"), _text("Target language.", example="de")

SCHEMAS: dict[str, Schema] = {
    "LibreTranslateRequest": _object(
        ["q", "source", "target"],
        q=_TEXTS,
        source=_SOURCE,
        target=_TARGET,
        format=_text("Format of the texts.", enum=[*FORMATS], default="text"),
        alternatives={"type": "integer", "description": "Other translations of each text.", "default": 0},
        api_key=_KEY,
    ),
    "DetectRequest": _object(["q"], q=_TEXTS, api_key=_KEY),
    "FileRequest": _object(
        ["file", "source", "target"],
        file=_text("A file, .txt or .html.", format="binary"),
        source=_SOURCE,
        target=_TARGET,
        api_key=_KEY,
    ),
    "DeepLRequest": _object(
        ["text", "target_lang"],
        text=_TEXTS,
        target_lang=_text("Target language.", example="DE"),
        source_lang=_text("Source language; without it, it is detected."),
        tag_handling=_text("Kind of markup.", enum=[name for name in FORMATS if name != "text"]),
        split_sentences=_text("Where sentences end.", enum=["0", "1", "nonewlines"]),
        show_billed_characters={"type": "boolean", "description": "Return the characters of each text."},
    ),
    "AttentionRequest": _object(["q", "source", "target"], q=_TEXTS, source=_SOURCE, target=_TARGET, api_key=_KEY),
}
"""Name → schema."""


def body(name: str, *kinds: str) -> dict[str, Any]:
    """Return the part of the OpenAPI description for a body with the schema `name`, as JSON or a form."""
    kinds = kinds or ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": SCHEMAS[name]} for kind in kinds}}}
