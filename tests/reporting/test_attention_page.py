"""The page: its numbers, its size, and that nothing which a sentence holds can leave its place."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.errors import DataError
from nmt_cli.reporting import attention_page
from nmt_cli.reporting.attention_page import DIGITS, FOLDER, SCRIPTS, not_a_page, page
from nmt_cli.translation.attention_maps import AttentionRecord, View

TAGS = ["</script>", "<script>alert(1)</script>", "&amp;", "<!--", "]]>", "{{data}}", "{{", "}}"]
NASTY = [*TAGS, '"', "'", "\\", "\u2028", "▁مرحبا", "東京", "\x00", "🙂"]


def view(kind: str, rows: list[str], columns: list[str], layers: int = 2, heads: int = 3) -> View:
    torch.manual_seed(0)
    scores = 3 * torch.randn(layers, heads, len(rows), len(columns))
    if kind == "decoder":
        scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), float("-inf"))
    numbers = tuple(range(1, layers + 1)), tuple(range(1, heads + 1))
    return View(kind, tuple(rows), tuple(columns), *numbers, scores.softmax(-1).numpy())


def pieces(count: int) -> list[str]:
    return [f"▁p{number}" for number in range(count)]


SIZES = {"encoder": (5, 5), "decoder": (4, 4), "cross": (4, 5)}
THREE = tuple(view(kind, pieces(rows), pieces(columns)) for kind, (rows, columns) in SIZES.items())


def seen(*views: View, source: str = "a sentence", translation: str = "ein Satz") -> AttentionRecord:
    return AttentionRecord("runs/demo/averaged", source, translation, -2.5, -1.25, views)


class Reader(HTMLParser):
    """What a browser would find: elements, and the text in each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def data_of(text: str) -> Any:
    return json.loads(Reader(text).texts["script"][0])


def test_numbers_are_the_weights_rounded() -> None:
    data = data_of(page(seen(*THREE)))
    assert (data["digits"], [kind["name"] for kind in data["kinds"]]) == (DIGITS, ["encoder", "decoder", "cross"])
    for given, kind in zip(THREE, data["kinds"], strict=True):
        labels = tuple(tuple(kind[name]) for name in ("rows", "columns", "layers", "heads"))
        assert labels == (given.rows, given.columns, given.layers, given.heads)
        written = np.tri(*given.weights.shape[2:]) > 0 if kind["causal"] else np.True_
        expected = given.weights[:, :, np.broadcast_to(written, given.weights.shape[2:])]
        whole = np.array(kind["weights"]) / 10**DIGITS
        np.testing.assert_allclose(whole, expected, atol=0.5001 * 10**-DIGITS, rtol=0.0)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run the page's script with")
def test_the_script_parses_and_reads_the_numbers_as_they_were_written(tmp_path: Path) -> None:
    data, script = Reader(page(seen(*THREE))).texts["script"]
    (tmp_path / "all.js").write_text(script, encoding="utf-8")
    subprocess.run(["node", "--check", tmp_path / "all.js"], timeout=60, check=True)
    (tmp_path / "data.json").write_text(data, encoding="utf-8")
    around = "const matchMedia = () => ({ matches: false }), text = require('fs').readFileSync('data.json', 'utf8'), document = { getElementById: () => ({ textContent: text }) };"
    found = (
        "console.log(JSON.stringify(data.kinds.map((kind) => kind.maps.map((layer) => layer.map((map) => [...map])))));"
    )
    state = (FOLDER / "state.js").read_text(encoding="utf-8")
    (tmp_path / "run.js").write_text(around + state + found, encoding="utf-8")
    done = subprocess.run(["node", "run.js"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    for given, maps in zip(THREE, json.loads(done.stdout), strict=True):
        whole = np.array(maps).reshape(given.weights.shape)
        np.testing.assert_allclose(whole, given.weights, atol=0.5001 * 10**-DIGITS, rtol=0.0)


def test_whatever_a_sentence_holds_stays_text() -> None:
    text = " ".join(NASTY)
    content = page(seen(view("cross", NASTY, NASTY), source=text, translation=text))
    plain = Reader(page(seen(view("cross", NASTY, NASTY))))
    reader = Reader(content)
    assert [tag for tag, _ in reader.found] == [tag for tag, _ in plain.found]  # no element more
    assert reader.open == []
    kept = text.replace("\x00", "")  # a parser drops or replaces it
    assert [one.replace("\x00", "").replace("\ufffd", "") for one in reader.texts["dd"]] == [kept, kept]
    assert reader.texts["title"] == ["Attention: " + text]
    data = json.loads(reader.texts["script"][0])["kinds"][0]
    assert data["rows"] == data["columns"] == NASTY
    assert not re.search("[<>&]", reader.texts["script"][0])


def test_the_page_needs_no_other_file_and_no_network() -> None:
    content = page(seen(*THREE))
    reader = Reader(content)
    assert not [attributes for _, attributes in reader.found if {"src", "href", "action", "data"} & set(attributes)]
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(", content)
    [policy] = [one["content"] for _, one in reader.found if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "{{" not in content
    assert len(reader.texts["script"]) == 2
    assert all((FOLDER / name).read_text(encoding="utf-8") in reader.texts["script"][1] for name in SCRIPTS)


def test_the_page_has_what_is_told_and_every_element_that_the_script_asks_for() -> None:
    reader = Reader(page(seen(*THREE)))
    assert "model runs/demo/averaged · score -1.2500 · log P -2.5000" in reader.texts["p"]
    there = {attributes["id"] for _, attributes in reader.found if "id" in attributes}
    asked = set(re.findall(r'\bat\("([a-z-]+)"\)', reader.texts["script"][1])) | {"data"}
    assert len(asked) >= 15
    assert asked <= there


def test_a_page_of_base_with_40_pieces_is_small() -> None:
    views = [view(kind, pieces(40), pieces(40), 6, 8) for kind in ("encoder", "decoder", "cross")]
    assert 300_000 < len(page(seen(*views)).encode()) < 1_000_000


def test_only_an_unchanged_page_is_known_as_one(tmp_path: Path) -> None:
    path, content = tmp_path / "page.html", page(seen(*THREE))
    for text, why in ((content, ""), (content.replace("Satz", "Haus"), "changed"), ("<p>mine", "did not write")):
        path.write_text(text, encoding="utf-8")
        assert bool(why) == bool(not_a_page(path))
        assert why in not_a_page(path)


def test_a_page_that_no_browser_would_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_page, "LARGEST", 149)
    assert page(seen(view("cross", pieces(4), pieces(6))))  # 144 weights
    with pytest.raises(DataError, match=r"150 weights.* 149 .*--kind, --layer or --head"):
        page(seen(view("encoder", pieces(5), pieces(5))))
