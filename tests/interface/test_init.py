"""`nmt init`: from two files to a recipe that trains; nothing is replaced, and what is wrong with the text is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from forked import run

import nmt_cli as nmt
from nmt_cli.demo_corpus import write_corpus
from nmt_cli.interface.init import duration, spoken
from nmt_cli.recipe_files import load_recipe
from nmt_cli.training.presets import PRESETS, preset_for, recipe_text, smaller

SETS = ("train", "valid", "test")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,500 pairs of the demo corpus: text.en.gz and text.de."""
    folder = tmp_path_factory.mktemp("own")
    write_corpus(folder / "demo")
    for language in ("en", "de"):
        lines = (folder / "demo" / f"train.{language}").read_text(encoding="utf-8").splitlines(keepends=True)[:1500]
        (folder / f"text.{language}").write_text("".join(lines), encoding="utf-8")
    (folder / "text.en.gz").write_bytes(gzip.compress((folder / "text.en").read_bytes()))
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_from_two_files_to_a_trained_model(text: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "init", "mine", "--source", text / "text.en.gz", "--target", text / "text.de", "--time", "5m")
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert "1,500 pairs" in said
    assert "next: nmt preprocess mine.toml" in said
    recipe = load_recipe(str(tmp_path / "mine.toml"))
    assert (recipe.data.source_language, recipe.data.target_language, recipe.data.train_source) == (
        "en",
        "de",
        ["mine-text/train.en"],
    )
    parts = {name: [lines(tmp_path / "mine-text" / f"{name}.{language}") for language in ("en", "de")] for name in SETS}
    assert sorted(pair for both in parts.values() for pair in zip(*both, strict=True)) == sorted(
        zip(lines(text / "text.en"), lines(text / "text.de"), strict=True)
    )
    assert (
        f"mine-text: train {len(parts['train'][0]):,} pairs, valid {len(parts['valid'][0]):,} pairs, test {len(parts['test'][0]):,} pairs"
        in said
    )
    steps = [
        ["preprocess", "mine.toml"],
        [
            "train",
            "mine.toml",
            "--set",
            "train.updates=2",
            "--set",
            "train.decay_updates=1",
            "--set",
            "train.valid_every=2",
            "--set",
            "train.batch_tokens=512",
        ],
        ["score", "mine-text/test.de", "--ref", "mine-text/test.de"],
    ]
    for step in steps:
        done = run(tmp_path, *step)
        assert done.returncode == 0, done.stderr.decode()
    translated = run(tmp_path, "translate", "--model", "runs/mine", text=b"the cat sees a dog.\n")
    assert (translated.returncode, translated.stdout.count(b"\n")) == (0, 1)


def test_nothing_is_replaced(text: Path, tmp_path: Path) -> None:
    arguments = ["--source", text / "text.en", "--target", text / "text.de"]
    for path in ("a.toml", "b-text"):
        (tmp_path / path).write_text("mine")
    for name, path in (("a", "a.toml"), ("b", "b-text"), ("a.toml", "a.toml")):
        done = run(tmp_path, "init", name, *arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert f"error: '{path}' exists, and nmt init replaces nothing" in done.stderr.decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.toml", "b-text"]


def test_sets_that_are_given_are_used_as_they_are(text: Path, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    for language in ("en", "de"):
        (tmp_path / "held" / f"v.{language}").write_text(
            "".join(line + "\n" for line in lines(text / f"text.{language}")[:50]), encoding="utf-8"
        )
    held = {
        f"{kind}_{side}": tmp_path / "held" / f"v.{language}"
        for kind in ("valid", "test")
        for side, language in (("source", "en"), ("target", "de"))
    }
    whole = nmt.init(tmp_path / "whole", text / "text.en", [text / "text.de"], **held)
    assert (whole.text, whole.pairs, (tmp_path / "whole-text").exists()) == (None, {}, False)
    data = load_recipe(str(whole.recipe)).data
    assert (data.train_source, data.valid_target) == ([str(text / "text.en")], ["held/v.de"])
    part = nmt.init(
        tmp_path / "part",
        text / "text.en",
        text / "text.de",
        valid_source=held["valid_source"],
        valid_target=held["valid_target"],
    )
    assert part.pairs == {"train": 1425, "test": 75}
    data = load_recipe(str(part.recipe)).data
    assert (data.train_source, data.valid_source) == (["part-text/train.en"], ["held/v.en"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo"], "the name 'demo' is that of a recipe that comes with nmt"),
        (["no/where"], "the folder 'no' does not exist"),
        (["a b"], "the name 'a b': expected letters, digits, - and _"),
        (["x", "--time", "soon"], "the time 'soon': expected numbers with s, m, h or d, such as 90m, 1h or 2d12h"),
        (["x", "--time", "0h"], "the time '0h': expected numbers"),
        (["x", "--valid-source", "v"], "1 files of --valid-source and 0 of --valid-target"),
        (["x", "--source-language", "de"], "both sides are called 'de'"),
        (["x", "--source", "missing"], "2 files of --source and 1 of --target"),
    ],
)
def test_faults_of_the_command_line(text: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run(tmp_path, "init", *arguments, "--source", text / "text.en", "--target", text / "text.de")
    assert done.returncode == 2
    assert message in " ".join(done.stderr.decode().split())
    assert not list(tmp_path.iterdir())


def test_languages_are_asked_for_where_the_names_of_the_files_do_not_say_them(text: Path, tmp_path: Path) -> None:
    for name, language in (("a.txt", "en"), ("b.src", "de"), ("news", "de"), ("c.en.txt", "en")):
        (tmp_path / name).write_bytes((text / f"text.{language}").read_bytes())

    def said(*arguments: str) -> str:
        done = run(tmp_path, "init", "x", *arguments)
        assert done.returncode == 2
        return " ".join(done.stderr.decode().split())

    assert said("--source", "a.txt", "--target", "b.src") == (
        "error: 'a.txt' and 'b.src': the language is not in the name of the file. Give --source-language CODE, "
        "such as --source-language en and --target-language CODE, such as --target-language de."
    )
    assert "'news': the language is not in the name of the file. Give --target-language CODE" in said(
        "--source", "c.en.txt", "--target", "news"
    )
    assert not (tmp_path / "x.toml").exists()
    given = nmt.init(tmp_path / "x", tmp_path / "c.en.txt", tmp_path / "news", target_language="de", time="1s")
    data = load_recipe(str(given.recipe)).data
    assert (data.source_language, data.target_language) == ("en", "de")


def test_text_that_cannot_be_used(tmp_path: Path) -> None:
    for count in (0, 40):
        for language in ("en", "de"):
            (tmp_path / f"few.{language}").write_text("".join(f"{language} {number}\n" for number in range(count)))
        with pytest.raises(
            nmt.NmtError, match=r"there is nothing to learn from|40 different pairs to learn from: at least 100"
        ):
            nmt.init(tmp_path / "few", tmp_path / "few.en", tmp_path / "few.de")
    with pytest.raises(nmt.NmtError, match="there is no text: name the files of both sides"):
        nmt.init(tmp_path / "few", [], [])
    with pytest.raises(nmt.NmtError, match=r"cannot read '.*nowhere.en'"):
        nmt.init(tmp_path / "few", tmp_path / "nowhere.en", tmp_path / "few.de")
    assert not (tmp_path / "few.toml").exists()


def test_presets_are_recipes_and_grow_with_the_text() -> None:
    from nmt_cli.recipe import Recipe
    from nmt_cli.recipe_files import _parsed

    assert [preset_for(pairs).name for pairs in (1, 9000, 29_000, 165_000, 4_500_000, 10**9)] == [
        "10k",
        "10k",
        "30k",
        "100k",
        "10M",
        "10M",
    ]
    assert smaller(PRESETS[0]) is None
    assert smaller(PRESETS[2]) is PRESETS[1]
    for preset in PRESETS:
        for joint in (True, False):
            data = {"train_source": ['a "quoted" name'], "train_target": ["b"]}
            read = _parsed(recipe_text(preset, ["a head"], data, preset.updates, joint, preset.pairs), "it")
            recipe = Recipe.from_dict(read, "it")
            assert (recipe.model.d_model, recipe.train.updates, recipe.data.joint_vocab) == (
                preset.d_model,
                preset.updates,
                joint,
            )
            peak = recipe.train.lr_factor * (recipe.model.d_model * recipe.train.warmup) ** -0.5
            assert peak == pytest.approx(preset.peak, rel=1e-3)
    json.dumps([preset.__dict__ for preset in PRESETS])


def test_durations() -> None:
    assert [duration(text) for text in ("90m", "1h", "2d12h", "1.5h", "30 s")] == [5400, 3600, 216_000, 5400, 30]
    assert [spoken(seconds) for seconds in (5, 150, 3700, 9000, 40_000, 10**6)] == [
        "5 seconds",
        "2 minutes",
        "62 minutes",
        "2.5 hours",
        "11 hours",
        "12 days",
    ]
