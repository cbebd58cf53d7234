"""The page: its numbers, its size, and that nothing which a sentence holds can leave its place."""

from __future__ import annotations

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
from nmt_cli.reporting.attention_page import DIGITS, FOLDER, SCRIPTS, page
from nmt_cli.translation.attention_maps import AttentionRecord, View

TAGS = ["</script>", "<script>alert(1)</script>", "&amp;", "<!--", "]]>", "{{data}}", "{{", "}}"]
NASTY = [*TAGS, '"', "'", "\\", "\u2028", "▁مرحبا", "東京", "\x00", "🙂"]


def view(kind: str, rows: int | list[str], columns: int | list[str], layers: int = 2, heads: int = 3) -> View:
    rows, columns = ([f"▁p{n}" for n in range(x)] if isinstance(x, int) else x for x in (rows, columns))
    torch.manual_seed(0)
    scores = 3 * torch.randn(layers, heads, len(rows), len(columns))
    if kind == "decoder":
        scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), float("-inf"))
    numbers = tuple(range(1, layers + 1)), tuple(range(1, heads + 1))
    return View(kind, tuple(rows), tuple(columns), *numbers, scores.softmax(-1).numpy())


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
    views = (view("encoder", 5, 5), view("decoder", 4, 4), view("cross", 4, 5))
    data = data_of(page(seen(*views)))
    assert (data["digits"], [kind["name"] for kind in data["kinds"]]) == (DIGITS, ["encoder", "decoder", "cross"])
    for given, kind in zip(views, data["kinds"], strict=True):
        assert (tuple(kind["rows"]), tuple(kind["columns"])) == (given.rows, given.columns)
        assert (tuple(kind["layers"]), tuple(kind["heads"])) == (given.layers, given.heads)
        for layer, of_heads in enumerate(kind["weights"]):
            for head, numbers in enumerate(of_heads):
                whole = np.array(numbers) / 10**DIGITS
                if kind["causal"]:
                    rows = [given.weights[layer, head, row, : row + 1] for row in range(len(given.rows))]
                    flat = np.concatenate(rows)
                else:
                    flat = given.weights[layer, head].flatten()
                np.testing.assert_allclose(whole, flat, atol=0.5001 * 10**-DIGITS, rtol=0.0)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node to run the page's script with")
def test_the_script_parses_and_reads_the_numbers_as_they_were_written(tmp_path: Path) -> None:
    views = (view("encoder", 5, 5), view("decoder", 4, 4), view("cross", 4, 5))
    data, script = Reader(page(seen(*views))).texts["script"]
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
    for given, maps in zip(views, json.loads(done.stdout), strict=True):
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
    content = page(seen(view("encoder", 3, 3)))
    reader = Reader(content)
    assert not [attributes for _, attributes in reader.found if {"src", "href", "action", "data"} & set(attributes)]
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(", content)
    [policy] = [
        attributes["content"]
        for tag, attributes in reader.found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "{{" not in content
    assert len(reader.texts["script"]) == 2
    assert all((FOLDER / name).read_text(encoding="utf-8") in reader.texts["script"][1] for name in SCRIPTS)


def test_the_page_has_what_is_told_and_every_element_that_the_script_asks_for() -> None:
    reader = Reader(page(seen(view("encoder", 3, 3))))
    assert "model runs/demo/averaged · score -1.2500 · log P -2.5000" in reader.texts["p"]
    there = {attributes["id"] for _, attributes in reader.found if "id" in attributes}
    asked = set(re.findall(r'\bat\("([a-z-]+)"\)', reader.texts["script"][1])) | {"data"}
    assert len(asked) >= 15
    assert asked <= there


def test_a_page_of_base_with_40_pieces_is_small() -> None:
    views = [view(kind, 40, 40, 6, 8) for kind in ("encoder", "decoder", "cross")]
    size = len(page(seen(*views)).encode())
    assert 300_000 < size < 1_000_000


def test_a_page_that_no_browser_would_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_page, "LARGEST", 149)
    assert page(seen(view("cross", 4, 6)))  # 144 weights
    with pytest.raises(DataError, match=r"150 weights.* 149 .*--kind, --layer or --head"):
        page(seen(view("encoder", 5, 5)))
