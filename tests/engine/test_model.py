"""The engine's decoder and its pass over whole sentences compute what the model computes in torch, for every form of model."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from small_models import FORMS, VOCABULARY, needs_engine, small, sources
from torch import Tensor

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.engine import EngineDecoder
from nmt_cli.translation import cached_decoder
from nmt_cli.translation.cached_decoder import CachedDecoder, _SsruSubBatch, _SubBatch
from nmt_cli.translation.models import engine_model
from nmt_cli.translation.torch_forced import TorchForced

pytestmark = needs_engine

SHAPES: list[dict[str, Any]] = [
    {"tie_embeddings": False},
    {"monotonic_attention": True},
    {"monotonic_attention": True, "tie_embeddings": False, "residual": "pre", "positions": "rotary"},
    {"d_k": 8, "d_v": 24},
    {"d_model": 64, "num_heads": 8},
    {"d_model": 64, "num_heads": 2, "positions": "rotary"},
    {"d_model": 128, "num_heads": 2},
    {"d_model": 20, "num_heads": 4, "d_k": 6, "d_v": 7, "d_ff": 36, "positions": "rotary"},
    {"d_model": 36, "num_heads": 4, "d_k": 5, "d_v": 3, "d_ff": 1000},
    {"d_model": 40, "num_heads": 1, "d_ff": 20, "encoder_layers": 3, "decoder_layers": 1},
    {"positions": "marian", "output_bias": True, "zero_start": True, "norm_epsilon": 1e-3},
    {"positions": "marian", "output_bias": True, "tie_embeddings": False, "residual": "pre", "activation": "silu"},
    {"decoder": "ssru", "positions": "marian", "output_bias": True, "zero_start": True, "norm_epsilon": 1e-6},
    {"decoder": "ssru", "residual": "pre", "norm": "rms", "positions": "rotary", "tie_embeddings": False},
    {"decoder": "ssru", "d_model": 36, "num_heads": 3, "d_k": 7, "d_v": 4, "monotonic_attention": True},
]
WIDTH = 3


def name(form: dict[str, Any]) -> str:
    return "-".join(str(value) for value in form.values())


class OfSourceInBf16(_SubBatch):
    """Keys and values are rounded to bf16, as the engine keeps them in int8."""

    def _encode(self, *arguments: Any) -> list[tuple[Tensor, Tensor]]:
        return [(in_bf16(keys), in_bf16(values)) for keys, values in super()._encode(*arguments)]


class InBf16(OfSourceInBf16):
    def self_attention(self, layer: int, rows: Tensor, *arguments: Any) -> Tensor:
        return super().self_attention(layer, torch.cat([rows[:, :1], in_bf16(rows[:, 1:])], 1), *arguments)


class SsruInBf16(OfSourceInBf16, _SsruSubBatch):
    """States stay in fp32."""


def in_bf16(x: Tensor) -> Tensor:
    return x.bfloat16().float()


@torch.inference_mode()
def play(model: Transformer, precision: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits of random steps with both decoders, the engine's first.

    Sentences of 1 to 70 tokens enter at three steps, hypotheses close, and sentences leave.
    """
    rng, generator = random.Random(1), torch.Generator().manual_seed(1)
    ours = EngineDecoder(engine_model(model, precision), WIDTH)
    theirs = CachedDecoder(convert(model, precision), [], WIDTH)
    entering = {0: sources(1, 17, 70, 3), 2: sources(5), 9: sources(33, 1, 16, seed=2)}
    open_ones: list[list[int]] = []  # of each sentence
    for step in range(14):
        if new := [[*source, EOS] for source in entering.get(step, [])]:
            ours.add(new)
            theirs.add(new)
            open_ones += [[0] for _ in new]
        rows = np.array([b * WIDTH + w for b, hypotheses in enumerate(open_ones) for w in hypotheses])
        tokens = torch.randint(4, VOCABULARY, (len(open_ones), WIDTH), generator=generator)
        yield torch.from_numpy(ours.step(tokens.numpy(), rows)), theirs.step(tokens, rows)
        parents = torch.tensor([[rng.choice(hypotheses) for _ in range(WIDTH)] for hypotheses in open_ones])
        open_ones = [sorted(rng.sample(range(WIDTH), rng.randint(1, WIDTH))) for _ in open_ones]
        ours.reorder(parents.numpy())
        theirs.reorder(parents)
        if step in (4, 9, 11):
            stay = sorted(rng.sample(range(len(open_ones)), len(open_ones) - 2))
            open_ones = [open_ones[b] for b in stay]
            for decoder in (ours, theirs):
                decoder.keep(np.array(stay))


@pytest.mark.parametrize("form", [*FORMS, *SHAPES], ids=name)
def test_steps_in_fp32_are_those_of_the_decoder_in_torch(form: dict[str, Any]) -> None:
    for ours, theirs in play(small(**form), "fp32"):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", [*FORMS, *SHAPES], ids=name)
def test_steps_in_int8_are_those_of_the_decoder_in_torch(form: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of floats have another order, so a few numbers are rounded to another integer: many rows, but not all, are equal."""
    monkeypatch.setattr(cached_decoder, "_SubBatch", InBf16)
    monkeypatch.setattr(cached_decoder, "_SsruSubBatch", SsruInBf16)
    equal = []
    for ours, theirs in play(small(**form), "int8"):
        assert (ours - theirs).square().mean().sqrt() < 0.03 * theirs.std()
        equal += ((ours - theirs).abs().amax(1) < 1e-4).tolist()
    assert sum(equal) > 0.4 * len(equal)


@pytest.mark.parametrize("form", [*FORMS, *SHAPES], ids=name)
def test_a_step_and_a_pass_are_the_models_own_pass(form: dict[str, Any]) -> None:
    """The longest source and output that the model takes, and the shortest ones."""
    model = small(**form)
    packed, sizes = engine_model(model, "fp32"), [(71, 71), (1, 71), (30, 1)]
    pairs = [([*sources(s - 1, seed=s)[0], EOS], [BOS, *sources(t, seed=t)[0]]) for s, t in sizes]
    log_probs, _ = packed.forced([s for s, _ in pairs], [t[:-1] for _, t in pairs], [t[1:] for _, t in pairs])
    for (source, target), found in zip(pairs, log_probs, strict=True):
        with torch.inference_mode():
            hidden = model(torch.tensor([source]), None, torch.tensor([target[:-1]]))
            expected = model.logits(hidden)[0].log_softmax(-1)
        torch.testing.assert_close(torch.from_numpy(found), expected[range(len(found)), target[1:]], atol=1e-5, rtol=0)
        decoder = EngineDecoder(packed, 1)
        decoder.add([source])
        steps = np.concatenate([decoder.step(np.array([[token]]), np.array([0])) for token in target[:-1]])
        torch.testing.assert_close(torch.from_numpy(steps).log_softmax(-1), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("form", [{}, {"num_heads": 4, "d_k": 5, "d_v": 7, "positions": "learned"}], ids=name)
def test_the_attention_of_a_pass_is_what_torch_records(form: dict[str, Any], precision: str) -> None:
    """In int8, the engine keeps the decoder's keys and values in bf16."""
    model = small(decoder_layers=3, **form)
    reference = convert(model, precision)
    [source], [target] = sources(20), sources(12, seed=2)
    source, target = [*source, EOS], [BOS, *target]
    kinds = ["encoder", "decoder", "cross"]
    _, expected = TorchForced(reference).forced([source], [target], attention=kinds)
    _, found = engine_model(model, precision).forced([source], [target], attention=kinds)
    for kind in kinds:
        rounds = precision == "int8" and kind != "encoder"
        np.testing.assert_allclose(found[kind], expected[kind], atol=0.01 if rounds else 1e-6)
        np.testing.assert_allclose(found[kind].sum(-1), 1, atol=1e-6)
