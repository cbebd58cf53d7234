"""Output of `nmt translate` and `nmt parse`: a text for each input line, written as soon as its window is done."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .. import console
from ..errors import UsageError, check_choice
from ..interface.options import FORMAT, NBEST
from ..options import Option
from ..registry import FORMATS
from . import output

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import BinaryIO

    from ..interface.options import TranslateKeywords
    from ..translation.line import Translation


_form = partial(Option, heading=FORMAT)


@dataclass(frozen=True)
class OutputForm:
    """The form of the output: a document, or a text for each line."""

    document_format: Annotated[
        str | None,
        _form(
            f"{', '.join(FORMATS)}: translate the whole input as one document of this format, instead of line by line.",
            "NAME",
            names=("--format",),
        ),
    ] = None
    split_sentences: Annotated[
        str | None,
        _form(
            "With --format: a sentence ends at punctuation and line ends (1), at punctuation (nonewlines), "
            "or where the paragraph does (0).  [default: 1 for text, else nonewlines]",
            "HOW",
        ),
    ] = None
    nbest: Annotated[int, NBEST] = 1
    scores: Annotated[bool, _form("Print SCORE, a tab, the translation.")] = False
    as_json: Annotated[
        bool,
        _form(
            "Print one JSON object per line: source, translation, score, log_prob, tokens, nbest.", names=("--json",)
        ),
    ] = False
    alignment: Annotated[
        bool,
        _form(
            "With --json: also source_tokens, and alignment: for each token of the translation the source "
            "token with the most attention."
        ),
    ] = False
    confidence: Annotated[
        bool,
        _form(
            "With --json: also words, the probability of each word, and quality, an estimate of chrF / 100 "
            "for each line, 0 to 1."
        ),
    ] = False
    calibration: Annotated[
        Path | None,
        _form(
            "With --confidence: estimate quality by FILE, which nmt calibrate wrote.  [default: one fitted "
            "on a small model]",
            "FILE",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raise UsageError for options that need another one, and for an unknown format."""
        if self.alignment and not self.as_json:
            raise UsageError("--alignment needs --json, the only format with an alignment.")
        if self.confidence and not self.as_json:
            raise UsageError("--confidence needs --json, the only format with words and their probabilities.")
        if self.document_format is not None:
            check_choice("--format", self.document_format, FORMATS)
        elif self.split_sentences is not None:
            raise UsageError("--split-sentences needs --format: without it every line is translated by itself.")

    def keywords(self) -> TranslateKeywords:
        """Return these options as a translator has them."""
        return {
            "nbest": self.nbest,
            "scores": self.scores or self.as_json or self.nbest > 1,
            "alignment": self.alignment,
            "confidence": self.confidence,
            "calibration": self.calibration,
        }

    @property
    def of_line(self) -> Callable[[int, Translation], str]:
        """The function that returns the text of a line, given its number."""
        return json_object if self.as_json else moses if self.nbest > 1 else scored if self.scores else plain_text


def write_windows(
    windows: Generator[list[Translation], None, None],
    sink: BinaryIO,
    form: Callable[[int, Translation], str],
    replaced: Counter[str],
    doing: str,
    prompt: str = "",
) -> int:
    """Write the translations of each window as soon as it is done. Return the number of lines.

    `doing` is the text of the progress bar.

    `replaced`: file → number of lines with invalid UTF-8. A `prompt` is for a person who types the lines. It is printed
    first, and no bar is shown, because a bar would overwrite the typed text.
    """
    start, count, tokens, restored = time.perf_counter(), 0, 0, 0
    if prompt:
        console.say(prompt)
    with console.progress(None, doing, " lines", shown=not prompt) as bar, closing(windows):
        for window in windows:
            for translation in window:
                sink.write((form(count, translation) + "\n").encode("utf-8"))
                count, tokens, restored = count + 1, tokens + translation.length, restored + translation.restored
            sink.flush()
            bar.update(len(window))
    console.warn_replaced(replaced)
    say_restored(restored)
    if console.on_terminal() and not prompt:
        seconds = time.perf_counter() - start
        console.say(f"{count:,} lines, {tokens:,} tokens in {seconds:.1f} s: {tokens / seconds:,.0f} tokens/s")
    return count


def say_restored(count: int) -> None:
    """Say how many placeholders were put back, if any."""
    if count:
        more = "s" * (count != 1)
        console.say(f"put back where the alignment says: {count:,} placeholder{more} or symbol{more}")


# Output formats of a line; `index` counts lines from 0


def plain_text(index: int, translation: Translation) -> str:
    """Return the translation."""
    return translation.text


def scored(index: int, translation: Translation) -> str:
    """Return SCORE, a tab, the translation."""
    return f"{translation.score:.6f}\t{translation.text}"


def moses(index: int, translation: Translation) -> str:
    """Return one line per candidate, in the format of Moses: INDEX ||| TRANSLATION ||| SCORE."""
    return "\n".join(f"{index} ||| {candidate.text} ||| {candidate.score:.6f}" for candidate in translation.nbest)


def json_object(index: int, translation: Translation) -> str:
    """Return a JSON object.

    Tokens are subwords. A pair of the alignment has two indices, into source_tokens and into tokens.
    """
    return json.dumps(translation.as_dict(), ensure_ascii=False)


@contextmanager
def writing(path: Path | None, what: str) -> Iterator[BinaryIO]:
    """Provide stdout, or the file of --output, compressed as its name says, as a stream.

    `what` names its content in errors.
    """
    from ..storage.output_paths import output_file
    from ..text.compression import compressing

    if path is None:
        yield output.stream()
        return
    with output_file(path, what) as sink, compressing(sink, path) as stream:
        yield stream
