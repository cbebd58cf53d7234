"""The options of a TypedDict or a dataclass as options of a command: each is declared once.

DecodeOptions, whose declarations are in `recipe`, or a dataclass ──▶ options_of ──▶ the parameters that typer reads
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ..bounds import NUMBERS
from ..recipe import DecodeSection, Option
from .arguments import option

Command = Callable[..., None]


def options_of(typed: type, *only: str, into: str = "options") -> Callable[[Command], Command]:
    """Give a command the options of `typed`, or `only` these.

    They take the place of the command's parameter `into`: an object of the dataclass, or a dictionary.
    """
    hints = get_type_hints(typed, include_extras=True)
    if is_dataclass(typed):
        options = [
            _parameter(
                field.name,
                _with_bounds(hints[field.name]),
                field.default if field.default_factory is MISSING else field.default_factory(),
            )
            for field in fields(typed)
        ]
    else:
        options = [_declared(name, hints[name]) for name in only or hints]

    def decorated(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            command(**given | {into: typed(**values)})

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += options if parameter.name == into else [parameter]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
        return run

    return decorated


def _with_bounds(hint: Any) -> Any:
    """Return the type of a dataclass's field with an option of typer for its `Option`."""
    kind, shown = get_args(hint)
    if isinstance(shown, Option):
        shown = option(shown.help, shown.metavar, shown.heading, min=shown.least, max=shown.most)
    return Annotated[kind, shown]


def _declared(name: str, hint: Any) -> inspect.Parameter:
    """Return an option of decoding. Its `Option` is at the key of the recipe, or in its type `hint`."""
    field, bounds, more = DecodeSection.model_fields.get(name), NUMBERS.get(name), dict[str, Any]()
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    shown = next(one for one in (field.metadata if field else get_args(hint)) if isinstance(one, Option))
    help = shown.help
    if field:
        default = field.default if isinstance(field.default, str) else f"{field.default:g}"
        help += f"  [default: the recipe's, {default}]"
    if bounds and isinstance(bounds.least, int):
        more = {"min": bounds.least, "max": bounds.most}
    if kind is bool:
        more["names"] = (f"--{name.replace('_', '-')}",)
    declared = option(help, shown.metavar, shown.heading, **more)
    return _parameter(name, Annotated[kind, declared], False if kind is bool else None)


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """Return a parameter of a command; without a default it is required."""
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=hint)
