"""Exceptions for requests that are not answered."""

from __future__ import annotations

from collections.abc import Mapping

JSON = "application/json; charset=utf-8"
"""The media type of every answer in JSON: some clients take text without a charset for Latin-1."""

CLOSE = {"Connection": "close"}
"""The header of an answer after which the connection ends."""


class Refusal(Exception):
    """A request is refused, with a status and a message for the client.

    Each interface writes them in its own form. `retry_after`: seconds.
    """

    def __init__(
        self, status: int, message: str, *, retry_after: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {**(headers or {}), **({} if retry_after is None else {"Retry-After": str(retry_after)})}


class ClientGone(Exception):
    """The client has closed the connection: nobody waits for the answer."""


def body_of(path: str, message: str) -> dict[str, str]:
    """Return the body of an error, in the form of the interface that a path belongs to."""
    return {"message" if path.startswith("/v2/") else "error": message}
