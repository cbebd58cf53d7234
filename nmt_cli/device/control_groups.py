"""What the control groups of Linux leave to this process, as in a container: CPU time and memory.

A limit of a group holds for the groups below it too, so those of the process's own group and of all groups above it
count. Version 2 has one tree of groups; version 1 has one for each controller; a hybrid system has both. All are below
/sys/fs/cgroup.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

ROOT = Path("/")
"""The folder of /proc and /sys."""


def cpu_quota() -> float:
    """Return how many cores' time this process may use, such as 0.5; infinity without a limit."""
    return min(map(_cores, _groups("cpu")), default=math.inf)


def memory_left() -> float:
    """Return how many bytes this process may still allocate, 0 or less if none; infinity without a limit."""
    return min(map(_left, _groups("memory")), default=math.inf)


def _cores(group: Path) -> float:
    """Return the cores of a group; infinity without a limit, which is "max", -1 or no file."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):
            quota, period = map(int, " ".join((group / name).read_text(encoding="ascii") for name in files).split())
            if quota > 0 and period > 0:
                return quota / period
    return math.inf


def _left(group: Path) -> float:
    """Return the free memory of a group; infinity without a limit. Pages of files that were not read again are free."""
    for limit, usage, reclaimed in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):
            left = _number(group / limit) - _number(group / usage)
            with suppress(OSError, ValueError):
                stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
                left += int(stat.get(reclaimed, 0))
            return left
    return math.inf


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of the process's own group and of all above it, where systems mount the trees.

    A container's mount has its own group at the top. There the path is of another namespace, and it is absent.
    """
    try:
        memberships = (ROOT / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        if not controllers or controller in controllers.split(","):
            own = PurePosixPath("" if ".." in PurePosixPath(path).parts else path.lstrip("/"))
            for tree in [controllers, controller] if controllers else ["", "unified"]:
                yield from (ROOT / "sys/fs/cgroup" / tree / group for group in (own, *own.parents))
