"""How requests are refused."""

from __future__ import annotations

from starlette.exceptions import HTTPException

JSON = "application/json; charset=utf-8"
"""The media type of every answer in JSON: some clients take text without a charset for Latin-1."""

CLOSE = {"Connection": "close"}
"""The header of an answer after which the connection ends."""
RESTORED = "X-Restored-Placeholders"
"""The header of an answer with the number of placeholders that the models lost, and that were put back."""
LATER = {"Retry-After": "2"}
"""The header of an answer that says after how many seconds the client may ask again."""

Refusal = HTTPException
"""It has a status, a message for the client, and perhaps headers. Each interface writes it in its own form."""


class ClientGone(Exception):
    """The client has closed the connection: nobody waits for the answer."""


def is_deepl(path: str) -> bool:
    """Return whether a path belongs to DeepL's interface."""
    return path.startswith("/v2/")


def body_of(path: str, message: str) -> dict[str, str]:
    """Return the body of an error, in the form of the interface that a path belongs to."""
    return {"message" if is_deepl(path) else "error": message}
