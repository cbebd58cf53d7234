"""`--resume` of `nmt translate` and `nmt score --model`: an output that is whole, and made from the same, is left as it
is.

inputs, models, options ──▶ MadeFrom ──▶ is_whole? ──▶ the command ──▶ record   (`storage.made_from`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .. import __version__, console
from ..errors import DataError, UsageError, reading
from ..storage.files import sha256
from .arguments import STDIN, option

if TYPE_CHECKING:
    from ..interface.loading import StoredModels
    from ..storage.made_from import MadeFrom

RESUME = (
    "if the output is there, whole, and made from this input by this model with these options, do nothing. Its record "
    "is FILE.nmt.json."
)
Resume = Annotated[bool, option(f"With --input and --output: {RESUME}", names=("--resume",))]
SPEED = ("batch_tokens",)
"""Options that change no output."""


class Resumed:
    """A command that need not be repeated. Raises UsageError for standard input or output, and for other files in the
    way.
    """

    made: MadeFrom

    def __init__(self, inputs: Sequence[Path | None], output: Path | None) -> None:
        from ..storage.made_from import resumable

        self.inputs = [path for path in inputs if path not in (None, STDIN)]
        if len(self.inputs) < len(inputs) or output is None:
            raise UsageError("--resume needs files as inputs and as --output: it compares their contents.")
        self.output = output
        resumable(output)

    def is_whole(self, stored: StoredModels, precision: str, options: Mapping[str, Any]) -> bool:
        """Return whether there is nothing to do, and say so."""
        from ..storage.made_from import is_whole

        self.made = made_from(self.inputs, stored, precision, options)
        if whole := is_whole(self.output, self.made):
            console.say(f"{str(self.output)!r} is done: it was made from the same input, model and options")
        return whole

    def record(self, lines: int) -> None:
        """Write the record of the output. Raises DataError if an input has changed meanwhile."""
        from ..storage.made_from import record
        from ..storage.sealed_json import file_entry

        for path, digest in zip(self.inputs, self.made.input_sha256, strict=True):
            if _plain(path) != digest:
                raise DataError(f"{str(path)!r} was changed while it was read. Run the command again.")
        record(self.output, self.made, file_entry(self.output), lines)


def made_from(inputs: Sequence[Path], stored: StoredModels, precision: str, options: Mapping[str, Any]) -> MadeFrom:
    """Return all that an output depends on."""
    from ..model.folder_files import CONFIG
    from ..storage.made_from import MadeFrom

    given = {name: _plain(value) for name, value in options.items() if name not in SPEED}
    return MadeFrom(
        format_version=MadeFrom.newest,
        package_version=__version__,
        input_sha256=[_plain(path) for path in inputs],
        model_sha256=[_plain(folder / CONFIG) for folder in stored.folders],
        options={
            "precision": stored.precision(precision),
            **{name: value for name, value in sorted(given.items()) if value not in (None, False, [])},
        },
    )


def _plain(value: Any) -> Any:
    """Return the value of an option for JSON: of a file, its SHA-256."""
    if isinstance(value, Path):
        with reading(value):
            return sha256(value)
    return list(value) if isinstance(value, tuple) else value
