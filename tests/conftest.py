"""The tests' environment: no variable of the user's decides numbers. tools/other_machines.py sets some of them anew, in
$NMT_TEST_MACHINE. $NMT_TEST_ORDER, any text, is the seed of a random order. CI takes the hash of tests/ in git: another
order after each change of them.

Workers of pytest-xdist share the cores: each computes with one thread.
"""

import os
import random
import signal
from pathlib import Path

import pytest

DECIDES = ("ATEN_", "DNNL_", "KMP_", "MKL_", "NMT_ENGINE", "NMT_MODEL", "OMP_", "ONEDNN_")

for name in [name for name in os.environ if name.startswith(DECIDES)]:
    del os.environ[name]
os.environ.update(dict(pair.split("=") for pair in os.environ.get("NMT_TEST_MACHINE", "").split()))
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is loaded

import nmt_cli  # noqa: E402, F401  MKL is told to be reproducible before torch computes

# a shell ignores it for what it starts in the background; tests press Ctrl-C
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`tmp_path`, as the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but this machine is asked: all other addresses go to a proxy that is not there."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.hookimpl(tryfirst=True)  # then pytest joins the tests that share a parameter of a module
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if seed := os.environ.get("NMT_TEST_ORDER"):
        random.Random(seed).shuffle(items)
