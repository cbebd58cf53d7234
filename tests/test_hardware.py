"""What the machine has."""

from __future__ import annotations

import os

import pytest

from nmt_cli.hardware import cores


@pytest.mark.parametrize(("limit", "expected"), [("1", 1), ("100000", None), ("0", None), ("", None), ("many", None)])
def test_openmps_limit_of_threads_counts(limit: str, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_THREAD_LIMIT", raising=False)
    there = cores()
    assert 1 <= there <= (os.cpu_count() or 1)
    monkeypatch.setenv("OMP_THREAD_LIMIT", limit)
    assert cores() == (expected or there)
