"""Every sentence of a long line comes back as if it stood alone. The model folder says which lines are long."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import sealed
from in_process import printed, refused
from untrained import sentence, write_untrained, write_untrained_parser

from nmt_cli.model.folder_files import UNKNOWN_SAFE_LENGTH, read_config

SAFE = 20


def with_safe_length(folder: Path, length: int | None, seed: int = 0, **features: Any) -> Path:
    """Write an untrained model with this safe length. None: as an older version wrote it."""
    write_untrained(folder, seed=seed, **features)
    sealed.change(folder / "config.json", safe_length=length, format_version=3 if length else 2)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_safe_length(tmp_path_factory.mktemp("long") / "model", SAFE)


def texts(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [sentence(rng, rng.randint(3, 8)).capitalize() for _ in range(count)]


def translate(lines: list[str], *options: object) -> list[str]:
    text = "".join(f"{line}\n" for line in lines).encode()
    return printed("translate --device cpu --devices 1 --precision fp32", *options, stdin=text).split("\n")[:-1]


@pytest.mark.parametrize(
    "options", [[], ["--beam", 1], ["--sample", "--seed", 3], ["--search", "diverse", "--beam", 4]]
)
def test_every_sentence_comes_back(model: Path, options: list[object]) -> None:
    alone = translate(texts(40), "-m", model, *options)
    assert all(alone)
    lines = [" ".join(texts(40)[:count]) for count in (5, 10, 40)]
    assert translate(lines, "-m", model, *options) == [" ".join(alone[:count]) for count in (5, 10, 40)]


def test_prefix_and_terms_belong_to_the_first_sentence(model: Path) -> None:
    first, *rest = texts(5)
    for option in ("--prefix-column", "--terms-columns"):
        alone = translate([f"{first}\tthe dog", *(f"{text}\t" for text in rest)], "-m", model, option)
        assert translate([f"{' '.join(texts(5))}\tthe dog"], "-m", model, option) == [" ".join(alone)]


def test_a_folder_of_an_older_version_splits_at_the_stated_length(tmp_path: Path) -> None:
    old = with_safe_length(tmp_path / "old", None, max_positions=300)
    values = json.loads((old / "config.json").read_text())
    values["recipe"]["data"]["max_length"] = 200
    sealed.write(old / "config.json", values)
    known = shutil.copytree(old, tmp_path / "known")
    sealed.change(known / "config.json", safe_length=UNKNOWN_SAFE_LENGTH, format_version=3)
    lines = [" ".join(texts(count)) for count in range(1, 15)]
    assert translate(lines, "-m", old) == translate(lines, "-m", known)
    alone = translate(texts(14), "-m", old)
    assert translate(lines[-1:], "-m", old) == [" ".join(alone)]
    long = " and ".join(text.rstrip(".").lower() for text in texts(15)) + "."
    sealed.change(known / "config.json", safe_length=200)
    assert translate([long], "-m", old) == translate([long], "-m", known)  # one sentence: whole, up to data.max_length


def test_a_parser_is_not_split_at_full_stops(tmp_path: Path) -> None:
    strict = write_untrained_parser(tmp_path / "strict", "xx")
    free = shutil.copytree(strict, tmp_path / "free")
    sealed.change(strict / "config.json", safe_length=3)
    line = "the cat . the dog . a red house ."
    assert translate([line], "-m", strict, "--json") == translate([line], "-m", free, "--json")


def test_a_model_in_int8_has_the_same_safe_length(model: Path, tmp_path: Path) -> None:
    printed("quantize", model, "--out", tmp_path / "int8")
    assert read_config(tmp_path / "int8").safe_length == SAFE


def test_attend_says_why_it_declines_a_line_in_parts(model: Path, tmp_path: Path) -> None:
    line = " ".join(texts(5))
    said = refused("attend -m", model, line, "--out", tmp_path / "page.html", code=1)
    assert all(words in said for words in ("5 parts", f"{SAFE * 3 // 2} tokens"))
    printed("attend -m", model, texts(1)[0], "--out", tmp_path / "page.html")
