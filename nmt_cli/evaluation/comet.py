"""COMET (Rei et al., 2020, arXiv 2009.09025): a neural metric of source, hypothesis and reference, by COMET's own
package.

    --comet-model PATH ──▶ find_checkpoint ──▶ comet.load_from_checkpoint ──▶ .predict
        ──▶ a score per sentence, and their mean

Nothing is downloaded. The model must be on this disk, and so must the tokenizer and configuration of its encoder
(mostly xlm-roberta-large). A checkpoint of COMET is a pickle. torch's restricted loader reads it: it accepts tensors
and plain values, and runs no code of the file.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .. import console
from ..errors import ModelError, UsageError, extra_module, install_command
from ..storage.files import sha256
from .metric import MetricSpec, SentenceStatisticsMetric

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}
CHECKPOINTS = ("checkpoints/*.ckpt", "snapshots/*/checkpoints/*.ckpt")
"""Patterns below --comet-model, which is the model's own folder or its folder in the cache of huggingface_hub."""


def find_checkpoint(path: Path) -> Path:
    """Return the checkpoint at `path`: the file itself, or the only one in a folder of COMET's layout.

    Raises ModelError, and OSError for a file that cannot be read.
    """
    if not path.exists():
        raise ModelError(
            f"there is no COMET model at {str(path)!r}. It is not downloaded: fetch one beforehand, and give "
            "its folder or its .ckpt file."
        )
    checkpoints = [path] if path.is_file() else [file for pattern in CHECKPOINTS for file in sorted(path.glob(pattern))]
    if len(checkpoints) != 1:
        raise ModelError(
            f"{str(path)!r} has {len(checkpoints)} COMET checkpoints, expected one: a folder with hparams.yaml "
            "and checkpoints/model.ckpt. Give that folder, or the .ckpt file itself."
        )
    checkpoint = checkpoints[0].absolute()  # not `resolve`: the target of a link has no hparams.yaml beside it
    if not (checkpoint.parent.parent / "hparams.yaml").is_file():
        raise ModelError(
            f"{str(checkpoints[0])!r} lacks its hparams.yaml: COMET reads it from "
            f"{str(checkpoint.parent.parent)!r}, one folder above the checkpoint's."
        )
    for file in (checkpoint, checkpoint.parent.parent / "hparams.yaml"):
        with file.open("rb") as stream:
            stream.read(1)
    return checkpoint


class Comet(SentenceStatisticsMetric):
    """The mean of the sentences' scores by a COMET model; a row is (score, 1)."""

    def __init__(self, model: Path | None, source: Sequence[str] | None) -> None:
        if model is None:
            raise UsageError("--metric comet needs --comet-model PATH, a COMET model on this disk; none is downloaded.")
        try:
            super().__init__("COMET", version("unbabel-comet"))
        except PackageNotFoundError:
            raise UsageError(
                "--metric comet needs the extra package unbabel-comet, which is not installed: "
                f"{install_command('comet')}."
            ) from None
        self.checkpoint, self.source = find_checkpoint(model), source

    def rows(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[float]]:
        """See `Metric`. Raises UsageError for several references."""
        if len(references) != 1:
            raise UsageError(
                f"--ref was given {len(references)} times: COMET takes one reference. Give it once, or leave "
                "--metric comet out."
            )
        samples = [
            {"src": src, "mt": mt, "ref": ref}
            for src, mt, ref in zip(self.source or (), hypotheses, references[0], strict=True)
        ]
        with _quiet():
            import torch

            predicted = self._model.predict(
                samples, batch_size=16, gpus=int(torch.cuda.is_available()), progress_bar=console.on_terminal()
            )
        return [[float(score), 1.0] for score in predicted["scores"]]

    def value(self, sums: Sequence[float]) -> float:
        return sums[0] / sums[1]

    def signature_entries(self) -> dict[str, str]:
        return {"model": model_name(self.checkpoint), "sha256": self._digest}

    @cached_property
    def _digest(self) -> str:
        return sha256(self.checkpoint)[:12]

    @cached_property
    def _model(self) -> Any:
        with _quiet():
            comet = extra_module("comet", "comet", "--metric comet")
            try:
                return comet.load_from_checkpoint(str(self.checkpoint), local_files_only=True)
            except Exception as error:  # raised by torch, transformers, lightning or yaml
                reason = " ".join(str(error).split())
                raise ModelError(
                    f"COMET cannot load {str(self.checkpoint)!r}: {type(error).__name__}: {reason[:400]}. Is it a "
                    "COMET checkpoint of tensors and plain values, with the tokenizer and configuration of the encoder "
                    "that its hparams.yaml names (pretrained_model) on this disk? Nothing is downloaded."
                ) from None


def model_name(checkpoint: Path) -> str:
    """Return the name of the model's folder; for a snapshot of huggingface_hub, the name of its repository."""
    folder = checkpoint.parent.parent
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/")
    return folder.name


@contextmanager
def _quiet() -> Iterator[None]:
    """Allow no network access, no code in pickles and no log messages of COMET's libraries."""
    before, muted = {name: os.environ.get(name) for name in OFFLINE}, logging.root.manager.disable
    os.environ.update(OFFLINE)
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(muted)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


SPEC = MetricSpec(lambda options: Comet(options.comet_model, options.source), decimals=4)
