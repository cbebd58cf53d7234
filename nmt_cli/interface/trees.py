"""`nmt data trees` as functions: bracketed trees ──▶ pairs for training a parser, and a parser's output ──▶ trees.

    trees(inputs, out) ──▶ for each name: NAME.words, NAME.linear, NAME.ptb, recorded in NAME.trees.json ──▶ TreeFiles
    brackets(words, parses) ──▶ a Parse for each pair of lines

`nmt_cli.parsing` reads, linearises and repairs trees. Both directions stream: memory does not grow with the text.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..console import warn, warn_replaced
from ..errors import DataError, UsageError, check_choice
from ..parsing.brackets import Leaf, Tree, between_spaces, plain, read_trees
from ..parsing.linearization import TERMINALS, delinearise, linearise, repaired
from ..parsing.records import Conversion, conversion_of
from ..storage.files import sha256
from ..storage.output_paths import output_files
from ..storage.sealed_json import read_record, to_json
from ..text.lines import decoded_lines, open_binary, parallel
from .parsing import Parse

WRITTEN = ("words", "linear", "ptb")
"""Endings of the files of a conversion."""
RECORD = ".trees.json"
"""Ending of the record of a conversion."""

NamedLines = tuple[str, Iterable[str]]
"""The name of a text in messages, and its lines. For text that is not in a file."""
Input = str | Path | NamedLines
"""A file, plain or compressed, or lines."""


@dataclass(frozen=True)
class TreeFiles:
    """The files that a conversion wrote, and counts of their contents."""

    files: tuple[Path, ...]
    """NAME.words, NAME.linear, NAME.ptb."""
    trees: int
    words: int
    symbols: int
    """Symbols of all linearised trees."""
    longest: int
    """Symbols of the longest linearised tree."""
    left_out: int
    """Trees that were left out because they consist only of traces."""


def trees(
    inputs: Input | Sequence[Input],
    out: str | Path,
    *,
    name: str | None = None,
    functions: bool = False,
    traces: bool = False,
    escapes: bool = False,
    terminals: str = "xx",
) -> list[TreeFiles]:
    """Write sentences, linearised trees and reference trees into the folder `out`: files for each input, or with `name`
    one set of files for all inputs.

    `nmt data trees --help` describes the options. Only files of an earlier call are replaced. Raises UsageError,
    DataError.
    """
    check_choice("--terminals", terminals, TERMINALS)
    sources: list[Input] = [inputs] if isinstance(inputs, str | Path) or _named(inputs) else list(inputs)  # type: ignore[arg-type,list-item]
    if not sources:
        raise UsageError("no input was given: expected files of bracketed trees.")
    return [
        _convert(texts, Path(out), stem, functions, traces, escapes, terminals)
        for stem, texts in _targets(sources, name).items()
    ]


def brackets(
    words: str | Path | Iterable[str] | NamedLines,
    parses: str | Path | Iterable[str] | NamedLines,
    *,
    terminals: str | None = None,
) -> Iterator[Parse]:
    """Yield the tree of each pair of lines: a sentence, and its linearised tree as `nmt translate` writes it.

    A wrong tree is repaired.

    `terminals` is the kind of terminals in the parses; None: the kind in the record beside `words`, else "xx". Raises
    UsageError, DataError.
    """
    if terminals is not None:
        check_choice("--terminals", terminals, TERMINALS)
    beside = Path(words) if isinstance(words, str | Path) else None
    recorded = None
    if terminals is None and beside is not None and beside.suffix == ".words":
        recorded = conversion_of(beside, "Move it away, and give --terminals.")
    kind = terminals or (recorded.terminals if recorded else "xx")
    with ExitStack() as opened:
        pairs = parallel(_text(words, "the sentences", opened), _text(parses, "the parses", opened))
        opened.pop_all()  # who reads them closes them
    return (_parse(sentence, line, kind) for sentence, line in pairs)


def _parse(sentence: str, line: str, kind: str) -> Parse:
    tree = delinearise(line, between_spaces(sentence), kind)
    return Parse(tree, repaired(line, tree, kind))


def decoded(stream: BinaryIO, shown: str) -> Iterator[str]:
    """Yield the lines of a stream; warn at the end about invalid UTF-8.

    `shown` is the name of the stream in messages.
    """
    replaced: Counter[str] = Counter()
    with stream:
        yield from decoded_lines(stream, shown, replaced)
    warn_replaced(replaced)


def _named(value: object) -> bool:
    """Return whether a value is a pair of a name and lines (`NamedLines`)."""
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and not isinstance(value[1], str | Path)
    )


def _text(value: str | Path | Iterable[str] | NamedLines, name: str, opened: ExitStack) -> NamedLines:
    """Return a text's name in messages, `name` if it has none, and its lines; `opened` gets the file."""
    if isinstance(value, str | Path):
        shown = repr(str(value))
        return shown, decoded(opened.enter_context(open_binary(value)), shown)
    return value if _named(value) else (name, value)  # type: ignore[return-value]


def _targets(inputs: Sequence[Input], name: str | None) -> dict[str, list[Input]]:
    """Return the inputs of each conversion, by its name.

    Raises UsageError for a wrong name, and if two files have the same name.
    """
    if name is not None:
        if not name or "/" in name or name.startswith("."):
            raise UsageError(
                f"--name {name!r}: expected the beginning of a file name, as 'train'; the folder is --out."
            )
        return {name: list(inputs)}
    targets: dict[str, list[Input]] = {}
    for source in inputs:
        shown = repr(str(source)) if isinstance(source, str | Path) else source[0]
        stem = Path(source).name.partition(".")[0] if isinstance(source, str | Path) else ""
        if not stem:
            raise UsageError(f"{shown} has no name for the files: give --name NAME.")
        if stem in targets:
            raise UsageError(
                f"{str(targets[stem][0])!r} and {shown} would both go to {stem}.words: give --name NAME to "
                "join them, or convert them one by one."
            )
        targets[stem] = [source]
    return targets


def _convert(
    inputs: list[Input], out: Path, name: str, functions: bool, traces: bool, escapes: bool, terminals: str
) -> TreeFiles:
    """Convert `inputs` and write the files called `name`. Raises DataError, UsageError."""
    count = left_out = words = symbols = longest = 0
    written, record = tuple(out / f"{name}.{kind}" for kind in WRITTEN), out / f"{name}{RECORD}"
    files = [Path(source) for source in inputs if isinstance(source, str | Path)]
    digests = [hashlib.sha256() for _ in written]
    outputs = output_files([*written, record], "the pairs", files, ours=_not_recorded)
    with ExitStack() as opened, outputs as (*streams, record_file):
        texts = [_text(source, "the lines", opened) for source in inputs]
        for tree in (tree for shown, lines in texts for tree in read_trees(iter(lines), shown)):
            tree = tree if functions else tree.without_functions()
            tree = tree if traces else tree.without_traces()
            if not tree.leaves:
                left_out += 1
                continue
            typed = tree if escapes else Tree(tuple(Leaf(tag, plain(word)) for tag, word in tree.leaves), tree.spans)
            linear = linearise(typed, terminals)
            for line, stream, digest in zip((" ".join(typed.words), linear, str(tree)), streams, digests, strict=True):
                stream.write(data := f"{line}\n".encode())
                digest.update(data)
            length = linear.count(" ") + 1
            count, words, symbols, longest = count + 1, words + len(tree.leaves), symbols + length, max(longest, length)
        if not count:
            raise DataError(
                f"{', '.join(shown for shown, _ in texts)}: it has no tree; expected brackets, as (TOP (NP (DT "
                "the) (NN dog)))."
            )
        hashes = {path.name: digest.hexdigest() for path, digest in zip(written, digests, strict=True)}
        values = {"format_version": Conversion.newest, "files": hashes, "terminals": terminals}
        record_file.write(to_json(Conversion.model_validate(values)))
    if left_out:
        warn(f"{left_out:,} of {count + left_out:,} trees consist of traces: they were left out.")
    return TreeFiles(written, count, words, symbols, longest, left_out)


def _not_recorded(path: Path) -> str:
    """Return why no earlier conversion can have written a file; "" for a record, or if one has the file's SHA-256."""
    if path.name.endswith(RECORD):
        read_record(path, Conversion, DataError, "Move it away.")
        return ""
    conversion = conversion_of(path)
    if conversion is None:
        return "nmt data trees did not write it"
    return (
        "" if conversion.files.get(path.name) == sha256(path) else f"{path.stem}.trees.json does not record it as it is"
    )
