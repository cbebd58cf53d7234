"""Translate a stream of lines, in order.

    lines ──▶ windows ──▶ parts: token ids, long lines in several ──▶ sentences ──▶ session: workers ──▶ hypotheses
          ──▶ texts ──▶ parts joined ──▶ a Translation per line, in the order of the lines

`nmt translate`, `nmt attend` and training's validation use it. Empty and blank lines never reach the model: their
translation is empty. While one window is translated the next one is read and prepared. How lines are divided into
windows and among workers does not change their translations (see `cached_decoder`). `processes` says what runs where.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..data.tags import Tags
from ..data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from ..recipe import DecodeSection
from ..registry import CONSTRAINTS, LENGTH_PENALTIES, SEARCHES, load
from ..search.search import AT_ONCE, UNLIMITED, DiverseOptions, MbrOptions, SamplingOptions, SearchOptions
from ..search.sentence import SearchResult, Sentence
from .models import Models, models_of
from .pool import Client
from .split import joined, parts_of
from .translation import Candidate, Translation
from .windows import WindowSize, windows

if TYPE_CHECKING:
    from ..model.transformer import Transformer
    from ..search.constraint import Constraint
    from .confidence import Calibration

WINDOW = WindowSize(first=64, last=4096, characters=1 << 21)
"""Sizes of the windows of a stream; a list is divided into windows of the largest size."""


AT_MOST = 0.05
"""Seconds that the steps in one call of a prompt search take at most, if it is more than one step. New sentences wait
for the end of the call, and finished sentences too if there are many. With fewer calls, more of the processor's time
goes to the steps."""


@dataclass(frozen=True)
class Request:
    """A line to translate, and the inputs of constraints for it, by name of the constraint; see `Constraint.encode`.

    `language` is the code of a tag of the model (`Tags.chosen`); "": that of the recipe's language.
    """

    text: str
    inputs: Mapping[str, Any]
    language: str = ""

    def __len__(self) -> int:
        """Return the number of characters."""
        return len(self.text) + sum(len(str(value)) for value in self.inputs.values())


@dataclass(frozen=True)
class _Part:
    """The unit that the model translates at once: a line, or a part of a line."""

    line: int
    """Index of the line in its window."""
    sentence: Sentence
    language: str = ""
    """The code of its tag."""


@dataclass(frozen=True)
class _Translated:
    """A part and its search result; `texts` are the texts of the hypotheses."""

    part: _Part
    result: SearchResult
    texts: list[str]


@dataclass(frozen=True)
class Prepared:
    """Lines in parts, ready to be searched."""

    lines: list[str]
    parts: list[_Part]
    too_long: set[int]
    """Indices of lines that have no parts because they are too long."""

    @property
    def sentences(self) -> list[Sentence]:
        """The sentence of each part, for the search."""
        return [part.sentence for part in self.parts]


class LineTranslator:
    """Models, their tokenizers and the options of the search.

    `model` is one model, or several that share their vocabulary: an ensemble, whose probabilities are averaged.
    `Models` have a precision and devices of their own. `decode` is the recipe's section. A line of more than
    `safe_length` tokens is translated in parts, unless a constraint reads whole lines: see `parts_of`. `longest` 0:
    the largest length that the model can take; the recipe's `data.max_length` is the largest length in training.
    `safe_length` 0: the same as `longest`. `nbest` is at most `decode.beam`. `precision` is a name of the registry's
    PRECISIONS. `workers` of them search at once, on the device of the model. `search` is a name of the registry's
    SEARCHES, "": the recipe's search. "sample" draws `decode.beam` outputs per line with the options `sampling`; "mbr"
    chooses among `decode.beam` hypotheses with the options `mbr`. `constraints` are names of the registry's CONSTRAINTS
    with their values, in addition to the recipe's constraints. `defaults` are the values of constraints that
    `decode.constraints` names; without one the value is None. With `align` results have alignments, with a
    `calibration` words and quality. `target_language` is the recipe's, for a model with tags (`data.tags`).

    The translator reads the model and never changes it. If the model changes later, create a new LineTranslator. Raises
    UsageError for a precision that a device does not have, an unknown search or constraint, or a wrong value.
    """

    def __init__(
        self,
        model: Transformer | Sequence[Transformer] | Models,
        source: Tokenizer,
        target: Tokenizer,
        decode: DecodeSection,
        *,
        longest: int = 0,
        safe_length: int = 0,
        nbest: int = 1,
        precision: str = "fp32",
        workers: int = 1,
        search: str = "",
        sampling: SamplingOptions | None = None,
        mbr: MbrOptions | None = None,
        constraints: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        align: bool = False,
        calibration: Calibration | None = None,
        target_language: str = "",
    ) -> None:
        models = model if isinstance(model, Models) else _searchable(model, precision, workers)
        self.source, self.target, self.decode, self.align, self.calibration = source, target, decode, align, calibration
        self.tags = Tags(source, target_language)
        capacity = models.max_positions - 1  # one for the end symbol, or the begin symbol
        self.longest, self.longest_output = min(longest, capacity) if longest else capacity, capacity
        self.safe_length = min(safe_length, self.longest) if safe_length else self.longest
        name = search or decode.search
        search_class = None if name == "beam" else load(SEARCHES, name, "search")
        sampling = sampling or getattr(search_class, "SAMPLING", None) or SamplingOptions()
        rules = named_constraints(decode, constraints or {}, target, defaults or {})
        allowed = {token for rule in rules for token in rule.allows}
        self.readers = [rule.name for rule in rules if rule.reads_source]
        self.options = SearchOptions(
            beam=decode.beam,
            alpha=decode.alpha,
            nbest=nbest,
            search=search_class,
            batch_tokens=decode.batch_tokens,
            align=align,
            bos=BOS,
            eos=EOS,
            banned_tokens=tuple(token for token in (PAD, UNK, BOS, *target.tags.values()) if token not in allowed),
            min_length=decode.min_length,
            textless=target.textless,
            sampling=sampling,
            lookahead=decode.lookahead or UNLIMITED,
            mbr=mbr or MbrOptions(),
            detokenize=target.decode,
            length_penalty=load(LENGTH_PENALTIES, decode.length_penalty, "length penalty"),
            constraints=rules,
            token_log_probs=calibration is not None,
            diverse=DiverseOptions(groups=decode.diverse_groups, penalty=decode.diversity_penalty),
            coverage_penalty=decode.coverage_penalty,
        )
        self.source_pieces, self.target_pieces = source.table, target.table
        self.models = models
        self._prompt = replace(self.options, compact_below=AT_ONCE, seconds=AT_MOST)

    def translate(self, lines: Iterable[str | Request]) -> Generator[Translation, None, None]:
        """Yield a result for each line, in order. A thread reads ahead, unless `lines` is a sequence."""
        for window in self.windows(lines):
            yield from window

    def windows(self, lines: Iterable[str | Request]) -> Generator[list[Translation], None, None]:
        """Yield the results of `translate` in lists, as they are computed.

        All lines that were read are answered before it waits for the next line.

        An error that `lines` raises, or UsageError for a line without a target language, is raised here, after the
        results of the lines, or of most lines, before it.
        """
        pending: deque[tuple[Prepared, Future[list[SearchResult]]]] = deque()
        in_memory = isinstance(lines, Sequence)
        read = windows(
            lines,
            WindowSize(WINDOW.last, WINDOW.last) if in_memory else WINDOW,
            None if in_memory else lambda: bool(pending),
        )
        input_error: Exception | None = None
        with closing(read), closing(self.models.client(self.options)) as client:
            while True:
                try:
                    window = next(read)
                    prepared = None if window is None else self.prepare(window)
                except StopIteration:
                    break
                except Exception as error:
                    input_error = error
                    break
                if prepared is not None:
                    pending.append((prepared, client.submit(prepared.sentences)))
                while pending and (window is None or len(pending) > 1):
                    prepared, results = pending.popleft()
                    yield self.results(prepared, results.result())
            for prepared, results in pending:
                yield self.results(prepared, results.result())
            if input_error is not None:
                raise input_error

    def submit(self, lines: Sequence[str | Request]) -> Future[list[Translation]]:
        """Return a future of the results of `translate`.

        The lines are encoded before this returns.

        The lines of all unfinished calls, whatever translator of the same models they were given to, are translated
        together. If the future is cancelled, the search for its lines stops. It raises the error of the search, or
        PoolClosed. Raises PoolClosed after `close` of the models.
        """
        prepared, future = self.prepare(lines), Future[list[Translation]]()
        client = Client(self.models.pool, self.models, self._prompt)

        def searched(results: Future[list[SearchResult]]) -> None:
            with suppress(InvalidStateError):  # it was cancelled
                try:
                    future.set_result(self.results(prepared, results.result()))
                except InvalidStateError:
                    raise
                except Exception as error:
                    future.set_exception(error)

        found = client.submit(prepared.sentences)
        future.add_done_callback(lambda _: client.close())  # its other sentences, if it was cancelled or failed
        found.add_done_callback(searched)
        return future

    def prepare(self, lines: Sequence[str | Request]) -> Prepared:
        """Return the parts of these lines, ready to be searched.

        Raises UsageError for a line without a target language; see `Tags.split`.
        """
        requests = [Request(line, {}) if isinstance(line, str) else line for line in lines]
        texts = [request.text for request in requests]
        if self.tags:
            split = [self.tags.split(request.text, request.language) for request in requests]
            requests = [
                replace(request, text=text, language=code)
                for request, (code, text) in zip(requests, split, strict=True)
            ]
        return Prepared(texts, *self._parts(requests))

    def _sentence(self, tag: list[int], text: list[int], inputs: dict[str, Any]) -> Sentence:
        """Return a sentence for the search, with the largest number of tokens in its output."""
        ids = [*tag, *text]
        added = sum(
            constraint.added_length(inputs[constraint.name])
            for constraint in self.options.constraints
            if constraint.name in inputs
        )
        longest = int(len(ids) * self.decode.max_len_ratio) + added + self.decode.max_extra
        return Sentence(ids, min(longest, self.longest_output), inputs, len(tag))

    def _parts(self, requests: Sequence[Request]) -> tuple[list[_Part], set[int]]:
        """Return the parts that the model has to translate, and the indices of lines that are too long and must not be
        split.

        Inputs of constraints belong to the first part of their line.
        """
        encode = self.source.encode
        inputs = self._inputs(requests)
        numbers = [number for number, request in enumerate(requests) if request.text.strip()]
        parts: list[_Part] = []
        too_long: set[int] = set()
        for number, ids in zip(numbers, encode([requests[number].text for number in numbers]), strict=True):
            if self.readers and (len(ids) > self.longest_output or not inputs[number].keys() >= set(self.readers)):
                too_long.add(number)
                continue
            language = requests[number].language
            tag = self.tags.prefix(language)
            safe, longest = (max(1, limit - len(tag)) for limit in (self.safe_length, self.longest))
            split = parts_of(requests[number].text, ids, encode, len(ids) if self.readers else safe, longest)
            parts += [
                _Part(number, self._sentence(tag, part, {} if index else inputs[number]), language)
                for index, part in enumerate(split)
            ]
        return parts, too_long

    def _inputs(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """Return for each line the encoded inputs of its constraints, without those for which `encode` returned
        nothing.
        """
        inputs: list[dict[str, Any]] = [{} for _ in requests]
        for constraint in self.options.constraints:
            own = {constraint.name} if constraint.reads_source else set()
            pairs = [
                (values, request.inputs.get(constraint.name, request.text))
                for values, request in zip(inputs, requests, strict=True)
                if constraint.name in request.inputs.keys() | own
            ]
            for (values, _), encoded in zip(
                pairs, constraint.encode([value for _, value in pairs], self.target, self.longest_output), strict=True
            ):
                if encoded:
                    values[constraint.name] = encoded
        return inputs

    def results(self, prepared: Prepared, results: Sequence[SearchResult]) -> list[Translation]:
        """Return a result for each line that was prepared, given the search result of each part."""
        texts = iter(self.target.decode([h.tokens for result in results for h in result.hypotheses]))
        by_line: list[list[_Translated]] = [[] for _ in prepared.lines]
        for part, result in zip(prepared.parts, results, strict=True):
            by_line[part.line].append(
                _Translated(part, result, [next(texts).replace("\n", " ") for _ in result.hypotheses])
            )
        return [
            self._translation(line, translated, number in prepared.too_long)
            for number, (line, translated) in enumerate(zip(prepared.lines, by_line, strict=True))
        ]

    def _translation(self, line: str, parts: list[_Translated], too_long: bool) -> Translation:
        if not parts:
            words, nothing = () if self.calibration else None, () if self.align else None
            return Translation(
                "",
                0.0,
                0.0,
                words=words,
                source=line,
                nbest=(Candidate("", 0.0, 0.0, words=words),),
                alignment=nothing,
                too_long=too_long,
            )
        sentences = [part.part.sentence for part in parts]
        source_tokens = tuple(
            self.source_pieces[token] for sentence in sentences for token in sentence.tokens[sentence.first :]
        )
        count = max(len(part.texts) for part in parts)
        nbest = tuple(self._candidate(parts, rank, len(source_tokens)) for rank in range(count))
        alignment = _alignment(parts) if self.align else None
        return Translation(
            **vars(nbest[0]),
            source=line,
            nbest=nbest,
            source_tokens=source_tokens,
            target_language=parts[0].part.language,
            alignment=alignment,
        )

    def _candidate(self, parts: list[_Translated], rank: int, source_tokens: int) -> Candidate:
        """Join the candidates of this rank of all parts. A part with fewer candidates contributes its last one."""
        ranks = [min(rank, len(part.texts) - 1) for part in parts]
        hypotheses = [part.result.hypotheses[i] for part, i in zip(parts, ranks, strict=True)]
        tokens = tuple(self.target_pieces[token] for h in hypotheses for token in h.tokens)
        log_prob, score = sum(h.log_prob for h in hypotheses), hypotheses[0].score
        if len(parts) > 1:
            score = self.options.score(log_prob, sum(len(h.tokens) + 1 for h in hypotheses))
        candidate = Candidate(
            parts[0].texts[rank]
            if len(parts) == 1
            else joined(part.texts[i] for part, i in zip(parts, ranks, strict=True)),
            score,
            log_prob,
            tokens,
            token_log_probs=tuple(number for h in hypotheses for number in h.token_log_probs),
            part_lengths=tuple(len(h.tokens) for h in hypotheses),
        )
        if self.calibration is None:
            return candidate
        from .confidence import with_confidence

        return with_confidence(candidate, source_tokens, self.calibration)


def _searchable(model: Transformer | Sequence[Transformer], precision: str, workers: int) -> Models:
    """Return models in this precision, on their device."""
    import torch

    models = list(model) if isinstance(model, Sequence) else [model]
    return models_of(models, precision, workers, max(workers, torch.get_num_threads()))


def named_constraints(
    decode: DecodeSection, explicit: Mapping[str, Any], target: Tokenizer, defaults: Mapping[str, Any]
) -> tuple[Constraint, ...]:
    """Return the prefix constraint, the constraints of the recipe's section, and the `explicit` ones (name → value).

    A key of [decode] that has a constraint's name holds its value. Constraints that `decode.constraints` names have
    their value in `defaults`, or None. Raises UsageError for an unknown name or a wrong value.
    """
    values = {
        "prefix": None,
        **{name: defaults.get(name) for name in decode.constraints},
        **decode.constraint_options,
        **explicit,
    }
    return tuple(load(CONSTRAINTS, name, "constraint")(value, target) for name, value in values.items())


def _alignment(parts: list[_Translated]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of all parts of a line.

    A token that is aligned with a source's end symbol, or with the tag of its target language, has no pair.
    """
    pairs: list[tuple[int, int]] = []
    sources = targets = 0
    for part in parts:
        sentence, result = part.part.sentence, part.result
        first, end = sentence.first, len(sentence.tokens)
        pairs += [
            (sources + index - first, targets + token)
            for token, index in enumerate(result.alignment)
            if first <= index < end
        ]
        sources, targets = sources + end - first, targets + len(result.hypotheses[0].tokens)
    return tuple(pairs)
