"""The folder of a job, which all machines see: on a file system, or in a store such as S3, by fsspec.

    at("back"), at("s3://bucket/back")     the folder, or the store
    writing(name, what), read, open        a file is whole or absent
    names(), remove(name)

A file system renames; a store puts an object as a whole, and job.json only if it is not there. Outputs need no such
condition: a record has the SHA-256 of its output's text, so it fits whichever of two equal texts was put last.
What a store says is as good as the store: one that shows old objects for a while makes a shard that is done look
missing, and it is done again.
"""

from __future__ import annotations

import errno
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import UsageError, extra_module, write_failed
from ..storage.files import clear_partial
from ..storage.output_paths import output_file, output_folder

FOLDERS = ("input", "reference", "output", "failed")
PARTIAL = re.compile(r"\d+\..+")
"""Pattern of the names whose partial files are of the job."""


class Folder:
    """A folder of a file system."""

    has_inputs = False
    """Whether inputs are always copied into it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def where(self, name: str = "") -> str:
        """Return the path of a file, from any working folder."""
        return str(self.path.absolute() / name)

    def open(self, name: str) -> BinaryIO:
        """Open a file. Raises OSError."""
        return (self.path / name).open("rb")

    @contextmanager
    def writing(self, name: str, what: str, new: bool = False) -> Iterator[BinaryIO]:
        """Provide a stream, which becomes the file at the end. Raises DataError.

        `new`: another command may write the file at the same time. In a store, the second one gets the error.
        """
        with output_file(self.path / name, what) as sink:
            yield sink

    def names(self) -> list[str]:
        """Return the names of all files, in order."""
        return sorted(str(path.relative_to(self.path)) for path in self.path.rglob("*") if not path.is_dir())

    def remove(self, name: str) -> None:
        """Remove a file. Raises OSError."""
        (self.path / name).unlink()

    @contextmanager
    def created(self, last: str, inputs: Sequence[Path]) -> Iterator[Folder]:
        """Provide a folder to fill, which appears at the end of the block. Its file `last` is written last.

        Raises UsageError if there is something else, or an input would be lost.
        """
        with output_folder(self.path, "the job", lambda _: f"it has no {last}", inputs) as aside:
            yield Folder(aside)

    def prune(self) -> None:
        """Remove what killed processes have left, and folders that are empty."""
        own = [self.path / name for name in FOLDERS]
        for folder in (*(part for one in own for part in one.glob("[0-9]*")), *own, self.path):
            with suppress(OSError):
                clear_partial(folder, PARTIAL)
                folder.rmdir()


class Store(Folder):
    """A folder of a store. A file goes through memory as a whole."""

    has_inputs = True

    def __init__(self, url: str) -> None:
        """Raises UsageError for a protocol that fsspec does not know or has no package for."""
        fsspec = extra_module("fsspec", "s3", f"{url!r}")
        try:
            self.files, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"cannot use {url!r}: {error}.") from None
        self.url, self.root = url.rstrip("/"), root.rstrip("/")

    def __str__(self) -> str:
        return self.url

    def where(self, name: str = "") -> str:
        return f"{self.url}/{name}".rstrip("/")

    def open(self, name: str) -> BinaryIO:
        with self._named(name):
            return io.BytesIO(self.files.cat_file(f"{self.root}/{name}"))

    @contextmanager
    def writing(self, name: str, what: str, new: bool = False) -> Iterator[BinaryIO]:
        yield (sink := io.BytesIO())
        try:
            with self._named(name):
                self.files.pipe_file(f"{self.root}/{name}", sink.getvalue(), mode="create" if new else "overwrite")
        except FileExistsError:
            raise UsageError(f"{self.where(name)!r} was written by another command meanwhile. Try again.") from None
        except OSError as error:
            raise write_failed(error, self.where(name), what) from None

    @contextmanager
    def created(self, last: str, inputs: Sequence[Path]) -> Iterator[Folder]:
        yield self

    def names(self) -> list[str]:
        with self._named():
            return sorted(path[len(self.root) + 1 :] for path in self.files.find(self.root))

    def remove(self, name: str) -> None:
        with self._named(name):
            self.files.rm_file(f"{self.root}/{name}")

    def prune(self) -> None:
        """Do nothing: a store has neither partial objects nor folders."""

    @contextmanager
    def _named(self, name: str = "") -> Iterator[None]:
        """Raise the errors of a store's library as OSError of the machine."""
        try:
            yield
        except OSError:
            raise
        except Exception as error:
            raise OSError(errno.EIO, f"{type(error).__name__}: {error}", self.where(name)) from None


def at(name: str) -> Folder:
    """Return the folder of a path or of a URL. Raises UsageError."""
    return Store(name) if "://" in name else Folder(Path(name))
