"""The real command line, from two text files to a score and through the errors of training. Each command is a process of its
own: one of train, translate and score is started as a user's is, the others are forked.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import nmt, run, sets
from shared import records

pytestmark = pytest.mark.slow

SIZES = sets("model.d_model=64", "model.d_ff=128", "model.num_heads=4", "model.decoder_layers=2", "model.dropout=0.05")
SCHEDULE = {"updates": 480, "batch_tokens": 1024, "log_every": 20, "valid_every": 160, "valid_bleu_sentences": 40}
TRAIN = ["train", "numbers.toml", *SIZES, *sets(*(f"train.{key}={value}" for key, value in SCHEDULE.items()))]
TRAIN += sets("train.checkpoint_every=80", "train.keep=3", "train.keep_best=1")


def started(folder: Path, *arguments: str, text: bytes | None = None) -> bytes:
    """What `python -m nmt_cli` prints in `folder`; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "nmt_cli", *arguments],
        cwd=folder,
        input=text,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        check=False,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr.decode()
    return done.stdout


def printed(folder: Path, *arguments: str, text: bytes = b"") -> bytes:
    done = run(folder, *arguments, text=text)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """The folder of text, recipe and shards after training and averaging."""
    started(place, *TRAIN)
    nmt(place, "average", "runs/numbers")
    return place


def test_text_in_translations_and_a_score_out(trained: Path) -> None:
    out = started(trained, "translate", text=(trained / "valid.en").read_bytes())
    assert out.count(b"\n") == 60
    (trained / "hyp.de").write_bytes(out)
    scores = json.loads(started(trained, "score", "hyp.de", "--ref", "valid.de", "--json"))["scores"]
    assert scores["bleu"]["score"] > 75


def test_run_folder_holds_checkpoints_links_metrics_and_log(trained: Path) -> None:
    run = trained / "runs/numbers"
    kept = sorted(folder.name for folder in (run / "checkpoints").iterdir())
    assert kept[-3:] == ["step-00000320", "step-00000400", "step-00000480"]
    assert len(kept) <= 4
    assert (run / "last").resolve().name == "step-00000480"
    assert (run / "best").resolve().parent == (run / "checkpoints").resolve()
    assert (trained / "runs/latest").resolve() == run.resolve()
    kinds = [record["type"] for record in records(run)]
    assert (kinds.count("train"), kinds.count("valid")) == (24, 3)
    assert "tok/s" in (run / "train.log").read_text(encoding="utf-8")
    valid = next(record for record in records(run) if record["type"] == "valid")
    assert "tok:13a" in valid["bleu_signature"]
    assert valid["ppl"] > 1
    files = {path.suffix for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    assert files == {".safetensors", ".json", ".jsonl", ".model", ".log"}  # nothing is pickled


def test_info_of_recipe_run_and_model(trained: Path) -> None:
    for what in (["numbers.toml", *TRAIN[2:]], ["runs/numbers"], ["runs/numbers/averaged"]):
        values = json.loads(printed(trained, "info", *what, "--json"))
        assert [values[key] for key in ("parameters", "batch_tokens", "updates")] == [139_328, 1024, 480]
    assert b"139,328" in printed(trained, "info", "runs/numbers")


def test_separate_vocabularies_and_the_other_architectures_train_and_translate(place: Path) -> None:
    options = sets("data.joint_vocab=false", "data.vocab_size=60", "model.tie_embeddings=false")
    options += sets("model.norm=layer", "model.positions=learned")
    nmt(place, "preprocess", "numbers.toml", "--data-dir", ".", "--out", "data/separate", *options)
    where = ["--data", "data/separate", "--run", "runs/separate"]
    nmt(place, *TRAIN, *where, *options, "--set", "train.updates=20")
    out = printed(place, "translate", "--model", "runs/separate", text=b"one two.\n\nthree\n")
    assert (out.count(b"\n"), out.split(b"\n")[1]) == (3, b"")


# Faults: a clear error, the right exit code, no traceback


@pytest.mark.parametrize(
    ("code", "arguments", "words"),
    [
        (1, ["train"], ["nmt preprocess"]),
        (1, ["train", "none.toml"], ["'none.toml'"]),
        (1, [*TRAIN, "--set", "train.batch_token=3"], ["'batch_tokens'"]),
        (1, [*TRAIN, "--run", "runs/other", "--set", "data.vocab_size=81"], ["vocab_size", "80", "81"]),
        (1, [*TRAIN, "--run", "runs/tight", "--memory-limit", "64MiB"], ["0.1 GiB", "--memory-limit"]),
        (2, [*TRAIN, "--memory-limit", "plenty"], ["'plenty'"]),
        (1, ["translate", "--model", "runs/none"], ["'runs/none'"]),
    ],
    ids=lambda value: " ".join(value[-1:]) if isinstance(value, list) else "",
)
def test_what_training_refuses_is_named(place: Path, code: int, arguments: list[str], words: list[str]) -> None:
    said = " ".join(nmt(place, *arguments, code=code).split())
    assert [word for word in words if word not in said] == [], said


def test_a_memory_limit_is_planned_for(place: Path) -> None:
    nmt(place, *TRAIN, "--run", "runs/roomy", "--memory-limit", "4GiB", *sets("train.updates=2"))


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is not None, reason="tensorboard is installed")
def test_tensorboard_without_its_package(place: Path) -> None:
    said = nmt(place, *TRAIN, "--run", "runs/board", "--tensorboard", code=2)
    assert "pip install 'tensorboard>=2.16'" in said
