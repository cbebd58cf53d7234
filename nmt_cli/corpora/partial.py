"""The downloaded part of a file: NAME.part, and its origin in NAME.part.json.

Every block is written at once, so an interrupt loses nothing that arrived. Errors of the disk are raised as DataError,
so that they are not mistaken for errors of the network.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import DataError, write_failed
from ..files import flush_to_disk, rename_flushed, write_atomic

RESERVE = 1 << 20
"""Number of bytes that stay free on the disk."""


class State(BaseModel):
    """The origin of a part: the address, the value for If-Range, the total length in bytes."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    url: str = ""
    mark: str | None = None
    total: int | None = None


class Partial:
    """A file that is being downloaded. The context manager only closes it. Every method may raise DataError."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path, self._state_path = Path(f"{target}.part"), Path(f"{target}.part.json")
        self._file: int | None = None
        if self.path.exists() and not self._state_path.exists():  # nmt data writes the .json first
            raise DataError(
                f"{str(self.path)!r} was not begun by nmt data: there is no file beside it that says where it "
                "is from. Move it away, or choose another folder with --downloads."
            )
        self.state = self._read_state()

    def __enter__(self) -> Partial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def size(self) -> int:
        """Return the number of downloaded bytes."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def restart(self, state: State) -> None:
        """Remove the downloaded part and begin at byte 0."""
        self.discard()
        self.state = state
        try:
            write_atomic(self._state_path, state.model_dump_json().encode())
        except OSError as error:
            raise self._named(error) from None
        self.write(b"")  # creates the file, because an archive may be empty

    def write(self, piece: bytes) -> None:
        """Append `piece`."""
        view = memoryview(piece)
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise self._named(error) from None

    def check_disk_space(self, total: int | None) -> None:
        """Raise DataError if the disk has no space for the rest of `total` bytes."""
        if total is None:
            return
        free, rest = shutil.disk_usage(self.path.parent).free, total - self.size
        if rest + RESERVE > free:
            raise DataError(
                f"no space for {self.target.name!r}: {rest / 1e6:,.1f} MB are missing, and at "
                f"{str(self.path.parent)!r} the disk has {free / 1e6:,.1f} MB free. "
                "Free some space, or choose another folder with --downloads. What was downloaded is kept; run "
                "the same command again to resume."
            )

    def install(self) -> None:
        """Rename the complete file to its final name."""
        self._close()
        try:
            flush_to_disk(self.path)
            rename_flushed(self.path, self.target)
            self._state_path.unlink(missing_ok=True)
        except OSError as error:
            raise self._named(error) from None

    def discard(self) -> None:
        """Remove the downloaded part."""
        self._close()
        self.state = State()
        try:
            self.path.unlink(missing_ok=True)
            self._state_path.unlink(missing_ok=True)
        except OSError as error:
            raise self._named(error) from None

    def _read_state(self) -> State:
        try:
            return State.model_validate_json(self._state_path.read_bytes())
        except (OSError, ValidationError):
            return State()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _named(self, error: OSError) -> DataError:
        failure = write_failed(error, self.path, f"the download of {self.target.name!r}")
        return DataError(f"{failure} What was downloaded is kept; run the same command again to resume.")
