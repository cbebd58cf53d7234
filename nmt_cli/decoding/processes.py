"""Workers of a CPU as processes of their own: threads of one process wait for each other between any two operations.

    thread of this process, `serve` ── pipe ── forked child: Worker.run
        ◀── ("want", whether it waits)      ──▶ (number, batch), or None: there is none
        ◀── ("done", number, found, fault)

A child is a fork: it begins at once and shares the weights' memory. It has one thread, so nothing of the parent's
threads is missing in it. Signals that end a program reach all processes of a terminal or a job at once; the parent alone
decides what they mean (training saves first), so its children ignore them: they are killed, or end when it is gone. Where there is no fork, and on GPUs, workers are threads (`Translator`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import torch

from ..errors import NmtError
from .workers import Batch, Worker

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a program."""


def available(workers: Sequence[Worker]) -> bool:
    """Whether these workers gain by processes, and can be forked."""
    return len(workers) > 1 and sys.platform == "linux" and all(worker.device.type == "cpu" for worker in workers)


class Child:
    """A worker in a process; `serve`, in a thread, hands it batches until None comes."""

    def __init__(self, worker: Worker, others: Sequence[Child]) -> None:
        """`others`: those that were made before it, whose pipes it would inherit."""
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        inherited = [self.pipe, *(other.pipe for other in others)]
        self.process = context.Process(target=_child, args=(worker, theirs, inherited), daemon=True, name="nmt-worker")
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # until the child ignores them
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads: see above
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()

    def serve(self, batches: queue.SimpleQueue[Batch | None]) -> None:
        """Until None comes. Of a child that died every batch it had, or would have had, fails."""
        under_way: dict[int, Batch] = {}
        ended = False  # None came
        try:
            while not ended:
                kind, *rest = self.pipe.recv()
                if kind == "want":
                    batch = self._next(batches, rest[0])
                    ended = batch is None and rest[0]
                    if batch is not None:
                        under_way[id(batch)] = batch
                        self.pipe.send((id(batch), batch.sources, batch.prefixes, batch.limits))
                    else:
                        self.pipe.send(None)
                else:
                    number, found, fault = rest
                    done = under_way.pop(number).done
                    done.set_exception(fault) if fault else done.set_result(found)
        except (EOFError, OSError):
            self.process.join(1)
            for batch in under_way.values():
                batch.done.set_exception(self._died())
            while not ended and (batch := batches.get()) is not None:
                batch.done.set_exception(self._died())

    @staticmethod
    def _next(batches: queue.SimpleQueue[Batch | None], wait: bool) -> Batch | None:
        try:
            batch = batches.get(block=wait)
        except queue.Empty:
            return None
        if batch is None and not wait:
            batches.put(None)  # it is told when it asks again, with nothing left to do
        return batch

    def _died(self) -> NmtError:
        code = self.process.exitcode
        cause = f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return NmtError(f"a worker process died ({cause}); was there memory enough? Give fewer --devices, or smaller --batch-tokens.")

    def stop(self) -> None:
        """At once, whatever it does."""
        self.process.kill()


class _Asking:
    """The child's end: what `Worker.run` takes batches from."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def get(self) -> Batch | None:
        return self._asked(True)

    def get_nowait(self) -> Batch | None:
        batch = self._asked(False)
        if batch is None:
            raise queue.Empty
        return batch

    def _asked(self, wait: bool) -> Batch | None:
        self.pipe.send(("want", wait))
        answer = self.pipe.recv()
        if answer is None:
            return None
        number, sources, prefixes, limits = answer
        batch = Batch(sources, prefixes, limits)

        def tell(done: Future[Any]) -> None:
            fault = done.exception()
            with contextlib.suppress(OSError):  # the parent has gone: `get` will say so
                try:
                    self.pipe.send(("done", number, None if fault else done.result(), fault))
                except OSError:
                    raise
                except Exception:  # a fault that cannot be sent as it is
                    self.pipe.send(("done", number, None, NmtError(f"{type(fault).__name__}: {fault}")))

        batch.done.add_done_callback(tell)
        return batch


def _child(worker: Worker, pipe: Connection, inherited: Sequence[Connection]) -> None:
    """The process: it ends when the parent says so, or has gone."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    for end in inherited:
        end.close()
    torch.set_num_threads(1)
    try:
        worker.run(_Asking(pipe), threading.Event())  # type: ignore[arg-type]
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)  # nothing of the parent's is flushed or ended a second time
