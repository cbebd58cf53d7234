"""The same text under another name, compressed or not, is the same text: its shards stay, and its run resumes."""

import gzip
import json
from pathlib import Path

import pytest
import sealed
from shared import TINY

import nmt_cli as nmt
from nmt_cli.data.shards import read_index
from nmt_cli.errors import NmtError
from nmt_cli.storage.sealed_json import file_entry

pytestmark = pytest.mark.slow


def write_recipe(folder: Path, source: str, target: str = "text.de") -> None:
    recipe = TINY.replace('train_source = ["text"', f'train_source = ["{source}"')
    recipe = recipe.replace('train_target = ["text"', f'train_target = ["{target}"')
    (folder / "mine.toml").write_text(recipe, encoding="utf-8")


@pytest.fixture
def folder(workdir: Path) -> Path:
    """The working folder: text, a recipe, its shards, and a run that has ended."""
    for name, word in (("text.en", "house"), ("text.de", "Haus"), ("text", "dog")):
        Path(name).write_text("".join(f"{word} {i % 7} {i % 5}\n" for i in range(60)), encoding="utf-8")
    write_recipe(workdir, "text.en")
    nmt.preprocess("mine.toml")
    nmt.train("mine.toml")
    return workdir


def compress(path: Path) -> None:
    Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


def test_a_compressed_and_moved_text_keeps_its_shards_and_its_run(folder: Path) -> None:
    compress(folder / "text.en")
    (folder / "sub").mkdir()
    (folder / "text.de").rename(folder / "sub/deutsch.txt")
    write_recipe(folder, "text.en.gz", "sub/deutsch.txt")
    before = read_index("data/mine").splits
    with pytest.raises(NmtError, match=r"data\.train_source: the shards have \['text\.en'\]") as refused:
        nmt.train("mine.toml", overrides=["train.updates=3"])
    assert "nmt preprocess … --out data/mine compares its contents, keeps the shards" in str(refused.value)
    assert not nmt.preprocess("mine.toml").fresh
    index = read_index("data/mine")
    assert index.splits == before
    assert [index.inputs[role][0].file for role in ("train_source", "train_target")] == [
        "text.en.gz",
        "sub/deutsch.txt",
    ]
    assert not nmt.preprocess("mine.toml").fresh
    assert nmt.forecast("mine.toml").updates_done == 2
    nmt.train("mine.toml", overrides=["train.updates=3"])
    assert "resuming after update 2" in (folder / "runs/mine/train.log").read_text(encoding="utf-8")
    assert nmt.average("runs/mine").comparison is not None
    assert nmt.preprocess("mine.toml", force=True).fresh
    nmt.train("mine.toml", overrides=["train.updates=4"])
    assert "resuming after update 3" in (folder / "runs/mine/train.log").read_text(encoding="utf-8")


def test_another_text_under_another_name_is_refused(folder: Path) -> None:
    (folder / "other").write_text((folder / "text.en").read_text(encoding="utf-8").upper(), encoding="utf-8")
    write_recipe(folder, "other")
    with pytest.raises(NmtError, match=r"train_source: 'other' is not known to hold the text of 'text\.en'"):
        nmt.preprocess("mine.toml")
    nmt.preprocess("mine.toml", force=True)
    with pytest.raises(NmtError, match="began with shards of another text or tokenizer"):
        nmt.train("mine.toml", overrides=["train.updates=3"])


def test_shards_of_earlier_versions_that_hashed_compressed_files_stay_valid(folder: Path) -> None:
    compress(folder / "text.en")
    write_recipe(folder, "text.en.gz")
    nmt.preprocess("mine.toml", force=True)
    index = read_index("data/mine")
    inputs = {**index.inputs, "train_source": [file_entry(folder / "text.en.gz", "text.en.gz")]}
    from nmt_cli.data.inputs import fingerprint_of
    from nmt_cli.recipe import load_recipe

    sealed.change(
        folder / "data/mine/index.json",
        inputs={role: [entry.model_dump() for entry in files] for role, files in inputs.items()},
        fingerprint=fingerprint_of(load_recipe("mine.toml").data, inputs),
    )
    assert not nmt.preprocess("mine.toml").fresh
    (folder / "text.en.gz").rename(folder / "renamed.gz")
    write_recipe(folder, "renamed.gz")
    assert not nmt.preprocess("mine.toml").fresh
    stored = json.loads((folder / "data/mine/index.json").read_text(encoding="utf-8"))
    assert stored["inputs"]["train_source"][0]["sha256"] == inputs["train_source"][0].sha256
    assert stored["data"]["train_source"] == ["renamed.gz"]


def test_another_best_metric_chooses_among_the_checkpoints_that_are_there(folder: Path) -> None:
    nmt.train("mine.toml", overrides=["train.updates=6", "train.valid_every=2", "train.keep_best=6"])
    run = folder / "runs/mine"
    scores = {path.name: json.loads((path / "metrics.json").read_text()) for path in run.glob("checkpoints/*")}
    highest = max(record["bleu"] for record in scores.values())
    chance = 15 / 60**0.5
    best = [name for name, record in sorted(scores.items()) if record["bleu"] >= highest - chance][-1]
    nmt.train("mine.toml", overrides=["train.updates=6", "train.best_metric=bleu", "train.keep_best=6"])
    assert (run / "best").resolve().name == best
    state = json.loads((run / "last/state.json").read_text(encoding="utf-8"))["progress"]
    # the last checkpoint is of the run before
    assert state["best"] == max(record["chrf"] for record in scores.values())
    nmt.train("mine.toml", overrides=["train.updates=7", "train.best_metric=bleu", "train.keep_best=6"])
    log = (run / "train.log").read_text(encoding="utf-8")
    assert "train.best_metric is now BLEU: the best checkpoint is chosen by it from here on" in log
    state = json.loads((run / "last/state.json").read_text(encoding="utf-8"))["progress"]
    assert state["best"] >= highest
