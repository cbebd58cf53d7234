"""Searchers, and the searches that a worker runs.

    sentences ──▶ RunningSearch.add · step: one search over one decoder ──▶ (sentence, SearchResult) as they finish

A `Searcher` makes searches with the same models and options; several threads may use it at once. Its models are the
engine's (`engine_models`) or torch's (`torch_models`). A search takes more sentences as
soon as it has room: it does not wait for the last hypotheses of earlier ones, which are few. `pool` runs searches in
threads, `processes` in processes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from ..data.tokenizer import EOS
from ..search.search import AT_ONCE, Search, SearchOptions, StepSearch
from ..search.sentence import FinishedSentences, Hypothesis, SearchResult, Sentence
from .alignment import aligned

if TYPE_CHECKING:
    from ..search.protocols import Decoder, GrowingDecoder
    from .processes import SearchableModels

AT_MOST = 0.05
"""Seconds that the steps in one call of a prompt search take at most, if it is more than one step. New sentences wait
for the end of the call, and finished sentences too if there are many. With fewer calls, more of the processor's time
goes to the steps."""
HALF = 0.5
"""A search that is at most so full takes more sentences."""

SearchClass = Callable[["Decoder", SearchOptions], StepSearch]
"""A search class, as `nmt_cli.registry.SEARCHES` lists them."""
T = TypeVar("T")


class Searcher:
    """Makes searches of at most about `batch_tokens` source tokens at once, over the same models and with the same
    options.
    """

    def __init__(
        self,
        models: SearchableModels,
        options: SearchOptions,
        batch_tokens: int,
        search: SearchClass | None = None,
        align: bool = False,
    ) -> None:
        """`search` None: beam search. `align`: results have alignments."""
        self.models, self.options, self.batch_tokens, self.search = models, options, batch_tokens, search
        self.align = align
        self.plain = models.has_plain_search and search is None and _is_plain(options)

    @property
    def arguments(self) -> tuple[SearchOptions, int, SearchClass | None, bool]:
        """The arguments, without models, that make such a searcher."""
        return self.options, self.batch_tokens, self.search, self.align

    @property
    def in_python(self) -> bool:
        """Whether a search spends much time in Python, so that threads of one process would wait for each other."""
        return self.models.on_host and not self.plain

    def load(self, sentence: Sentence) -> float:
        """Return which part of a search a sentence fills at first."""
        return max(self.options.beam / self.models.rows, (len(sentence.tokens) + 1) / self.batch_tokens)

    def prompt(self) -> Self:
        """Return a searcher with the same results, whose sentences leave as soon as they are finished."""
        other = copy.copy(self)
        other.options = replace(self.options, compact_below=AT_ONCE, seconds=AT_MOST)
        return other

    def new_search(self) -> Search:
        """Return a search without sentences."""
        if self.plain:
            return MixedSearch(self.models.plain_search(self.options), self._decoder_search)
        return self._decoder_search()

    def _decoder_search(self) -> Search:
        from ..search.beam_search import BeamSearch

        return DecoderSearch(self._decoder, self.search or BeamSearch, self.options)

    def _decoder(self) -> GrowingDecoder:
        from ..search.ensemble import EnsembleDecoder

        members = self.models.decoders(self.options.beam)
        return members[0] if len(members) == 1 else EnsembleDecoder(members)

    def result(self, source: Sequence[int], hypotheses: list[Hypothesis]) -> SearchResult:
        """Return the result of a sentence, given its source without end symbol and its hypotheses, best first."""
        if not self.align:
            return SearchResult(hypotheses, [])
        return SearchResult(hypotheses, aligned(self.models.aligning, [*source, EOS], hypotheses[0].tokens))


def _is_plain(options: SearchOptions) -> bool:
    """Return whether beam search has no other rule than prefixes of some sentences."""
    from ..search.constraints.prefix import Prefix

    return not options.coverage_penalty and all(type(rule) is Prefix for rule in options.constraints)


class DecoderSearch(Search):
    """A search over a decoder, both made when the first sentences come."""

    def __init__(self, decoder: Callable[[], GrowingDecoder], search: SearchClass, options: SearchOptions) -> None:
        self.new_decoder, self.new_search, self.options = decoder, search, options
        self.pair: tuple[GrowingDecoder, StepSearch] | None = None

    @property
    def busy(self) -> bool:
        return self.pair is not None and self.pair[1].busy

    @property
    def open_hypotheses(self) -> int:
        return self.pair[1].open_hypotheses if self.pair else 0

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        if self.pair is None:
            decoder = self.new_decoder()
            self.pair = decoder, self.new_search(decoder, self.options)
        decoder, search = self.pair
        decoder.add([[*sentence.tokens, EOS] for sentence in sentences])
        search.add(sentence_ids, sentences)

    def step(self) -> FinishedSentences:
        return self.pair[1].step() if self.pair else []

    def drop(self, sentence_ids: Sequence[int]) -> None:
        if self.pair:
            self.pair[1].drop(sentence_ids)


class MixedSearch(Search):
    """Plain beam search of sentences without inputs of constraints, and another search of those with inputs."""

    def __init__(self, plain: Search, constrained: Callable[[], Search]) -> None:
        self.plain, self.constrained, self.others = plain, constrained, list[Search]()

    @property
    def busy(self) -> bool:
        return self.plain.busy or any(search.busy for search in self.others)

    @property
    def open_hypotheses(self) -> int:
        return sum(search.open_hypotheses for search in (self.plain, *self.others))

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        for has_inputs in (False, True):
            chosen = [pair for pair in zip(sentence_ids, sentences, strict=True) if bool(pair[1].inputs) == has_inputs]
            if chosen and has_inputs and not self.others:
                self.others = [self.constrained()]
            if chosen:
                ids, those = zip(*chosen, strict=True)
                (self.others[0] if has_inputs else self.plain).add(ids, those)

    def step(self) -> FinishedSentences:
        return [sentence for search in (self.plain, *self.others) if search.busy for sentence in search.step()]

    def drop(self, sentence_ids: Sequence[int]) -> None:
        for search in (self.plain, *self.others):
            search.drop(sentence_ids)


class RunningSearch(Generic[T]):
    """A search, with the `tasks` that are in it, by number: each is a sentence of the caller."""

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        with searcher.models.computing():
            self.search = searcher.new_search()
        self.tasks: dict[int, T] = {}
        self.sentences: dict[int, Sentence] = {}
        self.next, self.tokens = 0, 0  # the next number, and the source tokens of all sentences

    @property
    def load(self) -> float:
        """How full the search is; 1: full."""
        return max(self.search.open_hypotheses / self.searcher.models.rows, self.tokens / self.searcher.batch_tokens)

    def add(self, tasks: Sequence[T], sentences: Sequence[Sentence]) -> None:
        """Begin to search a sentence for each task."""
        numbers = range(self.next, self.next + len(tasks))
        self.next += len(tasks)
        self.tasks.update(zip(numbers, tasks, strict=True))
        self.sentences.update(zip(numbers, sentences, strict=True))
        self.tokens += sum(len(sentence.tokens) + 1 for sentence in sentences)
        with self.searcher.models.computing():
            self.search.add(numbers, sentences)

    def step(self) -> list[tuple[T, SearchResult]]:
        """Take a step. Return the tasks that it finishes, with their results."""
        with self.searcher.models.computing():
            found = [
                (number, self.searcher.result(self.sentences[number].tokens, hypotheses))
                for number, hypotheses in self.search.step()
            ]
        return [(self._remove(number), result) for number, result in found]

    def drop(self, numbers: Collection[int]) -> None:
        """Remove these tasks without results."""
        with self.searcher.models.computing():
            self.search.drop(list(numbers))
        for number in numbers:
            self._remove(number)

    def _remove(self, number: int) -> T:
        self.tokens -= len(self.sentences.pop(number).tokens) + 1
        return self.tasks.pop(number)


def search_all(
    searcher: Searcher, sentences: Sequence[Sentence], stopped: Callable[[], bool] = lambda: False
) -> list[SearchResult]:
    """Return the results of sentences, searched in this thread, long ones first.

    Raises CancelledError once it is `stopped`.
    """
    order = sorted(range(len(sentences)), key=lambda index: len(sentences[index].tokens))
    search, results = RunningSearch[int](searcher), dict[int, SearchResult]()
    while order or search.tasks:
        chosen: list[int] = []
        load = search.load
        if order and load <= HALF:
            while order and load < 1:
                chosen.append(order.pop())
                load += searcher.load(sentences[chosen[-1]])
            search.add(chosen, [sentences[index] for index in chosen])
        results.update(search.step())
        if stopped():
            raise CancelledError
    return [results[index] for index in range(len(sentences))]
