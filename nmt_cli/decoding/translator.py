"""Lines in, translations out, in order, as a stream.

    lines ──▶ windows: what is there, up to a size ──▶ ids, long lines in parts ──▶ batches of one padded length
          ──▶ search(CachedStepper) ──▶ text ──▶ parts joined, in the order of the lines

`Translator.translate` is used by `nmt translate` and by validation. Empty and blank lines never reach the model: their
translation is empty. A window begins with the first line that is there and takes what follows without keeping anyone
waiting; the first is small and each next one larger, so that output begins early and batches fill up later. How lines
fall into windows and batches changes nothing in their translations (see `steppers`).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from ..model.transformer import Transformer
from ..recipe import DecodeSection
from .packed import packed
from .search import Hypothesis, SearchOptions, beam_search, length_penalty
from .split import parts_of
from .steppers import ROW_MULTIPLE, CachedStepper, padded_length, source_batch

FIRST_WINDOW, LAST_WINDOW = 64, 4096
"""Lines of the first window, and of the largest; each may be twice as large as the one before."""
WINDOW_CHARACTERS = 1 << 21
"""And a window's characters, so that memory stays bounded whatever the lines hold."""
PATIENCE = 0.02
"""Seconds that a window waits for another line: unnoticed by a person, long enough for a pipe to go on."""
LOGITS_AT_ONCE = 1 << 26
"""Numbers (rows x vocabulary) of one step at most: 256 MiB."""
CPU_ROWS = 256
"""Hypotheses of one step on a CPU at most: more are not faster and need more memory."""


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. Of a line in parts: the parts' texts joined, log P summed, scored as one output."""

    text: str
    score: float
    log_prob: float


@dataclass(frozen=True)
class Result:
    """A line and its translations, best first; there is always one."""

    source: str
    candidates: tuple[Candidate, ...]
    tokens: int
    """Of the best translation, end symbols counted; 0: the line was blank."""

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def translation(self) -> str:
        return self.best.text


class Translator:
    """A model, its tokenizers and the options of the search.

    `decode` is the recipe's section; `longest` the tokens of a line beyond which it is translated in parts (0: what the
    model can take; the recipe's `data.max_length` is the longest it was trained on); `nbest` at most `decode.beam`;
    `precision` "fp32" or "bf16" (matrix products). The model is read, never changed, and may be changed afterwards:
    make a new Translator then.
    """

    def __init__(
        self,
        model: Transformer,
        source: Tokenizer,
        target: Tokenizer,
        decode: DecodeSection,
        *,
        longest: int = 0,
        nbest: int = 1,
        precision: str = "fp32",
    ) -> None:
        self.device = model.output_weight.device
        self.model = packed(model) if precision == "fp32" else model
        self.source, self.target, self.decode, self.precision = source, target, decode, precision
        room = model.config.max_positions // ROW_MULTIPLE * ROW_MULTIPLE - 1  # one for the end symbol
        self.longest = min(longest, room) if longest else room
        self.longest_output = model.config.max_positions - 1  # one for the begin symbol
        self.options = SearchOptions(beam=decode.beam, alpha=decode.alpha, nbest=nbest, bos=BOS, eos=EOS, never=(PAD, UNK, BOS))

    def translate(self, lines: Iterable[str]) -> Iterator[Result]:
        """A result for each line, in order. A list is taken as it is; anything else is read ahead of by a thread."""
        for window in self.windows(lines):
            yield from window

    def windows(self, lines: Iterable[str]) -> Iterator[list[Result]]:
        """The same in the pieces in which it is computed: after each, whatever could be read has been answered."""
        if isinstance(lines, Sequence):
            for start in range(0, len(lines), LAST_WINDOW):
                yield self._translate_window(lines[start : start + LAST_WINDOW])
        else:
            with contextlib.closing(_windows(lines)) as windows:
                for window in windows:
                    yield self._translate_window(window)

    def _translate_window(self, lines: Sequence[str]) -> list[Result]:
        parts = self._parts(lines)  # (line, ids)
        batches: dict[int, list[int]] = {}
        for index, (_, ids) in enumerate(parts):
            batches.setdefault(padded_length(len(ids) + 1), []).append(index)
        found: list[list[Hypothesis]] = [[] for _ in parts]
        for size, indices in sorted(batches.items()):
            indices.sort(key=lambda i: len(parts[i][1]))
            step = self._sentences_at_once(size)
            for start in range(0, len(indices), step):
                chosen = indices[start : start + step]
                for index, hypotheses in zip(chosen, self._search([parts[i][1] for i in chosen]), strict=True):
                    found[index] = hypotheses
        return self._results(lines, [line for line, _ in parts], found)

    def _parts(self, lines: Sequence[str]) -> list[tuple[int, list[int]]]:
        """The ids to translate, each with the number of its line."""
        encode = self.source.encode
        numbers = [number for number, line in enumerate(lines) if line.strip()]
        parts: list[tuple[int, list[int]]] = []
        for number, ids in zip(numbers, encode([lines[number] for number in numbers]), strict=True):
            several = [ids] if len(ids) <= self.longest else parts_of(lines[number], encode, self.longest)
            parts += [(number, part) for part in several if part]
        return parts

    def _sentences_at_once(self, size: int) -> int:
        rows = LOGITS_AT_ONCE // self.model.target_vocab
        if self.device.type == "cpu":
            rows = min(rows, CPU_ROWS)
        return max(1, min(self.decode.batch_tokens // size, rows // self.decode.beam))

    @torch.inference_mode()
    def _search(self, sources: list[list[int]]) -> list[list[Hypothesis]]:
        """Hypotheses of sources whose padded lengths are equal."""
        limits = [min(len(ids) + self.decode.max_extra, self.longest_output) for ids in sources]
        with self._precision():
            src, mask = source_batch([[*ids, EOS] for ids in sources], PAD, self.device)
            stepper = CachedStepper(self.model, src, mask, self.decode.beam)
            return beam_search(stepper, torch.tensor(limits, device=self.device), self.options)

    def _precision(self) -> Any:
        if self.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def _results(self, lines: Sequence[str], numbers: list[int], found: list[list[Hypothesis]]) -> list[Result]:
        texts = iter(self.target.decode([h.tokens for hypotheses in found for h in hypotheses]))
        by_line: list[list[list[tuple[str, Hypothesis]]]] = [[] for _ in lines]
        for number, hypotheses in zip(numbers, found, strict=True):
            by_line[number].append([(next(texts).replace("\n", " "), h) for h in hypotheses])
        return [self._result(line, parts) for line, parts in zip(lines, by_line, strict=True)]

    def _result(self, line: str, parts: list[list[tuple[str, Hypothesis]]]) -> Result:
        """The i-th candidate of a line in parts joins the i-th of each part (its last, where there are fewer)."""
        if not parts:
            return Result(line, (Candidate("", 0.0, 0.0),), 0)
        candidates, tokens = [], 0
        for rank in range(max(len(part) for part in parts)):
            chosen = [part[min(rank, len(part) - 1)] for part in parts]
            length = sum(len(h.tokens) + 1 for _, h in chosen)
            tokens = tokens or length
            if len(chosen) == 1:
                candidates.append(Candidate(chosen[0][0], chosen[0][1].score, chosen[0][1].log_prob))
                continue
            log_prob = sum(h.log_prob for _, h in chosen)
            text = " ".join(text for text, _ in chosen if text)
            candidates.append(Candidate(text, log_prob / float(length_penalty(length, self.decode.alpha)), log_prob))
        return Result(line, tuple(candidates), tokens)


_END = object()


def _windows(lines: Iterable[str]) -> Generator[list[str], None, None]:
    """Lines in windows; what `lines` raises is raised here, after the lines that came before it."""
    waiting: queue.Queue[Any] = queue.Queue(LAST_WINDOW)
    closed = threading.Event()

    def put(item: Any) -> None:
        while not closed.is_set():
            with contextlib.suppress(queue.Full):
                return waiting.put(item, timeout=0.1)

    def read() -> None:
        try:
            for line in lines:
                put(line)
                if closed.is_set():
                    return
            put(_END)
        except BaseException as error:
            put(error)

    threading.Thread(target=read, daemon=True, name="nmt-reader").start()
    size, last = FIRST_WINDOW, None
    try:
        while last is None:
            window, last = _one_window(waiting, size)
            if window:
                yield window
            size = min(2 * size, LAST_WINDOW)
    finally:
        closed.set()
    if isinstance(last, BaseException):
        raise last


def _one_window(waiting: queue.Queue[Any], size: int) -> tuple[list[str], Any]:
    """The next lines, and what ended the input (None: nothing has)."""
    window: list[str] = []
    characters = 0
    while len(window) < size and characters < WINDOW_CHARACTERS:
        try:
            item = waiting.get(timeout=PATIENCE) if window else waiting.get()
        except queue.Empty:
            break
        if not isinstance(item, str):
            return window, item
        window.append(item)
        characters += len(item)
    return window, None
