"""Translate a stream of lines, in order.

    lines ──▶ windows ──▶ prepare: token ids, long lines in several sentences ──▶ Client.submit: workers
          ──▶ results: texts, the sentences of a line joined ──▶ a Translation per line, in the order of the lines

All commands that translate use it, and training's validation. Empty and blank lines never reach the model: their
translation is empty. While one window is translated the next one is read and prepared. How lines are divided into
windows and among workers does not change their translations (see `cached_decoder`). `models` says what runs where.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from ..data.normalization import UNSEEN
from ..data.tags import Tags
from ..data.tokenizer import BYTE, UNK, Vocabulary
from ..documents import Document, read_line
from ..search.search import AT_ONCE
from ..search.sentence import Hypothesis, SearchResult, Sentence
from ..text.placeholders import MARK
from .line import Candidate, Line, Translation
from .models import Models
from .options import TranslationOptions
from .pool import Client
from .split import joined, parts_of
from .windows import WindowSize, windows

WINDOW = WindowSize(first=64, last=4096, characters=1 << 21)
"""Sizes of the windows of a stream; a list is divided into windows of the largest size."""
APOSTROPHE = re.compile(r"(?<=\w)’(?=\w)")
AT_MOST = 0.05
"""Seconds that the steps in one call of a search for `submit` take at most, if it is more than one step. New sentences
wait for the end of the call, and finished sentences too if there are many. With fewer calls, more of the processor's
time goes to the steps."""


@dataclass(frozen=True)
class Prepared:
    """Lines as sentences, ready to be searched."""

    texts: list[str]
    """The lines, with their own tags."""
    languages: list[str]
    """The code of each line's and each unit's tag."""
    sentences: list[Sentence]
    """A line, or a part of a line: what the model translates at once."""
    lines: list[int]
    """Index of the line, or of the unit, of each sentence."""
    too_long: set[int]
    """Indices of lines that have no sentences because they are too long and must not be split."""
    aligned: set[int]
    """Indices of the lines whose translations have alignments."""
    documents: dict[int, tuple[Document, range]]
    """Index of a line with placeholders, or with characters that the model lacks → the indices of its units, which come
    after those of all lines."""


class LineTranslator:
    """Models, their vocabulary, and the options of the translation.

    The translator reads the models and never changes them. If a live model changes later, create a new LineTranslator.
    Raises UsageError for an unknown search or constraint, or a wrong value.
    """

    def __init__(self, models: Models, vocabulary: Vocabulary, options: TranslationOptions) -> None:
        self.models, self.options = models, options
        self.source, self.target = vocabulary.source, vocabulary.target
        self.tags = Tags(self.source, options.target_language)
        self.longest_output = models.max_positions - 1  # one for the end symbol, or the begin symbol
        self.longest = min(options.longest or self.longest_output, self.longest_output)
        self.safe_length = min(options.safe_length or self.longest, self.longest)
        self.search = options.search_options(self.source, self.target)
        self.readers = {rule.name for rule in self.search.constraints if rule.reads_source}
        for rule in self.search.constraints:
            rule.encode([], self.target, self.longest_output)  # an error of the rule's own value, before any line
        self._prompt = replace(self.search, compact_below=AT_ONCE, seconds=AT_MOST)
        self._source_pieces, self._target_pieces = self.source.table, self.target.table
        self._keeps = options.decode.placeholders and not self.readers and "outputs" not in options.constraints
        self._known = set[str]()
        self._lacking("".join(map(chr, range(128))))
        self._keeps = self._keeps and self._known.issuperset("0123456789")  # of which stand-ins are made

    def translate(self, lines: Iterable[str | Line], language: str = "") -> Generator[Translation, None, None]:
        """Yield a result for each line, in order; see `windows`."""
        for window in self.windows(lines, language):
            yield from window

    def windows(self, lines: Iterable[str | Line], language: str = "") -> Generator[list[Translation], None, None]:
        """Yield the results of lines in lists, as they are computed.

        A thread reads ahead, unless `lines` is a sequence. All lines that were read are answered before it waits for
        the next line. `language` is the code of a tag of the model (`Tags.chosen`); "": that of the recipe's language.

        An error that `lines` raises, or UsageError for a line without a target language, is raised here, after the
        results of the lines, or of most lines, before it.
        """
        pending: deque[tuple[Prepared, Future[list[SearchResult]]]] = deque()
        read: Generator[Sequence[str | Line] | None, None, None]
        if isinstance(lines, Sequence):
            read = (lines[start : start + WINDOW.last] for start in range(0, len(lines), WINDOW.last))
        else:
            read = windows(lines, WINDOW, lambda: bool(pending))
        input_error: Exception | None = None
        with closing(read), closing(self.models.client(self.search)) as client:
            while True:
                try:
                    window = next(read)
                    prepared = None if window is None else self.prepare(window, language)
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

    def submit(self, lines: Sequence[str | Line], language: str = "") -> Future[list[Translation]]:
        """Return a future of the results of `translate`.

        The lines are encoded before this returns.

        The lines of all unfinished calls, whatever translator of the same models they were given to, are translated
        together. If the future is cancelled, the search for its lines stops. It raises the error of the search, or
        PoolClosed. Raises PoolClosed after `close` of the models.
        """
        prepared, future = self.prepare(lines, language), Future[list[Translation]]()
        client = Client(self.models.pool, self.models, self._prompt)

        def searched(results: Future[list[SearchResult]]) -> None:
            try:
                done = partial(future.set_result, self.results(prepared, results.result()))
            except Exception as error:
                done = partial(future.set_exception, error)
            with suppress(InvalidStateError):  # it was cancelled
                done()

        found = client.submit(prepared.sentences)
        future.add_done_callback(lambda _: client.close())  # its other sentences, if it was cancelled or failed
        found.add_done_callback(searched)
        return future

    def prepare(self, lines: Sequence[str | Line], language: str = "") -> Prepared:
        """Return these lines as sentences, ready to be searched. Inputs of constraints belong to a line's first one.

        Raises UsageError for a line without a target language; see `Tags.split`.
        """
        whole = [line if isinstance(line, str) else line.text for line in lines]
        texts, languages = whole, [""] * len(lines)
        if self.tags.ids:
            split = [self.tags.split(text, language) for text in whole]
            languages, texts = [code for code, _ in split], [text for _, text in split]
        inputs = self._inputs(lines, texts)
        every = self.options.align
        asked = {number for number, line in enumerate(lines) if every or (isinstance(line, Line) and line.aligned)}
        prepared, units = Prepared(whole, languages, [], [], set(), asked, {}), [*texts]
        for number, text in enumerate(texts if self._keeps else ()):
            if MARK.search(text) or not self._known.issuperset(text):
                self._divide(number, prepared, units, inputs)
        numbers = [number for number, text in enumerate(units) if text.strip()]
        for number, ids in zip(numbers, self.source.encode([units[number] for number in numbers]), strict=True):
            if self.readers and (len(ids) > self.longest_output or not inputs[number].keys() >= self.readers):
                prepared.too_long.add(number)
                continue
            tag = [self.tags.ids[languages[number]]] if languages[number] else []
            safe, longest = (max(1, limit - len(tag)) for limit in (self.safe_length, self.longest))
            parts = parts_of(units[number], ids, self.source.encode, len(ids) if self.readers else safe, longest)
            for index, part in enumerate(parts):
                own, aligned = {} if index else inputs[number], number >= len(lines) or (number in asked and not every)
                prepared.sentences.append(self._sentence(tag, part, own, aligned))
                prepared.lines.append(number)
        return prepared

    def _divide(self, number: int, prepared: Prepared, units: list[str], inputs: list[dict[str, Any]]) -> None:
        """Replace a line by its units, if it has placeholders or characters that the model lacks, and terms at most."""
        lacking = self._lacking(units[number])
        text = APOSTROPHE.sub("'", units[number]) if "’" in lacking else units[number]
        document = read_line(text, lacking) if inputs[number].keys() <= {"terms"} else None
        if document:
            lines, units[number] = document.lines, ""
            prepared.documents[number] = document, range(len(units), len(units) + len(lines))
            units += lines
            prepared.languages.extend([prepared.languages[number]] * len(lines))
            inputs += [*[{}] * (len(lines) - 1), inputs[number]][: len(lines)]

    def _lacking(self, text: str) -> set[str]:
        """Return the characters of a text that readers see and the source has no pieces for, nor the target for a
        symbol. The others become `_known`.
        """
        unknown = set(unicodedata.normalize("NFC", text)) - self._known
        lacking = {character for character in unknown if not UNSEEN.match(character) and self._lacks(character)}
        self._known |= unknown - lacking
        return lacking

    def _lacks(self, character: str) -> bool:
        is_word = unicodedata.category(character)[0] in "LMN"
        return any(
            token == UNK or BYTE.fullmatch(side.table[token])
            for side in ([self.source] if is_word else [self.source, self.target])
            for token in side.encode([character])[0]
        )

    def _inputs(self, lines: Sequence[str | Line], texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return for each line the encoded inputs of its constraints, without those for which `encode` returned
        nothing. A constraint that reads the source reads the text of a line without an input.
        """
        asked = [{} if isinstance(line, str) else line.inputs for line in lines]
        encoded: list[dict[str, Any]] = [{} for _ in lines]
        for rule in self.search.constraints:
            own = dict(enumerate(texts)) if rule.name in self.readers else {}
            values = own | {number: given[rule.name] for number, given in enumerate(asked) if rule.name in given}
            if values:
                results = rule.encode(list(values.values()), self.target, self.longest_output)
                for number, value in zip(values, results, strict=True):
                    encoded[number] |= {rule.name: value} if value else {}
        return encoded

    def _sentence(self, tag: list[int], text: list[int], inputs: dict[str, Any], aligned: bool) -> Sentence:
        """Return a sentence for the search, with the largest number of tokens in its output."""
        ids, decode = [*tag, *text], self.options.decode
        added = sum(rule.added_length(inputs[rule.name]) for rule in self.search.constraints if rule.name in inputs)
        longest = int(len(ids) * decode.max_len_ratio) + added + decode.max_extra
        ended = self.models.source_end or not ids  # the encoder never reads nothing
        return Sentence(ids, min(longest, self.longest_output), inputs, len(tag), ended, aligned)

    def results(self, prepared: Prepared, results: Sequence[SearchResult]) -> list[Translation]:
        """Return a result for each line that was prepared, given the search result of each sentence."""
        texts = iter(self.target.decode([h.tokens for result in results for h in result.hypotheses]))
        by_line: list[list[_Part]] = [[] for _ in prepared.languages]
        for line, sentence, result in zip(prepared.lines, prepared.sentences, results, strict=True):
            by_line[line].append((sentence, result, [(hypothesis, next(texts)) for hypothesis in result.hypotheses]))
        lines = enumerate(zip(prepared.texts, prepared.languages, by_line, strict=False))
        aligned, too_long = prepared.aligned, prepared.too_long
        translations = [self._translation(*line, number in aligned, number in too_long) for number, line in lines]
        for number, (document, units) in prepared.documents.items():
            parts = [by_line[unit] for unit in units]
            whole = self._translation(
                prepared.texts[number], prepared.languages[number], list(chain(*parts)), number in aligned
            )
            translations[number] = self._restored(whole, document, parts)
        return translations

    def _restored(self, whole: Translation, document: Document, units: list[list[_Part]]) -> Translation:
        """Return the translation of a line with its placeholders; `whole` has tokens and scores of all its units."""
        of_units = [self._translation("", whole.target_language, parts) for parts in units]
        written = [
            document.write(
                [
                    replace(unit, **vars(unit.nbest[min(rank, len(unit.nbest) - 1)]), alignment=_alignment(parts, rank))
                    for unit, parts in zip(of_units, units, strict=True)
                ]
            )
            for rank in range(len(whole.nbest))
        ]
        nbest = tuple(replace(one, text=own.text) for one, own in zip(whole.nbest, written, strict=True))
        return replace(whole, text=nbest[0].text, nbest=nbest, restored=written[0].restored)

    def _translation(
        self, line: str, language: str, parts: list[_Part], aligned: bool = False, too_long: bool = False
    ) -> Translation:
        if not parts:
            words, nothing = () if self.options.calibration else None, () if aligned else None
            blank = Candidate("", 0.0, 0.0, words=words)
            return Translation(**vars(blank), source=line, nbest=(blank,), alignment=nothing, too_long=too_long)
        pieces = self._source_pieces
        source = tuple(pieces[token] for sentence, _, _ in parts for token in sentence.tokens[sentence.first :])
        count = max(len(outputs) for _, _, outputs in parts)
        nbest = tuple(self._candidate(parts, rank, len(source)) for rank in range(count))
        return Translation(
            **vars(nbest[0]),
            source=line,
            nbest=nbest,
            source_tokens=source,
            target_language=language,
            alignment=_alignment(parts) if aligned else None,
        )

    def _candidate(self, parts: list[_Part], rank: int, source_tokens: int) -> Candidate:
        """Join the candidates of this rank of all parts. A part with fewer candidates contributes its last one."""
        chosen = [outputs[min(rank, len(outputs) - 1)] for _, _, outputs in parts]
        hypotheses = [hypothesis for hypothesis, _ in chosen]
        log_prob, (text, score) = sum(h.log_prob for h in hypotheses), (chosen[0][1], hypotheses[0].score)
        if len(parts) > 1:
            text = joined(text for _, text in chosen)
            score = self.search.score(log_prob, sum(len(h.tokens) + 1 for h in hypotheses))
        candidate = Candidate(
            text,
            score,
            log_prob,
            tuple(self._target_pieces[token] for h in hypotheses for token in h.tokens),
            token_log_probs=tuple(number for h in hypotheses for number in h.token_log_probs),
            part_lengths=tuple(len(h.tokens) for h in hypotheses),
        )
        if self.options.calibration is None:
            return candidate
        from .confidence import with_confidence

        return with_confidence(candidate, source_tokens, self.options.calibration)


_Part = tuple[Sentence, SearchResult, list[tuple[Hypothesis, str]]]
"""A sentence of a line, its search result, and the hypotheses with their texts."""


def _alignment(parts: list[_Part], rank: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the pairs of all parts of a line, for the candidates of a rank.

    A token that is aligned with a source's end symbol, or with the tag of its target language, has no pair.
    """
    pairs: list[tuple[int, int]] = []
    sources = targets = 0
    for sentence, result, _ in parts:
        first, end, own = sentence.first, len(sentence.tokens), min(rank, len(result.hypotheses) - 1)
        pairs += [
            (sources + index - first, targets + token)
            for token, index in enumerate(result.alignments[own])
            if first <= index < end
        ]
        sources, targets = sources + end - first, targets + len(result.hypotheses[own].tokens)
    return tuple(pairs)
