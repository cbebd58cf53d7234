"""A job on Ray, whose workers and processes are killed."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from in_process import printed, ran
from untrained import sentence, write_untrained

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found in /proc"),
]
NMT = [sys.executable, "-m", "nmt_cli"]
FOREVER = 3  # the shard whose process is killed whenever there is one


def shards(folder: Path) -> dict[int, int]:
    """The processes that do shards of a job: number of the shard → of the process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            found[int(words[words.index(os.fsencode(folder)) + 1])] = int(path.name)
    return found


def killed(job: subprocess.Popen[bytes], folder: Path, kills: int) -> int:
    """Kill processes of shards, or their workers of Ray, until the job ends. Return how often."""
    rng, done, times = random.Random(1), 0, dict.fromkeys(range(100), 0)
    while job.poll() is None:
        for number, process in shards(folder).items():
            if number == FOREVER or (done < kills and times[number] < 2 and rng.random() < 0.3):
                parent = (
                    int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
                    if number != FOREVER
                    else 0
                )
                with suppress(ProcessLookupError):
                    os.kill(parent if parent > 1 and rng.random() < 0.5 else process, signal.SIGKILL)
                    done, times[number] = done + (number != FOREVER), times[number] + 1
        time.sleep(0.2)
    return done


def test_kills_change_nothing_and_a_shard_that_always_dies_is_given_up(workdir: Path) -> None:
    write_untrained(Path("one"), max_extra=4)
    rng = random.Random(1)
    lines = [
        rng.choice(["", "\u2028", sentence(rng, rng.randint(1, 9)), sentence(rng, 3) + "\r"]) for _ in range(5_000)
    ]
    Path("text").write_text("\n".join(lines), encoding="utf-8", newline="")
    ran("job create made --model one --precision fp32 --input text --shard-lines 400")
    with subprocess.Popen([*NMT, "job", "run", "made"], stderr=subprocess.PIPE) as job:
        assert killed(job, workdir / "made", 5) == 5
        said = job.stderr.read().decode() if job.stderr else ""
    assert job.returncode == 75, said
    assert f"shard {FOREVER} failed with exit status 75: its process was killed by signal 9" in said
    told = printed("job status made")
    assert f"failed   {FOREVER}, exit status 75" in told
    assert "12 of 13 shards" in told
    again = subprocess.run([*NMT, "job", "run", "made"], stderr=subprocess.PIPE, check=True)
    assert b"next: nmt job join made" in again.stderr
    assert printed("job join made") == printed("translate --model one --precision fp32 --input text")
