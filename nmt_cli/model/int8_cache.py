"""The int8 form of models, kept in the cache folder: to calibrate and round a model takes longer than to read the result.

    model folder's config ──▶ key ──▶ CACHE/int8/KEY-SHA256.safetensors ──▶ a Transformer of `precision.int8`
                                        ▲ missing, stale or damaged: made from the fp32 model, and kept

A file holds what `nmt quantize` writes. Its key is the hash of what it depends on: the weights, the shapes, this package, torch and
the processor. So a file is never out of date; files that were not used for longest are removed. The rules of `cache` hold: a file
is used only if nobody else can have written it and its content has the hash of its name, and no error of the cache ends a command.
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
from safetensors.torch import load_file, save

from .. import __version__
from ..cache import check_private, remembered_sha256, subfolder, write_private
from ..errors import ModelError
from ..hardware import cpu_flags
from ..recipe import Recipe
from . import precision
from .contents import WEIGHTS, ModelConfig
from .folder import build_quantized, quantized_weights
from .transformer import Transformer

LEAST_PARAMETERS = 1_000_000
"""Of a model that is kept: a smaller one is as fast to round as to read."""
MOST_FILES, MOST_BYTES = 16, 1 << 31
"""Of all files together; the newest one stays also if it is larger."""
DAY = 86_400.0
"""Seconds: the time of a file's last use is exact to a day."""


def int8_model(config: ModelConfig, recipe: Recipe, load: Callable[[], Transformer]) -> Transformer:
    """Return `precision.int8` of the model that `load` returns, which is called only if the result is not in the cache."""
    folder = subfolder("int8") if config.parameters >= LEAST_PARAMETERS else None
    key = _key(config)
    for path in sorted(folder.glob(f"{key}-*.safetensors")) if folder else ():
        try:
            return _read(path, config, recipe)
        except (OSError, SafetensorError, ModelError):  # damaged, or not ours
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
    """Return the hash of all that the integers depend on."""
    source = Path(precision.__file__).read_bytes()  # how they are computed
    parts = [config.sha256[WEIGHTS], config.recipe.get("model"), config.vocabularies, __version__, hashlib.sha256(source).hexdigest(), torch.__version__, platform.machine(), sorted(cpu_flags())]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:20]


def _read(path: Path, config: ModelConfig, recipe: Recipe) -> Transformer:
    """Return the model in a file. Raises OSError, SafetensorError, ModelError if it is not what was written."""
    check_private(path)
    if path.stem.rpartition("-")[2] != remembered_sha256(path):
        raise OSError("its content is not what was written")
    model = build_quantized(recipe, *config.vocabularies, load_file(path)).eval()
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY:
            os.utime(path)  # used now; not each time, because then the hash that is remembered would be that of another file
    return model


def _tidy(folder: Path, more: int) -> None:
    """Remove the files that were not used for longest, to make room for `more` bytes. Raises OSError."""
    kept = sorted(folder.glob("*.safetensors"), key=lambda path: path.lstat().st_mtime)
    while kept and (len(kept) >= MOST_FILES or sum(path.lstat().st_size for path in kept) + more > MOST_BYTES):
        kept.pop(0).unlink(missing_ok=True)
