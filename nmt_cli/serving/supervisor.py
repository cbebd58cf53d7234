"""`--processes N`: several processes serve one socket, and uvicorn's supervisor replaces one that dies.

    serve ──▶ supervise(settings, socket) ──▶ Multiprocess ── starts N times ──▶ a new process: models ──▶ Server
                  SIGTERM, SIGINT: all end as one server does   ▲                │ dies: clients see closed connections
                  SIGHUP: one after another is replaced         └── another one ◀┘

Each process has models, a queue and counters of its own. All accept connections from the same socket.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from dataclasses import replace

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess

from ..data.workers import end_with_parent
from ..device.hardware import surely_cpu
from ..device.memory import keep_freed_memory
from ..device.processor import cores
from ..errors import NmtError, Terminated
from ..model.folder_files import find_model, read_config
from . import logs
from .files import Files
from .models import ServedModels
from .server import Server, address_of, make_server
from .settings import Settings

HANGS = 30
"""Seconds without a sign of life after which a process is killed."""


def supervise(settings: Settings, listener: socket.socket, files: Files) -> None:
    """Serve with several processes on a socket, until a signal ends the server. They share `files`.

    Raises Terminated for it, ModelError, and NmtError if a process cannot start.
    """
    for model in settings.models:
        read_config(find_model(model))
    if settings.devices is None and surely_cpu(settings.device):  # several processes share a GPU as it is
        settings = replace(settings, devices=max(1, cores() // settings.processes))
    config = _Config(settings, files)
    multiprocess.Process = _Process  # type: ignore[misc]  # it has no parameter for this
    supervisor = _Supervisor(config, [listener])
    supervisor.run()
    if supervisor.received is not None:
        raise Terminated(supervisor.received)
    raise NmtError("the server ended: one of its processes could not start, and has said why.")


class _Config(uvicorn.Config):
    """What a process is told; the application is made there."""

    def __init__(self, settings: Settings, files: Files) -> None:
        super().__init__("", workers=settings.processes, log_config=None, timeout_worker_healthcheck=HANGS)
        self.settings, self.files, self.parent = settings, files, os.getpid()


class _Supervisor(multiprocess.Multiprocess):
    """uvicorn's supervisor, which remembers the signal that ends it."""

    def __init__(self, config: _Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self.should_exit = _Ending(self)

    @property
    def received(self) -> int | None:
        """The first signal that ends the server; None: none has come."""
        return next((number for number in self.signal_queue if number in Server.ending), None)

    def init_processes(self) -> None:
        """Start all processes."""
        super().init_processes()
        logs.say(f"listening on {address_of(self.sockets[0])} with {self.processes_num} processes")

    def handle_signals(self) -> None:
        """Do what the signals ask for, an end before all else; several SIGHUP are one."""
        if self.received is not None:
            self.should_exit.set()
            return
        while self.signal_queue.count(signal.SIGHUP) > 1:
            self.signal_queue.remove(signal.SIGHUP)
        super().handle_signals()


class _Ending(threading.Event):
    """Is set as soon as a signal has come that ends all processes, also while they are replaced."""

    def __init__(self, supervisor: _Supervisor) -> None:
        super().__init__()
        self.supervisor = supervisor

    def is_set(self) -> bool:
        return super().is_set() or self.supervisor.received is not None


class _Process(multiprocess.Process):
    """One of the processes, here and there."""

    config: _Config

    def pong(self) -> None:
        """Answer the supervisor, in the process: whether it serves."""
        self.child_conn.recv()
        self.child_conn.send(self._server is not None and self._server.started)

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        """Load the models and serve, in the process."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until the server handles it
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a terminal sends them to all processes, but the supervisor decides
        settings = self.config.settings
        end_with_parent(self.config.parent, lambda: os.kill(os.getpid(), signal.SIGTERM))
        threading.Thread(target=self.always_pong, daemon=True).start()
        logs.configure(settings.log)
        keep_freed_memory()
        try:
            models = ServedModels(settings, logs.say, logs.warn)
        except NmtError as error:
            logs.logger.error(str(error))
            sys.exit(STARTUP_FAILURE)
        try:
            server = make_server(settings, models, self.config.files, _Server)
            self._server = server
            server.run(sockets=sockets)
        finally:
            models.close()


class _Server(Server):
    """A server that only its supervisor ends."""

    ending = (signal.SIGTERM,)
    reloading = ()
