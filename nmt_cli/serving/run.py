"""Run a server in this process, or several processes that serve.

settings ──▶ serve ──▶ a listening socket ──▶ Server in this process, or `supervisor`: N processes with a Server each
"""

from __future__ import annotations

import contextlib

from ..errors import Terminated
from . import logs
from .files import Files
from .models import ServedModels
from .server import address_of, check_exposure, listen, make_server
from .settings import Settings
from .supervisor import supervise


def serve(settings: Settings) -> None:
    """Serve until a signal ends the server. Raises Terminated for that signal, AddressError, ModelError, UsageError."""
    logs.configure(settings.log)
    check_exposure(settings)
    listener = listen(settings.host, settings.port)
    with contextlib.closing(listener), contextlib.closing(Files()) as files:
        if settings.processes > 1:
            supervise(settings, listener, files)
        models = ServedModels(settings, logs.say, logs.warn)
        try:
            server = make_server(settings, models, files)
            logs.say(f"listening on {address_of(listener)}")
            server.run(sockets=[listener])
        finally:
            models.close()
    if server.received is not None:
        raise Terminated(server.received)
