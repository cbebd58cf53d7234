r"""Reading lines of text, by the same rules in every command.

A line ends only at `\n`: U+2028, U+0085, `\r`, `\v` and `\f` are characters of a line. One `\r` before the `\n` is dropped,
and the last line needs no `\n`. A UTF-8 byte-order mark at the head of a file is dropped. Invalid UTF-8 is replaced by U+FFFD
and counted; it is not an error. UTF-16 and UTF-32 are errors that name the encoding (`encodings`). Plain, gzip, xz and bzip2
files are recognised by their first bytes. Text is streamed: each line is returned as soon as it has arrived, on pipes too.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import select
import stat
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from .encodings import SAMPLE, UTF8_MARK, marked_encoding, refused, wide_encoding
from .errors import DataError, differing

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER = 1 << 18
MAGIC = {
    ".gz": re.compile(rb"\x1f\x8b"),
    ".xz": re.compile(rb"\xfd7zXZ\x00"),
    ".bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),  # "BZh" alone could begin a text
}
OPENERS = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile, ".bz2": bz2.BZ2File}


class _Readable(io.RawIOBase):
    """A file whose reading errors are DataErrors with the name of the file, whichever library raises them."""

    def __init__(self, inner: io.BufferedIOBase | io.RawIOBase, outer: BinaryIO, name: str, shown: str) -> None:
        """`inner` decompresses `outer`, or is the same file. `shown` is the name in messages."""
        self._inner, self._outer, self.name, self.shown = inner, outer, name, shown
        self._read = (
            inner.read1 if isinstance(inner, io.BufferedIOBase) else inner.read
        )  # returns buffered data, else does one read: lines of a pipe are not held back

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        try:
            while (data := self._read(len(view))) is None:  # a pipe that another program made non-blocking
                select.select([self._outer], [], [])
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise DataError(f"{self.shown} is a damaged or cut archive: {error}. Fetch or compress it again.") from None
        except OSError as error:
            raise DataError(f"cannot read {self.shown}: {error.strerror or error}. Is it damaged?") from None
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
            self._outer.close()
        super().close()


def open_binary(path: str | Path) -> BinaryIO:
    """Open a plain, .gz, .xz or .bz2 file for reading. Raises DataError when it is opened and while it is read."""
    path = Path(path)
    try:
        file = open(path, "rb")  # noqa: SIM115  (handed on)
    except IsADirectoryError:
        raise DataError(f"cannot read {str(path)!r}: it is a folder, expected a file.") from None
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except ValueError:
        raise DataError(f"cannot read {str(path)!r}: a file name holds no NUL character.") from None
    head = file.peek(16)[:16]
    kind = next((suffix for suffix, magic in MAGIC.items() if magic.match(head)), None)
    if kind is None and path.suffix in MAGIC:
        file.close()
        raise DataError(
            f"{str(path)!r} is named {path.suffix} but is no such archive; it begins with {head!r}. Rename it, or compress it again."
        )
    inner = OPENERS[kind](filename=file) if kind in (".xz", ".bz2") else gzip.GzipFile(fileobj=file) if kind else file
    return io.BufferedReader(_Readable(cast(io.BufferedIOBase, inner), file, str(path), repr(str(path))), BUFFER)


def open_descriptor(descriptor: int, name: str) -> BinaryIO:
    """Return a stream that reads an open descriptor and closes it; `name` is used in messages. Raises DataError for a folder."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"cannot read {name}: it is a folder, expected a file or a pipe.")
    file = os.fdopen(descriptor, "rb", buffering=0)
    return io.BufferedReader(_Readable(file, cast(BinaryIO, file), name, name), BUFFER)


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
        raise DataError(refused(_name(stream), encoding))


def _name(stream: BinaryIO) -> str:
    """Return the name of the stream in messages."""
    raw = getattr(stream, "raw", None)
    if isinstance(raw, _Readable):
        return raw.shown
    name = getattr(stream, "name", None)
    return repr(name) if isinstance(name, str) else "the input"


def decode_line(raw: bytes) -> tuple[str, bool]:
    """Return the text of a line, and whether invalid UTF-8 was replaced in it."""
    try:
        return raw.decode("utf-8"), False
    except UnicodeDecodeError:
        return raw.decode("utf-8", errors="replace"), True


def read_parallel(
    source_paths: Sequence[str | Path], target_paths: Sequence[str | Path], replaced: Counter[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines of several files per side, file by file and in order.

    `replaced` counts, for each file, the lines in which invalid UTF-8 was replaced. Raises DataError if two files differ in
    their number of lines.
    """
    if len(source_paths) != len(target_paths):
        raise DataError(
            f"{len(source_paths)} source file(s) but {len(target_paths)} target file(s): they are read in pairs."
        )
    counts: Counter[str] = Counter() if replaced is None else replaced
    for source, target in zip(source_paths, target_paths, strict=True):
        with open_binary(source) as source_stream, open_binary(target) as target_stream:
            yield from read_pairs(source, source_stream, target, target_stream, counts)


def read_pairs(
    source: str | Path,
    source_stream: BinaryIO,
    target: str | Path,
    target_stream: BinaryIO,
    replaced: Counter[str],
    any_bytes: bool = False,
) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines of two open streams, as `read_parallel` does; `source` and `target` are their names. For `any_bytes` see `iter_lines`."""
    source_lines, target_lines = iter_lines(source_stream, any_bytes), iter_lines(target_stream, any_bytes)
    pairs = 0
    while True:
        first, second = next(source_lines, None), next(target_lines, None)
        if first is None or second is None:
            break
        source_text, source_bad = decode_line(first)
        target_text, target_bad = decode_line(second)
        if source_bad or target_bad:
            replaced.update([str(source)] * source_bad + [str(target)] * target_bad)
        yield source_text, target_text
        pairs += 1
    if first is None and second is None:
        return
    raw, rest, longer, shorter = (
        (second, target_lines, target, source) if first is None else (first, source_lines, source, target)
    )
    total = pairs + 1 + sum(1 for _ in rest)
    text = decode_line(raw or b"")[0]
    counted = {str(longer): total, str(shorter): pairs}
    raise DataError(
        f"{str(source)!r} has {_lines(counted[str(source)])}, {str(target)!r} {_lines(counted[str(target)])}: they are not line by line parallel. "
        f"They part at line {pairs + 1:,}: {str(shorter)!r} has ended where {str(longer)!r} reads {text[:60] + '…' * (len(text) > 60)!r}. "
        "(A line ends at \\n only.)"
    )


def _lines(count: int) -> str:
    return f"{count:,} line{'s' * (count != 1)}"


@dataclass
class Changed:
    """The lines that normalisation changes, other than runs of spaces: their number, and the first of them, before and after."""

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
