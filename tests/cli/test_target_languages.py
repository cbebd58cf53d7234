"""--target-language in the commands, and the shards and the training of a model of several languages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.cli.attend import attend
from nmt_cli.cli.calibrate import calibrate
from nmt_cli.cli.info import info
from nmt_cli.cli.score import score
from nmt_cli.cli.translate import translate
from nmt_cli.data.prepare import prepare
from nmt_cli.data.shards import Corpus, valid_text
from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.errors import DataError, TrainingError, UsageError
from nmt_cli.recipe import Recipe, load_recipe

app = typer.Typer()
for command in (attend, calibrate, info, score, translate):
    app.command()(command)
TAGS = ["deu", "fra", "cmn_Hans"]
LINE = "the small cat sees a red house."
MODEL = ["--model", "many", "--device", "cpu", "--precision", "fp32"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "many", max_extra=5, tags=TAGS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, many: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("many").symlink_to(many)
    Path("src").write_text(f"{LINE}\n>>fra<< {LINE}\n", encoding="utf-8")
    Path("ref").write_text("the cat\nthe cat\n", encoding="utf-8")
    return tmp_path


def output(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (result.exception, result.output)
    return result.stdout


def fault(*arguments: str) -> BaseException | None:
    return CliRunner().invoke(app, list(arguments)).exception


def test_lines() -> None:
    command = ["translate", *MODEL, "--input", "src", "--json"]
    lines = {
        code: [json.loads(line) for line in output(*command, "--target-language", code).splitlines()]
        for code in ("de", "fra")
    }
    assert [line["target_language"] for line in lines["de"]] == ["deu", "fra"]
    assert [line["target_language"] for line in lines["fra"]] == ["fra", "fra"]
    assert lines["de"][0]["translation"] != lines["de"][1]["translation"] == lines["fra"][0]["translation"]
    assert output(*command) == output(*command, "--target-language", "DEU")  # that of the recipe
    error = fault(*command, "--target-language", "ru")
    assert isinstance(error, UsageError)
    assert "--target-language 'ru': the model translates into 'deu', 'fra', 'cmn_Hans'." in str(error)


@pytest.mark.parametrize("form", [[], ["--format", "text"]])
def test_a_file_with_languages_that_the_model_lacks(form: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Their lines are text, and one warning counts them."""
    lines = [f">>rus<< {LINE}", LINE, f">>ru<< {LINE}", f">>rus<<{LINE}", f">>now!<< {LINE}"]
    Path("src").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["translate", *MODEL, "--input", "src", *form])
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 5)
    warnings = " ".join((result.stderr + capfd.readouterr().err).split())
    assert warnings.count("warning:") == 1
    assert "3 line(s) begin with a language that the model does not have ('>>rus<<', '>>ru<<'), and were" in warnings


def test_documents() -> None:
    command = ["translate", *MODEL, "--input", "src", "--format", "text"]
    assert output(*command, "--target-language", "de") != output(*command, "--target-language", "fr")
    assert isinstance(fault(*command, "--target-language", "ru"), UsageError)


def test_attention() -> None:
    command = ["attend", LINE, *MODEL, "--json"]
    for code, tag in (("de", "deu"), ("fr", "fra")):
        seen = json.loads(output(*command, "--target-language", code))
        assert seen["attention"][0]["columns"][0] == f">>{tag}<<"
    assert isinstance(fault(*command, "--target-language", "ru"), UsageError)


def test_forced_scores() -> None:
    command = ["score", *MODEL, "--src", "src", "--ref", "ref"]
    german, french = (output(*command, "--target-language", code).splitlines() for code in ("de", "fr"))
    assert german[0] != german[1] == french[0] == french[1]
    assert isinstance(fault(*command, "--target-language", "ru"), UsageError)
    error = fault("score", "ref", "--ref", "ref", "--target-language", "de")
    assert "--target-language: only with --model" in str(error)


def test_calibration() -> None:
    lines = [
        f"{LINE} the cat{' sees a dog' * (number % 7)} {number}\n" for number in range(60)
    ]  # of equal lines, noise
    for name in ("src", "ref"):
        Path(name).write_text("".join(lines), encoding="utf-8")
    command = ["calibrate", *MODEL, "--src", "src", "--ref", "ref"]
    for code in ("de", "fr"):
        output(*command, "--target-language", code, "--out", code)
    assert Path("de").read_bytes() != Path("fr").read_bytes()
    assert isinstance(fault(*command, "--target-language", "ru", "--out", "ru"), UsageError)


def test_information(tmp_path: Path) -> None:
    assert "\n  into 3      deu, fra, cmn_Hans\n" in output("info", "many")
    assert json.loads(output("info", "many", "--json"))["target_languages"] == TAGS
    tags = [f"l{number}" for number in range(40)]
    text = output("info", str(write_untrained(tmp_path / "more", tags=tags)))
    assert "  into 40     l0, l1" in text
    assert all(f"{tag}" in text for tag in tags)
    assert max(map(len, text.split("updates")[0].splitlines()[3:])) <= 120
    assert "into" not in output("info", str(write_untrained(tmp_path / "one")))
    assert "target_languages" not in json.loads(output("info", str(tmp_path / "one"), "--json"))


SOURCE = [f"the cat number {number} sees a dog." for number in range(40)]


def recipe(target: str = "de", train: dict[str, Any] | None = None) -> Recipe:
    """A recipe that tunes the model; the text names the other language in some lines."""
    for name in ("train", "valid"):
        own = [f">>fra<< {line}" if number % 4 == 3 else line for number, line in enumerate(SOURCE)]
        own[5], own[6] = "", ">>fra<<"
        Path(f"{name}.en").write_text("".join(f"{line}\n" for line in own), encoding="utf-8")
        Path(f"{name}.xx").write_text("".join(f"{line}\n" for line in SOURCE), encoding="utf-8")
    sides = {"source": "en", "target": "xx"}
    files = {f"{name}_{side}": [f"{name}.{end}"] for name in ("train", "valid") for side, end in sides.items()}
    model = load_recipe_of("many").model.model_dump()
    small = {"updates": 2, "batch_tokens": 600, "valid_every": 2, "valid_bleu_sentences": 8, "valid_samples": 8}
    values = {
        "name": "tune",
        "data": {**files, "target_language": target, "tokenizer": "many", "vocab_size": 330, "max_length": 40},
    }
    return Recipe.from_dict({**values, "model": model, "train": {"init": "many", **small, **(train or {})}}, "test")


def load_recipe_of(folder: str) -> Recipe:
    return Recipe.from_dict(json.loads((Path(folder) / "config.json").read_text())["recipe"], folder)


@pytest.mark.parametrize("workers", [1, 2])
def test_shards(workers: int) -> None:
    prepare(recipe("DE"), [Path()], Path("shards"), workers=workers)
    vocabulary = Vocabulary.load(Path("many"))
    for split in ("train", "valid"):
        corpus = Corpus(Path("shards"), split)
        kept = [number for number in range(len(SOURCE)) if number not in (5, 6)]
        assert len(corpus.source_lengths) == len(kept)
        lengths = corpus.source_lengths[np.arange(len(kept))]
        for index, number in enumerate(kept):
            source, target = corpus.pair(index)
            tag = vocabulary.source.tags["fra" if number % 4 == 3 else "deu"]
            [ids] = vocabulary.source.encode([SOURCE[number]])
            assert source.tolist() == [tag, *ids]
            assert len(source) == lengths[index]
            assert target.tolist() == vocabulary.target.encode([SOURCE[number]])[0]
    assert valid_text(Path("shards"))[0][3] == f">>fra<< {SOURCE[3]}"
    with pytest.raises(DataError, match="translates into 'deu', 'fra'"):
        prepare(recipe("it"), [Path()], Path("other"), workers=1)
    assert not Path("other").exists()


def test_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation translates into the recipe's language, and the run is a model of all languages."""
    from nmt_cli.recipe import toml_value

    def write(tuned: Recipe) -> None:
        sections = tuned.model_dump(exclude_defaults=True)
        text = [
            f"[{name}]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in keys.items())
            for name, keys in sections.items()
        ]
        Path("tune.toml").write_text("\n".join(text), encoding="utf-8")

    write(recipe())
    assert load_recipe("tune.toml").data.target_language == "de"
    nmt.preprocess("tune.toml", out="shards", workers=1)
    seen: list[str] = []
    from nmt_cli.translation.translator import LineTranslator

    results = LineTranslator.results

    def spied(self: Any, *given: Any) -> Any:
        translations = results(self, *given)
        seen.extend(one.target_language for one in translations)
        return translations

    monkeypatch.setattr(LineTranslator, "results", spied)
    options: dict[str, Any] = {"data": "shards", "device": "cpu", "threads": 1}
    run = nmt.train("tune.toml", run="run", overrides={"train.bpe_dropout": 0.1}, **options)
    assert set(seen) == {"deu", "fra"}
    assert len(seen) == 8
    with nmt.load(run.path, device="cpu", devices=1) as tuned:
        assert tuned.target_languages == TAGS
    with pytest.raises(TrainingError, match="both_directions = true"):
        nmt.train("tune.toml", run="both", overrides={"train.both_directions": True}, **options)


def test_a_recipe_for_one_of_the_languages() -> None:
    recipe()  # writes the text
    for name, words in {"en": ("the cat", "sees"), "fr": ("le chat", "voit")}.items():
        Path(f"text.{name}").write_text(
            "".join(f"{words[0]} {n} {words[1]} {n * n}.\n" for n in range(300)), encoding="utf-8"
        )
    sides = ("text.en", "text.fr")
    done = nmt.init("mine", *sides, from_model="many", time="1m")
    assert load_recipe(str(done.recipe)).data.target_language == "fr"
    with pytest.raises(UsageError, match="the text is 'en' to 'it'"):
        nmt.init("other", *sides, from_model="many", target_language="it")
