"""Runs a script with compiled kernels, and with torch's operators alone."""

from __future__ import annotations

import os
import subprocess
import sys


def with_and_without_kernels(code: str) -> list[str]:
    """Return what Python `code` prints with kernels, and what it prints with NMT_KERNELS=off; each in a process of its own."""
    printed = []
    for switch in ({}, {"NMT_KERNELS": "off"}):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **switch}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    return printed
