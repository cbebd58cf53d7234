"""The loop in one process: gradients that are not finite, results that are read late, what a resumed run takes up."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import tqdm
from safetensors.torch import load_file
from small_models import needs_engine
from torch import Tensor
from untrained import SMALLEST

from nmt_cli.data.prepare import prepare
from nmt_cli.data.tokenizer import Vocabulary, learn_bpe
from nmt_cli.device.hardware import Hardware
from nmt_cli.errors import ModelError, Stopped, TrainingError
from nmt_cli.recipe import Recipe
from nmt_cli.training.averaging import average, choose
from nmt_cli.training.metrics import train_record
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.progress import TrainingProgress
from nmt_cli.training.run import RunFolder
from nmt_cli.training.trainer import Trainer, initial_model

Start = Callable[..., Trainer]
WORDS = ["a", "b", "c", "d", "e", "f", "g", "h"]


def recipe(**train: Any) -> Recipe:
    model = {**SMALLEST, "d_model": 16, "d_ff": 32, "dropout": 0.1}
    data: dict[str, Any] = {
        f"{kind}_{side}": [name] for kind in ("train", "valid") for side, name in (("source", "x"), ("target", "y"))
    }
    data |= {"vocab_size": 20, "max_length": 30, "byte_fallback": False}
    steps = {"updates": 20, "warmup": 10, "log_every": 5, "valid_every": 10, "checkpoint_every": 10}
    measures = {"valid_bleu_sentences": 0, "best_metric": "nll", "precision": "fp32", "batch_tokens": 256}
    values = {"name": "test", "data": data, "model": model, "train": {**steps, **measures, **train}}
    return Recipe.from_dict(values, "test")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trainer")
    lines = [" ".join(WORDS[(i * k + j) % 8] for j in range(1 + i % 9)) for i in range(60) for k in (1, 3)]
    for name, order in (("x", 1), ("y", -1)):
        (folder / name).write_text("".join(" ".join(line.split()[::order]) + "\n" for line in lines), encoding="utf-8")
    prepare(recipe(), [folder], folder / "shards", workers=1)
    return folder / "shards"


@pytest.fixture
def start(shards: Path, tmp_path: Path) -> Start:
    def make(run: str = "run", broken: frozenset[int] = frozenset(), in_flight: int = 1, **train: Any) -> Trainer:
        """Return a trainer whose gradient is not finite at the updates in `broken`."""
        trainer = Trainer(recipe(**train), shards, tmp_path / run, Hardware("cpu", "fp32", 2**33), ProcessGroup())
        trainer.max_in_flight = in_flight

        def spoil(gradient: Tensor) -> Tensor:
            if trainer.progress.update + 1 not in broken:
                return gradient
            gradient = gradient.clone()
            gradient[3, 4] = float("inf")
            return gradient

        if broken:
            trainer.updater.weights.compute_model.matrix("output").register_hook(spoil)  # type: ignore[no-untyped-call]
        return trainer

    return make


def signal_at(trainer: Trainer, update: int, number: signal.Signals) -> None:
    """Send a signal to this process during the forward pass of an update."""
    trainer.updater.gradients.losses.register_forward_pre_hook(
        lambda *_: os.kill(os.getpid(), number) if trainer.progress.update + 1 == update else None
    )


def records(trainer: Trainer) -> list[dict[str, Any]]:
    lines = trainer.run.metrics.read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ("seconds", "tokens_per_second")} for line in lines]


def test_the_first_gradient_that_is_not_finite_stops_with_what_helps(start: Start) -> None:
    trainer = start(broken=frozenset({7}))
    with pytest.raises(TrainingError) as raised:
        trainer.train()
    for named in ("at update 7 (epoch 2, micro-batches of", "pairs of up to", "step-00000006", "of embeddings.shared"):
        assert named in str(raised.value)
    assert [(c.update, c.periodic) for c in trainer.run.checkpoints()] == [(6, False)]
    resumed = start()  # the error does not come again: the run ends as one that never had it
    resumed.train()
    whole = start("whole")
    whole.train()
    assert torch.equal(resumed.updater.weights.main_params, whole.updater.weights.main_params)
    assert records(resumed) == records(whole)
    assert [c.update for c in resumed.run.checkpoints()] == [10, 20]


def test_as_many_in_a_row_as_allowed_pass_without_a_step_and_one_more_stops(start: Start) -> None:
    trainer = start(broken=frozenset({4, 5, 8}), skip_nonfinite=2)
    progress = trainer.train()
    assert (progress.update, progress.skipped, progress.skipped_in_a_row) == (20, 3, 0)
    skipped = [(r["update"], r["in_a_row"]) for r in records(trainer) if r["type"] == "skipped"]
    assert skipped == [(4, 1), (5, 2), (8, 1)]
    assert float(trainer.updater.adam.state[trainer.updater.weights.main_params]["step"]) == 17
    assert torch.isfinite(trainer.updater.weights.main_params).all()
    with pytest.raises(TrainingError, match="at update 6 "):
        start("other", broken=frozenset({4, 5, 6}), skip_nonfinite=2).train()


def test_results_read_late_are_the_same(start: Start) -> None:
    """As on a GPU, whose loop does not wait for an update to end."""
    broken = frozenset({3, 14})
    prompt, late = start("prompt", broken, skip_nonfinite=1), start("late", broken, in_flight=8, skip_nonfinite=1)
    prompt.train()
    late.train()
    assert torch.equal(prompt.updater.weights.main_params, late.updater.weights.main_params)

    def content(trainer: Trainer) -> list[dict[str, Any]]:
        return sorted(records(trainer), key=lambda record: (record["type"], record["update"]))

    assert content(prompt) == content(late)


def test_an_error_that_is_read_late_is_reported_with_its_own_update(start: Start) -> None:
    trainer = start(broken=frozenset({3}), in_flight=8)
    with pytest.raises(TrainingError, match=r"at update 3 .*after 5 updates"):
        trainer.train()
    assert [c.update for c in trainer.run.checkpoints()] == [5]


def test_checkpoints_by_minutes_are_not_periodic_but_without_updates_to_count(start: Start) -> None:
    trainer = start(checkpoint_minutes=1e-6, keep=2, average=2)
    trainer.train()
    assert [(c.update, c.periodic) for c in trainer.run.checkpoints()] == [(10, True), (20, True)]
    trainer = start("other", checkpoint_every=0, checkpoint_minutes=1e-6, keep=3, average=3)
    trainer.train()
    checkpoints = trainer.run.checkpoints()
    assert all(c.periodic for c in checkpoints)
    assert checkpoints[-1].update == 20
    assert len(checkpoints) >= 3


def test_the_best_checkpoint_counts_though_it_is_not_periodic(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = start(valid_every=8, checkpoint_every=20)
    assert trainer.validator
    nll = {8: 3.0, 16: 1.0, 20: 2.0}
    monkeypatch.setattr(trainer.validator, "combine", lambda _: ({"nll": nll[trainer.progress.update]}, []))
    trainer.train()
    assert [(c.update, c.periodic) for c in trainer.run.checkpoints()] == [(16, False), (20, True)]
    assert [folder.name for folder in choose(trainer.run.path, best=1)] == ["step-00000016"]
    assert (trainer.run.path / "best").resolve().name == "step-00000016"


def test_a_record_has_the_speed_since_the_one_before() -> None:
    progress = TrainingProgress(update=5, seconds=10.0)
    progress.restart_meter()
    progress.seconds = 14.0
    progress.meter.add(8.0, 6.0, tokens=40, grad_norm=1.0, lr=0.1)
    assert train_record(progress)["tokens_per_second"] == 40 / 4


def test_what_a_killed_process_left_is_cleared_away(start: Start, tmp_path: Path) -> None:
    trainer = start()
    trainer.train()
    folder = tmp_path / "run/checkpoints"
    (folder / ".step-00000030.partial-99").mkdir()
    (folder / ".step-00000010.deleted").mkdir()
    (tmp_path / "run/best").unlink()
    del trainer
    again = start(updates=30)
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000010", "step-00000020"]
    assert (tmp_path / "run/best").resolve() == RunFolder(tmp_path / "run").checkpoints()[-1].folder
    again.train()
    assert again.progress.update == 30


DRAWS = {"r_drop": 2.0, "bpe_dropout": 0.3, "both_directions": True, "decay_updates": 12}
SKIPS = {"broken": frozenset({4, 9, 12}), "skip_nonfinite": 1}


@pytest.mark.parametrize(("chosen", "update"), [(DRAWS, 13), (SKIPS, 11)])
def test_a_run_resumes_exactly(chosen: dict[str, Any], update: int, start: Start) -> None:
    """With dropout, two passes, pairs turned round and words cut anew in each epoch, and a learning rate that falls to
    zero at the end; and with gradients that are skipped.
    """
    whole = start("whole", **chosen)
    whole.train()
    stopped = start(**chosen)
    signal_at(stopped, update, signal.SIGTERM)
    handler = signal.getsignal(signal.SIGTERM)
    # a caller in Python has no log
    with pytest.raises(Stopped, match=f"stopped at update {update} and saved") as error:
        stopped.train()
    assert (error.value.exit_code, error.value.reported) == (128 + signal.SIGTERM, True)
    assert signal.getsignal(signal.SIGTERM) == handler
    assert [(c.update, c.periodic) for c in stopped.run.checkpoints()] == [(10, True), (update, False)]
    resumed = start(**chosen)
    resumed.train()
    assert torch.equal(resumed.updater.weights.main_params, whole.updater.weights.main_params)
    assert records(resumed) == records(whole)
    for key in chosen.keys() & DRAWS.keys():  # each of them changes what is computed
        other = start(f"without {key}", **{k: v for k, v in chosen.items() if k != key})
        other.train()
        assert not torch.equal(other.updater.weights.main_params, whole.updater.weights.main_params), key


def test_training_may_start_from_another_models_weights(start: Start, tmp_path: Path) -> None:
    """With the weights alone: Adam, the schedule and the text begin anew. A resumed run does not read that model again."""
    first = start("first")
    first.train()
    second = start("second", init=str(tmp_path / "first"), seed=2)
    best = load_file(tmp_path / "first/best/model.safetensors")
    assert all(torch.equal(weights, best[name]) for name, weights in second.updater.weights.model.named_parameters())
    assert second.progress.update == 0
    assert not any(moments.any() for moments in second.updater.optimizer_state().values())
    second.train()
    assert "starting from" in second.run.log.read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "first")
    resumed = start("second", init=str(tmp_path / "first"), seed=2, updates=25)
    assert torch.equal(resumed.updater.weights.main_params, second.updater.weights.main_params)
    with pytest.raises(ModelError, match=r"train\.init: the run has '.*first', the recipe ''"):
        resumed.run.load(resumed.progress.update, recipe(seed=2), resumed.corpus.index)
    with pytest.raises(ModelError, match=r"resumes from update 1,000, .* a file system that all machines share"):
        resumed.run.load(1000, recipe(), resumed.corpus.index)


def test_a_model_that_does_not_fit_is_no_start(start: Start, tmp_path: Path, shards: Path) -> None:
    start("first", updates=1).train()
    same, wider = recipe(), recipe().model_copy(update={"model": recipe().model.model_copy(update={"d_ff": 64})})
    learned = learn_bpe(["a b c d e f g h i j k"] * 9, same.data.model_copy(update={"vocab_size": 20}))
    other = Vocabulary(learned, learned)
    for name, form, vocabulary, said in (
        ("nowhere", same, Vocabulary.load(shards), "no model at"),
        ("first", wider, Vocabulary.load(shards), "the weights do not fit the recipe: .* has shape"),
        ("first", same, other, r"its vocabulary is not that of the shards.* data\.tokenizer=\S*first/best$"),
    ):
        with pytest.raises(ModelError, match=rf"^train\.init = '.*{name}': .*{said}"):
            initial_model(tmp_path / name, form, vocabulary)


def test_frozen_parameters_keep_their_bits_through_stop_resume_and_averaging(start: Start, tmp_path: Path) -> None:
    start("first").train()
    frozen = {"init": str(tmp_path / "first"), "freeze": ["embeddings", "encoder.*"], "keep": 5}
    whole = start("whole", **frozen, checkpoint_every=5)
    whole.train()
    total = sum(parameter.numel() for parameter in whole.updater.weights.model.parameters())
    kept = whole.updater.weights.frozen_numbers
    assert 0 < kept < total
    log = whole.run.log.read_text(encoding="utf-8")
    assert f"{total:,} parameters ({total - kept:,} trained, {kept:,} frozen) · " in log
    for updates in (10, 20):
        part = start("part", **frozen, checkpoint_every=5, updates=updates)
        part.train()
    assert torch.equal(part.updater.weights.main_params, whole.updater.weights.main_params)
    folders = choose(tmp_path / "whole", last=4)
    average(folders, tmp_path / "whole" / "averaged")
    before = load_file(tmp_path / "first/best/model.safetensors")
    for folder in (*folders, tmp_path / "part/last", tmp_path / "whole/averaged"):
        weights = load_file(folder / "model.safetensors")
        same = {name for name in weights if torch.equal(weights[name], before[name])}
        assert same == {name for name in before if name.startswith(("embeddings.", "encoder."))}, folder
    with pytest.raises(
        ModelError, match=r"train\.freeze: the run has \['embeddings', 'encoder\.\*'\], the recipe \[\]"
    ):
        start("whole", **{**frozen, "freeze": []}, checkpoint_every=5)


def test_a_run_may_decay_after_it_was_resumed(start: Start) -> None:
    """Train on while it helps, then let the learning rate fall: the same as if that had been planned."""
    start(updates=14).train()
    decayed, planned = start(decay_updates=6), start("planned", decay_updates=6)
    decayed.train()
    planned.train()
    assert torch.equal(decayed.updater.weights.main_params, planned.updater.weights.main_params)


@needs_engine
def test_a_run_that_goes_on_with_other_random_numbers_says_so_once(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("nmt_cli.kernels.choice.library", lambda: None)
        start(updates=5).train()
    for updates, said in ((6, True), (7, False)):
        start(updates=updates).train()
        assert ("dropout draws other random numbers" in capsys.readouterr().err) == said


def test_patience_ends_training_before_a_signal_does(start: Start) -> None:
    """Both come with the same update: the run is finished, not stopped."""
    trainer = start(patience=1, updates=100, lr_factor=1e-9)
    trainer.progress.best = 0.0  # no validation will be better
    signal_at(trainer, 10, signal.SIGTERM)
    assert trainer.train().update == 10
    assert [(c.update, c.periodic) for c in trainer.run.checkpoints()] == [(10, True)]
    assert "no better validation for a while" in trainer.run.log.read_text(encoding="utf-8")
    assert start(patience=1, updates=100, lr_factor=1e-9).train().update == 10  # once more: nothing is left to do


def test_state_json_has_the_keys_of_older_versions(start: Start) -> None:
    """So that a run can be resumed by an older version and by a newer one."""
    trainer = start(updates=7)
    trainer.train()
    state = json.loads((trainer.run.path / "last/state.json").read_text(encoding="utf-8"))
    old = json.loads((Path(__file__).parents[1] / "fixtures/format_1/run/last/state.json").read_text(encoding="utf-8"))
    renamed = {"text": "data_fingerprint"}
    expected = {renamed.get(key, key) for key in old if key != "sha256"} | {"ids_fingerprint"}
    assert state["progress"].keys() == expected
    assert state["progress"]["meter"].keys() == old["meter"].keys()
    assert state["progress"]["meter"]["updates"] == 2  # since the record of update 5
    assert state["sha256"].keys() >= old["sha256"].keys()


def test_on_a_terminal_a_bar_moves_with_every_micro_batch(
    start: Start, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log's lines stay as they are."""
    monkeypatch.setattr("nmt_cli.training.report.PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr("nmt_cli.console.on_terminal", lambda: True)
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    # the whole training may take a tenth of a second
    monkeypatch.setattr("tqdm.tqdm", partial(tqdm.tqdm, mininterval=0))
    trainer = start(micro_batch_tokens=128)
    moved = Mock(wraps=trainer.report.advance)
    monkeypatch.setattr(trainer.report, "advance", moved)
    trainer.train()
    updates = [call.args[0] for call in moved.call_args_list]
    assert len(updates) >= 2 * 20
    assert (updates, updates[-1]) == (sorted(updates), 20.0)
    shown = capsys.readouterr().err
    assert re.search(r"update \d+/20 · epoch \d · loss \d\.\d+ · [\d,]+ tok/s \|", shown)
    assert "gradient norm" not in shown
    log = trainer.run.log.read_text(encoding="utf-8")
    assert len(re.findall(r"update \d+/20 · epoch \d · loss .* · ETA", log)) == 4
    assert "\r" not in log


def test_the_expected_time_counts_validations(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A validation takes half a minute after every five updates, which take no time beside it."""
    monkeypatch.setattr("nmt_cli.training.report.PROGRESS_SECONDS", 0.0)
    clock = time.perf_counter
    late = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + late[0])
    trainer = start(valid_every=5)
    validate = trainer.validate

    def slowly() -> None:
        late[0] += 30
        validate()

    monkeypatch.setattr(trainer, "validate", slowly)
    trainer.train()
    expected = re.findall(r"ETA (\d+):(\d+)", trainer.run.log.read_text(encoding="utf-8"))
    seconds = [60 * int(minutes) + int(rest) for minutes, rest in expected]
    assert seconds[0] < 30  # no validation was seen yet
    assert seconds[1:] == pytest.approx([10 * 30 / 10, 5 * 60 / 15, 0], abs=10)
