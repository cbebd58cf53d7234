"""A full disk, a real one: a file system of a few megabytes in memory."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: int, taken: int = 0, mode: str = "rw") -> Iterator[Path]:
    """A file system of its own of `size` megabytes, of which a file `taken` takes as many; with the mode `ro` it is empty and read-only. It lives in a process's own name space."""
    (folder / "disk").mkdir()
    mount = f"mount -t tmpfs -o size={size}m,{mode} none {folder / 'disk'} && echo mounted && exec cat"
    try:
        holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        pytest.skip("there is no unshare to mount a small disk with")
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline() != b"mounted\n":
            pytest.skip("mounting a small disk is not allowed here")
        path = Path(f"/proc/{holder.pid}/root{folder / 'disk'}")
        if mode != "ro":
            (path / "taken").write_bytes(bytes(taken * 2**20))
        yield path
        holder.stdin.close()


def entering(disk: Path) -> tuple[str, Path]:
    """Return a prelude for `forked` commands, after which the disk has a path of its own, and this path. It is not below /proc, where
    commands write to files directly."""
    holder, folder = disk.parts[2], Path("/", *disk.parts[4:])
    return (
        f"""
import ctypes
for kind in ("user", "mnt"):
    namespace = os.open(f"/proc/{holder}/ns/{{kind}}", os.O_RDONLY)
    assert ctypes.CDLL(None).setns(namespace, 0) == 0
    os.close(namespace)
os.chdir(order["folder"])
""",
        folder,
    )
