"""Lines in, translations out, in order, as a stream.

    lines ──▶ windows ──▶ parts: token ids, long lines in several ──▶ batches of like length ──▶ engine ──▶ hypotheses
          ──▶ texts ──▶ parts joined ──▶ a Result per line, in the order of the lines

`nmt translate`, `nmt attend` and training's validation use it. Empty and blank lines never reach the model: their
translation is empty. While one window is translated the next one is read and prepared. How lines are divided into
windows, batches and workers does not change their translations (see `cached_decoder`). `engine` says what runs where.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from ..data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from ..model.transformer import Transformer
from ..recipe import DecodeSection
from ..registry import SEARCHES, load
from .batches import Batch, SearchResult
from .engine import Engine, Session, Submission
from .search import SamplingOptions, SearchOptions, length_penalty
from .split import parts_of
from .windows import WindowSize, windows
from .workers import workers

WINDOW = WindowSize(first=64, last=4096, characters=1 << 21)
"""Lines of a stream that are translated together; a list is cut into windows of the largest size."""

Line = str | tuple[str, str]
"""A source, or a source and what its translation begins with."""


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. For a line in parts the texts are joined, log P is summed and scored as one output."""

    text: str
    score: float
    log_prob: float
    pieces: tuple[str, ...] = ()
    """Its subwords as SentencePiece writes them (▁ marks the beginning of a word)."""


@dataclass(frozen=True)
class Result:
    """A line and its translations, best first, at least one."""

    source: str
    candidates: tuple[Candidate, ...]
    tokens: int
    """Tokens of the best translation, end symbols counted; 0: the line was blank."""
    source_pieces: tuple[str, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = None
    """If asked for: pairs of a source piece and a piece of the best translation, by index; see `alignment`."""

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def translation(self) -> str:
        return self.best.text


@dataclass(frozen=True)
class _Part:
    """What the model translates at once: a line, or a part of it."""

    line: int
    """Index of the line in its window."""
    ids: list[int]
    prefix: list[int]


@dataclass(frozen=True)
class _Translated:
    """A part and its search result; `texts` are those of the hypotheses."""

    part: _Part
    result: SearchResult
    texts: list[str]


@dataclass(frozen=True)
class _Window:
    """Lines that are being translated: their parts, and for each batch the indices of its sources among the parts."""

    lines: list[Line]
    parts: list[_Part]
    batches: list[list[int]]
    submission: Submission


class Translator:
    """Models, their tokenizers and the options of the search.

    `model` is one model, or several that share their vocabulary: an ensemble, whose probabilities are averaged. `decode`
    is the recipe's section. A line of more than `longest` tokens is translated in parts (0: what the model can take; the
    recipe's `data.max_length` is the longest it was trained on). `nbest` is at most `decode.beam`. `precision` is a name
    of the registry's PRECISIONS. `devices` are torch devices, one worker each; "cpu" several times for several cores;
    none: one worker where the model is. `search` is a name of the registry's SEARCHES; "sample" draws `decode.beam`
    outputs per line as `sampling` says. With `align` results have alignments.

    The model is read, never changed. If it is changed afterwards, make a new Translator. Raises UsageError for a
    precision that a device does not have, or an unknown search.
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
        search: str = "beam",
        sampling: SamplingOptions | None = None,
        align: bool = False,
    ) -> None:
        models = [model] if isinstance(model, Transformer) else list(model)
        self.source, self.target, self.decode, self.align = source, target, decode, align
        capacity = min(one.config.max_positions for one in models) - 1  # one for the end symbol, or the begin symbol
        self.longest, self.longest_output = min(longest, capacity) if longest else capacity, capacity
        self.options = SearchOptions(
            beam=decode.beam, alpha=decode.alpha, nbest=nbest, bos=BOS, eos=EOS, banned_tokens=(PAD, UNK, BOS),
            min_length=decode.min_length, textless=target.textless, sampling=sampling or SamplingOptions(),
        )  # fmt: skip
        self.source_pieces, self.target_pieces = source.table, target.table
        where = list(devices) or [str(models[0].output_weight.device)]
        self.engine = Engine(workers(models, precision, where, self.options, decode.batch_tokens, load(SEARCHES, search, "search"), align))

    def translate(self, lines: Iterable[Line]) -> Iterator[Result]:
        """Yield a result for each line, in order. A thread reads ahead, unless `lines` is a sequence."""
        for window in self.windows(lines):
            yield from window

    def windows(self, lines: Iterable[Line]) -> Generator[list[Result], None, None]:
        """Yield the same results in lists, as they are computed. After each list everything that could be read is answered.

        An error that `lines` raises is raised here, after the results of the lines before it.
        """
        pending: deque[_Window] = deque()
        in_memory = isinstance(lines, Sequence)
        read = windows(lines, WindowSize(WINDOW.last, WINDOW.last) if in_memory else WINDOW, None if in_memory else lambda: bool(pending))
        input_error: Exception | None = None
        with closing(read), self.engine.session() as session:
            while True:
                try:
                    window = next(read)
                except StopIteration:
                    break
                except Exception as error:
                    input_error = error
                    break
                if window is not None:
                    pending.append(self._submit(window, session))
                while pending and (window is None or len(pending) > 1):
                    yield self._finish(pending.popleft())
            while pending:
                yield self._finish(pending.popleft())
            if input_error is not None:
                raise input_error

    def _submit(self, lines: list[Line], session: Session) -> _Window:
        """Hand the batches of these lines to the engine."""
        parts = self._parts(lines)
        batches = self.engine.divide([len(part.ids) + 1 for part in parts], self.decode.batch_tokens)
        return _Window(lines, parts, batches, session.submit([self._batch([parts[i] for i in indices]) for indices in batches]))

    def _finish(self, window: _Window) -> list[Result]:
        """Wait for the results of these lines."""
        by_part: dict[int, SearchResult] = {}
        for indices, results in zip(window.batches, window.submission.results(), strict=True):
            by_part.update(zip(indices, results, strict=True))
        return self._results(window.lines, window.parts, [by_part[i] for i in range(len(window.parts))])

    def _batch(self, parts: list[_Part]) -> Batch:
        max_lengths = [min(len(part.ids) + len(part.prefix) + self.decode.max_extra, self.longest_output) for part in parts]
        return Batch([part.ids for part in parts], [part.prefix for part in parts], max_lengths)

    def _parts(self, lines: Sequence[Line]) -> list[_Part]:
        """Return what the model has to translate. A prefix belongs to the first part of its line."""
        encode = self.source.encode
        texts = [line if isinstance(line, str) else line[0] for line in lines]
        prefixes = self._prefixes(lines)
        numbers = [number for number, text in enumerate(texts) if text.strip()]
        parts: list[_Part] = []
        for number, ids in zip(numbers, encode([texts[number] for number in numbers]), strict=True):
            split = [ids] if len(ids) <= self.longest else parts_of(texts[number], encode, self.longest)
            split = [part for part in split if part]
            parts += [_Part(number, part, prefixes.get(number, []) if index == 0 else []) for index, part in enumerate(split)]
        return parts

    def _prefixes(self, lines: Sequence[Line]) -> dict[int, list[int]]:
        """Return the ids of each prefix, by the index of its line, cut to what the model can take."""
        texts = {number: line[1] for number, line in enumerate(lines) if not isinstance(line, str) and line[1].strip()}
        return {number: ids[: self.longest_output] for number, ids in zip(texts, self.target.encode(list(texts.values())), strict=True)}

    def _results(self, lines: Sequence[Line], parts: list[_Part], results: list[SearchResult]) -> list[Result]:
        texts = iter(self.target.decode([h.tokens for result in results for h in result.hypotheses]))
        by_line: list[list[_Translated]] = [[] for _ in lines]
        for part, result in zip(parts, results, strict=True):
            by_line[part.line].append(_Translated(part, result, [next(texts).replace("\n", " ") for _ in result.hypotheses]))
        return [self._result(line if isinstance(line, str) else line[0], translated) for line, translated in zip(lines, by_line, strict=True)]

    def _result(self, line: str, parts: list[_Translated]) -> Result:
        if not parts:
            return Result(line, (Candidate("", 0.0, 0.0),), 0, (), () if self.align else None)
        candidates = tuple(self._candidate(parts, rank) for rank in range(max(len(part.texts) for part in parts)))
        tokens = sum(len(part.result.hypotheses[0].tokens) + 1 for part in parts)
        source_pieces = tuple(self.source_pieces[token] for part in parts for token in part.part.ids)
        return Result(line, candidates, tokens, source_pieces, _alignment(parts) if self.align else None)

    def _candidate(self, parts: list[_Translated], rank: int) -> Candidate:
        """Join the candidates of this rank of all parts; of a part with fewer candidates, its last one."""
        ranks = [min(rank, len(part.texts) - 1) for part in parts]
        hypotheses = [part.result.hypotheses[i] for part, i in zip(parts, ranks, strict=True)]
        pieces = tuple(self.target_pieces[token] for h in hypotheses for token in h.tokens)
        if len(parts) == 1:
            return Candidate(parts[0].texts[rank], hypotheses[0].score, hypotheses[0].log_prob, pieces)
        log_prob = sum(h.log_prob for h in hypotheses)
        length = sum(len(h.tokens) + 1 for h in hypotheses)
        text = " ".join(part.texts[i] for part, i in zip(parts, ranks, strict=True) if part.texts[i])
        return Candidate(text, log_prob / float(length_penalty(length, self.decode.alpha)), log_prob, pieces)


def _alignment(parts: list[_Translated]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of all parts of a line. A token that is aligned with a source's end symbol has none."""
    pairs: list[tuple[int, int]] = []
    sources = targets = 0
    for part in parts:
        ids, result = part.part.ids, part.result
        pairs += [(sources + index, targets + token) for token, index in enumerate(result.alignment) if index < len(ids)]
        sources, targets = sources + len(ids), targets + len(result.hypotheses[0].tokens)
    return tuple(pairs)
