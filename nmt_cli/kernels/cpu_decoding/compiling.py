"""The compiled library: made by the machine's own C++ compiler, kept in the package's cache folder, checked, loaded.

    compiled_library() ──▶ kernels-MADE-COMPILER-SHA256.so in the cache folder? ── hashed ──▶ loaded
                                   └── none, or not what was compiled: reported in a line ──▶ compiled aside ──▶ tried in a process of its own ──▶ kept ──▶ loaded

A library is code: whoever can put one here runs as whoever translates. A damaged one ends the process with a bus error.
Both are kept out by four rules:

- The name holds the SHA-256 of the bytes. Only the effective user and root can give a name in the cache folder
  (`cache.cache_folder`), so who can write into the file still cannot make it valid.
- The file is a regular one, the effective user's, and writable by nobody else (`cache.read_private`).
- The bytes that are hashed are the bytes that are loaded: they are read once and loaded from sealed memory, so whatever
  happens to the file later, also while it runs, changes nothing. Where the system has no such memory, as on macOS, the file
  itself is loaded, which nobody else can have replaced.
- What does not pass is removed and compiled again.

Trusted are the user, root, the package's own files, and the compiler that $CXX or $PATH names. The name also holds what
the library was made from and for: the sources, the flags, what the kernel says of the processor, and what the compiler
says of itself and of the processor (its predefined macros). A home folder that several machines share thus has a
library for each kind. A machine without a compiler takes any that was made from these sources for such a processor.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ... import console
from ...cache import PARTIAL, cache_folder, explained, read_private, write_private
from ...hardware import cpu_flags

SOURCE = Path(__file__).parent / "sources" / "kernels.cpp"
PARTS = sorted(SOURCE.parent.glob("*.[ch]pp"))
"""It and what it includes."""
TRIAL = Path(__file__).with_name("trial.py")
COMPILERS = ("c++", "g++", "clang++")
"""Tried in this order; $CXX replaces them."""
FLAGS = ("-fno-fast-math", "-O3", "-std=c++17", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-pthread")
"""After those of $CXX. The first undoes one of theirs: infinities and NaN have a meaning here."""
NATIVE = {"x86_64": ("-march=native", "-mprefer-vector-width=512"), "AMD64": ("-march=native",), "aarch64": ("-mcpu=native",), "arm64": ("-mcpu=native",)}
"""For this very processor, by its kind."""
PATIENCE, SHORT_PATIENCE = 120.0, 10.0
"""Seconds that compiling and trying may take, which need about two; and naming itself, which takes a compiler 0.04."""
MOST_OUTPUT = 1 << 20
"""Bytes that a command may print."""
ASIDE, MOST_KEPT, OLD = ".kernels-", 16, 3600.0
"""The beginning of the names of folders to compile in; how many libraries are kept; the seconds after which a folder is a dead process's."""


class _Compiler:
    """The compiler that there is, with all flags."""

    def __init__(self, folder: Path) -> None:
        """It is asked for its macros in `folder`. Raises OSError where there is none that answers."""
        self.command = [*_compiler(), *FLAGS, *NATIVE.get(platform.machine(), ())]
        self.title = f"the C++ compiler {self.command[0]!r}"
        macros = _run(self.title, [*self.command, "-dM", "-E", "-x", "c++", os.devnull], folder, SHORT_PATIENCE)
        self.name = hashlib.sha256(b"\0".join([*map(os.fsencode, self.command), macros])).hexdigest()[:12]

    def compile(self, sources: dict[str, bytes], names: Sequence[str], folder: Path) -> bytes:
        """The library with these functions, compiled and tried in a folder within `folder`. Raises OSError."""
        with tempfile.TemporaryDirectory(prefix=ASIDE, dir=folder, ignore_cleanup_errors=True) as name:
            aside = Path(name)
            for part, source in sources.items():
                (aside / part).write_bytes(source)  # what is compiled is what was hashed
            library = aside / "kernels.so"
            _run(self.title, [*self.command, "-o", str(library), SOURCE.name], aside, PATIENCE)
            if not library.is_file():
                raise OSError(f"{self.title} succeeds but writes no library")
            _run("the test of the compiled library", [sys.executable, "-I", str(TRIAL), str(library), *names], aside, PATIENCE)
            return library.read_bytes()


def compiled_library(names: Sequence[str]) -> ctypes.CDLL | None:
    """The library with these functions, compiled if need be; None: there is no cache folder, which has been reported.

    Raises OSError, with the reason, where it cannot be had.
    """
    folder = cache_folder()
    if folder is None:
        return None
    sources = {part.name: part.read_bytes() for part in PARTS}
    key = _key(sources)
    try:
        compiler, reason = _Compiler(folder), ""
    except OSError as error:
        compiler, reason = None, explained(error)
    for path in sorted(folder.glob(f"kernels-{key}-{compiler.name if compiler else '*'}-*.so")):
        try:
            return _load(_checked(path), path)
        except OSError as error:
            console.say(f"the compiled kernels are compiled again: {explained(error)}")
            with suppress(OSError):
                path.unlink()
    if compiler is None:
        raise OSError(reason)
    if console.on_terminal():
        console.say("compiling the decoder's kernels for this processor, once")
    _tidy(folder)
    data = compiler.compile(sources, names, folder)
    path = folder / f"kernels-{key}-{compiler.name}-{hashlib.sha256(data).hexdigest()}.so"
    write_private(path, data, flush=True)
    return _load(data, path)


def _key(sources: dict[str, bytes]) -> str:
    """Of what a library is made from and for, whatever the compiler."""
    parts = [*sources.values(), " ".join(FLAGS).encode(), platform.machine().encode(), " ".join(sorted(cpu_flags())).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _checked(path: Path) -> bytes:
    """The bytes of a library that are those that were compiled. Raises OSError."""
    data = read_private(path)
    if path.stem.rpartition("-")[2] != hashlib.sha256(data).hexdigest():
        raise OSError(errno.EINVAL, "its content is not what was compiled (its SHA-256 differs from the one in its name)", str(path))
    return data


def _load(data: bytes, path: Path) -> ctypes.CDLL:
    """Load these bytes, which are those of the file at `path`. Raises OSError."""
    with suppress(OSError, AttributeError):  # another system, or a policy against code in memory
        descriptor = os.memfd_create(path.name[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(descriptor, "wb", closefd=False) as file:  # stays open: the loader knows a library by its name, which no other may get
            file.write(data)
        return _sealed(descriptor)
    return ctypes.CDLL(str(path))


def _sealed(descriptor: int) -> ctypes.CDLL:
    import fcntl

    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return ctypes.CDLL(f"/proc/self/fd/{descriptor}")


def _compiler() -> list[str]:
    """The command of the C++ compiler, its program by its full path. Raises OSError where there is none."""
    named = os.environ.get("CXX", "").strip()
    if not named:
        path = next((candidate for name in COMPILERS if (candidate := shutil.which(name))), None)
        if path is None:
            raise OSError(f"there is no C++ compiler ({', '.join(COMPILERS)}). Install one, or let $CXX name it")
        return [os.path.abspath(path)]
    try:
        command = [named] if shutil.which(named) else shlex.split(named)
    except ValueError as error:  # a quotation without an end
        raise OSError(f"$CXX = {named!r} is not a command: {error}") from None
    path = shutil.which(command[0]) if command else None
    if path is None:
        raise OSError(f"$CXX = {named!r}: there is no such compiler. Let it name one, or unset it")
    return [os.path.abspath(path), *command[1:]]


def _run(title: str, command: Sequence[str], folder: Path, patience: float) -> bytes:
    """What a command prints, run in `folder` without input; it ends in time, with all that it started. Raises OSError otherwise.

    Not in the working folder, since some compilers look for headers there, and not with our standard input, which is what is
    to be translated.
    """
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, process_group=0) as process:
        try:
            output, status = _listen(process, time.monotonic() + patience)
        except BaseException as error:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise OSError(f"{title} was stopped, because it did not end within {patience:.0f} seconds") from None
            if isinstance(error, OSError):
                raise OSError(f"{title} was stopped, because {error}") from None
            raise
    if status:
        raise OSError(f"{title} {_ended(status)}{_gist(output)}")
    return output


def _listen(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, int]:
    """What it prints until its end, and its exit status. Raises OSError, TimeoutExpired."""
    output = bytearray()
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                return bytes(output), process.wait(max(0.1, deadline - time.monotonic()))
            output += piece
            if len(output) > MOST_OUTPUT:
                raise OSError("it prints without end")
    raise subprocess.TimeoutExpired(process.args, 0)


def _ended(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"failed with exit status {status}"


def _gist(output: bytes) -> str:
    """The first line that names an error or a failure, or the last, without control characters; "" where nothing was printed."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    line = next((line for line in lines if re.search("error|fail", line, re.IGNORECASE)), lines[-1] if lines else "")
    return line and ": " + "".join(character if character.isprintable() else "?" for character in line[:300])


def _tidy(folder: Path) -> None:
    """Remove the oldest libraries, and what processes left that were killed while they compiled or wrote."""
    with suppress(OSError):
        for leftover in (*folder.glob(f"{ASIDE}*"), *folder.glob(f"{PARTIAL}*")):
            if time.time() - leftover.lstat().st_mtime > OLD:
                shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink(missing_ok=True)
        kept = sorted(folder.glob("kernels-*.so"), key=lambda path: path.lstat().st_mtime)
        for path in kept[: -(MOST_KEPT - 1)]:
            path.unlink(missing_ok=True)
