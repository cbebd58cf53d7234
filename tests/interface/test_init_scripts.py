"""What `nmt init` writes, `nmt preprocess` accepts: texts of any script and size, and of sentences with several translations."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import nmt_cli as nmt
from nmt_cli.recipe import load_recipe
from nmt_cli.training.times import Speed

pytestmark = pytest.mark.slow

SCRIPTS = {
    "ar": (0x0627, 36, " "),
    "el": (0x03B1, 25, " "),
    "hi": (0x0905, 60, " "),
    "ja": (0x4E00, 2500, ""),
    "km": (0x1780, 60, ""),
    "ko": (0xAC00, 4000, " "),
    "th": (0x0E01, 58, ""),
    "vi": (0x1EA0, 90, " "),
    "zh": (0x4E00, 6000, ""),
}
"""Language → first letter of the script, number of letters, and what is between words."""


def sentences(script: tuple[int, int, str], count: int, seed: int) -> list[str]:
    """Return sentences of words that follow Zipf's law, as their letters do."""
    first, letters, space = script
    rng = random.Random(seed)

    def zipf(most: int) -> int:
        return min(most - 1, int(most ** rng.random()) - 1)

    words = ["".join(chr(first + zipf(letters)) for _ in range(rng.randint(1, 4))) for _ in range(3000)]
    return [space.join(words[zipf(3000)] for _ in range(rng.randint(3, 12))) for _ in range(count)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is always as fast: the measurement is not what these tests are about."""
    monkeypatch.setattr("nmt_cli.training.speed.speed_of", lambda *_: Speed(0.3, 0.3))


@pytest.mark.parametrize("language", SCRIPTS)
def test_every_script(language: str, tmp_path: Path) -> None:
    for count, time in ((500, ""), (6000, "10m")):
        source, target = tmp_path / f"{count}.en", tmp_path / f"{count}.{language}"
        source.write_text("\n".join(sentences((0x61, 26, " "), count, 1)), encoding="utf-8")
        target.write_text("\n".join(sentences(SCRIPTS[language], count, 2)), encoding="utf-8")
        recipe = nmt.init(tmp_path / f"r{count}", source, target, time=time).recipe
        shards = nmt.preprocess(recipe, out=tmp_path / f"shards{count}", workers=1).index
        assert shards.splits["train"].pairs > 0.85 * count
        data = load_recipe(str(recipe)).data
        assert (shards.source_size, shards.target_size) == (data.vocab_size, data.target_size)


def test_every_sentence_has_two_translations(tmp_path: Path) -> None:
    one = sentences((0x61, 26, " "), 600, 1)
    (tmp_path / "a.en").write_text("\n".join(line for line in one for _ in range(2)), encoding="utf-8")
    (tmp_path / "a.el").write_text("\n".join(sentences(SCRIPTS["el"], 1200, 2)), encoding="utf-8")
    done = nmt.init(tmp_path / "twice", tmp_path / "a.en", tmp_path / "a.el")
    assert sum(done.pairs.values()) == 1200
    assert done.pairs["valid"] >= 60
    train, valid = ((tmp_path / "twice-text" / f"{kind}.en").read_text().split("\n") for kind in ("train", "valid"))
    assert not {*train} & {*valid} - {""}
    assert nmt.preprocess(done.recipe, out=tmp_path / "shards", workers=1).index.splits["train"].pairs > 1000
