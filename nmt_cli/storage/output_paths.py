"""Outputs of commands: where a command writes, and which files and folders it may replace (DESIGN section 4).

    output_folder(path, what, ours, inputs) -> a folder to fill, which becomes `path` if no error occurs
    output_file(path, what, inputs, ours)   -> a stream to write into, which becomes `path` if no error occurs

One rule for all commands:

- An existing folder is replaced only if `ours` proves that the same command wrote it: the folder has the command's
  marker, and its contents are those that the marker records. An empty folder may be replaced. Every other folder is
  refused.
- A text file that the user named is replaced, as by every Unix tool, unless it is one of the command's inputs. If the
  file can have a marker, or if the command chose the name, then `ours` must prove that the file is an earlier output,
  or the new bytes must be the same as the old ones. Mode and owner stay.
- Links are followed: their target is replaced, the link stays. A device or a pipe is written to directly.

    `ours(path)` returns "" for an earlier output of the same command, otherwise the reason why it is not one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import DataError, NmtError, ReaderLeft, UsageError, write_failed, writing
from .files import check_free, follow_links, new_files, new_folder, sha256

Ours = Callable[[Path], str]
DESCRIPTORS = ("/dev/", "/proc/")
"""Folders whose paths may be open files of this process. Such paths must not be replaced."""


def resolved(path: Path, what: str) -> Path:
    """Return the target of `path` if it is a link, else `path`. Raises DataError."""
    with writing(path, what):
        return follow_links(path)


def check_inputs(path: Path, what: str, inputs: Iterable[Path]) -> None:
    """Raise UsageError if `path` is one of `inputs`, is inside one, or contains one.

    Links and other names of a file are recognised.
    """
    real = path.resolve()
    for source in filter(Path.exists, inputs):
        if path.exists() and path.samefile(source):
            raise UsageError(f"{what} would replace its own input {str(source)!r}. Choose another output.")
        if source.resolve() in real.parents:
            raise UsageError(f"{what} would be written inside its own input {str(source)!r}. Choose another output.")
        if real in source.resolve().parents:
            raise UsageError(
                f"{what} would replace the folder {str(path)!r}, which holds its own input {str(source)!r}. "
                "Choose another output."
            )


@contextmanager
def output_folder(
    path: Path, what: str, ours: Ours, inputs: Sequence[Path] = (), kind: type[NmtError] = DataError
) -> Iterator[Path]:
    """Provide a folder to fill, which becomes `path` at the end of the block.

    Raises UsageError if `path` may not be replaced, `kind` if it cannot be written.
    """
    check_output_folder(path, what, ours, inputs)
    with writing(path, what, kind), new_folder(resolved(path, what), ours) as aside:
        yield aside


def check_output_folder(path: Path, what: str, ours: Ours, inputs: Sequence[Path] = ()) -> None:
    """Raise UsageError if `output_folder` would refuse `path`. Call this before hours of work."""
    with writing(path, what):
        real = resolved(path, what)
        check_inputs(real, what, inputs)
        if real.exists() and not real.is_dir():
            raise UsageError(f"{what} is a folder, and {str(path)!r} is a file. Choose another output.")
        check_free(real, ours)


def check_output_file(path: Path, what: str, inputs: Sequence[Path] = ()) -> None:
    """Raise UsageError or DataError if `output_file` would refuse `path`. Call this before a model is loaded."""
    with writing(path, what):
        _target(path, what, inputs)


@contextmanager
def output_file(path: Path, what: str, inputs: Sequence[Path] = (), ours: Ours | None = None) -> Iterator[BinaryIO]:
    """Provide a stream to write into, which becomes the file `path` at the end of the block.

    A device or pipe is written directly.

    Without `ours`, an existing file is replaced, because the user named it. Raises UsageError if `path` may not be
    replaced, DataError if it cannot be written.
    """
    with output_files([path], what, inputs, ours) as (stream,):
        yield stream


@contextmanager
def output_files(
    paths: Sequence[Path], what: str, inputs: Sequence[Path] = (), ours: Ours | None = None
) -> Iterator[list[BinaryIO]]:
    """Provide streams for several files, as `output_file` does for one: all files are written, or none."""

    def check(new: Path, path: Path) -> None:
        if ours and sha256(new) != sha256(path) and (reason := ours(path)):
            raise UsageError(f"{str(path)!r} is not replaced: {reason}. Choose another output, or move it away.")

    current = paths[0]
    try:
        targets = [_target(current := path, what, inputs) for path in paths]
        replaced = list(filter(None, targets))
        for target in replaced:
            target.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            asides = iter(stack.enter_context(new_files(replaced, check)))
            yield [
                next(asides) if target else stack.enter_context(path.open("wb"))
                for path, target in zip(paths, targets, strict=True)
            ]
    except BrokenPipeError:
        raise ReaderLeft from None
    except OSError as error:
        raise write_failed(error, current if len(paths) == 1 else current.parent, what) from None


def _target(path: Path, what: str, inputs: Sequence[Path]) -> Path | None:
    """Return the file to replace or create, or None if `path` is written to directly. Raises OSError, UsageError."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    if stat.S_ISDIR(mode):
        raise UsageError(
            f"{what} is a file, and {str(path)!r} is a folder. Give the name of a file, such as "
            f"{str(path / 'output')!r}."
        )
    if mode and (not stat.S_ISREG(mode) or os.path.abspath(path).startswith(DESCRIPTORS)):
        return None
    real = resolved(path, what)
    check_inputs(real, what, inputs)
    if mode and not os.access(real, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return real
