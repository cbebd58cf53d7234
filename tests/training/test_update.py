"""One update: the same gradient however it is cut, memory that runs out, gradients that are not finite, torch's Adam."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt_cli.data.batches import EpochPlan
from nmt_cli.data.shards import Corpus
from nmt_cli.errors import TrainingError
from nmt_cli.hardware import Hardware
from nmt_cli.model.transformer import Transformer, attention_mask
from nmt_cli.recipe import Recipe
from nmt_cli.training.loader import Share, feed
from nmt_cli.training.loss import smoothed_loss_plain
from nmt_cli.training.process_group import Ranks
from nmt_cli.training.schedule import learning_rate
from nmt_cli.training.update import Updater

ALONE = Ranks()
V = 60
PAIRS = 400
CPU = {precision: Hardware("cpu", precision, 2**32) for precision in ("fp32", "bf16")}


def recipe(**train: Any) -> Recipe:
    model = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 32, "d_ff": 64, "num_heads": 4, "dropout": 0.0, "max_positions": 64}
    values = {"batch_tokens": 2048, "warmup": 10, "precision": "fp32", **train}
    return Recipe.from_dict({"data": {"train_source": ["a"], "train_target": ["b"], "vocab_size": V, "max_length": 40}, "model": model, "train": values}, "test")


@pytest.fixture
def corpus() -> Corpus:
    random = np.random.default_rng(0)
    pairs = [tuple(random.integers(4, V, random.integers(1, 30)) for _ in range(2)) for _ in range(PAIRS)]
    lengths = np.array([[len(side) for side in pair] for pair in pairs], dtype=np.int32)
    return cast(Corpus, SimpleNamespace(pair=lambda i: pairs[i], source_lengths=lengths[:, 0], target_lengths=lengths[:, 1]))


def updater(ranks: Ranks = ALONE, precision: str = "fp32", warn: Callable[[str], None] = lambda _: None, dropout: float = 0.0, **train: Any) -> Updater:
    torch.manual_seed(1)
    chosen = recipe(**train)
    chosen = chosen.model_copy(update={"model": chosen.model.model_copy(update={"dropout": dropout})})
    return Updater(Transformer(chosen.model, V, V).train(), chosen, CPU[precision], ranks, warn)


def share_of(corpus: Corpus, tokens: int, ranks: Ranks = ALONE) -> Share:
    plan = EpochPlan(corpus.source_lengths, corpus.target_lengths, 2048, seed=1)
    return next(feed(corpus, plan, 0, 0, tokens, ranks, CPU["fp32"]))


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


def plain_gradient(made: Updater, share: Share) -> dict[str, Tensor]:
    """The slow twin: padded, the loss by its definition, torch's autograd, one pass."""
    model, total = made.weights.model, torch.zeros(())
    for micro_batch in share.micro_batches:
        batch = micro_batch.batch
        hidden = model(batch.src, attention_mask(batch.src_lengths, batch.src.size(1)), batch.tgt_in)
        real = torch.arange(hidden.size(1)) < batch.tgt_lengths[:, None]
        total = total + smoothed_loss_plain(hidden[real], model.output_weight, batch.tgt_out[real], 0.1)[0]
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(total / share.target_tokens, parameters)
    return dict(zip(names, gradients, strict=True))


def test_the_gradient_is_that_of_the_slow_twin(corpus: Corpus) -> None:
    made, share = updater(), share_of(corpus, 300)
    made.accumulate(share)
    for name, expected in plain_gradient(made, share).items():
        torch.testing.assert_close(made.weights.view(made.weights.gradient, name), expected, atol=2e-6, rtol=1e-4)


def test_in_bf16_it_points_the_same_way(corpus: Corpus) -> None:
    made, rounded, share = updater(), updater(precision="bf16"), share_of(corpus, 300)
    made.accumulate(share)
    rounded.accumulate(share)
    exact, ours = made.weights.gradient, rounded.weights.gradient
    assert ours.dtype == torch.float32
    assert (ours - exact).norm() <= 0.03 * exact.norm()


@pytest.mark.parametrize(("ranks", "tokens"), [(1, 200), (4, 200), (2, 200), (4, 2048), (1, 32), (3, 500)])
def test_micro_batches_and_ranks_give_one_gradient(corpus: Corpus, ranks: int, tokens: int) -> None:
    """1 × 8 micro-batches, 4 × 2, 2 × 4 and others against the whole at once: sums over ranks are what all_reduce adds up."""
    whole, made = updater(), updater()
    whole_sums, _ = whole.accumulate(share_of(corpus, 4096))
    total, sums, counts = torch.zeros_like(whole.weights.gradient), torch.zeros(2), set()
    for rank in range(ranks):
        share = share_of(corpus, tokens, Ranks(rank, rank, ranks, ranks))
        counts.add(len(share.micro_batches))
        sums += made.accumulate(share)[0]
        total += made.weights.gradient
    assert len(counts) == 1
    close(total, whole.weights.gradient)
    close(sums, whole_sums)
    if tokens == 200:
        assert counts.pop() * ranks >= 8


def test_a_step_is_torchs_adam_on_the_gradient(corpus: Corpus) -> None:
    made, share = updater(), share_of(corpus, 4096)
    twin = [parameter.detach().clone().requires_grad_() for parameter in made.weights.model.parameters()]
    adam = torch.optim.Adam(twin, betas=(0.9, 0.98), eps=1e-9, foreach=False)
    for number in (1, 2, 3):
        outcome = made(share, number)
        for parameter, gradient in zip(twin, made.weights.by_name(made.weights.gradient).values(), strict=True):
            parameter.grad = gradient.clone()
        adam.param_groups[0]["lr"] = learning_rate(number, 32, 10, 1.0)
        adam.step()
        assert outcome.rate == adam.param_groups[0]["lr"]
        for ours, theirs in zip(made.weights.model.parameters(), twin, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-5)


def test_clipping_brings_the_norm_to_the_limit(corpus: Corpus) -> None:
    made, share = updater(clip_norm=0.01), share_of(corpus, 4096)
    outcome = made(share, 1)
    assert float(outcome.norm) > 0.01
    assert float(made.weights.gradient.norm()) == pytest.approx(0.01, rel=1e-3)


def test_the_working_copy_is_the_master_in_fp32_and_its_rounding_in_bf16(corpus: Corpus) -> None:
    share = share_of(corpus, 4096)
    exact, rounded = updater(), updater(precision="bf16")
    assert exact.weights.working.data_ptr() == exact.weights.master.data_ptr()
    rounded(share, 1)
    assert rounded.weights.working.dtype == torch.bfloat16
    assert torch.equal(rounded.weights.working, rounded.weights.master.data.bfloat16())
    names = dict(rounded.weights.computer.named_parameters())
    for name, parameter in rounded.weights.model.named_parameters():
        assert torch.equal(names[name], parameter.bfloat16())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_moments_can_be_taken_up_by_another(corpus: Corpus, precision: str) -> None:
    one, share = updater(precision=precision, dropout=0.1), share_of(corpus, 300)
    one(share, 1)
    other = updater(precision=precision, dropout=0.1)
    other.weights.master.data.copy_(one.weights.master.data)
    other.weights.refresh()
    other.restore({name: moment.clone() for name, moment in one.moments().items()}, 1)
    for made in (one, other):
        torch.manual_seed(5)
        made(share, 2)
    assert torch.equal(one.weights.master, other.weights.master)


def fail_on(made: Updater, when: Callable[[int], bool]) -> list[int]:
    """Let every pass with a number of pairs for which `when` holds run out of memory; the passes tried."""
    tried: list[int] = []
    through = made.pass_through

    def failing(micro_batch: Any, tokens: int) -> Tensor:
        tried.append(len(micro_batch.batch.src))
        if when(tried[-1]):
            torch.randn(1)  # random numbers are used before the memory runs out
            made.weights.computer.matrix("output").sum().backward()  # type: ignore[no-untyped-call]  # and part of the gradient is there
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes.")
        return through(micro_batch, tokens)

    made.pass_through = failing  # type: ignore[method-assign]
    return tried


def test_out_of_memory_cuts_the_micro_batch_and_loses_no_pair(corpus: Corpus) -> None:
    whole, share = updater(), share_of(corpus, 1024)
    sums, _ = whole.accumulate(share)
    warnings: list[str] = []
    made = updater(warn=warnings.append)
    largest = max(len(micro_batch.batch.src) for micro_batch in share.micro_batches)
    tried = fail_on(made, lambda pairs: pairs > largest // 3)
    cut_sums, cut = made.accumulate(share)
    close(made.weights.gradient, whole.weights.gradient)
    close(cut_sums, sums)
    assert sum(len(micro_batch.batch.src) for micro_batch in cut.micro_batches) == sum(len(micro_batch.batch.src) for micro_batch in share.micro_batches)
    assert max(len(micro_batch.batch.src) for micro_batch in cut.micro_batches) <= largest // 3 < max(tried)
    assert len(warnings) == len(cut.micro_batches) - len(share.micro_batches)
    assert "cut in two" in warnings[0]


def test_random_numbers_are_those_of_an_update_cut_from_the_start(corpus: Corpus) -> None:
    share = share_of(corpus, 2048)
    made, cut = updater(dropout=0.3), updater(dropout=0.3)
    largest = max(len(micro_batch.batch.src) for micro_batch in share.micro_batches)
    fail_on(made, lambda pairs: pairs == largest)
    torch.manual_seed(7)
    _, found = made.accumulate(share)
    torch.manual_seed(7)
    cut.accumulate(found)
    assert torch.equal(made.weights.gradient, cut.weights.gradient)


def test_a_single_pair_that_does_not_fit_is_an_error_with_its_lengths(corpus: Corpus) -> None:
    made = updater()
    fail_on(made, lambda pairs: True)
    with pytest.raises(TrainingError, match=r"single pair of 29 source and"):
        made.accumulate(share_of(corpus, 64))


def test_another_fault_is_not_taken_for_want_of_memory(corpus: Corpus) -> None:
    made = updater()
    made.pass_through = lambda *_: (_ for _ in ()).throw(RuntimeError("size mismatch"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="size mismatch"):
        made.accumulate(share_of(corpus, 2048))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_leaves_weights_and_moments_as_they_were(corpus: Corpus, precision: str, clip: float) -> None:
    made, share = updater(precision=precision, clip_norm=clip), share_of(corpus, 4096)
    made(share, 1)
    weights, moments = made.weights.master.detach().clone(), {name: moment.clone() for name, moment in made.moments().items()}
    through = made.pass_through

    def broken(micro_batch: Any, tokens: int) -> Tensor:
        sums = through(micro_batch, tokens)
        made.weights.gradient[5] = float("nan")
        return sums

    made.pass_through = broken  # type: ignore[method-assign]
    outcome = made(share, 2)
    assert float(outcome.skipped) == 1.0
    assert torch.equal(made.weights.master, weights)
    assert all(torch.equal(moment, moments[name]) for name, moment in made.moments().items())
    made.pass_through = through  # type: ignore[method-assign]
    assert float(made(share, 3).skipped) == 0.0
    assert float(made.adam.state[made.weights.master]["step"]) == 2.0
    assert torch.isfinite(made.weights.master).all()
    assert not torch.equal(made.weights.master, weights)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_passes_give_the_same_gradient(corpus: Corpus) -> None:
    """Traced by torch.compile and run as traced: its compiler is not on every machine."""
    chosen = recipe()
    chosen = chosen.model_copy(update={"model": chosen.model.model_copy(update={"encoder_layers": 1, "decoder_layers": 1})})
    plain, traced = (Updater(Transformer(chosen.model, V, V).train(), chosen, CPU["fp32"], ALONE, backend=backend) for backend in ("", "eager"))
    traced.weights.master.data.copy_(plain.weights.master.data)
    share = share_of(corpus, 4096)
    plain.accumulate(share)
    traced.accumulate(share)
    close(traced.weights.gradient, plain.weights.gradient)


def test_no_gradient_stays_over_from_the_update_before(corpus: Corpus) -> None:
    made, share = updater(), share_of(corpus, 300)
    made.accumulate(share)
    once = made.weights.gradient.clone()
    made.accumulate(share)
    assert torch.equal(made.weights.gradient, once)
    assert all(parameter.grad is None for parameter in made.weights.computer.parameters())
