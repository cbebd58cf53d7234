"""Messages for people, on stderr: lines, warnings, progress bars. Data goes to stdout, by `cli.output`.

`say` prints a plain line, `warn` a line marked "warning:". `progress` shows a tqdm bar on a terminal and nothing elsewhere.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console
from rich.markup import escape


def _console() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str = "") -> None:
    """Print a line on stderr."""
    _console().print(escape(text))


def warn(text: str) -> None:
    """Print a warning: the command continues, but not as the user asked."""
    _console().print(f"[yellow]warning:[/yellow] {escape(text)}")


WARNED: set[str] = set()
"""Warnings that this process has given by `warn_once`."""


def warn_once(text: str, where: str = "") -> None:
    """Print a warning unless this process has printed it before: commands read the same recipe or checkpoint several times."""
    if text not in WARNED:
        WARNED.add(text)
        warn(f"{where}: {text}" if where else text)


def fail(text: str) -> None:
    """Print the error that ends the command."""
    _console().print(f"[red]error:[/red] {escape(text)}")


def on_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr.isatty()


def progress(total: int | None, what: str, unit: str = "", *, scale: bool = True, initial: int = 0, bar_format: str | None = None, shown: bool = True) -> Any:
    """Return a tqdm bar on stderr, which is shown only on a terminal. `total` None means an unknown length."""
    from tqdm import tqdm

    hidden = not (shown and on_terminal())
    return tqdm(total=total, desc=what, unit=unit, unit_scale=scale, initial=initial, bar_format=bar_format, miniters=0, disable=hidden, leave=False, dynamic_ncols=True)


def status(what: str, *, shown: bool = True) -> AbstractContextManager[object]:
    """Return a context manager that shows on a terminal that this work is going on."""
    return _console().status(escape(what)) if shown and on_terminal() else nullcontext()
