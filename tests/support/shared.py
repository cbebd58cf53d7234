"""Folders that several test files start from, made once per session by whichever worker comes first; and what two runs must
have in common: all, to the bit.

    shared(factory, name, build)       the session's folder of that name
    number_words(factory, folder)      copies into `folder` what `prepare` makes
    prepare(folder)                    text of number words, the recipe numbers.toml of a small model with dropout, its shards
    differences(run, reference)        in what two finished runs differ
    run_errors(run)                    what is not whole in a run that was killed
"""

import fcntl
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest

from nmt_cli.errors import NmtError
from nmt_cli.storage.files import follow_links
from nmt_cli.training.checkpoint import Checkpoint

SOURCE = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TARGET = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
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
decoder_layers = 1
d_model = 32
d_ff = 64
num_heads = 2
dropout = 0.1
norm = "pre"
max_positions = 64

[train]
batch_tokens = 512
updates = 1200
warmup = 60
lr_factor = 0.4
precision = "fp32"
log_every = 10
valid_every = 20
valid_bleu_sentences = 20
best_metric = "bleu"
patience = 1000
checkpoint_every = 15
keep = 4
keep_best = 3
average = 3
"""
TINY = """
[data]
train_source = ["text"]
train_target = ["text"]
valid_source = ["text"]
valid_target = ["text"]
vocab_size = 300
max_length = 60

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 16
d_ff = 32
num_heads = 2
max_positions = 64

[train]
batch_tokens = 512
updates = 2
warmup = 1
valid_every = 1
"""
"""A recipe of two updates whose only text, `text`, is validation text too."""
CLOCKS = ("seconds", "tokens_per_second", "began")
HASHES = ("content_sha256", "metrics.json", "config.json")


def shared(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], object]) -> Path:
    """Return the session's folder `name`, which all workers read; `build` fills it where it is missing."""
    base = factory.getbasetemp()
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, aside = session / f"shared-{name}", session / f"partial-{name}"
    with (session / f"{name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(aside, ignore_errors=True)  # of a build that failed
            aside.mkdir()
            build(aside)
            aside.rename(folder)
    return folder


def number_words(factory: pytest.TempPathFactory, folder: Path) -> None:
    """Copy into `folder` what `prepare` makes: text of number words, the recipe numbers.toml, and its shards."""
    shutil.copytree(shared(factory, "number-words", prepare), folder, symlinks=True, dirs_exist_ok=True)


def write_text(folder: Path) -> None:
    """Number words of both languages, the first two exchanged in the target's."""
    draw = random.Random(1)
    for split, count in (("train", 3000), ("valid", 60)):
        lines = [[draw.randrange(10) for _ in range(draw.randint(2, 7))] for _ in range(count)]
        for suffix, words, order in (("en", SOURCE, slice(None)), ("de", TARGET, slice(None, None, -1))):
            text = "".join(" ".join(words[d] for d in [*line[:2][order], *line[2:]]) + ".\n" for line in lines)
            (folder / f"{split}.{suffix}").write_text(text, encoding="utf-8")


def prepare(folder: Path) -> None:
    """Text, recipe and shards."""
    write_text(folder)
    (folder / "numbers.toml").write_text(RECIPE, encoding="utf-8")
    forked.nmt(folder, "preprocess", "numbers.toml", "--data-dir", ".")


def timeless(value: Any) -> Any:
    """JSON without its clock fields, and without the hashes of files that have some."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in CLOCKS + HASHES}
    return value


def read_json(path: Path) -> Any:
    return timeless(json.loads(path.read_text(encoding="utf-8")))


def records(run: Path) -> list[Any]:
    """The lines of metrics.jsonl."""
    return [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def state(checkpoint: Path) -> Any:
    """state.json, with the records instead of the bytes that it had: clock fields are not always of one length."""
    values = read_json(checkpoint / "state.json")
    text = (checkpoint.parents[1] / "metrics.jsonl").read_bytes()[: values["progress"].pop("metrics_bytes")]
    return {**values, "records": text.count(b"\n"), "whole": text[-1:] in (b"", b"\n")}


def differences(run: Path, reference: Path) -> list[str]:
    """In what two finished runs differ: a line each."""
    differing = [] if records(run) == records(reference) else ["metrics.jsonl"]
    names = [sorted(path.name for path in (folder / "checkpoints").iterdir()) for folder in (run, reference)]
    if names[0] != names[1]:
        differing.append(f"checkpoints: {', '.join(names[0])} instead of {', '.join(names[1])}")
    differing += [link for link in ("last", "best") if os.readlink(run / link) != os.readlink(reference / link)]
    folders = [f"checkpoints/{name}" for name in names[1] if name in names[0]]
    if (reference / "averaged").is_dir():
        folders.append("averaged")
    for name in folders:
        for file in sorted((reference / name).iterdir()):
            read: Callable[[Path], Any] = Path.read_bytes
            if file.name == "state.json":
                read = lambda path: state(path.parent)  # noqa: E731
            elif file.suffix == ".json":
                read = read_json
            if read(run / name / file.name) != read(file):
                differing.append(f"{name}/{file.name}")
    return differing


def run_errors(run: Path) -> list[str]:
    """What a user would stumble over in a run that was killed: a checkpoint that is not whole, a link to nothing."""
    errors = []
    checkpoints = sorted((run / "checkpoints").glob("step-*"))
    links = [run / link for link in ("last", "best") if (run / link).is_symlink()]
    if checkpoints and run / "last" not in links and len(checkpoints) > 1:
        errors.append("last is missing")
    for folder in [*checkpoints, *links]:
        try:
            Checkpoint(folder, int(follow_links(folder).name.removeprefix("step-"))).verify()
        except (NmtError, OSError, ValueError, KeyError) as error:
            errors.append(f"{folder.name}: {error}")
    return errors
