"""uvicorn's protocol, extended: it ends connections of clients that send or read too slowly.

uvicorn itself closes only connections that are idle after an answer. h11 limits what is around a body (`MOST_AROUND`);
the middleware limits the size and the time of the body. tests/serving/test_limits.py names the version of uvicorn for
which this file is written.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .refusal import CLOSE, JSON, body_of

MOST_AROUND = 2**16
"""Largest number of bytes of a request's headers, of its trailers, and of what is before a chunk of its body."""


class TimedProtocol(H11Protocol):
    """A connection with time limits for the headers of a request, and for reading its answer."""

    seconds = 0.0
    """Seconds in which the headers of a request must arrive, and in which an answer must be read; 0: no limit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._begin = b""
        """The first bytes of the request whose headers arrive."""

    @classmethod
    def within(cls, seconds: float) -> type[TimedProtocol]:
        """Return a subclass with a limit of `seconds`."""
        return type(cls.__name__, (cls,), {"seconds": seconds})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused whenever the client has not read everything
        self._start("headers", transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop("headers")
        self._stop("reader")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._begin = (self._begin + data[:64])[:64]
        super().data_received(data)
        if self._answering:
            self._begin = b""
            self._stop("headers")
        else:
            self._start("headers", self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("reader", self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("reader")

    def send_400_response(self, msg: str) -> None:
        """Refuse what arrives, unless its answer has begun, and end the connection."""
        path = self._begin.decode("latin-1").partition(" ")[2]
        if self._answering:
            path, self.cycle.disconnected = self.scope["path"], True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        status, message = getattr(sys.exception(), "error_status_hint", 400), "the request is not valid HTTP/1.1."
        if status == 431:
            message = f"the headers, or what is around the body, have more than {MOST_AROUND:,} bytes."
        answer = h11.Response(status_code=status, headers=[("content-type", JSON), *CLOSE.items()])
        for event in (answer, h11.Data(data=json.dumps(body_of(path, message)).encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _should_upgrade(self) -> bool:
        return False  # some clients ask for HTTP/2 with each request

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start(self, what: str, end: Callable[[], object]) -> None:
        """Start a time limit, if it is not running."""
        if self.seconds and what not in self._timers:
            self._timers[what] = self.loop.call_later(self.seconds, end)

    def _stop(self, what: str) -> None:
        if timer := self._timers.pop(what, None):
            timer.cancel()
