"""Windows of lines and batches of sentences."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from waiting import LIMIT, wait_until

from nmt_cli.translation.windows import WindowSize, windows

LINES = [str(number) for number in range(20)]


def test_windows_double_up_to_the_largest_and_hold_so_many_characters() -> None:
    assert [len(window or []) for window in windows(LINES, WindowSize(2, 6))] == [2, 4, 6, 6, 2]
    assert [line for window in windows(LINES, WindowSize(2, 6)) for line in window or []] == LINES
    assert [len(window or []) for window in windows(["abc"] * 5, WindowSize(9, 9, characters=6))] == [2, 2, 1]
    assert [len(window or []) for window in windows([("a", "bc")] * 5, WindowSize(9, 9, characters=6))] == [2, 2, 1]


@pytest.mark.parametrize("ahead", [True, False])
def test_an_error_is_raised_after_the_lines_before_it(ahead: bool) -> None:
    def broken() -> Iterator[str]:
        yield from LINES[:7]
        raise ValueError("cut")

    found: list[str] = []
    with pytest.raises(ValueError, match="cut"):
        found.extend(
            line
            for window in windows(broken(), WindowSize(5, 5), (lambda: False) if ahead else None)
            for line in window or []
        )
    assert found == LINES[:7]


def test_who_is_busy_does_not_wait_for_lines() -> None:
    more = threading.Event()

    def slow() -> Iterator[str]:
        yield "first"
        assert more.wait(LIMIT)
        yield "second"

    several = windows(slow(), WindowSize(5, 5), lambda: True)
    found = []
    while (window := next(several)) is None or window != ["second"]:
        found.append(window)
        if window:
            assert next(several) is None
            more.set()
    assert [window for window in found if window] == [["first"]]


def test_the_reader_ends_when_nobody_reads_any_more() -> None:
    several = windows(iter(LINES * 1000), WindowSize(2, 2), lambda: False)
    next(several)
    several.close()
    wait_until(lambda: not any(thread.name == "nmt-reader" for thread in threading.enumerate()))
