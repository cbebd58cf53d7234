"""Translator: a trained model or an ensemble that translates or parses lists and streams of lines, and scores
translations.

    load(folders) ──▶ Translator ── translate(lines, beam=8, …) ──▶ Translation: text, score, tokens, n best, …
                                 ├─ parse(lines, beam=8, …) ──▶ Parse: the tree of a sentence, if the model is a parser
                                 └─ score(pairs) ──▶ Scored: log P of each translation given its source

For each set of options there is one `LineTranslator`; all of them share the models. Several threads may use
a Translator at once. After a fork, the child process may use it too.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from ..errors import UsageError
from ..translation.line import Line
from .loading import StoredModels, check_precision, models_named, open_models
from .options import ParseKeywords, TranslateKeywords, choose

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..data.tags import Tags
    from ..documents.segment import Written
    from ..translation.line import Translation
    from ..translation.pool import Pool
    from ..translation.scoring import Scored
    from ..translation.translator import LineTranslator
    from .parsing import Parse

T = TypeVar("T")

KEPT = 16
"""Number of sets of options whose translators are kept."""


def load(
    model: str | Path | Sequence[str | Path] | None = None,
    *,
    device: str = "auto",
    devices: int | None = None,
    precision: str = "auto",
    chosen: Callable[[Path], None] = lambda _: None,
    wait: bool = True,
) -> Translator:
    """Load a model folder, or the model of a run folder: its averaged model, else the best, else the last.

    Several folders are an ensemble. For each run folder, `chosen` is called with the model folder in it.

    Without `wait`, the files of the model may still be checked when this returns. Then only translations of lines and
    documents may be asked for; a damaged file is an error before the first one is given.

    Without `model`, the folder in $NMT_MODEL is loaded, else runs/latest. The options are those of `nmt translate`.
    Raises UsageError, ModelError.
    """
    check_precision(precision)
    from ..device.memory import keep_freed_memory

    keep_freed_memory()
    paths = models_named(model)
    stored = open_models(paths, device=device, devices=devices, precision=precision, chosen=chosen, wait=wait)
    return Translator(stored, precision)


class Translator:
    """Translates, parses and scores with loaded models.

    As a context manager, it calls `close` at the end of the block.
    """

    def __init__(self, stored: StoredModels, precision: str = "auto") -> None:
        """Use `load` to make a Translator from a folder."""
        self._stored: StoredModels | None = stored
        self.precision = precision
        self.folders = tuple(stored.folders)
        data = stored.recipe.data
        self.source_language, self.target_language = data.source_language, data.target_language
        """The languages of the recipe; `target_languages` has all of a model of several."""
        self._lock = threading.Lock()
        self._translators: dict[str, LineTranslator] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop running translations, whose streams raise PoolClosed, and free the models. The translator cannot be used
        any more.
        """
        if self._stored:
            self._stored.close()
        self._stored = None
        self._translators.clear()

    @property
    def stored(self) -> StoredModels:
        """The models. Raises UsageError after `close`."""
        if self._stored is None:
            raise UsageError("the translator is closed. Load the model again.")
        return self._stored

    @property
    def has_tags(self) -> bool:
        """Whether the model has tags of target languages, and so a choice among `target_languages`."""
        return bool(self.stored.tags)

    @property
    def target_languages(self) -> list[str]:
        """The codes of the languages that the model translates into: its tags, or the recipe's target language."""
        return list(self.stored.tags.ids) or [self.target_language]

    @overload
    def translate(self, lines: Sequence[str | Line], **options: Unpack[TranslateKeywords]) -> list[Translation]: ...
    @overload
    def translate(
        self, lines: Iterator[str | Line], **options: Unpack[TranslateKeywords]
    ) -> Generator[Translation, None, None]: ...

    def translate(
        self, lines: Iterable[str | Line], **options: Unpack[TranslateKeywords]
    ) -> list[Translation] | Generator[Translation, None, None]:
        r"""Translate lines.

        For a sequence, return a list; for an iterator, return a generator, which yields before the input ends.

        Each line is text without "\n". There is one translation per line, in order; the translation of a blank line is
        empty. The translation of a line depends on the line, the model and the options only. Raises UsageError for a
        wrong option, and for a line that begins with >>CODE<< of a language that a model of several does not have.
        """
        _refuse_text("translate", lines)
        if isinstance(lines, Sequence):
            return [translation for window in self.windows(lines, options) for translation in window]
        return self._stream(translation for window in self.windows(lines, options) for translation in window)

    def _stream(self, results: Generator[T, None, None]) -> Generator[T, None, None]:
        """Yield the results while the translator is open. Raises PoolClosed."""
        from ..translation.pool import PoolClosed

        with closing(results):
            for result in results:
                if self._stored is None:
                    raise PoolClosed
                yield result

    def windows(
        self, lines: Iterable[str | Line], options: TranslateKeywords, lacking: Counter[str] | None = None
    ) -> Generator[list[Translation], None, None]:
        """Yield the translations of `translate` in lists, as they are computed.

        All lines that were read are answered before it waits for the next line. `lacking` counts the tags of languages
        that the model lacks, by tag, and their lines are text; without it, they are errors. Raises UsageError for a
        wrong option, before a line is read.
        """
        translator, language, checked = self._ready(lines, options, lacking)
        results = translator.windows(checked, language)
        return results if self.stored.checked else self._once_checked(results)

    def _once_checked(self, results: Generator[T, None, None]) -> Generator[T, None, None]:
        """Yield the results, the first one when all files of the models are checked. Raises ModelError."""
        check = self.stored.check
        try:
            first = next(results, None)
        finally:
            check()
        if first is not None:
            yield first
            yield from results

    def submit(self, lines: Sequence[str | Line], **options: Unpack[TranslateKeywords]) -> Future[list[Translation]]:
        """Return a future of the translations of these lines; they are the same as those of `translate`.

        Raises the same errors.

        Lines of all unfinished calls are translated together. This is for servers, with many callers who have a few
        lines each. If a future is cancelled, the search for its lines stops.
        """
        _refuse_text("submit", lines, "a list of lines")
        translator, language, checked = self._ready(lines, options)
        return translator.submit(list(checked), language)

    def _ready(
        self, lines: Iterable[str | Line], options: TranslateKeywords, lacking: Counter[str] | None = None
    ) -> tuple[LineTranslator, str, Iterable[str | Line]]:
        """Return the translator for these options, the code of the language's tag, and the lines, checked.

        A sequence is checked now. Raises UsageError. `lacking`: see `windows`.
        """
        in_memory, language = isinstance(lines, Sequence), ""
        if in_memory and any(isinstance(line, Line) and line.terms for line in lines):
            options = {**options, "terms": True}
        tags = self.stored.tags
        if options.get("target_language") is not None:
            language = tags.chosen(options["target_language"])
        check = partial(_checked, terms=bool(options.get("terms")), tags=tags if tags.ids else None, lacking=lacking)
        ready = map(check, lines)
        return self.with_options(options), language, list(ready) if in_memory else ready

    def warm_up(self, **options: Unpack[TranslateKeywords]) -> None:
        """Read the model, and load torch if these options need it, now and not at the first translation.

        Raises UsageError for a wrong option.
        """
        self._ready([], options)

    @property
    def recipe_beam(self) -> int:
        """The beam of the model's recipe."""
        return self.stored.recipe.decode.beam

    @property
    def pool(self) -> Pool:
        """The workers of `submit`."""
        return self.stored.models(self.precision).pool

    def finish(self, seconds: float) -> bool:
        """Refuse new lines, and wait at most `seconds` until all submitted lines are done.

        Return whether they are done.
        """
        return self.pool.close(seconds)

    def translate_document(
        self,
        text: str,
        format: str = "text",
        *,
        split_sentences: str | None = None,
        **options: Unpack[TranslateKeywords],
    ) -> str:
        """Return the translation of a document: plain "text", "html" or "xml", with its markup and white space.

        `split_sentences`: see `documents.read_document`. Raises UsageError for a wrong option or a missing library,
        DocumentError for a document that is refused.
        """
        from .progress import showing

        with showing(False):
            return self.document(text, format, split_sentences, options).text

    def document(self, text: str, format: str, split_sentences: str | None, options: TranslateKeywords) -> Written:
        """Return what `translate_document` does, with the number of placeholders put back, and show the progress."""
        from .documents import check_document_options, translate_document

        check_document_options(options)
        lacking = Counter[str]()

        def translate(lines: Sequence[Line]) -> Generator[list[Translation], None, None]:
            return self.windows(lines, {**options, "scores": False}, lacking)

        translated = translate_document(translate, text, format, self.source_language, split_sentences)
        self.stored.tags.warn(lacking)
        return translated

    @overload
    def parse(
        self, lines: Sequence[str], *, tokenized: bool = False, **options: Unpack[ParseKeywords]
    ) -> list[Parse]: ...
    @overload
    def parse(
        self, lines: Iterator[str], *, tokenized: bool = False, **options: Unpack[ParseKeywords]
    ) -> Generator[Parse, None, None]: ...

    def parse(
        self, lines: Iterable[str], *, tokenized: bool = False, **options: Unpack[ParseKeywords]
    ) -> list[Parse] | Generator[Parse, None, None]:
        r"""Parse sentences with a parser, as `nmt parse` does.

        For a sequence, return a list; for an iterator, return a generator, which yields before the input ends.

        Each line is a sentence without "\n"; `tokenized`: its words are separated by spaces already. There is one parse
        per line, in order. Raises ModelError if the model is not a parser. Raises UsageError for a wrong option, or if
        NLTK is needed (not `tokenized`) and not installed.
        """
        _refuse_text("parse", lines)
        from .parsing import Parses, terminals_of, treebank_words

        terminals = terminals_of(self.folders[0])
        split = None if tokenized else treebank_words()
        chosen: Any = options  # some of the keywords of `translate`
        parses = Parses(self.with_options(chosen), terminals, split)
        in_memory = isinstance(lines, Sequence)
        requests = map(_sentence, lines)
        results = parses.translator.translate(parses.sentences(list(requests) if in_memory else requests))
        stream = (parses.parse(result) for result in results)
        return list(stream) if in_memory else self._stream(stream)

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        precision: str | None = None,
        batch_tokens: int | None = None,
        target_language: str | None = None,
    ) -> list[Scored]:
        """Return for each pair (source, translation) log P of the translation, as `nmt score --model` prints it.

        The default precision is fp32, or int8 for a model that is stored in int8.

        Raises UsageError for an ensemble, and for a language that the model does not translate into.
        """
        if precision:
            check_precision(precision)
        if len(self.folders) > 1:
            raise UsageError(f"score was called with an ensemble of {len(self.folders)} models: load one of them.")
        scorer = self.stored.scorer(precision or "", batch_tokens, target_language)
        return list(scorer.score(pairs))

    def with_options(self, options: TranslateKeywords) -> LineTranslator:
        """Return the translator for these options; build it if there is none yet. Raises UsageError, DataError.

        A `target_language` means nothing here: it belongs to each call of the translator.
        """
        if options.get("confidence") and isinstance(
            path := options.get("calibration"), str | Path
        ):  # the file may change between two calls
            from ..translation.confidence import read_calibration

            options = {**options, "calibration": read_calibration(Path(path))}
        stored, options = self.stored, options.copy()
        options.pop("target_language", None)
        key = repr(options)
        with self._lock:
            if key not in self._translators:
                from ..translation.translator import LineTranslator

                if len(self._translators) >= KEPT:
                    del self._translators[next(iter(self._translators))]
                chosen = choose(options, stored.recipe, *stored.length_limits)
                models = stored.models(self.precision)
                self._translators[key] = LineTranslator(models, stored.vocabulary, chosen)
            return self._translators[key]


def _refuse_text(method: str, lines: Iterable[object], expected: str = "a list or another iterable of lines") -> None:
    """Raise UsageError for a text in place of lines."""
    if isinstance(lines, str):
        raise UsageError(f"{method} was given the text {lines[:60]!r}: expected {expected}. Give [text].")


def _sentence(line: str) -> str:
    """Return a line unchanged. Raises UsageError if it is not a str, or contains a line end."""
    if isinstance(line, Line):
        raise UsageError(f"parse was given {line!r}: expected a str, for a tree has neither prefix nor terms.")
    _checked(line)
    return line


def _checked(
    line: str | Line, terms: bool = False, tags: Tags | None = None, lacking: Counter[str] | None = None
) -> str | Line:
    """Return the line. `terms`: whether it may have terms; `tags`: those of the model; `lacking`: see `windows`.

    Raises UsageError.
    """
    text = line.text if isinstance(line, Line) else line
    if not isinstance(text, str):
        raise UsageError(f"translate was given {text!r} as a line: expected a str or a Line.")
    if "\n" in text:
        raise UsageError(f"the line {text[:60]!r} contains a line end: give each line by itself.")
    if isinstance(line, Line) and isinstance(line.terms, str | Mapping):
        raise UsageError(
            f"the line {text[:60]!r} has the terms {line.terms!r}: expected a list of the words and phrases in "
            "its translation."
        )
    if isinstance(line, Line) and line.terms and not terms:
        raise UsageError(
            f"the line {text[:60]!r} has terms, and the lines come from an iterator: give terms=True to translate."
        )
    if tags and lacking is None:
        tags.check(text)
    elif tags and lacking is not None and (tag := tags.lacks(text)):
        lacking[tag] += 1
    return line
