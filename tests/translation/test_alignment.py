"""Alignments: the attention that the model itself computes, read off a pass of its own."""

from typing import Any

import pytest
import torch
from small_models import needs_engine, section
from torch import Tensor

from nmt_cli.model.transformer import Transformer
from nmt_cli.translation import alignment
from nmt_cli.translation.alignment import SMOOTHING, aligned
from nmt_cli.translation.models import engine_model
from nmt_cli.translation.torch_forced import TorchForced

BOS, EOS = 2, 3
SOURCE, TARGET = [9, 30, 8, 7, 41, EOS], [BOS, 20, 7, 33, 12]
FEATURES: list[dict[str, Any]] = [{}, {"residual": "pre", "positions": "learned"}, {"d_k": 8, "d_v": 24}]


def cross_attention(model: Transformer, source: list[int], target: list[int], layer: int | None = None) -> Tensor:
    return torch.from_numpy(alignment.cross_attention(TorchForced(model), source, target, layer))


def make(layers: int = 3, **features: object) -> Transformer:
    torch.manual_seed(0)
    return Transformer(section(decoder_layers=layers, num_heads=4, max_positions=64, **features), 50, 50).eval()


@pytest.mark.parametrize(("layers", "number"), [(1, 0), (2, 0), (3, 1)])
@pytest.mark.parametrize("features", FEATURES)
def test_weights_are_head_means_of_the_last_but_one_layer(features: dict[str, Any], layers: int, number: int) -> None:
    """`test_attention_maps` holds those of each head."""
    model = make(layers, **features)
    _, weights = TorchForced(model).forced([SOURCE], [TARGET], attention=["cross"])
    for layer, mean in enumerate(weights["cross"].mean(1)):
        assert torch.equal(cross_attention(model, SOURCE, TARGET, layer), torch.from_numpy(mean))
    assert torch.equal(cross_attention(model, SOURCE, TARGET), cross_attention(model, SOURCE, TARGET, number))


@pytest.mark.parametrize(("layers", "read"), [(3, (1, 2)), (1, (0,))])
def test_a_token_is_aligned_by_what_predicts_it(layers: int, read: tuple[int, ...]) -> None:
    """The row of token t is that of the position before it, which the begin symbol fills at first."""
    model = make(layers)
    weights = torch.stack([cross_attention(model, SOURCE, TARGET, layer) for layer in read]).mean(0)
    expected = (weights / (weights.sum(0) + SMOOTHING)).argmax(1).tolist()
    assert aligned(TorchForced(model), SOURCE, [*TARGET[1:], 5]) == expected
    assert aligned(TorchForced(model), SOURCE, []) == []


def test_a_source_token_that_all_attend_to_is_no_tokens_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.tensor([[0.3, 0.1, 0.6], [0.1, 0.3, 0.6], [0.05, 0.05, 0.9]]).expand(3, 4, -1, -1)
    monkeypatch.setattr(TorchForced, "forced", lambda *_, attention: ([], {"cross": weights.numpy()}))
    assert aligned(TorchForced(make()), [7, 8, EOS], [20, 21, 22]) == [0, 1, 2]


@pytest.mark.parametrize("layer", [1, 3])
def test_a_head_that_was_trained_to_align_is_the_alignment(layer: int) -> None:
    model = make(guided_alignment_layer=layer)
    _, weights = TorchForced(model).forced([SOURCE], [TARGET], attention=["cross"])
    head = weights["cross"][layer - 1][0]
    assert torch.equal(cross_attention(model, SOURCE, TARGET), torch.from_numpy(head))
    assert aligned(TorchForced(model), SOURCE, [*TARGET[1:], 5]) == head.argmax(1).tolist()
    with pytest.raises(ValueError, match="guided_alignment_layer = 4 exceeds decoder_layers = 3"):
        make(guided_alignment_layer=4)


@needs_engine
@pytest.mark.parametrize(
    ("layers", "features"), [(1, {}), (3, {}), (2, {"decoder": "ssru", "guided_alignment_layer": 2})]
)
def test_the_engine_aligns_alike(layers: int, features: dict[str, Any]) -> None:
    model = make(layers, **features)
    for output in ([20, 7, 33, 12, 5], [8], []):
        assert aligned(engine_model(model, "fp32"), SOURCE, output) == aligned(TorchForced(model), SOURCE, output)
