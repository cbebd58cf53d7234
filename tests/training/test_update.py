"""One update: the same gradient however it is cut, memory that runs out, gradients that are not finite, torch's Adam."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from replicas import ALONE, V, batch_of, new_updater, recipe
from small_models import needs_engine
from torch import Tensor

from nmt_cli.device.hardware import Hardware
from nmt_cli.engine.library import library
from nmt_cli.errors import TrainingError
from nmt_cli.kernels import chunked_loss
from nmt_cli.model.transformer import Transformer, attention_mask
from nmt_cli.training.loader import FlatBatch, RankBatch
from nmt_cli.training.loss import label_smoothed_loss
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.schedule import learning_rate
from nmt_cli.training.update import FIRST_SCALE, GROW_AFTER, LARGEST_SCALE, OVERFLOWS, LossScale, Updater

DROPS = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.2}


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


def plain_gradient(updater: Updater, batch: RankBatch) -> dict[str, Tensor]:
    """The reference implementation: padded batches, the plain loss, torch's autograd, one pass."""
    model, total = updater.weights.model, torch.zeros(())
    for micro_batch in batch.micro_batches:
        padded = micro_batch.padded()
        hidden = model(padded.src, attention_mask(padded.src_lengths, padded.src.size(1)), padded.tgt_in)
        real = torch.arange(hidden.size(1)) < padded.tgt_lengths[:, None]
        total = total + label_smoothed_loss(hidden[real], model.output_weight, padded.tgt_out[real], 0.1)[0]
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(total / batch.target_tokens, parameters), strict=True))


def test_the_gradient_is_that_of_the_reference_implementation() -> None:
    updater, batch = new_updater(), batch_of(300)
    updater.accumulate(batch)
    for name, expected in plain_gradient(updater, batch).items():
        found = updater.weights.view(updater.weights.main_grads, name)
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-4)


def test_with_dropout_r_drop_is_the_mean_loss_of_two_passes_and_their_divergence() -> None:
    updater, batch = new_updater(model={"dropout": 0.3}, r_drop=5.0), batch_of(10_000, passes=2)
    torch.manual_seed(5)
    sums, _ = updater.accumulate(batch)
    torch.manual_seed(5)
    [micro_batch] = batch.micro_batches
    packed = micro_batch.packed
    hidden = updater.weights.compute_model.forward_packed(packed.src, packed.source, packed.tgt_in, packed.target)
    hidden, target = hidden[: packed.target.tokens], packed.tgt_out[: packed.target.tokens]
    scores = hidden @ updater.weights.model.output_weight.T
    first, second = scores.log_softmax(-1).chunk(2)
    nll = torch.nn.functional.cross_entropy(scores, target, reduction="sum") / 2
    divergence = ((first.exp() - second.exp()) * (first - second)).sum()
    smoothed = label_smoothed_loss(hidden, updater.weights.model.output_weight, target, 0.1)[0] / 2
    assert divergence > 1
    close(sums, torch.stack((smoothed + 5.0 / 4 * divergence, nll)))


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.03), ("fp16", 0.006)])
def test_in_half_precision_it_points_the_same_way(precision: str, tolerance: float) -> None:
    updater, rounded, batch = new_updater(), new_updater(precision=precision), batch_of(300)
    updater(batch, 1)
    rounded(batch, 1)
    exact, ours = updater.weights.main_grads, rounded.weights.main_grads
    assert ours.dtype == torch.float32
    assert (ours - exact).norm() <= tolerance * exact.norm()


def test_in_fp16_the_scale_of_the_loss_keeps_small_gradients() -> None:
    """As a small part of a very large update: without it, much of the gradient would be zero."""
    batch = replace(batch_of(300), target_tokens=100_000_000)

    def zeros(scale: float) -> float:
        updater = new_updater(precision="fp16")
        assert updater.loss_scale is not None
        updater.loss_scale.state[0] = scale
        updater(batch, 1)
        by_name = updater.weights.by_name(updater.weights.main_grads)
        layers = [gradient.flatten() for name, gradient in by_name.items() if "feed_forward.inner.weight" in name]
        return float(torch.cat(layers).eq(0).float().mean())

    assert zeros(1.0) > zeros(2.0**16) + 0.2


def test_in_fp16_an_overflow_halves_the_scale_and_takes_no_step() -> None:
    updater, batch = new_updater(precision="fp16"), batch_of(300)
    assert updater.loss_scale is not None
    updater.loss_scale.state[0] = LARGEST_SCALE
    weights = updater.weights.main_params.detach().clone()
    skipped = [float(updater(batch, 1).skipped) for _ in range(2)]
    assert skipped == [1.0, 1.0]
    assert torch.equal(updater.weights.main_params, weights)
    assert updater.loss_scale.state.tolist() == [LARGEST_SCALE / 4, 0.0]
    while skipped[-1]:
        skipped.append(float(updater(batch, 1).skipped))
    assert len(skipped) < OVERFLOWS
    assert torch.isfinite(updater.weights.main_params).all()
    assert not torch.equal(updater.weights.main_params, weights)


def test_the_scale_is_doubled_after_many_updates_without_overflow() -> None:
    scale = LossScale("cpu")
    for overflow, expected in ((0.0, 2 * FIRST_SCALE), (1.0, FIRST_SCALE)):
        for _ in range(GROW_AFTER - 1):
            scale.update(torch.tensor(0.0))
        assert float(scale.scale) == (2 * FIRST_SCALE if overflow else FIRST_SCALE)
        scale.update(torch.tensor(overflow))
        assert scale.state.tolist() == [expected, 0.0]


@pytest.mark.parametrize(("precision", "r_drop"), [("fp32", 1.0), ("bf16", 0.0), ("fp16", 0.0)])
def test_passes_compute_on_the_device_alone(monkeypatch: pytest.MonkeyPatch, precision: str, r_drop: float) -> None:
    """On torch's meta device, which refuses to mix devices and to read values: nothing waits for a GPU."""
    monkeypatch.setattr("nmt_cli.training.update.random_state", lambda _: [])
    monkeypatch.setattr("nmt_cli.training.update.loss_function", lambda _: chunked_loss.chunked_loss)
    monkeypatch.setattr(chunked_loss, "CHUNK_SCORES", 10_000)
    monkeypatch.setattr(Updater, "load_optimizer_state", lambda *_: None)
    batch, chosen = batch_of(300, passes=2 if r_drop else 1), recipe(r_drop=r_drop)
    assert len(batch.micro_batches) > 1
    model = Transformer(chosen.model, V, V).to("meta").train()
    updater = Updater(model, chosen, Hardware("meta", precision, 2**32), ALONE)
    sums, _ = updater.accumulate(FlatBatch.of(batch).to("meta"))
    if updater.loss_scale:
        updater.weights.main_grads.mul_(1.0 / updater.loss_scale.scale)
        updater.loss_scale.update(sums[0])
    updater.weights.refresh_compute_params()
    for tensor in (sums, updater.weights.main_params, updater.weights.main_grads):
        assert str(tensor.device) == "meta"


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize(("world_size", "tokens"), [(1, 200), (4, 200), (2, 200), (4, 2048), (1, 32), (3, 500)])
def test_micro_batches_and_ranks_give_one_gradient(world_size: int, tokens: int, passes: int) -> None:
    """1 × 8 micro-batches, 4 × 2, 2 × 4 and others against the whole at once: sums over ranks are what all_reduce adds up."""
    drops = DROPS if passes == 1 and library() else {}  # torch's dropout depends on the cut
    whole, updater = new_updater(model=drops), new_updater(model=drops, r_drop=3.0 if passes > 1 else 0.0)
    whole_sums, _ = whole.accumulate(batch_of(4096))
    total, sums, counts = torch.zeros_like(whole.weights.main_grads), torch.zeros(2), set()
    for rank in range(world_size):
        batch = batch_of(tokens, ProcessGroup(rank, rank, world_size, world_size), passes)
        counts.add(len(batch.micro_batches))
        sums += updater.accumulate(batch)[0]
        total += updater.weights.main_grads
    assert len(counts) == 1
    close(total, whole.weights.main_grads)
    close(sums, whole_sums)
    if tokens == 200:
        assert counts.pop() * world_size >= 8


@needs_engine
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_updates_have_the_same_bits_on_any_number_of_threads(precision: str) -> None:
    usual, found = torch.get_num_threads(), list[Tensor]()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            updater = new_updater(precision=precision, model=DROPS)
            for update in (1, 2):
                updater(batch_of(1024, number=update), update)
            found.append(updater.weights.main_params.detach().clone())
    finally:
        torch.set_num_threads(usual)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@needs_engine
def test_dropout_has_other_masks_in_each_update_and_with_each_seed() -> None:
    def gradient(update: int, seed: int) -> Tensor:
        updater = new_updater(model=DROPS, seed=seed)
        updater(batch_of(1024), update)
        return updater.weights.main_grads

    first = gradient(1, 1)
    assert torch.equal(gradient(1, 1), first)
    assert not torch.equal(gradient(2, 1), first)
    assert not torch.equal(gradient(1, 2), first)


def test_a_step_is_torchs_adam_on_the_gradient() -> None:
    updater, batch = new_updater(), batch_of(4096)
    twin = [parameter.detach().clone().requires_grad_() for parameter in updater.weights.model.parameters()]
    adam = torch.optim.Adam(twin, betas=(0.9, 0.98), eps=1e-9, foreach=False)
    for number in (1, 2, 3):
        result = updater(batch, number)
        for parameter, gradient in zip(twin, updater.weights.by_name(updater.weights.main_grads).values(), strict=True):
            parameter.grad = gradient.clone()
        adam.param_groups[0]["lr"] = learning_rate(number, 32, updater.recipe.train)
        adam.step()
        assert result.lr == adam.param_groups[0]["lr"]
        for ours, theirs in zip(updater.weights.model.parameters(), twin, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-5)


def test_compute_params_are_main_params_in_fp32_and_rounded_in_bf16() -> None:
    exact, rounded = new_updater().weights, new_updater(precision="bf16")
    exact.main_params.data[0] += 1
    assert torch.equal(exact.compute_params, exact.main_params)  # one tensor
    rounded(batch_of(4096), 1)
    names = dict(rounded.weights.compute_model.named_parameters())
    for name, parameter in rounded.weights.model.named_parameters():
        assert names[name].dtype == torch.bfloat16
        assert torch.equal(names[name], parameter.bfloat16())


def fail_on(updater: Updater, when: Callable[[int], bool]) -> list[int]:
    """Let every pass with a number of pairs for which `when` holds run out of memory; the passes tried."""
    tried: list[int] = []
    through = updater.forward_backward

    def failing(micro_batch: Any, target_tokens: int) -> Tensor:
        tried.append(micro_batch.pairs)
        if when(tried[-1]):
            torch.randn(1)  # random numbers are used before the memory runs out
            updater.weights.compute_model.matrix("output").sum().backward()  # type: ignore[no-untyped-call]  # and part of the gradient is there
            raise RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes."
            )
        return through(micro_batch, target_tokens)

    updater.forward_backward = failing  # type: ignore[method-assign]
    return tried


def test_out_of_memory_splits_a_micro_batch_and_loses_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, batch = new_updater(), batch_of(1024)
    sums, _ = whole.accumulate(batch)
    warnings: list[str] = []
    monkeypatch.setattr("nmt_cli.console.warn", warnings.append)
    updater = new_updater()
    largest = max(micro_batch.pairs for micro_batch in batch.micro_batches)
    tried = fail_on(updater, lambda pairs: pairs > largest // 3)
    cut_sums, cut = updater.accumulate(batch)
    close(updater.weights.main_grads, whole.weights.main_grads)
    close(cut_sums, sums)
    pairs, before = ([one.pairs for one in each.micro_batches] for each in (cut, batch))
    assert sum(pairs) == sum(before)
    assert max(pairs) <= largest // 3 < max(tried)
    assert len(warnings) == len(cut.micro_batches) - len(batch.micro_batches)
    assert "split in two" in warnings[0]


def test_random_numbers_are_those_of_an_update_split_from_the_start() -> None:
    batch = batch_of(2048)
    updater, cut = new_updater(model={"dropout": 0.3}), new_updater(model={"dropout": 0.3})
    largest = max(micro_batch.pairs for micro_batch in batch.micro_batches)
    fail_on(updater, lambda pairs: pairs == largest)
    torch.manual_seed(7)
    _, found = updater.accumulate(batch)
    torch.manual_seed(7)
    cut.accumulate(found)
    assert torch.equal(updater.weights.main_grads, cut.weights.main_grads)


def test_a_pair_that_does_not_fit_and_other_errors_are_raised() -> None:
    updater = new_updater()
    fail_on(updater, lambda pairs: True)
    with pytest.raises(TrainingError, match=r"single pair of 29 source and"):
        updater.accumulate(batch_of(64))
    updater = new_updater()
    updater.forward_backward = lambda *_: (_ for _ in ()).throw(RuntimeError("size mismatch"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="size mismatch"):
        updater.accumulate(batch_of(2048))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_not_finite_changes_no_parameter_and_no_state(precision: str, clip: float) -> None:
    updater, batch = new_updater(precision=precision, clip_norm=clip), batch_of(4096)
    updater(batch, 1)
    weights = updater.weights.main_params.detach().clone()
    moments = {name: moment.clone() for name, moment in updater.optimizer_state().items()}
    through = updater.forward_backward

    def broken(micro_batch: Any, target_tokens: int) -> Tensor:
        sums = through(micro_batch, target_tokens)
        updater.weights.main_grads[5] = float("nan")
        return sums

    updater.forward_backward = broken  # type: ignore[method-assign]
    result = updater(batch, 2)
    assert float(result.skipped) == 1.0
    assert torch.equal(updater.weights.main_params, weights)
    assert all(torch.equal(moment, moments[name]) for name, moment in updater.optimizer_state().items())
    updater.forward_backward = through  # type: ignore[method-assign]
    assert float(updater(batch, 3).skipped) == 0.0
    assert float(updater.adam.state[updater.weights.main_params]["step"]) == 2.0
    assert torch.isfinite(updater.weights.main_params).all()
    assert not torch.equal(updater.weights.main_params, weights)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_passes_give_the_same_gradient() -> None:
    """Traced by torch.compile and run as traced: its compiler is not on every machine."""
    chosen, cpu = recipe({"encoder_layers": 1, "decoder_layers": 1}), Hardware("cpu", "fp32", 2**32)
    plain, traced = (
        Updater(Transformer(chosen.model, V, V).train(), chosen, cpu, ALONE, backend=backend)
        for backend in ("", "eager")
    )
    traced.weights.main_params.data.copy_(plain.weights.main_params.data)
    batch = batch_of(4096)
    plain.accumulate(batch)
    traced.accumulate(batch)
    close(traced.weights.main_grads, plain.weights.main_grads)
