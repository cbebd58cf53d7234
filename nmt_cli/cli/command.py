"""The class of every command: an option that takes one value is refused if it is given several values."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperOption

from ..errors import UsageError


class Command(TyperCommand):
    """A command of `nmt`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError for two values of one option: click would drop the first."""
        single = [
            option
            for option in self.get_params(ctx)
            if isinstance(option, TyperOption) and not (option.multiple or option.count or option.is_eager)
        ]
        for option in single:
            option.multiple = True  # so that the parser returns all values
        try:
            values = self.make_parser(ctx).parse_args(args=list(args))[0]
        finally:
            for option in single:
                option.multiple = False
        for option in single:
            given = values.get(option.name or "", [])
            if len(dict.fromkeys(given) if option.is_flag else given) > 1 and not ctx.resilient_parsing:
                raise UsageError(_twice(option, given))
        return super().parse_args(ctx, args)


def _twice(option: TyperOption, given: list[Any]) -> str:
    if option.is_flag:
        return f"{option.opts[-1]} and {option.secondary_opts[-1]} were both given: give one of them."
    values = ", ".join(repr(str(value)) for value in given)
    return f"{option.opts[0]} was given {len(given)} times ({values}), and it takes one value. Give it once."
