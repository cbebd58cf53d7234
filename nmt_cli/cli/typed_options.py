"""The options of a TypedDict as options of a command: they are declared once, in `recipe`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ..bounds import NUMBERS
from ..recipe import DecodeSection, Option
from .arguments import option


def options_of(typed: type, *only: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `typed`, such as `DecodeOptions`, or `only` these.

    They take the place of the command's parameter `options`, a dictionary of their values.
    """
    hints = get_type_hints(typed, include_extras=True)
    names = only or tuple(hints)
    options = [_parameter(name, hints[name]) for name in names]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            command(**given | {"options": {name: given.pop(name) for name in names}})

        signature = inspect.signature(command, eval_str=True)
        before, after = [], list(signature.parameters.values())
        while after[0].name != "options":
            before.append(after.pop(0))
        parameters = [*before, *options, *after[1:]]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
        return run

    return decorated


def _parameter(name: str, hint: Any) -> inspect.Parameter:
    """Return an option as a parameter of a command. Its `Option` is at the key of the recipe, or in its type `hint`."""
    field, bounds, more = DecodeSection.model_fields.get(name), NUMBERS.get(name), dict[str, Any]()
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    shown = next(one for one in (field.metadata if field else get_args(hint)) if isinstance(one, Option))
    help = shown.help
    if field:
        help += (
            f"  [default: the recipe's, {field.default if isinstance(field.default, str) else f'{field.default:g}'}]"
        )
    if bounds and isinstance(bounds.least, int):
        more = {"min": bounds.least, "max": bounds.most}
    if kind is bool:
        more["names"] = (f"--{name.replace('_', '-')}",)
    declared = option(help, shown.metavar, shown.heading, **more)
    default = False if kind is bool else None
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=Annotated[kind, declared]
    )
