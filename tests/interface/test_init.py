"""`nmt init`: from two files to a recipe that trains, for texts of any script and size; nothing is replaced, and what is
wrong with the text is said.
"""

import gzip
import os
import random
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked import run
from in_process import unnamed

import nmt_cli as nmt
from nmt_cli.console import spoken
from nmt_cli.data.demo_corpus import pairs
from nmt_cli.interface.init import duration
from nmt_cli.recipe import Recipe, TrainSection, load_recipe, toml_comment, toml_value
from nmt_cli.training.presets import (
    SIZES,
    Preset,
    adapted,
    has_time,
    recipe_text,
    schedule,
    settings,
    size_of,
    sizes_for,
    usual_tokens,
)
from nmt_cli.training.schedule import concerns, learning_rate
from nmt_cli.training.times import Speed

SETS = ("train", "valid", "test")
SHORT = {"updates": 2, "decay_updates": 1, "valid_every": 2, "batch_tokens": 512}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,500 pairs of the demo corpus: text.en.gz and text.de."""
    folder = tmp_path_factory.mktemp("own")
    for language, side in zip(("en", "de"), zip(*pairs(1500, 0, 0)["train"], strict=True), strict=True):
        (folder / f"text.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    (folder / "text.en.gz").write_bytes(gzip.compress((folder / "text.en").read_bytes()))
    return folder


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is always as fast: nothing is measured."""
    monkeypatch.setattr("nmt_cli.training.speed.speed_of", lambda *_: Speed(0.3, 0.3))


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_from_two_files_to_a_trained_model(text: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "init", "mine", "--source", text / "text.en.gz", "--target", text / "text.de", "--time", "5m")
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert "1,500 pairs" in said
    assert "next: nmt preprocess mine.toml" in said
    recipe = load_recipe(str(tmp_path / "mine.toml"))
    assert (recipe.data.source_language, recipe.data.target_language) == ("en", "de")
    assert recipe.data.train_source == ["mine-text/train.en"]
    parts = {name: [lines(tmp_path / "mine-text" / f"{name}.{language}") for language in ("en", "de")] for name in SETS}
    assert sorted(pair for both in parts.values() for pair in zip(*both, strict=True)) == sorted(
        zip(lines(text / "text.en"), lines(text / "text.de"), strict=True)
    )
    counted = ", ".join(f"{name} {len(parts[name][0]):,} pairs" for name in SETS)
    assert f"mine-text: {counted}" in said
    train = [word for key, value in SHORT.items() for word in ("--set", f"train.{key}={value}")]
    score = ["score", "mine-text/test.de", "--ref", "mine-text/test.de"]
    for step in (["preprocess", "mine.toml"], ["train", "mine.toml", *train], score):
        done = run(tmp_path, *step)
        assert done.returncode == 0, done.stderr.decode()
    translated = run(tmp_path, "translate", "--model", "runs/mine", text=b"the cat sees a dog.\n")
    assert (translated.returncode, translated.stdout.count(b"\n")) == (0, 1)


def test_an_update_of_an_adaptation_has_room_for_the_longest_line() -> None:
    recipe = load_recipe("demo", ["data.max_length=3000", "model.max_positions=4096", "train.batch_tokens=8192"])
    chosen = settings(size_of(recipe), pairs=100, tokens=1000, total=1000)
    files = {**held_out({"en": ["a.en"], "de": ["a.de"]}, ("train", "valid")), "generator": "", "max_length": 3000}
    written = recipe_text([], adapted(recipe, Path("model"), chosen, files), 1.0)
    assert Recipe.from_dict(tomllib.loads(written), "adapted").train.batch_tokens == 3001


def held_out(files: dict[str, Any], kinds: tuple[str, str] = ("valid", "test")) -> dict[str, Any]:
    """Options of `nmt.init`, or keys of a recipe."""
    sides = ("source", "en"), ("target", "de")
    return {f"{kind}_{side}": files[language] for kind in kinds for side, language in sides}


@pytest.mark.usefixtures("quick")
def test_sets_that_are_given_are_used_as_they_are(text: Path, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    held = held_out({language: tmp_path / "held" / f"v.{language}" for language in ("en", "de")})
    for file in {*held.values()}:
        file.write_text("\n".join(lines(text / f"text{file.suffix}")[:50]) + "\n", encoding="utf-8")
    whole = nmt.init(tmp_path / "whole", text / "text.en", [text / "text.de"], **held)
    assert (whole.text, whole.pairs, (tmp_path / "whole-text").exists()) == (None, {}, False)
    data = load_recipe(str(whole.recipe)).data
    assert (data.train_source, data.valid_target) == ([str(text / "text.en")], ["held/v.de"])
    valid = {key: file for key, file in held.items() if key.startswith("valid")}
    part = nmt.init(tmp_path / "part", text / "text.en", text / "text.de", **valid)
    assert part.pairs == {"train": 1425, "test": 75}
    data = load_recipe(str(part.recipe)).data
    assert (data.train_source, data.valid_source) == (["part-text/train.en"], ["held/v.en"])


def test_what_is_refused_is_named(text: Path, workdir: Path) -> None:
    for name, language in (("a.txt", "en"), ("b.src", "de"), ("c.en.txt", "en")):
        Path(name).symlink_to(text / f"text.{language}")
    for path in ("a.toml", "b-text"):
        Path(path).write_text("mine")
    before = sorted(workdir.iterdir())
    sides = f"init --source {text / 'text.en'} --target {text / 'text.de'}"
    wrong = unnamed(
        sides,
        r"""
        demo → 'demo'
        a → 'a.toml' exists
        a.toml → 'a.toml' exists
        b → 'b-text' exists
        no/where → 'no'
        'a b' → 'a b' & letters, digits
        x --time soon → 'soon' & 2d12h
        x --time 0h → '0h'
        x --valid-source v → 1 & --valid-source & 0 & --valid-target
        x --source missing → 2 & --source & 1 & --target
        x --source-language de → 'de'
        x --target-language 'd"\nx = 1' → --target-language & code of a language
        x --source-language en- → --source-language 'en-'""",
    )
    wrong += unnamed(
        "init x",
        """
        --source a.txt --target b.src → 'a.txt' & 'b.src' & --source-language CODE & --target-language CODE
        --source c.en.txt --target b.src → 'b.src' & Give --target-language CODE""",
    )
    assert wrong == []
    assert sorted(workdir.iterdir()) == before


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize(("count", "named"), [(0, "nothing to learn from"), (40, "40 different pairs .* at least 100")])
def test_text_that_cannot_be_used(count: int, named: str) -> None:
    for language in ("en", "de"):
        Path(f"few.{language}").write_text("".join(f"{language} {number}\n" for number in range(count)))
    with pytest.raises(nmt.NmtError, match=named):
        nmt.init("few", "few.en", "few.de")
    with pytest.raises(nmt.NmtError, match="no text"):
        nmt.init("few", [], [])
    assert not Path("few.toml").exists()


def test_the_settings_follow_from_the_text_and_from_the_tokens_that_the_time_allows() -> None:
    def chosen(pairs: int, passes: float = 0.0) -> Preset:
        tokens = 14 * pairs
        total = passes * tokens or usual_tokens(pairs, tokens)
        size = next(size for size in [*sizes_for(pairs)] if size is SIZES[0] or has_time(size, total))
        return settings(size, pairs, tokens, total)

    names = [chosen(count).size.name for count in (100, 9000, 29_000, 165_000, 4_500_000, 10**9)]
    assert names == ["tiny", "tiny", "small", "medium", "base", "base"]
    assert [chosen(count).dropout for count in (9000, 29_000, 165_000, 4_500_000)] == [0.4, 0.3, 0.2, 0.1]
    for few, more in ((2.0, 20.0), (20.0, 80.0)):  # more time for the same text
        short, long = chosen(165_000, few), chosen(165_000, more)
        assert short.dropout <= long.dropout
        assert SIZES.index(short.size) <= SIZES.index(long.size)
        assert short.vocab_size <= long.vocab_size
        assert short.batch_tokens <= long.batch_tokens
        assert short.updates * short.batch_tokens == pytest.approx(few * 14 * 165_000, rel=0.1)
    assert (chosen(165_000, 2.0).size.name, chosen(165_000, 2.0).dropout) == ("tiny", 0.1)
    assert chosen(100, 0.001).updates == 1


@pytest.mark.parametrize("updates", [1, 2, 7, 600, 100_000])
def test_the_learning_rate_rises_before_it_falls(updates: int) -> None:
    chosen = settings(SIZES[0], 4000, 4000, 2048 * 10**6).reading(2048 * updates, 4000)
    chosen = replace(chosen, updates=updates, batch_tokens=2048)
    train = TrainSection.model_validate({**schedule(chosen, 128), "batch_tokens": 2048})
    assert concerns(train) == [] or updates == 1
    factors = [learning_rate(step, 128, train) for step in range(1, min(updates, 2000) + 1)]
    if updates in (7, 600):
        assert max(factors) == pytest.approx(5e-3, rel=1e-3)
        assert factors[-1] < 0.5 * max(factors)


def test_a_training_says_that_its_learning_rate_does_not_rise() -> None:
    for warmup, decay, said in ((100, 240, ""), (600, 0, "100"), (200, 500, "100 updates before train.decay_updates")):
        assert said in " ".join(concerns(TrainSection(updates=600, warmup=warmup, decay_updates=decay)))
    assert concerns(TrainSection(updates=600, warmup=100, decay_updates=240)) == []


def test_durations() -> None:
    assert [duration(text) for text in ("90m", "1h", "2d12h", "1.5h", "30 s")] == [5400, 3600, 216_000, 5400, 30]
    said = ["5 seconds", "2 minutes", "62 minutes", "2.5 hours", "11 hours", "12 days"]
    assert [spoken(seconds) for seconds in (5, 150, 3700, 9000, 40_000, 10**6)] == said


CHARACTERS = "a\"'\\#[]{}=,$ \t\n\r\b\f\v\0\x1b\x7f\x80\x85\u00a0ß漢\u2028\ufeff\ufffe😀\U0010ffff"


@pytest.mark.usefixtures("quick")
def test_a_recipe_names_a_file_of_any_name(text: Path, tmp_path: Path) -> None:
    """The recipe is read back as it was meant, and has no other keys."""
    folder = tmp_path / CHARACTERS.replace("\0", "")
    folder.mkdir()
    files = {language: folder / f"{CHARACTERS[1:-1].replace(chr(0), '')}.{language}" for language in ("en", "de")}
    for language, file in files.items():
        file.symlink_to(text / f"text.{language}")
    written = nmt.init(tmp_path / "r", files["en"], files["de"], **held_out(files)).recipe
    recipe = tomllib.loads(written.read_text(encoding="utf-8"))
    named = {language: [str(file.relative_to(tmp_path))] for language, file in files.items()}
    expected = held_out(named, ("train", "valid"))
    assert recipe["data"] == recipe["data"] | expected
    assert recipe.keys() == {"data", "model", "train", "decode"}
    assert load_recipe(str(written)).data.train_source == expected["train_source"]


def test_any_value_is_read_back_from_toml_and_no_comment_ends_before_its_line() -> None:
    rng = random.Random(2)

    def text() -> str:
        strange = [chr(rng.randrange(0xD800)), *rng.choices(CHARACTERS, k=2)]
        return "".join(rng.choices(strange, k=rng.randrange(20)))

    for _ in range(2000):
        numbers = [rng.getrandbits(40) - 2**39, rng.random() * 10.0 ** rng.randint(-30, 30)]
        value = rng.choice([text(), [text() for _ in range(3)], *numbers, True, []])
        line = f"key = {toml_value(value)} {toml_comment(text() + chr(0xDC80 + rng.randrange(128)))}\n"
        assert tomllib.loads(line.encode().decode()) == {"key": value}
        assert type(tomllib.loads(line)["key"]) is type(value)


@pytest.mark.usefixtures("quick")
def test_a_name_that_is_not_utf_8_is_refused_and_nothing_is_left(text: Path, workdir: Path) -> None:
    en, de = (os.fsdecode(b"caf\xe9." + language) for language in (b"en", b"de"))
    for language, name in (("en", en), ("de", de)):
        os.symlink(text / f"text.{language}", name)
    before = sorted(os.listdir(workdir))
    with pytest.raises(nmt.NmtError, match=r"'caf\\udce9.en' is not UTF-8"):
        nmt.init("x", en, de, **held_out({"en": en, "de": de}))
    assert sorted(os.listdir(workdir)) == before
    nmt.init("x", en, de)  # the recipe names the files in x-text


@pytest.mark.parametrize("key", ["data.source_language", "data.target_language"])
def test_a_recipe_with_what_is_no_language_is_refused(key: str) -> None:
    for code in ("../../x", "", "d e", "de_", "-de", "de\n", "ü", "d" * 36):
        with pytest.raises(nmt.NmtError, match=re.escape(f"{key} = {code!r}")):
            load_recipe("demo", [f"{key}={toml_value(code)}"])
    for code in ("de", "pt-BR", "zh_Hant", "x-klingon", "d" * 35):
        load_recipe("demo", [f"{key}={code}"])


SCRIPTS = {"en": (0x61, 26, " "), "el": (0x03B1, 25, " "), "ja": (0x4E00, 2500, ""), "ko": (0xAC00, 4000, " ")}
"""Language → first letter of the script, number of letters, and what is between words."""


def sentences(language: str, count: int, seed: int) -> list[str]:
    """Return sentences of words that follow Zipf's law, as their letters do."""
    first, letters, space = SCRIPTS[language]
    rng = random.Random(seed)

    def zipf(most: int) -> int:
        return min(most - 1, int(most ** rng.random()) - 1)

    words = ["".join(chr(first + zipf(letters)) for _ in range(rng.randint(1, 4))) for _ in range(3000)]
    return [space.join(words[zipf(3000)] for _ in range(rng.randint(3, 12))) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("language", ["el", "ja", "ko"])
def test_text_of_any_script_and_size(language: str, workdir: Path) -> None:
    for count, time in ((500, ""), (6000, "10m")):
        for seed, name in enumerate(("en", language)):
            Path(f"{count}.{name}").write_text("\n".join(sentences(name, count, seed)), encoding="utf-8")
        recipe = nmt.init(f"r{count}", f"{count}.en", f"{count}.{language}", time=time).recipe
        shards = nmt.preprocess(recipe, out=f"shards{count}", workers=1).index
        assert shards.splits["train"].pairs > 0.85 * count
        data = load_recipe(str(recipe)).data
        assert (shards.source_size, shards.target_size) == (data.vocab_size, data.target_size)
