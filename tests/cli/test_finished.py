"""A training that has finished exits with 0, even if a signal arrives before its process ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from forked import run
from forked_ranks import FORKED
from shared import number_words

AFTERWARDS = """
import atexit, os, signal
from nmt_cli.training.trainer import Trainer


def train(self, was=Trainer.train):
    progress = was(self)
    os.kill(os.getpid(), signal.{name})
    atexit.register(lambda: os.kill(os.getpid(), signal.{name}))
    return progress


Trainer.train = train
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recipe and shards."""
    folder = tmp_path_factory.mktemp("finished")
    number_words(tmp_path_factory, folder)
    return folder


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_signal_after_the_end_changes_nothing(place: Path, devices: int, name: str) -> None:
    options = ["--set", "train.updates=1", "--set", "train.valid_bleu_sentences=0", "--set", "train.best_metric=nll"]
    done = run(
        place,
        *("train", "numbers.toml", "--run", f"runs/{name}-{devices}", "--devices", devices, "--threads", "1", *options),
        prelude=FORKED + AFTERWARDS.format(name=name),
    )
    said = done.stderr.decode()
    assert "finished at update 1" in said
    assert done.returncode == 0, said
    assert "stopped" not in said
    assert "Traceback" not in said
    assert "Exception" not in said
