"""Searchers with models of the engine, on a CPU.

    model folders, or models of torch ──▶ EngineModels: packed once ──▶ EngineSearcher ─┬─▶ PlainSearch
                                                                                        └─▶ other searches over EngineDecoder

All threads share the packed weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..engine.model import EngineModel, use_threads
from ..search.plain_search import PlainSearch
from ..search.search import Search, SearchOptions
from ..search.sentence import FinishedSentences, Sentence
from .searchable import SearchableModels
from .searchers import DecoderSearch, SearchClass, Searcher

if TYPE_CHECKING:
    from ..search.protocols import GrowingDecoder


class EngineModels(SearchableModels):
    """A model, or an ensemble. `workers` search at once; `cores` are those of the CPU."""

    def __init__(self, models: Sequence[EngineModel], workers: int, cores: int) -> None:
        super().__init__(workers, cores)
        self.models = models

    @property
    def max_positions(self) -> int:
        """See `SearchableModels`."""
        return min(model.max_positions for model in self.models)

    def searcher(
        self, options: SearchOptions, batch_tokens: int, search: SearchClass | None, align: bool
    ) -> EngineSearcher:
        """See `SearchableModels`."""
        return EngineSearcher(self.models, options, batch_tokens, search, align)


class EngineSearcher(Searcher):
    """A searcher with a model, or an ensemble."""

    def __init__(
        self,
        models: Sequence[EngineModel],
        options: SearchOptions,
        batch_tokens: int,
        search: SearchClass | None,
        align: bool,
    ) -> None:
        super().__init__(options, batch_tokens, search, align)
        self.models = models
        self.plain = len(models) == 1 and (search is None or self._is_plain())
        self.in_python = not self.plain

    def use_threads(self, count: int) -> None:
        """See `Searcher`."""
        use_threads(count)

    def new_search(self) -> Search:
        """See `Searcher`."""
        if not self.plain:
            return self._decoder_search()
        plain = PlainSearch(self.models[0], self.options)
        return plain if self.search is None else MixedSearch(plain, self._decoder_search)

    def _is_plain(self) -> bool:
        """Return whether the options ask for plain beam search of sentences without inputs."""
        from ..search.beam_search import BeamSearch
        from ..search.constraints.prefix import Prefix

        rules = self.options.constraints
        return (
            self.search is BeamSearch
            and not self.options.coverage_penalty
            and all(type(rule) is Prefix for rule in rules)
        )

    def _decoder_search(self) -> Search:
        """Return a search over decoders of the engine."""
        from ..search.beam_search import BeamSearch

        return DecoderSearch(self._decoder, self.search or BeamSearch, self.options)

    def _decoder(self) -> GrowingDecoder:
        from ..search.ensemble import EnsembleDecoder
        from .engine_decoder import EngineDecoder

        members = [EngineDecoder(model, self.options.beam) for model in self.models]
        return members[0] if len(members) == 1 else EnsembleDecoder(members)

    @property
    def aligning(self) -> EngineModel:
        """See `Searcher`."""
        return self.models[0]


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
