"""Pictures by matplotlib: what is on them, read back as pixels."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
import torch

from nmt_cli.reporting.attention_plot import COLOURS, picture
from nmt_cli.translation.attention_maps import AttentionRecord, View

pytest.importorskip("matplotlib", reason="matplotlib (the extra 'plots') is not installed")
Image = pytest.importorskip("PIL.Image", reason="matplotlib comes with it")

PIECES = ["▁The", "▁cat", "▁sees", "</s>"]


def view(weights: torch.Tensor, rows: list[str] = PIECES, columns: list[str] = PIECES, first_head: int = 1) -> View:
    layers, heads = weights.shape[:2]
    numbers = tuple(range(1, layers + 1)), tuple(range(first_head, first_head + heads))
    return View("cross", tuple(rows), tuple(columns), *numbers, weights.numpy())


def drawn(one: View, source: str = "The cat sees", translation: str = "Die Katze sieht") -> Any:
    """(height, width, 3) of 0 to 255."""
    content = picture(one, AttentionRecord("model", source, translation, -1.0, -0.5, (one,)))
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    image = Image.open(io.BytesIO(content)).convert("RGB")
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(image.height, image.width, 3).int()


def count(image: Any, colour: str, weight: float = 1) -> int:
    """Pixels of this colour, or of the shade of it that stands for a weight: sqrt(weight) of it over white."""
    of_it = torch.tensor([255 - weight**0.5 * (255 - int(colour[i : i + 2], 16)) for i in (1, 3, 5)])
    return int(((image - of_it).abs() < 1.6).all(-1).sum())


def test_a_weight_of_one_has_its_heads_colour_and_others_a_shade_of_it() -> None:
    diagonal, half = torch.eye(4)[None, None], torch.full((1, 1, 4, 4), 0.25)
    sharp = count(drawn(view(diagonal)), COLOURS[0])  # four cells, and four lines
    even = drawn(view(half))
    assert count(even, COLOURS[0]) == 0
    assert 3.5 < count(even, COLOURS[0], 0.25) / sharp < 4.1
    third = drawn(view(diagonal, first_head=3))
    assert count(third, COLOURS[0]) == 0
    assert count(third, COLOURS[2]) == pytest.approx(sharp, rel=0.1)


def test_a_grid_has_every_layer_and_head() -> None:
    """Two layers and three heads; only head 2 of layer 2 attends sharply."""
    weights = torch.full((2, 3, 4, 4), 0.25)
    weights[1, 1] = torch.eye(4)
    image = drawn(view(weights))
    found = [count(image, colour) for colour in COLOURS[:3]]
    assert found[0] == found[2] == 0
    assert found[1] > 1000
    even = [count(image, colour, 0.25) for colour in COLOURS[:3]]
    assert even[0] > 30_000
    assert even == pytest.approx([even[0], even[0] / 2, even[0]], rel=0.05)


@pytest.mark.slow
def test_one_layer_and_one_head_are_drawn_larger() -> None:
    weights, pieces = torch.eye(12).expand(2, 3, 12, 12), PIECES * 3
    all_of_them, layer, head = (drawn(view(some, pieces, pieces)) for some in (weights, weights[:1], weights[:, :1]))
    assert count(layer, COLOURS[2]) > 1.5 * count(all_of_them, COLOURS[2]) / 2
    assert count(head, COLOURS[0]) > 1.5 * count(all_of_them, COLOURS[0])


def test_lines_follow_the_weights() -> None:
    """Straight across, or all to the last word: other pixels between the columns."""
    across, last = torch.eye(4)[None, None], torch.zeros(1, 1, 4, 4)
    last[..., 3] = 1
    assert not torch.equal(drawn(view(across))[:, :400], drawn(view(last))[:, :400])


@pytest.mark.parametrize("heads", [1, 2])
def test_any_characters_are_drawn(
    heads: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    odd = ["$x$", "$", r"\frac", "^_{", "▁مرحبا", "東京", "🙂", "\ue000", "<0x00>", "\x07", "&", "▁" * 3]
    text = " ".join(odd) + " word" * 60
    with caplog.at_level(logging.DEBUG if heads == 2 else logging.WARNING):
        image = drawn(view(torch.eye(len(odd)).expand(1, heads, -1, -1), odd, odd), text, text)
    assert image.min() < 60  # ink
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("rows", "columns", "heads"), [(1, 1, 1), (1, 120, 2), (90, 2, 1), (30, 30, 6)])
def test_any_shape_is_drawn(rows: int, columns: int, heads: int) -> None:
    weights = torch.full((1, heads, rows, columns), 1 / columns)
    image = drawn(view(weights, [f"▁r{n}" for n in range(rows)], [f"▁c{n}" for n in range(columns)]))
    assert 100 < image.shape[0] < 6000
    assert 100 < image.shape[1] < 6000
