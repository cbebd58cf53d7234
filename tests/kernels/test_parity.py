"""Every kernel against plain torch, for all norms, residuals, activations and positions, and for one that no kernel knows."""

from typing import Any

import numpy as np
import pytest
import torch
from small_models import FORMS, packed_gradients, small
from torch import Tensor, nn

from nmt_cli.engine.library import library
from nmt_cli.engine.model import PRECISIONS, unsupported
from nmt_cli.kernels.choice import apply_kernels
from nmt_cli.model.norms import layer_norm
from nmt_cli.model.positions import Sinusoidal
from nmt_cli.model.residuals import PreNorm
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS
from nmt_cli.translation.cached_decoder import CachedDecoder
from nmt_cli.translation.models import TorchModels, models_of


def squashed_norm(config: ModelSection) -> nn.Module:
    return nn.Sequential(layer_norm(config), nn.Tanh())


def tanh(config: ModelSection) -> nn.Module:
    """An activation that is negative for negative numbers."""
    return nn.Tanh()


class Scaled(PreNorm):
    """Half of the stream, and the sub-layer."""

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        return super().forward(0.5 * x, sublayer)


class Doubled(Sinusoidal):
    """Twice the positions."""

    def forward(self, length: int, start: int = 0) -> Tensor:
        return 2 * super().forward(length, start)

    def at(self, positions: Tensor) -> Tensor:
        return 2 * super().at(positions)


UNKNOWN: dict[str, tuple[dict[str, str], Any]] = {
    "norm": (NORMS, squashed_norm),
    "activation": (ACTIVATIONS, tanh),
    "residual": (RESIDUALS, Scaled),
    "positions": (POSITIONS, Doubled),
}
"""Forms that no kernel knows."""


def make(**changes: Any) -> Transformer:
    return small(**{"dropout": 0.0, "max_positions": 40, **changes})


@pytest.fixture
def unknown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Transformer:
    """A model with a form from outside the package, registered as users do."""
    registry, form = UNKNOWN[request.param]
    monkeypatch.setitem(registry, "mine", f"{__name__}:{form.__name__}")
    return make(**{request.param: "mine"})


@pytest.mark.parametrize("unknown", list(UNKNOWN), indirect=True)
@pytest.mark.parametrize("precision", PRECISIONS)
@torch.inference_mode()
def test_the_engine_declines_an_unknown_form_and_torch_decodes_it(unknown: Transformer, precision: str) -> None:
    [key] = [key for key in UNKNOWN if getattr(unknown.config, key) == "mine"]
    if library() is not None:
        assert unsupported(unknown.config, precision) == f"the engine has no model.{key} = 'mine'"
    models = models_of([unknown], precision, 1, 1)
    assert isinstance(models, TorchModels)
    [converted] = models.models
    source, read = [5, 6, 7, 8, 3], [2, 9, 10]
    decoder = CachedDecoder(converted, [source], 1)
    steps = torch.cat([decoder.step(torch.tensor([[token]]), np.array([0])) for token in read])
    expected = converted.logits(converted(torch.tensor([source]), None, torch.tensor([read])))[0]
    torch.testing.assert_close(steps, expected, atol=1e-4 if precision == "fp32" else 0.1, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", [*FORMS, {"decoder": "ssru"}], ids=lambda form: "-".join(form.values()))
def test_training_with_kernels_is_training_without(form: dict[str, str], dtype: torch.dtype) -> None:
    plain = make(**form).to(dtype).train()
    kernels = apply_kernels(plain)
    assert (kernels.used == ("the engine's fused operations, dropout by counter",)) == (library() is not None)
    assert [*map(id, kernels.model.parameters())] == [*map(id, plain.parameters())]
    tolerance = 1e-4 if dtype == torch.float32 else 0.3  # two ways of rounding to bf16
    (ours, our_gradients), (theirs, their_gradients) = packed_gradients(kernels.model), packed_gradients(plain)
    assert (ours.float() - theirs.float()).norm() <= tolerance * theirs.float().norm()
    for own, other in zip(our_gradients, their_gradients, strict=True):
        assert (own.float() - other.float()).norm() <= tolerance * other.float().norm() + 1e-3


@pytest.mark.parametrize("unknown", list(UNKNOWN), indirect=True)
def test_an_unknown_form_trains_alike_without_kernels(unknown: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = unknown.train()
    fast = apply_kernels(plain).model
    monkeypatch.setattr("nmt_cli.kernels.choice.library", lambda: None)
    assert apply_kernels(plain).model is plain
    for own, other in zip(packed_gradients(fast)[1], packed_gradients(plain)[1], strict=True):
        torch.testing.assert_close(own, other, atol=1e-4, rtol=1e-3)
