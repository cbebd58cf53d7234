"""Options that are declared once, as options of a command.

EvaluationOptions, DecodeOptions, …: declared by `options.Option` ──▶ options_of ───┐
preprocess, init, …: Python's types and defaults, and help texts  ──▶ options_from ─┴─▶ what typer reads
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

from ..options import Option
from ..recipe import DecodeSection
from .arguments import option, output_path

Command = Callable[..., None]
Given = dict[str, Any]
"""The options that were given, for a Python function."""
EMPTY, UNSET = inspect.Parameter.empty, ("", (), None)
KEYWORD = inspect.Parameter.KEYWORD_ONLY  # so that options without a default may follow others


def options_of(typed: type, *only: str, into: str = "options") -> Callable[[Command], Command]:
    """Give a command the options of `typed`, or `only` these.

    They take the place of the command's parameter `into`: an object of the dataclass, or a dictionary.
    """
    hints = get_type_hints(typed, include_extras=True)
    if is_typeddict(typed):
        options = [_parameter(name, hints[name], _unset(hints[name])) for name in only or hints]
    else:
        options = [
            _parameter(name, hints[name], parameter.default)
            for name, parameter in inspect.signature(typed).parameters.items()
            if not only or name in only
        ]
    return _with(options, into, typed)


def options_from(function: Callable[..., Any], *, into: str = "options", **shown: Any) -> Callable[[Command], Command]:
    """Give a command the parameters of a Python function or dataclass, which has their types and defaults.

    `shown`: an option or argument of typer for each, or a type with one where the type differs. They take the place of
    the command's parameter `into`: a dictionary of those that were given, for the function.
    """
    parameters = inspect.signature(function).parameters
    annotations = {name: parameters[name].annotation for name in shown}
    hints = get_type_hints(SimpleNamespace(__annotations__=annotations), vars(sys.modules[function.__module__]))
    options = []
    for name, one in shown.items():
        own = get_origin(one) is Annotated
        kind, option = get_args(one) if own else (hints[name], one)
        kind, default = _of_command(kind), parameters[name].default
        optional = type(None) in get_args(kind)
        if (own and optional) or default in UNSET or (get_origin(kind) is list and default is not EMPTY):
            default = EMPTY if own and not optional else None
        options.append(_parameter(name, Annotated[kind if default is not None else kind | None, option], default))
    return _with(options, into, lambda **given: {name: one for name, one in given.items() if one is not None})


def _with(options: Sequence[inspect.Parameter], into: str, made: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command these options in the place of its parameter `into`, which gets what is `made` of their values."""

    def decorated(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options if option.name in given}
            command(**given | {into: made(**values)})

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += options if parameter.name == into else [parameter.replace(kind=KEYWORD)]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
        return run

    return decorated


def _unset(hint: Any) -> Any:
    """Return the value of an option of a TypedDict that was not given."""
    return False if bool in (hint, *get_args(hint)) else None


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """Return a parameter of a command; without a default it is required.

    Its `Option` is in its type, or at the key of the recipe.
    """
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if shown := next((note for note in notes if not isinstance(note, Option)), None):
        declared = shown  # an option or argument of typer
    elif notes:
        declared = _of_typer(name, kind, notes[0])
    else:
        field = DecodeSection.model_fields[name]
        found = next(note for note in field.metadata if isinstance(note, Option))
        known = field.default if isinstance(field.default, str) else f"{field.default:g}"
        declared = _of_typer(name, kind, found, f"  [default: the recipe's, {known}]")
    return inspect.Parameter(name, KEYWORD, default=default, annotation=Annotated[_of_command(kind), declared])


def _of_typer(name: str, kind: Any, shown: Option, default: str = "") -> Any:
    more: dict[str, Any] = {"parser": output_path} if shown.is_output else {}
    if isinstance(shown.least, int):
        more |= {"min": shown.least, "max": shown.most}
    names = shown.names or ((f"--{name.replace('_', '-')}",) if kind is bool else ())
    return option(shown.help + default, shown.metavar, shown.heading, names, **more)


def _of_command(kind: Any) -> Any:
    """Return typer's type for one of Python's: a path where Python takes text or lines too, a list for a sequence."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    several = [get_args(one)[0] for one in kinds if get_origin(one) in (Sequence, tuple)]
    of_paths = bool(several) and Path in get_args(several[0])
    read = list[Path] if of_paths else Path if Path in kinds else list[several[0]] if several else kind  # type: ignore
    return read | None if type(None) in kinds else read
