"""Models in int8, stored in the cache folder: reading a converted model is faster than calibrating and rounding it again.

    model folder's config ──▶ key ──▶ CACHE/int8/KEY-SHA256.safetensors (`kept_files`) ──▶ a Transformer of `precision.int8`
                                        ▲ missing or damaged: computed from the fp32 model, and stored

A file holds the same tensors as the weights file that `nmt quantize` writes. Its key is a hash of everything that the tensors
depend on: the weights, the shapes, this package, torch and the processor.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save

from .. import __version__
from ..hardware import cpu_flags
from ..recipe import Recipe
from . import precision
from .contents import WEIGHTS, ModelConfig
from .folder import build_quantized, quantized_weights, read_model
from .kept_files import KeptFiles
from .transformer import Transformer

LEAST_PARAMETERS = 1_000_000
"""Models with fewer parameters are not stored: rounding them is as fast as reading them."""
MOST_FILES, MOST_BYTES = 16, 1 << 31
"""The largest number of files in the folder, and their largest total size. A larger single file is stored too."""


def int8_model(config: ModelConfig, recipe: Recipe, load: Callable[[], Transformer]) -> Transformer:
    """Return a model in int8, from the cache if it is there. Otherwise call `load` for the fp32 model, and convert it."""
    files, key = KeptFiles("int8", MOST_FILES, MOST_BYTES), _key(config)
    stored = config.parameters >= LEAST_PARAMETERS

    def read(path: Path) -> Transformer:
        return read_model(path, recipe, config.vocabularies, quantized=True).eval()

    if stored and (model := files.read(key, read)):
        return model
    weights = quantized_weights(load())
    if stored:
        files.write(key, save(weights))
    return build_quantized(recipe, *config.vocabularies, weights).eval()


def _key(config: ModelConfig) -> str:
    """Return a hash of everything that the int8 weights depend on."""
    source = Path(precision.__file__).read_bytes()  # the code that computes them
    parts = [
        config.sha256[WEIGHTS],
        config.recipe.get("model"),
        config.vocabularies,
        __version__,
        hashlib.sha256(source).hexdigest(),
        torch.__version__,
        platform.machine(),
        sorted(cpu_flags()),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]
