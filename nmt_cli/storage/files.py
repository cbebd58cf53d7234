"""Files and folders that are complete or absent: written aside, flushed to the disk, then renamed.

    with new_folder(path, ours) as aside: write into `aside`    # at the end it becomes `path`
    write_atomic(path, data), write_named(path, data, "a shard")  # a single file; OSError, or DataError with the name
    with new_files(paths) as streams: write into them           # large files; all are written, or none
    link_atomic(path, target)                                   # a symbolic link
    with partial(path, make) as aside: fill `aside`, rename it  # what is not renamed is removed
    with Lock(path, busy):                                      # one writer, or several readers
    clear_partial(folder, names)                                # remove partial files of killed processes
    system_error(error)                                         # the OSError behind a library's error

After an error or a signal, `path` is unchanged and nothing is left beside it. A process that is killed (SIGKILL, a
power cut) leaves `.NAME.partial-PID`. Its writer holds a lock on it, which ends with the process. So the next command
that writes to `path` can prove that it is abandoned, and removes it. A file that is replaced keeps its mode and owner.
A folder is replaced only if `ours` allows it: `output_paths` decides what a command may replace.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from ..errors import NmtError, UsageError, writing

PIECE = 1 << 23
"""Number of bytes that are read at a time."""
ASIDE = re.compile(r"\.(?P<name>.+)\.(?P<what>partial|old)-\d+", re.DOTALL)
"""Pattern of the names that `_aside` gives to files that are not complete yet."""
MOST_LINKS = 40
"""Largest number of links in a row that are followed, as in Linux."""
LONGEST_NAME = 150
"""The name of a partial file repeats at most this many bytes of the final name. File systems allow 255 bytes."""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex.

    It is read in large blocks, so that there are few switches between threads. Their memory goes back to the system.
    """
    digest, piece = hashlib.sha256(), mmap.mmap(-1, PIECE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with path.open("rb", buffering=0) as stream:
        while size := stream.readinto(piece):
            digest.update(memoryview(piece)[:size])
    return digest.hexdigest()


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes.

    Raises OSError for a larger file, a folder, a pipe or a device.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        data = file.read(most + 1) if status.st_size <= most else b""
        if (size := max(status.st_size, len(data))) > most:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, expected at most {most:,}", str(path))
        return data


def follow_links(path: Path) -> Path:
    """Return the target of `path` if it is a link, else `path`. The folders above it are not resolved.

    The reason: below /proc, links to folders do not lead to the path in their text. Raises OSError for a circle of
    links.
    """
    for _ in range(MOST_LINKS):
        if not path.is_symlink():
            return path
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def lock(handle: int, *, shared: bool = False, without_locks: bool = True) -> bool:
    """Lock an open file or folder until it is closed or the process ends.

    Return False if another process holds the lock.

    Several processes can hold a `shared` lock. On a file system without locks `without_locks` is returned.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return without_locks
    return True


class Lock:
    """A file or folder that is locked until `close`, or the end of the object or the process. See `lock`.

    It is opened with `flags`. Raises OSError, and the error `busy` if another process holds the lock.
    """

    handle = -1

    def __init__(self, path: str | Path, busy: NmtError, *, shared: bool = False, flags: int = os.O_RDONLY) -> None:
        self.handle = os.open(path, flags | os.O_CLOEXEC, 0o666)
        if not lock(self.handle, shared=shared):
            self.close()
            raise busy

    def close(self) -> None:
        """Unlock it, once."""
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)

    __del__ = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def flush_to_disk(path: Path) -> None:
    """Flush a file or folder to the disk (fsync). Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _short(name: str) -> str:
    """Return the part of a file's name that its partial file repeats."""
    return name.encode("utf-8", "surrogateescape")[:LONGEST_NAME].decode("utf-8", "ignore")


def _aside(path: Path, what: str = "partial") -> Path:
    """Return a free name in the folder of `path`. First remove what killed processes left there for `path`."""
    with suppress(OSError):  # a folder that cannot be listed can still be written to
        clear_partial(path.parent, [path.name])
    aside = path.parent / f".{_short(path.name)}.{what}-{os.getpid()}"
    while os.path.lexists(aside):  # of another machine, another thread or a user
        aside = aside.with_name(f"{aside.name}0")
    return aside


@contextmanager
def partial(path: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """Provide a partial file or folder for `path`, in the same folder.

    At the end of the block it is removed, unless it was renamed.

    `make(aside)` creates it. It is locked: `clear_partial` of other processes leaves it alone. Raises OSError.
    """
    aside, handle = _aside(path), -1
    try:  # a signal may come as soon as it is made
        while handle < 0:
            try:
                make(aside)
            except FileExistsError:  # another thread was faster
                aside = _aside(path)
            else:
                handle = _locked(aside)
        yield aside
    finally:
        _remove(aside)
        if handle >= 0:
            os.close(handle)


def _locked(path: Path) -> int:
    """Return a locked descriptor of a file or folder, or -1 if another process removed it before. Raises OSError."""
    with suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if lock(handle) and os.path.lexists(path):
            return handle
        os.close(handle)
    return -1


@contextmanager
def _open(path: Path) -> Iterator[int]:
    """Provide a descriptor of a file or folder that is not a link, for locks. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a file, link or folder if it exists. Errors are ignored."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _keep_mode(aside: Path, path: Path) -> None:
    """Give `aside` the mode of the file that it replaces, and its owner if this process is allowed to."""
    with suppress(FileNotFoundError):
        before = path.stat()
        with suppress(PermissionError):
            os.chown(aside, before.st_uid, before.st_gid)
        aside.chmod(stat.S_IMODE(before.st_mode))


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds either all of it or its earlier contents. Raises OSError."""
    with new_files([path]) as (stream,):
        stream.write(data)


def write_named(path: Path, data: bytes, what: str) -> None:
    """Create the folder of `path` and write `data` as `write_atomic` does.

    `what` names the file in messages. Raises DataError.
    """
    with writing(path, what):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)


def rename_flushed(aside: Path, path: Path) -> None:
    """Rename `aside`, whose contents are on the disk, to `path`, and flush the folder. Raises OSError."""
    aside.rename(path)
    flush_to_disk(path.parent)


@contextmanager
def new_files(paths: Sequence[Path], check: Callable[[Path, Path], None] | None = None) -> Iterator[list[BinaryIO]]:
    """Provide streams to write into, which become `paths` at the end of the block.

    All are written before any is renamed.

    Before the renaming, `check(new, path)` is called for every path that exists; it raises if the path may not be
    replaced. Raises OSError.
    """
    with ExitStack() as stack:
        asides = [stack.enter_context(partial(path, lambda aside: aside.touch(exist_ok=False))) for path in paths]
        streams: list[BinaryIO] = [stack.enter_context(aside.open("wb")) for aside in asides]
        yield streams
        for stream in streams:
            stream.flush()
            os.fsync(stream.fileno())
        for aside, path in zip(asides, paths, strict=True):
            if check and os.path.lexists(path):
                check(aside, path)
        for aside, path in zip(asides, paths, strict=True):
            _keep_mode(aside, path)
            aside.replace(path)
        for folder in {path.parent for path in paths}:
            flush_to_disk(folder)


def link_atomic(path: Path, target: str) -> None:
    """Let the symbolic link `path` point to `target`.

    An existing link is replaced; for anything else at `path`, OSError is raised.
    """
    if os.path.lexists(path) and not path.is_symlink():
        raise FileExistsError(f"{str(path)!r} exists and is not a link")
    aside = _aside(path)
    try:
        aside.symlink_to(target)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path, ours: Callable[[Path], str] = lambda _: "it exists") -> Iterator[Path]:
    """Provide a folder to write into, which becomes `path` at the end of the block.

    An existing `path` is replaced if it is an empty folder or `ours(path)` returns ""; otherwise `ours` returns the
    reason why it may not be replaced. This is checked before the replacement; `check_free` does so before hours of
    work. Raises OSError, and UsageError for a `path` that may not be replaced. After an error or an interrupt nothing
    of the new folder is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with partial(path, Path.mkdir) as aside:
        yield aside
        for item in aside.rglob("*"):
            flush_to_disk(item)
        flush_to_disk(aside)
        check_free(path, ours)
        if not path.exists():
            rename_flushed(aside, path)
            return
        _keep_mode(aside, path)
        old = _aside(path, "old")
        with _open(path) as handle:
            lock(handle)  # until the new folder has its name, `old` belongs to this process
            try:
                path.rename(old)
                rename_flushed(aside, path)
            except BaseException:
                if old.exists() and not path.exists():
                    old.rename(path)
                raise
        _remove(old)


def check_free(path: Path, ours: Callable[[Path], str]) -> None:
    """Raise UsageError unless `path` is free, an empty folder, or `ours(path)` returns ""; see `new_folder`."""
    if not os.path.lexists(path) or (path.is_dir() and not path.is_symlink() and not any(path.iterdir())):
        return
    if reason := ours(path):
        raise UsageError(f"{str(path)!r} is not replaced: {reason}. Choose another output, or move it away.")


def clear_partial(folder: Path, names: Collection[str] | re.Pattern[str]) -> None:
    """Remove the partial files for `names`, a collection or a pattern, that killed processes of this user left in
    `folder`.

    A folder that was about to be replaced gets its name back. Everything else stays: partial files for other names, of
    other users, and of processes that run, here or on another machine. Raises OSError.
    """
    wanted = names if isinstance(names, re.Pattern) else {_short(name): name for name in names}
    for item in sorted(folder.iterdir()):
        match = ASIDE.fullmatch(item.name)
        if not match or not (wanted.fullmatch(match[1]) if isinstance(wanted, re.Pattern) else match[1] in wanted):
            continue
        final = folder / (match[1] if isinstance(wanted, re.Pattern) else wanted[match[1]])
        with suppress(FileNotFoundError):  # others clear too
            if item.is_symlink() or item.stat().st_uid != os.geteuid():
                continue
            with _open(item) as handle:  # while it is locked, no other process can take it
                if not lock(handle, without_locks=False):
                    continue
                if match["what"] == "old" and not os.path.lexists(final):
                    item.rename(final)
                else:
                    _remove(item)


def system_error(error: Exception) -> OSError:
    """Return an OSError: `error` itself, or one for the number in its text, as in errors of safetensors."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))
