"""Where a command writes, and what it may replace (DESIGN section 4).

    output_folder(path, what, ours, inputs) -> a folder to fill, which becomes `path` when all went well
    output_file(path, what, inputs, ours)   -> a stream to write into, likewise

One rule for all commands:

- A folder that exists is replaced only if `ours` proves that the same command wrote it: its marker is there and its
  contents are those that the marker records. An empty folder is free. Everything else is refused.
- A file of text whose name the user gave is replaced, as every Unix tool does, unless it is one of the command's inputs.
  Where the file can carry a marker, or the command chose the name itself, `ours` must prove it to be an earlier output,
  or it holds the same bytes already. Mode and owner stay.
- Links are followed: what they point to is replaced, the link stays. A device or a pipe is written to directly.

    `ours(path)` returns "" for an earlier output of the same command, else the reason why it is none.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import DataError, NmtError, ReaderLeft, UsageError, write_failed
from .files import check_free, follow_links, new_files, new_folder, sha256

Ours = Callable[[Path], str]
DESCRIPTORS = ("/dev", "/proc")
"""Below these a path may lead to an open file of this process, which must not be replaced under its name."""


def resolved(path: Path, what: str) -> Path:
    """Return `path` with its link followed, if it is one. Raises DataError for what cannot be looked at."""
    try:
        return follow_links(path)
    except OSError as error:
        raise write_failed(error, path, what) from None


def check_inputs(path: Path, what: str, inputs: Iterable[Path]) -> None:
    """Raise UsageError where `path` is one of `inputs`, lies inside one, or holds one, whatever they are called."""
    for source in inputs:
        if (there := _identity(source)) is None:
            continue
        own = _identity(path)
        if own == there:
            raise UsageError(f"{what} would replace its own input {str(source)!r}. Choose another output.")
        if there in _above(path):
            raise UsageError(f"{what} would be written inside its own input {str(source)!r}. Choose another output.")
        if own in _above(source):
            raise UsageError(f"{what} would replace the folder {str(path)!r}, which holds its own input {str(source)!r}. Choose another output.")


Identity = tuple[int, int]


def _identity(path: Path) -> Identity | None:
    """Device and inode of what is there, links followed; None: nothing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _above(path: Path) -> list[Identity]:
    """The folders that `path` is in or would be in, up to the root, by the file system's own `..`."""
    folder = follow_links(path).absolute().parent
    while (identity := _identity(folder)) is None and folder != folder.parent:
        folder = folder.parent
    found: list[Identity] = []
    while identity is not None and identity not in found:
        found.append(identity)
        folder = folder / ".."
        identity = _identity(folder)
    return found


@contextmanager
def output_folder(path: Path, what: str, ours: Ours, inputs: Sequence[Path] = (), kind: type[NmtError] = DataError) -> Iterator[Path]:
    """A folder to fill, which becomes `path` when the block ends well.

    Raises UsageError where `path` may not be replaced, `kind` where it cannot be written.
    """
    check_output_folder(path, what, ours, inputs)
    try:
        with new_folder(resolved(path, what), ours) as aside:
            yield aside
    except OSError as error:
        raise write_failed(error, path, what, kind) from None


def check_output_folder(path: Path, what: str, ours: Ours, inputs: Sequence[Path] = ()) -> None:
    """Raise UsageError now for what `output_folder` would refuse later: before hours of work."""
    real = resolved(path, what)
    check_inputs(real, what, inputs)
    try:
        if real.exists() and not real.is_dir():
            raise UsageError(f"{what} is a folder, and {str(path)!r} is a file. Choose another output.")
        check_free(real, ours)
    except OSError as error:
        raise write_failed(error, path, what) from None


def check_output_file(path: Path, what: str, inputs: Sequence[Path] = ()) -> None:
    """Raise UsageError or DataError now for what `output_file` would refuse later: before a model is loaded."""
    try:
        _target(path, what, inputs)
    except OSError as error:
        raise write_failed(error, path, what) from None


@contextmanager
def output_file(path: Path, what: str, inputs: Sequence[Path] = (), ours: Ours | None = None) -> Iterator[BinaryIO]:
    """A stream to write into: a file of that name when the block ends well, or the device or pipe itself.

    Without `ours` the user named the file, and a regular file is replaced. Raises UsageError where it may not be
    replaced, DataError where it cannot be written.
    """
    with output_files([path], what, inputs, ours) as (stream,):
        yield stream


@contextmanager
def output_files(paths: Sequence[Path], what: str, inputs: Sequence[Path] = (), ours: Ours | None = None) -> Iterator[list[BinaryIO]]:
    """Several files as `output_file` makes one: all of them or none."""

    def check(new: Path, path: Path) -> None:
        if ours and sha256(new) != sha256(path) and (reason := ours(path)):
            raise UsageError(f"{str(path)!r} is not replaced: {reason}. Choose another output, or move it away.")

    at = paths[0]
    try:
        targets = [_target(at := path, what, inputs) for path in paths]
        for target in targets:
            if target is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            asides = iter(stack.enter_context(new_files([target for target in targets if target is not None], check)))
            yield [next(asides) if target is not None else stack.enter_context(path.open("wb")) for path, target in zip(paths, targets, strict=True)]
    except BrokenPipeError:
        raise ReaderLeft from None
    except OSError as error:
        raise write_failed(error, at if len(paths) == 1 else at.parent, what) from None


def _target(path: Path, what: str, inputs: Sequence[Path]) -> Path | None:
    """The file to replace or to make; None: `path` is written to directly. Raises OSError, UsageError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and stat.S_ISDIR(mode):
        raise UsageError(f"{what} is a file, and {str(path)!r} is a folder. Give the name of a file, such as {str(path / 'output')!r}.")
    if mode is not None and (not stat.S_ISREG(mode) or os.path.abspath(path).startswith(tuple(f"{folder}/" for folder in DESCRIPTORS))):
        return None
    real = resolved(path, what)
    check_inputs(real, what, inputs)
    if mode is not None and not os.access(real, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return real
