"""The training loop.

    recipe + shards + run folder ──▶ Trainer ──▶ update, log, validate, save, … until done, out of patience or stopped

If training is started again with the same run folder, it resumes from the last checkpoint. The random numbers of each
update depend only on (seed, update, rank), its pairs on (seed, epoch). A checkpoint also has the sums of an unfinished
training record. Therefore a resumed run computes and writes the same as an uninterrupted one. SIGINT, SIGTERM and
SIGHUP stop training at the end of the current update, after a save. In the last update or validation, training finishes
instead. A second SIGINT stops at once.

On a GPU the loop starts several updates before it reads their results. Only every few updates it reads the results, and
agrees with the other ranks on signals and saves (`_drain_metrics`). The values that decide on the next collective are
equal on all ranks. `progress` starts from the same checkpoint and changes by the same metrics. `stop_signal` is set
from values that the ranks agreed on.

    in_flight.py   results of updates    checkpoint.py   saved states    progress.py   the counters
    stopping.py    signals               metrics.py      the records     report.py     where they go
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import console
from ..data.batches import EpochPlan
from ..data.bpe_dropout import BpeDropout
from ..data.directions import BothDirections
from ..data.safe_length import safe_length
from ..data.shards import Corpus, ShardIndex, check_matches, hold, verify
from ..data.tokenizer import Vocabulary
from ..device.hardware import Hardware
from ..device.torch_device import is_host
from ..errors import DataError, ModelError, RecipeError, Stopped, TrainingError
from ..kernels.choice import BY_COUNTER
from ..model.folder import build, load_model, weights_of
from ..model.folder_files import card_of, find_model, origin_of, read_metrics
from ..model.transformer import Transformer, count_parameters
from ..model.weights import write_model
from ..recipe import Recipe
from ..registry import tree_function
from .in_flight import InFlight, StepMetrics, drain, error_message
from .loader import RankBatch, TrainingText, Variation, rank_batches
from .loggers import check_loggers
from .metrics import (
    NAMES,
    clock,
    goodness,
    live_text,
    measure_in,
    score_text,
    skipped_line,
    skipped_record,
    train_record,
    training_line,
    valid_record,
    validation_line,
)
from .probe import choose_micro_batch
from .process_group import ProcessGroup
from .progress import TrainingProgress
from .report import Report
from .run import RunFolder, link_latest
from .schedule import concerns
from .stopping import Finished, PendingSignal
from .update import OVERFLOWS, Updater
from .validation import Validator, has_validation

UPDATES_IN_FLIGHT = 8
"""How many updates the loop on a GPU starts before it reads their results."""


class Trainer:
    """One rank's training of `recipe` on the shards at `shards`, in the run folder `run`."""

    def __init__(
        self,
        recipe: Recipe,
        shards: Path,
        run: Path,
        hardware: Hardware,
        group: ProcessGroup,
        loggers: Sequence[str] = (),
        backend: str = "",
        *,
        dry_run: bool = False,
    ) -> None:
        """Check everything, and load the last checkpoint if there is one. Raises NmtError if something does not fit.

        `loggers` are names in registry.LOGGERS; `backend` is that of `Updater`. With `dry_run`, nothing is written.
        """
        if not recipe.model.source_end:
            raise RecipeError(
                "model.source_end = false: the model was imported, and reads a text without an end symbol. nmt "
                "translates with such models, and does not train them."
            )
        self.held_shards = hold(shards)
        """Until this is closed, no `nmt preprocess` replaces the shards."""
        self.recipe, self.hardware, self.group = recipe, hardware, group
        index = self._open_shards(shards)
        warnings = concerns(recipe.train)
        if not has_validation(index):
            warnings.append("the shards hold no validation pairs: no scores, no best checkpoint, no early stopping")
        for warning in warnings if group.is_main else ():
            console.warn(warning)
        self.run = RunFolder(run)
        group.run_on_main(partial(self.run.create, dry_run=dry_run))
        self.report = Report(self.run, group.is_main and not dry_run, loggers)
        if dry_run:
            check_loggers(loggers)
        sides = self.corpus.source_lengths, self.corpus.target_lengths
        self.safe_length = safe_length(*sides[: 2 if recipe.train.both_directions else 1])
        self.saved_at = time.monotonic()
        """When this process saved its latest checkpoint, by time.monotonic; before the first save, when it started."""
        with console.status("building the model", shown=group.is_main):
            model, self.progress, optimizer_state = self.load_or_initialize(index)
        seen = group.all_gather([float(int(index.data_fingerprint[:12], 16))])
        if any(values != seen[0] for values in seen):
            raise DataError("the ranks see different shards: --data must lie on a file system that all machines share.")
        if group.is_main and not self._is_done:
            self.run.check_disk(count_parameters(model)["total"], recipe.train.keep + recipe.train.keep_best + 1)
        self.updater = Updater(model, recipe, hardware, group, backend)
        self.updater.load_optimizer_state(optimizer_state, self.progress.update - self.progress.skipped)
        self.updater.after_micro_batch = lambda share: self.report.advance(
            self.progress.update + share, self._live_text
        )
        self.live_text = ""
        self.plan = EpochPlan(
            self.corpus.source_lengths, self.corpus.target_lengths, recipe.train.batch_tokens, recipe.train.seed
        )
        passes, max_padding = recipe.train.passes, self.updater.max_padding
        self.text = TrainingText(self.corpus, self.plan, self._variations(), passes, max_padding)
        with console.status("measuring the memory of a micro-batch", shown=group.is_main):
            tokens = choose_micro_batch(self.updater, self.plan, self.progress.micro_batch_tokens)
        self.progress.micro_batch_tokens = tokens
        self.validator: Validator | None = None
        if has_validation(index):
            self.validator = Validator(shards, self.vocabulary, recipe, hardware, tokens, self.safe_length)
            if self.validator.source:
                self.validator.translator(self.updater.weights.model)  # raises errors of the recipe's [decode]
        self.in_flight: list[InFlight] = []
        self.max_in_flight = 1 if is_host(hardware.device) else UPDATES_IN_FLIGHT
        self.updates_here, self.seconds_between = 0, 0.0
        """The updates of this process, and the seconds of its validations and saves between them."""
        self.pending_signal = PendingSignal()
        self.stop_signal = 0
        """The number of the signal that stops training; 0: none."""

    def _open_shards(self, shards: Path) -> ShardIndex:
        """Open corpus and vocabulary, and return the shards' index.

        Raises DataError when the shards do not fit the recipe.
        """
        index = verify(shards)
        check_matches(index, self.recipe, shards)
        self.corpus = Corpus(shards, "train", index)
        self.vocabulary = Vocabulary.load(shards, index.vocabularies)
        if self.vocabulary.sha256 != index.tokenizer_sha256:
            raise DataError(
                f"the tokenizer in {str(shards)!r} is not the one its shards were made with. Make the shards again "
                f"with nmt preprocess … --force."
            )
        return index

    def load_or_initialize(self, index: ShardIndex) -> tuple[Transformer, TrainingProgress, dict[str, Tensor]]:
        """Return model, progress and optimizer state: of the last checkpoint, which rank 0 selects, or new ones."""
        train, optimizer_state = self.recipe.train, dict[str, Tensor]()
        last_update = self.group.run_on_main(self.run.last_update)
        if last_update is None:
            if self.run.last_update() is not None:
                raise DataError(
                    f"this rank sees checkpoints in {str(self.run.path)!r}, and rank 0 sees none: --data and --run "
                    f"must lie on a file system that all machines share."
                )
            self.report.rewind(0)
            torch.manual_seed(train.seed)
            progress = TrainingProgress(data_fingerprint=index.data_fingerprint, ids_fingerprint=index.ids_fingerprint)
            model = (
                initial_model(Path(train.init), self.recipe, self.vocabulary)
                if train.init
                else Transformer(self.recipe.model, *index.vocabularies)
            )
            made_from = find_model(Path(train.init)) if train.init else None
            if model.next_word is not None:
                model.next_word.set(*tree_function("word_tables")(self.vocabulary, self.recipe.data.terminals))
        else:
            progress, weights, optimizer_state = self.run.load(last_update, self.recipe, index)
            made_from = self.run.checkpoint_folder(last_update)
            self.report.rewind(progress.metrics_bytes)
            if progress.best is None and progress.validation:  # train.best_metric has changed
                metric = train.chosen_by
                progress.best = self.group.run_on_main(lambda: self.run.best_score(metric))
                self.report.line(
                    f"train.best_metric is now {NAMES[metric]}: the best checkpoint is chosen by it from here on"
                )
            if self.report.is_main:
                self.run.prune(train)  # a killed process may have left more
            model = build(self.recipe, *index.vocabularies, {name: weight.clone() for name, weight in weights.items()})
        self.origin = origin_of(read_metrics(made_from), is_changed=True) if made_from else {}
        self.card = card_of(made_from, is_changed=True) if made_from else b""
        """Which imported model this one is trained from, as metrics.json and README.md of its folders say it."""
        return model.to(self.hardware.device).train(), progress, optimizer_state

    def _variations(self) -> list[Variation]:
        """Return the functions that change the pairs from epoch to epoch. Raises TrainingError."""
        train = self.recipe.train
        if train.both_directions and self.vocabulary.source.tags:
            raise TrainingError(
                "train.both_directions = true: the source of this model begins with the tag of its target language, "
                "which the other direction does not have. Set it to false."
            )
        variations: list[Variation] = [BothDirections(train.seed)] if train.both_directions else []
        if train.bpe_dropout:
            variations.append(BpeDropout(self.vocabulary, train.bpe_dropout, train.seed, self.recipe.data.max_length))
        return variations

    # --- the loop ---

    def train(self) -> TrainingProgress:
        """Train to the end.

        Raises `Stopped` after a signal, `TrainingError` when a gradient is not finite or a rank does not answer.
        """
        Finished.reached = False
        try:
            with self.pending_signal.caught():
                self._introduce()
                self.train_updates()
                if self.stop_signal and not self._is_done:
                    self.save_checkpoint()
                    message = f"stopped at update {self.progress.update:,} and saved; run the same command to resume"
                    self.report.line(message)
                    raise Stopped(self.stop_signal, message, reported=True)
                self.finish()
                Finished.reached = True
            return self.progress
        finally:
            self.report.close()
            self.run.close()
            self.held_shards.close()

    @property
    def out_of_patience(self) -> bool:
        """Whether train.patience validations in a row were not better than the best."""
        return 0 < self.recipe.train.patience <= self.progress.since_best

    @property
    def _is_done(self) -> bool:
        """Whether all updates are done, or training has run out of patience."""
        return self.progress.update >= self.recipe.train.updates or self.out_of_patience

    def train_updates(self) -> None:
        """Train until all updates are done, or training stops."""
        progress = self.progress
        batches = rank_batches(
            self.text, progress.epoch, progress.position, progress.micro_batch_tokens, self.group, self.hardware
        )
        self.report.start_bar(progress.update, self.recipe.train.updates)
        self.clock_started = time.perf_counter()
        while not (self._is_done or self.stop_signal):
            self.train_step(next(batches))
            self._after_step()

    def train_step(self, batch: RankBatch) -> None:
        """Start the next update, and add its result to the updates in flight."""
        progress = self.progress
        if batch.epoch > progress.epoch:
            progress.epoch, progress.position = batch.epoch, 0
        torch.manual_seed((self.recipe.train.seed * 1_000_003 + progress.update) * 4099 + self.group.rank)
        result = self.updater(batch, progress.update + 1)
        progress.update += 1
        progress.position += 1
        self.updates_here += 1
        self.in_flight.append((progress.update, progress.epoch, result))

    def _after_step(self) -> None:
        """Read metrics, log, validate and save if one of these is due after this update."""
        train = self.recipe.train
        log, validate, save = (
            interval > 0 and self.progress.update % interval == 0
            for interval in (train.log_every, train.valid_every, train.checkpoint_every)
        )
        if log or validate or save or self._is_done or len(self.in_flight) >= self.max_in_flight:
            save_is_due = self._drain_metrics()
            save = save or save_is_due
        if log:
            self._log()
        if validate and self.validator:
            self.validate()
        if save and not self._is_done:
            self.save_checkpoint()
        if log or validate or save:  # the time of validating and saving does not count as that of updates
            now = time.perf_counter()
            self.seconds_between, self.clock_started = self.seconds_between + now - self.clock_started, now

    def _drain_metrics(self) -> bool:
        """Read the metrics of the updates in flight, and set `stop_signal` if a rank received a signal.

        Return whether a save is due by the clock.

        Raises TrainingError when too many gradients in a row were not finite.
        """
        progress = self.progress
        results, self.in_flight = self.in_flight, []
        steps, signal, save_is_due = drain(results, self.group, self.pending_signal.number, self._minutes_have_passed())
        self.stop_signal = signal or self.stop_signal
        now = time.perf_counter()
        progress.seconds, self.clock_started = progress.seconds + now - self.clock_started, now
        for step in steps:
            if step.skipped:
                self._skip(step)
            else:
                progress.skipped_in_a_row = 0
                progress.meter.add(step.loss, step.nll, step.result.batch.target_tokens, step.grad_norm, step.result.lr)
        return save_is_due

    # --- what happens between updates ---

    def _live_text(self) -> str:
        """Return the text of the bar.

        After a training record, the meter is empty: until the next metrics, return the previous text.
        """
        if self.progress.meter.tokens or not self.live_text:
            self.live_text = live_text(self.progress)
        return self.live_text

    def _log(self) -> None:
        """Report the training record, and restart the meter."""
        progress, updates = self.progress, self.recipe.train.updates
        if progress.meter.tokens:
            record = train_record(progress)
            self.report.record(record)
            per_update = progress.meter_seconds / progress.meter.updates + self.seconds_between / self.updates_here
            eta = (updates - progress.update) * per_update
            self.report.progress(training_line(record, updates, eta))
        progress.restart_meter()

    def _skip(self, step: StepMetrics) -> None:
        """Count and report an update whose gradient was not finite.

        Raises TrainingError after too many such updates in a row.
        """
        progress = self.progress
        allowed = self.recipe.train.skip_nonfinite + (OVERFLOWS if self.updater.loss_scale else 0)
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        record = skipped_record(progress, step.update, step.epoch, step.grad_norm)
        if progress.skipped_in_a_row <= allowed:
            self.report.record(record)
            self.report.line(skipped_line(record, allowed))
            return
        is_latest = step.update == progress.update
        if is_latest:  # save the state before this update, so that it can be repeated
            progress.update, progress.position = progress.update - 1, progress.position - 1
            progress.skipped, progress.skipped_in_a_row = progress.skipped - 1, progress.skipped_in_a_row - 1

        def save() -> str:
            weights = self.updater.weights if is_latest else None
            return error_message(step, self.write_checkpoint(), progress.update, weights)

        raise TrainingError(self.group.run_on_main(save))

    def validate(self) -> None:
        """Score the model, report the scores with some samples, and save the model if it is the best so far.

        Every rank scores a share. Rank 0 combines the shares into a record, and every rank gets this record. So all
        ranks make the same decisions from it.
        """
        progress, train, group = self.progress, self.recipe.train, self.group
        validator = self.validator
        assert validator is not None
        self.report.clear_bar()
        group.all_gather([0.0])  # after the reports of rank 0 comes the message of a rank that fails from now on
        models = self.updater.weights.model, self.updater.weights.compute_model
        shares = group.run_on_all(lambda: validator.share(*models, group.rank, group.world_size))

        def combine() -> tuple[dict[str, Any], list[str]]:
            scores, samples = validator.combine(shares)
            return valid_record(progress, scores), samples

        record, samples = group.run_on_main(combine)
        metric = train.chosen_by
        value = record[metric]
        before, now = (measure_in(of, metric) for of in (progress.validation or record, record))
        is_best = progress.best is None or before != now or goodness(metric, value) > goodness(metric, progress.best)
        if before != now and progress.best is not None:
            self.report.line(f"{NAMES[metric]} is measured in another way from here on: earlier scores do not count")
        progress.best = value if is_best else progress.best
        progress.since_best = 0 if is_best else progress.since_best + 1
        progress.validation = record
        self.report.record(record)
        self.report.line(validation_line(record, is_best))
        self.report.samples(samples)
        if is_best:
            self.save_checkpoint(is_best=True)

    def save_checkpoint(self, is_best: bool = False) -> None:
        """Save a checkpoint of the present state; every rank waits for it.

        If `is_best`, point the link `best` to it.
        """

        def write() -> None:
            folder = self.write_checkpoint()
            if is_best:
                self.run.point("best", folder)

        self.group.run_on_main(write)

    def write_checkpoint(self) -> Path:
        """Write a checkpoint of the present state, if there is none yet, on rank 0, and return its folder.

        Raises TrainingError.
        """
        train, progress = self.recipe.train, self.progress
        interval = train.checkpoint_every
        is_due = progress.update % interval == 0 if interval else self._minutes_have_passed()
        progress.periodic = is_due or self._is_done
        self.saved_at = time.monotonic()
        folder = self.run.checkpoint_folder(progress.update)
        if self.run.last_update() == progress.update:
            return folder
        progress.metrics_bytes = self.report.flush()
        write = partial(
            write_model,
            weights=weights_of(self.updater.weights.model),
            recipe=self.recipe,
            vocabularies=self.corpus.index.vocabularies,
            tokenizers={name: tokenizer.model for name, tokenizer in self.vocabulary.files.items()},
            metrics={
                **(progress.validation if progress.validation.get("update") == progress.update else {}),
                **self.origin,
            },
            safe_length=self.safe_length,
            card=self.card,
        )
        self.run.save(progress, self.updater.optimizer_state(), write)
        link_latest(self.run.path)
        self.run.prune(train)
        return folder

    def _minutes_have_passed(self) -> bool:
        """Return whether train.checkpoint_minutes have passed since the latest checkpoint."""
        minutes = self.recipe.train.checkpoint_minutes
        return minutes > 0 and time.monotonic() - self.saved_at >= 60 * minutes

    # --- start and end ---

    def _introduce(self) -> None:
        """Report the recipe, model, data and hardware of this training, and whether it goes on with other kernels."""
        train, group, plan = self.recipe.train, self.group, self.plan
        kernels = f"kernels for {self.updater.kernels.summary}"
        before = self.run.last_line_with("kernels for ") if group.is_main and self.progress.update else ""
        if before and (BY_COUNTER in before) != (BY_COUNTER in kernels):
            console.warn(
                f"from update {self.progress.update + 1:,} on, dropout draws other random numbers than before, because "
                f"training has other kernels ({before}). It goes on as well, but does not end with the same bits."
            )
        if group.is_main and self.run.checkpoints():
            link_latest(self.run.path)
        start = f"starting from {train.init}" if train.init else "starting"
        if self.progress.update:
            start = f"resuming after update {self.progress.update:,}"
        total, frozen = count_parameters(self.updater.weights.model)["total"], self.updater.weights.frozen_numbers
        parameters = f"{total:,} parameters"
        if frozen:
            parameters += f" ({total - frozen:,} trained, {frozen:,} frozen)"
        about = "about " if plan.pairs > plan.window else ""
        self.report.line(
            f"{start}: {self.recipe.name} · {parameters} · {len(self.corpus):,} pairs · "
            f"{about}{plan.updates_per_epoch:,} updates per epoch\nupdate = {train.batch_tokens:,} tokens per side = "
            f"{plan.buckets_per_update} × {plan.bucket_tokens:,} of like length; here {group.world_size} × "
            f"{self.hardware.device} in {self.hardware.precision}, micro-batches of up to "
            f"{self.progress.micro_batch_tokens:,} "
            f"tokens{', each pair in two passes' if train.passes > 1 else ''}\n{kernels}\nrun folder {self.run.path}"
        )
        if self.validator:
            self.report.line(self.validator.description)

    def finish(self) -> None:
        """Validate and save the state after the last update, if this is not done yet, and report the end."""
        progress = self.progress
        if self.validator and progress.validation.get("update") != progress.update:
            self.validate()
        self.save_checkpoint()
        reason = "no better validation for a while" if self.out_of_patience else "all updates done"
        skipped = f"; {progress.skipped:,} updates passed without a step" if progress.skipped else ""
        metric = self.recipe.train.chosen_by
        best = f"; best {score_text(metric, progress.best)}" if progress.best is not None else ""
        self.report.line(
            f"finished at update {progress.update:,} after {clock(progress.seconds)}: {reason}{best}{skipped}"
        )


def initial_model(folder: Path, recipe: Recipe, vocabulary: Vocabulary) -> Transformer:
    """Return a model of `recipe` with the weights of the model in a model or run folder (`train.init`).

    Only the weights come from the other model. Adam's moments, the schedule and the reading of the text start from the
    beginning. Raises ModelError when the weights do not fit.
    """
    try:
        loaded = load_model(find_model(folder))
        if loaded.config.tokenizers != {name: tokenizer.sha256 for name, tokenizer in vocabulary.files.items()}:
            raise ModelError(
                "its vocabulary is not that of the shards. Make these with the same one: nmt preprocess … "
                f"--set {shlex.quote(f'data.tokenizer={loaded.folder}')}"
            )
        return build(recipe, vocabulary.source_size, vocabulary.target_size, weights_of(loaded.model))
    except ModelError as error:
        raise ModelError(f"train.init = {str(folder)!r}: {error}") from None
