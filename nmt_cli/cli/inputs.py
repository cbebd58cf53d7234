"""The text that `nmt score` compares: hypotheses, references and source as parallel lines, and remarks about them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from io import UnsupportedOperation
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from ..console import say, warn, warn_replaced
from ..errors import DataError, UsageError
from ..text.lines import decode_line, decoded_lines, iter_lines, open_binary, open_descriptor
from .arguments import STDIN, STDIN_TWICE

if TYPE_CHECKING:
    from ..interface.evaluation import Evaluation
    from ..interface.evaluation_options import EvaluationOptions

LOOKS_TOKENISED = 100
"""Number of lines ending in " ." from which a warning is printed: sacrebleu's own threshold."""

System = tuple[str, list[str]]
"""The name of a hypothesis, and its lines."""


def read_parallel(
    hypotheses: list[Path], ref: list[Path], src: Path | None = None
) -> tuple[list[System], list[list[str]], list[str] | None]:
    """Return the lines of all files: systems, references and source.

    Raises one DataError for all unequal line counts.
    """
    if [*hypotheses, *ref, src].count(STDIN) > 1:
        raise UsageError(STDIN_TWICE)
    references = [_read(path) for path in ref]
    systems = [(str(path), _read(path)) for path in hypotheses]
    source = _read(src) if src else None
    others = [*systems, *([(str(src), source)] if source else [])]
    errors = [
        f"{name!r} has {len(lines):,} lines, the reference {str(path)!r} has {len(reference):,}"
        for name, lines in others
        for path, reference in zip(ref, references, strict=True)
        if len(lines) != len(reference)
    ]
    if errors:
        raise DataError(
            "; ".join(errors)
            + ". They must be parallel, line by line. A line ends at \\n only: U+2028, \\r and the like are "
            "characters of a line."
        )
    return systems, references, source


def say_model(folder: Path) -> None:
    """Print which model folder of a run folder is used."""
    say(f"model: {folder}")


def found(folder: Path) -> Path:
    """Return the model folder of a model or run folder, and print which it is of a run folder. Raises ModelError."""
    from ..model.folder_files import find_model

    if (model := find_model(folder)) != folder:
        say_model(model)
    return model


def typed_at_terminal(path: Path | None) -> bool:
    """Return whether `open_input(path)` opens a terminal, where a person types."""
    return path in (None, STDIN) and sys.stdin is not None and sys.stdin.isatty()


def open_input(path: Path | None) -> BinaryIO:
    """Return the file as a stream, or standard input for STDIN or None. Raises DataError.

    The stream is a duplicate of standard input: it may be closed, and at exit Python does not wait for a thread that
    still reads it.
    """
    if path is not None and path != STDIN:
        return open_binary(path)
    if sys.stdin is None:
        raise DataError("standard input is closed: expected a terminal, a file or a pipe to read from.")
    try:
        descriptor = sys.stdin.fileno()
    except UnsupportedOperation:  # a stream in memory
        return cast(BinaryIO, sys.stdin.buffer)
    return open_descriptor(os.dup(descriptor), "standard input")


def _read(path: Path) -> list[str]:
    replaced = Counter[str]()
    with open_input(path) as stream:
        lines = list(decoded_lines(stream, shown(path), replaced))
    if not lines:
        raise DataError(f"{shown(path)} is empty: expected one translation per line.")
    warn_replaced(replaced)
    return lines


def remark(
    systems: list[System], hypotheses: list[Path], ref: list[Path], source: Path | None, options: EvaluationOptions
) -> None:
    """Warn about input that is allowed but seldom intended."""
    tokenize, scores_bleu = options.tokenize, "bleu" in options.names
    for path, reference in product([*hypotheses, *([source] if source else [])], ref):
        if path.exists() and reference.exists() and path.samefile(reference):
            what = "--src" if path is source else "HYP"
            warn(f"{what} {str(path)!r} and --ref {str(reference)!r} are the same file.")
    if tokenize and not scores_bleu:
        warn(f"--tokenize {tokenize} has no effect: it acts on BLEU, which was not asked for.")
    for name, lines in systems if scores_bleu and tokenize != "none" else ():
        count = sum(line.endswith(" .") for line in lines)
        if count >= LOOKS_TOKENISED:
            way_out = (
                "the protocol tokenises plain text"
                if options.protocol
                else "or, if the references are tokenised alike, use --tokenize none"
            )
            warn(
                f"{shown(Path(name))}: {count:,} lines end in a separate full stop (' .'), so the text looks "
                f"tokenised. Detokenise it; {way_out}."
            )


def remark_on_scores(evaluation: Evaluation, ref: list[Path]) -> None:
    """Print the remarks about the scores and the references."""
    for text in evaluation.remarks([shown(path) for path in ref], lambda name: shown(Path(name))):
        warn(text)


def shown(path: Path) -> str:
    """Return the name of an input in messages."""
    return "standard input" if path == STDIN else repr(str(path))


def entries(path: Path | None, what: str) -> list[str] | None:
    """Return the lines of a file that are not blank; None without a file.

    Raises DataError if all lines are blank, for invalid UTF-8, and for tabs.
    """
    if path is None:
        return None
    lines = []
    with open_binary(path) as stream:
        for number, raw in enumerate(iter_lines(stream), 1):
            line, damaged = decode_line(raw)
            if damaged or "\t" in line.strip():
                what_is_wrong = "is not UTF-8. Convert the file to UTF-8" if damaged else "has a tab. Give one column"
                raise DataError(
                    f"{str(path)!r}, line {number:,}: {line[:60]!r} {what_is_wrong}: expected {what}, one per line."
                )
            lines.append(line)
    if not any(map(str.strip, lines)):
        raise DataError(f"{str(path)!r} has no text: expected {what}, one per line.")
    return [line for line in lines if line.strip()]
