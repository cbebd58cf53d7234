"""Workers in new processes, one per device: for several devices that are not the host.

    caller's process                                              worker process: a new Python
    ProcessPool.take(device) ──▶ SpawnedProcess ── starts ──▶ main: Start ──▶ ConvertedModels on its device, once
    a thread: SpawnedProcess.serve(queue) ──────── pipe ────▶ Begin ──▶ Worker.run over a source of batches ──▶ Finished
    ProcessPool.give_back ◀── it waits for the next Begin         ◀── Request, Report ──▶ Order or None: see `processes`

Why processes: the threads of one process wait for each other between any two operations, and a step on a fast device has
hundreds of short operations. Why new processes: a process that has used such a device cannot be forked.

How a process starts
    It runs the interpreter with a few lines of code: they take the search path for modules from the pipe, and import this
    module. Unlike `multiprocessing`, they do not import the caller's main module. So scripts need no `if __name__ ==
    "__main__"`, and notebooks work. Classes of the main module do not exist in the new process: a search that is defined in
    a script causes an error that names it.

How it gets its models
    Through `sending`: all processes map the same weights in the host's memory, and copy them to their device.

How long it lives
    A process serves one session after another; each session sends its options. At the end of a session the process gets a
    `Stop`, leaves its search after the step, and waits. If it does not stop within `PATIENCE` seconds, it is killed. If it is
    still starting, it continues to start, and takes part in a later session. It ends with the pool, or when the caller's
    process is gone. Two sessions at the same time use different processes.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler

import torch

from ..data.workers import end_with_parent
from ..device import is_host, start_process
from ..errors import NmtError, UsageError
from ..hardware import reproducible_products
from ..model.transformer import Transformer
from .batches import Batch, BatchSource
from .model_workers import ConvertedModels, ModelWorker
from .processes import PipeSource, Report, Request, WorkerProcess, blocked_signals, ignore_signals
from .search import SearchOptions
from .sending import SharedModels, pickled, with_weights
from .workers import SearchClass, Worker

CODE = """
import sys
from multiprocessing.connection import Connection
pipe = Connection({})
sys.path[:], start, session = pipe.recv(), pipe.recv_bytes(), pipe.recv_bytes()  # before it imports: the caller does not wait
from {} import main
main(pipe, start, session, {})
"""
"""The code that the new interpreter runs."""
PATIENCE = 10.0
"""Seconds that a process may take to leave its search."""


@dataclass(frozen=True)
class Start:
    """The models, for a new process."""

    models: Sequence[Transformer]
    """Models whose tensors have no memory; see `SharedModels`."""
    weights: int
    """The file descriptor of the weights."""
    precision: str
    device: str


@dataclass(frozen=True)
class Begin:
    """A session begins: the arguments of `workers`."""

    options: SearchOptions
    batch_tokens: int
    search: SearchClass | None
    align: bool


@dataclass(frozen=True)
class Stop:
    """The session ends: leave the search after the step."""


@dataclass(frozen=True)
class Finished:
    """The process has left its search."""


@dataclass(frozen=True)
class Failed:
    """The process cannot search, for this reason."""

    reason: str


def need_processes(devices: Sequence[str]) -> bool:
    """Return whether the workers of these devices must be new processes."""
    return len(devices) > 1 and sys.platform == "linux" and not any(is_host(device) for device in devices)


class SpawnedProcess(WorkerProcess):
    """A new process with models on `device`, and this side of the pipe. One session at a time uses it."""

    def __init__(self, models: SharedModels, precision: str, device: str) -> None:
        self.device = device
        self.pipe, far_end = multiprocessing.Pipe()
        command = [
            os.fsdecode(spawn.get_executable() or sys.executable),
            "-P",
            "-c",
            CODE.format(far_end.fileno(), __name__, os.getpid()),
        ]
        with far_end, blocked_signals():
            self.new = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(far_end.fileno(), models.descriptor)
            )
        self.unsent = [pickled(list(sys.path)), pickled(Start(models.models, models.descriptor, precision, device))]
        self.idle = self.answered = False
        self._sessions = 0  # sessions that ended while the process was starting: it has yet to go through them
        self._lock, self._stopped = threading.Lock(), 0.0

    def begin(self, session: bytes) -> None:
        """Prepare a session, which `serve` then starts; `session` is a pickled `Begin`."""
        self.unsent.append(session)
        self.idle, self._stopped = False, 0.0

    def serve(self, batches: BatchSource) -> None:
        """See `WorkerProcess`. At the end the process is `idle`, unless it failed."""
        with suppress(OSError):  # the process has died: its last messages may give the cause
            while self.unsent:  # the process may still be importing modules: this thread waits for it
                self.pipe.send_bytes(self.unsent[0])
                del self.unsent[0]
            with self._lock:
                if self._stopped:
                    self.pipe.send(Stop())
        super().serve(batches)

    def stop(self) -> None:
        """End the session: the process leaves its search, or begins none if it is still starting."""
        with self._lock:
            self._stopped = time.monotonic()
            if not self.idle and not self.unsent:  # else `serve` sends Stop after the unsent messages
                with suppress(OSError):
                    self.pipe.send(Stop())

    def kill(self) -> None:
        """See `WorkerProcess`."""
        self.new.kill()

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self.kill()
        self.new.wait()
        self.pipe.close()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.new.poll() is None

    def _receive(self) -> object:
        while not self.pipe.poll(1.0 if self.answered else 0.05):
            if self._stopped and not self.answered:
                self._sessions += 1
                return Finished()  # the process will send it later
            if self._stopped and time.monotonic() - self._stopped > PATIENCE:
                self.kill()
        self.answered = True
        return self.pipe.recv()

    def _answer(self, message: object, batches: BatchSource, under_way: dict[int, Batch]) -> bool:
        if (
            self._sessions and self.answered and not isinstance(message, Failed)
        ):  # the message belongs to an earlier session
            self._sessions -= isinstance(message, Finished)
            return True
        if isinstance(message, Finished):
            self.idle = True
            return False
        if isinstance(message, Failed):
            raise NmtError(f"the worker process of {self.device!r} cannot search: {message.reason}")
        if isinstance(message, Report):
            self._report(message, under_way)
            return True
        assert isinstance(message, Request)
        order = self._next(message, batches, under_way)
        with self._lock:
            if not self._stopped:  # else the process has its answer: Stop
                self.pipe.send_bytes(pickled(order))
        return True

    def exit_status(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.new.wait(1)
        return self.new.returncode


REMEDY = "Define classes and functions of your own in a module, not in the script, or use one device."


class ProcessPool:
    """The processes of models on several devices. They are kept from one session to the next."""

    def __init__(self, models: Sequence[Transformer], precision: str, devices: Sequence[str]) -> None:
        self.devices, self.precision, self._models = devices, precision, models
        self._shared: SharedModels | None = None
        self._lock, self._owner = threading.Lock(), os.getpid()
        self._idle: list[SpawnedProcess] = []
        self._running: set[SpawnedProcess] = set()
        weakref.finalize(self, _end, self._running, self._owner)

    def session(self, worker: Worker) -> bytes:
        """Return a pickled `Begin` for processes that search as `worker` does. Raises UsageError if it cannot be pickled."""
        assert isinstance(worker, ModelWorker)
        try:
            return pickled(Begin(worker.options, worker.batch_tokens, worker.search, worker.align))
        except Exception as error:
            raise UsageError(
                f"devices {', '.join(self.devices)}: what they search with cannot be sent to their processes ({type(error).__name__}: {error}). {REMEDY}"
            ) from None

    def take(self, session: bytes) -> list[SpawnedProcess]:
        """Return a process for each device. Raises OSError if one cannot be started."""
        with self._lock:
            if self._owner != os.getpid():  # after a fork the processes are the parent's
                self._owner, self._idle, self._running = os.getpid(), [], set()
                weakref.finalize(self, _end, self._running, self._owner)
            processes = [self._process(device) for device in self.devices]
        for process in processes:
            process.begin(session)
        return processes

    def give_back(self, processes: Sequence[WorkerProcess]) -> None:
        """Keep the new processes that can serve another session, one per device. End the others."""
        with self._lock:
            for process in processes:
                if not isinstance(process, SpawnedProcess):
                    continue
                same = sum(other.device == process.device for other in self._idle)
                if process.idle and process.alive and same < self.devices.count(process.device):
                    self._idle.append(process)
                else:
                    self._running.discard(process)
                    process.end()

    def _process(self, device: str) -> SpawnedProcess:
        for process in self._idle:
            if process.device == device:
                self._idle.remove(process)
                if process.alive:
                    return process
                self._running.discard(process)
                process.end()
                break
        self._shared = self._shared or SharedModels(self._models)
        process = SpawnedProcess(self._shared, self.precision, device)
        self._running.add(process)
        return process


def _end(running: set[SpawnedProcess], owner: int) -> None:
    """Kill the processes of a pool, in the process that started them."""
    if os.getpid() == owner:
        for process in running:
            process.end()


class _Source(PipeSource):
    """A source of batches that the caller can stop."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(pipe)
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """See `BatchSource`. Raises EOFError or OSError if the caller is gone."""
        if not self._stopped and self.pipe.poll():
            self._take(self.pipe.recv())
        return self._stopped

    def _take(self, answer: object) -> object:
        self._stopped = isinstance(answer, Stop)
        return None if self._stopped else answer


def main(pipe: Connection, start: bytes, session: bytes, caller: int) -> None:
    """Serve the process `caller`, in the new process, until it is gone. `start` and `session` are the first two messages: a pickled `Start` and a pickled `Begin`."""
    ignore_signals()
    end_with_parent(caller)
    torch.set_num_threads(1)
    try:
        _serve(pipe, start, session)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # at once: a library that still uses the device could wait for ever


def _serve(pipe: Connection, first: bytes, session: bytes) -> None:
    try:
        start: Start = ForkingPickler.loads(first)
        reproducible_products()
        start_process(start.device)
        models = ConvertedModels.of(with_weights(start.models, start.weights), start.precision, [start.device], 1)
        message = ForkingPickler.loads(session)
        while True:
            if isinstance(message, Begin):  # else a Stop that came when the session was over
                [worker] = models.workers(message.options, message.batch_tokens, message.search, message.align)
                worker.run(_Source(pipe))
                pipe.send(Finished())
            message = pipe.recv()
    except (EOFError, OSError):
        raise
    except Exception as error:
        pipe.send(
            Failed(
                f"{type(error).__name__}: {error}. {REMEDY if isinstance(error, AttributeError | ImportError) else ''}".rstrip()
            )
        )
