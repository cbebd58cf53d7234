"""uvicorn's protocol, extended: it ends connections of clients that send or read too slowly, or send too much around a
body.

uvicorn itself closes only connections that are idle after an answer. The middleware limits the size and the time of the
body. The header Upgrade is ignored: some clients ask for HTTP/2 with each request. httptools takes what follows such
headers for another protocol, so it is given them again without it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from http import HTTPStatus
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .refusal import JSON, body_of

MOST_AROUND = 2**16
"""Largest number of bytes of a request besides its body. The bytes that arrive together with the first one are not
counted."""
AROUND_BYTE = 8
"""And so many more for each byte of the body: a chunk has its length before it."""
VERSIONS = ("1.0", "1.1")


class Protocol(HttpToolsProtocol):
    """A connection with limits for the headers of a request, and a time limit in which the client must read an
    answer.
    """

    seconds = 0.0
    """Seconds in which the headers of a request must arrive, and in which an answer must be read; 0: no limit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        """Ends the connection if the client has not read its answer."""
        self._unanswered: deque[RequestResponseCycle] = deque()
        """The request that is being answered, and those that wait. `cycle` is the last one that arrived."""
        self._around = self._body = 0
        self._begun = False
        """Whether a request began in the last data that arrived."""

    @classmethod
    def reading(cls, seconds: float) -> type[Protocol]:
        """Return a subclass with a limit of `seconds`."""
        return type(cls.__name__, (cls,), {"seconds": seconds})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._was_read()
        super().connection_lost(exc)
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self.cycle is not None and self.cycle.response_complete:
            self._expect()
        self._begun, self._body = False, 0
        self._unset_keepalive_if_required()
        try:
            self._parse(memoryview(data))
        except HttpParserError:
            self._end(400, "the request is not valid HTTP/1.1.")
        self._around = 0 if self._begun else max(0, self._around + len(data) - (1 + AROUND_BYTE) * self._body)
        if self._around > MOST_AROUND:
            self._end(431, f"the headers, or what is around the body, have more than {MOST_AROUND:,} bytes.")

    def _parse(self, data: memoryview) -> None:
        while True:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                if not self._should_upgrade():
                    return
                data, begin = data[upgrade.args[0] :], self._without_upgrade()
            self.parser = HttpRequestParser(self)  # after "Connection: close" the old one takes nothing more
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            self.parser.feed_data(begin)

    def _should_upgrade(self) -> bool:
        """Return whether uvicorn leaves a request alone for which httptools expects another protocol."""
        return self.parser.get_method() != b"CONNECT"  # what follows that is never HTTP

    def _without_upgrade(self) -> bytes:
        """Return the beginning of the request that arrived, without the header Upgrade."""
        first = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([first, *headers, b"", b""])

    def on_message_begin(self) -> None:
        self._begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._arrived()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or self.parser.get_http_version() not in VERSIONS:
            raise ValueError  # httptools makes it an HttpParserError
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._unanswered.append(self.cycle)
            if self.parser.should_upgrade():  # CONNECT: what follows is not for this server
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()
        if not self.flow.write_paused and self.transport.get_write_buffer_size():
            self._was_read()
            self._await_reader()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._was_read()

    def _expect(self) -> None:
        """Start the time limit for headers, if it is not running."""
        if self.seconds and self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self.transport.close)

    def _arrived(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _await_reader(self) -> None:
        """Start the time limit for reading an answer, if it is not running."""
        if self.seconds and self._reading is None:
            self._reading = self.loop.call_later(self.seconds, self._give_up)

    def _was_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _give_up(self) -> None:
        self._reading = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _end(self, status: int, message: str) -> None:
        """Refuse what arrives, unless an answer has begun, and end the connection."""
        if self.transport.is_closing():
            return
        if self._unanswered and self._unanswered[0].response_started:
            self.transport.abort()
            return
        body = json.dumps(body_of(getattr(self, "url", b"").decode("latin-1"), message))
        self.transport.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {JSON}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode()
        )
        self.transport.close()
