"""What training needs is checked before it starts, and a dry run checks the same."""

import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from shared import TINY

import nmt_cli as nmt
from nmt_cli import registry
from nmt_cli.errors import NmtError, UsageError


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, recipes and their shards; the validation lines of long.toml exceed model.max_positions."""
    folder = tmp_path_factory.mktemp("checks")
    lines = [f"the small dog sees {i % 9} cats" for i in range(60)]
    whole = " ".join(lines)
    texts = {"text": lines, "short": lines[:5], "long": [whole] * 3, "mixed": [*lines[:3], whole], "none": []}
    for name, text in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    for name in ("short", "long", "mixed", "none"):
        recipe = re.sub(r'(valid_\w+ =) \["text"\]', rf"\1 {[name] if texts[name] else []}", TINY)
        (folder / f"{name}.toml").write_text(recipe, encoding="utf-8")
        nmt.preprocess(folder / f"{name}.toml", out=folder / "data" / name)
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, the working folder."""
    monkeypatch.chdir(shutil.copytree(prepared, tmp_path / "work"))
    return tmp_path / "work"


class NoLogger:
    def __init__(self, run: Path) -> None:
        raise UsageError("this logger is not there")


def run_with(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Set a run up in which `make` makes the file `name`."""

    def set_up(folder: Path) -> None:
        (folder / "runs/short/checkpoints").mkdir(parents=True)
        (folder / "runs/short/.lock").touch()
        (folder / "stranger").write_text("theirs", encoding="utf-8")
        (folder / "runs/short" / name).unlink(missing_ok=True)
        make(folder / "runs/short" / name)

    return set_up


def linked(path: Path) -> None:
    path.symlink_to("../../stranger")


class Case(NamedTuple):
    match: str
    recipe: str = "short.toml"
    set_up: Callable[[Path], object] = lambda folder: None
    overrides: Mapping[str, Any] = MappingProxyType({})
    loggers: tuple[str, ...] = ()


CASES = {
    "all validation pairs are too long": Case(r"all 3 validation pairs .* model\.max_positions = 64", "long.toml"),
    "a constraint that does not fit": Case(r"tree '': the vocabulary", overrides={"decode.constraints": ["tree"]}),
    "a constraint without its value": Case("banned_words None", overrides={"decode.constraints": ["banned_words"]}),
    "a logger": Case("this logger is not there", loggers=("none",)),
    "a folder in place of a link": Case("'runs/short/best' is not a link", set_up=run_with("best", Path.mkdir)),
    "a folder in place of the records": Case("jsonl' is no plain file", set_up=run_with("metrics.jsonl", Path.mkdir)),
    "a link in place of the records": Case("metrics.jsonl' is no plain file", set_up=run_with("metrics.jsonl", linked)),
    "a pipe in place of the log": Case("train.log' is no plain file", set_up=run_with("train.log", os.mkfifo)),
    "a link in place of the lock": Case("lock' is no plain file", set_up=run_with(".lock", linked)),
    "a file above the run": Case("a part of its path is a file", set_up=lambda folder: (folder / "runs").touch()),
    "no model to start from": Case("train.init = 'nowhere': no model at", overrides={"train.init": "nowhere"}),
}


if importlib.util.find_spec("MeCab") is None:
    CASES["a tokenizer that lacks its packages"] = Case(
        r"ja-mecab.*train\.valid_bleu_tokenizer", overrides={"train.valid_bleu_tokenizer": "ja-mecab"}
    )


@pytest.mark.parametrize("name", CASES)
def test_a_dry_run_refuses_what_training_refuses(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.LOGGERS, "none", f"{__name__}:NoLogger")
    match, recipe, set_up, overrides, loggers = CASES[name]
    set_up(folder)
    before = sorted(folder.rglob("*"))
    log = folder / "runs" / Path(recipe).stem / "train.log"
    stranger = folder / "stranger"
    logged = log.read_text(encoding="utf-8") if log.is_file() else ""
    with pytest.raises(NmtError, match=match) as dry:
        nmt.forecast(recipe, overrides={"train.updates": 9, **overrides}, loggers=loggers)
    assert sorted(folder.rglob("*")) == before
    with pytest.raises(NmtError, match=match) as real:
        nmt.train(recipe, overrides={"train.updates": 9, **overrides}, loggers=loggers)
    assert str(dry.value) == str(real.value)
    assert (log.read_text(encoding="utf-8") if log.is_file() else "") == logged
    assert not stranger.exists() or stranger.read_text(encoding="utf-8") == "theirs"


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("mixed.toml", "1 validation pair is longer than model.max_positions = 64"),
        ("none.toml", "the shards hold no validation pairs: no scores, no best checkpoint, no early stopping"),
    ],
)
def test_ignored_pairs_are_warned_of(recipe: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for start in (nmt.forecast, nmt.train):
        start(recipe)
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_disk_without_space_is_refused_and_one_with_little_is_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = nmt.forecast("short.toml").parameters * 12
    for free, refused in ((size - 1, True), (size + 1, False)):
        usage = shutil._ntuple_diskusage(10 * size, 0, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        for start in (nmt.forecast, nmt.train):
            capsys.readouterr()
            if refused:
                with pytest.raises(NmtError, match=r"the disk is full.* a checkpoint takes 0\.1 MiB, and 0\.1 MiB are"):
                    start("short.toml")
            else:
                start("short.toml")
                assert "the disk of 'runs/short' may become full" in capsys.readouterr().err
