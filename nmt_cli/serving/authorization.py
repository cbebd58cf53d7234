"""The API key of a request, from a parameter or a header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from .context import context_of
from .keys import Key
from .refusal import Refusal, is_deepl

DEEPL = "DeepL-Auth-Key"
SCHEMES = (DEEPL.lower(), "bearer")


def required_key(request: Request, values: Mapping[str, Any]) -> Key:
    """Return the key of a request, from the parameter of its interface, or from the header "Authorization: SCHEME KEY".

    Raises Refusal in the way of the interface.
    """
    keys, deepl = context_of(request).settings.keys, is_deepl(request.scope["path"])
    if not keys.required:
        return keys.everyone
    value = values.get("auth_key" if deepl else "api_key")
    if not isinstance(value, str) or not value:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        value = value.strip() if scheme.lower() in SCHEMES else ""
    if key := keys.find(value):
        return key
    if deepl:
        raise Refusal(403, f"Forbidden: expected the header 'Authorization: {DEEPL} KEY' with a valid key.")
    if not value:
        raise Refusal(400, "Please contact the server operator to get an API key")
    raise Refusal(403, "Invalid API key")
