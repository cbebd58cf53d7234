"""The shards of a job as tasks of Ray, which decides when and on which machine each of them runs.

    on_ray(job, address, …) ──▶ numbers of shards ──▶ `_do` in workers of Ray ──▶ nmt job shard NAME K, a process each
                            ◀── shard, exit status, last words ◀──

Ray moves numbers, never text. A shard has a process of its own, so that its memory is gone when it ends; it ends when
its worker is killed. A shard is tried again here and not by Ray, which would try one without end that takes more memory
than a machine has.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import console
from ..errors import RETRY, UsageError, extra_module, shown_name
from .job import Job, Shard

TRIES = 3
"""How often a shard is tried whose process or machine fails."""
AHEAD = 10_000
"""Largest number of tasks that Ray has at a time."""
START = (
    "import sys; from nmt_cli.data.workers import end_with_parent; end_with_parent(int(sys.argv.pop(1))); "
    "from nmt_cli.__main__ import main; sys.exit(main())"
)
"""The program of a shard: that of `nmt`, which ends with the process whose number is its first argument."""


def memory_of(job: Job, workers: int) -> int:
    """Return the bytes of memory that a task asks Ray for: four times the weights, and 0.5 GB with 0.1 GB a worker."""
    weights = sum(path.stat().st_size for model in job.models for path in Path(model).glob("*.safetensors"))
    return 4 * weights + 500_000_000 + 100_000_000 * workers


def on_ray(
    job: Job, numbers: Sequence[int], address: str, options: Sequence[str], workers: int, on_gpu: bool
) -> Iterator[tuple[Shard, int, str]]:
    """Yield shards as they end, each with its exit status and what it said last. Raises UsageError.

    `options` are those of `nmt job shard`. A task asks for so many cores, or GPUs with a core each.
    """
    if not numbers:
        return
    with _connected(address) as ray:
        needs = {"num_cpus": workers, "num_gpus": workers * on_gpu, "memory": memory_of(job, workers)}
        task = ray.remote(_do).options(**needs, max_retries=0)
        has = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(one.get("CPU", 0) >= workers and one.get("memory", 0) >= needs["memory"] for one in has):
            console.warn(f"no machine has {workers} cores and {needs['memory'] / 1e9:.1f} GB of memory: waiting")
        waiting, running, tries = deque(numbers), dict[object, int](), Counter[int]()
        while waiting or running:
            while waiting and len(running) < AHEAD:
                number = waiting.popleft()
                running[task.remote(job.folder.where(), number, options)] = number
            [done], _ = ray.wait([*running])
            number = running.pop(done)
            try:
                status, said = ray.get(done)
            except ray.exceptions.RayError as error:
                tries[number] -= isinstance(error, ray.exceptions.NodeDiedError)  # not the shard's doing
                status, said = RETRY, shown_name(f"{type(error).__name__}: {' '.join(str(error).split())}")
            tries[number] += 1
            if status == RETRY and tries[number] < TRIES:
                waiting.append(number)
            else:
                yield job.shards[number], status, said


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Provide Ray, connected to a cluster. Its tasks end with the block. Raises UsageError."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = extra_module("ray", "ray", "nmt job run")
    here = {"include_dashboard": False, "object_store_memory": 80_000_000} if address == "local" else {}
    try:
        if ":" in address:  # Ray would try for minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **here)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"--ray {address!r}: {error}. Expected auto or HOST:PORT of a cluster that runs.") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _do(folder: str, number: int, options: Sequence[str]) -> tuple[int, str]:
    """Do a shard, in a worker of Ray. Return its exit status, RETRY if it was stopped, and its last words."""
    command = [sys.executable, "-c", START, str(os.getpid()), "job", "shard", folder, str(number), *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode < 0:
        return RETRY, f"its process was killed by signal {-done.returncode}, perhaps for want of memory"
    said = (done.stderr.splitlines() or [""])[-1].removeprefix("error: ")
    return RETRY if done.returncode > 2 else done.returncode, said
