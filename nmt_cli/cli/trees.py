"""`nmt data trees`: turn bracketed trees into sentences and linearised trees, and back.

    IN ── brackets ──▶ NAME.words, NAME.linear, NAME.ptb        --back: words and parses, line by line ──▶ brackets

`nmt_cli.parsing` reads, linearises and repairs trees. Both directions stream: memory does not grow with the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from ..console import say, warn
from ..errors import DataError, UsageError
from ..files import sha256, write_atomic
from ..lines import decode_line, iter_lines
from ..output_paths import output_files
from ..parsing.brackets import Tree, between_spaces, plain, read_trees
from ..parsing.linearization import delinearise, linearise, repaired
from . import output
from .arguments import output_path
from .inputs import STDIN, open_input

WRITTEN = ("words", "linear", "ptb")
"""Endings of the files of a conversion."""


def trees(
    inputs: Annotated[list[Path] | None, typer.Argument(metavar="IN", help="Files of bracketed trees, plain, .gz, .xz or .bz2; - is stdin. With --back one file of parses.  [default with --back: stdin]", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", parser=output_path, metavar="DIR", help="Folder for the files.", show_default=False)] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Write one NAME.words, NAME.linear and NAME.ptb for all IN together, in order.  [default: files for each IN, with its name up to the first dot]", show_default=False)] = None,
    functions: Annotated[bool, typer.Option("--functions/--no-functions", help="Keep function tags and indices (NP-SBJ, NP=2), or only the label (NP).")] = False,
    traces: Annotated[bool, typer.Option("--traces/--no-traces", help="Keep empty elements (-NONE- 0) as words, or remove them and constituents of nothing else.")] = False,
    escapes: Annotated[bool, typer.Option("--escapes/--no-escapes", help="In .words: keep -LRB- and other escapes of treebanks, or write them as ( and so on.")] = False,
    back: Annotated[bool, typer.Option("--back", help="The other direction: IN is linearised trees, as `nmt translate` writes them; bracketed trees go to stdout.")] = False,
    words: Annotated[Path | None, typer.Option("--words", metavar="FILE", help="With --back: the parsed sentences, line by line parallel to IN.", show_default=False)] = None,
) -> None:
    """Turn bracketed trees into pairs for training a parser, or a parser's output back into trees.

    A tree may span several lines. NAME.words has one sentence per line, words separated by spaces. NAME.linear has its tree, as (S (NP XX XX )NP (VP XX )VP )S, where XX is a word and a closing bracket has its label. NAME.ptb has the tree in brackets with words and parts of speech, for `nmt score --metric evalb`. The root (ROOT, TOP, S1 or no label) is removed, and written as TOP in brackets.

    --back prints a tree for each line, words tagged XX: N lines in, N lines out. A line that is not a tree is repaired: stray brackets are dropped, open ones are closed at the end, and missing words are added at the end. The tree has exactly the sentence's words. A line without words gives an empty line.
    """
    if back:
        given = [option for option, value in (("--out", out), ("--name", name), ("--functions", functions), ("--traces", traces), ("--escapes", escapes)) if value]
        if given:
            raise UsageError(f"{', '.join(given)}: not with --back, which prints trees on stdout.")
        if words is None:
            raise UsageError("--back needs --words FILE, the sentences that were parsed: linearised trees have no words.")
        if len(inputs or []) > 1:
            raise UsageError(f"--back was given {len(inputs or [])} files of parses: give one, or stdin.")
        parses = (inputs or [STDIN])[0]
        if parses == words == STDIN:
            raise UsageError("'-' (standard input) was given twice: it can be read only once.")
        _print_trees(words, parses)
        return
    if words is not None:
        raise UsageError("--words: only with --back. Without it the words come from the trees.")
    if not inputs or out is None:
        raise UsageError("give IN, files of bracketed trees, and --out DIR, the folder for the files; or --back --words FILE for the other direction.")
    for target, paths in _targets(inputs, name).items():
        _convert(paths, out, target, functions, traces, escapes)


def _targets(inputs: list[Path], name: str | None) -> dict[str, list[Path]]:
    """Return the name of each conversion, and its input files. Raises UsageError if two files have the same name."""
    if inputs.count(STDIN) > 1:
        raise UsageError("'-' (standard input) was given more than once: it can be read only once.")
    if name is not None:
        if not name or "/" in name or name.startswith("."):
            raise UsageError(f"--name {name!r}: expected the beginning of a file name, as 'train'; the folder is --out.")
        return {name: inputs}
    targets: dict[str, list[Path]] = {}
    for path in inputs:
        stem = "" if path == STDIN else path.name.partition(".")[0]
        if not stem:
            raise UsageError(f"{str(path)!r} has no name for the files: give --name NAME.")
        if stem in targets:
            raise UsageError(f"{str(targets[stem][0])!r} and {str(path)!r} would both go to {stem}.words: give --name NAME to join them, or convert them one by one.")
        targets[stem] = [path]
    return targets


def _convert(paths: list[Path], out: Path, name: str, functions: bool, traces: bool, escapes: bool) -> None:
    """Write NAME.words, NAME.linear and NAME.ptb, and print a summary."""
    from ..parsing.records import Conversion
    from ..records import to_json

    count = emptied = tokens = symbols = longest = 0
    written, record = [out / f"{name}.{kind}" for kind in WRITTEN], out / f"{name}.trees.json"
    with output_files(written, "the pairs", [path for path in paths if path != STDIN], ours=lambda path: _not_recorded(path, record)) as (words_file, linear_file, gold_file):
        for tree in _read(paths):
            tree = tree if functions else tree.without_functions()
            tree = tree if traces else tree.without_traces()
            if not tree.leaves:
                emptied += 1
                continue
            linear = linearise(tree)
            words_file.write((" ".join(tree.words if escapes else map(plain, tree.words)) + "\n").encode())
            linear_file.write(f"{linear}\n".encode())
            gold_file.write(f"{tree}\n".encode())
            length = linear.count(" ") + 1
            count, tokens, symbols, longest = count + 1, tokens + len(tree.leaves), symbols + length, max(longest, length)
        if not count:
            raise DataError(f"{', '.join(_shown(path) for path in paths)}: it has no tree; expected brackets, as (TOP (NP (DT the) (NN dog))).")
    write_atomic(record, to_json(Conversion(format_version=Conversion.newest, files={path.name: sha256(path) for path in written})))
    if emptied:
        warn(f"{emptied:,} of {count + emptied:,} trees consist of traces: they were left out.")
    say(f"{out / name}.{{{','.join(WRITTEN)}}}: {count:,} trees, {tokens:,} words, {symbols:,} symbols (the longest tree {longest:,})")


def _read(paths: list[Path]) -> Iterator[Tree]:
    for path in paths:
        yield from read_trees(_lines(path), _shown(path))


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file or stdin; warn at the end about invalid UTF-8."""
    damaged = 0
    with open_input(path) as stream:
        for raw in iter_lines(stream):
            text, replaced = decode_line(raw)
            damaged += replaced
            yield text
    if damaged:
        warn(f"{_shown(path)}: {damaged:,} lines held invalid UTF-8; the bytes were replaced by U+FFFD.")


def _print_trees(words: Path, parses: Path) -> None:
    """Print a tree in brackets for each pair of lines, one by one."""
    count = repairs = 0
    sink = output.stream()
    for sentence, line in zip_longest(_lines(words), _lines(parses)):
        if sentence is None or line is None:
            short, long = (words, parses) if sentence is None else (parses, words)
            raise DataError(f"{_shown(short)} has {count:,} lines, {_shown(long)} has more: sentences and parses must be parallel, line by line. A line ends at \\n only.")
        count += 1
        tokens = between_spaces(sentence)
        tree = delinearise(line, tokens)
        repairs += repaired(line, tree)
        sink.write(f"{tree}\n".encode() if tokens else b"\n")
    sink.flush()
    say(f"{count:,} trees, {repairs:,} of them repaired")


def _not_recorded(path: Path, record: Path) -> str:
    """Return why a file is not one that an earlier conversion wrote; "" if its record has the file's SHA-256."""
    from ..parsing.records import Conversion
    from ..records import read_record

    try:
        conversion = read_record(record, Conversion, DataError, "Move it away.")
    except FileNotFoundError:
        return "nmt data trees did not write it"
    return "" if conversion.files.get(path.name) == sha256(path) else f"{record.name!r} does not record it as it is"


def _shown(path: Path) -> str:
    return "standard input" if path == STDIN else repr(str(path))
