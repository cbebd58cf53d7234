"""`nmt data trees`: turn bracketed trees into sentences and linearised trees, and back.

    IN ── brackets ──▶ NAME.words, NAME.linear, NAME.ptb        --back: words and parses, line by line ──▶ brackets

`interface.trees` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from ..console import say
from ..errors import UsageError
from ..interface.trees import brackets, decoded
from ..interface.trees import trees as convert
from ..options import flag
from . import output
from .arguments import STDIN, STDIN_TWICE, argument, option, output_path
from .inputs import open_input
from .typed_options import Given, options_from


@options_from(
    convert,
    out=Annotated[Path | None, option("Folder for the files.", "DIR", parser=output_path)],
    name=option(
        "Write one NAME.words, NAME.linear and NAME.ptb for all IN together, in order.  [default: files "
        "for each IN, with its name up to the first dot]",
        "NAME",
    ),
    functions=option(
        "Keep function tags and indices (NP-SBJ, NP=2), or only the label (NP).", names=("--functions/--no-functions",)
    ),
    traces=option(
        "Keep empty elements (-NONE- 0) as words, or remove them and constituents of nothing else.",
        names=("--traces/--no-traces",),
    ),
    escapes=option(
        "In .words: keep -LRB- and other escapes of treebanks, or write them as ( and so on.",
        names=("--escapes/--no-escapes",),
    ),
    terminals=Annotated[
        str | None,
        option(
            "What a word is in .linear: xx (XX), tags (its part of speech), words (itself), both (itself, "
            "then / and its part of speech). With --back: what it is in IN.  [default: xx; with --back what "
            "is recorded beside FILE]",
            "KIND",
        ),
    ],
)
def trees(
    *,
    inputs: Annotated[
        list[Path] | None,
        argument(
            "Files of bracketed trees, plain, .gz, .xz, .bz2 or .zst; - is stdin. With --back one file of "
            "parses.  [default with --back: stdin]",
            "IN",
        ),
    ] = None,
    options: Given,
    back: Annotated[
        bool,
        option(
            "The other direction: IN is linearised trees, as `nmt translate` writes them; bracketed trees go "
            "to stdout.",
            names=("--back",),
        ),
    ] = False,
    words: Annotated[
        Path | None, option("With --back: the parsed sentences, line by line parallel to IN.", "FILE")
    ] = None,
) -> None:
    """Turn trees into pairs for training a parser, or parses into trees.

    It writes the sentences, the trees as a model reads them, and the trees for `nmt score --metric evalb`.
    docs/parsing.md has the formats.
    """
    if back:
        if given := [flag(name) for name, value in options.items() if value and name != "terminals"]:
            raise UsageError(f"{', '.join(given)}: not with --back, which prints trees on stdout.")
        if words is None:
            raise UsageError(
                "--back needs --words FILE, the sentences that were parsed: linearised trees have no words."
            )
        if len(inputs or []) > 1:
            raise UsageError(f"--back was given {len(inputs or [])} files of parses: give one, or stdin.")
        _print(words, (inputs or [STDIN])[0], options.get("terminals"))
        return
    if words is not None:
        raise UsageError("--words: only with --back. Without it the words come from the trees.")
    if not inputs or "out" not in options:
        raise UsageError(
            "give IN, files of bracketed trees, and --out DIR, the folder for the files; or --back --words "
            "FILE for the other direction."
        )
    if inputs.count(STDIN) > 1:
        raise UsageError(STDIN_TWICE)
    for written in convert([_lines(path) for path in inputs], **options):
        stem = written.files[0].with_suffix("")
        kinds = ",".join(path.suffix[1:] for path in written.files)
        say(
            f"{stem}.{{{kinds}}}: {written.trees:,} tree{'s' * (written.trees != 1)}, {written.words:,} words, "
            f"{written.symbols:,} symbols (the longest tree {written.longest:,})"
        )


def _print(words: Path, parses: Path, terminals: str | None) -> None:
    """Print a tree in brackets for each pair of lines, as soon as the pair is read."""
    if words == parses == STDIN:
        raise UsageError(STDIN_TWICE)
    sink, count, repairs = output.stream(), 0, 0
    for parse in brackets(_lines(words), _lines(parses), terminals=terminals):
        sink.write(f"{parse}\n".encode())
        count, repairs = count + 1, repairs + parse.repaired
    sink.flush()
    say(f"{count:,} trees, {repairs:,} of them repaired")


def _lines(path: Path) -> Path | tuple[str, Iterator[str]]:
    """Return a file as it is, and standard input as lines with a name."""
    if path != STDIN:
        return path
    return "standard input", decoded(open_input(None), "standard input")
