"""The cache folder of the package, and the hashes of files that are stored in it.

    cache_folder() ──▶ $XDG_CACHE_HOME/nmt or ~/.cache/nmt, private to the effective user; None: no cache is used
    read_private(path), write_private(path, data) ──▶ files in it that no other user can have written
    remembered_sha256(path) ──▶ the SHA-256 of any file, computed again only when the file may have changed
    compile_cache() ──▶ torch.compile stores its code in the cache folder, not in /tmp, where others can prepare one

Only the effective user and root are trusted. The cache contains results of checks, and code that torch
compiled, so no other user may be able to change it. The rules are those of OpenSSH's StrictModes, for the path with its
links resolved:

- the folder and every file in it belong to the effective user and are writable by nobody else;
- every folder above belongs to the effective user or root, and nobody else can rename its contents: it is not writable
  by group or others, or it is sticky as /tmp is, or its group is the user's own (it has the user's name and no other
  members).

The cache only saves time. Values that cannot be read are computed, and values that cannot be written are not stored: no
error of the cache ends a command. A folder that breaks a rule is not used, and one warning reports it.
"""

from __future__ import annotations

import atexit
import errno
import grp
import hashlib
import os
import pwd
import re
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from . import console
from .files import clear_partial, partial, sha256

ANY = re.compile(".+", re.DOTALL)
"""Pattern of every name."""
LARGEST = 1 << 26
"""Largest size of a file that `read_private` accepts, in bytes."""
MOST_RECORDS = 4096
"""Largest number of hash records. If there are more, the oldest are removed, and three quarters of this number stay."""
SETTLED = 2_000_000_000
"""Nanoseconds: a file that changed more recently may change again without a new time, so its hash is not remembered."""


def cache_folder() -> Path | None:
    """Return the cache folder with all links resolved, and create it if it is missing.

    None, with one warning, if it is not safe.
    """
    try:
        return _private(_base(), "nmt")
    except (OSError, RuntimeError) as error:  # RuntimeError: links that form a circle
        console.warn_once(
            f"no cache folder is used, so some work is done again at every start: {explained(error)}. Fix that "
            "(chown, chmod go-w), or set XDG_CACHE_HOME to a folder of yours with mode 700."
        )
        return None


def subfolder(name: str) -> Path | None:
    """Return a private folder in the cache folder, or None as `cache_folder` does."""
    folder = cache_folder()
    try:
        return _private(folder, name) if folder else None
    except OSError:
        return None


def explained(error: Exception) -> str:
    """Return the text of an error without its number."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return f"{str(error.filename)!r}: {error.strerror}" if error.filename else str(error.strerror)


def _base() -> Path:
    """Return the folder of all programs' caches by the XDG base directory specification, which ignores relative
    paths.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):
        return Path(named)
    home = os.environ.get("HOME", "")
    if not home:
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            raise OSError(f"$HOME is not set, and there is no user with the number {os.geteuid()}") from None
    if not os.path.isabs(home) or not os.path.isdir(home):
        raise OSError(f"the home folder {home!r} does not exist")
    return Path(home) / ".cache"


def _private(parent: Path, name: str) -> Path:
    """Return the folder `name` in `parent`, links resolved; create it and its parents.

    Raises OSError if it is not private.
    """
    path = (parent / name).resolve()
    missing = []
    for above in path.parents:
        try:
            _check_above(above, above.stat())
        except FileNotFoundError:
            missing.append(above)
    for folder in (*reversed(missing), path):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(errno.ENOTDIR, "it is not a folder", str(path))
    _check_own(path, status)
    return path


def _check_own(path: Path, status: os.stat_result) -> None:
    """Raise OSError unless `path` belongs to the effective user and no other user can write to it."""
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise OSError(
            errno.EPERM,
            f"it belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):03o}, expected "
            f"user {os.geteuid()} and no write permission for group and others",
            str(path),
        )


def _check_above(path: Path, status: os.stat_result) -> None:
    """Raise OSError if users other than the effective user and root can replace files in this folder."""
    shared = status.st_mode & 0o002 or (status.st_mode & 0o020 and not _own_group(status.st_gid))
    if status.st_uid not in (0, os.geteuid()) or (shared and not status.st_mode & stat.S_ISVTX):
        raise OSError(
            errno.EPERM,
            f"others can replace what is in it: it belongs to user {status.st_uid} and has mode "
            f"{stat.S_IMODE(status.st_mode):03o}, "
            f"expected user {' or '.join(map(str, sorted({0, os.geteuid()})))} and no write permission for "
            "group and others",
            str(path),
        )


def _own_group(gid: int) -> bool:
    """Return whether a group has only the effective user in it. Many systems give every user such a group."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (gid, group.gr_name) and set(group.gr_mem) <= {user.pw_name}


def read_private(path: Path) -> bytes:
    """Return the contents of a file of the cache folder.

    Raises OSError if others could have written it or it is a link.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise OSError(errno.EINVAL, f"it is no regular file of at most {LARGEST} bytes", str(path))
        _check_own(path, status)
        return file.read(LARGEST)


def write_private(path: Path, data: bytes) -> None:
    """Write a file into the cache folder aside, then rename it. Raises OSError.

    Its mode is 600 whatever the umask is. Any number of processes, also on several machines, may write the same file at
    the same time. What killed processes left in the folder is removed. The file is not flushed to the disk.
    """
    clear_partial(path.parent, ANY)
    with partial(path, lambda aside: aside.touch(0o600, exist_ok=False)) as aside:
        aside.write_bytes(data)
        aside.replace(path)


def remembered_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex.

    For a file that has not changed since an earlier call, the hash is read from the cache.

    Unchanged means: device, inode, size, time of the last change of the content (mtime) and of the inode (ctime) are
    the same as in the earlier call, in nanoseconds. A program can set mtime back but not ctime, so an edit, a copy over
    the file, a restored or replaced file and a new hard link are all noticed. The hash of a file that changed within
    the last two seconds is not stored, because another change could leave the same times. Changes that leave the times
    alone are not noticed: damage by the disk, or a write through a memory map that was open before. `files.sha256`
    always reads the file.

    The record is a small file in the cache folder, never beside `path`. A record that is missing, damaged or of another
    user is ignored. Without a cache folder, the hash is computed. Raises only the OSErrors of `files.sha256`.
    """
    now, status = time.time_ns(), path.stat()
    folder = subfolder("sha256") if stat.S_ISREG(status.st_mode) else None
    if folder is None:
        return sha256(path)
    record = folder / f"{status.st_dev:x}-{status.st_ino:x}"
    if digest := _recorded(record, status):
        return digest
    digest = sha256(path)
    with suppress(OSError):
        if max(status.st_mtime_ns, status.st_ctime_ns) < now - SETTLED and _identity(path.stat()) == _identity(status):
            write_private(record, _record(status, digest))  # a record that a crash damaged is recognised
            _prune(folder)
    return digest


def _identity(status: os.stat_result) -> str:
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _record(status: os.stat_result, digest: str) -> bytes:
    """Return a record: one line of format version, identity, hash, and a checksum of these."""
    text = f"1 {_identity(status)} {digest}"
    return f"{text} {hashlib.sha256(text.encode()).hexdigest()[:16]}\n".encode()


def _recorded(record: Path, status: os.stat_result) -> str:
    """Return the hash in the record if it belongs to a file with this status, else ""."""
    try:
        data = read_private(record)
    except OSError:
        return ""
    match = re.search(rb" ([0-9a-f]{64}) [0-9a-f]{16}\n$", data)
    digest = match[1].decode() if match else ""
    return digest if data == _record(status, digest) else ""


def _prune(folder: Path) -> None:
    """Remove the oldest files if there are more than MOST_RECORDS.

    Partial files of killed processes count too. Raises OSError.
    """
    names = os.listdir(folder)
    if len(names) <= MOST_RECORDS:
        return
    ages = []
    for name in names:
        with suppress(FileNotFoundError):  # other processes prune as well
            ages.append((os.lstat(folder / name).st_mtime_ns, name))
    for _, name in sorted(ages)[: len(ages) - MOST_RECORDS * 3 // 4]:
        (folder / name).unlink(missing_ok=True)


def compile_cache() -> None:
    """Let torch.compile store its code in the cache folder, unless $TORCHINDUCTOR_CACHE_DIR names another one.

    Call it before importing torch.

    torch's default is /tmp/torchinductor_USER. Another user who creates that folder first can put code into it, and
    torch loads the code. Precompiled headers are always stored there, so they are switched off. Without a cache folder
    the code is stored in a temporary folder of this process.
    """
    os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return
    folder = subfolder("inductor")
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="nmt-inductor-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
