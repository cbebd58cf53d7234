"""Every kernel against plain torch, for all norms, residuals, activations and positions, and for one that no kernel knows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.cached_decoder import CachedDecoder
from nmt_cli.decoding.decoders import ReferenceDecoder
from nmt_cli.decoding.search import Hypothesis, SearchOptions
from nmt_cli.kernels.choice import KernelsInUse, apply_kernels, has_int8
from nmt_cli.kernels.cpu_decoding import decoder as native
from nmt_cli.kernels.cpu_decoding.functions import library
from nmt_cli.model.packing import Packing
from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS

BOS, EOS, VOCABULARY = 2, 3, 60
SOURCES = [[5, 6, 7, 8, 9, EOS], [10, 11, EOS], [12, 13, 14, EOS]]
FORMS = [
    dict(zip(("norm", "residual", "activation", "positions"), names, strict=True))
    for names in itertools.product(NORMS, RESIDUALS, ACTIVATIONS, POSITIONS)
]


class ScaleNorm(nn.Module):
    """g x / |x| (Nguyen and Salazar 2019): a norm that no kernel knows."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(config.d_model**0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x / x.norm(dim=-1, keepdim=True).clamp_min(1e-5)


class Cube(nn.Module):
    """An activation that is negative for negative numbers, and that no kernel knows."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x**3


class Scaled(nn.Module):
    """A residual that no kernel knows: half of the stream, half of the sub-layer."""

    final_norm = True

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        return 0.5 * x + 0.5 * sublayer(self.norm(x))


class Flat(nn.Module):
    """Positions that no kernel knows: none at all."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(config.d_model), persistent=False)

    def forward(self, length: int, start: int = 0) -> Tensor:
        return self.zero.expand(length, -1)  # type: ignore[no-any-return, operator]

    def at(self, positions: Tensor) -> Tensor:
        return self.zero.expand(len(positions), -1)  # type: ignore[no-any-return, operator]


UNKNOWN = {
    "norm": (NORMS, "scale", ScaleNorm, "norm 'ScaleNorm' has no kernel"),
    "activation": (ACTIVATIONS, "cube", Cube, "activation 'Cube' has no kernel"),
    "residual": (RESIDUALS, "scaled", Scaled, "residual 'Scaled' has no kernel"),
    "positions": (POSITIONS, "flat", Flat, "positions 'Flat' have no kernel"),
}


def make(**changes: Any) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(
        ModelSection(
            **{
                "encoder_layers": 2,
                "decoder_layers": 2,
                "d_model": 32,
                "d_ff": 64,
                "num_heads": 2,
                "dropout": 0.0,
                "max_positions": 40,
                **changes,
            }
        ),
        VOCABULARY,
        VOCABULARY,
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() <= 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture
def unknown(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Transformer, str]:
    """A model with a form from outside the package, registered as users do, and why the kernels decline it."""
    key = request.param
    registry, name, form, reason = UNKNOWN[key]
    monkeypatch.setitem(registry, name, f"{__name__}:{form.__name__}")
    return make(**{key: name}), reason


@torch.inference_mode()
def search(decoder: Any) -> list[list[Hypothesis]]:
    options = SearchOptions(beam=3, alpha=0.6, bos=BOS, eos=EOS, banned_tokens=(0, 1, BOS))
    return beam_search(decoder, torch.tensor([len(source) + 4 for source in SOURCES]), options)


def with_kernels(model: Transformer, precision: str) -> KernelsInUse:
    return apply_kernels(convert(model, precision), "decoding")


def assert_same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]], tolerance: float) -> None:
    for left, right in zip(ours, theirs, strict=True):
        assert [h.score for h in left] == pytest.approx([h.score for h in right], abs=tolerance)
        if tolerance < 0.01:
            assert [h.tokens for h in left] == [h.tokens for h in right]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()))
def test_decoding_with_kernels_is_decoding_without(form: dict[str, str], precision: str) -> None:
    model = make(**form)
    kernels = with_kernels(model, precision)
    plain = search(CachedDecoder(convert(model, precision), SOURCES, 3))
    tolerance = 1e-4 if precision == "fp32" else 0.05
    assert_same(search(CachedDecoder(kernels.model, SOURCES, 3)), plain, tolerance)
    if (compiled := kernels.native_decoder(SOURCES, 3)) is not None:
        found, papers = search(compiled), form["norm"] == "layer" and form["activation"] == "relu"
        if precision != "fp32" and not papers:
            tolerance = 0.1  # what these add before a norm, keys and values in bf16 are worth more
        if precision == "int8" or (
            precision == "bf16" and not papers
        ):  # one number that is rounded otherwise may lead one search to another hypothesis
            alike = [
                i
                for i, (left, right) in enumerate(zip(found, plain, strict=True))
                if [h.tokens for h in left] == [h.tokens for h in right]
            ]
            assert len(alike) >= len(plain) - 1
            found, plain = [found[i] for i in alike], [plain[i] for i in alike]
        assert_same(found, plain, tolerance)
    if precision == "fp32":
        assert_same(search(ReferenceDecoder(model, SOURCES, 3)), plain, tolerance)


@pytest.mark.skipif(library() is None, reason="there is no C++ compiler here")
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()))
def test_the_compiled_decoder_takes_every_form_of_this_package(form: dict[str, str]) -> None:
    kernels = with_kernels(make(**form), "bf16")
    assert kernels.native is not None
    assert "compiled decoder" in kernels.summary
    assert "plain torch" not in kernels.summary


@pytest.mark.skipif(library() is None, reason="there is no C++ compiler here")
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize(
    "form", [{"norm": "rms"}, *({"activation": name} for name in ACTIVATIONS)], ids=lambda form: "-".join(form.values())
)
def test_the_compiled_decoder_gives_a_sentence_the_same_bits_in_any_company(
    form: dict[str, str], precision: str
) -> None:
    kernels = with_kernels(make(d_ff=72, **form), precision)  # no multiple of what torch computes at once

    def of(sources: list[list[int]]) -> list[list[Hypothesis]]:
        options = SearchOptions(beam=3, alpha=0.6, bos=BOS, eos=EOS, banned_tokens=(0, 1, BOS))
        return beam_search(
            kernels.native_decoder(sources, 3), torch.tensor([len(source) + 4 for source in sources]), options
        )

    together = of([*SOURCES, *SOURCES[::-1]])
    alone = [of([source])[0] for source in SOURCES]
    for sentence, other in zip(alone, together, strict=False):
        assert [(h.tokens, h.score) for h in sentence] == [(h.tokens, h.score) for h in other]


@pytest.mark.parametrize("unknown", list(UNKNOWN), indirect=True)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_an_unknown_form_is_translated_alike_with_kernels_on_and_off(
    unknown: tuple[Transformer, str], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reason = unknown
    kernels = with_kernels(model, precision)
    assert kernels.native is None
    if library() is not None and (precision != "int8" or has_int8()):
        assert reason in kernels.summary
    found = search(CachedDecoder(kernels.model, SOURCES, 3))
    monkeypatch.setenv("NMT_KERNELS", "off")
    off = with_kernels(model, precision)
    assert off.summary == "decoding: plain torch: NMT_KERNELS=off"
    assert_same(found, search(CachedDecoder(off.model, SOURCES, 3)), 1e-4 if precision == "fp32" else 0.05)
    if precision == "fp32":
        assert_same(found, search(ReferenceDecoder(model, SOURCES, 3)), 1e-4)


@pytest.mark.skipif(library() is None, reason="there is no C++ compiler here")
@pytest.mark.parametrize("unknown", ["norm", "residual"], indirect=True)
def test_without_its_check_the_compiled_decoder_would_be_wrong(
    unknown: tuple[Transformer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the tests above fail if the check is deleted."""
    model, _ = unknown
    plain = search(CachedDecoder(convert(model, "bf16"), SOURCES, 3))
    monkeypatch.setattr(native, "supports", lambda _: "")
    try:
        wrong = search(with_kernels(model, "bf16").native_decoder(SOURCES, 3))
    except (AttributeError, TypeError):
        return
    with pytest.raises(AssertionError):
        assert_same(wrong, plain, 0.05)


def batch() -> tuple[Tensor, Packing, Tensor, Packing]:
    generator = torch.Generator().manual_seed(4)
    source, target = Packing(torch.tensor([6, 3, 4])), Packing(torch.tensor([5, 5, 2]))
    return (
        *(
            x
            for packing in (source, target)
            for x in (torch.randint(4, VOCABULARY, (packing.size,), generator=generator), packing)
        ),
    )  # type: ignore[return-value]


def gradients(model: Transformer) -> tuple[Tensor, list[Tensor]]:
    src, source, tgt, target = batch()
    hidden = model.forward_packed(src, source, tgt, target)[: target.tokens]
    direction = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(5))
    return hidden, list(torch.autograd.grad((hidden.float() * direction).sum(), list(model.parameters())))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form.values()))
def test_training_with_kernels_is_training_without(form: dict[str, str], dtype: torch.dtype) -> None:
    plain = make(**form).to(dtype).train()
    kernels = apply_kernels(plain, "training")
    assert {"dropout by 16-bit draws", "short attention"} <= set(kernels.used)
    assert [id(parameter) for parameter in kernels.model.parameters()] == [
        id(parameter) for parameter in plain.parameters()
    ]
    tolerance = 1e-4 if dtype == torch.float32 else 0.2  # two ways of rounding to bf16
    (ours, our_gradients), (theirs, their_gradients) = gradients(kernels.model), gradients(plain)
    assert (ours.float() - theirs.float()).norm() <= tolerance * theirs.float().norm()
    for own, other in zip(our_gradients, their_gradients, strict=True):
        assert (own.float() - other.float()).norm() <= tolerance * other.float().norm() + 1e-3


@pytest.mark.parametrize("unknown", list(UNKNOWN), indirect=True)
def test_an_unknown_form_trains_alike_with_kernels_on_and_off(
    unknown: tuple[Transformer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = unknown[0].train()
    fast = apply_kernels(plain, "training").model
    monkeypatch.setenv("NMT_KERNELS", "off")
    assert apply_kernels(plain, "training").model is plain
    for own, other in zip(gradients(fast)[1], gradients(plain)[1], strict=True):
        torch.testing.assert_close(own, other, atol=1e-4, rtol=1e-3)
