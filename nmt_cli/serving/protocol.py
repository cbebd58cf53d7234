"""uvicorn's protocol, extended: it ends connections of clients that send or read too slowly, or send too much around a
body.

uvicorn itself closes only connections that are idle after an answer. The middleware limits the size and the time of the
body. The header Upgrade is ignored: the parser would not read the body of such a request. Some clients ask for HTTP/2
with each request.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .refusal import JSON, body_of

MOST_AROUND = 2**16
"""Largest number of bytes of a request besides its body. The bytes that arrive together with the first one are not
counted."""
AROUND_BYTE = 8
"""And so many more for each byte of the body: a chunk has its length before it."""
UPGRADE = re.compile(rb"(?<=\n)upgrade(?=[ \t]*:)", re.IGNORECASE)
HEAD_END = b"\r\n\r\n"


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
        self._in_head = True
        """Whether the headers of the next request have not arrived."""

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
        if self._in_head:
            head, end, rest = data.partition(HEAD_END)
            data = UPGRADE.sub(b"ignored", head) + end + rest
        super().data_received(data)
        self._around = 0 if self._begun else max(0, self._around + len(data) - (1 + AROUND_BYTE) * self._body)
        if self._around > MOST_AROUND:
            self._end(431, f"the headers, or what is around the body, have more than {MOST_AROUND:,} bytes.")

    def on_message_begin(self) -> None:
        self._begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._arrived()
        self._in_head = False
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self._unanswered.append(self.cycle)
        if self.parser.should_upgrade():  # the parser takes the body for another request
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._end(400, "the request is not valid HTTP/1.1.")

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
