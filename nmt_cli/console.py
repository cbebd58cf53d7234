"""What people see: one stderr console, warnings, progress bars. Data goes to stdout and never through here.

`progress` gives a tqdm bar on a terminal and nothing elsewhere; `say` a plain line; `warn` a line marked so.
"""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.markup import escape


def _console() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str = "") -> None:
    """A line for people, on stderr."""
    _console().print(escape(text))


def warn(text: str) -> None:
    """Something went on, but not as asked."""
    _console().print(f"[yellow]warning:[/yellow] {escape(text)}")


WARNED: set[str] = set()
"""Warnings that this process has given by `warn_once`."""


def warn_once(text: str, where: str = "") -> None:
    """`warn`, but a text only once per process, wherever it comes up: commands read the same recipe or checkpoint several times."""
    if text not in WARNED:
        WARNED.add(text)
        warn(f"{where}: {text}" if where else text)


def fail(text: str) -> None:
    """Why the command ends."""
    _console().print(f"[red]error:[/red] {escape(text)}")


def on_terminal() -> bool:
    """Whether a person watches stderr."""
    return sys.stderr.isatty()


def progress(total: int | None, what: str, unit: str = "", *, scale: bool = True) -> Any:
    """A tqdm bar on stderr: alive on a terminal, silent elsewhere. `total` None: of unknown length."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=unit, unit_scale=scale, disable=not on_terminal(), leave=False, dynamic_ncols=True)
