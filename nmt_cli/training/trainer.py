"""The training loop, from top to bottom.

    recipe + shards + run folder ──▶ Trainer ──▶ update, log, validate, save, … until done, out of patience or stopped

Run again with the same run folder, it goes on after the last checkpoint. Every update's random numbers come from
(seed, update, rank), its pairs from (seed, epoch), and the sums of an unfinished training record are saved with the
rest, so that a resumed run does and writes what the uninterrupted one does. SIGINT and SIGTERM stop it at the end of
the update under way, after saving (in the last update or validation it finishes); a second SIGINT stops at once.

A GPU runs ahead of this loop: what updates came to is read, and agreed between ranks, every few updates (`_settle`).
Whatever decides which collective comes next is equal on all ranks: `Progress` (read from the same checkpoint, and after
that changed by the loop and by what rank 0's validation returned to all of them) and `stop`, which `_settle` agrees on.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from .. import console
from ..data.batches import EpochPlan
from ..data.shards import Corpus, ShardIndex, check_matches, hold, verify
from ..data.tokenizer import Vocabulary
from ..errors import DataError, Stopped, TrainingError, write_failed
from ..files import link_atomic, write_atomic
from ..hardware import Hardware
from ..model.folder import build, weights_of
from ..model.transformer import Transformer, count_parameters
from ..recipe import Recipe
from .loader import Share, feed
from .probe import choose_micro_batch
from .process_group import Ranks
from .report import Report, clock, perplexity, skipped_line, training_line, validation_line
from .run import Progress, RunFolder
from .update import Outcome, Updater
from .validation import Sample, Validator

OUT_OF_PATIENCE = 1000.0  # above every signal's number
AHEAD = 8  # updates that a GPU's loop goes on without reading their results


class Trainer:
    """One rank's training of `recipe` on the shards at `shards`, kept in `run`."""

    def __init__(self, recipe: Recipe, shards: Path, run: Path, hardware: Hardware, ranks: Ranks, tensorboard: bool = False, backend: str = "") -> None:
        """Check everything and take up the last checkpoint, if there is one; `backend` is `Updater`'s.

        Raises NmtError for what does not fit.
        """
        self.shards_lock = hold(shards)  # from here on nobody replaces them
        weakref.finalize(self, os.close, self.shards_lock)
        index = verify(shards)
        check_matches(index, recipe, shards)
        self.recipe, self.hardware, self.ranks = recipe, hardware, ranks
        self.corpus = Corpus(shards, "train", index)
        self.vocabulary = Vocabulary.load(shards, index.vocabularies)
        if self.vocabulary.sha256 != index.tokenizer_sha256:
            raise DataError(f"the tokenizer in {str(shards)!r} is not the one its shards were made with. Make the shards again with nmt preprocess … --force.")
        self.tokenizers = {name: tokenizer.model for name, tokenizer in self.vocabulary.files.items()}
        self.sizes = (self.vocabulary.source_size, self.vocabulary.target_size)
        self.run = RunFolder(run)
        ranks.run_on_main(self.run.create)
        self.report = Report(self.run, ranks.leads, tensorboard)
        model, self.progress, moments = self._start(index)
        if len({tuple(row) for row in ranks.gathered([float(self.progress.update), float(int(index.data_fingerprint[:12], 16))])}) > 1:
            raise DataError("the ranks see different shards or checkpoints: --data and --run must lie on a file system that all machines share.")
        self.updater = Updater(model, recipe, hardware, ranks, lambda text: console.warn(f"rank {ranks.rank}: {text}"), backend)
        self.updater.restore(moments, self.progress.update - self.progress.skipped)
        self.model, self.computer = self.updater.weights.model, self.updater.weights.computer
        self.parameters = count_parameters(self.model)["total"]
        train = recipe.train
        self.plan = EpochPlan(self.corpus.source_lengths, self.corpus.target_lengths, train.batch_tokens, train.seed)
        self.micro_batch_tokens = choose_micro_batch(self.updater, self.plan, self.progress.micro_batch_tokens)
        self.progress.micro_batch_tokens = self.micro_batch_tokens
        has_validation = "valid" in index.splits and index.splits["valid"].pairs > 0
        self.validator = Validator(shards, self.vocabulary, recipe, hardware, self.micro_batch_tokens) if has_validation else None
        self.meter = _Meter(self.progress)
        self.pending: list[tuple[int, Outcome]] = []  # with their epochs
        self.ahead = 1 if hardware.device == "cpu" else AHEAD
        self.noted = 0.0  # a signal that this process got
        self.stop = 0.0  # what all ranks have agreed on
        self.saved_at = time.monotonic()
        self.resumed_at = time.perf_counter()

    def _start(self, index: ShardIndex) -> tuple[Transformer, Progress, dict[str, torch.Tensor]]:
        """Model, progress and moments: those of the last checkpoint, or fresh ones."""
        found = self.run.load_last(self.recipe, index.data_fingerprint, index.ids_fingerprint)
        if found is None:
            self.report.rewind(0)
            torch.manual_seed(self.recipe.train.seed)
            progress = Progress(data_fingerprint=index.data_fingerprint, ids_fingerprint=index.ids_fingerprint)
            return Transformer(self.recipe.model, *self.sizes).to(self.hardware.device).train(), progress, {}
        _, progress, weights, moments = found
        self.report.rewind(progress.metrics_bytes)
        if self.ranks.leads:
            train = self.recipe.train
            self.run.prune(train.keep, train.keep_best, train.best_metric)  # what a killed process did not get to
        return build(self.recipe, *self.sizes, weights).to(self.hardware.device).train(), progress, moments

    # --- the loop ---

    def train(self) -> Progress:
        """Train to the end. Raises `Stopped` after a signal, `TrainingError` when a gradient is not finite or a rank is gone."""
        try:
            return self._train()
        finally:
            self.run.close()

    def _train(self) -> Progress:
        self._check_patience()
        with self._signals_noted():
            self._introduce()
            while self.progress.update < self.recipe.train.updates and not self.stop:
                self._epoch()
            if 0 < self.stop < OUT_OF_PATIENCE and self.progress.update < self.recipe.train.updates:
                self._save()
                self.report.line(f"stopped at update {self.progress.update:,} and saved; run the same command to go on")
                raise Stopped(int(self.stop), "")
            self._finish()
        return self.progress

    def _epoch(self) -> None:
        """What is left of the current epoch."""
        progress, train = self.progress, self.recipe.train
        shares = feed(self.corpus, self.plan, progress.epoch, progress.position, self.micro_batch_tokens, self.ranks, self.hardware)
        self.resumed_at = time.perf_counter()
        for share in shares:
            self._update(share)
            log, validate, save = (every > 0 and progress.update % every == 0 for every in (train.log_every, train.valid_every, train.checkpoint_every))
            done = progress.update >= train.updates
            if log or validate or save or done or len(self.pending) >= self.ahead:
                save |= self._settle()
            if log:
                self._log()
            if validate and self.validator:
                self._validate()
            if save and not done:
                self._save()
            if log or validate or save:
                self.resumed_at = time.perf_counter()  # validating and saving are not training
            if self.stop or done:
                return
        progress.epoch, progress.position = progress.epoch + 1, 0

    def _update(self, share: Share) -> None:
        progress = self.progress
        torch.manual_seed((self.recipe.train.seed * 1_000_003 + progress.update) * 4099 + self.ranks.rank)
        self.pending.append((progress.epoch, self.updater(share, progress.update + 1)))
        progress.update += 1
        progress.position += 1

    def _settle(self) -> bool:
        """Read what the pending updates came to, of all ranks, and whether any is to stop; whether minutes make a save due."""
        progress, pending = self.progress, self.pending
        results = [[*outcome.sums.tolist(), float(outcome.norm), float(outcome.skipped)] for _, outcome in pending]
        everyones = self.ranks.gathered([self.noted, float(self._minutes_passed()), *(value for row in results for value in row)])
        self.stop = max(self.stop, *(row[0] for row in everyones))
        now = time.perf_counter()
        progress.seconds, self.resumed_at = progress.seconds + now - self.resumed_at, now
        self.pending = []
        for index, (epoch, outcome) in enumerate(pending):
            columns = list(zip(*(row[2 + 4 * index : 6 + 4 * index] for row in everyones), strict=True))
            smoothed, nll, norm, skipped = sum(columns[0]), sum(columns[1]), columns[2][0], columns[3][0]  # the last two are of the sum over ranks
            if skipped:
                self._skipped(outcome, progress.update - len(pending) + index + 1, epoch, norm)
            else:
                progress.skipped_in_a_row = 0
                self.meter.add(smoothed, nll, outcome, norm)
        return bool(everyones[0][1])

    def _minutes_passed(self) -> bool:
        minutes = self.recipe.train.checkpoint_minutes
        return minutes > 0 and time.monotonic() - self.saved_at >= 60 * minutes

    def _log(self) -> None:
        if self.meter.tokens:
            values = self.meter.record()
            self.report.record(values)
            left = (self.recipe.train.updates - self.progress.update) * self.meter.seconds / self.meter.updates
            self.report.progress(training_line(values, self.recipe.train.updates, left))
        self.meter.restart()

    def _skipped(self, outcome: Outcome, update: int, epoch: int, norm: float) -> None:
        """A gradient was not finite, and no step was taken: tell it, and stop if there were too many in a row."""
        progress, allowed = self.progress, self.recipe.train.skip_nonfinite
        latest = update == progress.update
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        record = {"type": "skipped", "update": update, "epoch": epoch, "grad_norm": str(norm), "in_a_row": progress.skipped_in_a_row, "seconds": progress.seconds}
        if progress.skipped_in_a_row <= allowed:
            self.report.record(record)
            self.report.line(skipped_line(record, allowed))
            return
        if latest:  # the state is the one before this update: saved so, it can be looked at again
            progress.update, progress.position = progress.update - 1, progress.position - 1
            progress.skipped, progress.skipped_in_a_row = progress.skipped - 1, progress.skipped_in_a_row - 1
        raise TrainingError(self.ranks.run_on_main(partial(self._stopped_by, outcome, record, latest)))

    def _stopped_by(self, outcome: Outcome, record: dict[str, Any], latest: bool) -> str:
        """Save the state and what the update held. Returns the error message. Rank 0 alone."""
        update, epoch, progress = record["update"], record["epoch"], self.progress
        evidence = self._evidence(outcome, record, latest)
        there = self._write()
        what = "; ".join(str(micro_batch) for micro_batch in outcome.share.micro_batches)
        return (
            f"the gradient is not finite at update {update:,} (epoch {epoch + 1}, micro-batches of {what}); no step was taken. "
            f"The state {'before it' if latest else f'after {progress.update:,} updates'} is saved in {str(there)!r}, the batch in {str(evidence)!r}. "
            'Lower train.lr_factor, lengthen train.warmup, or set train.clip_norm or train.precision = "fp32"; or let it pass with train.skip_nonfinite.'
        )

    def _evidence(self, outcome: Outcome, record: dict[str, Any], latest: bool) -> Path:
        """Write which pairs the update held and where its gradient was not finite; the file."""
        path = self.run.path / f"nonfinite-{record['update']:08d}.json"
        weights = self.updater.weights
        broken = {name: int((~torch.isfinite(part)).sum()) for name, part in weights.by_name(weights.gradient).items()} if latest else {}
        lengths = zip(outcome.share.pairs.tolist(), *(side.tolist() for side in self.plan.lengths(outcome.share.pairs)), strict=True)
        pairs = [{"pair": pair, "source_tokens": source, "target_tokens": target} for pair, source, target in lengths]
        content = {**record, "loss_sums": [str(value) for value in outcome.sums.tolist()], "not_finite": {name: count for name, count in broken.items() if count}, "pairs": pairs}
        try:
            write_atomic(path, (json.dumps(content, indent=1) + "\n").encode())
        except OSError as error:
            raise write_failed(error, path, "what helps to look at a gradient that is not finite", TrainingError) from None
        return path

    def _validate(self) -> None:
        """Score the model, remember whether it is the best so far, and show samples.

        Rank 0 computes. The record comes back to every rank, so that all of them draw the same conclusions from it.
        """
        progress, train = self.progress, self.recipe.train
        samples: list[Sample] = []

        def score() -> dict[str, Any]:
            assert self.validator is not None
            self.report.clear()
            scores, samples[:] = self.validator(self.model, self.computer)
            return {"type": "valid", "update": progress.update, "epoch": progress.epoch, "ppl": perplexity(scores["nll"]), **scores, "seconds": progress.seconds}

        record = self.ranks.run_on_main(score)
        value = record[train.best_metric]
        better = progress.best is None or (value > progress.best if train.best_metric == "bleu" else value < progress.best)
        progress.best = value if better else progress.best
        progress.since_best = 0 if better else progress.since_best + 1
        progress.validation = record
        self.report.record(record)
        self.report.line(validation_line(record, better))
        for sample in samples:
            self.report.line(f"    source       {sample.source}\n    reference    {sample.reference}\n    translation  {sample.translation}\n")
        if better:
            self._save(best=True)
        self._check_patience()

    def _check_patience(self) -> None:
        if 0 < self.recipe.train.patience <= self.progress.since_best:
            self.stop = OUT_OF_PATIENCE

    def _save(self, best: bool = False) -> None:
        """Write a checkpoint of the present state, once an update; `best`: the link of that name points to it. Every rank waits for it."""

        def write() -> None:
            folder = self._write()
            if best:
                self.run.point("best", folder)

        self.ranks.run_on_main(write)

    def _write(self) -> Path:
        """Write the checkpoint; its folder. Rank 0 alone."""
        train, progress = self.recipe.train, self.progress
        evenly = progress.update % train.checkpoint_every == 0 if train.checkpoint_every else self._minutes_passed()
        progress.spaced = evenly or progress.update >= train.updates or self.stop == OUT_OF_PATIENCE
        self.saved_at = time.monotonic()
        there = self.run.checkpoints()
        folder = self.run.path / "checkpoints" / f"step-{progress.update:08d}"
        if there and there[-1].update == progress.update:
            return folder
        progress.metrics_bytes = self.report.flushed()
        current = progress.validation if progress.validation.get("update") == progress.update else {}
        self.run.save(weights_of(self.model), self.updater.moments(), progress, self.recipe, self.sizes, self.tokenizers, current)
        link_latest(self.run.path)
        self.run.prune(train.keep, train.keep_best, train.best_metric)
        return folder

    def _finish(self) -> None:
        """The last update is validated and saved, however it falls."""
        if self.validator and self.progress.validation.get("update") != self.progress.update:
            self._validate()
        self._save()
        reason = "no better validation for a while" if self.stop >= OUT_OF_PATIENCE else "all updates done"
        skipped = f"; {self.progress.skipped:,} updates passed without a step" if self.progress.skipped else ""
        self.report.line(f"finished at update {self.progress.update:,} after {clock(self.progress.seconds)}: {reason}; best {self.recipe.train.best_metric} {self.progress.best}{skipped}")

    # --- around the loop ---

    def _introduce(self) -> None:
        train, ranks = self.recipe.train, self.ranks
        if ranks.leads and self.run.checkpoints():
            link_latest(self.run.path)
        done = f"going on after update {self.progress.update:,}" if self.progress.update else "starting"
        cells, cell = self.plan.buckets_per_update, self.plan.bucket_tokens
        about = "about " if self.plan.pairs > self.plan.window else ""
        self.report.line(
            f"{done}: {self.recipe.name} · {self.parameters:,} parameters · {len(self.corpus):,} pairs · {about}{self.plan.updates_per_epoch:,} updates an epoch\n"
            f"update = {train.batch_tokens:,} tokens a side = {cells} × {cell:,} of like length; here {ranks.world} × {self.hardware.device} in {self.hardware.precision}, "
            f"micro-batches of up to {self.micro_batch_tokens:,} tokens\nrun folder {self.run.path}"
        )
        if not self.validator:
            console.warn("the shards hold no validation pairs: no scores, no best checkpoint, no early stopping")

    @contextmanager
    def _signals_noted(self) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP set `stop`; a second SIGINT interrupts at once. Under nohup SIGHUP stays ignored."""

        def note(number: int, frame: FrameType | None) -> None:
            if self.noted and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.noted = float(number)

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, *hangup)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Meter:
    """Sums since the last training record; they live in `Progress`, and so in every checkpoint."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        if not progress.meter:
            self.restart()

    def restart(self) -> None:
        self.progress.meter = {"smoothed": 0.0, "nll": 0.0, "tokens": 0, "updates": 0, "norm": 0.0, "rate": 0.0, "began": self.progress.seconds}

    def add(self, smoothed: float, nll: float, outcome: Outcome, norm: float) -> None:
        meter = self.progress.meter
        meter["smoothed"] += smoothed
        meter["nll"] += nll
        meter["tokens"] += outcome.share.target_tokens
        meter["updates"] += 1
        meter["norm"], meter["rate"] = norm, outcome.rate

    @property
    def tokens(self) -> int:
        return int(self.progress.meter["tokens"])

    @property
    def updates(self) -> int:
        return int(self.progress.meter["updates"])

    @property
    def seconds(self) -> float:
        return max(self.progress.seconds - self.progress.meter["began"], 1e-9)

    def record(self) -> dict[str, Any]:
        """The training record."""
        progress, meter = self.progress, self.progress.meter
        nll = meter["nll"] / self.tokens
        return {
            "type": "train", "update": progress.update, "epoch": progress.epoch, "loss": meter["smoothed"] / self.tokens, "nll": nll, "ppl": perplexity(nll), "lr": meter["rate"],
            "grad_norm": meter["norm"], "target_tokens": self.tokens, "tokens_per_second": self.tokens / self.seconds, "seconds": progress.seconds,
        }  # fmt: skip


def link_latest(run: Path) -> None:
    """Let `latest`, beside the run, point to it. A link of another kind stays, and whatever else has that name."""
    link = run.parent / "latest"
    if run.name == link.name or (link.is_symlink() and "/" in os.readlink(link)):
        return
    with suppress(OSError):  # a convenience: the folder above may be another's
        link_atomic(link, run.name)
