"""An option is declared once: its name, type, bounds, help and heading.

    a field of a dataclass or TypedDict: Annotated[int, Option("Beam size.", "W")]
        ──▶ cli.typed_options.options_of     an option of a command
        ──▶ with_keywords                    a keyword of a Python function
        ──▶ Option.check, flags              its bounds, and its name in messages

Commands import this file at their start, so it loads nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, TypeVar, get_args, get_type_hints

from .errors import UsageError, shown

MOST_BEAM = 1024
"""Most hypotheses per sentence. The time of a step grows with the square of their number."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """What a command says about an option, and the lowest and the highest value of a number."""

    help: str
    metavar: str | None = None
    heading: str | None = None
    least: float | None = None
    """The number is a whole one if this bound is."""
    most: float | None = None
    names: tuple[str, ...] = ()
    """Its names in a command, if they are not made from the name in Python."""
    instead: str = ""
    """What to give instead of a value out of range."""
    is_output: bool = False
    """Whether it is the path of a file or folder to write."""

    def check(self, name: str, value: object) -> float:
        """Return `value` as an int or float. Raises UsageError unless it is a number within the bounds."""
        assert self.least is not None
        assert self.most is not None
        whole = isinstance(self.least, int)
        if (
            isinstance(value, bool)
            or not isinstance(value, Integral if whole else Real)
            or not self.least <= value <= self.most  # type: ignore[operator]  # false for NaN
        ):
            raise UsageError(
                f"{name} {shown(value)}: expected a {'whole ' * whole}number from {_shown(self.least)} to "
                f"{_shown(self.most)}.{self.instead}"
            )
        return int(value) if whole else float(value)  # type: ignore[call-overload]  # a number of NumPy too


def _shown(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def declared(typed: type) -> dict[str, Option]:
    """Return the `Option` of each field of a dataclass or TypedDict that has one."""
    hints = get_type_hints(typed, include_extras=True)
    found = {
        name: next((one for one in get_args(hint) if isinstance(one, Option)), None) for name, hint in hints.items()
    }
    return {name: option for name, option in found.items() if option}


def flag(name: str, option: Option | None = None) -> str:
    """Return the name in commands of the option `name`."""
    return option.names[0] if option and option.names else "--" + name.replace("_", "-")


def flags(options: Any, *names: str) -> str:
    """Return the options of a dataclass, or those among `names`, that were given, as a command names them."""
    all_of = declared(type(options))
    given = [field.name for field in fields(options) if getattr(options, field.name) != field.default]
    return ", ".join(flag(name, all_of.get(name)) for name in given if not names or name in names)


def with_keywords(typed: type) -> Callable[[Function], Function]:
    """Show the fields of a dataclass as keywords in the signature of a function that takes them as **options."""

    def decorated(function: Function) -> Function:
        kind, parameters = inspect.Parameter, list(inspect.signature(function).parameters.values())
        keywords = [
            parameter.replace(kind=kind.KEYWORD_ONLY) for parameter in inspect.signature(typed).parameters.values()
        ]
        plain = [parameter for parameter in parameters if parameter.kind is not kind.VAR_KEYWORD]
        function.__signature__ = inspect.Signature([*plain, *keywords])  # type: ignore[attr-defined]
        return function

    return decorated
