"""Attention as one HTML file for any browser. It needs no network and no other file.

    AttentionRecord ──▶ numbers of DIGITS decimals as JSON
        ──▶ page/attention.html with its style, its script and the numbers in it

The file grows with layers × heads × rows × columns, about 3 bytes per weight. For decoder self-attention it has only
the positions that a step may attend to. The text in the page may come from anyone: HTML is escaped, JSON has no `<`,
and a Content-Security-Policy forbids the page to load anything.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from ..translation.attention_maps import KINDS, AttentionRecord, View

DIGITS = 4
"""Decimals of a weight in the page."""
LARGEST = 12_000_000
"""Maximum number of weights in a page: about 35 MB, which browsers still open quickly."""
GENERATOR = '<meta name="generator" content="nmt attend">'
"""The mark of a page that `nmt attend` wrote."""
FOLDER = Path(__file__).parent / "page"
SCRIPTS = ("state.js", "lines.js", "maps.js", "controls.js")
"""The files that are joined into one script, in this order."""
TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Encoder-decoder attention",
}
HEADINGS = {
    "encoder": ("piece", "looks at"),
    "decoder": ("writes", "looks at, written before"),
    "cross": ("writes", "looks at in the source"),
}


def page(seen: AttentionRecord) -> str:
    """Return the HTML file. Raises DataError if it would have more than LARGEST weights."""
    count = sum(view.weights.size for view in seen.views)
    if count > LARGEST:
        raise DataError(
            f"the page would have {count:,} weights; browsers open {LARGEST:,} at once. "
            "Show less with --kind, --layer or --head, or give a shorter sentence; --json and --png have no such limit."
        )
    values = {
        "title": html.escape(seen.source),
        "source": html.escape(seen.source),
        "translation": html.escape(seen.translation),
        "facts": html.escape(facts(seen)),
        "digits": str(DIGITS),
        "style": (FOLDER / "attention.css").read_text(encoding="utf-8"),
        "script": "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS),
        "data": _json({"digits": DIGITS, "kinds": [_kind(view) for view in seen.views]}),
    }
    template = (FOLDER / "attention.html").read_text(encoding="utf-8").rstrip()
    text = re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)
    return f"{text}\n{_seal(text)}\n"


def not_a_page(path: Path) -> str:
    """Return why a file is not an unchanged page of `nmt attend`; "" if it is one.

    Such a page contains GENERATOR, and its last line is the hash of the rest.
    """
    text, _, seal = path.read_bytes().decode("utf-8", "replace").rstrip("\n").rpartition("\n")
    if GENERATOR not in text[:1000]:
        return "nmt attend did not write it"
    return "" if seal == _seal(text) else "it was changed after nmt attend had written it"


def _seal(text: str) -> str:
    return f"<!-- sha256:{hashlib.sha256(text.encode()).hexdigest()} -->"


def facts(seen: AttentionRecord) -> str:
    """Return a line about the model and the translation."""
    return f"model {seen.model} · score {seen.score:.4f} · log P {seen.log_prob:.4f}"


def _kind(view: View) -> dict[str, Any]:
    return {
        "name": view.kind,
        "title": TITLES[view.kind],
        "about": KINDS[view.kind],
        "headings": HEADINGS[view.kind],
        "causal": view.causal,
        "rows": view.rows,
        "columns": view.columns,
        "layers": view.layers,
        "heads": view.heads,
        "weights": _numbers(view),
    }


def _numbers(view: View) -> list[list[list[int]]]:
    """Return the weights of each layer and head, row by row, in units of 10^-DIGITS.

    For causal attention, return the past only.
    """
    whole = (view.weights * 10**DIGITS).round().astype(np.int32)  # (L, H, T, S)
    if view.causal:
        past = np.tril(np.ones(whole.shape[2:], bool))
        return whole[:, :, past].tolist()  # type: ignore[no-any-return]
    return whole.reshape(*whole.shape[:2], -1).tolist()  # type: ignore[no-any-return]


def _json(value: Any) -> str:
    """Return JSON for a script element: it cannot end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
