"""Models that translators search with, and the workers that do it.

    Translator ──▶ SearchableModels ─┬─ searcher(options): makes searches (`searchers`)
                                     ├─ pool: threads, for everybody who uses the models (`pool`)
                                     └─ session(searcher): the way of one stream of sentences (`processes`)

`engine_models` has models of the engine, `torch_models` models of torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..search.search import SearchOptions
from .pool import Pool
from .processes import ForkedSession, Session, ThreadSession, can_fork
from .searchers import SearchClass, Searcher


class SearchableModels(ABC):
    """Models that a `Translator` can search with, and the workers that do it."""

    def __init__(self, workers: int, cores: int) -> None:
        """`workers` search at once; `cores` are those of a CPU that they share."""
        self.workers = workers
        self.pool = Pool(workers, cores)

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """The largest number of positions that all models have."""

    @abstractmethod
    def searcher(self, options: SearchOptions, batch_tokens: int, search: SearchClass | None, align: bool) -> Searcher:
        """Return a searcher. `search` None: plain beam search of sentences without inputs, whatever constraints there are."""

    def session(self, searcher: Searcher) -> Session:
        """Return a session for one stream of sentences, to be used in a `with` statement."""
        if self.workers > 1 and searcher.in_python and can_fork():
            return ForkedSession(self.pool, searcher, self.workers)
        return ThreadSession(self.pool, searcher)

    def close(self) -> None:
        """End the workers."""
        self.pool.close()
