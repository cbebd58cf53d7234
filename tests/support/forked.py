"""`nmt` in processes of its own, forked from one that has imported everything: to start Python and torch takes longer
than most commands do.

    run(folder, "score", "hyp", "--ref", "ref")      to its end
    start(folder, "train", ...)                      returned while it runs, as by subprocess.Popen

A process ends by `os._exit` once its exit handlers have run and its streams are flushed: to take the modules apart takes
Python half a second. With `finalize` it ends as any Python process does.
"""

import atexit
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

PARENT = """
import atexit, gc, importlib, json, os, sys, threading, traceback
import sacrebleu, torch._dynamo
from nmt_cli.__main__ import main
from nmt_cli.cli import app
from nmt_cli.translation import models, translator
from nmt_cli.training import averaging, trainer


def load(modules):
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:  # the command reports it
            continue
    gc.collect()
    gc.freeze()  # a child that looked through all this when it ends would take a second for it


def in_child(order):
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for number, flags in enumerate((os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(order["streams"][number], flags), number)
    sys.argv = ["nmt", *order["arguments"]]
    exec(order["prelude"], globals())
    main()


def leave(code):  # what Python does at its end, but for the modules
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception as error:
            code = 120
            print(f"Exception ignored in {stream!r}: {error}", file=sys.stderr)
    os._exit(code)


for commands in app.COMMANDS.values():
    load([f"nmt_cli.cli.{where.partition(':')[0]}" for where, _ in commands.values()])
for line in iter(sys.stdin.readline, ""):
    order = json.loads(line)
    if new := [name for name in order.get("modules", []) if name not in sys.modules]:
        load(new)
    if "wait" in order:
        child, status = os.waitpid(order["wait"], 0 if order["blocking"] else os.WNOHANG)
        print(os.waitstatus_to_exitcode(status) if child else "None", flush=True)
    elif child := os.fork():
        print(child, flush=True)
    elif order["finalize"]:
        in_child(order)
    else:
        try:
            in_child(order)
            leave(0)
        except SystemExit as error:
            leave(error.code if isinstance(error.code, int) else int(error.code is not None))
        except BaseException:
            traceback.print_exc()
            leave(1)
"""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
MODULES = {"--png": ["matplotlib.backends.backend_agg", "matplotlib.figure"], "export": ["ctranslate2", "transformers"]}
"""What commands with such an argument import late; the parent imports it once, before it forks the first of them."""


class Parent:
    """The process that forks."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="nmt-forked-")
        self.numbers = itertools.count()
        environment = {**os.environ, **ENVIRONMENT}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        atexit.register(self.end)

    def end(self) -> None:
        """End it, and what still runs of its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self.folder.cleanup()
        atexit.unregister(self.end)

    def ask(self, order: dict[str, Any]) -> int | None:
        """Return its answer to an order: a process number or an exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(json.dumps(order), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline().strip()
            return None if answer == "None" else int(answer)
        except BaseException:  # the test's time is over, say: this answer must not be taken for the next one
            self.end()
            parent.cache_clear()
            raise


@cache
def parent() -> Parent:
    return Parent()


class Process:
    """A command that runs, with the methods of subprocess.Popen that tests need."""

    def __init__(
        self, folder: Path, arguments: list[str], text: bytes, prelude: str, finalize: bool, environment: dict[str, str]
    ) -> None:
        self.parent, self.args, self.returncode = parent(), ["nmt", *arguments], None
        own = Path(self.parent.folder.name) / str(next(self.parent.numbers))
        self.streams = [own.with_suffix(f".{name}") for name in ("stdin", "stdout", "stderr")]
        for stream, content in zip(self.streams, (text, b"", b""), strict=True):
            stream.write_bytes(content)
        modules = [name for argument in arguments for name in MODULES.get(argument, [])]
        order = {
            "modules": modules,
            "folder": str(folder),
            "arguments": arguments,
            "prelude": prelude,
            "finalize": finalize,
            "environment": {**os.environ, **ENVIRONMENT, **environment},
            "streams": [str(stream) for stream in self.streams],
        }
        self.pid = self.parent.ask(order)

    returncode: int | None

    def poll(self, blocking: bool = False) -> int | None:
        if self.returncode is None:
            self.returncode = self.parent.ask({"wait": self.pid, "blocking": blocking})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status. Raises TimeoutExpired after `timeout` seconds; None waits for ever."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll(blocking=deadline is None)) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(0.01)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait for its end; return stdout and stderr."""
        self.wait(timeout)
        written = self.streams[1].read_bytes(), self.streams[2].read_bytes()
        for stream in self.streams:
            stream.unlink()
        return written

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            assert self.pid is not None
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    folder: Path, *arguments: object, text: bytes = b"", prelude: str = "", finalize: bool = False, **environment: str
) -> Process:
    """Start `nmt` in `folder`; a `prelude` of Python code is run before it in the same process."""
    return Process(folder, [str(argument) for argument in arguments], text, prelude, finalize, environment)


def run(folder: Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run `nmt` in `folder` to its end, as `start` does."""
    process = start(folder, *arguments, **options)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.args, process.wait(), stdout, stderr)


def nmt(folder: Path, *arguments: object, prelude: str = "", code: int = 0) -> str:
    """Run `nmt` in `folder` to its end, which must be `code` and without a traceback; what it said."""
    done = run(folder, *arguments, prelude=prelude)
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert "Traceback" not in said, said
    return said


def sets(*changes: str) -> list[str]:
    """Return the options for changes of the recipe."""
    return [word for change in changes for word in ("--set", change)]
