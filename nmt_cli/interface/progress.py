"""Progress of long work: shown as on the command line, as a bar everywhere, or passed to a function.

with showing(progress): …    None: a bar on a terminal; True: a bar, in a notebook too; False: none;
                             a function: called with each `Progress`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..console import Progress as Progress
from ..console import listening

ProgressOption = bool | Callable[[Progress], None] | None
"""The type of the option `progress`; the head of this file describes its values."""


@contextmanager
def showing(progress: ProgressOption) -> Iterator[None]:
    """Show the progress of work in this thread while the block runs; `progress` chooses how."""
    if progress is None:
        yield
    elif progress is True:
        bars = _Bars()
        try:
            with listening(bars):
                yield
        finally:
            bars.close()
    else:
        with listening(progress or (lambda _: None)):
            yield


class _Bars:
    """Shows a tqdm bar for the current work."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.what = ""

    def __call__(self, progress: Progress) -> None:
        from tqdm.auto import tqdm

        if self.bar is None or progress.what != self.what:
            self.close()
            self.what = progress.what
            self.bar = tqdm(total=progress.total, desc=self.what, unit=progress.unit, unit_scale=True, leave=False)
        if progress.text:
            self.bar.set_description_str(f"{progress.what} · {progress.text}", refresh=False)
        self.bar.update(progress.done - self.bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
        self.bar = None
