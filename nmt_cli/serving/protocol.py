"""uvicorn's protocol, extended: it closes connections whose request line and headers do not arrive in time.

uvicorn itself closes only connections that are idle after an answer. The middleware limits the time of the body.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Protocol(HttpToolsProtocol):
    """A connection with a time limit for the headers of a request."""

    seconds = 0.0
    """Seconds in which the headers of a request must arrive; 0: no limit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None

    @classmethod
    def reading(cls, seconds: float) -> type[Protocol]:
        """Return a subclass with a limit of `seconds`."""
        return type(cls.__name__, (cls,), {"seconds": seconds})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self.cycle is not None and self.cycle.response_complete:
            self._expect()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """See `HttpToolsProtocol`."""
        self._arrived()
        super().on_headers_complete()

    def _expect(self) -> None:
        """Start the time limit for headers, if it is not running."""
        if self.seconds and self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self.transport.close)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
