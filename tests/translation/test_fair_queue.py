"""`FairQueue`: every request gets its turn, a new one first, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nmt_cli.translation.pool import FairQueue


@dataclass(eq=False)
class Request:
    name: str
    running: int = 0


def take(queue: Any, *, fresh_only: bool = False) -> str | None:
    """Take an item as a pool does. Return the name of its request and the item."""
    taken = queue.take(fresh_only=fresh_only)
    if taken is None:
        return None
    taken[0].running += 1
    return f"{taken[0].name}{taken[1]}"


def test_requests_take_turns_and_a_new_one_is_first() -> None:
    queue: Any = FairQueue()
    document, other, late = Request("a"), Request("b"), Request("c")
    queue.put(document, [0, 1, 2, 3])
    queue.put(other, [0, 1])
    assert [take(queue) for _ in range(4)] == ["a0", "b0", "a1", "b1"]
    queue.put(late, [0])
    assert len(queue) == 3
    assert [take(queue) for _ in range(4)] == ["c0", "a2", "a3", None]
    assert len(queue) == 0


def test_beyond_the_capacity_only_requests_of_which_nothing_is_searched() -> None:
    queue: Any = FairQueue()
    document, single = Request("a"), Request("b")
    queue.put(document, [0, 1, 2])
    assert [take(queue, fresh_only=True), take(queue, fresh_only=True)] == ["a0", None]
    queue.put(single, [0])
    assert [take(queue, fresh_only=True), take(queue, fresh_only=True)] == ["b0", None]
    document.running = 0
    assert take(queue, fresh_only=True) == "a1"


def test_what_comes_back_is_first_and_dropped_requests_leave_nothing() -> None:
    queue: Any = FairQueue()
    request = Request("a")
    queue.put(request, [0, 1])
    assert take(queue) == "a0"
    queue.put(request, [0], first=True)
    assert [take(queue), take(queue)] == ["a0", "a1"]
    queue = FairQueue()
    one, two = Request("a"), Request("b")
    queue.put(one, [0, 1, 2])
    queue.put(two, [0, 1])
    assert take(queue) == "a0"
    queue.drop(one)
    queue.drop(Request("c"))
    assert len(queue) == 2
    assert [take(queue) for _ in range(3)] == ["b0", "b1", None]
