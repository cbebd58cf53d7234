r"""Reading lines of text, by the same rules in every command.

A line ends only at `\n`: U+2028, U+0085, `\r`, `\v` and `\f` are characters of a line. One `\r` before the `\n` is
dropped, and the last line needs no `\n`. A UTF-8 byte-order mark at the head of a file is dropped. Invalid UTF-8 is
replaced by U+FFFD and counted; it is not an error. UTF-16 and UTF-32 are errors that name the encoding (`encodings`).
Compressed files are recognised by their first bytes (`compression`). Text is streamed: each line is returned as soon as
it has arrived, on pipes too.
"""

from __future__ import annotations

import io
import os
import re
import select
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import DataError, differing, reading
from .compression import ARCHIVE_HEAD, FORMATS, Damaged, Unpacked, archive_of
from .encodings import SAMPLE, UTF8_MARK, marked_encoding, refused, wide_encoding

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER = 1 << 18
NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters that text does not have."""


class _Readable(io.RawIOBase):
    """A plain or compressed file.

    Its reading errors are DataErrors with the name of the file, whichever library raises them.
    """

    def __init__(self, file: io.FileIO, shown: str, suffix: str = "") -> None:
        """`shown` is the name in messages. `suffix`: the ending of the name."""
        self._file, self.shown, self._suffix = file, shown, suffix
        self._head: bytes | None = b""
        self._unpacked = Unpacked(self._arrived)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        try:
            data = self._unpacked.read(len(view))
        except Damaged as error:
            raise DataError(f"{self.shown} is a damaged or cut archive: {error}. Fetch or compress it again.") from None
        except OSError as error:
            raise DataError(f"cannot read {self.shown}: {error.strerror or error}. Is it damaged?") from None
        if self._head is not None:
            self._check(data)
        view[: len(data)] = data
        return len(data)

    def _arrived(self, size: int) -> bytes:
        """Do one read of the file: lines of a pipe are not held back."""
        while (data := self._file.read(size)) is None:  # a pipe that another program made non-blocking
            select.select([self._file], [], [])
        return data

    def _check(self, data: bytes) -> None:
        """Raise DataError if what begins with `data` is an archive of several files, or compressed only by name."""
        head = (self._head or b"") + data
        kind, command = archive_of(head[:ARCHIVE_HEAD])
        if kind:
            raise DataError(
                f"{self.shown} is a {kind} archive: expected a text file. Unpack it, and give a file from it: {command}"
            )
        compressed = self._unpacked.format or self._suffix not in FORMATS
        if not compressed and (not head or (NO_TEXT.search(head) and not wide_encoding(head))):
            raise DataError(
                f"{self.shown} is named {self._suffix}, but is neither compressed nor text; it begins with "
                f"{head[:16]!r}. Fetch or compress it again."
            )
        self._head = head if len(head) < ARCHIVE_HEAD else None

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def open_binary(path: str | Path) -> BinaryIO:
    """Open a plain or compressed file for reading. Raises DataError when it is opened and while it is read."""
    path = Path(path)
    try:
        with reading(path):
            file = open(path, "rb", buffering=0)  # noqa: SIM115  (handed on)
    except ValueError:
        raise DataError(f"cannot read {str(path)!r}: a file name holds no NUL character.") from None
    return io.BufferedReader(_Readable(file, repr(str(path)), path.suffix), BUFFER)


def open_descriptor(descriptor: int, name: str) -> BinaryIO:
    """Return a stream that reads an open descriptor, as `open_binary` does a file, and closes it; `name` is used in
    messages.

    Raises DataError for a folder, and while it is read.
    """
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"cannot read {name}: it is a folder, expected a file or a pipe.")
    return io.BufferedReader(_Readable(os.fdopen(descriptor, "rb", buffering=0), name), BUFFER)


def iter_lines(stream: BinaryIO, any_bytes: bool = False) -> Iterator[bytes]:
    r"""Yield the lines of a stream without their ends, each as soon as it has arrived.

    Raises DataError for UTF-16 and UTF-32; with `any_bytes`, only if there are both a byte-order mark and zero bytes.
    """
    peek = getattr(stream, "peek", None)
    if peek:
        _refuse_wide(peek(SAMPLE), stream, any_bytes)
    first = True
    for line in stream:
        if first:
            _refuse_wide(line, stream, any_bytes)  # the first read of a pipe may have returned only one or two bytes
            line, first = line.removeprefix(UTF8_MARK), False
            if not line:
                continue  # a byte-order mark and nothing else
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        yield line


def _refuse_wide(head: bytes, stream: BinaryIO, any_bytes: bool) -> None:
    if any_bytes and not (marked_encoding(head) and 0 in head):
        return
    if encoding := wide_encoding(head):
        raise DataError(refused(getattr(getattr(stream, "raw", None), "shown", "the input"), encoding))


def decode_line(raw: bytes) -> tuple[str, bool]:
    """Return the text of a line, and whether invalid UTF-8 was replaced in it."""
    try:
        return raw.decode("utf-8"), False
    except UnicodeDecodeError:
        return raw.decode("utf-8", errors="replace"), True


def well_formed(text: str) -> str:
    """Return a text with U+FFFD for each surrogate that has no partner, which UTF-8 cannot write."""
    return text if text.isprintable() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_parallel(
    source_paths: Sequence[str | Path], target_paths: Sequence[str | Path], replaced: Counter[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines of several files per side, file by file and in order.

    `replaced` counts, for each file, the lines in which invalid UTF-8 was replaced. Raises DataError if two files
    differ in their number of lines.
    """
    if len(source_paths) != len(target_paths):
        raise DataError(
            f"{len(source_paths)} source file(s) but {len(target_paths)} target file(s): they are read in pairs."
        )
    counts: Counter[str] = Counter() if replaced is None else replaced
    for names in zip(map(str, source_paths), map(str, target_paths), strict=True):
        with open_binary(names[0]) as source, open_binary(names[1]) as target:
            yield from read_streams(names, (source, target), counts)


def read_streams(
    names: Sequence[str], streams: Sequence[BinaryIO], replaced: Counter[str], any_bytes: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Yield the lines of open streams together, as `read_parallel` does; for the rest see `decoded_lines`."""
    lines = (decoded_lines(stream, name, replaced, any_bytes) for name, stream in zip(names, streams, strict=True))
    return parallel(*zip(map(repr, names), lines, strict=True))


def decoded_lines(stream: BinaryIO, name: str, replaced: Counter[str], any_bytes: bool = False) -> Iterator[str]:
    """Yield the lines of a stream as text; `replaced` counts, under `name`, those with invalid UTF-8.

    For `any_bytes` see `iter_lines`.
    """
    for raw in iter_lines(stream, any_bytes):
        text, damaged = decode_line(raw)
        if damaged:
            replaced[name] += 1
        yield text


def parallel(*texts: tuple[str, Iterable[str]]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of several texts together, line by line. A text is its name in messages, and its lines.

    Raises DataError after the last line that all have, if one has more lines than another.
    """
    readers = [iter(lines) for _, lines in texts]
    for count, row in enumerate(zip_longest(*readers)):
        if None in row:
            raise _unequal([name for name, _ in texts], row, readers, count)
        yield row


def _unequal(names: Sequence[str], row: Sequence[str | None], rest: Sequence[Iterator[str]], count: int) -> DataError:
    """Return the error for texts that have `count` lines in common; `row`: their next lines, None after the end."""
    counts = [count if line is None else count + 1 + sum(1 for _ in more) for line, more in zip(row, rest, strict=True)]
    longer, line = next((name, line) for name, line in zip(names, row, strict=True) if line is not None)
    return DataError(
        f"{', '.join(f'{name} has {_lines(number)}' for name, number in zip(names, counts, strict=True))}: "
        f"they are not line by line parallel. They part at line {count + 1:,}, where {longer} reads "
        f"{line[:60] + '…' * (len(line) > 60)!r}. (A line ends at \\n only.)"
    )


def _lines(count: int) -> str:
    return f"{count:,} line{'s' * (count != 1)}"


@dataclass
class Changed:
    """The lines that normalisation changes, beside runs of spaces: how many, and the first one before and after."""

    lines: int = 0
    example: tuple[str, str] = ("", "")

    def add(self, before: str, after: str) -> None:
        """Count a line if it changes."""
        if before != after and (before := _one_spaced(before)) != (after := _one_spaced(after)):
            self.include(Changed(1, (before, after)))

    def described(self, side: str) -> str:
        """Return the number of lines of a side, source or target, and the part of the example that changes."""
        before, after = differing(*self.example)
        looks_equal = unicodedata.normalize("NFC", before) == unicodedata.normalize("NFC", after)
        shown = [ascii(text) if looks_equal else repr(text) for text in (before, after)]
        return f"{self.lines:,} {side} line{'s' * (self.lines != 1)}, such as {shown[0]}, now {shown[1]}"

    def include(self, other: Changed) -> None:
        """Add the lines of another part of the text."""
        self.lines, self.example = self.lines + other.lines, self.example if self.lines else other.example


def _one_spaced(text: str) -> str:
    return " ".join(word for word in text.split(" ") if word)
