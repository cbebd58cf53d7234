"""Estimates for an experiment on this machine, without training: parameters, memory, and the micro-batch that fits.

    estimate(...)               all figures, for `nmt info`
    estimate_micro_batch(...)   tokens per side of a micro-batch; training begins its memory probe with it

Memory is estimated from the widths of the layers. The estimate is more often too high than too low.
"""

from __future__ import annotations

from typing import Any

from ..data.batches import buckets_of
from ..device.hardware import Hardware
from ..device.torch_device import is_host
from ..model.parameters import count_numbers
from ..model.weights import forms_of
from ..recipe import ModelSection, Recipe

CPU_MICRO_BATCH = 2048
"""Largest micro-batch on a CPU, in tokens per side. Larger ones are not faster there, and need more padding."""


def training_memory(model: ModelSection, tokens: int, vocabularies: tuple[int, int]) -> int:
    """Return the estimated bytes of training with micro-batches of `tokens` tokens per side.

    The sum includes parameters, gradients and Adam's two moments in fp32, the compute model and its gradients,
    activations, and the loss.
    """
    rows_of_scores = 1024  # that the loss has in memory at once
    parameters = model.parameters(*vocabularies) * 20
    return parameters + tokens * activation_bytes(model) + rows_of_scores * vocabularies[1] * 8


def activation_bytes(model: ModelSection) -> int:
    """Return the estimated bytes of activations kept until the backward pass, per source and target token."""
    heads = model.num_heads * (2 * model.key_size + 2 * model.value_size)
    encoder = 7 * model.d_model + heads + 2 * model.d_ff
    decoder = 11 * model.d_model + 2 * heads + 2 * model.d_ff
    return 4 * (model.encoder_layers * encoder + model.decoder_layers * decoder + 4 * model.d_model)


def tokens_per_rank(batch_tokens: int, hardware: Hardware, world_size: int) -> int:
    """Return the largest useful micro-batch, in tokens per side: a rank's part of an update, or CPU_MICRO_BATCH."""
    tokens = -(-batch_tokens // world_size)
    return min(tokens, CPU_MICRO_BATCH) if is_host(hardware.device) else tokens


def estimate_micro_batch(recipe: Recipe, vocabularies: tuple[int, int], hardware: Hardware, world_size: int = 1) -> int:
    """Return `train.micro_batch_tokens`, or the estimate, in tokens per side, of what fits into one rank's memory."""
    if recipe.train.micro_batch_tokens:
        return recipe.train.micro_batch_tokens
    memory = hardware.memory // (world_size if is_host(hardware.device) else 1)
    for_activations = int(0.6 * memory) - training_memory(recipe.model, 0, vocabularies)
    largest = tokens_per_rank(recipe.train.batch_tokens, hardware, world_size)
    return max(64, min(largest, for_activations // activation_bytes(recipe.model)))


def estimate(recipe: Recipe, vocabularies: tuple[int, int], hardware: Hardware, devices: int = 1) -> dict[str, Any]:
    """Return the figures of `recipe` on `devices` devices like `hardware`. Memory is in bytes per device.

    `vocabularies` are the sizes of the source and the target vocabulary.
    """
    parts = count_numbers((name, shape) for name, (_, shape) in forms_of(recipe.model, vocabularies).items())
    train = recipe.train
    tokens = estimate_micro_batch(recipe, vocabularies, hardware, devices)
    # on a CPU, the memory of the process, with the kernels that torch keeps for shapes of matrix products
    process = 2**29 if is_host(hardware.device) else 0
    buckets, bucket_tokens = buckets_of(train.batch_tokens)
    return {
        "parameters": parts.pop("total"),
        "parameters_by_part": parts,
        "source_vocab": vocabularies[0],
        "target_vocab": vocabularies[1],
        "batch_tokens": train.batch_tokens,
        "updates": train.updates,
        "buckets_per_update": buckets,
        "bucket_tokens": bucket_tokens,
        "device": hardware.device,
        "precision": hardware.precision,
        "devices": devices,
        "micro_batch_tokens": tokens,
        "micro_batches_per_update": devices * max(1, -(-train.batch_tokens * train.passes // (tokens * devices))),
        "memory_bytes": training_memory(recipe.model, tokens, vocabularies) + process,
        "memory_free_bytes": hardware.memory,
    }
