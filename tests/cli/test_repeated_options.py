"""An option that takes one value is refused when it is given several: none of them is dropped."""

from __future__ import annotations

import pytest
from in_process import commands
from typer.core import TyperOption

from nmt_cli.console import WARNED
from nmt_cli.errors import UsageError
from nmt_cli.recipe import load_recipe

COMMANDS = commands()


def test_two_values_of_an_option_are_refused_and_named() -> None:
    for name, command in COMMANDS.items():
        options = [option for option in command.params if isinstance(option, TyperOption)]
        assert options
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
