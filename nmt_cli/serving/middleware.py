"""Middleware around the application, for every request: limits on the body and the time that it takes to arrive; the
log; the counters.

    uvicorn ──▶ Observed: time, status, log, counters; receive() counts bytes and seconds ──▶ application

It is plain ASGI: nothing is copied, and code that waits for a closed connection is informed.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import logs
from .context import Context
from .refusal import CLOSE, JSON, ClientGone, Refusal, body_of

QUIET = ("/health", "/ready", "/metrics")
"""Paths that programs request again and again. A successful request is counted, but not logged."""
CLOSED = 499
"""The status in the log if the client has closed the connection."""
NOTED = "nmt"
"""The key of a request's scope under which `Context.note` records its fields for the log."""


class Observed:
    """Limits, counts and logs each request. Its answer in JSON gets its charset."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self.app, self.context = app, context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        began, status = time.perf_counter(), CLOSED

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.get("headers", [])
                message["headers"] = [
                    (name, JSON.encode() if value == b"application/json" else value) for name, value in headers
                ]
            await send(message)

        app = _refuse_ambiguous if _ambiguous(scope) else self.app
        with self.context.metrics.under_way.track_inprogress():
            try:
                await app(scope, self._limited(scope, receive), noted)
            except ClientGone:
                pass
            except Exception:
                status = 500
                raise
            finally:
                self._note(scope, status, time.perf_counter() - began)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Return `receive`, which raises Refusal if the body is too long or arrives too slowly."""
        most, seconds = self.context.settings.limits.max_bytes, self.context.settings.limits.max_reading
        until = time.monotonic() + seconds if seconds else None
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        read, whole = 0, False

        async def limited() -> Message:
            nonlocal read, whole
            if whole:
                return await receive()
            if most and int(declared) > most:
                raise _too_long(most)
            try:
                message = await asyncio.wait_for(receive(), until and max(0.001, until - time.monotonic()))
            except TimeoutError:
                raise Refusal(408, f"the request did not arrive within {seconds:g} seconds.", CLOSE) from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            read += len(message.get("body", b""))
            if most and read > most:
                raise _too_long(most)
            whole = not message.get("more_body", False)
            return message

        return limited

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        metrics, route = self.context.metrics, _route(scope)
        metrics.requests.labels(route, str(status)).inc()
        metrics.seconds.labels(route).observe(seconds)
        if status < 400 and route in QUIET:
            return
        fields: dict[str, Any] = {
            "method": scope["method"],
            "path": route,
            "status": status,
            "ms": round(1000 * seconds, 1),
            **scope.get(NOTED, {}),
        }
        logs.say("request", **fields)


def _route(scope: Scope) -> str:
    """Return the path of the route that answered, else "other".

    Other paths are not counted by name: clients could invent any number of them.
    """
    route = scope.get("route")
    return str(getattr(route, "path", None) or "other")


def _ambiguous(scope: Scope) -> bool:
    """Return whether h11 accepts the request, but a proxy may see another end of it: it is refused."""
    names = {name for name, _ in scope["headers"]}
    return (
        scope["method"] == "CONNECT"
        or scope["http_version"] not in ("1.0", "1.1")
        or {b"content-length", b"transfer-encoding"} <= names
    )


async def _refuse_ambiguous(scope: Scope, receive: Receive, send: Send) -> None:
    message = "expected HTTP/1.0 or 1.1, another method than CONNECT, and one length of the body."
    await JSONResponse(body_of(scope["path"], message), 400, CLOSE)(scope, receive, send)


def _too_long(most: int) -> Refusal:
    return Refusal(413, f"the request is too large: this server reads {most:,} bytes at most. Divide it.", CLOSE)
