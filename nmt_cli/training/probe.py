"""Which micro-batch fits the memory: one is run through the model, forward and backward, and its peak is read.

    estimate ──▶ the worst micro-batch of so many tokens: the corpus's longest pair, repeated ──▶ peak bytes
    too much: smaller, as the peak suggests; little: twice as many, up to the rank's share of the update

The peak is the process's resident memory on a CPU (Linux), the allocator's on a GPU. Weights, moments and the random
numbers of training are not touched. All ranks take what the one with the least room can.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from ..data.batches import EpochPlan, collate
from ..errors import TrainingError
from ..hardware import Hardware, out_of_memory
from .estimate import CPU_MICRO_BATCH, micro_batch
from .loader import MicroBatch
from .update import Updater

ROOM = 0.9
"""Of the memory, what the worst micro-batch may bring the process to."""


def choose_micro_batch(updater: Updater, plan: EpochPlan, before: int = 0) -> int:
    """Tokens that every rank takes through the model at once: `train.micro_batch_tokens`, or what was found to fit.

    A run that goes on takes no more than `before`, so that it repeats the same roundings. Raises TrainingError when
    not even the longest pair fits.
    """
    recipe, hardware, ranks = updater.recipe, updater.hardware, updater.ranks
    if recipe.train.micro_batch_tokens:
        return recipe.train.micro_batch_tokens
    share = -(-recipe.train.batch_tokens // ranks.world)
    if hardware.device == "cpu":
        share = min(share, CPU_MICRO_BATCH)
    if before:
        share = min(share, before)
    longest = plan.longest
    limit = hardware.memory // (ranks.world_here if hardware.device == "cpu" else 1)
    parameters, vocabulary = updater.weights.master.numel(), updater.weights.model.target_vocab
    start = micro_batch(recipe.model, parameters, recipe.train.batch_tokens, vocabulary, hardware, ranks.world)
    found = fitting(lambda tokens: peak(updater, longest, tokens), min(start, share), share, max(longest), int(limit * ROOM), resident(hardware))
    found = int(-ranks.largest(-found))
    if found <= 0:
        raise TrainingError(
            f"a single pair of {longest[0]} source and {longest[1]} target tokens, the corpus's longest, does not fit into {limit / 2**30:.1f} GiB with this model. "
            "Shorten data.max_length, choose a smaller model, or give more memory (--memory-limit, another machine)."
        )
    return found


def fitting(measure: Callable[[int], float], start: int, most: int, least: int, limit: int, base: int) -> int:
    """The tokens, of at most `most`, whose measured peak stays within `limit` bytes; 0 when not even `least` fit.

    `measure` gives bytes, infinite for out of memory; `base` are the bytes without any micro-batch.
    """
    tokens = max(min(start, most), least)
    while (used := measure(tokens)) > limit:
        if tokens <= least:
            return 0
        shrunk = int(tokens * 0.9 * max(0.0, (limit - base) / (used - base)))
        tokens = max(least, min(shrunk, tokens * 3 // 4))
    while tokens < most and base + 2.2 * (used - base) <= limit:
        if (doubled := measure(min(2 * tokens, most))) > limit:
            break
        tokens, used = min(2 * tokens, most), doubled
    return min(tokens, max(most, least))


def peak(updater: Updater, longest: tuple[int, int], tokens: int) -> float:
    """Bytes that training comes to with the worst micro-batch of so many tokens; infinite when they are not to be had."""
    pairs = max(1, tokens // max(longest))
    ids = [torch.full((length - 1,), 4).numpy() for length in longest]  # any id will do; the end symbol comes on top
    micro = MicroBatch.of(collate([(ids[0], ids[1])] * pairs))
    _restart_peak(updater.hardware)
    try:
        with updater.weights.collecting(first=True, last=False):
            updater.pass_through(micro, micro.rows.target.tokens)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return float("inf")
    finally:
        updater.free()
    return float(_peak(updater.hardware))


def resident(hardware: Hardware) -> int:
    """Bytes that the process holds now."""
    if hardware.device != "cpu":
        return int(torch.cuda.memory_allocated(hardware.device))
    return _status("VmRSS")


def _restart_peak(hardware: Hardware) -> None:
    if hardware.device != "cpu":
        torch.cuda.reset_peak_memory_stats(hardware.device)
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what was freed; give it back, or a smaller micro-batch would look as large
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: the peak starts again from what is held now


def _peak(hardware: Hardware) -> int:
    if hardware.device != "cpu":
        return int(torch.cuda.max_memory_reserved(hardware.device))
    return _status("VmHWM")


def _status(key: str) -> int:
    """A line of the kernel's account of this process, in bytes; 0 where there is none, and the estimate stands."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0
