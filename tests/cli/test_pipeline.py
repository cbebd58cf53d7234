"""The real command line, from two text files to a score and through every error. Each command is a process of its own:
one of train, translate and score is started as a user's is, the others are forked.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from forked import sets
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

ENGLISH = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
GERMAN = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]

RECIPE = """
[data]
train_source = ["train.en"]
train_target = ["train.de"]
valid_source = ["valid.en"]
valid_target = ["valid.de"]
vocab_size = 80
byte_fallback = false
max_length = 40

[model]
encoder_layers = 1
decoder_layers = 2
d_model = 64
d_ff = 128
num_heads = 4
dropout = 0.05
norm = "pre"
max_positions = 64

[train]
batch_tokens = 1024
updates = 480
warmup = 60
lr_factor = 0.4
precision = "fp32"
log_every = 20
valid_every = 160
valid_bleu_sentences = 40
best_metric = "bleu"
checkpoint_every = 80
keep = 3
average = 3
"""


def started(*arguments: str | Path, folder: Path, text: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m nmt_cli` in `folder`, which must succeed."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return checked(
        subprocess.run(
            [sys.executable, "-m", "nmt_cli", *map(str, arguments)],
            cwd=folder,
            input=text,
            capture_output=True,
            env=env,
            check=False,
        )
    )


def nmt(*arguments: str | Path, folder: Path, text: bytes = b"", code: int = 0) -> subprocess.CompletedProcess[bytes]:
    """Run `nmt` in `folder` and check its exit code."""
    return checked(forked.run(folder, *arguments, text=text), code)


def checked(done: subprocess.CompletedProcess[bytes], code: int = 0) -> subprocess.CompletedProcess[bytes]:
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def write_pairs(folder: Path, split: str, count: int, seed: int) -> None:
    """Number words, some in another order on the German side: tens after ones, as German has it."""
    draw = random.Random(seed)
    english, german = [], []
    for _ in range(count):
        digits = [draw.randrange(10) for _ in range(draw.randint(2, 7))]
        english.append(" ".join(ENGLISH[d] for d in digits) + ".")
        german.append(" ".join(GERMAN[d] for d in [*digits[1:2], digits[0], *digits[2:]]) + ".")
    (folder / f"{split}.en").write_text("\n".join(english) + "\n", encoding="utf-8")
    (folder / f"{split}.de").write_text("\n".join(german) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a recipe and the shards made of them."""
    folder = tmp_path_factory.mktemp("pipeline")
    for split, count, seed in (("train", 3000, 1), ("valid", 60, 2), ("test", 60, 3)):
        write_pairs(folder, split, count, seed)
    (folder / "numbers.toml").write_text(RECIPE, encoding="utf-8")
    nmt("preprocess", "numbers.toml", "--data-dir", ".", folder=folder)
    return folder


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """The same folder after training and averaging."""
    started("train", "numbers.toml", folder=place)
    nmt("average", "runs/numbers", folder=place)
    return place


def records(run: Path) -> list[dict[str, object]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "tokens_per_second")} for line in lines]


def test_text_in_translations_and_a_score_out(trained: Path) -> None:
    source = (trained / "test.en").read_bytes()
    out = started("translate", folder=trained, text=source).stdout
    assert out.count(b"\n") == 60
    (trained / "hyp.de").write_bytes(out)
    scores = json.loads(started("score", "hyp.de", "--ref", "test.de", "--json", folder=trained).stdout)["scores"]
    assert scores["bleu"]["score"] > 75
    assert "tok:13a" in scores["bleu"]["signature"]


def test_run_folder_holds_checkpoints_links_metrics_and_log(trained: Path) -> None:
    run = trained / "runs/numbers"
    kept = sorted(folder.name for folder in (run / "checkpoints").iterdir())
    assert kept[-3:] == ["step-00000320", "step-00000400", "step-00000480"]
    assert len(kept) <= 4
    assert (run / "last").resolve().name == "step-00000480"
    assert (run / "best").resolve().parent == (run / "checkpoints").resolve()
    assert (trained / "runs/latest").resolve() == run.resolve()
    kinds = [record["type"] for record in records(run)]
    assert kinds.count("train") == 24
    assert kinds.count("valid") == 3
    assert "tok/s" in (run / "train.log").read_text(encoding="utf-8")
    valid = next(record for record in records(run) if record["type"] == "valid")
    assert "tok:13a" in str(valid["bleu_signature"])
    assert float(str(valid["ppl"])) > 1


def test_nothing_in_a_run_is_pickled(trained: Path) -> None:
    suffixes = {
        path.suffix for path in (trained / "runs/numbers").rglob("*") if path.is_file() and path.name != ".lock"
    }
    assert suffixes == {".safetensors", ".json", ".jsonl", ".model", ".log"}


def test_info_of_recipe_run_and_model(trained: Path) -> None:
    for what in ("numbers.toml", "runs/numbers", "runs/numbers/averaged"):
        values = json.loads(nmt("info", what, "--json", folder=trained).stdout)
        assert values["parameters"] == 139_328
        assert values["batch_tokens"] == 1024
        assert values["updates"] == 480
    assert b"139,328" in nmt("info", "runs/numbers", folder=trained).stdout


QUICK = sets(
    "train.updates=12",
    "train.adam_epsilon=1e-4",
    "model.dropout=0.0",
    "train.valid_bleu_sentences=0",
    "train.best_metric=nll",
)
"""Adam's epsilon of 1e-9 would make whole steps of rounding where the true gradient is zero, as for the keys' biases."""


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """A quick run of one rank, each update in one micro-batch."""
    nmt("train", "numbers.toml", "--run", "runs/whole", *QUICK, folder=place)
    return place / "runs/whole"


def largest_difference(one: Path, other: Path) -> float:
    """Of the last checkpoints' weights."""
    a, b = (load_file(run / "last/model.safetensors") for run in (one, other))
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def test_two_ranks_train_the_same_weights_as_one(place: Path, whole: Path) -> None:
    nmt("train", "numbers.toml", "--run", "runs/two", "--devices", "2", *QUICK, folder=place)
    assert largest_difference(whole, place / "runs/two") < 2e-5
    losses = [[r["loss"] for r in records(run) if r["type"] == "train"] for run in (whole, place / "runs/two")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_micro_batches_change_nothing_but_rounding(place: Path, whole: Path) -> None:
    nmt("train", "numbers.toml", "--run", "runs/cut", "--set", "train.micro_batch_tokens=128", *QUICK, folder=place)
    assert largest_difference(whole, place / "runs/cut") < 2e-5


def test_separate_vocabularies_and_the_other_architectures_train_and_translate(place: Path) -> None:
    options = sets(
        "data.joint_vocab=false",
        "data.vocab_size=60",
        "model.tie_embeddings=false",
        "model.norm=pre",
        "model.positions=learned",
    )
    nmt("preprocess", "numbers.toml", "--data-dir", ".", "--out", "data/separate", *options, folder=place)
    nmt(
        "train",
        "numbers.toml",
        "--data",
        "data/separate",
        "--run",
        "runs/separate",
        *options,
        "--set",
        "train.updates=20",
        folder=place,
    )
    out = nmt("translate", "--model", "runs/separate", folder=place, text=b"one two.\n\nthree\n").stdout
    assert out.count(b"\n") == 3
    assert out.split(b"\n")[1] == b""


# --- faults: a clear error, the right exit code, no traceback ---


def error_of(*arguments: str | Path, folder: Path, code: int = 1, text: bytes = b"") -> str:
    return " ".join(nmt(*arguments, folder=folder, code=code, text=text).stderr.decode().split())


def test_missing_shards_are_told_with_the_command_that_makes_them(tmp_path: Path) -> None:
    assert "nmt preprocess" in error_of("train", folder=tmp_path)


def test_a_missing_recipe_file(tmp_path: Path) -> None:
    assert "cannot read recipe 'none.toml'" in error_of("train", "none.toml", folder=tmp_path)


def test_an_unknown_key_names_the_nearest(place: Path) -> None:
    assert "Did you mean 'batch_tokens'?" in error_of(
        "train", "numbers.toml", "--set", "train.batch_token=3", folder=place
    )


def test_recipe_and_shards_that_do_not_match(place: Path) -> None:
    message = error_of("train", "numbers.toml", "--run", "runs/other", "--set", "data.vocab_size=81", folder=place)
    assert "vocab_size: the shards have 80, the recipe 81" in message


def test_validation_pairs_beyond_the_longest_position_are_left_out_and_told(place: Path) -> None:
    options = sets("model.max_positions=9", "data.max_length=8", "train.updates=2", "train.valid_bleu_sentences=4")
    nmt("preprocess", "numbers.toml", "--data-dir", ".", "--out", "data/short", *options, folder=place)
    done = nmt("train", "numbers.toml", "--data", "data/short", "--run", "runs/short", *options, folder=place)
    assert b"longer than model.max_positions = 9" in done.stderr


def test_a_memory_limit_is_planned_for_and_named_when_too_small(place: Path) -> None:
    message = error_of("train", "numbers.toml", "--run", "runs/tight", "--memory-limit", "64MiB", folder=place)
    assert "does not fit into 0.1 GiB" in message
    assert "--memory-limit" in message
    assert "no size of memory" in error_of("train", "numbers.toml", "--memory-limit", "plenty", folder=place, code=2)
    nmt(
        "train",
        "numbers.toml",
        "--run",
        "runs/roomy",
        "--memory-limit",
        "4GiB",
        "--set",
        "train.updates=2",
        folder=place,
    )


def test_a_loss_that_is_not_finite_stops_with_update_and_batch(place: Path) -> None:
    options = sets(
        "train.lr_factor=1e6", "train.adam_beta2=0.0", "train.adam_epsilon=1e-16", "train.checkpoint_every=1"
    )
    message = error_of("train", "numbers.toml", "--run", "runs/nan", *options, folder=place)
    assert re.search("the gradient of .* is not finite at update", message)
    assert "pairs of up to" in message
    assert "is saved in" in message


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert "no model at 'runs/latest'" in error_of("translate", folder=tmp_path, text=b"one\n")


def test_tensorboard_without_its_package(place: Path) -> None:
    pytest.importorskip("torch")
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        assert "pip install 'tensorboard>=2.16'" in error_of(
            "train", "numbers.toml", "--run", "runs/board", "--tensorboard", folder=place, code=2
        )
    else:
        pytest.skip("tensorboard is installed")
