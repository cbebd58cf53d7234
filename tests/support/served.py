"""A server of tiny models on a real socket: in a thread of the tests, or as the command in a process of its own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from waiting import LIMIT, wait_until

SERVER = ("fastapi", "uvicorn", "prometheus_client", "python_multipart")
for package in (*SERVER, "py3langid", "sentencex", "defusedxml"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[serve,dev]'")
httpx = pytest.importorskip("httpx2", reason="httpx2 is not installed: pip install '.[dev]'")
get, post = partial(httpx.get, timeout=LIMIT), partial(httpx.post, timeout=LIMIT)
"""Requests. httpx itself gives up after 5 seconds, which a busy machine may need."""

from nmt_cli.serving.files import Files  # noqa: E402
from nmt_cli.serving.models import ServedModels  # noqa: E402
from nmt_cli.serving.server import Server, address_of, listen, make_server  # noqa: E402
from nmt_cli.serving.settings import Settings  # noqa: E402


@dataclass
class Served:
    """A running server."""

    url: str
    models: ServedModels
    server: Server
    said: list[str]

    def connect(self, buffer: int = 0) -> socket.socket:
        """Return a raw connection; `buffer`: the bytes that it takes before they are read."""
        address = urlsplit(self.url)
        client = socket.socket()
        client.settimeout(LIMIT)
        if buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.connect((address.hostname, address.port))
        return client

    def idle(self) -> bool:
        """Whether no sentence is waited for."""
        pools = [model.translator.pool for model in self.models.pairs.models.values()]
        return all(pool.waiting + pool.running == 0 for pool in pools)


@contextmanager
def running(*folders: Path, **options: Any) -> Iterator[Served]:
    """Serve these models until the block ends. `options` are those of `Settings`."""
    said: list[str] = []
    settings = Settings(models=folders, port=0, **{"device": "cpu", "devices": 1, "precision": "fp32", **options})
    listener = listen(settings.host, settings.port)
    url = address_of(listener)
    models = ServedModels(settings, said.append, said.append)
    with closing(Files()) as files:
        server = make_server(settings, models, files)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(url, models, server, said)
        finally:
            server.stop()
            thread.join(LIMIT)
            models.close()
    assert not thread.is_alive()


class Command:
    """`nmt serve` in a process of its own."""

    def __init__(self, *arguments: str, prelude: str = "", environment: dict[str, str] | None = None) -> None:
        """`prelude` is Python code that is run before it in the same process."""
        code = f"{prelude}\nfrom nmt_cli.__main__ import main\nmain()"
        options = ["--port", "0", "--device", "cpu", "--devices", "1", *arguments]
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", *options],
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.end()

    @property
    def url(self) -> str:
        """Its address; waits until it is known."""
        found = re.search(r"http://\S+?:\d+", self.wait_for("listening on"))
        assert found
        return found[0]

    def wait_for(self, text: str) -> str:
        """Return the first line of stderr with this text; waits for it. Raises AssertionError if the command ends without."""
        wait_until(
            lambda: self._first(text) or not self._reader.is_alive(), lambda: f"{text!r} is not among {self.lines}"
        )
        assert self._first(text), f"{text!r} is not among {self.lines}"
        return self._first(text)

    def _first(self, text: str) -> str:
        return next((line for line in list(self.lines) if text in line), "")

    def end(self) -> int:
        """Wait for its end. Return the exit status."""
        code = self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        assert self.process.stderr
        self.process.stderr.close()
        return code

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
