"""The log: what is written at once, and what is written together."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from waiting import wait_until

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install '.[serve]'")

from nmt_cli.serving import logs


class Writes(io.StringIO):
    """A stream that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.each: list[str] = []

    def write(self, text: str) -> int:
        self.each.append(text)
        return len(text)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    stream = Writes()
    monkeypatch.setattr(sys, "stderr", stream)
    loggers = [logging.getLogger(name) for name in ("nmt.serve", "uvicorn", "asyncio")]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    logs.configure("plain")
    yield stream.each
    for one, (handlers, propagate, level) in zip(loggers, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


def lines(writes: list[str]) -> list[list[str]]:
    """The messages of each write, without their times."""
    return [[line[20:] for line in text.splitlines()] for text in writes]


def test_lines_that_come_soon_after_each_other_are_written_together(
    writes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = threading.Event()
    clock = {"monotonic": lambda: 0.0, "sleep": lambda _: passed.wait()}
    monkeypatch.setattr(logs, "time", SimpleNamespace(**{**vars(time), **clock}))
    for number in range(50):
        logs.say("request", number=number)
    assert lines(writes) == [["request number=0"]]  # at once
    passed.set()
    wait_until(lambda: len(writes) == 2)
    assert lines(writes) == [["request number=0"], [f"request number={number}" for number in range(1, 50)]]


def test_a_warning_is_written_at_once_with_the_lines_before_it(
    writes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "GATHER", 3600.0)
    for text in ("first", "second"):
        logs.say(text)
    logs.warn("third")
    assert lines(writes) == [["first"], ["second", "warning: third"]]
    logs.say("last")
    logs.flush()
    assert lines(writes)[2:] == [["last"]]
