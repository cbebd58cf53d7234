"""Attention as a PNG, by matplotlib (the extra `plots`), without a display.

    View ──▶ a heat map for each layer and head: layers down and heads across; of one head, its layers in rows.
             One layer or one head: maps labelled with the pieces. One layer: also the paper's lines between words.

As in the page, each head has its colour, a cell's shade grows with the square root of its weight, and a line is as
opaque as its weight. matplotlib's constrained layout places the maps.
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
from .attention_page import HEADINGS, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

SOFTWARE = "nmt attend"
"""The mark of a PNG that `nmt attend` wrote."""
COLOURS = ("#1f77b4", "#dd6b10", "#2b9a41", "#d0303b", "#8457c2", "#0e93a1", "#9c632c", "#d1449a", "#768700", "#5b6b88")
"""Colours of the heads, as in the page. They repeat after the last."""
INK, SOFT, EDGE = "#1b2230", "#626c7d", "#c9cfd9"
FONTS = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Hebrew"),
    *("Noto Sans Devanagari", "Arial Unicode MS"),
)
"""Fonts to try for each character, in this order. Fonts that are not installed are skipped."""
DPI = 160
ACROSS = 4
"""Maps per row, for one layer or head."""
LEAST = 0.01
"""Smallest weight that is plotted as a line."""


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
    """Plot the lines, if there is one layer, left of the maps, and the sentence above them. Sizes are in inches."""
    layers, heads = len(view.layers), len(view.heads)
    longest = max(len(view.rows), len(view.columns))
    grid = layers > 1 and heads > 1
    across = heads if grid else min(ACROSS, layers * heads)
    down = -(-layers * heads // across)
    side = 1.15 if grid else min(16.0, max(2.6, 0.1 * longest) if layers * heads > 1 else max(5.5, 0.15 * longest))
    width, height = (side * max(0.1, len(pieces) / longest) for pieces in (view.columns, view.rows))
    labels = 0.0 if grid else 0.9  # of the pieces, on two sides of a map
    maps = (across * (width + labels), down * (height + labels))
    lines = 3.2 if layers == 1 else 0.0
    figure.set_size_inches(lines + maps[0], max(maps[1], 0.2 * longest if lines else 0) + 1.0)
    right: Figure | SubFigure = figure
    if lines:
        left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(lines, maps[0]))[0]
        _lines(left.subplots(), view)
    size = min(9.0, 50 * side / longest)  # points
    for index, axes in enumerate(right.subplots(down, across, squeeze=False).flat):
        layer, head = divmod(index, heads)
        if layer >= layers:
            axes.axis("off")
            continue
        _map(axes, view.weights[layer, head], _colour(view, head))
        names = [f"layer {view.layers[layer]}"] * (layers > 1) + [f"head {view.heads[head]}"] * (heads > 1)
        axes.set_title(", ".join(names), fontsize=8, color=SOFT)
        if not grid:
            axes.xaxis.tick_top()
            axes.set_xticks(range(len(view.columns)), _labels(view.columns), rotation=90, fontsize=size)
            axes.set_yticks(range(len(view.rows)), _labels(view.rows), fontsize=size)
    one = [f"layer {view.layers[0]}"] * (layers == 1) + [f"head {view.heads[0]}"] * (heads == 1)
    text = [line for text in (seen.source, seen.translation) for line in textwrap.wrap(text, 110)]
    figure.suptitle("\n".join([", ".join([TITLES[view.kind], *one]), *text]), fontsize=10)


def _colour(view: View, head: int) -> Any:
    from matplotlib.colors import to_rgb

    return to_rgb(COLOURS[(view.heads[head] - 1) % len(COLOURS)])


def _labels(pieces: Sequence[str]) -> list[str]:
    """Return pieces with _ instead of the ▁ at the beginning of a word, which most fonts print bold."""
    return [piece.replace("▁", "_", 1) if piece.startswith("▁") else piece for piece in pieces]


def _map(axes: Axes, weights: Any, colour: Any) -> None:
    """Plot one head's weights (rows, columns) as shades of its colour."""
    image = np.empty((*weights.shape, 4), np.float32)
    image[:, :, :3], image[:, :, 3] = colour, np.sqrt(weights)
    axes.imshow(image, interpolation="nearest", aspect="auto")
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0, pad=2, labelcolor=INK)


def _lines(axes: Axes, view: View) -> None:
    """Plot the words in two columns and the lines between them, for all heads of the layer."""
    from matplotlib.collections import LineCollection

    longest = max(len(view.rows), len(view.columns))
    axes.set(xlim=(0, 1), ylim=(longest - 0.5, -1.5))
    axes.axis("off")
    for heading, pieces, x, align in zip(
        HEADINGS[view.kind], (view.rows, view.columns), (-0.02, 1.02), ("right", "left"), strict=True
    ):
        axes.text(x, -1.1, heading, ha=align, va="center", fontsize=9, color=SOFT)
        for row, text in enumerate(_labels(pieces)):
            axes.text(x, row, text, ha=align, va="center", fontsize=9)
    for head in range(len(view.heads)):
        weights, offset = view.weights[0, head], ((head + 0.5) / len(view.heads) - 0.5) * 0.5
        pairs = np.argwhere(weights >= LEAST).tolist()
        ends = [[(0.0, row + offset), (1.0, column + offset)] for row, column in pairs]
        colours = [(*_colour(view, head), float(weights[row, column])) for row, column in pairs]
        axes.add_collection(LineCollection(ends, colors=colours, linewidths=1.6, capstyle="round"))


def not_a_picture(path: Path) -> str:
    """Return why a file is not a PNG of `nmt attend`; "" if it is one. Such a PNG has SOFTWARE in its text chunk."""
    with path.open("rb") as stream:
        head = stream.read(4096)
    is_ours = head.startswith(b"\x89PNG\r\n\x1a\n") and b"tEXtSoftware\0" + SOFTWARE.encode() in head
    return "" if is_ours else "nmt attend did not write it"
