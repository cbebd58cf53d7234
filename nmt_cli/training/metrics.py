"""The records of metrics.jsonl, and the line for people that each one becomes.

    train_record    ──▶ training_line      every train.log_every updates; the line at most once a minute
    valid_record    ──▶ validation_line    every train.valid_every updates
    skipped_record  ──▶ skipped_line       an update whose gradient was not finite

Losses are means per target token, in nats. Every record has `type`, `update`, `epoch` and `seconds`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .progress import TrainingProgress


def train_record(progress: TrainingProgress) -> dict[str, Any]:
    """Return the training record of the updates in the meter, which has at least one."""
    meter, tokens = progress.meter, int(progress.meter.tokens)
    nll = meter.nll / tokens
    return _record(
        "train",
        progress,
        loss=meter.loss / tokens,
        nll=nll,
        ppl=perplexity(nll),
        lr=meter.lr,
        grad_norm=meter.grad_norm,
        target_tokens=tokens,
        tokens_per_second=tokens / progress.meter_seconds,
    )


def _record(kind: str, progress: TrainingProgress, **values: Any) -> dict[str, Any]:
    return {"type": kind, "update": progress.update, "epoch": progress.epoch, **values, "seconds": progress.seconds}


def training_line(record: Mapping[str, Any], updates: int, eta: float) -> str:
    """Return the line of a training record; `updates` is train.updates, `eta` the estimated remaining seconds."""
    return (
        f"update {record['update']:,}/{updates:,} · epoch {record['epoch'] + 1} · loss {record['loss']:.3f} · ppl "
        f"{record['ppl']:.2f} · lr {record['lr']:.2e} · {record['tokens_per_second']:,.0f} tok/s · gradient norm "
        f"{record['grad_norm']:.2f} · ETA {clock(eta)}"
    )


def live_text(progress: TrainingProgress) -> str:
    """Return the text of a terminal's bar: the epoch, and loss and speed of the updates in the meter, if any."""
    meter = progress.meter
    epoch = f"epoch {progress.epoch + 1}"
    if not meter.tokens:
        return epoch
    return f"{epoch} · loss {meter.loss / meter.tokens:.3f} · {meter.tokens / progress.meter_seconds:,.0f} tok/s"


def valid_record(progress: TrainingProgress, scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validation record with the validator's `scores`."""
    return _record("valid", progress, ppl=perplexity(scores["nll"]), **scores)


def validation_line(record: Mapping[str, Any], is_best: bool) -> str:
    """Return the line of a validation record."""
    scores = ""
    if record.get("bleu") is not None:
        signature = dict(entry.split(":", 1) for entry in record["bleu_signature"].split("|"))
        scores = f" · {score_text('bleu', record['bleu'])} ({signature['tok']}) · {score_text('chrf', record['chrf'])}"
    return (
        f"valid at {record['update']:,} · {score_text('nll', record['nll'])} · ppl {record['ppl']:.2f}{scores} · "
        f"{clock(record['seconds'])}{' · best so far' if is_best else ''}"
    )


CHANCE = 15.0
"""See `by_chance`. Resampled lines of pairs of checkpoints, on two small corpora, gave 8 to 22."""
Measure = tuple[str | None, int | None, int | None]
"""How a validation score was measured: its signature, the number of lines translated, and that of all lines."""
NAMES = {"nll": "nll", "bleu": "BLEU", "chrf": "chrF"}
"""The metrics of validation (`train.best_metric`) as they are shown."""


def shown(metric: str, score: float) -> str:
    """Return a validation score with the digits that count: smaller differences come from rounding."""
    return f"{score:.{4 if metric == 'nll' else 2}f}"


def score_text(metric: str, score: float) -> str:
    """Return a validation score with its name: nll 2.1430, BLEU 27.30."""
    return f"{NAMES[metric]} {shown(metric, score)}"


def goodness(metric: str, score: float) -> float:
    """Return a validation score as a number that is higher for a better model."""
    return -score if metric == "nll" else score


def by_chance(metric: str, measure: Measure) -> float:
    """Return the largest difference between two scores, measured in this way, that is taken for chance.

    It is about one standard error of the difference between two checkpoints: 1.5 points of BLEU or chrF for 100 lines,
    0.5 for 1,000. The one-standard-error rule (Breiman et al. 1984) then takes the model that is likely to be better:
    the later checkpoint, or the average.
    """
    _, lines, _ = measure
    return CHANCE / math.sqrt(lines) if metric != "nll" and lines else 0.0


def measure_in(record: Mapping[str, Any], metric: str) -> Measure:
    """Return how a validation record's score was measured. Scores of different measures cannot be compared.

    Earlier versions did not record the number of all lines: they translated the first lines.
    """
    if metric == "nll":
        return None, None, None
    lines = record.get("bleu_sentences")
    return record.get(f"{metric}_signature"), lines, record.get("bleu_of_sentences", lines)


def skipped_record(progress: TrainingProgress, update: int, epoch: int, grad_norm: float) -> dict[str, Any]:
    """Return the record of an update whose gradient was not finite. `progress` has already counted it."""
    in_a_row = progress.skipped_in_a_row
    return _record("skipped", progress, update=update, epoch=epoch, grad_norm=str(grad_norm), in_a_row=in_a_row)


def skipped_line(record: Mapping[str, Any], allowed: int) -> str:
    """Return the line of an update whose gradient was not finite; `allowed` is train.skip_nonfinite."""
    return (
        f"update {record['update']:,}: the gradient is not finite ({record['grad_norm']}); no step taken, "
        f"{record['in_a_row']} in a row of {allowed} allowed"
    )


def perplexity(nll: float) -> float:
    """Return exp(nll), the perplexity of a mean NLL per token in nats."""
    return math.exp(min(nll, 700.0))


def clock(seconds: float) -> str:
    """Return a time as h:mm:ss, or m:ss below an hour."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
