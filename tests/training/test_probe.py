"""The micro-batch size: chosen by measured peaks, on an imaginary machine and on this one."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt_cli.data.batches import EpochPlan
from nmt_cli.device.hardware import Hardware
from nmt_cli.device.memory import memory_size
from nmt_cli.errors import TrainingError, UsageError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import Recipe
from nmt_cli.training.probe import choose_micro_batch, find_max_batch, measure_peak
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.update import Updater

MB = 2**20


def machine(base: int, bytes_per_token: int, available: int = sys.maxsize) -> tuple[Callable[[int], float], list[int]]:
    """Return the `measure` of a machine whose peak is `base` plus `bytes_per_token` bytes per token, and the sizes that were measured."""
    asked: list[int] = []

    def measure(tokens: int) -> float:
        asked.append(tokens)
        used = base + tokens * bytes_per_token
        return float(used) if used <= available else float("inf")

    return measure, asked


@pytest.mark.parametrize("start", [64, 500, 2048, 25_000])
@pytest.mark.parametrize("limit", [400, 1000, 4000, 100_000])
def test_the_largest_batch_fits_and_wastes_little(start: int, limit: int) -> None:
    measure, asked = machine(100 * MB, MB)
    found = find_max_batch(measure, start, 25_000, 60, limit * MB, 100 * MB)
    assert measure(found) <= limit * MB
    assert found == 25_000 or found >= (limit - 100) * 0.4
    assert len(asked) <= 12


@pytest.mark.parametrize(
    ("start", "longest", "limit", "available", "least", "most"),
    [
        (8000, 60, 10_000, 700, 60, 600),  # the machine has less than it seemed
        (1000, 300, 200, 10**6, 0, 0),  # the longest pair does not fit
        (50, 300, 10_000, 10**6, 300, 300),  # nor is less than it asked for
    ],
)
def test_limits_of_memory_and_pairs(
    start: int, longest: int, limit: int, available: int, least: int, most: int
) -> None:
    measure, asked = machine(100 * MB, MB, available * MB)
    assert least <= find_max_batch(measure, start, start, longest, limit * MB, 100 * MB) <= most
    assert min(asked) >= longest


def new_updater(memory: int, **train: object) -> Updater:
    model: dict[str, Any] = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 64, "d_ff": 2048, "num_heads": 4}
    model |= {"dropout": 0.1, "max_positions": 256}
    data = {"train_source": ["a"], "train_target": ["b"], "vocab_size": 2000, "max_length": 100}
    values = {"batch_tokens": 8192, "precision": "fp32", **train}
    recipe = Recipe.from_dict({"data": data, "model": model, "train": values}, "test")
    torch.manual_seed(0)
    network = Transformer(recipe.model, 2000, 2000).train()
    return Updater(network, recipe, Hardware("cpu", "fp32", memory), ProcessGroup())


def plan() -> EpochPlan:
    lengths = torch.randint(5, 90, (500,)).numpy()
    return EpochPlan(lengths, lengths, 8192, 1)


def test_a_size_in_the_recipe_is_used_as_it_is_and_a_resumed_run_takes_no_more_than_before() -> None:
    assert choose_micro_batch(new_updater(2**40, micro_batch_tokens=777), plan()) == 777
    assert choose_micro_batch(new_updater(2**40), plan(), before=500) == 500


def test_probing_changes_neither_parameters_nor_optimizer_state() -> None:
    updater = new_updater(2**40)
    weights = updater.weights.main_params.detach().clone()
    choose_micro_batch(updater, plan())
    assert torch.equal(updater.weights.main_params, weights)
    assert not any(moment.any() for moment in updater.optimizer_state().values())
    assert float(updater.adam.state[updater.weights.main_params]["step"]) == 0.0


def choices() -> None:
    """Print what is chosen with much memory, and with less than the largest micro-batch needs."""
    updater = new_updater(2**40)
    low, high = (measure_peak(updater, (90, 90), tokens) for tokens in (90, 2048))
    much, little = (
        choose_micro_batch(new_updater(int(limit / 0.9)), plan())
        for limit in (high + 4000 * MB, low + 0.6 * (high - low))
    )
    print(much, little)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from Linux")
def test_little_memory_means_small_micro_batches() -> None:
    """In a process of its own, whose memory no other test has filled."""
    code = f"import runpy; runpy.run_path({__file__!r})['choices']()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    much, little = map(int, done.stdout.split())
    assert much == 2048  # as a CPU likes them
    assert 90 <= little < much


def test_no_memory_is_an_error() -> None:
    with pytest.raises(TrainingError, match="does not fit into"):
        choose_micro_batch(new_updater(64 * MB), plan())


def test_sizes_of_memory() -> None:
    sizes = {"4GiB": 2**32, "800M": 800 * MB, "1.5 gb": 3 * 2**29, "2147483648": 2**31}
    assert {text: memory_size(text) for text in sizes} == sizes
    for text in ("", "much", "4 apples", "-2G", "12", "1e9"):
        with pytest.raises(UsageError, match="no size of memory"):
            memory_size(text)
