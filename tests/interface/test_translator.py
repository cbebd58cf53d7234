"""`nmt.load(…).translate` and `.score`: the same as the commands for every option, in threads, after a fork, and when used wrongly."""

import inspect
import itertools
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import objects
from small_models import needs_engine
from untrained import sentence, write_untrained
from waiting import LIMIT

import nmt_cli as nmt
from nmt_cli.cli.translate import translate as command
from nmt_cli.errors import ModelError
from nmt_cli.interface.options import TranslateKeywords
from nmt_cli.model import folder_files
from nmt_cli.storage.files import sha256
from nmt_cli.storage.sealed_json import to_json
from nmt_cli.translation.confidence import DEFAULT
from nmt_cli.translation.pool import PoolClosed

OF_THE_COMMAND = {"model", "device", "devices", "precision"}  # of load
OF_THE_COMMAND |= {"input_file", "output_file", "as_json", "prefix_column", "prefix_file", "terms_columns"}
OF_THE_COMMAND |= {"document_format", "split_sentences", "resume"}  # what goes in and out
"""Parameters of the command that are no options of a call."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "one")


@pytest.fixture(scope="module")
def lines() -> list[str]:
    rng = random.Random(1)
    return [sentence(rng, rng.randint(1, 12)) if number != 4 else "" for number in range(12)]


@pytest.fixture
def translator(model: Path) -> Iterator[nmt.Translator]:
    with nmt.load(model, precision="fp32", device="cpu") as loaded:
        yield loaded


def printed(model: Path, path: Path, lines: list[str], *arguments: object) -> list[dict[str, Any]]:
    """What `nmt translate --json` prints."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    given = ["--model", model, "--input", path, *arguments]
    found: list[dict[str, Any]] = objects("translate --json --precision fp32 --device cpu", *given)
    return found


def as_json(translations: list[nmt.Translation]) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(translation.as_dict())) for translation in translations]


CASES: dict[str, dict[str, Any]] = {
    "target_language": {"target_language": "deu"},
    "nbest": {"nbest": 2},
    "alignment": {"alignment": True},
    "confidence": {"confidence": True},
    "search": {"search": "diverse", "beam": 4},
    "beam": {"beam": 3},
    "length_penalty": {"length_penalty": "average"},
    "alpha": {"alpha": 1.5},
    "word_penalty": {"word_penalty": -0.5},
    "max_extra": {"max_extra": 1},
    "max_len_ratio": {"max_len_ratio": 0.5},
    "min_length": {"min_length": 3},
    "diverse_groups": {"search": "diverse", "beam": 4, "diverse_groups": 2},
    "diversity_penalty": {"search": "diverse", "beam": 4, "diversity_penalty": 2.0},
    "sample": {"sample": True, "nbest": 2},
    "top_k": {"sample": True, "top_k": 2},
    "top_p": {"sample": True, "top_p": 0.5},
    "min_p": {"sample": True, "min_p": 0.5},
    "temperature": {"sample": True, "temperature": 0.5},
    "seed": {"sample": True, "seed": 7},
    "mbr_samples": {"search": "mbr", "mbr_samples": 4},
    "mbr_utility": {"search": "mbr", "mbr_samples": 4, "mbr_utility": "bleu"},
    "mbr_candidates": {"search": "mbr", "mbr_samples": 4, "mbr_candidates": "beam"},
    "no_repeat_ngram": {"no_repeat_ngram": 1},
    "repetition_penalty": {"repetition_penalty": 2.0},
    "overrides": {"overrides": ["decode.beam=1"]},
    "batch_tokens": {"batch_tokens": 20},
    "banned_words": {"banned_words": ["cat", "dog"]},
    "outputs": {"outputs": ["the cat", "a dog"]},
    "calibration": {"confidence": True, "calibration": "FILE"},
}
"""Per option, how a call is given it. FILE stands for a file of it."""
UNSEEN = ("target_language", "batch_tokens", "outputs", "banned_words", "no_repeat_ngram", "min_length", "mbr_utility")
"""Options that change nothing here."""


def arguments(options: dict[str, Any], file: Path) -> list[object]:
    """How the command is given the options of a call; the file stands for a list."""
    found: list[object] = []
    for name, value in options.items():
        option = "--set" if name == "overrides" else f"--{name.replace('_', '-')}"
        if value is True:
            found.append(option)
        elif name == "overrides":
            found += [option, *value]
        else:
            found += [option, file if isinstance(value, list) else value]
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_call_is_the_command(
    name: str, model: Path, lines: list[str], translator: nmt.Translator, tmp_path: Path
) -> None:
    options, file = CASES[name], tmp_path / "file"
    if name == "calibration":
        file.write_bytes(to_json(DEFAULT.model_copy(update={"intercept": 0.5})))
        options = {**options, "calibration": file}
    elif isinstance(options[name], list):
        file.write_text("".join(f"{text}\n" for text in options[name]), encoding="utf-8")
    found = as_json(translator.translate(lines, **options))
    assert found == printed(model, tmp_path / "in", lines, *arguments(options, file))
    if name not in UNSEEN:
        assert found != as_json(translator.translate(lines))


def test_every_option_of_the_command_is_one_of_a_call() -> None:
    names = set(TranslateKeywords.__annotations__)
    assert names == set(inspect.signature(command).parameters) - OF_THE_COMMAND
    assert names - {"terms", "scores"} == set(CASES)


def test_without_scores_the_texts_are_the_same(lines: list[str], translator: nmt.Translator) -> None:
    scored, plain = (translator.translate(lines, beam=1, scores=scores) for scores in (True, False))
    assert [one.text for one in plain] == [one.text for one in scored]
    assert {one.score for one in plain} == {0.0} != {one.score for one in scored}


def test_prefixes_and_terms(model: Path, lines: list[str], translator: nmt.Translator, tmp_path: Path) -> None:
    given = [nmt.Line(line, prefix="the", terms=["dog"]) for line in lines]
    found = as_json(translator.translate(given))
    columns = [f"{line}\tthe\tdog" for line in lines]
    assert found == printed(model, tmp_path / "in", columns, "--prefix-column", "--terms-columns")
    texts = [one["translation"] for one in found if one["source"]]
    assert all(text.startswith("the") and "dog" in text for text in texts)
    assert as_json(list(translator.translate(iter(given), terms=True))) == found


def test_a_stream_begins_before_its_input_ends(lines: list[str], translator: nmt.Translator) -> None:
    stream = translator.translate(itertools.cycle(lines))
    assert [next(stream).source for _ in lines] == lines
    translator.close()
    with pytest.raises(PoolClosed):
        next(stream)


@pytest.mark.parametrize("options", [{}, {"sample": True}], ids=["threads", "forks"])
def test_a_stream_whose_translator_is_closed_does_not_end_as_if_it_were_complete(
    model: Path, lines: list[str], options: dict[str, Any]
) -> None:
    """Also if another thread closes it while results are awaited."""
    with nmt.load(model, precision="fp32", device="cpu", devices=2) as translator:

        def given() -> Iterator[str]:
            yield from lines * 20
            closing = threading.Thread(target=translator.close)
            closing.start()
            closing.join()
            yield lines[0]

        with pytest.raises(PoolClosed):
            list(translator.translate(given(), **options))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_translates_too_and_leaves_its_parent_alone(model: Path, lines: list[str]) -> None:
    many = lines * 20
    with nmt.load(model, precision="fp32", device="cpu", devices=2) as translator:
        torch.set_num_threads(2)
        expected = [one.text for one in translator.translate(many)]
        stream = translator.translate(iter(many))
        first = next(stream).text  # its workers are running
        child = os.fork()
        if child == 0:
            status = 1
            try:
                found = *map(translator.translate, (many, many[:3])), translator.submit(many[:3]).result(LIMIT)
                texts = [[one.text for one in some] for some in found]
                status = 0 if texts == [expected, expected[:3], expected[:3]] else 2
                stream.close()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [first, *(one.text for one in stream)] == expected
        assert [one.text for one in translator.submit(many[:3]).result(LIMIT)] == expected[:3]


@pytest.mark.parametrize(
    ("lines", "options", "named"),
    [
        ("a cat.", {}, "Give [text]."),
        (["a\nb"], {}, "line end"),
        ([7], {}, "7 as a line"),
        (["a"], {"bean": 2}, "'beam'?"),
        (["a"], {"calibration": "x"}, "--confidence"),
        (["a"], {"overrides": ["model.d_model=2"]}, "decode.KEY=VALUE"),
        (iter([nmt.Line("a", terms=["b"])]), {}, "terms=True"),
    ],
)
def test_wrong_use(lines: Any, options: dict[str, Any], named: str, translator: nmt.Translator) -> None:
    with pytest.raises(nmt.NmtError) as error:
        list(translator.translate(lines, **options))
    assert named in str(error.value)
    with pytest.raises(nmt.NmtError, match="'fp9'"):
        translator.score([("a", "b")], precision="fp9")
    translator.close()
    with pytest.raises(nmt.NmtError, match="closed"):
        translator.translate(["a"])


@pytest.mark.parametrize(
    "result",
    [
        lambda t, text: t.translate([text])[0].text,
        lambda t, text: t.submit([nmt.Line("a cat", prefix=text, terms=[text])]).result()[0].text,
        lambda t, text: t.score([("a cat", text), (text, "a cat")])[1].log_prob,
        lambda t, text: t.translate_document(f"<p id='{text}'>{text}</p>", "html"),
        lambda t, text: nmt.attend(text, target=text, model=t.folders[0]).record.source,
    ],
    ids=["list", "submit", "score", "html", "attend"],
)
def test_half_of_a_surrogate_pair_is_a_replacement_character(result: Any, translator: nmt.Translator) -> None:
    assert result(translator, "a \ud800 dog.") == result(translator, "a \ufffd dog.")


def test_an_ensemble(model: Path, lines: list[str], tmp_path: Path) -> None:
    other = write_untrained(tmp_path / "two", seed=1)
    with nmt.load([model, str(other)], precision="fp32", device="cpu") as translator:
        assert as_json(translator.translate(lines)) == printed(model, tmp_path / "in", lines, "--model", other)
        with pytest.raises(nmt.NmtError, match="ensemble of 2 models"):
            translator.score([("a", "b")])


WITHOUT_TORCH = """
import sys, nmt_cli as nmt
lines = ["the cat sees", "", "a dog"]
translator = nmt.load(sys.argv[1], device="cpu", devices=2, precision="int8")
assert translator.translate(lines) == list(translator.translate(iter(lines)))
translator.translate([nmt.Line("the cat", prefix="a"), nmt.Line("the cat", terms=["dog"])])
assert translator.score([("the", "a")])[0].log_prob < 0
assert translator.translate(lines, sample=True)[1].text == ""
print("torch" in sys.modules)
"""


@pytest.mark.slow
@needs_engine
def test_lines_need_no_torch(model: Path) -> None:
    """Nor do lines with prefixes and terms, other searches, and scores."""
    program = [sys.executable, "-c", WITHOUT_TORCH, str(model)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("lines", [[], ["a cat"]])
def test_a_damaged_file_is_an_error_at_once(lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its hash is computed while the line is translated."""
    folder = write_untrained(tmp_path / "model")
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 1
    weights.write_bytes(data)
    translating = threading.Event()
    monkeypatch.setattr(folder_files, "sha256", lambda path: (translating.wait(LIMIT), sha256(path))[1])
    with nmt.load(folder, precision="fp32", device="cpu", wait=False) as translator:
        translating.set()
        with pytest.raises(ModelError, match=r"model\.safetensors' was changed"):
            next(translator.windows(iter(lines), {}))
    with pytest.raises(ModelError, match=r"model\.safetensors' was changed"):
        nmt.load(folder, precision="fp32", device="cpu")
