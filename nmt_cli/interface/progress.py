"""Progress of long work: shown as on the command line, as a bar everywhere, or passed to a function.

with showing(progress): …    None: a bar on a terminal; True: a bar, in a notebook too; False: none;
                             a function: called with each `Progress`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..console import Progress as Progress
from ..console import listening

ProgressOption = bool | Callable[[Progress], None] | None
"""The type of the option `progress`; the head of this file describes its values."""


@contextmanager
def showing(progress: ProgressOption) -> Iterator[None]:
    """Show the progress of work in this thread while the block runs; `progress` chooses how."""
    if progress is None:
        yield
    else:
        with listening(progress or (lambda _: None)):
            yield
