"""Messages for people, on stderr: lines, warnings, progress bars. Data goes to stdout, by `cli.output`.

`say` prints a plain line, `warn` a line marked "warning:". Control characters in a message, which may come from a file,
are written as numbers (`errors.printable`). `progress` shows a tqdm bar on a terminal and nothing elsewhere.
Within `listening` it calls a function instead.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Self

from .errors import printable

if TYPE_CHECKING:
    from rich.console import Console


def _console() -> Console:
    from rich.console import Console  # takes a tenth of the start of a command that says nothing

    return Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say(text: str = "") -> None:
    """Print a line on stderr."""
    _print(text)


def _print(text: str, mark: str = "") -> None:
    from rich.markup import escape

    _console().print(f"{mark}{escape(printable(text))}")


def say_next(*words: object, end: str = "") -> None:
    """Print the command that usually comes next, in the form that a shell reads. `end` is added as it is."""
    say(f"next: {shlex.join(map(str, words))}{end}")


def spoken(seconds: float) -> str:
    """Return a duration in words: 50 minutes, 3.5 hours, 12 days."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return (
                f"{seconds / size:.0f} {unit}" if seconds >= 10 * size or size == 60 else f"{seconds / size:.1f} {unit}"
            )
    return f"{seconds:.0f} seconds"


def spoken_range(shortest: float, longest: float) -> str:
    """Return two durations in words: 5 to 7 minutes, 50 seconds to 2 minutes, about 5 minutes."""
    least, most = spoken(shortest), spoken(longest)
    if least == most:
        return f"about {most}"
    return f"{least.removesuffix(most[most.index(' ') :])} to {most}"


def warn(text: str) -> None:
    """Print a warning: the command continues, but not as the user asked."""
    _print(text, "[yellow]warning:[/yellow] ")


def warn_replaced(replaced: Mapping[str, int]) -> None:
    """Warn about invalid UTF-8. `replaced`: file → number of lines in which it was replaced."""
    for name, lines in replaced.items():
        if lines:
            warn(f"{name}: {lines:,} line{'s' * (lines != 1)} held invalid UTF-8, which was replaced by U+FFFD.")


WARNED: set[str] = set()
"""Warnings that this process has given by `warn_once`."""


def warn_once(text: str, where: str = "") -> None:
    """Print a warning, once in a process: commands read the same recipe or checkpoint several times."""
    if text not in WARNED:
        WARNED.add(text)
        warn(f"{where}: {text}" if where else text)


def fail(text: str) -> None:
    """Print the error that ends the command."""
    _print(text, "[red]error:[/red] ")


def on_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr.isatty()


def shows_progress() -> bool:
    """Return whether `progress` is seen: on a terminal, or by a function."""
    return on_terminal() or _listener.get() is not None


@dataclass(frozen=True)
class Progress:
    """The progress of long work."""

    what: str
    """Name of the work, such as "encoding train" or "training"."""
    done: float
    total: float | None
    """None if it is unknown."""
    unit: str = ""
    """Unit of `done` and `total`, such as "pairs" or "updates"."""
    text: str = ""
    """More text for people, such as the loss and the speed."""


_listener: ContextVar[Callable[[Progress], None] | Literal[True] | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Callable[[Progress], None] | Literal[True]) -> Iterator[None]:
    """Let `progress` and `status` call `listener` instead of showing a bar, in this thread, while the block runs.

    True: `progress` shows bars where there is no terminal, too, such as in a notebook.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@dataclass
class _Reported:
    """Replaces the tqdm bar within `listening`. It has the part of tqdm's interface that this package uses."""

    listener: Callable[[Progress], None]
    what: str
    total: float | None
    unit: str
    n: float
    text: str = ""

    def __post_init__(self) -> None:
        self._report()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def update(self, n: float = 1) -> None:
        self.n += n
        self._report()

    def set_description_str(self, text: str, refresh: bool = True) -> None:
        self.text = text

    def clear(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _report(self) -> None:
        self.listener(Progress(self.what, self.n, self.total, self.unit, self.text))


def progress(
    total: int | None,
    what: str,
    unit: str = "",
    *,
    scale: bool = True,
    initial: int = 0,
    bar_format: str | None = None,
    shown: bool = True,
) -> Any:
    """Return a tqdm bar on stderr, which is shown only on a terminal; within `listening`, return an object that calls
    the listener. `total` None means an unknown length.
    """
    listener = _listener.get() if shown else None
    if callable(listener):
        return _Reported(listener, what, total, unit.strip(), initial)
    tqdm = import_module("tqdm.auto" if listener else "tqdm").tqdm  # of "auto", the first import is slow
    hidden = not (shown and (listener or on_terminal()))
    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        unit_scale=scale,
        initial=initial,
        bar_format=bar_format,
        miniters=0,
        disable=hidden,
        leave=False,
        dynamic_ncols=True,
    )


def status(what: str, *, shown: bool = True) -> AbstractContextManager[object]:
    """Return a context manager that shows the name of the work on a terminal while its block runs."""
    if shown and callable(listener := _listener.get()):
        listener(Progress(what, 0, None))
        return nullcontext()
    if not (shown and on_terminal()):
        return nullcontext()
    from rich.markup import escape

    return _console().status(escape(what))
