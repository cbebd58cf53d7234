"""The API key of a request, from a parameter or a header.

Each interface refuses requests without a key in its own way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from .context import Context
from .keys import Key
from .refusal import Refusal

DEEPL = "DeepL-Auth-Key"
SCHEMES = (DEEPL.lower(), "bearer")


def header_key(request: Request) -> str:
    """Return the key of the header "Authorization: SCHEME KEY"; "" if there is none."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() in SCHEMES else ""


def required_key(request: Request, context: Context, values: Mapping[str, Any], parameter: str = "api_key") -> Key:
    """Return the key of a request in LibreTranslate's interface or our own interface. Raises Refusal."""
    keys = context.settings.keys
    if not keys.required:
        return keys.everyone
    value = values.get(parameter)
    text = value if isinstance(value, str) and value else header_key(request)
    if not text:
        raise Refusal(400, "Please contact the server operator to get an API key")
    key = keys.find(text)
    if key is None:
        raise Refusal(403, "Invalid API key")
    return key


def deepl_key(request: Request, context: Context, values: Mapping[str, Any]) -> Key:
    """Return the key of a request in DeepL's interface, from the header or from the older parameter auth_key.

    Raises Refusal.
    """
    keys = context.settings.keys
    if not keys.required:
        return keys.everyone
    value = values.get("auth_key")
    key = keys.find(header_key(request) or (value if isinstance(value, str) else ""))
    if key is None:
        raise Refusal(403, f"Forbidden: expected the header 'Authorization: {DEEPL} KEY' with a valid key.")
    return key
