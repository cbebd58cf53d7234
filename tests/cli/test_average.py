"""`nmt average`: the average is validated, and a run is never silently translated with an average that is old or worse."""

import json
import shutil
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
import sealed
from safetensors.numpy import load_file, save_file
from shared import number_words

import nmt_cli as nmt

pytestmark = pytest.mark.slow


def said(place: Path, *arguments: str | Path, code: int = 0) -> str:
    """Return what `nmt` prints on stderr, blanks squeezed."""
    return " ".join(forked.nmt(place, *arguments, code=code).split())


def train(place: Path, updates: int, *options: str) -> None:
    forked.nmt(place, "train", "numbers.toml", "--set", f"train.updates={updates}", "--threads", "1", *options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shards data/numbers and the run runs/numbers of 45 updates, which was validated by NLL after update 45."""
    folder = tmp_path_factory.mktemp("average")
    number_words(tmp_path_factory, folder)
    recipe = (folder / "numbers.toml").read_text(encoding="utf-8").replace('"bleu"', '"nll"')
    (folder / "numbers.toml").write_text(recipe, encoding="utf-8")
    train(folder, 45, "--set", "train.valid_bleu_sentences=0")
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(trained, tmp_path / "place", symlinks=True)


def metrics_of(folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return metrics


def change_metrics(folder: Path, **values: object) -> None:
    """Change a model folder's metrics.json; None removes a key."""
    metrics = {key: value for key, value in {**metrics_of(folder), **values}.items() if value is not None}
    (folder / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    sealed.again(folder, "metrics.json")


def spoil(folder: Path) -> None:
    """Negate the weights of a checkpoint: an average with it is worse than the last checkpoint."""
    path = folder / "model.safetensors"
    save_file({name: np.negative(array) for name, array in load_file(path).items()}, path)
    sealed.again(folder, "model.safetensors")


USERS = """
translate --model runs/numbers
score --model runs/numbers --src valid.en --ref valid.de
info runs/numbers
quantize runs/numbers --out int8
attend --model runs/numbers --out page.html two
calibrate --model runs/numbers --src valid.en --ref valid.de --out c.json
train numbers.toml --run second --set train.init=runs/numbers --set train.updates=1
"""


def test_an_average_that_is_not_worse_is_scored_and_used(place: Path) -> None:
    printed = said(place, "average", "runs/numbers", "--last", "1")
    score = metrics_of(place / "runs/numbers/last")["nll"]
    assert f"validation nll: the average {score:.4f}, runs/numbers/checkpoints/step-00000045 {score:.4f}" in printed
    assert "worse" not in printed
    assert "next: nmt translate --model runs/numbers/averaged" in printed
    assert metrics_of(place / "runs/numbers/averaged")["nll"] == pytest.approx(score)
    assert said(place, "translate", "--model", "runs/numbers") == "model: runs/numbers/averaged"
    change_metrics(place / "runs/numbers/averaged", worse_than="step-00000045")  # by an older version
    assert said(place, "translate", "--model", "runs/numbers") == "model: runs/numbers/best"


def test_instead_of_a_worse_average_a_run_has_its_best_checkpoint(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(place / "runs/numbers/checkpoints/step-00000030")
    printed = said(place, "average", "runs/numbers", "--last", "2")
    best, averaged = (load_file(place / f"runs/numbers/{name}/model.safetensors") for name in ("best", "averaged"))
    assert all(np.array_equal(best[name], averaged[name]) for name in best)
    score = metrics_of(place / "runs/numbers/best")["nll"]
    assert f", runs/numbers/checkpoints/step-00000045 {score:.4f}" in printed
    assert "the average is worse: runs/numbers/averaged is step-00000045" in printed
    metrics = metrics_of(place / "runs/numbers/averaged")
    assert (metrics["averaged"], metrics["nll"]) == (["step-00000045"], score)
    assert said(place, "translate", "--model", "runs/numbers") == "model: runs/numbers/averaged"
    monkeypatch.chdir(place)
    average = nmt.average("runs/numbers", last=2)  # our own output is replaced
    found = average.comparison
    assert found
    assert (found.metric, found.is_worse, bool(found.kept), average.averaged) == ("nll", True, True, ("step-00000045",))
    assert found.scores["nll"] > found.other_score == score


def test_a_worse_average_elsewhere_does_not_change_what_the_run_uses(place: Path) -> None:
    said(place, "average", "runs/numbers", "--last", "1")
    spoil(place / "runs/numbers/checkpoints/step-00000030")
    printed = said(place, "average", "runs/numbers", "--last", "2", "--out", "other")
    assert "warning: the average is worse than runs/numbers/checkpoints/step-00000045. next:" in printed
    assert said(place, "translate", "--model", "runs/numbers") == "model: runs/numbers/averaged"


def test_without_the_shards_the_average_is_not_scored(place: Path) -> None:
    (place / "data").rename(place / "moved")
    printed = said(place, "average", "runs/numbers")
    assert "warning: the average has no validation score: cannot read 'data/numbers'" in printed
    assert "If the run's shards are elsewhere, give --data DIR." in printed
    assert "nll" not in metrics_of(place / "runs/numbers/averaged")
    assert "validation nll: the average" in said(place, "average", "runs/numbers", "--data", "moved/numbers")
    assert "error: 'moved' " in said(place, "average", "runs/numbers", "--data", "moved", code=1)


def test_an_average_that_is_older_than_the_last_checkpoint_is_reported(place: Path) -> None:
    said(place, "average", "runs/numbers", "--last", "1")
    train(place, 46, "--set", "train.valid_bleu_sentences=0")
    warning = "the last is step-00000046. Run `nmt average runs/numbers` again"
    for command in USERS.split("\n")[1:-1]:
        assert said(place, *command.split()).count(warning) == 1, command
    assert "older" not in said(place, "translate", "--model", "runs/numbers/averaged")
    said(place, "average", "runs/numbers", "--last", "1")
    assert "older" not in said(place, "translate", "--model", "runs/numbers")
