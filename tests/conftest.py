"""Workers of pytest-xdist share the cores: each computes with one thread."""

from __future__ import annotations

import os
import signal

import nmt_cli  # noqa: F401  MKL is told to be reproducible before torch computes

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell ignores it for what it starts in the background; tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
