"""Batches of sources to translate together, and the queue from which workers take them."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from .search import Hypothesis
from .sentence import Sentence


@dataclass
class SearchResult:
    """The hypotheses of a source, best first; if asked for, the alignment of the best one (see `alignment.aligned`)."""

    hypotheses: list[Hypothesis]
    alignment: list[int]


@dataclass
class Batch:
    """Sources to translate together. `done` holds a result for each source, or the error that a worker raised."""

    sentences: list[Sentence]
    results: dict[int, SearchResult] = field(default_factory=dict)
    """The result of each source, by its index."""
    done: Future[list[SearchResult]] = field(default_factory=Future)

    @property
    def tokens(self) -> int:
        """The tokens of all sources, end symbols counted."""
        return sum(len(sentence.tokens) + 1 for sentence in self.sentences)

    def add(self, index: int, result: SearchResult) -> None:
        """Store the result of one source. The last result completes `done`."""
        self.results[index] = result
        if len(self.results) == len(self.sentences):
            self.done.set_result([self.results[i] for i in range(len(self.sentences))])


class BatchSource(Protocol):
    """The source from which a worker gets its batches."""

    @property
    def stopped(self) -> bool:
        """Whether the worker shall stop after its step, in the middle of a batch."""
        ...

    def get(self, *, wait: bool) -> Batch | None:
        """Return the next batch. None with `wait`: no more batches will come; None without `wait`: no batch is ready."""
        ...


class BatchQueue:
    """A queue of batches for several threads."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """See `BatchSource`."""
        return self._stopped

    def put(self, batch: Batch) -> None:
        """Append a batch."""
        with self._changed:
            self._batches.append(batch)
            self._changed.notify()

    def get(self, *, wait: bool) -> Batch | None:
        """See `BatchSource`. A stopped queue returns None, even if it holds batches."""
        with self._changed:
            while wait and not self._batches and not self._stopped:
                self._changed.wait()
            return None if self._stopped or not self._batches else self._batches.popleft()

    def stop(self) -> None:
        """Tell all workers to stop after their step."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class SingleBatch:
    """A `BatchSource` with one batch."""

    stopped = False

    def __init__(self, batch: Batch) -> None:
        self._batch: Batch | None = batch

    def get(self, *, wait: bool) -> Batch | None:
        """See `BatchSource`."""
        batch, self._batch = self._batch, None
        return batch


def token_batches(
    order: Sequence[int], lengths: Sequence[int], batch_tokens: int, max_sentences: int = sys.maxsize
) -> list[list[int]]:
    """Cut the indices `order` into batches whose sentences, padded to the first one's length, have at most `batch_tokens`.

    `lengths[i]` is the length of sentence i; in `order` long ones come first. A batch has at least one sentence and at
    most `max_sentences`.
    """
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        size = max(1, min(batch_tokens // lengths[order[start]], max_sentences))
        batches.append(list(order[start : start + size]))
        start += size
    return batches
