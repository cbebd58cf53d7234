"""Searches in use: sentences enter and leave them at any step.

    sentences ──▶ RunningSearch.add · step: one search ──▶ (task, SearchResult) as they finish

A search takes more sentences as soon as it has capacity: it does not wait for the last hypotheses of earlier ones,
which are few. Its models are seen through `SearchModels`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Generic, TypeVar

from .protocols import SearchModels
from .search import Accepts, SearchOptions
from .sentence import FinishedSentences, Hypothesis, SearchResult, Sentence

HALF = 0.5
"""A search that is at most so full takes more sentences."""

T = TypeVar("T")


class RunningSearch(Generic[T]):
    """A search, with the `tasks` that are in it, by number: each is a sentence of the caller.

    `in_engine`: it is the engine's own search; see `SearchModels`.
    """

    def __init__(self, models: SearchModels, options: SearchOptions, in_engine: bool) -> None:
        self.models, self.options, self.in_engine = models, options, in_engine
        with models.computing():
            self.search, self.decoder = models.new_search(options, in_engine)
        self.tasks: dict[int, T] = {}
        self.sentences: dict[int, Sentence] = {}
        self.next, self.tokens = 0, 0  # the next number, and the source tokens of all sentences
        self.doubted: dict[int, list[Hypothesis]] = {}  # what was found for sentences that are searched again
        self.again: RunningSearch[int] | None = None

    @property
    def load(self) -> float:
        """How full the search is; 1: full."""
        own = max(self.search.open_hypotheses / self.models.rows, self.tokens / self.options.batch_tokens)
        return own + self.again.load if self.again else own

    def add(self, tasks: Sequence[T], sentences: Sequence[Sentence]) -> None:
        """Begin to search a sentence for each task."""
        numbers = range(self.next, self.next + len(tasks))
        self.next += len(tasks)
        self.tasks.update(zip(numbers, tasks, strict=True))
        self.sentences.update(zip(numbers, sentences, strict=True))
        self.tokens += sum(len(sentence.tokens) + 1 for sentence in sentences)
        with self.models.computing():
            if self.decoder:
                self.decoder.add([[*sentence.tokens, *[self.options.eos] * sentence.ended] for sentence in sentences])
            self.search.add(numbers, sentences)

    def step(self) -> list[tuple[T, SearchResult]]:
        """Take a step. Return the tasks that it finishes, with their results."""
        with self.models.computing():
            accepts = self.options.accepts
            finished = self._accepted(accepts) if accepts else self.search.step()
            align, sentences = self.options.align, self.sentences
            results = [
                (
                    number,
                    SearchResult(found, self._aligned(number, found) if align or sentences[number].aligned else []),
                )
                for number, found in finished
            ]
        return [(self._remove(number), result) for number, result in results]

    def _accepted(self, accepts: Accepts) -> FinishedSentences:
        """Take a step, and search again for sentences whose best output is not accepted. Return those that are done."""
        finished = self.search.step() if self.search.busy else []
        done, doubted = FinishedSentences(), dict[int, list[Hypothesis]]()
        for number, found in finished:
            if accepts(self.sentences[number], found[0].tokens):
                done.append((number, found))
            else:
                doubted[number] = found
        self.doubted |= doubted
        if doubted:
            self.again = self.again or RunningSearch(self.models, self.options.second, self.in_engine)
            self.again.add([*doubted], [self.sentences[number] for number in doubted])
        for number, others in self.again.step() if self.again and self.again.tasks else []:
            first, sentence = self.doubted.pop(number), self.sentences[number]
            chosen = next((one for one in others.hypotheses if accepts(sentence, one.tokens)), None)
            done.append((number, [self._scored(chosen)] if chosen else first))
        return done

    def _scored(self, hypothesis: Hypothesis) -> Hypothesis:
        return replace(hypothesis, score=self.options.score(hypothesis.log_prob, len(hypothesis.tokens) + 1))

    def drop(self, numbers: Collection[int]) -> None:
        """Remove these tasks without results."""
        with self.models.computing():
            self.search.drop(list(numbers))
        if self.again:
            self.again.drop([own for own, number in self.again.tasks.items() if number in numbers])
        for number in numbers:
            self.doubted.pop(number, None)
            self._remove(number)

    def _aligned(self, number: int, found: list[Hypothesis]) -> list[list[int]]:
        """Return the alignment of the best hypothesis, or of each if the sentence asks for that."""
        sentence = self.sentences[number]
        source = [*sentence.tokens, *[self.options.eos] * sentence.ended]
        return [self.models.aligned(source, one.tokens) for one in (found if sentence.aligned else found[:1])]

    def _remove(self, number: int) -> T:
        self.tokens -= len(self.sentences.pop(number).tokens) + 1
        return self.tasks.pop(number)


def share(models: SearchModels, options: SearchOptions, sentence: Sentence) -> float:
    """Return which part of a search a sentence fills at first."""
    return max(options.beam / models.rows, (len(sentence.tokens) + 1) / options.batch_tokens)


def search_all(
    models: SearchModels,
    options: SearchOptions,
    sentences: Sequence[Sentence],
    stopped: Callable[[], bool] = lambda: False,
) -> list[SearchResult]:
    """Return the results of sentences, searched in this thread, long ones first.

    Raises CancelledError once it is `stopped`.
    """
    order = sorted(range(len(sentences)), key=lambda index: len(sentences[index].tokens))
    in_engine = models.in_engine(options) and not any(sentence.inputs for sentence in sentences)
    search, results = RunningSearch[int](models, options, in_engine), dict[int, SearchResult]()
    while order or search.tasks:
        chosen: list[int] = []
        load = search.load
        if order and load <= HALF:
            while order and load < 1:
                chosen.append(order.pop())
                load += share(models, options, sentences[chosen[-1]])
            search.add(chosen, [sentences[index] for index in chosen])
        results.update(search.step())
        if stopped():
            raise CancelledError
    return [results[index] for index in range(len(sentences))]
