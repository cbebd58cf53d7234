"""The learning rate of equation (3), against values worked out by hand."""

import re

import pytest

from nmt_cli.recipe import TrainSection, load_recipe, recipe_folder, recipe_names
from nmt_cli.registry import SCHEDULES
from nmt_cli.training import schedule
from nmt_cli.training.presets import peak
from nmt_cli.training.schedule import decay


def learning_rate(step: int, d_model: int, warmup: int, factor: float = 1.0, name: str = "inverse_sqrt") -> float:
    train = TrainSection(schedule=name, warmup=warmup, lr_factor=factor)
    return schedule.learning_rate(step, d_model, train)


@pytest.mark.parametrize(
    ("step", "d_model", "warmup", "expected"),
    [
        (1, 100, 4, 0.0125),  # 1/10 * 1/8
        (2, 100, 4, 0.025),
        (4, 100, 4, 0.05),  # 1/10 * 1/2
        (16, 100, 4, 0.025),
        (10_000, 100, 4, 0.001),
        (1, 512, 4000, 1.746928107421711e-07),
        (100_000, 512, 4000, 1.3975424859373686e-04),
    ],
)
def test_values_worked_out_by_hand(step: int, d_model: int, warmup: int, expected: float) -> None:
    assert learning_rate(step, d_model, warmup) == pytest.approx(expected, rel=1e-12)


def test_every_schedule_rises_to_the_same_value_and_a_constant_one_stays_there() -> None:
    for name in SCHEDULES:
        rates = [learning_rate(step, 100, 8, name=name) for step in range(1, 9)]
        assert rates == pytest.approx([learning_rate(step, 100, 8) for step in range(1, 9)])
        assert max(learning_rate(step, 100, 8, name=name) for step in range(1, 50)) == pytest.approx(rates[-1])
    assert learning_rate(50, 100, 8, name="constant") == pytest.approx(learning_rate(8, 100, 8))


def test_the_decay_is_linear_over_the_last_steps_and_ends_above_zero() -> None:
    factors = [decay(step, last=10, steps=4) for step in range(1, 11)]
    assert factors == [1.0] * 7 + [0.75, 0.5, 0.25]
    assert [decay(step, last=10, steps=0) for step in range(1, 11)] == [1.0] * 10


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_that_names_its_peak_in_a_comment_reaches_it(name: str) -> None:
    loaded = load_recipe(name)
    for named in re.findall(r"# peak (\S+)", (recipe_folder() / f"{name}.toml").read_text(encoding="utf-8")):
        assert f"{peak(loaded):.1e}" == f"{float(named):.1e}"
