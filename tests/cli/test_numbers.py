"""Every number that a user can give has bounds: the lowest and the highest value work, and all beyond is refused with the value and
the bound. An option that takes one value is refused when it is given several: none of them is dropped.
"""

import json
import math
import re
import typing
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
import typer
from in_process import commands
from shared import number_words
from typer.core import TyperOption
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.console import WARNED
from nmt_cli.errors import UsageError
from nmt_cli.interface.options import NUMBERS, TranslateKeywords
from nmt_cli.recipe import SECTIONS, DecodeSection, ModelSection, TrainSection, load_recipe
from nmt_cli.registry import LENGTH_PENALTIES, load

LINES = ["the", "the cat sees a dog."]
FROM_THE_MODEL = {("attend", "layer"), ("attend", "head")}
"""Options whose highest value is a size of the model."""


COMMANDS = commands()
OPTIONS = {
    (name, option.name): option
    for name, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, TyperOption) and option.type_descriptor.annotation in (int, float)
}


def test_every_option_that_is_a_number_has_bounds() -> None:
    assert {"translate", "train", "score", "serve"} <= {command for command, _ in OPTIONS}
    without = [
        pair
        for pair, option in OPTIONS.items()
        if (option.min is None or option.max is None)
        and not (pair[1] in DecodeSection.model_fields or pair[1] in NUMBERS or pair in FROM_THE_MODEL)
    ]
    assert without == []


def test_every_number_of_a_translations_options_has_bounds() -> None:
    annotations = {name: str(hint) for name, hint in TranslateKeywords.__annotations__.items()}
    numbers = {name for name, hint in annotations.items() if re.search(r"\b(int|float)\b", hint)}
    assert numbers <= {*NUMBERS, *DecodeSection.model_fields}
    assert numbers >= {*NUMBERS}


def test_a_number_beyond_the_bounds_of_an_option_is_refused_by_its_name() -> None:
    for (command, _), option in OPTIONS.items():
        least, most, flag = option.min, option.max, option.opts[-1]
        if least is not None and most is not None:
            for value in (least - 1, most + 1, -1 if least >= 0 else "x", 10**30, "nan", "inf"):
                with pytest.raises(typer.BadParameter) as refused:
                    COMMANDS[command].make_context(command, [flag, str(value)])
                assert f"'{flag}'" in refused.value.format_message()


# Translation: the numbers of [decode] and of NUMBERS

TOGETHER: dict[str, Any] = {
    "diverse_groups": {"search": "diverse", "max_extra": 1},
    "diversity_penalty": {"search": "diverse", "beam": 4, "diverse_groups": 2},
    "nbest": {"sample": True},
    "mbr_samples": {"search": "mbr", "max_extra": 1},
    "beam": {"max_extra": 1},
    "alpha": {"max_extra": 60},
    **{name: {"sample": True} for name in ("top_k", "top_p", "min_p", "temperature", "seed")},
}
"""Options that another one needs, or that keep the search short."""


def bounds_of(field: Any) -> tuple[Any, Any]:
    """The lowest and the highest value that a key of a recipe may have."""
    given = {
        key: getattr(part, key) for part in field.metadata for key in ("ge", "gt", "le", "lt") if hasattr(part, key)
    }
    whole = field.annotation is int
    lowest = given["ge"] if "ge" in given else given["gt"] + 1 if whole else math.nextafter(given["gt"], math.inf)
    highest = given["le"] if "le" in given else given["lt"] - 1 if whole else math.nextafter(given["lt"], -math.inf)
    return lowest, highest


DECODE = {name: bounds_of(f) for name, f in DecodeSection.model_fields.items() if f.annotation in (int, float)}
BOUNDS = DECODE | {name: (bounds.least, bounds.most) for name, bounds in NUMBERS.items()}


def given(name: str, value: object) -> dict[str, Any]:
    """Return a number as an option of a translation."""
    return {name: value} if name in TranslateKeywords.__annotations__ else {"overrides": [f"decode.{name}={value}"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("numbers") / "model", seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("index", [0, 1], ids=["lowest", "highest"])
def test_the_lowest_and_the_highest_value_translate(name: str, index: int, model: Path) -> None:
    """Warnings are errors here, those of NumPy and torch too."""
    value = BOUNDS[name][index]
    options = TOGETHER.get(name, {}) | given(name, value)
    if name == "diverse_groups":
        options["beam"] = value
    for precision in ("int8", "fp32"):
        for _ in range(1 + (precision == "int8")):  # int8 with torch, then without it, where the cache keeps it
            with nmt.load(model, device="cpu", devices=1, precision=precision) as translator:
                found = translator.translate(LINES[:1] if value == 1024 else LINES, **options)
            assert all(
                math.isfinite(best.score) and math.isfinite(best.log_prob) for line in found for best in line.nbest
            )
            assert len(found[0].nbest) == (value if name == "nbest" else 1)


def test_the_length_penalty_of_the_longest_output_is_a_number_in_fp32() -> None:
    """A search computes the penalties up to a power of two beyond the longest output."""
    longest = bounds_of(ModelSection.model_fields["max_positions"])[1]
    for name in LENGTH_PENALTIES:
        penalty = load(LENGTH_PENALTIES, name, "length penalty")
        assert 1 <= penalty(2 * longest, DECODE["alpha"][1]) < np.finfo(np.float32).max


def test_a_value_beyond_is_refused_with_the_value(model: Path) -> None:
    with nmt.load(model, device="cpu", devices=1) as translator:
        for name, (lowest, highest) in BOUNDS.items():
            whole = isinstance(lowest, int)
            below = lowest - 1 if whole else math.nextafter(lowest, -math.inf)
            above = highest + 1 if whole else math.nextafter(highest, math.inf)
            search = {key: value for key, value in TOGETHER.get(name, {}).items() if key in ("search", "sample")}
            for value in (
                below,
                above,
                *([-1] if lowest >= 0 else []),
                math.nan,
                math.inf,
                10**31,
                "x",
                True,
                *([0.5] if whole else []),
            ):
                with pytest.raises(UsageError) as refusal:
                    translator.translate(LINES, **search, **given(name, value))
                said = str(refusal.value)
                assert f"--{name.replace('_', '-')} {value!r}: expected" in said or f"decode.{name} = " in said
                assert str(value).lower() in said.lower()


def test_numbers_of_numpy_and_whole_numbers_are_numbers(model: Path) -> None:
    with nmt.load(model, device="cpu", devices=1) as translator:
        plain = translator.translate(LINES, sample=True, nbest=2, top_k=9, temperature=2.0, seed=3)
        options: dict[str, Any] = {"nbest": np.int64(2), "top_k": np.int32(9), "temperature": 2, "seed": np.uint8(3)}
        assert translator.translate(LINES, sample=True, **options) == plain
        assert translator.translate(LINES, sample=True, temperature=10**30, top_p=np.float32(0.5))  # type: ignore[call-overload]


def test_every_number_of_a_recipe_has_bounds() -> None:
    for section, model in SECTIONS.items():
        for name, field in model.model_fields.items():
            if {field.annotation, *typing.get_args(field.annotation)} & {int, float}:
                lowest, highest = bounds_of(field)
                assert lowest <= field.default <= highest, f"{section}.{name}"


OPTIMIZER = ("lr_factor", "adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing", "r_drop", "clip_norm")


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1], ids=["lowest", "highest"])
def test_the_lowest_and_the_highest_numbers_of_the_optimizer_train(
    index: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    number_words(tmp_path_factory, tmp_path)
    values = {name: bounds_of(TrainSection.model_fields[name])[index] for name in OPTIMIZER}
    values |= {"updates": 3, "warmup": 1, "log_every": 1, "valid_every": 3, "valid_bleu_sentences": 2}
    forked.nmt(tmp_path, "train", "numbers.toml", *(f"--set=train.{name}={value}" for name, value in values.items()))
    records = (tmp_path / "runs/numbers/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(records[-1])["update"] == 3
    assert not re.search("nan|infinity", "".join(records).lower())


def test_two_values_of_an_option_are_refused_and_named() -> None:
    for name, command in COMMANDS.items():
        options = [option for option in command.params if isinstance(option, TyperOption)]
        assert options or name == "job clean"
        for option in options:
            if option.multiple or option.is_flag:
                continue
            with pytest.raises(UsageError) as refused:
                command.make_context(name, [option.opts[-1], "one", f"{option.opts[0]}=two"])
            assert f"{option.opts[0]} was given 2 times ('one', 'two')" in str(refused.value)


def test_several_values_of_a_list_are_read() -> None:
    context = COMMANDS["train"].make_context("train", ["--set", "a.b=1", "--set", "a.c=2", "--dry-run", "--dry-run"])
    assert (context.params["overrides"], context.params["dry_run"]) == (["a.b=1", "a.c=2"], True)


def test_two_values_of_a_key_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    WARNED.clear()
    recipe = load_recipe("demo", ["train.updates=5", "train.warmup=3", "train.updates=9", "train.decay_updates=0"])
    assert recipe.train.updates == 9
    assert capsys.readouterr().err.splitlines() == [
        "warning: --set 'train.updates=5' has no effect, because 'train.updates=9' comes after it"
    ]


def test_a_flag_and_its_opposite_are_refused() -> None:
    with pytest.raises(UsageError, match=r"--keep and --no-keep were both given: give one of them\."):
        COMMANDS["data multi30k"].make_context("multi30k", ["--keep", "--no-keep"])
