"""`nmt` in processes of its own, forked from one that has imported everything: to start Python and torch takes longer
than most commands do.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

PARENT = """
import gc, json, os, sys
import sacrebleu, torch._dynamo
from nmt_cli.__main__ import main
from nmt_cli.cli import app
from nmt_cli.decoding import translator
from nmt_cli.training import averaging, trainer
gc.collect()
gc.freeze()  # a child that looked through all this when it ends would take a second for it
for line in iter(sys.stdin.readline, ""):
    order = json.loads(line)
    if not (child := os.fork()):
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        for number, flags in enumerate((os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)):
            os.dup2(os.open(order["streams"][number], flags), number)
        sys.argv = ["nmt", *order["arguments"]]
        exec(order["prelude"])
        main()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


class Parent:
    """The process that forks; one command at a time."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="nmt-forked-")
        self.streams = [Path(self.folder.name) / name for name in ("stdin", "stdout", "stderr")]
        environment = {**os.environ, **ENVIRONMENT}
        self.process = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
        atexit.register(self.end)

    def end(self) -> None:
        """End it, and what still runs of its children."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self.folder.cleanup()
        atexit.unregister(self.end)

    def run(self, folder: Path, arguments: list[str], text: bytes, prelude: str, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for stream, content in zip(self.streams, (text, b"", b""), strict=True):
            stream.write_bytes(content)
        streams, everything = [str(stream) for stream in self.streams], {**os.environ, **ENVIRONMENT, **environment}
        order = {"folder": str(folder), "arguments": arguments, "prelude": prelude, "environment": everything, "streams": streams}
        print(json.dumps(order), file=self.process.stdin, flush=True)
        code = int(self.process.stdout.readline())
        return subprocess.CompletedProcess(["nmt", *arguments], code, self.streams[1].read_bytes(), self.streams[2].read_bytes())


@cache
def parent() -> Parent:
    return Parent()


def run(folder: Path, *arguments: object, text: bytes = b"", prelude: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run `nmt` in `folder` to its end; a `prelude` of Python code is run before it in the same process."""
    try:
        return parent().run(folder, [str(argument) for argument in arguments], text, prelude, environment)
    except BaseException:  # the test's time is over, say: what it waited for must not answer the next one
        parent().end()
        parent.cache_clear()
        raise


def nmt(folder: Path, *arguments: object, prelude: str = "", code: int = 0) -> str:
    """Run `nmt` in `folder` to its end, which must be `code` and without a traceback; what it said."""
    done = run(folder, *arguments, prelude=prelude)
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert "Traceback" not in said, said
    return said
