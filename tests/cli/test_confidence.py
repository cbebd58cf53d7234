"""`nmt translate --confidence` and `nmt calibrate`: their output and files. Wrong use is in test_wrong_use.py."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
from in_process import objects, printed, ran
from untrained import sentence

import nmt_cli as nmt
from nmt_cli.errors import UsageError
from nmt_cli.translation.confidence import read_calibration

LINES = 60
CPU = "--device cpu --precision fp32 --devices 1"
TRANSLATE = f"translate --model one {CPU} --input in --json"
CALIBRATE = f"calibrate --model one {CPU} --src in --ref ref --out own.json"
NOTHING = {"translation": "", "score": 0.0, "log_prob": 0.0, "tokens": [], "words": [], "quality": None}


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """Parallel lines in `in` and `ref`, the fifth of them blank and the sixth in parts."""
    rng = random.Random(1)
    for name in ("in", "ref"):
        lines = [sentence(rng, {5: 60}.get(number, rng.randint(1, 12))) for number in range(LINES)]
        lines[4] = "" if name == "in" else "blank"
        Path(name).write_text("".join(line + "\n" for line in lines))
    return here


def without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: one for key, one in value.items() if key not in keys}


def test_each_line_has_its_words_and_a_quality() -> None:
    found, plain = objects(TRANSLATE, "--confidence", "--nbest", 2), objects(TRANSLATE, "--nbest", 2)
    assert list(found[0]) == ["source", "translation", "score", "log_prob", "tokens", "words", "quality", "nbest"]
    for line, other in zip(found, plain, strict=True):
        assert without(line, "words", "quality", "nbest") == without(other, "nbest")
        assert [without(entry, "words", "quality") for entry in line["nbest"]] == other["nbest"]
        assert without(line, "source", "nbest") == line["nbest"][0]
        for entry in line["nbest"]:
            assert " ".join(word["word"] for word in entry["words"]) == entry["translation"]
            assert all(0 < word["probability"] <= 1 for word in entry["words"])
            assert sum(math.log(word["probability"]) for word in entry["words"]) >= entry["log_prob"] - 1e-4
            assert (entry["quality"] is None) == (line["source"] == "")
            assert entry["quality"] is None or 0 < entry["quality"] < 1
    assert found[4] == {"source": "", **NOTHING, "nbest": [NOTHING]}
    assert len(found[5]["tokens"]) > 44  # more than `data.max_length` and `max_extra` allow: it was translated in parts


def test_a_calibration_changes_only_the_quality(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    done = ran(CALIBRATE)
    assert {path.name for path in folder.iterdir()} == before | {"own.json"}
    assert done.stdout == ""
    assert "next: nmt translate --model one --json --confidence --calibration own.json < input" in done.stderr
    default = objects(TRANSLATE, "--confidence")
    changed = objects(TRANSLATE, "--confidence", "--calibration", "own.json")
    assert [line["words"] for line in default] == [line["words"] for line in changed]
    old, new = ([line["quality"] for line in lines if line["source"]] for lines in (default, changed))
    mean = float(done.stderr.partition("mean chrF ")[2].partition(",")[0])
    assert 100 * sum(new) / (LINES - 1) == pytest.approx(mean, abs=0.2)
    assert old != new


def test_a_calibration_from_python_is_the_same() -> None:
    printed(CALIBRATE)
    source, reference = (Path(name).read_text().split("\n")[:-1] for name in ("in", "ref"))
    fitted = nmt.calibrate(source, reference, model="one", out="second.json", device="cpu", devices=1, precision="fp32")
    assert fitted.lines == LINES - 1
    assert Path("second.json").read_bytes() == Path("own.json").read_bytes()
    assert fitted.calibration == read_calibration(Path("second.json"))
    with pytest.raises(UsageError, match="60 lines of source and 59 of reference"):
        nmt.calibrate(source, reference[1:], model="one")
