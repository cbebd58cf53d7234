"""Pictures by matplotlib: what is on them, read back as pixels."""

import io
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt_cli.reporting.attention_plot import not_a_picture, picture
from nmt_cli.translation.attention_maps import AttentionRecord, View

pytest.importorskip("matplotlib", reason="matplotlib (the extra 'plots') is not installed")
Image = pytest.importorskip("PIL.Image", reason="matplotlib comes with it")

PIECES = ["▁The", "▁cat", "▁sees", "</s>"]


def view(weights: torch.Tensor, rows: list[str] = PIECES, columns: list[str] = PIECES) -> View:
    layers, heads = weights.shape[:2]
    numbers = tuple(range(1, layers + 1)), tuple(range(1, heads + 1))
    return View("cross", tuple(rows), tuple(columns), *numbers, weights.numpy())


def drawn(one: View, source: str = "The cat sees", translation: str = "Die Katze sieht") -> Any:
    """(height, width, 3) of 0 to 255."""
    content = picture(one, AttentionRecord("model", source, translation, -1.0, -0.5, (one,)))
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    image = Image.open(io.BytesIO(content)).convert("RGB")
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(image.height, image.width, 3).int()


def count(image: Any, weight: float) -> int:
    """Pixels with the shade of a weight, which grows with its square root."""
    from matplotlib import colormaps

    shade = torch.tensor(colormaps["Blues"](weight**0.5)[:3]) * 255
    return int(((image - shade).abs() < 1.6).all(-1).sum())


def test_a_cell_has_the_shade_of_its_weight() -> None:
    sharp = count(drawn(view(torch.eye(4)[None, None])), 1)  # four cells
    even = drawn(view(torch.full((1, 1, 4, 4), 0.25)))
    assert count(even, 1) == 0
    assert count(even, 0.25) == pytest.approx(4 * sharp, rel=0.1)


def test_only_our_own_picture_is_known_as_one(tmp_path: Path) -> None:
    content = picture(view(torch.eye(4)[None, None]), AttentionRecord("model", "a", "b", -1.0, -0.5, ()))
    for name, data in (("ours", content), ("theirs", b"\x89PNG\r\n\x1a\n" + b"x" * 999), ("text", content[8:])):
        (tmp_path / name).write_bytes(data)
        assert (not_a_picture(tmp_path / name) == "") == (name == "ours")


def test_a_grid_has_every_layer_and_head() -> None:
    """Two layers and three heads; only head 2 of layer 2 attends sharply."""
    weights = torch.full((2, 3, 4, 4), 0.25)
    weights[1, 1] = torch.eye(4)
    image = drawn(view(weights))
    assert count(image, 0.25) == pytest.approx(5 * 4 * count(image, 1), rel=0.1)


@pytest.mark.parametrize("heads", [1, 2])
def test_any_text_is_drawn(heads: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    odd = ["$x$", "$", r"\frac", "^_{", "▁مرحبا", "東京", "🙂", "\ue000", "<0x00>", "\x07", "&", "▁" * 3]
    text = " ".join(odd) + " word" * 60
    with caplog.at_level(logging.DEBUG if heads == 2 else logging.WARNING):
        image = drawn(view(torch.eye(len(odd)).expand(1, heads, -1, -1), odd, odd), text, text)
    assert image.min() < 60  # ink
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert capfd.readouterr().err == ""


def test_any_shape_is_drawn_and_one_head_larger() -> None:
    heights = []
    for rows, columns, heads in ((1, 1, 1), (1, 120, 2), (90, 2, 1), (30, 30, 6), (30, 30, 1)):
        weights = torch.full((1, heads, rows, columns), 1 / columns)
        image = drawn(view(weights, ["▁r"] * rows, ["▁c"] * columns))
        assert 100 < min(image.shape[:2]) < max(image.shape[:2]) < 6000
        heights.append(count(image, 1 / columns) / heads)
    assert heights[-1] > 1.5 * heights[-2]
