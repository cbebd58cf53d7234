"""--target-language in the commands, and the shards and the training of a model of several languages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import printed, ran, refused
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.data.prepare import prepare
from nmt_cli.data.shards import Corpus, valid_text
from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.errors import DataError, TrainingError
from nmt_cli.recipe import Recipe, load_recipe, toml_value
from nmt_cli.translation.translator import LineTranslator

TAGS = ["deu", "fra", "cmn_Hans"]
LINE = "the small cat sees a red house."
MODEL = "--model many --device cpu --precision fp32"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "many", max_extra=5, tags=TAGS)


@pytest.fixture(autouse=True)
def folder(workdir: Path, many: Path) -> Path:
    Path("many").symlink_to(many)
    Path("src").write_text(f"{LINE}\n>>fra<< {LINE}\n", encoding="utf-8")
    noise = [f"{LINE} the cat{' sees a dog' * (number % 7)} {number}\n" for number in range(60)]
    Path("noise").write_text("".join(noise), encoding="utf-8")
    return workdir


@pytest.mark.parametrize(
    "command",
    [
        f"translate {MODEL} --input src",
        f"translate {MODEL} --input src --format text",
        f"attend '{LINE}' {MODEL}",
        f"attend '{LINE}' {MODEL} --json",
        f"score {MODEL} --src src --ref src",
        f"calibrate {MODEL} --src noise --ref noise --out new.json",
    ],
)
def test_every_command_translates_into_the_language_that_it_is_given(command: str) -> None:
    found = []
    for code in ("de", "fr"):
        found.append(printed(command, "--target-language", code))
        if (file := Path("new.json")).exists():
            found[-1] += file.read_text()
    assert found[0] != found[1]
    assert printed(command, "--target-language", "DEU") == found[0] or "calibrate" in command
    said = refused(command, "--target-language", "ru")
    assert all(f"'{word}'" in said for word in ("ru", *TAGS))


@pytest.mark.parametrize("form", ["", "--format text"])
def test_a_file_with_languages_that_the_model_lacks(form: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Their lines are text, and one warning counts them."""
    lines = [f">>rus<< {LINE}", LINE, f">>ru<< {LINE}", f">>rus<<{LINE}", f">>now!<< {LINE}"]
    Path("src").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = ran(f"translate {MODEL} --input src {form}")
    said = done.stderr + capfd.readouterr().err
    assert (len(done.stdout.splitlines()), said.count("warning:")) == (5, 1)
    assert all(words in " ".join(said.split()) for words in ("3 line(s)", "'>>rus<<', '>>ru<<'"))


def test_information() -> None:
    assert "\n  into 3      deu, fra, cmn_Hans\n" in printed("info many")
    assert json.loads(printed("info many --json"))["target_languages"] == TAGS


SOURCE = [f"the cat number {number} sees a dog." for number in range(40)]


def recipe(target: str = "de", **train: Any) -> Recipe:
    """A recipe that tunes the model; the text names the other language in some lines."""
    own = [f">>fra<< {line}" if number % 4 == 3 else line for number, line in enumerate(SOURCE)]
    own[5], own[6] = "", ">>fra<<"
    for name in ("train", "valid"):
        Path(f"{name}.en").write_text("".join(f"{line}\n" for line in own), encoding="utf-8")
        Path(f"{name}.xx").write_text("".join(f"{line}\n" for line in SOURCE), encoding="utf-8")
    sides = {"source": "en", "target": "xx"}
    files = {f"{name}_{side}": [f"{name}.{end}"] for name in ("train", "valid") for side, end in sides.items()}
    small = {"updates": 2, "batch_tokens": 600, "valid_every": 2, "valid_bleu_sentences": 8, "valid_samples": 8}
    data = {**files, "target_language": target, "tokenizer": "many", "vocab_size": 330, "max_length": 40}
    model = json.loads(Path("many/config.json").read_text())["recipe"]["model"]
    values = {"name": "tune", "data": data, "model": model, "train": {"init": "many", **small, **train}}
    return Recipe.from_dict(values, "test")


@pytest.mark.parametrize("workers", [1, 2])
def test_shards(workers: int) -> None:
    prepare(recipe("DE"), [Path()], Path("shards"), workers=workers)
    vocabulary = Vocabulary.load(Path("many"))
    kept = [number for number in range(len(SOURCE)) if number not in (5, 6)]
    for split in ("train", "valid"):
        corpus = Corpus(Path("shards"), split)
        assert len(corpus.source_lengths) == len(kept)
        lengths = corpus.source_lengths[np.arange(len(kept))]
        for index, number in enumerate(kept):
            source, target = corpus.pair(index)
            [ids] = vocabulary.source.encode([SOURCE[number]])
            assert source.tolist() == [vocabulary.source.tags["fra" if number % 4 == 3 else "deu"], *ids]
            assert len(source) == lengths[index]
            assert target.tolist() == vocabulary.target.encode([SOURCE[number]])[0]
    assert valid_text(Path("shards"))[0][3] == f">>fra<< {SOURCE[3]}"
    with pytest.raises(DataError, match="translates into 'deu', 'fra'"):
        prepare(recipe("it"), [Path()], Path("other"), workers=1)
    assert not Path("other").exists()


@pytest.mark.slow
def test_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation translates into the recipe's language, and the run is a model of all languages."""
    sections = recipe().model_dump(exclude_defaults=True)
    Path("tune.toml").write_text(
        "\n".join(
            f"[{name}]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in keys.items())
            for name, keys in sections.items()
        )
    )
    assert load_recipe("tune.toml").data.target_language == "de"
    nmt.preprocess("tune.toml", out="shards", workers=1)
    seen: list[str] = []

    def spied(self: Any, *given: Any, was: Any = LineTranslator.results) -> Any:
        translations = was(self, *given)
        seen.extend(one.target_language for one in translations)
        return translations

    monkeypatch.setattr(LineTranslator, "results", spied)
    options: dict[str, Any] = {"data": "shards", "device": "cpu", "threads": 1}
    run = nmt.train("tune.toml", run="run", overrides={"train.bpe_dropout": 0.1}, **options)
    assert (set(seen), len(seen)) == ({"deu", "fra"}, 8)
    with nmt.load(run.path, device="cpu", devices=1) as tuned:
        assert tuned.target_languages == TAGS
    with pytest.raises(TrainingError, match="both_directions = true"):
        nmt.train("tune.toml", run="both", overrides={"train.both_directions": True}, **options)
