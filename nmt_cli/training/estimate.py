"""What an experiment's sizes become on this machine: the memory it needs, and the micro-batch that fits.

    micro_batch(...)    tokens that a rank takes through the model at once; training starts its probe with it
    estimate(...)       all of it without training; `nmt info` shows it

Memory is reckoned from the layers' widths, on the safe side.
"""

from __future__ import annotations

from typing import Any

import torch

from ..data.batches import buckets_of
from ..hardware import Hardware
from ..model.transformer import Transformer, count_parameters
from ..recipe import ModelSection, Recipe

CPU_MICRO_BATCH = 2048
"""On a CPU larger micro-batches gain nothing: the caches are full before, and unlike lengths would be padded together."""
CPU_KERNELS = 3 * 2**29
"""Bytes that the process and the matrix products' compiled kernels, one for each shape of batch, take on a CPU."""
MEMORY_SHARE = 0.6
"""Of the free memory, what one micro-batch may be expected to fill."""
_LOSS_ROWS = 1024  # rows of the vocabulary's scores that the loss holds at once


def training_memory(model: ModelSection, parameters: int, tokens: int, vocabulary: int) -> int:
    """Estimated bytes of training: weights, gradient and two moments in fp32, the working copy of the weights and of the
    gradient, and a micro-batch's activations."""
    return parameters * 20 + tokens * activation_bytes(model) + _LOSS_ROWS * vocabulary * 8


def activation_bytes(model: ModelSection) -> int:
    """Estimated bytes that one source and one target token keep until the backward pass."""
    heads = model.num_heads * (2 * model.key_size + 2 * model.value_size)
    encoder = 7 * model.d_model + heads + 2 * model.d_ff
    decoder = 11 * model.d_model + 2 * heads + 2 * model.d_ff
    return 4 * (model.encoder_layers * encoder + model.decoder_layers * decoder + 4 * model.d_model)


def micro_batch(model: ModelSection, parameters: int, batch_tokens: int, vocabulary: int, hardware: Hardware, ranks: int = 1) -> int:
    """Tokens that one rank takes through the model at once: what its memory holds, and its share of the update at most."""
    share = -(-batch_tokens // ranks)
    if hardware.device == "cpu":
        share = min(share, CPU_MICRO_BATCH)
    memory = hardware.memory // (ranks if hardware.device == "cpu" else 1)
    room = int(memory * MEMORY_SHARE) - training_memory(model, parameters, 0, vocabulary)
    return max(64, min(share, room // activation_bytes(model)))


def estimate(recipe: Recipe, vocabularies: tuple[int, int], hardware: Hardware, ranks: int = 1) -> dict[str, Any]:
    """Sizes, and what the update becomes on `ranks` devices like `hardware`; memory in bytes, for each device."""
    with torch.device("meta"):
        parts = count_parameters(Transformer(recipe.model, *vocabularies))
    train = recipe.train
    tokens = train.micro_batch_tokens or micro_batch(recipe.model, parts["total"], train.batch_tokens, vocabularies[1], hardware, ranks)
    cells, cell = buckets_of(train.batch_tokens)
    return {
        "parameters": parts["total"],
        "parameters_by_part": {name: count for name, count in parts.items() if name != "total"},
        "source_vocab": vocabularies[0],
        "target_vocab": vocabularies[1],
        "batch_tokens": train.batch_tokens,
        "updates": train.updates,
        "cells_an_update": cells,
        "cell_tokens": cell,
        "device": hardware.device,
        "precision": hardware.precision,
        "devices": ranks,
        "micro_batch_tokens": tokens,
        "micro_batches_an_update": ranks * max(1, -(-train.batch_tokens // (tokens * ranks))),
        "memory_bytes": training_memory(recipe.model, parts["total"], tokens, vocabularies[1]) + (CPU_KERNELS if hardware.device == "cpu" else 0),
        "memory_free_bytes": hardware.memory,
    }
