"""The queue of a `pool`: it holds sentences of several requests, and the requests take turns.

    put(request, sentences) ──▶ two rings of requests ──▶ take: one sentence of the request whose turn it is
                                  fresh    requests of which no sentence is searched now: they come first
                                  started  the others

So a single sentence does not wait behind a document of thousands of sentences. The document also makes progress while single
sentences keep coming: when none of its sentences is searched any more, it is fresh again, behind the requests that came before.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, Protocol, TypeVar


class HasRunning(Protocol):
    """A request that has the number of its sentences that are searched now."""

    running: int

    def __hash__(self) -> int: ...


R = TypeVar("R", bound=HasRunning)
T = TypeVar("T")


class FairQueue(Generic[R, T]):
    """Items of several requests. It has no lock: its owner has one."""

    def __init__(self) -> None:
        self._fresh: OrderedDict[R, deque[T]] = OrderedDict()
        self._started: OrderedDict[R, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def put(self, request: R, items: list[T], *, first: bool = False) -> None:
        """Add items of a request; `first`: before the items that it has."""
        waiting = self._ring(request).get(request)
        if waiting is None:
            waiting = (
                self._fresh.setdefault(request, deque())
                if not request.running
                else self._started.setdefault(request, deque())
            )
        if first:
            waiting.extendleft(reversed(items))
        else:
            waiting.extend(items)
        self._count += len(items)

    def take(self, *, fresh_only: bool = False) -> tuple[R, T] | None:
        """Remove the next item and return it with its request; None: there is no item.

        The caller adds 1 to the `running` of the request, and calls `paused` when it is 0 again.
        """
        ring = self._fresh if self._fresh or fresh_only else self._started
        if not ring:
            return None
        request, items = ring.popitem(last=False)
        item = items.popleft()
        self._count -= 1
        if items:
            self._started[request] = items
        return request, item

    def paused(self, request: R) -> None:
        """Make a request fresh, because none of its sentences is searched any more. Fresh requests come first."""
        if request in self._started:
            self._fresh[request] = self._started.pop(request)

    def drop(self, request: R) -> None:
        """Remove all items of a request."""
        self._count -= len(self._ring(request).pop(request, ()))

    def _ring(self, request: R) -> OrderedDict[R, deque[T]]:
        return self._fresh if request in self._fresh else self._started
