"""The cached stepper against the plain one; and no bit of a sentence's result depends on its neighbours."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from nmt_cli.decoding.packed import PackedLinear, available, packed
from nmt_cli.decoding.search import Hypothesis, SearchOptions, beam_search
from nmt_cli.decoding.steppers import CachedStepper, ReferenceStepper, padded_length, source_batch
from nmt_cli.model.linear import Linear
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection

PAD, UNK, BOS, EOS = 0, 1, 2, 3
VOCABULARY = 150
FEATURES: list[dict[str, object]] = [
    {},
    {"norm": "pre", "positions": "learned"},
    {"d_k": 8, "d_v": 24},
    {"tie_embeddings": False},
]


def make(seed: int = 0, **features: object) -> Transformer:
    """An untrained model: its distribution is nearly flat, so that a rounding error would change the choice."""
    torch.manual_seed(seed)
    config = ModelSection.model_validate(
        {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "d_ff": 128, "num_heads": 4, "max_positions": 128, **features}
    )
    return Transformer(config, VOCABULARY, VOCABULARY).eval()


def sources(count: int, longest: int = 40, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    return [[*(rng.randrange(4, VOCABULARY) for _ in range(rng.randint(1, longest))), EOS] for _ in range(count)]


def of_like_length(count: int, seed: int = 1) -> list[list[int]]:
    """Sources of 13 to 16 ids."""
    return [[*source[: 12 + i % 4], EOS] for i, source in enumerate(s * 16 for s in sources(count, seed=seed))]


Kind = type[ReferenceStepper] | type[CachedStepper]


@torch.inference_mode()
def translate(kind: Kind, model: Transformer, batch: list[list[int]], beam: int = 4, nbest: int = 1) -> list[list[Hypothesis]]:
    src, mask = source_batch(batch, PAD)
    options = SearchOptions(beam=beam, alpha=0.6, nbest=nbest, bos=BOS, eos=EOS, never=(PAD, UNK, BOS))
    limits = torch.tensor([len(source) + 4 for source in batch])
    return beam_search(kind(model, src, mask, beam), limits, options)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("beam", [1, 3, 4])
@torch.inference_mode()
def test_cached_is_reference_step_by_step(features: dict[str, object], beam: int) -> None:
    """Random tokens, parents and departures: log-probabilities equal to 1e-5."""
    model, generator = make(**features), torch.Generator().manual_seed(5)
    src, mask = source_batch(of_like_length(7), PAD)
    steppers = ReferenceStepper(model, src, mask, beam), CachedStepper(model, src, mask, beam)
    count = 7
    for step in range(45):  # beyond the caches' first capacity
        tokens = torch.randint(4, VOCABULARY, (count, beam), generator=generator)
        plain, cached = (s.step(tokens).log_softmax(-1) for s in steppers)
        assert cached.shape == (count, beam, VOCABULARY)
        torch.testing.assert_close(cached, plain, atol=1e-5, rtol=1e-5)
        parents = torch.randint(beam, (count, beam), generator=generator)
        stay = torch.randperm(count, generator=generator)[: max(1, count - (step % 10 == 9))]
        count = len(stay)
        for stepper in steppers:
            stepper.reorder(parents)
            if step % 10 == 9:
                stepper.keep(stay)


@pytest.mark.parametrize("features", FEATURES)
def test_cached_search_is_reference_search(features: dict[str, object]) -> None:
    model, batch = make(**features), of_like_length(9)
    plain, cached = (translate(kind, model, batch, nbest=4) for kind in (ReferenceStepper, CachedStepper))
    assert [[h.tokens for h in row] for row in cached] == [[h.tokens for h in row] for row in plain]
    for left, right in zip(cached, plain, strict=True):
        assert [h.log_prob for h in left] == pytest.approx([h.log_prob for h in right], abs=1e-3)


def unchanged(model: Transformer) -> Transformer:
    return model


@pytest.mark.parametrize("prepare", [unchanged, packed])
@pytest.mark.parametrize("beam", [1, 4, 5])
@pytest.mark.parametrize("features", [{}, {"d_k": 8, "d_v": 24}])
def test_a_sentence_does_not_depend_on_its_neighbours(prepare: Callable[[Transformer], Transformer], beam: int, features: dict[str, object]) -> None:
    """Alone, in threes, all together, in another order: equal tokens, and equal scores to the last bit."""
    model, batch = prepare(make(**features)), of_like_length(20)
    together = translate(CachedStepper, model, batch, beam)
    for size in (1, 3):
        parts = [translate(CachedStepper, model, batch[i : i + size], beam) for i in range(0, len(batch), size)]
        assert [row for part in parts for row in part] == together
    order = random.Random(3).sample(range(20), 20)
    shuffled = translate(CachedStepper, model, [batch[i] for i in order], beam)
    assert [shuffled[order.index(i)] for i in range(20)] == together


@torch.inference_mode()
def test_padding_is_not_seen() -> None:
    model = make()
    short, full = of_like_length(4)[0], of_like_length(4)[3]
    assert (len(short), len(full)) == (13, 16)
    assert padded_length(13) == padded_length(16) == 16
    src, mask = source_batch([short, full], PAD)
    steppers = [CachedStepper(model, ids, mask, 2) for ids in (src, src.where(mask[:, 0, 0], 77))]
    tokens = torch.full((2, 2), BOS)
    first, second = (stepper.step(tokens) for stepper in steppers)
    assert torch.equal(first, second)


def test_packed_products_are_the_same_but_for_rounding() -> None:
    if not available():
        pytest.skip("torch has no such operator here")
    linear = torch.nn.Linear(48, 40)
    x = torch.randn(3, 5, 48)
    torch.testing.assert_close(PackedLinear(linear.weight, linear.bias)(x), linear(x), atol=1e-5, rtol=1e-5)


def test_packing_leaves_the_model_alone() -> None:
    model = make().train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    fast = packed(model)
    if not available():
        assert fast is model
        return
    assert (model.training, fast.training) == (True, False)
    assert model.encoder[0].feed_forward.inner.__class__ is Linear
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    batch = of_like_length(5)
    assert [r[0].tokens for r in translate(CachedStepper, model.eval(), batch)] == [r[0].tokens for r in translate(CachedStepper, fast, batch)]
