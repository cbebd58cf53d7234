"""What training tells: metrics.jsonl for programs, train.log and the terminal for people, TensorBoard on request.

On a terminal one dense line is rewritten in place; elsewhere the same line is printed every `log_every` updates.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

from .. import console
from ..errors import TrainingError, UsageError, write_failed
from ..files import flush_to_disk
from .run import RunFolder


def clock(seconds: float) -> str:
    """h:mm:ss, or m:ss below an hour."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


class Report:
    """Writes records for rank 0; elsewhere it is silent."""

    def __init__(self, run: RunFolder, leads: bool, tensorboard: bool = False) -> None:
        self.run, self.leads = run, leads
        self.live = leads and console.on_terminal()
        self.board = _tensorboard(run.path) if tensorboard and leads else None

    def rewind(self, size: int) -> None:
        """Cut metrics.jsonl back to `size` bytes: what follows belongs to updates that will be done again.

        A file that has fewer lost records, which a warning says; training needs none of them.
        """
        if not self.leads:
            return
        there = self.run.metrics.stat().st_size if self.run.metrics.exists() else 0
        if there > size:
            os.truncate(self.run.metrics, size)
        elif there < size:
            state = f"has {there:,} bytes" if self.run.metrics.exists() else "is missing"
            console.warn(f"{str(self.run.metrics)!r} {state}, at the last checkpoint it had {size:,}: records of earlier updates are lost. Training resumes without them.")

    def record(self, values: dict[str, Any]) -> None:
        """A line of metrics.jsonl."""
        if not self.leads:
            return
        _append(self.run.metrics, json.dumps(values, ensure_ascii=False))
        if self.board:
            for key, value in values.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{values['type']}/{key}", value, values["update"])

    def flushed(self) -> int:
        """Bytes of metrics.jsonl so far, all of them on the disk."""
        if not self.run.metrics.exists():
            return 0
        flush_to_disk(self.run.metrics)
        return self.run.metrics.stat().st_size

    def line(self, text: str) -> None:
        """A lasting line: terminal and train.log."""
        if not self.leads:
            return
        self.clear()
        console.say(text)
        self._log(text)

    def progress(self, text: str) -> None:
        """The dense line: rewritten in place on a terminal, a plain line elsewhere; in train.log always."""
        if not self.leads:
            return
        if self.live:
            sys.stderr.write("\r\x1b[K" + text)
            sys.stderr.flush()
        else:
            console.say(text)
        self._log(text)

    def clear(self) -> None:
        """Remove the live line, so that something lasting can be written."""
        if self.live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _log(self, text: str) -> None:
        _append(self.run.log, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}")


def _append(path: Path, line: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
    except OSError as error:
        raise write_failed(error, path, "the training records", TrainingError) from None


def training_line(values: dict[str, Any], updates: int, eta: float) -> str:
    """The dense line of a training record."""
    return (
        f"update {values['update']:,}/{updates:,} · epoch {values['epoch'] + 1} · loss {values['loss']:.3f} · ppl {values['ppl']:.2f} · "
        f"lr {values['lr']:.2e} · {values['tokens_per_second']:,.0f} tok/s · |g| {values['grad_norm']:.2f} · ETA {clock(eta)}"
    )


def validation_line(values: dict[str, Any], better: bool) -> str:
    """The lasting line of a validation record."""
    bleu = f" · BLEU {values['bleu']:.2f}" if values.get("bleu") is not None else ""
    return f"valid at {values['update']:,} · nll {values['nll']:.4f} · ppl {values['ppl']:.2f}{bleu} · {clock(values['seconds'])}{' · best so far' if better else ''}"


def skipped_line(values: dict[str, Any], allowed: int) -> str:
    """The lasting line of an update whose gradient was not finite."""
    return f"update {values['update']:,}: the gradient is not finite ({values['grad_norm']}); no step taken, {values['in_a_row']} in a row of {allowed} allowed"


def perplexity(nll: float) -> float:
    """exp of the mean NLL, in nats a token."""
    return math.exp(min(nll, 700.0))


def _tensorboard(path: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard needs the extra package: pip install 'nmt-cli[tensorboard]'.") from None
    return SummaryWriter(str(path / "tensorboard"))
