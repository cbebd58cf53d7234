"""Translator: a trained model or an ensemble that translates or parses lists and streams of lines, and scores
translations.

    load(folders) ──▶ Translator ── translate(lines, beam=8, …) ──▶ Translation: text, score, tokens, n best, …
                                 ├─ parse(lines, beam=8, …) ──▶ Parse: the tree of a sentence, if the model is a parser
                                 └─ score(pairs) ──▶ Scored: log P of each translation given its source

For each set of options there is one Translator of `translation`; all of them share the models. Several threads may use
a Translator at once. After a fork, the child process may use it too.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from ..errors import UsageError
from .loading import Loaded, check_precision, models_named
from .loading import load as load_models
from .options import TranslateOptions, choose

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..translation import translator as decoding
    from ..translation.confidence import Calibration
    from ..translation.pool import Pool
    from ..translation.scoring import Scored
    from ..translation.translation import Translation
    from ..translation.translator import Request
    from .parsing import Parse, Parses

KEPT = 16
"""Number of sets of options whose translators are kept."""


@dataclass(frozen=True)
class Line:
    """A line to translate, with an optional prefix and terms: its translation must begin with the prefix and contain
    the terms.
    """

    text: str
    prefix: str | None = None
    terms: Sequence[str] = ()
    """Words and phrases. `A|B`: A or B; `A*`: a word that begins with A."""


def calibration_of(confidence: bool, calibration: Path | Calibration | None) -> Calibration | None:
    """Return the calibration that these options choose; None without `confidence`. Raises UsageError, DataError."""
    if not confidence:
        if calibration is not None:
            raise UsageError("--calibration needs --confidence, which it changes.")
        return None
    from ..translation.confidence import DEFAULT, Calibration, read_calibration

    if calibration is None:
        return DEFAULT
    return calibration if isinstance(calibration, Calibration) else read_calibration(Path(calibration))


def load(
    model: str | Path | Sequence[str | Path] | None = None,
    *,
    device: str = "auto",
    devices: int | None = None,
    precision: str = "auto",
) -> Translator:
    """Load a model folder, or the model of a run folder: its averaged model, else the best, else the last.

    Several folders are an ensemble.

    Without `model`, the folder in $NMT_MODEL is loaded, else runs/latest. The options are those of `nmt translate`.
    Raises UsageError, ModelError.
    """
    check_precision(precision)
    folders = [] if model is None else [model] if isinstance(model, str | Path) else list(model)
    from ..hardware import keep_freed_memory

    keep_freed_memory()
    return Translator(
        load_models(
            models_named([Path(folder) for folder in folders]), [], device=device, devices=devices, precision=precision
        ),
        precision,
    )


class Translator:
    """Translates, parses and scores with loaded models.

    As a context manager, it calls `close` at the end of the block.
    """

    def __init__(self, loaded: Loaded, precision: str = "auto") -> None:
        """Use `load` to make a Translator from a folder."""
        self._loaded: Loaded | None = loaded
        self.precision = precision
        self.folders = tuple(loaded.folders)
        self.source_language, self.target_language = (
            loaded.recipe.data.source_language,
            loaded.recipe.data.target_language,
        )
        self._lock = threading.Lock()
        self._translators: dict[str, decoding.Translator] = {}
        self._running: weakref.WeakSet[Generator[Translation, None, None] | Generator[Parse, None, None]] = (
            weakref.WeakSet()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop running translations and free the models. The translator cannot be used any more."""
        if self._loaded:
            self._loaded.stored.close()
        self._loaded = None
        self._translators.clear()
        for stream in list(self._running):
            with suppress(ValueError):  # another thread is in the middle of it
                stream.close()

    @overload
    def translate(self, lines: Sequence[str | Line], **options: Unpack[TranslateOptions]) -> list[Translation]: ...
    @overload
    def translate(
        self, lines: Iterator[str | Line], **options: Unpack[TranslateOptions]
    ) -> Generator[Translation, None, None]: ...

    def translate(
        self, lines: Iterable[str | Line], **options: Unpack[TranslateOptions]
    ) -> list[Translation] | Generator[Translation, None, None]:
        r"""Translate lines.

        For a sequence, return a list; for an iterator, return a generator, which yields before the input ends.

        Each line is text without "\n". There is one translation per line, in order; the translation of a blank line is
        empty. The translation of a line depends on the line, the model and the options only. Raises UsageError for a
        wrong option.
        """
        if isinstance(lines, str):
            raise UsageError(
                f"translate was given the text {lines[:60]!r}: expected a list or another iterable of lines. "
                "Give [text]."
            )
        in_memory = isinstance(lines, Sequence)
        if in_memory and any(isinstance(line, Line) and line.terms for line in lines):
            options = {**options, "terms": True}
        translator = self._translator(options, in_memory and _are_plain(lines))
        requests = map(partial(_request, terms=bool(options.get("terms"))), lines)
        if in_memory:
            return list(translator.translate(list(requests)))
        stream = translator.translate(requests)
        self._running.add(stream)
        return stream

    def submit(self, lines: Sequence[str | Line], **options: Unpack[TranslateOptions]) -> Future[list[Translation]]:
        """Return a future of the translations of these lines; they are the same as those of `translate`.

        Raises UsageError for a wrong option.

        Lines of all unfinished calls are translated together. This is for servers, with many callers who have a few
        lines each. If a future is cancelled, the search for its lines stops.
        """
        if isinstance(lines, str):
            raise UsageError(f"submit was given the text {lines[:60]!r}: expected a list of lines. Give [text].")
        if any(isinstance(line, Line) and line.terms for line in lines):
            options = {**options, "terms": True}
        requests = [_request(line, terms=bool(options.get("terms"))) for line in lines]
        return self._translator(options, _are_plain(lines)).submit(requests)

    def warm_up(self, **options: Unpack[TranslateOptions]) -> None:
        """Read the model, and load torch if these options need it, now and not at the first translation.

        Raises UsageError for a wrong option.
        """
        self._translator(options, True)

    @property
    def recipe_beam(self) -> int:
        """The beam of the model's recipe."""
        return self._models().recipe.decode.beam

    @property
    def pool(self) -> Pool:
        """The workers of `submit`."""
        return self._models().stored.searchable(self.precision).pool

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
        **options: Unpack[TranslateOptions],
    ) -> str:
        """Return the translation of a document: plain "text", "html" or "xml", with its markup and white space.

        `split_sentences`: see `documents.read_document`. Raises UsageError for a wrong option or a missing library,
        DocumentError for a document that is refused.
        """
        from .documents import translate_document

        return translate_document(self, text, format, split_sentences, options)

    @overload
    def parse(
        self,
        lines: Sequence[str],
        *,
        tokenized: bool = False,
        beam: int | None = None,
        batch_tokens: int | None = None,
        overrides: Sequence[str] = (),
    ) -> list[Parse]: ...
    @overload
    def parse(
        self,
        lines: Iterator[str],
        *,
        tokenized: bool = False,
        beam: int | None = None,
        batch_tokens: int | None = None,
        overrides: Sequence[str] = (),
    ) -> Generator[Parse, None, None]: ...

    def parse(
        self,
        lines: Iterable[str],
        *,
        tokenized: bool = False,
        beam: int | None = None,
        batch_tokens: int | None = None,
        overrides: Sequence[str] = (),
    ) -> list[Parse] | Generator[Parse, None, None]:
        r"""Parse sentences with a parser, as `nmt parse` does.

        For a sequence, return a list; for an iterator, return a generator, which yields before the input ends.

        Each line is a sentence without "\n"; `tokenized`: its words are separated by spaces already. There is one parse
        per line, in order. Raises ModelError if the model is not a parser. Raises UsageError for a wrong option, or if
        NLTK is needed (not `tokenized`) and not installed.
        """
        if isinstance(lines, str):
            raise UsageError(
                f"parse was given the text {lines[:60]!r}: expected a list or another iterable of lines. Give [text]."
            )
        from .parsing import Parses, terminals_of, treebank_words

        self._models()
        terminals = terminals_of(self.folders[0])
        split = None if tokenized else treebank_words()
        parses = Parses(
            self._translator({"beam": beam, "batch_tokens": batch_tokens, "overrides": overrides}), terminals, split
        )
        in_memory = isinstance(lines, Sequence)
        requests = map(_sentence, lines)
        stream = _parsed(parses, list(requests) if in_memory else requests)
        if in_memory:
            return list(stream)
        self._running.add(stream)
        return stream

    def score(
        self, pairs: Iterable[tuple[str, str]], *, precision: str | None = None, batch_tokens: int | None = None
    ) -> list[Scored]:
        """Return for each pair (source, translation) log P of the translation, as `nmt score --model` prints it.

        The default precision is fp32, or int8 for a model that is stored in int8.

        Raises UsageError for an ensemble.
        """
        loaded = self._models()
        if precision:
            check_precision(precision)
        if len(loaded.folders) > 1:
            raise UsageError(f"score was called with an ensemble of {len(loaded.folders)} models: load one of them.")
        scorer = loaded.scorer(precision or "", batch_tokens)
        return [scored for window in scorer.windows(pairs) for scored in window]

    def _models(self) -> Loaded:
        if self._loaded is None:
            raise UsageError("the translator is closed. Load the model again.")
        return self._loaded

    def _translator(self, options: Mapping[str, Any], plain: bool = False) -> decoding.Translator:
        """Return the translator for these options; build it if there is none yet.

        `plain`: the lines need nothing but plain beam search.
        """
        arguments = *self._arguments(options), plain
        key = repr(arguments)
        with self._lock:
            if key not in self._translators:
                if len(self._translators) >= KEPT:
                    del self._translators[next(iter(self._translators))]
                self._translators[key] = self._new_translator(*arguments)
            return self._translators[key]

    def _arguments(self, options: Mapping[str, Any]) -> tuple[list[str], int, dict[str, Any], bool]:
        """Return the changes of the recipe, the size of the n-best list, and further parameters of a translator for
        these options; and whether they are plain.
        """
        choice = choose(options, self._models().recipe.decode.search)
        kwargs = {
            "sampling": choice.sampling,
            "mbr": choice.mbr,
            "constraints": choice.constraints,
            "align": bool(options.get("alignment")),
            "calibration": calibration_of(bool(options.get("confidence")), options.get("calibration")),
        }
        return (choice.changes, options.get("nbest", 1), kwargs, choice.is_plain)

    def _new_translator(
        self, changes: list[str], nbest: int, kwargs: dict[str, Any], plain_options: bool, plain_lines: bool
    ) -> decoding.Translator:
        return (
            self._models()
            .changed(changes, nbest)
            .translator(nbest=nbest, precision=self.precision, plain=plain_options and plain_lines, **kwargs)
        )


def _are_plain(lines: Iterable[str | Line]) -> bool:
    """Return whether no line has a prefix or terms."""
    return not any(isinstance(line, Line) and (line.prefix is not None or line.terms) for line in lines)


def _sentence(line: str) -> str:
    """Return a line unchanged. Raises UsageError if it is not a str, or contains a line end."""
    if isinstance(line, Line):
        raise UsageError(f"parse was given {line!r}: expected a str, for a tree has neither prefix nor terms.")
    _request(line, terms=False)
    return line


def _parsed(parses: Parses, requests: Iterable[str]) -> Generator[Parse, None, None]:
    for result in parses.translator.translate(parses.sentences(requests)):
        yield parses.parse(result)


def _request(line: str | Line, terms: bool) -> str | Request:
    """Return a line in the form that `translation` reads. Raises UsageError."""
    from ..translation.translator import Request

    text = line.text if isinstance(line, Line) else line
    if not isinstance(text, str):
        raise UsageError(f"translate was given {text!r} as a line: expected a str or a Line.")
    if "\n" in text:
        raise UsageError(f"the line {text[:60]!r} contains a line end: give each line by itself.")
    if isinstance(line, str):
        return line
    if isinstance(line.terms, str | Mapping):
        raise UsageError(
            f"the line {text[:60]!r} has the terms {line.terms!r}: expected a list of the words and phrases in "
            "its translation."
        )
    if line.terms and not terms:
        raise UsageError(
            f"the line {text[:60]!r} has terms, and the lines come from an iterator: give terms=True to translate."
        )
    inputs: dict[str, Any] = {} if line.prefix is None else {"prefix": line.prefix}
    if line.terms:
        inputs["terms"] = list(line.terms)
    return Request(text, inputs)
