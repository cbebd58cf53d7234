"""Ranks that are started as a user's are, by `--devices` and by torchrun. Every ending is in test_endings.py, with ranks that
are forked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from forked_ranks import FORKED
from shared import differences, number_words

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipe and shards."""
    folder = tmp_path_factory.mktemp("ranks")
    number_words(tmp_path_factory, folder)
    return folder


def python(folder: Path, *arguments: str, path: str = "", code: int = 0) -> str:
    """Run Python to its end, which must be `code`; what it said."""
    environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "400", "PYTHONPATH": path}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def untouched(folder: Path) -> Path:
    """The uninterrupted run of two ranks."""
    python(folder, *NMT, *TRAIN, "runs/untouched", "--devices", "2")
    return folder / "runs/untouched"


def test_torchrun_restarts_a_job_and_it_ends_equal(folder: Path, untouched: Path) -> None:
    (folder / "sitecustomize.py").write_text(DIES)
    torchrun = [*TORCHRUN, "--max-restarts=1", "-m", "--", "nmt_cli"]
    said = python(folder, *torchrun, *TRAIN, "runs/restarted", path=str(folder))
    assert (folder / "died").exists()
    assert said.count("run folder") == 2
    assert "resuming after update" in said
    assert differences(folder / "runs/restarted", untouched) == []


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_do_not_share_the_run_folder_are_told(folder: Path, untouched: Path, rank: int) -> None:
    """Only one of them has checkpoints."""
    shutil.copytree(untouched, folder / f"runs/own-{rank}-{rank}", symlinks=True)
    train = f"exec {sys.executable} -m nmt_cli train numbers.toml --run runs/own-{rank}-$RANK"
    said = python(folder, *TORCHRUN, "--no-python", "sh", "-c", train, code=1)
    assert "--data and --run must lie on a file system that all machines share" in said
    assert said.count("error:") == 1
    assert "nmt_cli/training" not in said
