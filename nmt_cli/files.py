"""Files and folders that are complete or not there: written aside, flushed to the disk, then renamed.

    with new_folder(path) as aside: write into `aside`      # at the end it becomes `path`
    write_atomic(path, data)                                # a single file likewise
    with new_files(paths) as streams: write into them       # files that do not fit into memory, all or none
    link_atomic(path, target)                               # a symbolic link likewise
    lock(handle)                                            # one process at a time
    clear_away(folder)                                      # what killed processes left in it
    system_error(error)                                     # the OSError in a library's words

A fault midway leaves what stood at `path` as it was, and nothing beside it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

PIECE = 1 << 24
"""Bytes read at once."""


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex. In large pieces: other threads are not asked for their turn often."""
    digest, piece = hashlib.sha256(), bytearray(PIECE)
    with path.open("rb", buffering=0) as stream:
        while size := stream.readinto(piece):
            digest.update(memoryview(piece)[:size])
    return digest.hexdigest()


def lock(handle: int) -> bool:
    """Keep other processes out of an open file or folder until it is closed; False: one of them has it.

    A file system without locks lets everybody in.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def flush_to_disk(path: Path) -> None:
    """fsync a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _aside(path: Path) -> Path:
    return path.parent / f".{path.name}.partial-{os.getpid()}"


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds either all of it or what it held before. Raises OSError."""
    aside = _aside(path)
    try:
        aside.write_bytes(data)
        flush_to_disk(aside)
        aside.replace(path)
        flush_to_disk(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextmanager
def new_files(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Streams to write into, which become `paths` when the block ends well; all of them are written before any is renamed.

    Raises OSError.
    """
    asides = [_aside(path) for path in paths]
    try:
        with ExitStack() as stack:
            streams: list[BinaryIO] = [stack.enter_context(aside.open("wb")) for aside in asides]
            yield streams
            for stream in streams:
                stream.flush()
                os.fsync(stream.fileno())
        for aside, path in zip(asides, paths, strict=True):
            aside.replace(path)
        for folder in {path.parent for path in paths}:
            flush_to_disk(folder)
    except BaseException:
        for aside in asides:
            aside.unlink(missing_ok=True)
        raise


def link_atomic(path: Path, target: str) -> None:
    """Let the symbolic link `path` point to `target`, replacing a link that stands there. Raises OSError."""
    aside = _aside(path)
    aside.unlink(missing_ok=True)
    try:
        aside.symlink_to(target)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which becomes `path` when the block ends well; an earlier `path` is replaced.

    Raises OSError. After a fault or an interrupt nothing of the new folder is left.
    """
    aside, old = _aside(path), path.parent / f".{path.name}.old-{os.getpid()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
        for item in aside.rglob("*"):
            flush_to_disk(item)
        flush_to_disk(aside)
        if path.exists():
            path.rename(old)
        aside.rename(path)
        flush_to_disk(path.parent)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def clear_away(folder: Path) -> None:
    """Remove what killed processes left half-written in `folder`; what they were about to replace takes its place again.

    Raises OSError.
    """
    for old in sorted(folder.glob(".*.old-*")):
        path = folder / old.name[1:].rpartition(".old-")[0]
        if not path.exists():
            old.rename(path)
    for left in (*folder.glob(".*.partial-*"), *folder.glob(".*.old-*")):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def system_error(error: Exception) -> OSError:
    """The OSError that `error` is, or tells of in its text, as safetensors' errors do."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))
