"""`FairQueue`: every request gets its turn, a new one first, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nmt_cli.translation.pool import FairQueue


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
