"""Workers that search with models of the engine, on a CPU.

    model folders, or models of torch ──▶ EngineModels: packed once ──▶ EngineWorker for each core ─┬─▶ PlainSearch, without torch
                                                                                                    └─▶ other searches over EngineDecoder

All workers share the packed weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..data.tokenizer import BOS, EOS
from ..engine.model import EngineModel, use_threads
from .batches import BatchSource, SearchResult
from .plain_search import PlainSearch
from .search import FinishedSentences, Hypothesis, Search, SearchOptions
from .sentence import Sentence
from .workers import DecoderSearch, SearchableModels, SearchClass, Worker

if TYPE_CHECKING:
    from .protocols import GrowingDecoder

SMOOTHING = 0.1
"""Added to the sum of each column of attention, so that tokens with hardly any attention are not chosen by chance."""


class EngineModels(SearchableModels):
    """A model, or an ensemble, with this number of workers. `threads` are those of a computation that has the CPU for itself."""

    def __init__(self, models: Sequence[EngineModel], workers: int, threads: int) -> None:
        self.models, self.count, self.threads = models, workers, threads

    @property
    def max_positions(self) -> int:
        """See `SearchableModels`."""
        return min(model.max_positions for model in self.models)

    def workers(
        self, options: SearchOptions, batch_tokens: int, search: SearchClass | None, align: bool
    ) -> list[EngineWorker]:
        """See `SearchableModels`."""
        if search is not None:
            from ..device import let_forks_compute

            let_forks_compute()  # loads torch here, before workers are forked
        return [
            EngineWorker(self.models, options, batch_tokens, search, align, self.threads) for _ in range(self.count)
        ]


class EngineWorker(Worker):
    """A model, or an ensemble, that computes with `threads` threads."""

    device: Any = "cpu"

    def __init__(
        self,
        models: Sequence[EngineModel],
        options: SearchOptions,
        batch_tokens: int,
        search: SearchClass | None,
        align: bool,
        threads: int,
    ) -> None:
        super().__init__(options, batch_tokens)
        self.models, self.search, self.align, self.threads = models, search, align, threads

    def copy(self) -> Self:
        """See `Worker`."""
        return type(self)(self.models, self.options, self.batch_tokens, self.search, self.align, self.threads)

    def run(self, batches: BatchSource) -> None:
        """See `Worker`."""
        use_threads(self.threads)
        super().run(batches)

    def new_search(self) -> Search:
        """See `Worker`."""
        if self.search is None and len(self.models) == 1:
            return PlainSearch(self.models[0], self.options)
        if len(self.models) == 1 and self._is_plain():
            return MixedSearch(PlainSearch(self.models[0], self.options), self._decoder_search)
        return self._decoder_search()

    def _is_plain(self) -> bool:
        """Return whether the options ask for plain beam search of sentences without inputs."""
        from .beam_search import BeamSearch
        from .constraints.prefix import Prefix

        rules = self.options.constraints
        return (
            self.search is BeamSearch
            and not self.options.coverage_penalty
            and all(type(rule) is Prefix for rule in rules)
        )

    def _decoder_search(self) -> Search:
        """Return a search over decoders of the engine."""
        import torch

        from .beam_search import BeamSearch

        return DecoderSearch(self._decoder, self.search or BeamSearch, self.options, torch.device("cpu"))

    def _decoder(self) -> GrowingDecoder:
        from .engine_decoder import EngineDecoder
        from .ensemble import EnsembleDecoder

        members = [EngineDecoder(model, self.options.beam) for model in self.models]
        return members[0] if len(members) == 1 else EnsembleDecoder(members)

    def result(self, source: Sequence[int], hypotheses: list[Hypothesis]) -> SearchResult:
        """See `Worker`."""
        return SearchResult(
            hypotheses, aligned(self.models[0], [*source, EOS], hypotheses[0].tokens) if self.align else []
        )


class MixedSearch(Search):
    """Plain beam search of sentences without inputs of constraints, and another search of those with inputs."""

    def __init__(self, plain: Search, constrained: Callable[[], Search]) -> None:
        self.plain, self.constrained, self.others = plain, constrained, list[Search]()

    @property
    def busy(self) -> bool:
        """See `Search`."""
        return self.plain.busy or any(search.busy for search in self.others)

    @property
    def open_hypotheses(self) -> int:
        """See `Search`."""
        return sum(search.open_hypotheses for search in (self.plain, *self.others))

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        """See `Search`."""
        for has_inputs in (False, True):
            chosen = [pair for pair in zip(sentence_ids, sentences, strict=True) if bool(pair[1].inputs) == has_inputs]
            if chosen and has_inputs and not self.others:
                self.others = [self.constrained()]
            if chosen:
                ids, those = zip(*chosen, strict=True)
                (self.others[0] if has_inputs else self.plain).add(ids, those)

    def step(self) -> FinishedSentences:
        """See `Search`."""
        return [sentence for search in (self.plain, *self.others) if search.busy for sentence in search.step()]

    def drop(self, sentence_ids: Sequence[int]) -> None:
        """See `Search`."""
        for search in (self.plain, *self.others):
            search.drop(sentence_ids)


def aligned(model: EngineModel, source: Sequence[int], output: Sequence[int]) -> list[int]:
    """Return for each token of `output` the index of the token of `source` to which it is aligned; see `alignment`. `source` ends with the end symbol."""
    if not output:
        return []
    _, weights = model.forced([source], [[BOS, *output[:-1]]], attention=["cross"])
    layers = weights["cross"][1:] if len(weights["cross"]) > 1 else weights["cross"]
    mean = layers.astype(np.float64).mean((0, 1))  # (T, S)
    indices: list[int] = (mean / (mean.sum(0) + SMOOTHING)).argmax(1).tolist()
    return indices
