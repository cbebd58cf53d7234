"""Reads archives as streams.

    contents(path), a check ──▶ with open_member(path, "dir/file.de") as stream: …

An archive is .tar (also .tgz, .tar.xz, .tar.bz2, .tar.zst), .zip, or else a single file, compressed or not.
`contents` reads an archive completely, so its own checksums are checked too. It refuses an archive with far more data
than text of its size can have. `open_member` returns one file as a stream; a file that is compressed in the archive is
decompressed. Two members can be read at the same time, because each `open_member` reads the archive by itself.

No member is ever written to the disk under its name, so names and links that lead out of the archive's folder, and
devices, have no effect: only plain files are listed and read.
"""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from ..errors import DataError, reading
from ..text.compression import Damaged, Unpacked

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

EXPANSION, SLACK = 200, 1 << 26
"""An archive may hold EXPANSION times its own size and SLACK bytes more: text compresses four to ten times."""
BUFFER = 1 << 18
ZIP, TAR = ".zip", (".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst")
DAMAGE = (Damaged, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""The exceptions that the libraries raise for an archive that is cut, damaged, encrypted or of an unknown kind."""


class _Member(io.RawIOBase):
    """A stream of at most `most` bytes, decompressed. Its errors are raised as DataErrors that name it."""

    def __init__(self, inner: IO[bytes], name: str, most: int) -> None:
        self._read, self.name, self.shown, self._remaining = Unpacked(inner.read).read, name, repr(name), most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        with _naming(self.name):
            data = self._read(len(view))
        self._remaining -= len(data)
        if self._remaining < 0:
            raise _swollen(self.name)
        view[: len(data)] = data
        return len(data)


def contents(path: Path) -> dict[str, int]:
    """Return the plain files of an archive with their sizes in bytes. A single file has the name "".

    Raises DataError for an archive that is cut or damaged, or has more content than text can have.
    """
    if path.suffix == ZIP:
        sizes = _contents_of_zip(path)
    elif path.name.endswith(TAR):
        sizes = _contents_of_tar(path)
    else:
        return {"": path.stat().st_size}
    if sum(sizes.values()) > _most(path.stat().st_size):
        raise _swollen(str(path))
    return sizes


def check_holds(path: Path, sizes: dict[str, int], names: list[str]) -> None:
    """Raise DataError if any of `names` is not among the files `sizes` (see `contents`)."""
    if missing := sorted(set(names) - sizes.keys()):
        raise DataError(
            f"{str(path)!r} does not hold {', '.join(map(repr, missing))}; it has {len(sizes):,} files. Is it the "
            "archive that it should be? Remove it to have it fetched again."
        )


@contextmanager
def open_member(path: Path, name: str) -> Iterator[BinaryIO]:
    """Provide a file of an archive as a stream, decompressed.

    `name` is one of `contents`. Raises DataError.
    """
    called = f"{path}:{name}" if name else str(path)
    with (
        _opened(path, name) as (stream, size),
        io.BufferedReader(_Member(stream, called, _most(size)), BUFFER) as unpacked,
    ):
        yield unpacked


@contextmanager
def _opened(path: Path, name: str) -> Iterator[tuple[IO[bytes], int]]:
    """Provide the stream of a member, not decompressed, and its size."""
    if not name:
        with reading(path):
            file = path.open("rb")
        with file:
            yield file, path.stat().st_size
    elif path.suffix == ZIP:
        with zipfile.ZipFile(path) as archive:
            information = next(member for member in archive.infolist() if _plain(member.filename) == name)
            with _naming(f"{path}:{name}"):
                packed = archive.open(information)
            with packed:
                yield packed, information.file_size
    else:
        with open_member(path, "") as unpacked, tarfile.open(fileobj=unpacked, mode="r|") as archive:
            with _naming(str(path)):
                found = next(member for member in archive if _plain(member.name) == name and member.isfile())
                stream = archive.extractfile(found)
            assert stream is not None  # a plain file
            with stream:
                yield stream, found.size


def _contents_of_tar(path: Path) -> dict[str, int]:
    with open_member(path, "") as unpacked:
        with _naming(str(path)), tarfile.open(fileobj=unpacked, mode="r|") as archive:
            sizes = {_plain(member.name): member.size for member in archive if member.isfile()}
        while unpacked.read(BUFFER):
            pass  # read to the end, where a compressed file has its checksum
    return sizes


def _contents_of_zip(path: Path) -> dict[str, int]:
    with _naming(str(path)), zipfile.ZipFile(path) as archive:
        return {
            _plain(member.filename): member.file_size
            for member in archive.infolist()
            if not (member.is_dir() or stat.S_ISLNK(member.external_attr >> 16))
        }


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _most(size: int) -> int:
    return EXPANSION * size + SLACK


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Raise an exception of the block as a DataError with the name of the archive, or of the file in it."""
    try:
        yield
    except (*DAMAGE, OSError) as error:
        raise DataError(f"{name!r} is a damaged or cut archive: {error}. Remove it to have it fetched again.") from None


def _swollen(name: str) -> DataError:
    return DataError(
        f"{name!r} is refused: it would unpack to more than {EXPANSION} times its size, which text does "
        "not. Nothing was unpacked."
    )
