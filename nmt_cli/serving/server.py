"""The server: a socket, models, uvicorn, signals and shutdown.

    serve: listen ──▶ models (workers start) ──▶ uvicorn
           ──▶ SIGINT, SIGTERM: answer running requests ──▶ close ──▶ Terminated
                                                    └── SIGHUP: their reload in a thread

The socket is opened first: if the port is in use, the error comes before models are loaded. Clients that connect during
loading wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from ..errors import NmtError, UsageError
from ..text import detection
from . import logs
from .app import build_app
from .context import Context
from .files import Files
from .metrics import Metrics
from .models import ServedModels
from .protocol import MOST_AROUND, TimedProtocol
from .settings import Settings

BACKLOG = 2048
"""Largest number of connections that wait to be accepted."""
KEEP_ALIVE = 65
"""Seconds that a connection may be idle between two requests. This is more than the 60 seconds of most proxies."""

LAST_REQUESTS = 0.25
"""Seconds from the end of accepting to the end of idle connections: what clients have sent already is read."""
ENDING = 1.0
"""Seconds in which requests that were cancelled write their answers."""
LAST_RESORT = 15.0
"""So many seconds after the grace period, the process ends, whatever it is doing."""


class AddressError(NmtError):
    """The server cannot listen on the address."""


def check_exposure(settings: Settings) -> None:
    """Raise UsageError if other machines could reach the server without a key, unless --no-keys allows it."""
    if settings.keys.required or settings.open_to_all or is_local(settings.host):
        return
    raise UsageError(
        f"--host {settings.host!r} can be reached from other machines, and no keys were given: anyone could use the "
        "server. Give --keys FILE, one key per line, or --no-keys if everyone may use it."
    )


def is_local(host: str) -> bool:
    """Return whether only this machine can reach this address."""
    try:
        found = socket.getaddrinfo(host or None, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises AddressError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise AddressError(
            f"--host {host!r} is no address of this machine ({getattr(error, 'strerror', None) or error}): "
            "expected one, such as 127.0.0.1, ::1 or 0.0.0.0."
        ) from None
    family, both = found[0][0], found[0][0] == socket.AF_INET6 and socket.has_dualstack_ipv6()
    address: Any = found[0][4]
    try:
        listener = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise AddressError(_refused(host, port, error)) from None
    listener.setblocking(False)
    return listener


def _refused(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"--port {port} is in use on {host}: another server listens there. Give another one; 0 is any that is free."
        )
    if error.errno == errno.EACCES:
        return f"--port {port} needs the rights of the system's administrator. Give one above 1023."
    return (
        f"--host {host!r}, --port {port}: cannot listen there: {os.strerror(error.errno or 0)}. Expected an address of "
        "this machine, such as 127.0.0.1."
    )


def address_of(listener: socket.socket) -> str:
    """Return the URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Server(uvicorn.Server):
    """uvicorn with our application and our signals."""

    ending: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    """Signals that stop the server."""
    reloading: tuple[int, ...] = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()
    """Signals that load the models anew."""

    def __init__(self, settings: Settings, context: Context) -> None:
        limits = settings.limits
        config = uvicorn.Config(
            build_app(context),
            http=TimedProtocol.within(limits.max_reading),
            h11_max_incomplete_event_size=MOST_AROUND,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(settings.grace)),
            limit_concurrency=limits.max_connections or None,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self.context = context
        self.received: int | None = None
        """The signal that ends the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle `ending` and `reloading` while the block runs, if the server runs in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = dict.fromkeys(self.ending, self._stop) | dict.fromkeys(self.reloading, self._reload)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Accept no more connections, finish running requests, and end."""
        self.context.stopping = self.should_exit = True

    def _stop(self, number: int, frame: object) -> None:
        """Stop the server. The second signal ends it at once."""
        if self.received is not None:
            self.force_exit = True
            return
        self.received = number
        last_resort = threading.Timer(self.context.settings.grace + LAST_RESORT, os._exit, [128 + number])
        last_resort.daemon = True
        last_resort.start()
        self.stop()

    def _reload(self, number: int, frame: object) -> None:
        threading.Thread(target=self.context.models.reload, daemon=True, name="nmt-reload").start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, answer the requests of those that are open, and close them.

        Requests that take longer than the grace period are refused.
        """
        logs.say(f"ending: {len(self.server_state.tasks)} requests are under way")
        for server in self.servers:
            server.close()
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        await asyncio.sleep(LAST_REQUESTS)
        await super().shutdown(sockets)
        await self._ended()  # tasks that were cancelled answer that the server is stopped
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # of clients that do not read, or that hold a connection open
        await self._ended()

    async def _ended(self) -> None:
        """Wait for the tasks of requests, at most ENDING seconds."""
        if self.server_state.tasks:
            await asyncio.wait(list(self.server_state.tasks), timeout=ENDING)


def make_server(settings: Settings, models: ServedModels, files: Files, kind: type[Server] = Server) -> Server:
    """Return a server of this kind with these models, which keeps translated files in `files`.

    Its `run(sockets=[…])` answers requests until `stop` is called or a signal arrives.
    """
    detection.warm_up()
    return kind(settings, Context(settings, models, Metrics(models, settings.processes), files))
