"""Attention as a PNG, by matplotlib (the extra `plots`), without a display.

    View ──▶ a heat map for each layer and head: layers down and heads across; of one head, its layers in rows.
             One layer or one head: maps labelled with the pieces.

A cell's shade grows with the square root of its weight. matplotlib's constrained layout places the maps.
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..translation.attention_maps import AttentionRecord, View
from .attention_page import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOFTWARE = "nmt attend"
"""The mark of a PNG that `nmt attend` wrote."""
INK, SOFT, EDGE = "#1b2230", "#626c7d", "#c9cfd9"
FONTS = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Hebrew"),
    *("Noto Sans Devanagari", "Arial Unicode MS"),
)
"""Fonts to try for each character, in this order. Fonts that are not installed are skipped."""
DPI = 160
ACROSS = 4
"""Maps per row, for one layer or head."""


def picture(view: View, seen: AttentionRecord) -> bytes:
    """Return a PNG of all layers and heads of `view`. It needs matplotlib."""
    from matplotlib import font_manager, rc_context
    from matplotlib.figure import Figure

    installed = {font.name for font in font_manager.fontManager.ttflist}
    style: Any = {"font.family": [name for name in FONTS if name in installed], "text.parse_math": False}
    style |= {"axes.linewidth": 0.6, "text.color": INK, "axes.edgecolor": EDGE}
    with rc_context(style), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of characters that no font has
        figure, stream = Figure(dpi=DPI, facecolor="white", layout="constrained"), BytesIO()
        _plot(figure, view, seen)
        figure.savefig(stream, format="png", bbox_inches="tight", pad_inches=0.2, metadata={"Software": SOFTWARE})
    return stream.getvalue()


def _plot(figure: Figure, view: View, seen: AttentionRecord) -> None:
    """Plot the maps, and the sentence above them. Sizes are in inches."""
    layers, heads = len(view.layers), len(view.heads)
    longest = max(len(view.rows), len(view.columns))
    grid = layers > 1 and heads > 1
    across = heads if grid else min(ACROSS, layers * heads)
    down = -(-layers * heads // across)
    side = 1.15 if grid else min(16.0, max(2.6, 0.1 * longest) if layers * heads > 1 else max(5.5, 0.15 * longest))
    width, height = (side * max(0.1, len(pieces) / longest) for pieces in (view.columns, view.rows))
    labels = 0.0 if grid else 0.9  # of the pieces, on two sides of a map
    figure.set_size_inches(across * (width + labels), down * (height + labels) + 1.0)
    size = min(9.0, 50 * side / longest)  # points
    for index, axes in enumerate(figure.subplots(down, across, squeeze=False).flat):
        layer, head = divmod(index, heads)
        if layer >= layers:
            axes.axis("off")
            continue
        axes.imshow(np.sqrt(view.weights[layer, head]), "Blues", interpolation="nearest", aspect="auto", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        names = [f"layer {view.layers[layer]}"] * (layers > 1) + [f"head {view.heads[head]}"] * (heads > 1)
        axes.set_title(", ".join(names), fontsize=8, color=SOFT)
        if not grid:
            axes.xaxis.tick_top()
            axes.tick_params(length=0, pad=2, labelcolor=INK)
            axes.set_xticks(range(len(view.columns)), _labels(view.columns), rotation=90, fontsize=size)
            axes.set_yticks(range(len(view.rows)), _labels(view.rows), fontsize=size)
    one = [f"layer {view.layers[0]}"] * (layers == 1) + [f"head {view.heads[0]}"] * (heads == 1)
    text = [line for text in (seen.source, seen.translation) for line in textwrap.wrap(text, 110)]
    figure.suptitle("\n".join([", ".join([TITLES[view.kind], *one]), *text]), fontsize=10)


def _labels(pieces: Sequence[str]) -> list[str]:
    """Return pieces with _ instead of the ▁ at the beginning of a word, which most fonts print bold."""
    return [piece.replace("▁", "_", 1) if piece.startswith("▁") else piece for piece in pieces]


def not_a_picture(path: Path) -> str:
    """Return why a file is not a PNG of `nmt attend`; "" if it is one. Such a PNG has SOFTWARE in its text chunk."""
    with path.open("rb") as stream:
        head = stream.read(4096)
    is_ours = head.startswith(b"\x89PNG\r\n\x1a\n") and b"tEXtSoftware\0" + SOFTWARE.encode() in head
    return "" if is_ours else "nmt attend did not write it"
