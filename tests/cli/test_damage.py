"""What was damaged is noticed before it is used, by every command that reads it; what a training uses is not replaced."""

import json
import os
import random
import shutil
from pathlib import Path

import forked
import pytest
import sealed
from forked_ranks import FORKED
from waiting import wait_until

pytestmark = pytest.mark.slow

FIXTURE = Path(__file__).parents[1] / "fixtures/format_1"
PREPROCESS = ["preprocess", "small.toml", "--data-dir", ".", "--out", "shards", "--workers", "1"]
TRAIN = ["train", "small.toml", "--data", "shards", "--threads", "1", "--run", "run", "--set"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards, a run of two checkpoints and an average in the newest format."""
    folder = tmp_path_factory.mktemp("damage")
    rng, words = random.Random(1), {"one": "eins", "two": "zwei", "three": "drei"}
    for split, count in (("train", 60), ("valid", 5)):
        drawn = [[rng.choice(list(words)) for _ in range(3)] for _ in range(count)]
        (folder / f"{split}.en").write_text("".join(f"{' '.join(line)}\n" for line in drawn))
        (folder / f"{split}.de").write_text("".join(f"{' '.join(words[word] for word in line)}\n" for line in drawn))
    (folder / "small.toml").write_text(
        (FIXTURE / "count.toml")
        .read_text()
        .replace("vocab_size = 80", "vocab_size = 26")
        .replace("checkpoint_every = 500", "checkpoint_every = 2")
        .replace("valid_every = 500", "valid_every = 2")
    )
    forked.nmt(folder, *PREPROCESS)
    forked.nmt(folder, *TRAIN, "train.updates=4")
    forked.nmt(folder, "average", "run")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "place", symlinks=True)


def train(place: Path, updates: int, code: int = 0, *options: str) -> str:
    return " ".join(forked.nmt(place, *TRAIN, f"train.updates={updates}", *options, code=code).split())


def flip(path: Path) -> None:
    """Change one bit in the middle, and give the file its time back."""
    data, times = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


MODEL = ["config.json", "metrics.json", "model.safetensors", "tokenizer.model"]
SPLITS = ["train-00000.safetensors", "valid-00000.safetensors", "valid.source.txt", "valid.target.txt"]
FILES = {
    "shards": ["index.json", *SPLITS, "tokenizer.model"],
    "run/checkpoints/step-00000004": [*MODEL, "state.json", "state.safetensors"],
    "run/averaged": MODEL,
}
READERS = {
    "shards": [[*TRAIN, "train.updates=6"], ["info", "shards", "--verify"]],
    "run/checkpoints/step-00000004": [[*TRAIN, "train.updates=6"], ["info", "run", "--verify"]],
    "run/averaged": [
        ["translate", "--model", "run", "--input", "in.en"],
        ["info", "run"],
        ["export", "run", "--to", "ctranslate2", "--out", "ct2"],
        ["attend", "one", "--model", "run", "--json"],
        ["score", "--model", "run", "--src", "in.en", "--ref", "in.en"],
    ],
}
"""Commands that read a folder of FILES."""
UNCHECKED = {".lock", "metrics.jsonl", "train.log"}
"""Files of a run that are appended to. Training compares the size of the records with that of the last checkpoint."""


def test_every_file_is_here(made: Path) -> None:
    for folder, files in FILES.items():
        assert {str(path.relative_to(made / folder)) for path in (made / folder).rglob("*")} == set(files)
    assert {path.name for path in (made / "run").iterdir() if path.is_file()} == UNCHECKED
    assert {path.name for path in (made / "run/checkpoints").iterdir()} == {"step-00000002", "step-00000004"}


@pytest.mark.parametrize(("folder", "name"), [(folder, name) for folder, files in FILES.items() for name in files])
def test_a_damaged_file_stops_every_command_that_reads_it(folder: str, name: str, place: Path) -> None:
    (place / "in.en").write_text("one two\n")
    path, averages = place / folder / name, "checkpoints" in folder and name in MODEL
    whole, times = path.read_bytes(), path.stat()
    for damage in (flip, cut, Path.unlink):
        damage(path)
        for command in [*READERS[folder], *([["average", "run", "--out", "other"]] if averages else [])]:
            said = forked.nmt(place, *command, code=1)
            gone = damage is Path.unlink and name == "index.json"  # without it, this is no folder of shards
            assert name in said or gone, (damage, command)
            assert "going on" not in said
        path.write_bytes(whole)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_verify_reads_all_and_says_so(place: Path) -> None:
    values = json.loads(forked.run(place, "info", "run", "--verify", "--json").stdout)
    assert [Path(folder).name for folder in values["verified"]] == ["averaged", "step-00000002", "step-00000004"]
    done = forked.run(place, "info", "shards", "--json")
    assert (done.returncode, json.loads(done.stdout)["kind"]) == (0, "shards")
    assert "whole and unchanged" in forked.run(place, "info", "shards", "--verify").stdout.decode()
    assert "--verify checks the files of a folder" in forked.nmt(place, "info", "small.toml", "--verify", code=2)


def test_a_tokenizer_of_another_size_is_refused_though_the_hashes_fit(place: Path) -> None:
    averaged = place / "run/averaged"
    shutil.copy(FIXTURE / "model/tokenizer.model", averaged / "tokenizer.model")
    sealed.again(averaged, "tokenizer.model")
    (place / "in.en").write_text("one two\n")
    said = forked.nmt(place, "translate", "--model", "run", "--input", "in.en", code=1)
    assert "has 80 source and 80 target tokens, what it belongs to has 26 and 26" in " ".join(said.split())


def test_records_that_vanished_are_mentioned_and_training_resumes(place: Path) -> None:
    size = (place / "run/metrics.jsonl").stat().st_size
    (place / "run/metrics.jsonl").unlink()
    assert f"is missing, at the last checkpoint it had {size:,}: records of earlier updates are lost" in train(place, 6)
    (place / "run/metrics.jsonl").write_text("")
    assert "has 0 bytes, at the last checkpoint it had" in train(place, 8)


@pytest.mark.parametrize("value", [None, "text", True])
def test_a_score_that_is_no_number_is_not_the_best(value: object, place: Path) -> None:
    step = place / "run/checkpoints/step-00000004"
    metrics = json.loads((step / "metrics.json").read_text())
    (step / "metrics.json").write_text(json.dumps({**metrics, "chrf": float("nan") if value is None else value}))
    sealed.again(step, "metrics.json")
    said = " ".join(forked.nmt(place, "average", "run", "--best", "1", "--out", "best").split())
    assert "metrics.json' is damaged" in said
    assert "(step-00000002) into best" in said


def test_preprocess_does_not_replace_the_shards_of_a_running_training(place: Path) -> None:
    before = {path.name: path.read_bytes() for path in (place / "shards").iterdir()}
    held = place / "held"
    prelude = f"{FORKED}at_update(2, lambda t: hold({str(held)!r}))"
    options = ("--data", "shards", "--threads", "1", "--run", "long")
    process = forked.start(place, "train", "small.toml", *options, prelude=prelude)
    wait_until(held.exists, by=process)
    command = (*PREPROCESS, "--set", "data.vocab_size=27", "--force")
    said = " ".join(forked.nmt(place, *command, code=1).split())
    assert "'shards'" in said
    assert {path.name: path.read_bytes() for path in (place / "shards").iterdir()} == before
    process.kill()
    process.communicate()
    forked.nmt(place, *command)  # the lock ended with its process


def test_a_run_resumes_with_the_same_text_in_other_shards(place: Path) -> None:
    """Of another text or tokenizer they are refused: test_same_text.py."""
    forked.nmt(place, *PREPROCESS, "--force", "--set", "data.shard_pairs=7")
    train(place, 6, 0, "--set", "data.shard_pairs=7")
