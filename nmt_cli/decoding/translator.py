"""Lines in, translations out, in order, as a stream.

    lines ──▶ windows ──▶ ids, long lines in parts ──▶ batches of like length ──▶ workers ──▶ hypotheses
          ──▶ text ──▶ parts joined, in the order of the lines

`Translator.translate` is used by `nmt translate` and by validation. Empty and blank lines never reach the model: their
translation is empty. While one window is translated the next is read and prepared, if it is there; a few sentences
alone are translated in the caller's thread, by all of a CPU's cores. How lines fall into windows, batches and workers
changes nothing in their translations (see `fast`).
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ..data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from ..model.transformer import Transformer
from ..recipe import DecodeSection
from .processes import Child, available
from .sampling import Sampling
from .search import SearchOptions, length_penalty
from .split import parts_of
from .windows import LAST_WINDOW, windows
from .workers import Batch, Found, Worker, workers

ALONE = 16
"""Sentences up to which one worker with all of a CPU's cores is faster than several with one each."""

Line = str | tuple[str, str]
"""A source, or a source and what its translation begins with."""


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. Of a line in parts: the parts' texts joined, log P summed, scored as one output."""

    text: str
    score: float
    log_prob: float
    pieces: tuple[str, ...] = ()
    """Its subwords as SentencePiece writes them (▁ begins a word)."""


@dataclass(frozen=True)
class Result:
    """A line and its translations, best first; there is always one."""

    source: str
    candidates: tuple[Candidate, ...]
    tokens: int
    """Of the best translation, end symbols counted; 0: the line was blank."""
    source_pieces: tuple[str, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = None
    """Where asked for: (source piece, piece of the best translation), for each of the latter that looks at a source piece."""

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def translation(self) -> str:
        return self.best.text


@dataclass(frozen=True)
class _Part:
    """What the model translates at once: a line, or one of its parts."""

    line: int
    ids: list[int]
    prefix: list[int]


@dataclass
class _Pending:
    """A window under way: its batches, each with the places of its sources among `parts`."""

    lines: list[Line]
    parts: list[_Part]
    batches: list[tuple[list[int], Batch]]
    alone: bool
    """Nobody has been given the batch: it is searched when its results are asked for."""


class Translator:
    """Models, their tokenizers and the options of the search.

    `model` is one, or several that share their vocabulary: an ensemble, whose probabilities are averaged. `decode` is
    the recipe's section; `longest` the tokens of a line beyond which it is translated in parts (0: what the model can
    take; the recipe's `data.max_length` is the longest it was trained on); `nbest` at most `decode.beam`; `precision` a
    name of `precision.PRECISIONS`. `devices` are torch devices, one worker each, "cpu" several times for several
    cores; none: where the model is, one. With `sampling` outputs are drawn at random, `decode.beam` a line. `align`:
    results tell alignments. The model is read, never changed, and may be changed afterwards: make a new Translator
    then. Raises UsageError where the precision cannot be had.
    """

    def __init__(
        self,
        model: Transformer | Sequence[Transformer],
        source: Tokenizer,
        target: Tokenizer,
        decode: DecodeSection,
        *,
        longest: int = 0,
        nbest: int = 1,
        precision: str = "fp32",
        devices: Sequence[str] = (),
        sampling: Sampling | None = None,
        align: bool = False,
    ) -> None:
        models = [model] if isinstance(model, Transformer) else list(model)
        self.source, self.target, self.decode, self.align = source, target, decode, align
        room = min(one.config.max_positions for one in models) - 1  # one for the end symbol, or the begin symbol
        self.longest, self.longest_output = min(longest, room) if longest else room, room
        self.options = SearchOptions(beam=decode.beam, alpha=decode.alpha, nbest=nbest, bos=BOS, eos=EOS, never=(PAD, UNK, BOS), min_length=decode.min_length, textless=target.textless)
        self.workers = workers(models, precision, list(devices) or [str(models[0].output_weight.device)], self.options, decode.batch_tokens, sampling, align)
        self.alone = self.workers[0].beside()
        self.pieces = (source.table, target.table)

    def translate(self, lines: Iterable[Line]) -> Iterator[Result]:
        """A result for each line, in order. A list is taken as it is; anything else is read ahead of by a thread."""
        for window in self.windows(lines):
            yield from window

    def windows(self, lines: Iterable[Line]) -> Generator[list[Result], None, None]:
        """The same in the pieces in which it is computed: after each, whatever could be read has been answered."""
        pending: deque[_Pending] = deque()
        batches: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        several = _slices(lines) if isinstance(lines, Sequence) else windows(lines, lambda: bool(pending))
        left, threads, children = threading.Event(), list[threading.Thread](), list[Child]()
        fault: Exception | None = None

        def leave() -> None:
            """The workers stop after their step; Python must not end before them, nor wait for more."""
            left.set()
            for child in children:
                child.stop()
            for _ in threads:
                batches.put(None)
            for thread in threads:
                thread.join()

        atexit.register(leave)  # for those who read on no further and keep the iterator
        try:
            while True:
                try:
                    window = next(several)
                except StopIteration:
                    break
                except Exception as error:  # told after the lines that came before it
                    fault = error
                    break
                if window is not None:
                    pending.append(self._begin(window, batches))
                    if not threads and not pending[-1].alone:
                        threads = self._threads(batches, left, children)
                while pending and (window is None or len(pending) > 1):
                    yield self._end(pending.popleft())
            while pending:
                yield self._end(pending.popleft())
            if fault is not None:
                raise fault
        finally:
            several.close()
            leave()
            atexit.unregister(leave)

    def _threads(self, batches: queue.SimpleQueue[Batch | None], left: threading.Event, children: list[Child]) -> list[threading.Thread]:
        """A running thread for each worker, which computes, or speaks to the child that does."""

        def run(worker: Worker) -> None:
            if len(self.workers) > 1:
                torch.set_num_threads(1)  # of this thread
            worker.run(batches, left)

        targets: list[Callable[[], None]] = [partial(run, worker) for worker in self.workers]
        if available(self.workers):
            for worker in self.workers:
                children.append(Child(worker, children))
            targets = [partial(child.serve, batches) for child in children]
        threads = [threading.Thread(target=target, name="nmt-worker", daemon=True) for target in targets]
        for thread in threads:
            thread.start()
        return threads

    def _begin(self, lines: list[Line], batches: queue.SimpleQueue[Batch | None]) -> _Pending:
        """Hand the window's batches to the workers."""
        parts = self._parts(lines)
        chosen = [(indices, self._batch([parts[i] for i in indices])) for indices in self._batches([len(part.ids) + 1 for part in parts])]
        pending = _Pending(lines, parts, chosen, alone=len(chosen) <= 1)
        if not pending.alone:
            for _, batch in chosen:
                batches.put(batch)
        return pending

    def _end(self, pending: _Pending) -> list[Result]:
        """Wait for the window's batches."""
        found: list[Found] = [Found([], [])] * len(pending.parts)
        for indices, batch in pending.batches:
            if pending.alone:
                self.alone.all(batch)
            for index, one in zip(indices, batch.done.result(), strict=True):
                found[index] = one
        return self._results(pending.lines, pending.parts, found)

    def _batch(self, parts: list[_Part]) -> Batch:
        limits = [min(len(part.ids) + len(part.prefix) + self.decode.max_extra, self.longest_output) for part in parts]
        return Batch([part.ids for part in parts], [part.prefix for part in parts], limits)

    def _parts(self, lines: Sequence[Line]) -> list[_Part]:
        """What there is to translate; a prefix goes before the first part of its line."""
        encode = self.source.encode
        texts = [line if isinstance(line, str) else line[0] for line in lines]
        numbers = [number for number, text in enumerate(texts) if text.strip()]
        given = [(number, line[1]) for number, line in enumerate(lines) if not isinstance(line, str) and line[1].strip()]
        prefixes = dict(zip([number for number, _ in given], self.target.encode([prefix for _, prefix in given]), strict=True))
        parts: list[_Part] = []
        for number, ids in zip(numbers, encode([texts[number] for number in numbers]), strict=True):
            several = [ids] if len(ids) <= self.longest else parts_of(texts[number], encode, self.longest)
            several = [part for part in several if part]
            parts += [_Part(number, part, prefixes.get(number, [])[: self.longest_output] if place == 0 else []) for place, part in enumerate(several)]
        return parts

    def _batches(self, lengths: list[int]) -> list[list[int]]:
        """Places of sources of these lengths, those of like length together, the longest first, some for each worker."""
        most, share = self.workers[0].sentences, len(lengths)
        if share > ALONE:
            share = -(-share // len(self.workers))
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        batches: list[list[int]] = []
        while order:
            size = max(1, min(self.decode.batch_tokens // lengths[order[0]], most, share))
            batches.append(order[:size])
            order = order[size:]
        return batches

    def _results(self, lines: Sequence[Line], parts: list[_Part], found: list[Found]) -> list[Result]:
        texts = iter(self.target.decode([h.tokens for one in found for h in one.hypotheses]))
        by_line: list[list[tuple[_Part, Found, list[str]]]] = [[] for _ in lines]
        for part, one in zip(parts, found, strict=True):
            by_line[part.line].append((part, one, [next(texts).replace("\n", " ") for _ in one.hypotheses]))
        return [self._result(line if isinstance(line, str) else line[0], several) for line, several in zip(lines, by_line, strict=True)]

    def _result(self, line: str, parts: list[tuple[_Part, Found, list[str]]]) -> Result:
        """The i-th candidate of a line in parts joins the i-th of each part (its last, where there are fewer)."""
        if not parts:
            return Result(line, (Candidate("", 0.0, 0.0),), 0, (), () if self.align else None)
        candidates = []
        for rank in range(max(len(texts) for _, _, texts in parts)):
            chosen = [(texts[place], found.hypotheses[place]) for _, found, texts in parts for place in [min(rank, len(texts) - 1)]]
            pieces = tuple(self.pieces[1][token] for _, h in chosen for token in h.tokens)
            [(text, best), *more] = chosen
            if more:
                log_prob = sum(h.log_prob for _, h in chosen)
                length = sum(len(h.tokens) + 1 for _, h in chosen)
                joined = " ".join(text for text, _ in chosen if text)
                candidates.append(Candidate(joined, log_prob / float(length_penalty(length, self.decode.alpha)), log_prob, pieces))
            else:
                candidates.append(Candidate(text, best.score, best.log_prob, pieces))
        tokens = sum(len(found.hypotheses[0].tokens) + 1 for _, found, _ in parts)
        source_pieces = tuple(self.pieces[0][token] for part, _, _ in parts for token in part.ids)
        return Result(line, tuple(candidates), tokens, source_pieces, self._alignment(parts) if self.align else None)

    def _alignment(self, parts: list[tuple[_Part, Found, list[str]]]) -> tuple[tuple[int, int], ...]:
        """Pairs over all of a line's parts; a token that looks at a source's end symbol has none."""
        pairs: list[tuple[int, int]] = []
        sources = targets = 0
        for part, found, _ in parts:
            pairs += [(sources + place, targets + token) for token, place in enumerate(found.alignment) if place < len(part.ids)]
            sources, targets = sources + len(part.ids), targets + len(found.hypotheses[0].tokens)
        return tuple(pairs)


def _slices(lines: Sequence[Line]) -> Generator[list[Line] | None, None, None]:
    for start in range(0, len(lines), LAST_WINDOW):
        yield list(lines[start : start + LAST_WINDOW])
