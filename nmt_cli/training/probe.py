"""The micro-batch size: run a micro-batch forward and backward, read the peak memory, and adapt the size.

    estimate ──▶ the worst micro-batch of that size: copies of the corpus's longest pair ──▶ peak bytes
    over the limit: a smaller size, as the peak suggests; far below it: twice the size, up to the rank's part of an update

The peak is the process's resident memory on a CPU (Linux only), and the allocator's on a GPU. The probe does not change
parameters, optimizer state or the random numbers of training. All ranks use the smallest size that any rank found.
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
from .estimate import estimate_micro_batch, tokens_per_rank
from .loader import MicroBatch
from .update import Updater

MEMORY_FRACTION = 0.9
"""How much of the memory the process may use with the worst micro-batch."""


def choose_micro_batch(updater: Updater, plan: EpochPlan, before: int = 0) -> int:
    """Return the size of micro-batches, in tokens per side: `train.micro_batch_tokens`, or the largest that fits into memory.

    A resumed run passes its size as `before` and gets no larger one, so that it repeats the same roundings. Raises
    TrainingError when not even the longest pair fits.
    """
    recipe, hardware, group = updater.recipe, updater.hardware, updater.group
    if recipe.train.micro_batch_tokens:
        return recipe.train.micro_batch_tokens
    largest = tokens_per_rank(recipe.train.batch_tokens, hardware, group.world_size)
    if before:
        largest = min(largest, before)
    longest = plan.longest
    limit = hardware.memory // (group.local_world_size if hardware.device == "cpu" else 1)
    parameters, vocabulary = updater.weights.main_params.numel(), updater.weights.model.target_vocab
    start = estimate_micro_batch(recipe.model, parameters, recipe.train.batch_tokens, vocabulary, hardware, group.world_size)
    tokens = find_max_batch(
        lambda tokens: peak_memory(updater, longest, tokens), min(start, largest), largest, max(longest), int(limit * MEMORY_FRACTION), resident_memory(hardware)
    )
    tokens = int(-group.all_reduce_max(-tokens))
    if tokens <= 0:
        raise TrainingError(
            f"a single pair of {longest[0]} source and {longest[1]} target tokens, the corpus's longest, does not fit into {limit / 2**30:.1f} GiB with this model. "
            "Shorten data.max_length, choose a smaller model, or give more memory (--memory-limit, another machine)."
        )
    return tokens


def find_max_batch(measure: Callable[[int], float], start: int, largest: int, smallest: int, limit: int, base: int) -> int:
    """Return a size from `smallest` to `largest` tokens whose peak is at most `limit` bytes; 0 if even `smallest` needs more.

    `measure` returns the peak bytes of a size, infinity when memory ran out. `base` are the bytes in use without a batch.
    The search begins at `start`.
    """
    tokens = max(min(start, largest), smallest)
    while (used := measure(tokens)) > limit:
        if tokens <= smallest:
            return 0
        shrunk = int(tokens * 0.9 * max(0.0, (limit - base) / (used - base)))
        tokens = max(smallest, min(shrunk, tokens * 3 // 4))
    while tokens < largest and base + 2.2 * (used - base) <= limit:
        doubled = min(2 * tokens, largest)
        if (used_by_doubled := measure(doubled)) > limit:
            break
        tokens, used = doubled, used_by_doubled
    return min(tokens, max(largest, smallest))


def peak_memory(updater: Updater, longest: tuple[int, int], tokens: int) -> float:
    """Return the peak bytes of training with a micro-batch of `tokens` tokens per side; infinity when memory runs out.

    The micro-batch has copies of one pair with the lengths `longest` (source, target), end symbols counted.
    """
    pairs = max(1, tokens // max(longest))
    source, target = (torch.full((length - 1,), 4).numpy() for length in longest)  # any id will do; collate adds the end symbol
    micro_batch = MicroBatch.of(collate([(source, target)] * pairs))
    _reset_peak(updater.hardware)
    try:
        with updater.weights.accumulating(first=True, last=False):
            updater.forward_backward(micro_batch, micro_batch.packed.target.tokens)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return float("inf")
    finally:
        updater.free_cached_memory()
    return float(_peak(updater.hardware))


def resident_memory(hardware: Hardware) -> int:
    """Return the bytes that the process uses now, on its device."""
    if hardware.device != "cpu":
        return int(torch.cuda.memory_allocated(hardware.device))
    return _process_status("VmRSS")


def _reset_peak(hardware: Hardware) -> None:
    """Let the peak start again from the memory in use."""
    if hardware.device != "cpu":
        torch.cuda.reset_peak_memory_stats(hardware.device)
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps freed memory; without this a smaller micro-batch would seem as large
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: resets VmHWM


def _peak(hardware: Hardware) -> int:
    if hardware.device != "cpu":
        return int(torch.cuda.max_memory_reserved(hardware.device))
    return _process_status("VmHWM")


def _process_status(key: str) -> int:
    """Return an entry of /proc/self/status in bytes. Without such a file it is 0, and the estimate is used as it is."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return 0
