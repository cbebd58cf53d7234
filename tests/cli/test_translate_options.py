"""`nmt translate`: ensembles, searches, prefixes, terms and other constraints, glossaries and documents.

That each option does in the command what it does in Python is in interface/test_translator.py, what it gives in
translation/test_golden.py, and wrong use in test_wrong_use.py.
"""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sealed
import torch
from in_process import invoke, printed, ran, refused
from untrained import sentence

import nmt_cli as nmt
from nmt_cli.device.processor import cores
from nmt_cli.errors import NmtError, UsageError
from nmt_cli.interface.loading import workers_on
from nmt_cli.registry import SEARCHES
from nmt_cli.storage.files import sha256

CPU = "--device cpu --devices 1 --precision fp32"
IN = f"--input in {CPU}"
ONE = f"translate --model one {IN}"
OUTPUTS = ["the red cat.", "a dog sees the house.", "the red"]
BANNED = ["the", "house sees"]
TERMS = ["red cat", "", "dog|cat\thouse", "ho*", "the", " \t|", "cat\tcat", "", "", "", "big|small|red", "under\tover"]


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """12 lines in `in`, the fifth of them blank, and files for options."""
    rng = random.Random(1)
    write("in", [sentence(rng, rng.randint(2, 9)) if number != 4 else "" for number in range(12)])
    write("outputs", ["", *OUTPUTS, " ", OUTPUTS[0]])
    write("banned", [*BANNED, ""])
    write("terms", TERMS)
    write("prefixes", ["the red" if number % 2 else "" for number in range(12)])
    return here


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(line + "\n" for line in lines))


def read(name: str) -> list[str]:
    return Path(name).read_text().split("\n")[:-1]


def run(line: str, *more: object) -> list[str]:
    return printed(line, *more).split("\n")[:-1]


def copy_of_one(name: str, **decode: object) -> str:
    """Return the command for a copy of `one` with another section [decode]."""
    shutil.copytree("one", name)
    recipe = json.loads(Path("one/config.json").read_text())["recipe"]
    sealed.change(Path(name, "config.json"), recipe={**recipe, "decode": {**recipe["decode"], **decode}})
    return f"translate --model {name}"


def test_the_first_models_recipe_counts() -> None:
    wider = copy_of_one("wider", beam=5)
    assert len(run(f"{wider} --model two {IN} --nbest 5")) == 11 * 5 + 1
    assert "--beam 5" in refused(f"translate --model two --model wider {IN} --nbest 5")


def test_options_fit_the_search_of_the_recipe() -> None:
    mbr, sample = (copy_of_one(search, search=search) for search in ("mbr", "sample"))
    assert run(f"{mbr} {IN} --mbr-samples 6") == run(f"{ONE} --search mbr --mbr-samples 6")
    assert run(f"{mbr} {IN} --search beam") == run(ONE)
    assert "--search diverse" in refused(f"{mbr} {IN} --diverse-groups 2")
    assert "--search mbr" in refused(f"{mbr} {IN} --terms terms")
    assert run(f"{sample} {IN} --nbest 6") == run(f"{ONE} --sample --nbest 6")
    assert run(f"{sample} {IN} --top-k 1") == run(f"{ONE} --beam 1")


@pytest.mark.parametrize(
    "search", [pytest.param(name, marks=[pytest.mark.slow] * (name != "beam")) for name in SEARCHES]
)
def test_n_lines_in_n_lines_out_under_every_constraint(search: str) -> None:
    few = "--mbr-samples 5" if search == "mbr" else ""
    for constraint in ("", "--banned-words banned", "--outputs outputs", "--prefix-file prefixes"):
        command = f"{ONE} --search {search} {few} {constraint}"
        lines = run(command)
        assert len(lines) == 12
        assert [number for number, line in enumerate(lines) if not line] == [4]
        assert run(command, "--batch-tokens", 1) == lines
        if "--outputs" in constraint:
            assert {*lines} <= {"", *OUTPUTS}
        if "--banned" in constraint:
            assert not any(re.search(rf"\b{word}\b", line) for line in lines for word in BANNED)
        if "--prefix" in constraint:
            assert all(line.startswith("the red") for line in lines[1::2])


def test_devices_are_cores_or_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert workers_on("cpu", "auto", None) == ["cpu"] * cores()
    assert workers_on("cpu", "cpu", 3) == ["cpu"] * 3
    assert workers_on("cuda:0", "auto", None) == workers_on("cuda:0", "cuda", 1) == ["cuda:0"]
    assert workers_on("cuda:1", "cuda:1", 1) == ["cuda:1"]
    assert workers_on("cuda:0", "auto", 2) == ["cuda:0", "cuda:1"]
    for given, named in (("cuda", 3), "--devices 3"), (("cuda:1", 2), "--device 'cuda:1'"):
        with pytest.raises(UsageError, match=named):
            workers_on("cuda:0", *given)


def test_terms_are_in_a_file_or_in_columns() -> None:
    by_file, free = run(f"{ONE} --beam 8 --terms terms"), run(f"{ONE} --beam 8")
    write("columns", [f"{line}\t{terms}" if terms else line for line, terms in zip(read("in"), TERMS, strict=True)])
    assert run(f"{ONE.replace('--input in', '--input columns')} --beam 8 --terms-columns") == by_file
    assert "red cat" in by_file[0]
    assert "red cat" not in free[0]
    for text, plain, terms in zip(by_file, free, TERMS, strict=True):
        assert text == plain or terms.strip(" \t|")


def test_prefixes_are_in_a_file_or_in_a_column_before_terms() -> None:
    prefixes, columns = read("prefixes"), ONE.replace("--input in", "--input columns")
    by_file, free = run(f"{ONE} --prefix-file prefixes"), run(ONE)
    write("columns", [f"{line}\t{prefix}" for line, prefix in zip(read("in"), prefixes, strict=True)])
    assert run(f"{columns} --prefix-column") == by_file
    for text, prefix, plain in zip(by_file, prefixes, free, strict=True):
        assert text.startswith(prefix) if prefix else text == plain
    write("columns", ["the cat.\ta dog\thouse\tred", "the cat.\t\thouse", "the cat.\ta dog", "the cat."])
    both, term, prefix, neither = run(f"{columns} --prefix-column --terms-columns --beam 8")
    assert [text.startswith("a dog") for text in (both, prefix)] == [True, True]
    assert ["house" in text for text in (both, term)] == [True, True]
    assert neither == run(f"{columns} --prefix-column --beam 8")[3]


@pytest.mark.parametrize("option", ["--terms", "--prefix-file"])
def test_parallel_files_have_as_many_lines_as_the_input(option: str) -> None:
    for count in (0, 11, 13):
        write("parallel", ["the"] * count)
        result = invoke(f"{ONE} {option} parallel")
        assert isinstance(result.exception, NmtError)
        assert result.exception.exit_code == 1
        assert f"'in' has 12 lines, 'parallel' has {count} lines" in str(result.exception)
        assert f"at line {min(count, 12) + 1}" in str(result.exception)
        assert result.stdout.count("\n") == min(count, 12)  # the lines before are translated


@pytest.mark.parametrize("wrong", ["cat", {"cat": "Katze"}])
def test_terms_of_a_call_are_a_list(wrong: Any) -> None:
    with nmt.load("one") as translator, pytest.raises(NmtError, match="expected a list of the words"):
        translator.translate([nmt.Line("the cat.", terms=wrong)])


# The whole input is one document

DOCUMENT = f"translate --model one {CPU}"
HTML = '<!doctype html>\r\n<p class="x">the <b>cat</b> sees.\r\n\r\n<p>a {name} dog<!-- c --><pre> x </pre>'


def test_a_document_comes_back_with_its_markup_as_from_python() -> None:
    found = ran(f"{DOCUMENT} --format html", stdin=HTML.encode()).stdout_bytes.decode()
    kept = r"<[^>]*>|\{name\}| x |\r\n\r\n"
    assert re.findall(kept, found) == re.findall(kept, HTML)
    with nmt.load("one", device="cpu", precision="fp32") as translator:
        assert translator.translate_document(HTML, "html") == found
        with pytest.raises(UsageError, match="nbest=2"):
            translator.translate_document(HTML, "html", nbest=2)
    for text in (b"", b"\n \n", b"12\r\n"):  # without words
        assert ran(f"{DOCUMENT} --format text", stdin=text).stdout_bytes == text


def test_a_document_that_cannot_be_read_is_named() -> None:
    for form, text, words in (
        ("text", b"a\n\xff", "line 2: byte 0xff at offset 2"),
        ("xml", b"<a>", "line 1, column 4"),
        ("xml", b"<?xml version='1.0' encoding='latin1'?><a/>", "'latin1'"),
    ):
        assert words in refused(f"{DOCUMENT} --format {form}", stdin=text, code=1)


MADE_AGAIN: dict[str, Callable[[], object]] = {
    "another input": lambda: write("in", OUTPUTS),
    "another file of an option": lambda: write("banned", ["dog"]),
    "another model": lambda: copy_of_one("fifth", beam=1),
    "a damaged output": lambda: write("out", OUTPUTS),
    "a record without its output": lambda: Path("out").unlink(),
    "an output without its record": lambda: Path("out.nmt.json").unlink(),
}


@pytest.mark.parametrize("changed", [None, *MADE_AGAIN])
def test_an_output_that_is_whole_is_left_alone(changed: str | None) -> None:
    model = "fifth" if changed == "another model" else "one"
    copy = f"translate {IN} --output out --resume --banned-words banned"
    ran(f"{copy} --model one")
    if changed:
        MADE_AGAIN[changed]()
    there = Path("out").stat().st_ino if Path("out").exists() else 0
    said = ran(f"{copy} --model {model}").stderr
    assert ("is done" in said, Path("out").stat().st_ino == there) == (changed is None,) * 2
    ran(f"translate --model {model} {IN} --output whole --banned-words banned")
    assert read("out") == read("whole")
    assert "is done" in ran(f"{copy} --model {model}").stderr


def test_resuming_refuses_what_it_cannot_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--resume needs files as inputs" in refused("translate --model one --resume")
    assert "is none" in refused(f"{ONE} --resume --output /dev/null")
    write("out.nmt.json", ["mine"])
    assert "'out.nmt.json' is damaged: it is not JSON" in refused(f"{ONE} --resume --output out")
    assert read("out.nmt.json") == ["mine"]
    Path("out.nmt.json").unlink()
    earlier = iter(["of an earlier input"])
    monkeypatch.setattr("nmt_cli.cli.resumed.sha256", lambda path: next(earlier, "") or sha256(path))
    assert "'in' was changed while it was read" in refused(f"{ONE} --resume --output out", code=1)
    assert not Path("out.nmt.json").exists()
