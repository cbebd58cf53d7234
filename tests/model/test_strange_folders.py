"""Model folders from anybody: damaged, or made to do harm with hashes that fit. They load, or an NmtError says why not."""

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
from safetensors.torch import load, load_file, save, save_file
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.data.shards import read_index
from nmt_cli.data.tokenizer import Tokenizer
from nmt_cli.errors import NmtError
from nmt_cli.storage.files import sha256

HUGE = 1 << 32
"""Size of a sparse file, in bytes."""
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.model"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_untrained(tmp_path / "model")


def vouch(folder: Path) -> None:
    """Let config.json agree with the other files."""
    names = json.loads((folder / "config.json").read_text())["sha256"]
    sealed.change(folder / "config.json", sha256={name: sha256(folder / name) for name in names})


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


@pytest.mark.parametrize("name", [TOKENIZER, "metrics.json", WEIGHTS])
def test_a_file_that_is_needed_and_not_listed_is_refused(folder: Path, name: str) -> None:
    hashes = json.loads((folder / "config.json").read_text())["sha256"]
    sealed.change(folder / "config.json", sha256={key: value for key, value in hashes.items() if key != name})
    assert refusals(folder).count("config.json' is damaged: sha256 lists") == 2


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


def run_of(folder: Path) -> Path:
    """Make a run whose average is the model in `folder`, and whose last checkpoint is a copy."""
    run = folder.parent / "run"
    run.mkdir()
    shutil.copytree(folder, run / "last")
    return folder.rename(run / "averaged")


READERS: dict[str, Callable[[Path], tuple[Path, Callable[[], object]]]] = {
    "config.json": lambda folder: (folder / "config.json", lambda: nmt.info(folder)),
    "metrics.json": lambda folder: (run_of(folder) / "metrics.json", lambda: nmt.info(folder.parent / "run")),
    "metrics.jsonl": lambda folder: (folder / "metrics.jsonl", lambda: nmt.Run(folder).records),
    "index.json": lambda folder: (folder / "index.json", lambda: read_index(folder)),
    "tokenizer": lambda folder: (folder / TOKENIZER, lambda: Tokenizer.load(folder / TOKENIZER)),
}
"""A file of a folder, and a function that reads it."""


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


KINDS: dict[str, Callable[[Path], object]] = {
    "huge": sparse,
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_huge_or_not_regular_is_refused_and_not_waited_for(folder: Path, name: str, kind: str) -> None:
    path, read = READERS[name](folder)
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    with pytest.raises(NmtError, match=rf"{HUGE:,} bytes, expected at most|not a regular file|Is a directory") as said:
        read()
    assert str(path) in str(said.value)


def stored(header: bytes | dict[str, Any], data: bytes = b"") -> bytes:
    """Return a safetensors file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


UNFIT, DAMAGED = "do not fit the recipe", "not a safetensors file"
EMBEDDINGS = "embeddings.shared"
Change = Callable[[bytes], bytes]


def other(content: bytes) -> Change:
    return lambda _: content


def one(dtype: str, shape: list[int], size: int) -> Change:
    """A weights file of one array."""
    return other(stored({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}, bytes(size)))


def in_dtype(dtype: torch.dtype) -> Change:
    return lambda data: save({name: array.to(dtype) for name, array in load(data).items()})


def with_name(name: str) -> Change:
    return lambda data: save({**load(data), name: torch.ones(1)})


def size(said: int, zeros: int = 0) -> Change:
    """Return a function that changes what a weights file says of the header's size."""
    return lambda data: said.to_bytes(8, "little") + (bytes(zeros) or data[8:])


def repeated(data: bytes) -> bytes:
    """Return a weights file with a second entry of an array, the numbers of another one."""
    end = 8 + int.from_bytes(data[:8], "little")
    other = json.dumps(json.loads(data[8:end])["encoder.0.feed_forward.outer.bias"])
    return stored(data[8:end].rstrip()[:-1] + f', "{EMBEDDINGS}": {other}}}'.encode(), data[end:])


WRONG: dict[str, tuple[Change, str]] = {
    "8 bits": (in_dtype(torch.float8_e4m3fn), "F8_E4M3, expected F32"),
    "16 bits": (in_dtype(torch.bfloat16), "BF16, expected F32"),
    "no numbers": (one("F32", [0, 1 << 62], 0), UNFIT),
    "too many numbers": (one("F32", [1 << 62] * 2, 0), DAMAGED),
    "sub-byte": (one("F4", [2], 1), UNFIT),
    "unknown": (one("\x1b[2J", [], 4), "unknown variant"),
    "nested": (other(stored(b"[" * 100_000)), DAMAGED),
    "empty": (other(b""), DAMAGED),
    "control character": (with_name("\x1b[2J"), UNFIT),
    "direction": (with_name("encoder.0.\u202e"), UNFIT),
    "long name": (with_name("x" * 10_000), UNFIT),
    "turned": (lambda data: save({**load(data), EMBEDDINGS: torch.zeros(32, 330)}), "(32, 330)"),
    "repeated": (repeated, DAMAGED),
    "cut": (lambda data: data[:-4], DAMAGED),
    "huge header": (size(1 << 63), "a header of 9,223,372,036,854,775,808 bytes"),
    "long header": (size(100_000_000, 100_000_000), "a header of 100,000,000 bytes"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_weights_file_that_is_wrong_is_refused_and_shown_safely(folder: Path, fault: str) -> None:
    change, said = WRONG[fault]
    (folder / WEIGHTS).write_bytes(change((folder / WEIGHTS).read_bytes()))
    vouch(folder)
    text = refusals(folder)
    assert text.count(f"{str(folder)!r} does not load: ") == 2
    assert said in text
    assert not {"\x1b", "\u202e"} & set(text)
    assert len(text) < 2000


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


CAT = "▁cat".encode()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda model: model.replace(CAT, b"\xff" * 6), id="not UTF-8"),
        pytest.param(lambda model: model + b"\x10\x01", id="no settings"),
        pytest.param(lambda model: model.replace(CAT, "▁dog".encode()), id="duplicate"),
        pytest.param(lambda model: model.replace(b"\x18\x02", b"\x18\x01", 1), id="no unk"),
    ],
)
def test_a_tokenizer_of_nonsense_is_refused(folder: Path, change: Change) -> None:
    model = (folder / TOKENIZER).read_bytes()
    assert change(model) != model
    (folder / TOKENIZER).write_bytes(change(model))
    vouch(folder)
    said = refusals(folder)
    assert said.count("is not a SentencePiece model") + said.count("the special ids pad = 0, unk = -1") == 2
    assert str(folder) in said


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


GONE = object()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("source_vocab", 10**30, ""),
        ("source_vocab", GONE, ""),
        ("source_vocab", "text", ""),
        ("source_vocab", 331, "331"),
        ("safe_length", 2**70, ""),
        ("format_version", 99, "Install a newer nmt"),
        ("recipe.model.d_model", 10**12, ""),
        ("recipe.model.dropout", "0.1", ""),
        ("recipe.model.gates", 3, "model.gates"),
        ("recipe.model.d_ff", 63, "feed_forward.inner.weight has "),
        ("recipe.model.decoder_layers", 2, "decoder.1"),
        ("recipe.model.positions", "learned", "source_positions.weight"),
        ("recipe.data.source_language", ["en"], ""),
        ("recipe.decode.beam", 10**9, ""),
        ("recipe", GONE, ""),
        ("sha256", {"../../x": ""}, ""),
        ("sha256", GONE, ""),
    ],
)
def test_a_value_that_is_not_this_models_is_refused_by_name(folder: Path, key: str, value: object, said: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    *above, last = key.split(".")
    table = config
    for part in above:
        table = table[part]
    table[last] = value
    if value is GONE:
        del table[last]
    sealed.write(folder / "config.json", config)
    text = refusals(folder)
    assert text.count(said or key.removeprefix("recipe.")) >= 2
    assert text.count(str(folder)) >= 2


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
    """Return the file with bytes replaced, removed, added or repeated, most often near its head."""
    content = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 20])):
        start = rng.randrange(min(len(content), rng.choice([100, 3000, len(content)])))
        new = rng.choice([rng.randbytes(1), b"\0", b"\x7f", rng.randbytes(8), bytes(content[:8])])
        content[start : start + rng.choice([0, 1, 1, 8, len(content)])] = new
    return bytes(content)


@pytest.mark.slow
def test_a_folder_with_any_change_loads_or_is_refused(tmp_path: Path) -> None:
    whole = write_untrained(tmp_path / "whole")
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
