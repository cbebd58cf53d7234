"""The input of `nmt translate`: lines, and a prefix and terms for each line, from columns of the input or from parallel files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, UsageError

if TYPE_CHECKING:
    from ..decoding.translator import Line


@dataclass(frozen=True)
class InputFormat:
    """The sources of the lines, their prefixes and their terms. `file` None: standard input; other files None: not given."""

    file: Path | None
    prefix_column: bool
    prefix_file: Path | None
    terms_columns: bool
    terms_file: Path | None

    def __post_init__(self) -> None:
        """Raise UsageError if two options give prefixes, or two options give terms."""
        if self.prefix_column and self.prefix_file:
            raise UsageError(
                "--prefix-column and --prefix-file were both given: give prefixes either in the input or in a file."
            )
        if self.terms_columns and self.terms_file:
            raise UsageError(
                "--terms-columns and --terms were both given: give terms either in the input or in a file."
            )

    @property
    def terms(self) -> bool:
        """Whether lines have terms."""
        return self.terms_columns or self.terms_file is not None

    @property
    def paths(self) -> list[Path]:
        """The files that are read."""
        return [path for path in (self.file, self.prefix_file, self.terms_file) if path]


def read_requests(input_format: InputFormat, replaced: Counter[str]) -> Iterator[Line]:
    """Yield the lines to translate. `replaced`: file → lines with invalid UTF-8.

    If the files have different numbers of lines, raises DataError after the last line that all files have.
    """
    from ..decoding.translator import Request
    from ..lines import decode_line, iter_lines, open_binary
    from .inputs import open_input

    names = [
        str(input_format.file) if input_format.file else "standard input",
        *(str(path) for path in input_format.paths if path != input_format.file),
    ]
    with ExitStack() as stack:  # the streams are closed in the thread that reads them
        streams = [
            stack.enter_context(open_input(input_format.file)),
            *(stack.enter_context(open_binary(Path(name))) for name in names[1:]),
        ]
        readers = [iter_lines(stream, any_bytes=True) for stream in streams]
        count = 0
        while None not in (raws := [next(reader, None) for reader in readers]):
            texts = []
            for name, raw in zip(names, raws, strict=True):
                text, damaged = decode_line(raw or b"")
                replaced[name] += damaged
                texts.append(text)
            yield _request(input_format, texts, Request)
            count += 1
        _check_ends(names, readers, raws, count)


def _request(input_format: InputFormat, texts: list[str], request: Any) -> Line:
    """Return a line with its prefix and terms; `texts` has its text in each file."""
    source, *columns = texts[0].split("\t") if input_format.prefix_column or input_format.terms_columns else [texts[0]]
    others = iter(texts[1:])
    inputs: dict[str, Any] = {}
    if input_format.prefix_file:
        inputs["prefix"] = next(others)
    elif input_format.prefix_column and columns:
        inputs["prefix"] = columns.pop(0) if input_format.terms_columns else "\t".join(columns)
    if input_format.terms_file:
        inputs["terms"] = next(others).split("\t")
    elif input_format.terms_columns and columns:
        inputs["terms"] = columns
    line: Line = request(source, inputs) if inputs else source
    return line


def _check_ends(names: list[str], readers: list[Iterator[bytes]], raws: list[bytes | None], count: int) -> None:
    """Raise DataError unless all files ended at the same line. `raws` are the next lines after `count` lines; None: the file ended."""
    if all(raw is None for raw in raws):
        return
    from ..lines import decode_line

    counts = [
        count if raw is None else count + 1 + sum(1 for _ in reader) for raw, reader in zip(raws, readers, strict=True)
    ]
    longer = next(index for index, raw in enumerate(raws) if raw is not None)
    text = decode_line(raws[longer] or b"")[0]
    raise DataError(
        f"{', '.join(f'{name!r} has {_counted(number)}' for name, number in zip(names, counts, strict=True))}: they are not line by line parallel. "
        f"They part at line {count + 1:,}, where {names[longer]!r} reads {text[:60] + '…' * (len(text) > 60)!r}. (A line ends at \\n only.)"
    )


def _counted(lines: int) -> str:
    return f"{lines:,} line{'s' * (lines != 1)}"
