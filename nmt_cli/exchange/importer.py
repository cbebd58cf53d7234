"""The interface of an importer: a model of another toolkit becomes a model folder.

    SOURCE ──▶ SourceFiles ──▶ Importer.recognizes ──▶ read ──▶ ForeignModel ──▶ importing.py

An importer is one file with an `Importer`, and one line in `registry.IMPORTERS`. Arrays are NumPy's, are read one at a
time (`LazyArray`), and nothing is unpickled.

    V vocabulary   D d_model
"""

from __future__ import annotations

import errno
import lzma
import re
import shlex
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from ..errors import ModelError, shown, shown_name, write_failed
from ..recipe import no_language
from ..storage.files import read_bounded
from ..text.compression import Damaged, Unpacked
from ..text.languages import find, languages_in, single
from .exporter import Reader

Array = npt.NDArray[Any]
FP32 = np.dtype(np.float32)
FILES = (".npz", ".bin", ".safetensors", ".json", ".pt", ".ckpt", ".pkl", ".onnx", ".gguf")
"""Endings of files that stand for their folder, some of them to be refused by name."""
LARGEST = 2**26
"""Bytes of the largest file that is read as a whole: all but the weights."""
TAR = re.compile(r"\.(tgz|tar(\.(gz|xz|bz2|zst))?)$")
"""The end of the name of a tar."""
COMPRESSED = re.compile(r"(?<=\.(?:bin|npz|spm|yml))\.(?:gz|zst)$")
"""The end of the name of a compressed file, which counts as if it were not compressed."""
MOST_FILES = 10_000
"""Largest number of files in an archive."""
POINTER = 1024
"""Bytes that a pointer of Git LFS has at most: what `git clone` writes without it."""
LARGEST_HEADER = 2**20
"""Bytes of the largest part of a tar that is not a file, such as a long name."""
DENSEST = 8
"""Weights that are packed more than so many times are refused: real ones hardly get smaller."""
UNREADABLE = (
    *(OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError),
    *(ValueError, MemoryError, Damaged, tarfile.TarError),
)
"""What is raised for a file, or an archive or a file of it, that cannot be read. RuntimeError: it is encrypted;
ValueError: its name is not UTF-8; MemoryError: the size of LZMA's dictionary, up to 4 GiB, which stands in the file."""


@dataclass(frozen=True)
class LazyArray:
    """An array of a file. Its form is known before its numbers are read; `np.asarray` reads them."""

    shape: tuple[int, ...]
    read: Callable[[], Array]
    """Return the numbers: the file's pages where they are stored as they are, else a new array. Nobody keeps them."""
    dtype: np.dtype[Any] = FP32
    integers: Integers | None = None
    """The integers of the file, of which the numbers are multiples."""

    def then(self, change: Callable[[Array], Array], shape: tuple[int, ...] | None = None) -> LazyArray:
        """Return what `change` makes of the array when it is read. `shape`: the new one, by default the same."""
        return LazyArray(self.shape if shape is None else shape, lambda: change(self.read()), self.dtype)

    @property
    def T(self) -> LazyArray:
        """The transposed array."""
        return self.then(np.transpose, self.shape[::-1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.read(), dtype)


class Integers(NamedTuple):
    """Integers of an array, and the value of the integer 1."""

    array: LazyArray
    scale: np.float32


class SourceFiles:
    """The files of a folder, a zip or a tar by their names, which have no folder: an archive may have some.

    `close` removes what is unpacked meanwhile.
    """

    def __init__(self, path: Path) -> None:
        """Raises ModelError if there is no folder, archive or file at `path`. A file stands for its folder."""
        self.path, self.archive, self.folder, self.scratch = path, None, "", ""
        self.given = ""
        """The name of the file that the user named, if it is not an archive."""
        self.repeated: set[str] = set()
        """The names that several files of an archive have, in different folders."""
        with self._reading(path.name):
            if path.is_file() and TAR.search(path.name):
                self.folder = tempfile.mkdtemp(prefix="nmt-import-")
                try:
                    self._list((one.name, one) for one in unpack_tar(path, Path(self.folder)))
                except BaseException:
                    self.close()
                    raise
                return
            if path.is_file() and path.suffix != ".npz" and zipfile.is_zipfile(path):
                self.archive = zipfile.ZipFile(path)
                _check_count(len(self.archive.infolist()))
                self._list((one.filename, _path(one.filename)) for one in self.archive.infolist() if not one.is_dir())
                return
            if path.is_file() and COMPRESSED.sub("", path.name).endswith(FILES):
                self.given, self.path = COMPRESSED.sub("", path.name), path.parent
            elif not path.is_dir():
                raise ModelError(_no_source(path))
            entries = _entries(self.path)
            if len(entries) == 1 and entries[0].is_dir():  # a folder around it, as unpacking makes
                self.path, entries = entries[0], _entries(entries[0])
            self._list((entry.name, PurePosixPath(entry.name)) for entry in entries if not entry.is_dir())

    def _list(self, paths: Iterable[tuple[str, PurePosixPath]]) -> None:
        """Take the files of a folder or an archive: the name of each, and its path without backslashes."""
        kept = sorted((name, path) for name, path in paths if not _is_of_a_mac(path))
        self.members = {COMPRESSED.sub("", path.name): name for name, path in reversed(kept)}
        counts = Counter(path.name for _, path in kept)
        self.repeated = {name for name, count in counts.items() if count > 1}

    @property
    def place(self) -> Path:
        """The folder with the files, if they are not in a zip: that of a tar is in $TMPDIR."""
        return Path(self.folder or self.path)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Raise what is raised for a file that cannot be read or unpacked as a ModelError that names it."""
        try:
            yield
        except UNREADABLE as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise write_failed(error, Path(tempfile.gettempdir()), "the unpacked model", ModelError) from None
            reason = getattr(error, "strerror", None) or error
            raise ModelError(
                f"cannot read {shown_name(name)} of {str(self.path)!r}: {shown_name(str(reason))}."
            ) from None

    @property
    def names(self) -> list[str]:
        """The names of all files."""
        return sorted(self.members)

    def ending(self, *endings: str) -> list[str]:
        """Return the names that end in one of `endings`."""
        return [name for name in self.names if name.endswith(endings)]

    def _member(self, name: str) -> str:
        """Return the name of a file in its folder or zip. Raises ModelError if it is missing, or a pipe or such."""
        if name not in self.members:
            raise ModelError(f"{str(self.path)!r} lacks {shown_name(name)}: put all files of the model together.")
        if name in self.repeated:
            raise ModelError(
                f"{str(self.path)!r} has several files called {shown_name(name)}: name an unpacked folder."
            )
        path = self.place / self.members[name]
        if not self.archive and not path.is_file():
            raise ModelError(f"{shown_name(name)} of {str(self.path)!r} is no plain file.")
        with self._reading(name):
            small = not self.archive and path.stat().st_size < POINTER
            if small and path.read_bytes().startswith(b"version https://git-lfs"):
                raise ModelError(
                    f"{shown_name(name)} of {str(self.path)!r} is a pointer of Git LFS: git lfs pull fetches it."
                )
        return self.members[name]

    def read(self, name: str, most: int = LARGEST) -> bytes:
        """Return the content of a file, which is not the weights.

        Raises ModelError if it is missing, cannot be read, or has more than `most` bytes.
        """
        member = self._member(name)
        with self._reading(name):
            if not self.archive or COMPRESSED.search(member):
                return read_bounded(self.unpacked(name), most)
            if (size := self.archive.getinfo(member).file_size) > most:
                raise OSError(errno.EFBIG, f"it has {size:,} bytes, expected at most {most:,}")
            return self.archive.read(member)

    def unpacked(self, name: str) -> Path:
        """Return the path of a file. One of a zip, or a compressed one, is unpacked to $TMPDIR until `close`.

        Raises ModelError if it is missing or cannot be read.
        """
        member = self._member(name)
        if not self.archive and not COMPRESSED.search(member):
            return self.place / member
        with self._reading(name):
            self.scratch = self.scratch or tempfile.mkdtemp(prefix="nmt-import-")
            with self._unpacking(member) as content, Path(self.scratch, name).open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
        return Path(self.scratch, name)

    @contextmanager
    def _unpacking(self, member: str) -> Iterator[IO[bytes]]:
        """Open a file of a zip, or a compressed one. Raises one of UNREADABLE."""
        path = self.path if self.archive else self.place / member
        if self.archive:
            check_density(self.archive.getinfo(member).file_size, path)
        with self.archive.open(member) if self.archive else path.open("rb") as file:
            yield cast(IO[bytes], _Unpacked(path, cast(BinaryIO, file))) if COMPRESSED.search(member) else file

    def close(self) -> None:
        """Remove what was unpacked."""
        for folder in filter(None, (self.folder, self.scratch)):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def languages(self) -> tuple[str, str]:
        """The codes in the name of the folder or the zip, or of a folder around it; "" where there are none."""
        parts = [TAR.sub("", self.path.name).removesuffix(".zip"), *self.path.absolute().parent.parts[:-3:-1]]
        return next((codes for codes in map(languages_in, parts) if any(codes)), ("", ""))

    def about(self, name: str) -> str:
        """Return a text that the new model may repeat, "" if there is none. Raises ModelError.

        A link that leads out of the folder counts as none, but for the cache of Hugging Face, whose files are links.
        """
        if not self.archive and name in self.members:
            folder, path = self.place.resolve(), (self.place / name).resolve()
            if path.parent not in (folder, folder.parent.parent / "blobs"):
                return ""
        return self.text(name)

    def text(self, name: str, most: int = LARGEST) -> str:
        """Return a text file of at most `most` bytes, "" if there is none. Raises ModelError."""
        return self.read(name, most).decode("utf-8", "replace") if name in self.members else ""


def _no_source(path: Path) -> str:

    address = re.sub(r"^(https?):/+", r"\1://", str(path))
    hub = re.fullmatch(r"(?:https://huggingface\.co/)?(\w[\w.-]*/(\w[\w.-]*))(?:/tree/main)?", address)
    command = f"hf download {hub[1]} --local-dir {hub[2]}" if hub else f"curl -LO {shlex.quote(address)}"
    if address != str(path):
        return f"nothing is downloaded: fetch the model first, as with {command}, then import what that has written."
    what = "nothing" if not path.exists() else "another or a damaged file" if path.is_file() else "a pipe or a device"
    return (
        f"there is {what} at {str(path)!r}: expected a folder, a zip, a tar or a file of a model "
        f"({', '.join(FILES[:3])})."
    ) + (f" If it is a name on Hugging Face, fetch it first: {command}" if hub and what == "nothing" else "")


def _path(name: str) -> PurePosixPath:
    """Return the path of a file in an archive: some zips have backslashes."""
    return PurePosixPath(name.replace("\\", "/"))


def _entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if not _is_of_a_mac(PurePosixPath(entry.name))]


def _is_of_a_mac(path: PurePosixPath) -> bool:
    """Return whether a file is one of those that a Mac adds to others."""
    return path.name.startswith("._") or path.name == ".DS_Store" or "__MACOSX" in path.parts


def check_density(size: int, archive: Path) -> None:
    """Raise ValueError if `size` bytes, which may be any number, are packed more densely than weights can be."""
    packed = archive.stat().st_size
    if size > DENSEST * packed + LARGEST:
        raise ValueError(f"it unpacks from {packed:,} to {size:,} bytes, which no weights do")


def _check_count(files: int) -> None:
    if files > MOST_FILES:
        raise ValueError(f"it holds {files:,} files, expected at most {MOST_FILES:,}")


class _Header(tarfile.TarInfo):
    """A header of a tar. tarfile takes a damaged one for the end, and reads one of any size as a whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            one = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf and not any(buf):
                raise  # the end
            raise tarfile.ReadError(f"it is not a tar, or a damaged or cut one ({error})") from None
        if not one.isreg() and one.size > LARGEST_HEADER:
            raise tarfile.ReadError(f"it has a name of {one.size:,} bytes, expected at most {LARGEST_HEADER:,}")
        return one


class _Unpacked:
    """The content of a file, decompressed, up to the size that weights can have."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.inner, self.size = path, Unpacked(file.read), 0

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes. Raises ValueError, Damaged and OSError."""
        piece = self.inner.read(size)
        self.size += len(piece)
        check_density(self.size, self.path)
        return piece


def unpack_tar(path: Path, folder: Path) -> list[PurePosixPath]:
    """Write the files of a tar, compressed or not, into `folder` without their own folders; return their paths.

    Nothing is a link. Raises one of UNREADABLE.
    """
    paths = list[PurePosixPath]()
    with path.open("rb") as file:
        content = _Unpacked(path, file)
        with tarfile.open(fileobj=cast(BinaryIO, content), mode="r|", tarinfo=_Header, bufsize=1 << 18) as archive:
            for entry in archive:
                place = _path(entry.name)
                if entry.isdir() or _is_of_a_mac(place):
                    continue
                _check_count(len(paths) + 1)
                check_density(content.size + entry.size, path)
                stream = archive.extractfile(entry) if entry.isreg() and not entry.issparse() else None
                if not stream:
                    raise ValueError(f"{entry.name} is not a plain file: unpack it yourself, and import the folder")
                with stream, (folder / place.name).open("wb") as written:
                    shutil.copyfileobj(stream, written, 1 << 20)
                paths.append(place)
        while content.read(1 << 18):
            pass  # to the end, where a compressed file has its checksum
    return paths


@dataclass(frozen=True)
class ImportOptions:
    """What the user says about the model; "" or 0: what its files say."""

    source_language: str = ""
    target_language: str = ""
    positions: str = ""
    """The positions with which a model of Hugging Face is read: "marian" or "huggingface"."""
    safe_length: int = 0
    skip_step: Sequence[str] = ()
    """Programs of preprocess.sh that are left out."""
    license: str = ""
    """The licence, for files that name none."""
    published: str = ""
    """The address that the files were fetched from, by `nmt models get`, and the SHA-256 of the weights."""


@dataclass(frozen=True)
class ForeignModel:
    """A model of another toolkit, converted."""

    toolkit: str
    recipe: dict[str, dict[str, Any]]
    weights: Mapping[str, LazyArray]
    """In fp32."""
    vocabularies: tuple[int, int]
    tokenizers: Mapping[str, bytes]
    reader: Reader
    """The model as the toolkit defines it, computed from its own files. Its ids are those of the new model."""
    tags: Sequence[str] = ()
    """The codes of the languages into which a model with tags translates."""
    license: str = ""
    remarks: list[str] = field(default_factory=list)
    integers: Mapping[str, LazyArray] = field(default_factory=dict)
    """The matrices of a model in int8 that are the file's own integers, and their scales, as `quantize_weights`
    returns them: the model folder is in int8."""


@dataclass(frozen=True)
class Importer:
    """An entry of `registry.IMPORTERS`."""

    recognizes: Callable[[SourceFiles], bool]
    read: Callable[[SourceFiles, ImportOptions], ForeignModel]
    """Raises ModelError for what it cannot convert, UsageError for options that do not fit."""
    members: Callable[[SourceFiles], list[str]] = lambda files: []
    """Return the names of an ensemble's models, of which `read` reads the one that is `given`; none: it is one model.
    Raises ModelError for an ensemble that nmt cannot have."""


def known_section(
    where: str,
    config: Mapping[str, Any],
    sizes: Mapping[str, str],
    activation: str,
    activations: Mapping[str, str],
    expected: Mapping[str, tuple[Any, ...]],
    unused: re.Pattern[str],
) -> dict[str, Any]:
    """Return the keys of [model] for another toolkit's `sizes`, by our names, and its `activation`, one of
    `activations`.

    Raises ModelError for an option whose value is not `expected`, or that is neither known nor `unused`.
    """
    allowed = {activation: tuple(activations), **expected}
    for key, value in {**config, activation: config.get(activation)}.items():
        if key in allowed and value not in allowed[key]:
            what = " or ".join(map(shown, allowed[key]))
            raise ModelError(f"{where} has {key} = {shown(value)}, which nmt does not have: expected {what}.")
        if key not in allowed and key not in sizes.values() and not unused.fullmatch(key):
            raise ModelError(f"{where} has an option that nmt does not know: {shown_name(key)} = {shown(value)}.")
    section: dict[str, Any] = {"activation": activations[config[activation]]}
    for ours, theirs in sizes.items():
        try:
            section[ours] = int(config[theirs])
        except (KeyError, TypeError, ValueError):
            raise ModelError(f"{where} has {theirs} = {shown(config.get(theirs))}, expected a number.") from None
    return section


def languages(options: ImportOptions, found: tuple[str, str], tags: Sequence[str] = ()) -> tuple[str, str]:
    """Return the codes of source and target. `found` are those in the files, which get two letters where they can.

    A model of several target languages has "mul" unless one is chosen. Raises ModelError without a code of each.
    """
    source, target = options.source_language or single(found[0]), options.target_language or single(found[1])
    if tags:
        target = tags[0] if len(tags) == 1 else find(target, tags) or "mul"
    for side, code in (("source", source), ("target", target)):
        if not code:
            raise ModelError(f"the files do not say the {side} language: give --{side}-language CODE, such as en.")
        if reason := no_language(code):
            raise ModelError(f"the {side} language is {reason} Give --{side}-language CODE.")
    return source, target


def rows(matrix: Array, order: Array) -> Array:
    """Return the rows `order` (V,) of a matrix or vector of another vocabulary; those of -1 are zero."""
    taken = matrix[np.maximum(order, 0)]
    taken[order < 0] = 0
    return np.ascontiguousarray(taken, np.int8 if taken.dtype == np.int8 else np.float32)
