"""Windows of lines; and `FairQueue`: every request gets its turn, a new one first, and nothing is lost."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from waiting import LIMIT, wait_until

from nmt_cli.translation.pool import FairQueue
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


@dataclass(eq=False)
class Request:
    name: str
    running: int = 0


def queue_of(**items: int) -> tuple[Any, dict[str, Request]]:
    """Return a queue with so many items of each request, which are "a0", "a1", …, and the requests."""
    queue, requests = FairQueue(), {name: Request(name) for name in items}
    for name, count in items.items():
        put(queue, requests[name], count)
    return queue, requests


def put(queue: Any, request: Request, count: int) -> None:
    queue.put(request, [f"{request.name}{number}" for number in range(count)])


def take(queue: Any, count: int, **how: bool) -> list[str | None]:
    return [queue.take(**how) for _ in range(count)]


def test_requests_take_turns_and_a_new_one_is_first() -> None:
    queue, requests = queue_of(a=4, b=2)
    assert take(queue, 4) == ["a0", "b0", "a1", "b1"]
    assert requests["a"].running == requests["b"].running == 2
    put(queue, Request("c"), 1)
    assert len(queue) == 3
    assert take(queue, 4) == ["c0", "a2", "a3", None]
    assert len(queue) == 0


def test_beyond_the_capacity_only_requests_of_which_nothing_is_searched() -> None:
    queue, requests = queue_of(a=3)
    assert take(queue, 2, fresh_only=True) == ["a0", None]
    put(queue, Request("b"), 1)
    assert take(queue, 2, fresh_only=True) == ["b0", None]
    requests["a"].running = 0
    assert take(queue, 1, fresh_only=True) == ["a1"]


def test_dropped_requests_leave_nothing() -> None:
    queue, requests = queue_of(a=3, b=2)
    assert take(queue, 1) == ["a0"]
    queue.drop(requests["a"])
    queue.drop(Request("c"))
    assert len(queue) == 2
    assert take(queue, 3) == ["b0", "b1", None]
