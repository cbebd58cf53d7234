"""The training loop, from top to bottom.

    recipe + shards + run folder ──▶ Trainer ──▶ update, log, validate, save, … until done, out of patience or stopped

Run again with the same run folder, it goes on after the last checkpoint. Every update's random numbers come from
(seed, update, rank), and its pairs from (seed, epoch), so that a resumed run does what the uninterrupted one does.
SIGINT and SIGTERM stop it at the end of the update under way, after saving; a second SIGINT stops at once.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from .. import console
from ..data.batches import EpochPlan
from ..data.shards import Corpus, check_matches, open_index
from ..data.tokenizer import Vocabulary
from ..errors import DataError, Stopped, TrainingError
from ..files import link_atomic
from ..hardware import Hardware
from ..model.folder import build, weights_of
from ..model.transformer import Transformer, count_parameters
from ..recipe import Recipe
from .estimate import micro_batch
from .ranks import Ranks
from .report import Report, clock, perplexity, training_line, validation_line
from .run import Progress, RunFolder
from .update import Share, Updater, feed
from .validation import Validator

OUT_OF_PATIENCE = 1000.0  # above every signal's number


class Trainer:
    """One rank's training of `recipe` on the shards at `shards`, kept in `run`."""

    def __init__(self, recipe: Recipe, shards: Path, run: Path, hardware: Hardware, ranks: Ranks, tensorboard: bool = False) -> None:
        """Check everything and take up the last checkpoint, if there is one. Raises NmtError for what does not fit."""
        index = open_index(shards)
        check_matches(index, recipe, shards)
        self.recipe, self.hardware, self.ranks = recipe, hardware, ranks
        self.corpus = Corpus.open(shards, "train")
        self.vocabulary = Vocabulary.load(shards)
        if self.vocabulary.sha256 != index.tokenizer_sha256:
            raise DataError(f"the tokenizer in {str(shards)!r} is not the one its shards were made with. Make them anew: nmt preprocess … --force.")
        self.sizes = (self.vocabulary.source_size, self.vocabulary.target_size)
        self.run = RunFolder(run)
        if ranks.leads:
            self.run.create()
        self.report = Report(self.run, ranks.leads, tensorboard)
        self.model, self.progress, moments = self._start()
        self.updater = Updater(self.model, recipe, hardware, ranks)
        if moments:
            self.updater.restore(moments, self.progress.update)
        self.parameters = count_parameters(self.model)["total"]
        train = recipe.train
        chosen = micro_batch(recipe.model, self.parameters, train.batch_tokens, self.sizes[1], hardware, ranks.world)
        self.micro_batch_tokens = train.micro_batch_tokens or chosen
        self.plan = EpochPlan(self.corpus.source_lengths, self.corpus.target_lengths, train.batch_tokens, train.seed)
        has_validation = "valid" in index.splits and index.splits["valid"].pairs > 0
        self.validator = Validator(shards, self.vocabulary, recipe, hardware, self.micro_batch_tokens) if has_validation else None
        self.stop = 0.0
        self.saved_at = time.monotonic()
        self.resumed_at = time.perf_counter()

    def _start(self) -> tuple[Transformer, Progress, dict[str, torch.Tensor]]:
        """Model, progress and moments: those of the last checkpoint, or fresh ones."""
        found = self.run.load_last(self.recipe)
        if found is None:
            torch.manual_seed(self.recipe.train.seed)
            return Transformer(self.recipe.model, *self.sizes).to(self.hardware.device).train(), Progress(), {}
        _, progress, weights, moments = found
        self.report.rewind(progress.metrics_bytes)
        return build(self.recipe, *self.sizes, weights).to(self.hardware.device).train(), progress, moments

    # --- the loop ---

    def train(self) -> Progress:
        """Train to the end. Raises `Stopped` after a signal, `TrainingError` when the loss is no longer finite."""
        self._introduce()
        with self._signals_noted():
            while self.progress.update < self.recipe.train.updates and not self.stop:
                self._epoch()
        if self.stop and self.stop < OUT_OF_PATIENCE:
            self._save()
            self.report.line(f"stopped at update {self.progress.update:,} and saved; run the same command to go on")
            raise Stopped(int(self.stop), "")
        self._finish()
        return self.progress

    def _epoch(self) -> None:
        """What is left of the current epoch."""
        progress, train = self.progress, self.recipe.train
        shares = feed(self.corpus, self.plan, progress.epoch, progress.position, self.micro_batch_tokens, self.ranks, self.hardware)
        meter = _Meter(self)
        self.resumed_at = time.perf_counter()
        for share in shares:
            self._update(share, meter)
            if progress.update % train.log_every == 0:
                meter.report(self.report, train.updates)
            if progress.update % train.valid_every == 0 and self.validator:
                self._validate()
            if self.ranks.leads and self._due():
                self._save()
            self.resumed_at = time.perf_counter()  # validating and saving are not training
            self.stop = self.ranks.largest(self.stop)
            if self.stop or progress.update >= train.updates:
                return
        progress.epoch, progress.position = progress.epoch + 1, 0

    def _update(self, share: Share, meter: _Meter) -> None:
        progress, train = self.progress, self.recipe.train
        torch.manual_seed((train.seed * 1_000_003 + progress.update) * 4099 + self.ranks.rank)
        smoothed, nll = self.updater.accumulate(share)
        if self.hardware.device == "cpu" and not math.isfinite(float(smoothed)):
            raise self._not_finite(share)
        if (progress.update + 1) % train.log_every == 0:
            meter.gradient_norm = self.updater.gradient_norm()
        meter.rate = self.updater.step(progress.update + 1)
        progress.update += 1
        progress.position += 1
        meter.add(smoothed, nll, share.target_tokens)
        now = time.perf_counter()
        progress.seconds, self.resumed_at = progress.seconds + now - self.resumed_at, now

    def _due(self) -> bool:
        """Whether a checkpoint is due, by updates or by minutes."""
        train = self.recipe.train
        by_updates = train.checkpoint_every > 0 and self.progress.update % train.checkpoint_every == 0
        by_minutes = train.checkpoint_minutes > 0 and time.monotonic() - self.saved_at >= 60 * train.checkpoint_minutes
        return by_updates or by_minutes

    def _validate(self) -> None:
        """Score the model, remember whether it is the best so far, and show samples. Rank 0 works, the others wait."""
        progress, train = self.progress, self.recipe.train
        if self.ranks.leads and self.validator:
            self.report.clear()
            scores, samples = self.validator(self.model)
            record = {"type": "valid", "update": progress.update, "epoch": progress.epoch, "ppl": perplexity(scores["nll"]), **scores, "seconds": progress.seconds}
            value = scores[train.best_metric]
            better = progress.best is None or (value > progress.best if train.best_metric == "bleu" else value < progress.best)
            progress.best = value if better else progress.best
            progress.since_best = 0 if better else progress.since_best + 1
            progress.validation = record
            self.report.record(record)
            self.report.line(validation_line(record, better))
            for sample in samples:
                self.report.line(f"    source       {sample.source}\n    reference    {sample.reference}\n    translation  {sample.translation}\n")
            if better:
                self.run.point("best", self._save())
                self.run.prune(train.keep, train.keep_best, train.best_metric)
            if train.patience and progress.since_best >= train.patience:
                self.stop = OUT_OF_PATIENCE
        self.ranks.wait()

    def _save(self) -> Path:
        """Write a checkpoint of the present state, once an update; its folder. Rank 0 alone."""
        train, progress = self.recipe.train, self.progress
        self.saved_at = time.monotonic()
        there = self.run.checkpoints()
        folder = self.run.path / "checkpoints" / f"step-{progress.update:08d}"
        if not self.ranks.leads or (there and there[-1].update == progress.update):
            return folder
        progress.metrics_bytes = self.report.size()
        current = progress.validation if progress.validation.get("update") == progress.update else {}
        tokenizers = {name: (self.corpus.folder / name).read_bytes() for name in self.vocabulary.files}
        self.run.save(weights_of(self.model), self.updater.moments(), progress, self.recipe, self.sizes, tokenizers, current)
        self.run.prune(train.keep, train.keep_best, train.best_metric)
        return folder

    def _finish(self) -> None:
        """The last update is validated and saved, however it falls."""
        if self.validator and self.progress.validation.get("update") != self.progress.update:
            self._validate()
        self._save()
        reason = "no better validation for a while" if self.stop >= OUT_OF_PATIENCE else "all updates done"
        self.report.line(f"finished at update {self.progress.update:,} after {clock(self.progress.seconds)}: {reason}; best {self.recipe.train.best_metric} {self.progress.best}")

    def _not_finite(self, share: Share) -> TrainingError:
        lengths = [f"{len(b.src)} pairs of up to {b.src.size(1)} source and {b.tgt_out.size(1)} target tokens" for b, _ in share.micro_batches]
        there = self.run.checkpoints()
        safe = f"The last good checkpoint is {str(there[-1].folder)!r}" if there else "No checkpoint was saved yet"
        return TrainingError(
            f"the loss is not finite at update {self.progress.update + 1:,} (epoch {self.progress.epoch + 1}, micro-batches of {'; '.join(lengths)}). "
            f"{safe}. Lower train.lr_factor, lengthen train.warmup, or set train.clip_norm or train.precision = \"fp32\"."
        )

    # --- around the loop ---

    def _introduce(self) -> None:
        train, ranks = self.recipe.train, self.ranks
        if ranks.leads:
            link_latest(self.run.path)
        done = f"going on after update {self.progress.update:,}" if self.progress.update else "starting"
        cells, cell = self.plan.cells_an_update, self.plan.cell_tokens
        self.report.line(
            f"{done}: {self.recipe.name} · {self.parameters:,} parameters · {len(self.corpus):,} pairs · {len(self.plan.updates(0)):,} updates an epoch\n"
            f"update = {train.batch_tokens:,} tokens a side = {cells} × {cell:,} of like length; here {ranks.world} × {self.hardware.device} in {self.hardware.precision}, "
            f"micro-batches of up to {self.micro_batch_tokens:,} tokens\nrun folder {self.run.path}"
        )
        if not self.validator:
            console.warn("the shards hold no validation pairs: no scores, no best checkpoint, no early stopping")

    @contextmanager
    def _signals_noted(self) -> Iterator[None]:
        """SIGINT and SIGTERM set `stop`; a second SIGINT interrupts at once."""

        def note(number: int, frame: FrameType | None) -> None:
            if self.stop and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.stop = float(number)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Meter:
    """Sums since the last report."""

    def __init__(self, trainer: Trainer) -> None:
        self.ranks, self.device, self.progress = trainer.ranks, trainer.hardware.device, trainer.progress
        self.rate = 0.0
        self.gradient_norm = torch.zeros(())
        self._restart()

    def _restart(self) -> None:
        self.sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.tokens, self.updates, self.began = 0, 0, self.progress.seconds

    def add(self, smoothed: torch.Tensor, nll: torch.Tensor, tokens: int) -> None:
        self.sums += torch.stack((smoothed, nll))
        self.tokens += tokens
        self.updates += 1

    def report(self, report: Report, updates: int) -> None:
        """Write the record and the line; every rank must call it."""
        progress = self.progress
        loss, nll = (self.ranks.total(float(value)) / self.tokens for value in self.sums)
        if not math.isfinite(loss):
            raise TrainingError(f"the loss became not finite between updates {progress.update - self.updates:,} and {progress.update:,}; nothing of it was saved. Lower train.lr_factor or set train.clip_norm.")
        passed = progress.seconds - self.began
        values: dict[str, Any] = {
            "type": "train", "update": progress.update, "epoch": progress.epoch, "loss": loss, "nll": nll, "ppl": perplexity(nll), "lr": self.rate,
            "grad_norm": float(self.gradient_norm), "target_tokens": self.tokens, "tokens_per_second": self.tokens / passed, "seconds": progress.seconds,
        }  # fmt: skip
        report.record(values)
        report.progress(training_line(values, updates, passed / self.updates * (updates - progress.update)))
        self._restart()


def link_latest(run: Path) -> None:
    """Let `latest`, beside the run, point to it."""
    link = run.parent / "latest"
    if link.is_symlink() or not link.exists():
        link_atomic(link, run.name)
