"""What a run accepts when it is started again: a changed recipe or text, a damaged checkpoint; key by key, file by file."""

import json
import os
import shutil
from pathlib import Path

import pytest
import sealed
from forked import nmt, sets
from forked_ranks import FORKED
from shared import number_words

from nmt_cli.recipe import SECTIONS
from nmt_cli.training.run import MAY_CHANGE

pytestmark = pytest.mark.slow

SHORT = sets("train.updates=50", "train.valid_bleu_sentences=4")


def train(place: Path, run: Path, *options: str, prelude: str = "", code: int = 0) -> str:
    """Return what `nmt train` prints, blanks squeezed."""
    return " ".join(nmt(place, "train", "numbers.toml", "--run", run, *options, prelude=prelude, code=code).split())


@pytest.fixture(scope="module")
def done(place: Path) -> Path:
    """A short run that is done."""
    train(place, place / "runs/done", *SHORT)
    return place / "runs/done"


@pytest.fixture
def run(done: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(done, tmp_path / "run", symlinks=True)


REFUSED = {
    "model.dropout": ("0.1", "0.2"),
    "model.residual": ("'pre'", "'post'"),
    "model.norm": ("'layer'", "'rms'"),
    "model.activation": ("'relu'", "'gelu'"),
    "train.batch_tokens": ("512", "256"),
    "train.warmup": ("60", "61"),
    "train.lr_factor": ("0.4", "0.5"),
    "train.adam_beta2": ("0.98", "0.998"),
    "train.label_smoothing": ("0.1", "0.0"),
    "train.clip_norm": ("0.0", "1.0"),
    "train.seed": ("1", "2"),
}
ACCEPTED = [
    "train.updates=53",
    "train.patience=7",
    "train.valid_every=3",
    "train.best_metric=nll",
    "train.log_every=3",
    "train.checkpoint_every=2",
    "train.keep=7",
    "train.keep_best=2",
    "train.average=2",
    "train.skip_nonfinite=1",
    "train.micro_batch_tokens=256",
    "train.valid_bleu_sentences=5",
    "train.valid_beam=2",
    "train.valid_samples=0",
    "train.checkpoint_minutes=1.0",
    "data.shard_pairs=50000",
    "decode.beam=2",
    "decode.alpha=1.0",
    "decode.max_extra=9",
    "decode.min_length=0",
    "decode.batch_tokens=99",
]


def test_what_would_be_another_experiment_is_refused_key_by_key(place: Path, run: Path) -> None:
    changes = sets(*(f"{key}={after}" for key, (_, after) in REFUSED.items()))
    said = train(place, run, *SHORT, *changes, code=1)
    for key, (before, after) in REFUSED.items():
        assert f"{key}: the run has {before}, the recipe {after}" in said
    assert said.count("the run has") == len(REFUSED)
    assert "start another run with --run DIR" in said


def test_what_may_change_is_accepted(place: Path, run: Path) -> None:
    said = train(
        place, run, *sets(*ACCEPTED), "--precision", "bf16", "--devices", "2", "--threads", "1", prelude=FORKED
    )
    assert "resuming after update 50" in said
    assert "2 × cpu in bf16, micro-batches of up to 256 tokens" in said
    assert "finished at update 53" in said


def test_a_run_whose_recipe_holds_a_retired_key_and_lacks_new_ones_resumes(place: Path, run: Path) -> None:
    for folder in run.glob("checkpoints/*"):
        recipe = json.loads((folder / "config.json").read_text(encoding="utf-8"))["recipe"]
        recipe["decode"]["prune"] = 3.0
        del recipe["decode"]["min_length"]
        sealed.change(folder / "config.json", recipe=recipe)
        sealed.again(folder, "config.json", "state.json")
    said = train(place, run, "--set", "train.updates=52")
    assert said.count("decode.prune = 3.0 is ignored") == 1
    assert "finished at update 52" in said


def test_keys_that_may_change_are_those_of_the_recipe() -> None:
    """All of [decode], whatever keys it gets; of the other sections a key that nobody decided on is refused."""
    assert all(keys <= set(SECTIONS[section].model_fields) for section, keys in MAY_CHANGE.items())
    assert MAY_CHANGE["decode"] == set(SECTIONS["decode"].model_fields)
    for section, key in (name.split(".") for name in REFUSED):
        assert key in SECTIONS[section].model_fields
        assert key not in MAY_CHANGE.get(section, set())


def test_other_shards_and_too_little_memory_are_named(place: Path) -> None:
    for option, value, words in (
        ("--set", "data.vocab_size=81", ("vocab_size", "80", "81")),
        ("--memory-limit", "64MiB", ("0.1 GiB", "--memory-limit")),
    ):
        said = train(place, Path("runs/refused"), option, value, code=1)
        assert all(word in said for word in words), said


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_offered_if_there_is_one(place: Path, run: Path) -> None:
    """Whatever is damaged: test_damage.py."""
    cut(run / "checkpoints/step-00000050/state.safetensors")
    said = train(place, run, *SHORT, code=1)
    assert f"the newest checkpoint, '{run}/checkpoints/step-00000050', is damaged:" in said
    assert "The one before it is step-00000045: to resume from there, remove" in said
    for folder in (run / "checkpoints").iterdir():
        if folder.name != "step-00000050":
            shutil.rmtree(folder)
    assert "There is none before it: to start again, remove" in train(place, run, *SHORT, code=1)


def test_pruning_leaves_a_checkpoint_that_holds_something_of_the_users(place: Path, run: Path) -> None:
    (run / "checkpoints/step-00000045/notes.txt").write_text("mine")
    changes = ("updates=54", "checkpoint_every=1", "keep=1", "keep_best=1", "average=1")
    train(place, run, *sets(*(f"train.{change}" for change in changes)))
    kept = {path.name for path in (run / "checkpoints").iterdir()}
    assert kept == {"step-00000045", "step-00000054", (run / "best").resolve().name}
    assert (run / "checkpoints/step-00000045/notes.txt").read_text() == "mine"


FAILS = """
from nmt_cli.errors import TrainingError
from nmt_cli.training.trainer import Trainer
def fail(self):
    raise TrainingError("failed at the start")
Trainer.train_updates = fail
"""


def test_latest_points_to_a_run_that_has_a_checkpoint_and_leaves_other_links(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    number_words(tmp_path_factory, tmp_path)
    latest, one = tmp_path / "runs/latest", ("--set", "train.updates=1")
    latest.parent.mkdir()
    latest.symlink_to("../elsewhere")
    train(tmp_path, Path("runs/one"), *one)
    assert os.readlink(latest) == "../elsewhere"
    latest.unlink()
    train(tmp_path, Path("runs/two"), *one, prelude=FAILS, code=1)
    assert not latest.is_symlink()
    train(tmp_path, Path("runs/three"), *one)
    assert os.readlink(latest) == "three"
