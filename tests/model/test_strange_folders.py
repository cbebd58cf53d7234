"""Model folders from anybody: damaged, or made to do harm with hashes that fit. They load, or an NmtError says why not."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forked
import pytest
import sealed
import torch
from safetensors.torch import load_file, save_file
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.data.tokenizer import Tokenizer
from nmt_cli.errors import DataError, ModelError, NmtError

HUGE = 1 << 32
"""Size of a sparse file, in bytes."""
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.model"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def vouch(folder: Path) -> None:
    """Let config.json agree with the other files."""
    names = json.loads((folder / "config.json").read_text())["sha256"]
    sealed.change(
        folder / "config.json",
        sha256={name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names},
    )


def translated(folder: Path, precision: str = "fp32") -> list[str]:
    with nmt.load(folder, device="cpu", devices=1, precision=precision) as translator:
        return [line.text for line in translator.translate(["the cat sees a dog."])]


def refusals(folder: Path) -> str:
    """Return what `info` and `load` say, both of which must refuse the folder."""
    said = []
    for use in (nmt.info, translated):
        with pytest.raises(NmtError) as refused:
            use(folder)
        said.append(str(refused.value))
    return "\n".join(said)


# Files that config.json does not list


@pytest.mark.parametrize("name", [TOKENIZER, "metrics.json", WEIGHTS])
def test_a_file_that_is_needed_and_not_listed_is_refused(folder: Path, name: str) -> None:
    hashes = json.loads((folder / "config.json").read_text())["sha256"]
    sealed.change(folder / "config.json", sha256={key: value for key, value in hashes.items() if key != name})
    said = refusals(folder)
    assert "config.json' is damaged: sha256 lists" in said
    assert said.count("Restore the folder from a copy") == 2


def test_a_tokenizer_beside_the_listed_ones_is_not_read(folder: Path) -> None:
    before, hashes = translated(folder), json.loads((folder / "config.json").read_text())["sha256"]
    digest = hashes.pop(TOKENIZER)
    for side in ("source", "target"):
        shutil.copy(folder / TOKENIZER, folder / f"tokenizer.{side}.model")
        hashes[f"tokenizer.{side}.model"] = digest
    sealed.change(folder / "config.json", sha256=hashes)
    (folder / TOKENIZER).write_bytes(b"another one")
    assert translated(folder) == before
    assert nmt.info(folder)["source_vocab"] == 330


# Sizes, and files that are not regular


def run_of(folder: Path) -> Path:
    """Make a run whose average is the model in `folder`, and whose last checkpoint is a copy."""
    run = folder.parent / "run"
    run.mkdir()
    shutil.copytree(folder, run / "last")
    return folder.rename(run / "averaged")


def describe(path: Path) -> Callable[[], object]:
    return lambda: nmt.info(path)


READERS: dict[str, Callable[[Path], tuple[Path, Callable[[], object]]]] = {
    "config.json": lambda folder: (folder / "config.json", describe(folder)),
    "metrics.json": lambda folder: (run_of(folder) / "metrics.json", describe(folder.parent / "run")),
    "metrics.jsonl": lambda folder: (folder / "metrics.jsonl", lambda: nmt.Run(folder).records),
    "index.json": lambda folder: (folder / "index.json", describe(folder)),
    "tokenizer": lambda folder: (folder / TOKENIZER, lambda: Tokenizer.load(folder / TOKENIZER)),
}
"""A file of a folder, and a function that reads it."""


@pytest.mark.parametrize("name", READERS)
def test_a_huge_file_is_refused_by_its_size(folder: Path, name: str) -> None:
    path, read = READERS[name](folder)
    path.touch()
    os.truncate(path, HUGE)
    with pytest.raises((ModelError, DataError), match=rf"it has {HUGE:,} bytes, expected at most") as refused:
        read()
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("name", [name for name in READERS if name != "index.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_a_file_that_is_not_regular_is_refused_and_not_waited_for(folder: Path, name: str, kind: str) -> None:
    path, read = READERS[name](folder)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises((ModelError, DataError), match=r"it is not a regular file|Is a directory") as refused:
        read()
    assert str(path) in str(refused.value)


# Weights


def stored(header: bytes | dict[str, Any], data: bytes = b"") -> bytes:
    """Return a safetensors file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.float8_e4m3fn, "F8_E4M3"), (torch.bfloat16, "BF16"), (torch.float16, "F16"), (torch.complex64, "C64")],
)
def test_weights_of_another_dtype_are_refused(folder: Path, dtype: torch.dtype, name: str) -> None:
    weights = {key: value.to(dtype) for key, value in load_file(folder / WEIGHTS).items()}
    save_file(weights, folder / WEIGHTS)
    vouch(folder)
    assert refusals(folder).count(f" has dtype {name}, expected F32") == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (stored({"x": {"dtype": "F32", "shape": [0, 1 << 62], "data_offsets": [0, 0]}}), "do not fit the recipe"),
        (stored({"x": {"dtype": "F32", "shape": [1 << 62] * 2, "data_offsets": [0, 0]}}), "not a safetensors file"),
        (stored({"x": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, b"\0"), "do not fit the recipe"),
        (
            stored({"x": {"dtype": "F32", "shape": [1] * 100, "data_offsets": [0, 4]}}, b"\0" * 4),
            "do not fit the recipe",
        ),
        (stored({"x": {"dtype": "\x1b[2J", "shape": [], "data_offsets": [0, 4]}}, b"\0" * 4), "unknown variant"),
        (stored(b"\xff{nonsense"), "not a safetensors file"),
        (stored(b"[" * 100_000), "not a safetensors file"),
        (b"", "not a safetensors file"),
        ((3 << 30).to_bytes(8, "little") + b"{}", "a header of 3,221,225,472 bytes, expected at most"),
    ],
    ids=["no numbers", "overflow", "sub-byte", "dimensions", "unknown", "nonsense", "nested", "empty", "long header"],
)
def test_a_weights_file_of_nonsense_is_refused(folder: Path, content: bytes, said: str) -> None:
    (folder / WEIGHTS).write_bytes(content)
    vouch(folder)
    text = refusals(folder)
    assert text.count(said) == 2
    assert "\x1b" not in text


def lying(name: str, change: Callable[[dict[str, Any], str], object]) -> Callable[[bytes], bytes]:
    """Return a function that changes the entry of a tensor in the header of a weights file."""

    def changed(data: bytes) -> bytes:
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:end])
        change(header, name)
        return stored(header, data[end:])

    return changed


def offsets(change: Callable[[int, int], object]) -> Callable[[bytes], bytes]:
    """Return a function that changes where a weights file says that a tensor is."""
    return lying(
        "embeddings.shared",
        lambda header, name: header[name].update(data_offsets=change(*header[name]["data_offsets"])),
    )


def repeated(data: bytes) -> bytes:
    """Return a weights file with a second entry of a tensor, the numbers of another one."""
    end = 8 + int.from_bytes(data[:8], "little")
    other = json.loads(data[8:end])["encoder.0.feed_forward.outer.bias"]
    return stored(
        data[8:end].rstrip()[:-1] + b', "embeddings.shared": ' + json.dumps(other).encode() + b"}", data[end:]
    )


DAMAGED = "not a safetensors file, or a damaged one"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (offsets(lambda begin, end: [begin - 128, end - 128]), DAMAGED),
        (offsets(lambda begin, end: [begin + (1 << 40), end + (1 << 40)]), DAMAGED),
        (offsets(lambda begin, end: [(1 << 64) - 8, (1 << 64) - 4]), DAMAGED),
        (offsets(lambda begin, end: [-8, end]), DAMAGED),
        (offsets(lambda begin, end: [end, begin]), DAMAGED),
        (offsets(lambda begin, end: [begin + 0.5, end]), DAMAGED),
        (offsets(lambda begin, end: [str(begin), str(end)]), DAMAGED),
        (offsets(lambda begin, end: [begin, end, end]), DAMAGED),
        (lying("embeddings.shared", lambda header, name: header[name].update(shape=[330, 31])), DAMAGED),
        (lying("embeddings.shared", lambda header, name: header[name].update(shape=[-330, -32])), DAMAGED),
        (lying("embeddings.shared", lambda header, name: header[name].update(shape=[1 << 63, 1 << 63])), DAMAGED),
        (lying("embeddings.shared", lambda header, name: header[name].update(shape=[32, 330])), "(32, 330)"),
        (lying("embeddings.shared", lambda header, name: header.update({name: None})), DAMAGED),
        (repeated, DAMAGED),
        (lambda data: data[:-4], DAMAGED),
        (lambda data: data + bytes(4), DAMAGED),
        (lambda data: data[:200], DAMAGED),
        (lambda data: len(data).to_bytes(8, "little") + data[8:], DAMAGED),
        (lambda data: (1 << 63).to_bytes(8, "little") + data[8:], "a header of 9,223,372,036,854,775,808 bytes"),
        (lambda data: (100_000_000).to_bytes(8, "little") + bytes(100_000_000), "a header of 100,000,000 bytes"),
    ],
    ids=[
        "overlap", "beyond", "overflow", "negative", "reversed", "half", "text", "three", "other shape",
        "negative shape", "huge shape", "turned", "null", "repeated", "cut", "longer", "cut header", "header beyond",
        "huge header", "long header",
    ],
)  # fmt: skip
def test_a_weights_file_whose_header_lies_is_refused(folder: Path, change: Callable[[bytes], bytes], said: str) -> None:
    """Each command says which file is wrong, how, and what to do."""
    (folder / WEIGHTS).write_bytes(change((folder / WEIGHTS).read_bytes()))
    vouch(folder)
    for command in (("translate", "--model", folder), ("info", folder)):
        text = forked.nmt(folder, *command, code=1)
        assert said in text
        assert text.startswith(f"error: {str(folder)!r} does not load: ")
        assert text.endswith("Restore the folder from a copy, or take another checkpoint.\n")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_and_scales_that_are_no_numbers_give_an_error_and_no_translation(folder: Path, value: float) -> None:
    small = nmt.quantize(folder, folder.parent / "int8").path
    for model, ending in ((folder, ".bias"), (small, ".scales")):
        weights = load_file(model / WEIGHTS)
        for name in weights:
            if name.endswith(ending):
                weights[name].fill_(value)
        save_file(weights, model / WEIGHTS)
        vouch(model)
        with pytest.raises(NmtError, match="the model's output is not a number"):
            translated(model, "auto")


@pytest.mark.parametrize("name", ["\x1b[2J", "encoder.0.\u202e", "x" * 10_000])
def test_a_name_that_no_array_has_is_refused_and_shown_safely(folder: Path, name: str) -> None:
    save_file({**load_file(folder / WEIGHTS), name: torch.ones(1)}, folder / WEIGHTS)
    vouch(folder)
    said = refusals(folder)
    assert not {"\x1b", "\u202e"} & set(said)
    assert len(said) < 2000


# Tokenizers


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: model.replace("▁cat".encode(), b"\xff" * 6), "is not a SentencePiece model, or a damaged one"),
        (lambda model: model + b"\x10\x01", "is not a SentencePiece model, or a damaged one"),
        (lambda model: b"\xff" * 1000, "is not a SentencePiece model, or a damaged one"),
        (lambda model: model.replace("▁cat".encode(), "▁dog".encode()), "is not a SentencePiece model, or a damaged"),
        (lambda model: model.replace(b"\x18\x02", b"\x18\x01", 1), "has the special ids pad = 0, unk = -1"),
    ],
    ids=["not UTF-8", "no settings", "no message", "duplicate", "no unk"],
)
def test_a_tokenizer_of_nonsense_is_refused(folder: Path, change: Callable[[bytes], bytes], said: str) -> None:
    model = (folder / TOKENIZER).read_bytes()
    assert change(model) != model
    (folder / TOKENIZER).write_bytes(change(model))
    vouch(folder)
    text = refusals(folder)
    assert text.count(said) == 2
    assert str(folder) in text


# Runs


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder)
    return folder


SPOILS: dict[str, Callable[[Path], object]] = {
    "without config.json": lambda averaged: (averaged / "config.json").unlink(),
    "empty": lambda averaged: emptied(averaged).mkdir(),
    "a file": lambda averaged: emptied(averaged).touch(),
    "a link to nothing": lambda averaged: emptied(averaged).symlink_to("gone"),
    "damaged": lambda averaged: (averaged / "config.json").write_bytes(b"{"),
}


@pytest.mark.parametrize("kind", SPOILS)
def test_a_damaged_average_is_refused_and_no_checkpoint_takes_its_place(folder: Path, kind: str) -> None:
    averaged = run_of(folder)
    SPOILS[kind](averaged)
    said = refusals(averaged.parent)
    assert "averaged" in said
    assert "Restore" in said
    if kind != "damaged":
        assert f"or name {str(averaged.parent / 'last')!r}" in said
    if not averaged.is_dir() or averaged.is_symlink():
        averaged.unlink()
    else:
        shutil.rmtree(averaged)
    assert nmt.info(averaged.parent)["model"] == str(averaged.parent / "last")  # an average that is absent is no damage


@pytest.mark.parametrize("averaged", [5, "step-1", None, "9" * 5000])
def test_an_average_with_other_values_in_its_metrics_is_read_or_refused(folder: Path, averaged: object) -> None:
    path = run_of(folder)
    (path / "metrics.json").write_text(json.dumps({"averaged": averaged, "last_checkpoint": f"step-{'9' * 5000}"}))
    vouch(path)
    assert nmt.info(path.parent)["model"] == str(path)


# Values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source_vocab", 10**30),
        ("source_vocab", -1),
        ("target_vocab", 0),
        ("parameters", -1),
        ("safe_length", 2**70),
        ("recipe.model.d_model", 10**12),
        ("recipe.model.encoder_layers", -1),
        ("recipe.model.num_heads", 0),
        ("recipe.model.dropout", "0.1"),
        ("recipe.data.source_language", ["en"]),
        ("recipe.decode.beam", 10**9),
        ("recipe", []),
        ("sha256", {"../../x": ""}),
    ],
)
def test_a_value_that_no_model_has_is_refused_by_name(folder: Path, key: str, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    *above, last = key.split(".")
    table = config
    for part in above:
        table = table[part]
    table[last] = value
    sealed.write(folder / "config.json", config)
    assert refusals(folder).count(key.removeprefix("recipe.")) == 2


PEAK = """
import resource
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
atexit.register(lambda before: print(peak() - before), peak())
"""
"""The process says at its end by how many KiB its peak of memory has grown."""


def test_a_model_that_is_larger_than_its_weights_is_refused_before_it_takes_memory(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["recipe"]["model"] |= {"d_model": 1 << 16, "max_positions": 1 << 12}
    sealed.write(folder / "config.json", config)
    for command in (["info", "."], ["translate", "--model", "."]):
        done = forked.run(folder, *command, text=b"the cat.\n", prelude=PEAK)
        said = " ".join(done.stderr.decode().split())
        assert re.search(r"embeddings\.shared has (shape|the dimensions) \(330, 32\), expected \(330, 65536\)", said)
        assert (done.returncode, int(done.stdout) < 1 << 19) == (1, True)  # the table of positions has 1 GiB


# Anything


VALUES: list[Any] = [None, True, 0, -1, 10**12, 2**64, 1e308, "", "x", "\x1b[31m\n\u202e", "\ud800", "9" * 400]
VALUES += [[], {}, ["x"], {"x": 1}, 0.5]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each dictionary or list in `value`, with each of its keys."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    for key, inner in items:
        yield value, key
        yield from places(inner)


def changed_json(rng: random.Random, data: bytes) -> dict[str, Any]:
    """Return the object with a value replaced, removed, or put under another key."""
    values: dict[str, Any] = json.loads(data)
    table, key = rng.choice(list(places(values)))
    how = rng.randrange(5)
    if how == 0:
        del table[key]
    elif how == 1 and isinstance(table, dict):
        table[rng.choice(["x", "\x1b[1m", TOKENIZER])] = table.pop(key)
    else:
        table[key] = rng.choice(VALUES)
    return values


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return the file with bytes flipped, replaced, removed, added or repeated, most often near its head."""
    content = bytearray(data)
    how = rng.randrange(5)
    for _ in range(rng.choice([1, 1, 2, 20])):
        start = rng.randrange(min(len(content), rng.choice([100, 3000, len(content)])))
        if how == 0:
            content[start] ^= 1 << rng.randrange(8)
        elif how == 1:
            content[start] = rng.choice([0, 127, 128, 255])
        elif how == 2:
            content[start : start + rng.choice([1, 8, len(content)])] = b"\0"
        elif how == 3:
            content[start:start] = rng.randbytes(rng.choice([1, 8]))
        else:
            content[start : start + 8] = content[:8]
    return bytes(content)


@pytest.mark.slow
def test_a_folder_with_any_change_loads_or_is_refused(whole: Path, tmp_path: Path) -> None:
    rng, outcomes = random.Random(1), {"loaded": 0, "refused": 0}
    scores = {"bleu": 12.5, "update": 5, "bleu_signature": "x", "averaged": ["step-00000001"]}
    for number in range(250):
        folder = shutil.copytree(whole, tmp_path / str(number))
        (folder / "metrics.json").write_text(json.dumps(scores))
        vouch(folder)
        name = rng.choice(["config.json", "config.json", "metrics.json", WEIGHTS, TOKENIZER, TOKENIZER])
        path = folder / name
        if name.endswith(".json") and rng.random() < 0.8:
            sealed.write(path, changed_json(rng, path.read_bytes()))
        else:
            path.write_bytes(changed_bytes(rng, path.read_bytes()))
        if name != "config.json" and rng.random() < 0.9:
            vouch(folder)
        for use in (nmt.info, translated):
            try:
                use(folder)
                outcomes["loaded"] += 1
            except NmtError:
                outcomes["refused"] += 1
            except BaseException as error:
                error.add_note(f"variation {number}: {name}")
                raise
        shutil.rmtree(folder)
    assert min(outcomes.values()) > 50, outcomes
