"""`nmt attend`: what it prints and what it writes. Wrong use is in test_wrong_use.py."""

import json
import re
from pathlib import Path
from typing import Any

import forked
import pytest
import torch
from in_process import objects, printed, ran, refused

import nmt_cli as nmt
from nmt_cli.errors import NmtError
from nmt_cli.translation.alignment import SMOOTHING

LINE = "the small cat sees a red house."
ATTEND = "attend --model one --device cpu --precision fp32"
TRANSLATE = ATTEND.replace("attend", "translate")


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    return here


def data_of(path: str) -> Any:
    text = Path(path).read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


def seen(*options: object) -> Any:
    return json.loads(printed(ATTEND, "--json", *options, LINE))


def new_files(of: str = ".") -> list[str]:
    return sorted(path.name for path in Path(of).iterdir() if not path.is_symlink())


def test_the_translation_is_printed_and_a_page_written(monkeypatch: pytest.MonkeyPatch) -> None:
    done = ran(ATTEND, LINE)
    assert done.stdout == printed(TRANSLATE, stdin=LINE.encode())
    assert done.stderr == "wrote attention.html: open it in a browser\n"
    assert new_files() == ["attention.html"]
    text = Path("attention.html").read_text(encoding="utf-8")
    assert f'<dd dir="auto">{LINE}</dd>' in text
    assert "model one · score -" in text
    kinds = [(kind["name"], len(kind["layers"]), len(kind["heads"])) for kind in data_of("attention.html")["kinds"]]
    assert kinds == [("encoder", 2, 2), ("decoder", 1, 2), ("cross", 1, 2)]
    page = Path("attention.html").read_bytes()
    monkeypatch.setenv("NMT_MODEL", "one")
    for given in (LINE.encode(), LINE.encode() + b"\r\n", LINE.encode() + b"\n\n \n"):
        assert printed(ATTEND.replace("--model one", ""), stdin=given) == done.stdout
        assert Path("attention.html").read_bytes() == page


def test_json_has_all_numbers_and_writes_nothing() -> None:
    found = seen()
    assert new_files() == []
    assert list(found) == ["source", "translation", "score", "log_prob", "attention"]
    [by_translate] = objects(TRANSLATE, "--json", "--alignment", stdin=LINE.encode())
    assert (found["source"], found["translation"]) == (LINE, by_translate["translation"])
    for key in ("log_prob", "score"):
        assert found[key] == pytest.approx(by_translate[key], abs=1e-4)
    heard, written = [*by_translate["source_tokens"], "</s>"], [*by_translate["tokens"], "</s>"]
    expected = {"encoder": (heard, heard), "decoder": (written, ["<s>", *written[:-1]]), "cross": (written, heard)}
    for view in found["attention"]:
        assert list(view) == ["kind", "rows", "columns", "layers", "heads", "weights"]
        assert (view["rows"], view["columns"]) == expected[view["kind"]]
        weights = torch.tensor(view["weights"], dtype=torch.float64)
        assert list(weights.shape) == [len(view[axis]) for axis in ("layers", "heads", "rows", "columns")]
        assert (weights.sum(-1) - 1).abs().max() <= 1e-6
    # of one decoder layer the alignment is that of its heads' mean, each source token's share of it
    mean = torch.tensor(found["attention"][2]["weights"])[0].mean(0)[:-1]
    looked = (mean / (mean.sum(0) + SMOOTHING)).argmax(1).tolist()
    assert [[place, token] for token, place in enumerate(looked) if place < len(heard) - 1] == by_translate["alignment"]


def test_a_given_translation_is_looked_at() -> None:
    found = seen("--target", "a big dog")
    assert found["translation"] == "a big dog"
    assert "".join(found["attention"][2]["rows"]) == "▁a▁big▁dog</s>"
    Path("src").write_text(LINE)
    Path("ref").write_text("a big dog")
    [scored] = objects(f"{ATTEND} --src src --ref ref --json".replace("attend", "score"))
    assert found["log_prob"] == pytest.approx(scored["log_prob"], abs=1e-4)
    assert printed(ATTEND, "--target", "a big dog", LINE) == "a big dog\n"


@pytest.mark.slow
def test_pictures() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib (the extra 'plots') is not installed")
    done = forked.run(Path.cwd(), *ATTEND.split(), "--png", "new/pictures", LINE)
    assert (done.returncode, len(done.stderr.splitlines()), new_files()) == (0, 3, ["new"])
    assert new_files("new/pictures") == ["cross.png", "decoder.png", "encoder.png"]
    for kind, options in (("cross", []), ("encoder", ["--kind", "encoder"])):
        printed(ATTEND, "--png", "one.png", "--out", "page.html", *options, LINE)
        assert Path("one.png").read_bytes() == Path(f"new/pictures/{kind}.png").read_bytes()


@pytest.mark.slow
def test_without_matplotlib_it_is_told_at_once() -> None:
    prelude = "sys.modules['matplotlib'] = None"
    said = forked.nmt(Path.cwd(), "attend", "-m", "nowhere", "--png", "one.png", "a cat", prelude=prelude, code=2)
    assert "pip install 'matplotlib>=3.8'" in said


def test_what_is_no_sentence_is_refused() -> None:
    for given in (b"", b"\nthe cat\n", b"the cat\nthe dog\n"):
        assert "the sentence" in refused(ATTEND, stdin=given, code=1)
    assert "more than one line" in refused(ATTEND, "the cat\nthe dog", code=1)
    assert "3 parts" in refused(ATTEND, "cat " * 100, code=1)
    assert "model.max_positions" in refused(ATTEND, "the cat", "--target", "cat " * 100, code=1)
    for wrong in ("", " ", "one\ntwo"):
        with pytest.raises(NmtError, match="the sentence"):
            nmt.attend(wrong, model="one")
    assert new_files() == []
