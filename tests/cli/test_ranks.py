"""Ranks that are started as a user's are, by `--devices` and by torchrun. Every ending is in test_endings.py, with ranks that
are forked.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from forked_ranks import FORKED
from shared import differences

pytestmark = pytest.mark.slow

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
NMT = ["-m", "nmt_cli"]
TRAIN = ["train", "numbers.toml", "--set", "train.updates=60", "--set", "train.valid_bleu_sentences=5", "--run"]
DIES = f"""
import os
if os.environ.get("RANK") == "0" and not os.path.exists("died"):
{textwrap.indent(FORKED, "    ")}
    at_update(21, lambda trainer: (open("died", "w").close(), own(signal.SIGKILL)))
"""
"""Rank 0 dies once, before update 21; Python runs this when it starts, as `sitecustomize`."""


def python(place: Path, *arguments: str, path: str = "", code: int = 0) -> str:
    """Run Python to its end, which must be `code`; what it said."""
    environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "400", "PYTHONPATH": path}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=place, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def untouched(place: Path) -> Path:
    """The uninterrupted run of two ranks."""
    python(place, *NMT, *TRAIN, "runs/untouched", "--devices", "2")
    return place / "runs/untouched"


def test_torchrun_restarts_a_job_and_it_ends_equal(place: Path, untouched: Path) -> None:
    (place / "sitecustomize.py").write_text(DIES)
    torchrun = [*TORCHRUN, "--max-restarts=1", "-m", "--", "nmt_cli"]
    said = python(place, *torchrun, *TRAIN, "runs/restarted", path=str(place))
    assert (place / "died").exists()
    assert said.count("run folder") == 2
    assert "resuming after update" in said
    assert differences(place / "runs/restarted", untouched) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_do_not_share_the_run_folder_are_told(place: Path, untouched: Path, rank: int) -> None:
    """Only one of them has checkpoints."""
    shutil.copytree(untouched, place / f"runs/own-{rank}-{rank}", symlinks=True)
    train = f"exec {sys.executable} -m nmt_cli train numbers.toml --run runs/own-{rank}-$RANK"
    said = python(place, *TORCHRUN, "--no-python", "sh", "-c", train, code=1)
    assert "--data and --run must lie on a file system that all machines share" in said
    assert said.count("error:") == 1
    assert "nmt_cli/training" not in said
