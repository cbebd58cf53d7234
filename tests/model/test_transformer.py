"""The Transformer against torch's own stacks, the paper's printed numbers, and what must hold for any input."""

import math
from typing import Any

import pytest
import torch
from small_models import section, small
from torch import Tensor, nn
from torch_stacks import TorchStacks, counterparts, waves

from nmt_cli.data.tokenizer import BOS
from nmt_cli.exchange.verification import run
from nmt_cli.model.positions import Learned, sinusoids
from nmt_cli.model.transformer import Transformer, attention_mask, count_parameters

D, FF, H, V = 32, 48, 4, 50
LENGTHS = torch.tensor([9, 3, 6, 1])
TARGET_LENGTHS = [7, 8, 2, 5]
S, T = 9, 8


def make(**changes: Any) -> Transformer:
    return small(V, 0, **{"d_ff": FF, "num_heads": H, "dropout": 0.0, **changes})


def batch(seed: int = 1) -> tuple[Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(4, V, (4, S), generator=generator)
    tgt_in = torch.randint(4, V, (4, T), generator=generator)
    for row, (s, t) in enumerate(zip(LENGTHS.tolist(), TARGET_LENGTHS, strict=True)):
        src[row, s:] = 0
        tgt_in[row, t:] = 0
    return src, attention_mask(LENGTHS, S), tgt_in


@pytest.mark.parametrize("residual", ["post", "pre"])
def test_outputs_and_gradients_equal_torchs_stacks(residual: str) -> None:
    ours = make(residual=residual)
    theirs = TorchStacks(ours)
    assert sum(p.numel() for p in theirs.parameters()) == count_parameters(ours)["total"]
    real, wanted = torch.arange(T) < torch.tensor(TARGET_LENGTHS)[:, None], torch.randn(4, T, D)
    hidden, expected = ours(*batch()), theirs(*batch())
    with torch.no_grad():
        for found in (hidden, ours(*batch())):
            assert (found - expected)[real].abs().max() <= 1e-5
    (hidden * wanted)[real].sum().backward()
    (expected * wanted)[real].sum().backward()
    for parameter, parts in counterparts(theirs, ours):
        gradient = torch.cat([part.grad for part in parts])  # type: ignore[misc]
        assert parameter.grad is not None
        # fp32, sums over the batch's positions: relative to the largest entry
        assert (gradient - parameter.grad).abs().max() <= 1e-5 * max(1.0, parameter.grad.abs().max().item())


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("changes", [{}, {"residual": "pre"}, {"positions": "learned"}, {"decoder": "ssru"}])
def test_the_future_never_leaks(changes: dict[str, Any], gradients: bool) -> None:
    model = make(**changes)
    src, mask, tgt_in = batch()
    with torch.set_grad_enabled(gradients):
        hidden = model(src, mask, tgt_in)
        for t in range(T - 1):
            other = tgt_in.clone()
            other[:, t + 1 :] = (other[:, t + 1 :] + 7) % V
            changed = model(src, mask, other)
            assert torch.equal(changed[:, : t + 1], hidden[:, : t + 1])
            assert not torch.isclose(changed[:, t + 1 :], hidden[:, t + 1 :]).all(-1).any()


@pytest.mark.parametrize(
    "changes", [{}, {"residual": "pre"}, {"positions": "learned", "d_k": 5, "d_v": 3}, {"decoder": "ssru"}]
)
@torch.inference_mode()
def test_a_sentence_beside_others_and_a_position_at_a_time_is_its_own_pass(changes: dict[str, Any]) -> None:
    """Padding and caches change nothing."""
    model, rows = make(**changes), [row[:n].tolist() for row, n in zip(batch()[0], LENGTHS, strict=True)]
    for row, found in zip(rows, run(model, rows, [T] * len(rows)), strict=True):
        alone = model(torch.tensor([row]), None, torch.tensor([[BOS, *found.tokens[:-1]]]))
        assert (found.hidden - alone[0]).abs().max() <= 1e-5
        assert len(found.tokens) == T


def test_sinusoids_have_the_values_of_the_formula() -> None:
    """Also at far positions, where in fp32 the angle itself would be off by 1e-4."""
    torch.testing.assert_close(sinusoids(60, D), waves(60, D), atol=1e-7, rtol=0)
    assert sinusoids(60, D)[0].tolist() == [0.0, 1.0] * (D // 2)
    assert sinusoids(5001, 512)[5000, 2].item() == pytest.approx(math.sin(5000 / 10_000 ** (2 / 512)), abs=1e-7)


def test_embeddings_are_drawn_with_variance_one_over_d_model() -> None:
    torch.manual_seed(11)
    weight = Transformer(section(d_model=64), 2000, 2000).output_weight
    assert weight.std().item() == pytest.approx(64**-0.5, rel=0.01)
    assert abs(weight.mean().item()) < 4.5 * 64**-0.5 / math.sqrt(weight.numel())


def test_learned_positions_are_trained_rows_of_their_own_for_source_and_target() -> None:
    model = make(positions="learned", max_positions=40)
    assert isinstance(model.source_positions, Learned)
    assert count_parameters(model)["positions"] == 2 * 40 * D
    model.encoder, model.decoder = nn.ModuleList(), nn.ModuleList()
    ids = torch.tensor([[7, 8]])
    scaled = model.output_weight[ids] * math.sqrt(D)
    torch.testing.assert_close(model.encode(ids, None), scaled + model.source_positions.weight[:2])
    torch.testing.assert_close(model.decode(ids, [], None, start=5), scaled + model.target_positions.weight[5:7])  # type: ignore[index]
    trained = make(positions="learned", max_positions=40)
    (trained(*batch()) * torch.randn(4, T, D)).sum().backward()
    for rows, length in ((trained.source_positions.weight, S), (trained.target_positions.weight, T)):
        used = rows.grad.abs().sum(-1) > 0  # type: ignore[union-attr, operator]
        assert used.tolist() == [True] * length + [False] * (40 - length)


def test_embeddings_are_tied_or_three() -> None:
    model = make()
    assert [name for name, _ in model.named_parameters() if name.startswith("embeddings")] == ["embeddings.shared"]
    assert count_parameters(model)["embeddings"] == V * D
    hidden = torch.randn(2, D)
    torch.testing.assert_close(model.logits(hidden), hidden @ model.embeddings["shared"].T)
    model = Transformer(section(tie_embeddings=False), 30, V)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if name.startswith("embeddings")}
    assert shapes == {"embeddings.source": (30, D), "embeddings.target": (V, D), "embeddings.output": (V, D)}
    assert count_parameters(model)["embeddings"] == (30 + 2 * V) * D
    assert model.target_vocab == V
    src, mask, tgt_in = batch()
    model.logits(model(src % 30, mask, tgt_in)).logsumexp(-1).sum().backward()  # type: ignore[no-untyped-call]
    assert all(model.embeddings[use].grad.any() for use in ("source", "target", "output"))
