"""Attention as a PNG, by matplotlib (the extra `plots`), without a display.

    View ──▶ a heat map for each layer and head. Several: a grid of small maps, layers down and heads across.
             One layer or one head: larger maps, labelled with the pieces. One layer: also the paper's lines between
             words.

As in the page, each head has its colour, a cell's shade grows with the square root of its weight, and a line is as
opaque as its weight. Lengths are in inches: `_Board` puts axes on a figure, which is cropped to its contents at the
end.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError, install_command
from ..translation.attention_maps import AttentionRecord, View
from .attention_page import HEADINGS, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOFTWARE = "nmt attend"
"""The mark of a PNG that `nmt attend` wrote."""
COLOURS = ("#1f77b4", "#dd6b10", "#2b9a41", "#d0303b", "#8457c2", "#0e93a1", "#9c632c", "#d1449a", "#768700", "#5b6b88")
"""Colours of the heads, as in the page. They repeat after the last."""
INK, SOFT, EDGE = "#1b2230", "#626c7d", "#c9cfd9"
FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Arial Unicode MS",
)
"""Fonts to try for each character, in this order. Fonts that are not installed are skipped."""
DPI = 160
LEAST = 0.01
"""Smallest weight that is plotted as a line."""
SMALL, SIDE, LARGE, GAP = 1.15, 2.3, 5.5, 0.12
"""Longer side of a map in a grid, of a map of one layer or head, of a single map (larger if its labels need it), and
the gap between maps."""
ACROSS = 4
"""Maps per row, for one layer or head."""
READABLE = 0.085
"""Smallest height of a label."""


def picture(view: View, seen: AttentionRecord) -> bytes:
    """Return a PNG of all layers and heads of `view`. Raises UsageError if matplotlib is not installed."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"--png needs the extra package matplotlib ({error}): {install_command('plots')}. The page needs nothing."
        ) from None
    with (
        _quiet(),
        rc_context(
            {
                "font.family": _fonts(),
                "text.parse_math": False,
                "text.color": INK,
                "axes.edgecolor": EDGE,
                "axes.linewidth": 0.6,
            }
        ),
    ):
        figure = Figure(figsize=(10, 10), dpi=DPI, facecolor="white")
        FigureCanvasAgg(figure)
        _plot(figure, view, seen)
        stream = BytesIO()
        figure.savefig(stream, format="png", bbox_inches="tight", pad_inches=0.2, metadata={"Software": SOFTWARE})
    return stream.getvalue()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress matplotlib's messages about fonts and missing characters."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [name for name in FONTS if name in installed]


def _plot(figure: Figure, view: View, seen: AttentionRecord) -> None:
    """Plot the lines if there is one layer, then the maps from left to right and down, then the heading."""
    layers, heads = len(view.layers), len(view.heads)
    rows, columns = len(view.rows), len(view.columns)
    grid = layers > 1 and heads > 1
    across = heads if grid else -(-layers * heads // -(-layers * heads // ACROSS))  # balanced rows
    most = SMALL if grid else SIDE if layers * heads > 1 else max(LARGE, min(READABLE * max(rows, columns), 3 * LARGE))
    piece = min(most / max(rows, columns), 0.26)  # inches
    labelled = not grid and piece > 0.999 * READABLE
    size = min(9.0, piece * 72 * 0.72)  # points
    left = (_widest(figure, _labels(view.rows), size) if labelled else 0) + GAP
    top = (_widest(figure, _labels(view.columns), size) if labelled else 0) + (0.06 if grid else 0.24) + GAP
    board = _Board(figure)
    begin = 0.0
    if layers == 1:
        begin = _lines(board, view) + 0.5
    for index in range(layers * heads):
        layer, head = divmod(index, heads)
        x, y = index % across, index // across
        axes = board.axes(
            begin + left + x * (columns * piece + left), y * (rows * piece + top) + top, columns * piece, rows * piece
        )
        _map(axes, view.weights[layer, head], COLOURS[(view.heads[head] - 1) % len(COLOURS)])
        if grid:
            axes.set_title(f"head {view.heads[head]}" if layer == 0 else "", fontsize=8, color=SOFT, pad=3)
            axes.set_ylabel(f"layer {view.layers[layer]}" if head == 0 else "", fontsize=8, color=SOFT, labelpad=3)
        elif layers * heads > 1:
            above = 72 * (top - GAP - 0.24) if labelled else 0  # height of the labels
            axes.set_title(
                f"layer {view.layers[layer]}" if layers > 1 else f"head {view.heads[head]}",
                fontsize=9,
                color=SOFT,
                pad=4 + above,
            )
        if labelled:
            _label(axes, view, size)
        if layers * heads == 1 and piece >= 0.2:
            _write(axes, view.weights[0, 0])
    _head(board, view, seen)


class _Board:
    """A figure in inches from the upper left corner, y downwards."""

    def __init__(self, figure: Figure) -> None:
        self.figure, (self.width, self.height) = figure, figure.get_size_inches()

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        return self.figure.add_axes(
            (x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height)
        )

    def text(self, x: float, y: float, text: str, **how: Any) -> None:
        self.figure.text(x / self.width, 1 - y / self.height, text, **how)


def _labels(pieces: Sequence[str]) -> list[str]:
    """Return pieces with _ instead of the ▁ at the beginning of a word, which most fonts print bold."""
    return [piece.replace("▁", "_", 1) if piece.startswith("▁") else piece for piece in pieces]


def _widest(figure: Figure, texts: Sequence[str], size: float) -> float:
    """Return the width in inches of the widest of these texts."""
    from matplotlib.font_manager import FontProperties

    renderer, font = figure.canvas.get_renderer(), FontProperties(family=_fonts(), size=size)  # type: ignore[attr-defined]
    return max(float(renderer.get_text_width_height_descent(text, font, False)[0]) for text in texts) / DPI + 0.05


def _map(axes: Axes, weights: Any, colour: str) -> None:
    """Plot one head's weights (rows, columns) as shades of its colour."""
    from matplotlib.colors import to_rgb

    rows, columns = weights.shape
    image = np.empty((rows, columns, 4), np.float32)
    image[:, :, :3] = to_rgb(colour)
    image[:, :, 3] = np.sqrt(weights)
    axes.imshow(image, interpolation="nearest", aspect="auto")
    axes.set_xticks([])
    axes.set_yticks([])


def _label(axes: Axes, view: View, size: float) -> None:
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(view.columns)), _labels(view.columns), rotation=90, fontsize=size)
    axes.set_yticks(range(len(view.rows)), _labels(view.rows), fontsize=size)
    axes.tick_params(length=0, pad=2, labelcolor=INK)


def _write(axes: Axes, weights: Any) -> None:
    """Write weights of 0.1 and more into their cells."""
    for row, several in enumerate(weights.tolist()):
        for column, weight in enumerate(several):
            if weight >= 0.095:
                text = "1" if weight >= 0.995 else f".{weight * 100:02.0f}"
                axes.text(
                    column, row, text, ha="center", va="center", fontsize=6.5, color="white" if weight > 0.3 else INK
                )


def _lines(board: _Board, view: View) -> float:
    """Plot the words in two columns and the lines between them, for all heads of the layer.

    Return the width in inches.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb

    rows, columns = len(view.rows), len(view.columns)
    step = max(0.11, min(0.2, 8 / max(rows, columns)))
    size = min(9.0, step * 72 * 0.72)
    sides = [
        [heading, *_labels(texts)]
        for heading, texts in zip(HEADINGS[view.kind], (view.rows, view.columns), strict=True)
    ]
    left, right = (_widest(board.figure, texts, size) for texts in sides)
    axes = board.axes(left, 0.36 + 0.3, 1.9, step * max(rows, columns))
    axes.set(xlim=(0, 1), ylim=(max(rows, columns) - 0.5, -0.5))
    axes.axis("off")
    for (heading, *texts), side, align in zip(sides, (-0.02, 1.02), ("right", "left"), strict=True):
        axes.text(side, -1.1, heading, ha=align, va="center", fontsize=size, color=SOFT)
        for row, text in enumerate(texts):
            axes.text(side, row, text, ha=align, va="center", fontsize=size)
    for head, number in enumerate(view.heads):
        weights, colour = view.weights[0, head], to_rgb(COLOURS[(number - 1) % len(COLOURS)])
        offset = ((head + 0.5) / len(view.heads) - 0.5) * 0.5
        pairs = np.argwhere(weights >= LEAST).tolist()
        ends = [[(0.0, row + offset), (1.0, column + offset)] for row, column in pairs]
        axes.add_collection(
            LineCollection(
                ends,
                colors=[(*colour, weights[row, column].item()) for row, column in pairs],
                linewidths=1.6,
                capstyle="round",
            )
        )
    return left + 1.9 + right


def _head(board: _Board, view: View, seen: AttentionRecord) -> None:
    """Write the heading above everything else."""
    import textwrap

    part = [f"layer {view.layers[0]}"] * (len(view.layers) == 1) + [f"head {view.heads[0]}"] * (len(view.heads) == 1)
    texts = [line for text in (seen.source, seen.translation) for line in textwrap.wrap(text, 110)]
    board.text(0, -0.16 - 0.19 * len(texts), ", ".join([TITLES[view.kind], *part]), fontsize=12, fontweight="bold")
    for number, text in enumerate(texts):
        board.text(0, -0.1 - 0.19 * (len(texts) - 1 - number), text, fontsize=9, color=SOFT)


def not_a_picture(path: Path) -> str:
    """Return why a file is not a PNG of `nmt attend`; "" if it is one. Such a PNG has SOFTWARE in its text chunk."""
    with path.open("rb") as stream:
        head = stream.read(4096)
    return (
        ""
        if head.startswith(b"\x89PNG\r\n\x1a\n") and b"tEXtSoftware\0" + SOFTWARE.encode() in head
        else "nmt attend did not write it"
    )
