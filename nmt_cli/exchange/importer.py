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
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError, shown, shown_name, write_failed
from ..recipe import no_language
from ..storage.files import read_bounded
from ..text.languages import find, languages_in, single
from .exporter import Reader

Array = npt.NDArray[Any]
FP32 = np.dtype(np.float32)
FILES = (".npz", ".bin", ".safetensors", ".json", ".pt", ".ckpt", ".pkl")
"""Endings of files that stand for their folder, some of them to be refused by name."""
LARGEST = 2**26
"""Bytes of the largest file that is read as a whole: all but the weights."""
MOST_FILES = 10_000
"""Largest number of files in a zip."""
DENSEST = 8
"""Weights that are packed more than so many times are refused: real ones hardly get smaller."""
UNREADABLE = (
    *(OSError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError),
    *(ValueError, MemoryError),
)
"""What is raised for a file, or a zip or a file of it, that cannot be read. RuntimeError: it is encrypted; ValueError:
its name is not UTF-8; MemoryError: the size of LZMA's dictionary, up to 4 GiB, which stands in the file."""


@dataclass(frozen=True)
class LazyArray:
    """An array of a file. Its form is known before its numbers are read; `np.asarray` reads them."""

    shape: tuple[int, ...]
    read: Callable[[], Array]
    """Return the numbers: the file's pages where they are stored as they are, else a new array. Nobody keeps them."""
    dtype: np.dtype[Any] = FP32

    def then(self, change: Callable[[Array], Array], shape: tuple[int, ...] | None = None) -> LazyArray:
        """Return what `change` makes of the array when it is read. `shape`: the new one, by default the same."""
        return LazyArray(self.shape if shape is None else shape, lambda: change(self.read()), self.dtype)

    @property
    def T(self) -> LazyArray:
        """The transposed array."""
        return self.then(np.transpose, self.shape[::-1])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.read(), dtype)


class SourceFiles:
    """The files of a folder or a zip by their names, which have no folder: a zip may have one around them."""

    def __init__(self, path: Path) -> None:
        """Raises ModelError if there is no folder, zip or file at `path`. A file stands for its folder."""
        self.path, self.archive, self.folder = path, None, ""
        self.given = ""
        """The name of the file that the user named, if it is not a zip."""
        self.repeated: set[str] = set()
        """The names that several files of a zip have, in different folders."""
        try:
            if path.is_file() and path.suffix != ".npz" and zipfile.is_zipfile(path):
                self.archive = zipfile.ZipFile(path)
                if (count := len(self.archive.infolist())) > MOST_FILES:
                    raise zipfile.BadZipFile(f"it holds {count:,} files, expected at most {MOST_FILES:,}")
                paths = {one.filename: _path(one.filename) for one in self.archive.infolist() if not one.is_dir()}
                names = [name for name, path in paths.items() if not _is_of_a_mac(path)]
                self.members = {paths[name].name: name for name in sorted(names, reverse=True)}
                counts = Counter(paths[name].name for name in names)
                self.repeated = {name for name, count in counts.items() if count > 1}
                return
            if path.is_file() and path.suffix in FILES:
                self.given, self.path = path.name, path.parent
            elif not path.is_dir():
                if (address := re.sub(r"^(https?):/+", r"\1://", str(path))) != str(path):
                    raise ModelError(
                        f"nothing is downloaded: fetch the model first, as with curl -LO {shlex.quote(address)}, then "
                        "import the file."
                    )
                what = "nothing" if not path.exists() else "another file" if path.is_file() else "a pipe or a device"
                raise ModelError(
                    f"there is no model at {str(path)!r}, but {what}: expected a folder, a zip or a file of a model "
                    f"({', '.join(FILES[:3])})."
                )
            entries = _entries(self.path)
            if len(entries) == 1 and entries[0].is_dir():  # a folder around it, as unpacking makes
                self.path, entries = entries[0], _entries(entries[0])
            self.members = {entry.name: entry.name for entry in entries if not entry.is_dir()}
        except UNREADABLE as error:
            raise self._unreadable(path.name, error) from None

    def _unreadable(self, name: str, error: Exception) -> ModelError:
        reason = getattr(error, "strerror", None) or error
        return ModelError(f"cannot read {shown_name(name)} of {str(self.path)!r}: {shown_name(str(reason))}.")

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
            raise ModelError(f"{str(self.path)!r} lacks {shown_name(name)}.")
        if name in self.repeated:
            raise ModelError(
                f"{str(self.path)!r} has several files called {shown_name(name)}: name an unpacked folder."
            )
        if not self.archive and not (self.path / self.members[name]).is_file():
            raise ModelError(f"{shown_name(name)} of {str(self.path)!r} is no plain file.")
        return self.members[name]

    def read(self, name: str, most: int = LARGEST) -> bytes:
        """Return the content of a file, which is not the weights.

        Raises ModelError if it is missing, cannot be read, or has more than `most` bytes.
        """
        member = self._member(name)
        try:
            if not self.archive:
                return read_bounded(self.path / member, most)
            if (size := self.archive.getinfo(member).file_size) > most:
                raise OSError(errno.EFBIG, f"it has {size:,} bytes, expected at most {most:,}")
            return self.archive.read(member)
        except UNREADABLE as error:
            raise self._unreadable(name, error) from None

    def unpacked(self, name: str) -> Path:
        """Return the path of a file. One of a zip is unpacked to $TMPDIR as long as this object lives.

        Raises ModelError if it is missing or cannot be read.
        """
        member = self._member(name)
        if not self.archive:
            return self.path / member
        try:
            check_density(self.archive.getinfo(member).file_size, self.path)
            self.folder = self.folder or tempfile.mkdtemp(prefix="nmt-import-")
            with self.archive.open(member) as packed, Path(self.folder, name).open("wb") as file:
                shutil.copyfileobj(packed, file, 1 << 20)
        except UNREADABLE as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise write_failed(error, Path(tempfile.gettempdir()), "the unpacked model", ModelError) from None
            raise self._unreadable(name, error) from None
        return Path(self.folder, name)

    def __del__(self) -> None:
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def languages(self) -> tuple[str, str]:
        """The codes in the name of the folder or the zip, or of a folder around it; "" where there are none."""
        parts = [self.path.name.removesuffix(".zip"), *self.path.absolute().parent.parts[:-3:-1]]
        return next((codes for codes in map(languages_in, parts) if any(codes)), ("", ""))

    def about(self, name: str) -> str:
        """Return a text that the new model may repeat, "" if there is none. Raises ModelError.

        A link that leads out of the folder counts as none, but for the cache of Hugging Face, whose files are links.
        """
        if not self.archive and name in self.members:
            folder, path = self.path.resolve(), (self.path / name).resolve()
            if path.parent not in (folder, folder.parent.parent / "blobs"):
                return ""
        return self.text(name)

    def text(self, name: str, most: int = LARGEST) -> str:
        """Return a text file of at most `most` bytes, "" if there is none. Raises ModelError."""
        return self.read(name, most).decode("utf-8", "replace") if name in self.members else ""


def _path(name: str) -> PurePosixPath:
    """Return the path of a file in a zip: some zips have backslashes."""
    return PurePosixPath(name.replace("\\", "/"))


def _entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if not _is_of_a_mac(PurePosixPath(entry.name))]


def _is_of_a_mac(path: PurePosixPath) -> bool:
    """Return whether a file is one of those that a Mac adds to others."""
    return path.name.startswith("._") or path.name == ".DS_Store" or "__MACOSX" in path.parts


def check_density(size: int, archive: Path) -> None:
    """Raise BadZipFile if `size` bytes of a zip are packed more densely than weights can be: they may be any number."""
    packed = archive.stat().st_size
    if size > DENSEST * packed + LARGEST:
        raise zipfile.BadZipFile(f"it unpacks from {packed:,} to {size:,} bytes, which no weights do")


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


@dataclass(frozen=True)
class ForeignModel:
    """A model of another toolkit, converted."""

    toolkit: str
    recipe: dict[str, dict[str, Any]]
    weights: Mapping[str, LazyArray]
    vocabularies: tuple[int, int]
    tokenizers: Mapping[str, bytes]
    reader: Reader
    """The model as the toolkit defines it, computed from its own files. Its ids are those of the new model."""
    tags: Sequence[str] = ()
    """The codes of the languages into which a model with tags translates."""
    license: str = ""
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Importer:
    """An entry of `registry.IMPORTERS`."""

    recognizes: Callable[[SourceFiles], bool]
    read: Callable[[SourceFiles, ImportOptions], ForeignModel]
    """Raises ModelError for what it cannot convert, UsageError for options that do not fit."""


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
    return np.ascontiguousarray(taken, np.float32)
