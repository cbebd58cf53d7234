"""Workers of pytest-xdist share the cores: each computes with one thread, and no thread of theirs waits busily."""

from __future__ import annotations

import os

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")  # read when torch is loaded
