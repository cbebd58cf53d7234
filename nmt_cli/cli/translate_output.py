"""Output of `nmt translate` and `nmt parse`: a text for each line of the input, written as soon as its window is
done.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .. import console
from . import output

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import BinaryIO

    from ..translation.line import Translation


def write_windows(
    windows: Generator[list[Translation], None, None],
    sink: BinaryIO,
    form: Callable[[int, Translation], str],
    replaced: Counter[str],
    doing: str,
    prompt: str = "",
) -> None:
    """Write the translations of each window as soon as it is done. `doing` is the text of the progress bar.

    `replaced`: file → number of lines with invalid UTF-8. A `prompt` is for a person who types the lines. It is printed
    first, and no bar is shown, because a bar would overwrite the typed text.
    """
    start, count, tokens = time.perf_counter(), 0, 0
    if prompt:
        console.say(prompt)
    with console.progress(None, doing, " lines", shown=not prompt) as bar, closing(windows):
        for window in windows:
            for translation in window:
                sink.write((form(count, translation) + "\n").encode("utf-8"))
                count, tokens = count + 1, tokens + translation.length
            sink.flush()
            bar.update(len(window))
    for name, damaged in replaced.items():
        if damaged:
            console.warn(
                f"{name!r}: {damaged:,} of {count:,} lines held invalid UTF-8; the bytes were replaced by U+FFFD."
            )
    if console.on_terminal() and not prompt:
        seconds = time.perf_counter() - start
        console.say(f"{count:,} lines, {tokens:,} tokens in {seconds:.1f} s: {tokens / seconds:,.0f} tokens/s")


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
    from ..compression import compressing
    from ..output_paths import output_file

    if path is None:
        yield output.stream()
        return
    with output_file(path, what) as sink, compressing(sink, path) as stream:
        yield stream
