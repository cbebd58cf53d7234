"""The work of `nmt data trees`: convert bracketed trees, or print trees from words and parses.

`nmt_cli.parsing` reads, linearises and repairs trees. Both directions stream: memory does not grow with the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from ..console import say, warn
from ..errors import DataError
from ..files import sha256, write_atomic
from ..lines import decode_line, iter_lines
from ..output_paths import output_files
from ..parsing.brackets import Leaf, Tree, between_spaces, plain, read_trees
from ..parsing.linearization import delinearise, linearise, repaired
from ..parsing.records import Conversion, conversion_of
from ..records import to_json
from . import output
from .arguments import STDIN
from .inputs import open_input

WRITTEN = ("words", "linear", "ptb")
"""Endings of the files of a conversion."""


def convert(paths: list[Path], out: Path, name: str, functions: bool, traces: bool, escapes: bool, terminals: str) -> None:
    """Write NAME.words, NAME.linear and NAME.ptb, and print a summary. `terminals`: those of NAME.linear."""
    count = emptied = tokens = symbols = longest = 0
    written, record = [out / f"{name}.{kind}" for kind in WRITTEN], out / f"{name}.trees.json"
    with output_files(written, "the pairs", [path for path in paths if path != STDIN], ours=_not_recorded) as (words_file, linear_file, gold_file):
        for tree in _read(paths):
            tree = tree if functions else tree.without_functions()
            tree = tree if traces else tree.without_traces()
            if not tree.leaves:
                emptied += 1
                continue
            shown = tree if escapes else Tree(tuple(Leaf(tag, plain(word)) for tag, word in tree.leaves), tree.spans)
            linear = linearise(shown, terminals)
            words_file.write((" ".join(shown.words) + "\n").encode())
            linear_file.write(f"{linear}\n".encode())
            gold_file.write(f"{tree}\n".encode())
            length = linear.count(" ") + 1
            count, tokens, symbols, longest = count + 1, tokens + len(tree.leaves), symbols + length, max(longest, length)
        if not count:
            raise DataError(f"{', '.join(_shown(path) for path in paths)}: it has no tree; expected brackets, as (TOP (NP (DT the) (NN dog))).")
    values = {"files": {path.name: sha256(path) for path in written}, "terminals": terminals}
    write_atomic(record, to_json(Conversion.model_validate({"format_version": Conversion.newest, **values})))
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


def print_trees(words: Path, parses: Path, terminals: str | None) -> None:
    """Print a tree in brackets for each pair of lines, one by one. `terminals`: of the parses; None: as the record beside `words` says."""
    count = repairs = 0
    recorded = None if terminals or words.suffix != ".words" else conversion_of(words, "Move it away, and give --terminals.")
    kind = terminals or (recorded.terminals if recorded else "xx")
    sink = output.stream()
    for sentence, line in zip_longest(_lines(words), _lines(parses)):
        if sentence is None or line is None:
            short, long = (words, parses) if sentence is None else (parses, words)
            raise DataError(f"{_shown(short)} has {count:,} lines, {_shown(long)} has more: sentences and parses must be parallel, line by line. A line ends at \\n only.")
        count += 1
        tokens = between_spaces(sentence)
        tree = delinearise(line, tokens, kind)
        repairs += repaired(line, tree, kind)
        sink.write(f"{tree}\n".encode() if tokens else b"\n")
    sink.flush()
    say(f"{count:,} trees, {repairs:,} of them repaired")


def _not_recorded(path: Path) -> str:
    """Return why a file is not one that an earlier conversion wrote; "" if its record has the file's SHA-256."""
    conversion = conversion_of(path)
    if conversion is None:
        return "nmt data trees did not write it"
    return "" if conversion.files.get(path.name) == sha256(path) else f"{path.stem}.trees.json does not record it as it is"


def _shown(path: Path) -> str:
    return "standard input" if path == STDIN else repr(str(path))
