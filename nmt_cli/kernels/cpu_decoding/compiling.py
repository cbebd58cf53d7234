"""The compiled library: built by the machine's own C++ compiler, kept in the package's cache folder, checked, loaded.

    compiled_library() ──▶ kernels-KEY-COMPILER-SHA256.so in the cache folder? ── hash is right ──▶ loaded
                                   └── no file, or a changed one (reported) ──▶ compiled aside ──▶ tried in a separate process ──▶ kept ──▶ loaded

A library is code: a person who can put a file into this folder could run code as the user who translates. A damaged
library ends the process with a bus error. Four rules prevent both:

- The file name contains the SHA-256 of the bytes. Only the effective user and root can name files in the cache folder
  (`cache.cache_folder`). So a person who can write into the file still cannot make it valid.
- The file is a regular file, it belongs to the effective user, and nobody else may write to it (`cache.read_private`).
- The bytes that are hashed are the bytes that are loaded: they are read once and loaded from sealed memory. So later
  changes of the file have no effect, not even while the library runs. Where the system has no sealed memory, as on macOS,
  the file itself is loaded; nobody else can have replaced it.
- A file that fails these checks is removed, and the library is compiled again.

The user, root, the package's own files, and the compiler that $CXX or $PATH names are trusted. KEY is a hash of the
sources, the flags, and the processor as the operating system describes it. COMPILER is a hash of the compiler's command
and its predefined macros, which depend on the processor too. So a home folder that several machines share has a library
for each kind of machine. A machine without a compiler loads any library with its own KEY.
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
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ... import console
from ...cache import cache_folder, explained, read_private, write_private
from ...files import partial
from ...hardware import cpu_flags

SOURCE = Path(__file__).parent / "sources" / "kernels.cpp"
PARTS = sorted(SOURCE.parent.glob("*.[ch]pp"))
"""SOURCE and the files that it includes."""
TRIAL = Path(__file__).with_name("trial.py")
COMPILERS = ("c++", "g++", "clang++")
"""Commands to try in this order; $CXX replaces them."""
FLAGS = (
    "-fno-fast-math",
    "-O3",
    "-std=c++17",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
    "-pthread",
)
"""Flags after those of $CXX. The first one cancels -ffast-math: the code needs infinities and NaN."""
NATIVE = {
    "x86_64": ("-march=native", "-mprefer-vector-width=512"),
    "AMD64": ("-march=native",),
    "aarch64": ("-mcpu=native",),
    "arm64": ("-mcpu=native",),
}
"""Flags that compile for the processor of this machine, by its architecture."""
PATIENCE, SHORT_PATIENCE = 120.0, 10.0
"""Time limits in seconds: for compiling and trying, which take about two; and for printing its macros, which takes a compiler 0.04."""
MOST_OUTPUT = 1 << 20
"""Maximum number of bytes that a command may print."""
MOST_KEPT = 16
"""Maximum number of libraries to keep."""


class Library(ctypes.CDLL):
    """A loaded library."""

    origin: str
    """The name of its file, which contains the hash of its content."""


class _Compiler:
    """The C++ compiler of this machine, with all flags."""

    def __init__(self, folder: Path) -> None:
        """Run the compiler in `folder` to print its macros. Raises OSError if there is no compiler, or if it fails."""
        self.command = [*_compiler(), *FLAGS, *NATIVE.get(platform.machine(), ())]
        self.title = f"the C++ compiler {self.command[0]!r}"
        macros = _run(self.title, [*self.command, "-dM", "-E", "-x", "c++", os.devnull], folder, SHORT_PATIENCE)
        self.name = hashlib.sha256(b"\0".join([*map(os.fsencode, self.command), macros])).hexdigest()[:12]

    def compile(self, sources: dict[str, bytes], names: Sequence[str], folder: Path) -> bytes:
        """Compile and try a library with these functions in a folder within `folder`, and return its bytes. Raises OSError."""
        with partial(folder / "kernels", lambda aside: aside.mkdir(0o700)) as aside:
            for part, source in sources.items():
                (aside / part).write_bytes(source)  # compile the same bytes that were hashed
            library = aside / "kernels.so"
            _run(self.title, [*self.command, "-o", str(library), SOURCE.name], aside, PATIENCE)
            if not library.is_file():
                raise OSError(f"{self.title} succeeds but writes no library")
            _run(
                "the test of the compiled library",
                [sys.executable, "-I", str(TRIAL), str(library), *names],
                aside,
                PATIENCE,
            )
            return library.read_bytes()


def compiled_library(names: Sequence[str]) -> Library | None:
    """Return the library with these functions, compiled if needed; None if there is no cache folder, which was reported already.

    Raises OSError, with the reason, if the library cannot be compiled or loaded.
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
    """Return a hash of the sources, the flags and the processor. It does not depend on the compiler."""
    parts = [
        *sources.values(),
        " ".join(FLAGS).encode(),
        platform.machine().encode(),
        " ".join(sorted(cpu_flags())).encode(),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def _checked(path: Path) -> bytes:
    """Return the bytes of a library. Raises OSError if the file was changed after it was compiled, or cannot be read."""
    data = read_private(path)
    if path.stem.rpartition("-")[2] != hashlib.sha256(data).hexdigest():
        raise OSError(
            errno.EINVAL,
            "its content is not what was compiled (its SHA-256 differs from the one in its name)",
            str(path),
        )
    return data


def _load(data: bytes, path: Path) -> Library:
    """Load the library `data`, the content of the file at `path`. Raises OSError."""
    library = _loaded(data, path)
    library.origin = path.stem
    return library


def _loaded(data: bytes, path: Path) -> Library:
    with suppress(OSError, AttributeError):  # the system has no sealed memory, or forbids code in memory
        descriptor = os.memfd_create(path.name[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(
            descriptor, "wb", closefd=False
        ) as file:  # stays open: the loader identifies a library by its path, so no other library may get this path
            file.write(data)
        return _sealed(descriptor)
    return Library(str(path))


def _sealed(descriptor: int) -> Library:
    import fcntl

    fcntl.fcntl(
        descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    )
    return Library(f"/proc/self/fd/{descriptor}")


def _compiler() -> list[str]:
    """Return the command of the C++ compiler, with the full path of its program. Raises OSError if there is no compiler."""
    named = os.environ.get("CXX", "").strip()
    if not named:
        path = next((candidate for name in COMPILERS if (candidate := shutil.which(name))), None)
        if path is None:
            raise OSError(f"there is no C++ compiler ({', '.join(COMPILERS)}). Install one, or let $CXX name it")
        return [os.path.abspath(path)]
    try:
        command = [named] if shutil.which(named) else shlex.split(named)
    except ValueError as error:  # a quotation mark is not closed
        raise OSError(f"$CXX = {named!r} is not a command: {error}") from None
    path = shutil.which(command[0]) if command else None
    if path is None:
        raise OSError(f"$CXX = {named!r}: there is no such compiler. Let it name one, or unset it")
    return [os.path.abspath(path), *command[1:]]


def _run(title: str, command: Sequence[str], folder: Path, patience: float) -> bytes:
    """Run a command in `folder` without input, and return its output. Raises OSError if it fails or takes longer than `patience` seconds.

    A command that takes too long is killed with all processes that it started. It does not run in the working folder, because
    some compilers look for headers there. It does not get our standard input, which is the text to translate.
    """
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, process_group=0
    ) as process:
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
    """Return the output of the process and its exit status. Raises OSError if it prints too much, TimeoutExpired after `deadline`."""
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
    """Return the first line that contains "error" or "fail", else the last line, without control characters; "" if nothing was printed."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    line = next((line for line in lines if re.search("error|fail", line, re.IGNORECASE)), lines[-1] if lines else "")
    return line and ": " + "".join(character if character.isprintable() else "?" for character in line[:300])


def _tidy(folder: Path) -> None:
    """Remove the oldest libraries."""
    with suppress(OSError):
        kept = sorted(folder.glob("kernels-*.so"), key=lambda path: path.lstat().st_mtime)
        for path in kept[: -(MOST_KEPT - 1)]:
            path.unlink(missing_ok=True)
