"""Models in int8, stored in the cache folder: reading a converted model is faster than calibrating and rounding it again.

    model folder's config ──▶ key ──▶ CACHE/int8/KEY-SHA256.safetensors ──▶ a Transformer of `precision.int8`
                                        ▲ missing or damaged: computed from the fp32 model, and stored

A file holds the same tensors as the weights file that `nmt quantize` writes. Its key is a hash of everything that the tensors
depend on: the weights, the shapes, this package, torch and the processor. So a file is never out of date. When the folder is full,
the files with the oldest use are removed. The rules of `cache` apply: a file is used only if no other user can have written it and
its content has the hash in its name. An error of the cache never ends a command.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save

from .. import __version__
from ..cache import check_private, remembered_sha256, subfolder, write_private
from ..errors import ModelError
from ..hardware import cpu_flags
from ..recipe import Recipe
from . import precision
from .contents import WEIGHTS, ModelConfig
from .folder import build_quantized, quantized_weights, read_tensors
from .transformer import Transformer

LEAST_PARAMETERS = 1_000_000
"""Models with fewer parameters are not stored: rounding them is as fast as reading them."""
MOST_FILES, MOST_BYTES = 16, 1 << 31
"""The largest number of files in the folder, and their largest total size. A larger single file is stored too."""
DAY = 86_400.0
"""Seconds. The modification time of a file shows its last use; it is updated at most once per day."""


def int8_model(config: ModelConfig, recipe: Recipe, load: Callable[[], Transformer]) -> Transformer:
    """Return a model in int8, from the cache if it is there. Otherwise call `load` for the fp32 model, and convert it."""
    folder = subfolder("int8") if config.parameters >= LEAST_PARAMETERS else None
    key = _key(config)
    for path in sorted(folder.glob(f"{key}-*.safetensors")) if folder else ():
        try:
            return _read(path, config, recipe)
        except (OSError, SafetensorError, ModelError):  # damaged, or written by another user
            with suppress(OSError):
                path.unlink()
    weights = quantized_weights(load())
    if folder:
        data = save(weights)
        with suppress(OSError):
            _tidy(folder, len(data))
            write_private(folder / f"{key}-{hashlib.sha256(data).hexdigest()}.safetensors", data)
    return build_quantized(recipe, *config.vocabularies, weights).eval()


def _key(config: ModelConfig) -> str:
    """Return a hash of everything that the int8 weights depend on."""
    source = Path(precision.__file__).read_bytes()  # the code that computes them
    parts = [config.sha256[WEIGHTS], config.recipe.get("model"), config.vocabularies, __version__, hashlib.sha256(source).hexdigest(), torch.__version__, platform.machine(), sorted(cpu_flags())]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def _read(path: Path, config: ModelConfig, recipe: Recipe) -> Transformer:
    """Return the model in a file. Raises OSError, SafetensorError or ModelError if the file is not as it was written."""
    check_private(path)
    if path.stem.rpartition("-")[2] != remembered_sha256(path):
        raise OSError("its content is not what was written")
    model = build_quantized(recipe, *config.vocabularies, read_tensors(path)).eval()
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY:
            os.utime(path)  # mark the file as used; not at every use, because a new time makes `remembered_sha256` read it again
    return model


def _tidy(folder: Path, more: int) -> None:
    """Remove the files with the oldest use until `more` bytes fit into the limits. Raises OSError."""
    kept = sorted(folder.glob("*.safetensors"), key=lambda path: path.lstat().st_mtime)
    while kept and (len(kept) >= MOST_FILES or sum(path.lstat().st_size for path in kept) + more > MOST_BYTES):
        kept.pop(0).unlink(missing_ok=True)
