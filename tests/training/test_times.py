"""How long a training takes, and how often it validates and saves."""

import os
from pathlib import Path

import pytest

from nmt_cli.training.times import WRITTEN, Intervals, Speed, seconds_to_save, validation_seconds


@pytest.mark.parametrize(
    ("updates", "speed", "most_kept", "expected"),
    [
        (3000, Speed(1, 1), 99, Intervals(148, 37, 10)),
        (100, Speed(1, 1), 99, Intervals(5, 1, 10)),
        (1, Speed(1, 1), 99, Intervals(1, 1, 1)),
        (14, Speed(40, 40, save=80), 99, Intervals(14, 14, 1)),  # a large model and a small text: one checkpoint
        (3000, Speed(1, 1, save=10), 99, Intervals(200, 200, 2)),
        (3000, Speed(0.5, 1, validation=50), 99, Intervals(518, 37, 10)),
        (3000, Speed(1, 1), 4.9, Intervals(148, 37, 4)),  # half of the free disk
        (3000, Speed(1, 1), 0.2, Intervals(148, 37, 1)),
    ],
)
def test_checkpoints_and_validations_take_a_small_share(
    updates: int, speed: Speed, most_kept: float, expected: Intervals
) -> None:
    every = speed.intervals(updates, most_kept)
    assert every == expected
    if every.checkpoint_every < updates:
        assert speed.save / every.checkpoint_every <= 0.05 * speed.slowest
        assert speed.validation / every.valid_every <= 0.1 * speed.slowest


def test_a_training_takes_its_updates_validations_and_saves() -> None:
    speed = Speed(1.0, 1.5, start=3.0, save=2.0, validation=7.0)
    assert speed.seconds(100, Intervals(50, 30)) == (100 + 3 + 2 * 7 + 4 * 2, 150 + 3 + 2 * 7 + 4 * 2)
    assert speed.seconds(100, Intervals(50, 0)) == (100 + 3 + 2 * 7 + 2, 150 + 3 + 2 * 7 + 2)
    assert Speed(1.0, 1.5).seconds(0, Intervals(50, 0)) == (0, 0)
    assert validation_seconds(2.0, 1000, 100, 3000.0, 50) == pytest.approx(2.0 * 3 * (1 / 3 + 1 / 2))


def test_a_save_is_measured_without_leaving_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk: every flush takes a tenth of a second, and a checkpoint has four times the bytes that are written."""
    flush, written = os.fsync, []

    def slowly(file: int) -> None:
        written.append(os.fstat(file).st_size)
        monkeypatch.undo()
        __import__("time").sleep(0.1)
        flush(file)

    monkeypatch.setattr(os, "fsync", slowly)
    assert seconds_to_save(tmp_path, 4 * WRITTEN // 12) > 0.4
    assert written == [WRITTEN]
    assert [*tmp_path.iterdir()] == []
    assert seconds_to_save(tmp_path / "nowhere", 100) == 0.0
