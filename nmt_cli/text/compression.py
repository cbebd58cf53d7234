"""Compressed text: gzip, xz, bzip2 and Zstandard, read strictly and written by the name of the file.

    Unpacked(read).read(size)                       # the content decides whether it is compressed, not the name
    with compressing(stream, "out.gz") as packed    # the name decides, because there is no content yet

A compressed file consists of one or several streams, one after another: `cat a.gz b.gz`, pbzip2 and pixz write several.
All of them are read. What is no stream after a stream is an error, except for the padding that the format allows.
Python's own file classes ignore it, and with it a damaged stream. A file that is cut between two streams looks
complete.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from backports import zstd

PIECE = 1 << 16
"""Number of compressed bytes that are read at a time."""
GZIP_LEVEL = 4
"""Compression level of gzip: takes half the time of the usual level 6, and gives 5 % more bytes."""
WRITTEN = 1 << 20
"""Number of bytes that are compressed at a time."""


class Damaged(Exception):
    """Compressed data that is cut, damaged, or followed by other data.

    The text says which stream, and at which byte.
    """


class _Gzip:
    """zlib's decompressor. As the others do, it keeps input that it has not used for lack of room."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(16 + zlib.MAX_WBITS)  # checks header, checksum and length

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class Compression(NamedTuple):
    """A format: a stream's first bytes, a multiple of the zero bytes after one (0: none), how to read and write."""

    name: str
    magic: tuple[bytes, ...]
    padding: int
    decompressor: Callable[[], Any]  # of one stream, with the interface of bz2.BZ2Decompressor
    writer: Callable[[BinaryIO], Any]  # a binary stream


FORMATS = {
    ".gz": Compression(
        "gzip",
        (b"\x1f\x8b\x08",),
        1,
        _Gzip,
        # without time and name: the same text gives the same bytes
        lambda stream: gzip.GzipFile("", "wb", GZIP_LEVEL, stream, mtime=0),
    ),
    ".xz": Compression(
        "xz",
        (b"\xfd7zXZ\x00",),
        4,
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
        lambda stream: lzma.LZMAFile(stream, "wb"),  # noqa: SIM115  (handed on)
    ),
    ".bz2": Compression(
        "bzip2",
        # "BZh" alone could begin a text
        tuple(b"BZh%d" % level + block for level in range(1, 10) for block in (b"1AY&SY", b"\x17rE8P\x90")),
        0,
        bz2.BZ2Decompressor,
        lambda stream: bz2.BZ2File(stream, "wb"),
    ),
    ".zst": Compression(
        "Zstandard",
        (b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))),  # skippable frames
        0,
        # windows of every size that zstd --long writes
        lambda: zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 31}),
        lambda stream: zstd.ZstdFile(stream, "wb", options={zstd.CompressionParameter.checksum_flag: 1}),
    ),
}
"""The formats by the endings of their files' names."""

ARCHIVES = {
    "tar": (257, (b"ustar\x0000", b"ustar  \x00"), "tar -xf FILE"),
    "zip": (0, (b"PK\x03\x04", b"PK\x05\x06"), "unzip FILE"),
    "7z": (0, (b"7z\xbc\xaf\x27\x1c",), "7z x FILE"),
    "RAR": (0, (b"Rar!\x1a\x07",), "unrar x FILE"),
}
"""Archives of several files, by the bytes at an offset, and the command that unpacks them."""
ARCHIVE_HEAD = 265
"""Number of first bytes by which every archive is recognised."""


def archive_of(head: bytes) -> tuple[str, str]:
    """Return the kind of archive that begins with `head` and the command that unpacks it, else two empty texts."""
    kinds = ((name, command) for name, (at, magic, command) in ARCHIVES.items() if head.startswith(magic, at))
    return next(kinds, ("", ""))


class Unpacked:
    """Reads a plain or compressed file as a stream, a piece in memory at a time; what arrived is not held back."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """`read(size)` returns at most `size` bytes, at least one, or b"" at the end."""
        self._source, self._input, self._ended, self._position = read, b"", False, 0
        self.format: Compression | None = None  # of the streams read so far; None: plain
        self._decompressor: Any = None
        self._streams, self._begun, self._full = 0, 0, False

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, which is more than 0, or b"" at the end.

        Raises Damaged and the errors of the source.
        """
        if not self._streams:
            self._begin()
        if self.format is None and (self._input or self._fetch(size)):
            piece, self._input = self._input[:size], self._input[size:]
            return piece
        while self._decompressor:
            if self._decompressor.eof:
                self._input = self._decompressor.unused_data
                self._begin()
                continue
            if not self._input and not self._full and not self._fetch():
                raise Damaged(f"it ends within {self._stream()}")
            try:
                data: bytes = self._decompressor.decompress(self._input, size)
            except (OSError, zlib.error, lzma.LZMAError, zstd.ZstdError) as error:
                raise Damaged(f"{self._stream()} is damaged ({error})") from None
            self._input, self._full = b"", len(data) == size  # there may be more without further input
            if data:
                return data
        return b""

    def _begin(self) -> None:
        """Begin the next stream, if there is one; at the head of the file, recognise the format. Raises Damaged."""
        zeros = 0
        while self.format and self.format.padding and (self._input or self._fetch()):
            kept = self._input.lstrip(b"\0")
            zeros, self._input = zeros + len(self._input) - len(kept), kept
            if kept:
                break
        formats = [self.format] if self.format else list(FORMATS.values())
        magic = [first for format in formats for first in format.magic]
        while any(len(self._input) < len(first) and first.startswith(self._input) for first in magic) and self._fetch():
            pass
        found = next((format for format in formats if self._input.startswith(format.magic)), None)
        self._begun, self._streams = self._position - len(self._input), self._streams + 1
        if self.format and self._input and not found:
            raise Damaged(f"what follows from byte {self._begun:,} on is no {self.format.name} data")
        if self.format and zeros % (self.format.padding or 1):
            raise Damaged(f"{zeros:,} zero bytes stand before byte {self._begun:,}: expected a multiple of four")
        self.format = self.format or found
        self._decompressor = found.decompressor() if found else None

    def _fetch(self, size: int = PIECE) -> bool:
        """Add a piece of the source to the input. Return False at the end."""
        piece = b"" if self._ended else self._source(size)
        self._input, self._position, self._ended = self._input + piece, self._position + len(piece), not piece
        return bool(piece)

    def _stream(self) -> str:
        return f"stream {self._streams:,}, which begins at byte {self._begun:,}"


@contextmanager
def compressing(stream: BinaryIO, name: str | Path) -> Iterator[BinaryIO]:
    """Provide a stream that compresses into `stream`, in the format of the ending of `name`; else `stream` itself."""
    format = FORMATS.get(Path(name).suffix)
    if format is None:
        yield stream
        return
    with format.writer(stream) as packed, io.BufferedWriter(packed, WRITTEN) as buffered:
        yield cast(BinaryIO, buffered)
