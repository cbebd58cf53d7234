"""Loggers of `nmt train`: one from outside the package, TensorBoard's, and names that are not listed."""

import json
from pathlib import Path
from typing import Any

import pytest
from forked import run
from forked_ranks import FORKED
from shared import prepare

SETTINGS = ["train.updates=20", "train.valid_bleu_sentences=0", "train.best_metric=nll"]
SHORT = ["--threads", "1", *(word for setting in SETTINGS for word in ("--set", setting))]
OUTSIDE = """
import json, sys, types
from nmt_cli.registry import LOGGERS

class ListLogger:
    def __init__(self, run):
        self.run, self.records = run, []
    def record(self, values):
        self.records.append(values)
    def close(self):
        with (self.run / "list.json").open("x") as stream:  # no second one on another rank
            json.dump(self.records, stream)

sys.modules["my_package"] = types.ModuleType("my_package")
sys.modules["my_package"].ListLogger = ListLogger
LOGGERS["list"] = "my_package:ListLogger"
"""
TENSORBOARD = """
import sys, types

class SummaryWriter:
    def __init__(self, folder):
        self.folder, self.lines = folder, []
    def add_scalar(self, *scalar):
        self.lines.append(scalar)
    def close(self):
        import json, pathlib
        pathlib.Path(self.folder + ".json").write_text(json.dumps(self.lines))

sys.modules["tensorboard"] = types.ModuleType("tensorboard")
sys.modules["torch.utils.tensorboard"] = types.ModuleType("torch.utils.tensorboard")
sys.modules["torch.utils.tensorboard"].SummaryWriter = SummaryWriter
"""
"""Tensorboard's own interface, as torch documents it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recipe and shards."""
    folder = tmp_path_factory.mktemp("loggers")
    prepare(folder)
    return folder


def train(place: Path, folder: Path, *options: str, prelude: str = "", code: int = 0) -> str:
    """Train to the end, which must be `code`; what was said on stderr."""
    done = run(place, "train", "numbers.toml", "--run", folder, *SHORT, *options, prelude=prelude)
    assert done.returncode == code, done.stderr.decode()
    return " ".join(done.stderr.decode().split())


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("devices", [1, 2])
def test_a_logger_from_outside_the_package_gets_every_record(place: Path, tmp_path: Path, devices: int) -> None:
    options, prelude = ["--logger", "list", "--devices", str(devices)], (FORKED if devices > 1 else "") + OUTSIDE
    train(place, tmp_path / "run", *options, prelude=prelude)
    logged = json.loads((tmp_path / "run/list.json").read_text(encoding="utf-8"))
    assert logged == records(tmp_path / "run")
    assert {record["type"] for record in logged} == {"train", "valid"}


def test_a_logger_is_closed_after_an_error_too(place: Path, tmp_path: Path) -> None:
    fails = "from nmt_cli.training.validation import Validator\ndef fail(*_):\n    raise ValueError('no')\nValidator.nlls = fail\n"
    train(place, tmp_path / "run", "--logger", "list", prelude=OUTSIDE + fails, code=1)
    assert json.loads((tmp_path / "run/list.json").read_text(encoding="utf-8")) == records(tmp_path / "run")


def test_tensorboard_gets_the_numbers_of_every_record(place: Path, tmp_path: Path) -> None:
    options = ["--tensorboard", "--logger", "tensorboard", "--logger", "list"]  # one named twice is one, of two
    train(place, tmp_path / "run", *options, prelude=OUTSIDE + TENSORBOARD)
    assert (tmp_path / "run/list.json").exists()
    scalars = json.loads((tmp_path / "run/tensorboard.json").read_text(encoding="utf-8"))
    assert scalars == [
        [f"{record['type']}/{key}", value, record["update"]]
        for record in records(tmp_path / "run")
        for key, value in record.items()
        if isinstance(value, float)
    ]


def test_an_unknown_logger_is_refused_before_anything_is_written(place: Path, tmp_path: Path) -> None:
    said = train(place, tmp_path / "run", "--logger", "tensorbord", code=2)
    assert "--logger 'tensorbord': expected tensorboard. Did you mean" in said
    assert not (tmp_path / "run").exists()
