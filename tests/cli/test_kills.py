"""Training stopped at any moment, by a signal or by kill -9, ends as the uninterrupted run did, to the bit.

A test names the moment: a prelude that runs in the training process itself puts a signal there, by
`at(owner, "function", n)` before the function's n-th call.
"""

import shutil
import signal
from pathlib import Path

import forked
import pytest
from shared import differences, number_words, run_errors

pytestmark = pytest.mark.slow

AT = """
import os, signal
def at(owner, name, number, when=lambda *_, **__: True, after=False, sends=signal.SIGKILL):
    was, calls = getattr(owner, name), 0
    def patched(*arguments, **options):
        nonlocal calls
        calls += (counts := when(*arguments, **options))
        if counts and calls == number and not after:
            os.kill(os.getpid(), sends)
        result = was(*arguments, **options)
        if counts and calls == number and after:
            os.kill(os.getpid(), sends)
        return result
    setattr(owner, name, patched)
from pathlib import Path
from nmt_cli.storage import files
from nmt_cli.training import run, trainer, validation
from nmt_cli.training.report import Report
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests may ignore it
"""
SHORT = ["--set", "train.updates=110", "--set", "train.valid_bleu_sentences=5"]
"""Neither a multiple of the updates between validations nor of those between checkpoints; an epoch has 58."""


class Place:
    """A folder with recipe and shards."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"

    def nmt(self, *arguments: str | Path, prelude: str = "", code: int = 0) -> str:
        """Run `nmt` to its end, which must be `code` and without a traceback; what it said, blanks squeezed."""
        return " ".join(forked.nmt(self.folder, *arguments, prelude=prelude and AT + prelude, code=code).split())

    def train(self, run: str, *options: str, prelude: str = "", code: int = 0) -> str:
        return self.nmt(
            "train", "numbers.toml", "--run", self.runs / run, *(options or SHORT), prelude=prelude, code=code
        )

    def fresh(self, run: str, copied: Path | None = None) -> Path:
        """The path of a run that is not there yet, or is a copy of another."""
        shutil.rmtree(self.runs / run, ignore_errors=True)
        if copied:
            shutil.copytree(copied, self.runs / run, symlinks=True)
        return self.runs / run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("kills")
    number_words(tmp_path_factory, folder)
    return Place(folder)


@pytest.fixture(scope="module")
def untouched(place: Place) -> Path:
    """The uninterrupted short run."""
    place.train("untouched")
    return place.runs / "untouched"


def ends_equal(place: Place, run: Path, untouched: Path) -> None:
    """What a user sees is whole, and the run, started again, ends as the untouched one did."""
    assert run_errors(run) == []
    place.train(run.name)
    assert differences(run, untouched) == []


@pytest.mark.parametrize(
    "moment",
    {
        "between a checkpoint's files": "at(trainer, 'write_model', 4)",
        "before a checkpoint's files are flushed": "at(files, 'flush_to_disk', 20)",
        "before a checkpoint takes its name": "at(Path, 'rename', 3, lambda path, _: '.partial-' in path.name)",
        "before `last` points to it": "at(run, 'link_atomic', 3, lambda link, _: link.name == 'last')",
        "before `best` points to it": "at(run, 'link_atomic', 3, lambda link, _: link.name == 'best')",
        "before old checkpoints are deleted": "at(run.RunFolder, 'prune', 7)",
        "while one is deleted": "at(os, 'unlink', 3, lambda _, dir_fd=None: dir_fd is not None)",
        "while one is deleted at the end": "at(os, 'unlink', 1, lambda _, dir_fd=None: dir_fd is not None and Path('runs/killed/checkpoints/step-00000110').exists())",
        "in a validation": "at(validation.Validator, 'translate', 3)",
        "before a validation is recorded": "at(Report, 'record', 2, lambda _, values: values['type'] == 'valid')",
        "after a validation is recorded": "at(Report, 'record', 2, lambda _, values: values['type'] == 'valid', after=True)",
        "in the last validation": "at(validation.Validator, 'translate', 6)",
        "before the last is deleted": "at(run.RunFolder, 'prune', 1, lambda folder, *_: folder.checkpoints()[-1].update == 110)",
    }.items(),
    ids=lambda moment: moment[0],
)
def test_killed_at_a_moment_it_ends_equal(moment: tuple[str, str], place: Place, untouched: Path) -> None:
    run = place.fresh("killed")
    place.train("killed", prelude=moment[1], code=-signal.SIGKILL)
    ends_equal(place, run, untouched)


def test_killed_within_a_line_of_records_it_ends_equal(place: Place, untouched: Path) -> None:
    half = """
def half(self, values, was=Report.record):
    if values["update"] == 70:
        with self.run.metrics.open("a") as stream:
            stream.write('{"type": "tr')
        os.kill(os.getpid(), signal.SIGKILL)
    was(self, values)
Report.record = half
"""
    place.train("half", prelude=half, code=-signal.SIGKILL)
    ends_equal(place, place.runs / "half", untouched)


TWICE = "at(run.RunFolder, 'save', 4, sends=signal.SIGTERM)"
"""Schedulers and torchrun both pass a signal on: a second one does not keep it from saving."""


@pytest.mark.parametrize(
    ("update", "number", "again"),
    [(1, signal.SIGHUP, ""), (37, signal.SIGTERM, TWICE), (58, signal.SIGINT, ""), (109, signal.SIGTERM, "")],
)
def test_stopped_after_any_update_it_saves_and_ends_equal(
    update: int, number: signal.Signals, again: str, place: Place, untouched: Path
) -> None:
    run = place.fresh("stopped")
    prelude = f"at(trainer.Trainer, 'train_step', {update}, sends=signal.{number.name}); {again}"
    assert f"stopped at update {update} and saved" in place.train("stopped", prelude=prelude, code=128 + number)
    assert (run / "last").resolve().name == f"step-{update:08d}"
    ends_equal(place, run, untouched)


ATEXIT = "import atexit; atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM)); "


@pytest.mark.parametrize(
    "prelude",
    [
        "at(trainer.Trainer, 'train_step', 110, sends=signal.SIGTERM)",
        "at(validation.Validator, 'translate', 6, sends=signal.SIGTERM)",
        f"{ATEXIT}at(trainer.Trainer, 'train', 1, after=True, sends=signal.SIGTERM)",
        f"{ATEXIT}at(trainer.Trainer, 'train', 1, after=True, sends=signal.SIGHUP)",
    ],
)
def test_a_signal_that_comes_too_late_changes_nothing(prelude: str, place: Place, untouched: Path) -> None:
    """In the last update or validation, when training has ended, and while the process ends."""
    run = place.fresh("late")
    said = place.train("late", prelude=prelude)
    assert ("finished at update 110" in said, "stopped " in said, "Exception" in said) == (True, False, False)
    ends_equal(place, run, untouched)


def test_an_average_takes_no_checkpoint_that_is_there_because_of_a_stop(place: Place) -> None:
    run = place.fresh("stopped")
    place.train("stopped", prelude="at(trainer.Trainer, 'train_step', 52, sends=signal.SIGTERM)", code=143)
    assert "(step-00000015, step-00000030, step-00000045)" in place.nmt("average", run)


PATIENT = ("--set", "train.lr_factor=1e-9", "--set", "train.patience=1")


@pytest.fixture(scope="module")
def out_of_patience(place: Place) -> Path:
    """A run that learns nothing and ends at the second validation, which is no better."""
    said = place.train("patient", *PATIENT)
    assert "finished at update 40" in said
    return place.runs / "patient"


@pytest.mark.parametrize("moment", ["'validate', 2, after=True", "'finish', 1", "'save_checkpoint', 3, after=True"])
def test_killed_after_the_deciding_validation_it_ends_there(moment: str, place: Place, out_of_patience: Path) -> None:
    run = place.fresh("decided")
    place.train("decided", *PATIENT, prelude=f"at(trainer.Trainer, {moment})", code=-signal.SIGKILL)
    assert "finished at update 40" in place.train("decided", *PATIENT)
    assert differences(run, out_of_patience) == []
