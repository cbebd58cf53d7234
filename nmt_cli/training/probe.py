"""The micro-batch size: run a micro-batch forward and backward, read the peak memory, and adapt the size.

    estimate ──▶ the worst micro-batch of that size: copies of the corpus's longest pair ──▶ peak bytes
    over the limit: a smaller size, computed from the peak; far below it: twice the size, up to the rank's part

The peak is the process's resident memory on a CPU (Linux only), and the allocator's on a GPU. The probe does not change
parameters, optimizer state or the random numbers of training. All ranks use the smallest size that any rank found.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..data.batches import EpochPlan, collate
from ..device.memory import memory_in_use, out_of_memory, peak_memory, release_cached_memory, reset_peak_memory
from ..device.torch_device import is_host
from ..errors import TrainingError
from .estimate import estimate_micro_batch, tokens_per_rank
from .loader import MicroBatch
from .update import Updater

MEMORY_FRACTION = 0.9
"""The share of the memory that the process may use with the worst micro-batch."""


def choose_micro_batch(updater: Updater, plan: EpochPlan, before: int = 0) -> int:
    """Return the size of micro-batches, in tokens per side.

    It is `train.micro_batch_tokens`, or the largest that fits into memory.

    A resumed run passes its earlier size as `before` and gets no larger one, so that it repeats the same roundings.
    Raises TrainingError when the longest pair does not fit.
    """
    recipe, hardware, group = updater.recipe, updater.hardware, updater.group
    if recipe.train.micro_batch_tokens:
        return recipe.train.micro_batch_tokens
    largest = tokens_per_rank(recipe.train.batch_tokens, hardware, group.world_size)
    largest = min(largest, before or largest)
    longest = plan.longest
    limit = hardware.memory // (group.local_world_size if is_host(hardware.device) else 1)
    model = updater.weights.model
    vocabularies = model.matrix("source").size(0), model.target_vocab
    start = estimate_micro_batch(recipe, vocabularies, hardware, group.world_size)
    tokens = find_max_batch(
        lambda tokens: measure_peak(updater, longest, tokens),
        min(start, largest),
        largest,
        max(longest),
        int(limit * MEMORY_FRACTION),
        memory_in_use(hardware.device),
    )
    tokens = int(min(row[0] for row in group.all_gather([tokens])))
    if tokens <= 0:
        raise TrainingError(
            f"a single pair of {longest[0]} source and {longest[1]} target tokens, the corpus's longest, does not "
            f"fit into {limit / 2**30:.1f} GiB with this model. "
            "Shorten data.max_length, choose a smaller model, or give more memory (--memory-limit, another machine)."
        )
    return tokens


def find_max_batch(
    measure: Callable[[int], float], start: int, largest: int, smallest: int, limit: int, base: int
) -> int:
    """Return a size from `smallest` to `largest` tokens whose peak is at most `limit` bytes; 0 if even `smallest`
    needs more.

    `measure` returns the peak bytes of a size, or infinity when memory ran out. `base` is the number of bytes in use
    without a batch. The search begins at `start`.
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


def measure_peak(updater: Updater, longest: tuple[int, int], tokens: int) -> float:
    """Return the peak bytes of training with a micro-batch of `tokens` tokens per side; infinity when memory runs out.

    The micro-batch contains copies of one pair with the lengths `longest` (source, target), end symbols counted.
    """
    passes = updater.recipe.train.passes
    pairs = max(1, tokens // passes // max(longest))
    # any id will do; collate adds the end symbol
    source, target = (torch.full((length - 1,), 4).numpy() for length in longest)
    micro_batch = MicroBatch.of(collate([(source, target)] * pairs), passes)
    reset_peak_memory(updater.hardware.device)
    try:
        updater.try_out(micro_batch)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return float("inf")
    finally:
        release_cached_memory(updater.hardware.device)
    return float(peak_memory(updater.hardware.device))
