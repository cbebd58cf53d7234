"""What is in a model folder, read without torch: `folder` makes models of it.

A command begins here: it finds the folder, reads its recipe, and has the files checked while torch is being loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any

from .. import __version__
from ..errors import ModelError
from ..files import sha256

FORMAT_VERSION = 1
WEIGHTS, CONFIG, METRICS = "model.safetensors", "config.json", "metrics.json"
CHOICES = ("averaged", "best", "last")
"""In a run folder, the models to use, the first that is there."""


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` of a model folder, its version checked. Raises ModelError."""
    path = folder / CONFIG
    if not folder.is_dir():
        raise ModelError(f"no model folder at {str(folder)!r}. Train one (`nmt train`), or name another with --model.")
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        version = config["format_version"]
    except FileNotFoundError:
        raise ModelError(f"{str(folder)!r} is not a model folder: it has no {CONFIG}. Name a model folder or a run folder.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{str(path)!r} is damaged ({type(error).__name__}: {error}). Restore the folder from a copy, or take another checkpoint.") from None
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ModelError(f"{str(folder)!r} has format version {version!r}; this nmt {__version__} reads up to {FORMAT_VERSION}. Install a newer nmt.")
    return config


def check_files(folder: Path, config: Mapping[str, Any]) -> None:
    """Every file that `config.json` vouches for is there and unchanged. Raises ModelError naming the first that is not."""
    for name, expected in config["sha256"].items():
        path = folder / name
        if not path.is_file():
            raise ModelError(f"{str(folder)!r} lacks {name}. The folder was cut: restore it from a copy, or take another checkpoint.")
        if sha256(path) != expected:
            raise ModelError(f"{str(path)!r} was changed or cut: its SHA-256 is not the one in {CONFIG}. Restore it from a copy, or take another checkpoint.")


def checking(folder: Path, config: Mapping[str, Any]) -> Future[None]:
    """`check_files` in a thread of its own; what it raises, the result raises."""
    future: Future[None] = Future()

    def check() -> None:
        try:
            check_files(folder, config)
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)

    Thread(target=check, name="nmt-checking", daemon=True).start()
    return future


def find_model(path: Path) -> Path:
    """The model folder at `path`; in a run folder its averaged model, else its best, else its last checkpoint.

    Raises ModelError when there is none.
    """
    if (path / CONFIG).is_file():
        return path
    for choice in CHOICES:
        if (path / choice / CONFIG).is_file():
            return path / choice
    if not path.exists():
        raise ModelError(f"no model at {str(path)!r}. Train one (`nmt train`), or name a model or run folder with --model.")
    raise ModelError(f"{str(path)!r} holds no model: neither {CONFIG} nor any of {', '.join(CHOICES)} is in it. Name a model folder or a run folder.")
