"""Workers: each searches the batches that it takes from a source; it may search several batches at once.

    batches ──▶ BatchSource.get ──▶ Worker.run: one search over one decoder ──▶ Batch.results, then Batch.done

A worker adds the next batch to a search as soon as it has the capacity: it does not wait for the last hypotheses of
earlier batches, which are few. A worker has a device: a GPU, or one of a CPU's cores. `pool` says where workers run.

There are two kinds of workers: `engine_workers` search with models of the engine, `model_workers` with models of torch.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from ..data.tokenizer import EOS
from ..engine import model as engine
from .batches import Batch, BatchSource, SearchResult, SingleBatch
from .search import FinishedSentences, Hypothesis, Search, SearchOptions, StepSearch
from .sentence import Sentence

if TYPE_CHECKING:
    import torch

    from .protocols import Decoder, GrowingDecoder
    from .spawned import ProcessPool

CPU_ROWS = 512
"""Largest number of hypotheses in one step on a CPU. More hypotheses are not faster and need more memory."""

SearchClass = Callable[["Decoder", SearchOptions], StepSearch]
"""A search class, as `nmt_cli.registry.SEARCHES` lists them."""


def use_threads(count: int) -> None:
    """Let this thread compute with `count` threads from now on: in the engine, and in torch if it is loaded."""
    engine.use_threads(count)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


class Worker(ABC):
    """A worker on a device. It searches at most `batch_tokens` source tokens at once.

    Only one thread at a time may use it; `search_one` takes a lock for this.
    """

    device: torch.device

    threads: int
    """With how many threads `run` computes."""

    def __init__(self, options: SearchOptions, batch_tokens: int) -> None:
        self.options, self.batch_tokens = options, batch_tokens
        self._lock = threading.Lock()

    @property
    def sentences(self) -> int:
        """Largest number of sentences in a batch: two such batches fill a step."""
        return max(1, CPU_ROWS // (2 * self.options.beam))

    @abstractmethod
    def new_search(self) -> Search:
        """Return a search without sentences."""

    @abstractmethod
    def copy(self) -> Self:
        """Return another worker with the same models, which may run at the same time."""

    def result(self, source: Sequence[int], hypotheses: list[Hypothesis]) -> SearchResult:
        """Return the result of a sentence, given its source without end symbol and its hypotheses, best first."""
        return SearchResult(hypotheses, [])

    def run(self, batches: BatchSource) -> None:
        """Search batches until no more will come, or until `batches` is stopped."""
        waiting: Batch | None = None
        while not batches.stopped and (batch := waiting or batches.get(wait=True)):
            waiting = self._search_together(batch, batches)

    def search_one(self, batch: Batch) -> None:
        """Search one batch, after those of other threads."""
        with self._lock:
            self.run(SingleBatch(batch))

    def _search_together(self, first: Batch, batches: BatchSource) -> Batch | None:
        """Search `first` and the batches that come meanwhile. Return the batch that was taken but not started, if any."""
        running = RunningSearch(self)
        waiting: Batch | None = first
        try:
            while not batches.stopped:
                if waiting and running.has_capacity(waiting.tokens):
                    batch, waiting = waiting, None
                    running.add(batch)
                if not running.busy:
                    break
                running.step()
                if waiting is None and running.has_capacity():
                    waiting = batches.get(wait=False)
        except Exception as error:
            running.fail(error)
        return waiting


class DecoderSearch(Search):
    """A search over a decoder, both made when the first sentences come."""

    def __init__(
        self, decoder: Callable[[], GrowingDecoder], search: SearchClass, options: SearchOptions, device: torch.device
    ) -> None:
        self.new_decoder, self.new_search, self.options, self.device = decoder, search, options, device
        self.pair: tuple[GrowingDecoder, StepSearch] | None = None

    @property
    def busy(self) -> bool:
        """See `Search`."""
        return self.pair is not None and self.pair[1].busy

    @property
    def open_hypotheses(self) -> int:
        """See `Search`."""
        return self.pair[1].open_hypotheses if self.pair else 0

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        """See `Search`."""
        if self.pair is None:
            decoder = self.new_decoder()
            self.pair = decoder, self.new_search(decoder, self.options)
        decoder, search = self.pair
        decoder.add([[*sentence.tokens, EOS] for sentence in sentences])
        search.add(sentence_ids, sentences, self.device)

    def step(self) -> FinishedSentences:
        """See `Search`."""
        return self.pair[1].step() if self.pair else []

    def drop(self, sentence_ids: Sequence[int]) -> None:
        """See `Search`."""
        if self.pair:
            self.pair[1].drop(sentence_ids)


class RunningSearch:
    """A search, with the sentences of the batches that are in it."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.search = worker, worker.new_search()
        self.sentences: dict[
            int, tuple[Batch, int]
        ] = {}  # by id of a sentence in the search: its batch, and its index in the batch
        self.next_id = self.tokens = 0  # source tokens of the sentences

    @property
    def busy(self) -> bool:
        return bool(self.sentences)

    def has_capacity(self, tokens: int = 0) -> bool:
        """Return whether a batch of this many source tokens may be added."""
        if not self.sentences:
            return True
        return (
            self.search.open_hypotheses <= self.worker.sentences * self.worker.options.beam
            and self.tokens + tokens <= self.worker.batch_tokens
        )

    def add(self, batch: Batch) -> None:
        """Begin to search a batch."""
        ids = range(self.next_id, self.next_id + len(batch.sentences))
        self.sentences.update({number: (batch, index) for index, number in enumerate(ids)})
        self.next_id, self.tokens = self.next_id + len(ids), self.tokens + batch.tokens
        self.search.add(ids, batch.sentences)

    def step(self) -> None:
        """Take a step and store the results of the sentences that finish."""
        for number, hypotheses in self.search.step():
            batch, index = self.sentences.pop(number)
            source = batch.sentences[index].tokens
            self.tokens -= len(source) + 1
            batch.add(index, self.worker.result(source, hypotheses))

    def drop(self, unwanted: Callable[[Batch, int], bool]) -> None:
        """Remove the sentences for which `unwanted(batch, index)` is true, without results. Their batch is never done."""
        dropped = [number for number, (batch, index) in self.sentences.items() if unwanted(batch, index)]
        if dropped:
            self.search.drop(dropped)
        for number in dropped:
            batch, index = self.sentences.pop(number)
            self.tokens -= len(batch.sentences[index].tokens) + 1

    def fail(self, error: Exception) -> None:
        """Set the error of all batches that are not done."""
        for batch in {id(batch): batch for batch, _ in self.sentences.values()}.values():
            batch.done.set_exception(error)


class SearchableModels(ABC):
    """Models that a `Translator` can search with."""

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """The largest number of positions that all models have."""

    @property
    def processes(self) -> ProcessPool | None:
        """The processes that hold the models of each device, if workers are new processes (`spawned`)."""
        return None

    @abstractmethod
    def workers(
        self, options: SearchOptions, batch_tokens: int, search: SearchClass | None, align: bool
    ) -> Sequence[Worker]:
        """Return a worker for each device. `search` None: plain beam search of sentences without inputs, whatever constraints there are."""
