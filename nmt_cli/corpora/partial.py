"""The part of a file that has come so far: NAME.part, and in NAME.part.json where it is from.

Every piece is written at once, so that a stop at any moment leaves what came. Faults of the disk are named here and
are never mistaken for the network's.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import DataError, write_failed
from ..files import flush_to_disk, rename_flushed, write_atomic

ROOM = 1 << 20
"""Bytes that are to stay free."""


class State(BaseModel):
    """Where a part is from: the address, what If-Range can be asked with, the length of the whole in bytes."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    url: str = ""
    mark: str | None = None
    total: int | None = None


class Partial:
    """A file being fetched; as a context it closes its file and nothing else. Every method may raise DataError."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path, self._state_path = Path(f"{target}.part"), Path(f"{target}.part.json")
        self._file: int | None = None
        if self.path.exists() and not self._state_path.exists():  # ours is written first
            raise DataError(f"{str(self.path)!r} was not begun by nmt data: nothing beside it says where it is from. Move it away, or choose another folder with --downloads.")
        self.state = self._read_state()

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    @property
    def size(self) -> int:
        """Bytes that have come."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def restart(self, state: State) -> None:
        """Begin anew: nothing has come yet."""
        self.discard()
        self.state = state
        try:
            write_atomic(self._state_path, state.model_dump_json().encode())
        except OSError as error:
            raise self._named(error) from None
        self.write(b"")  # an empty file is a file too

    def write(self, piece: bytes) -> None:
        """Put `piece` behind what has come."""
        view = memoryview(piece)
        try:
            if self._file is None:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise self._named(error) from None

    def check_room(self, total: int | None) -> None:
        """Raise DataError where the disk has no room for the rest of `total` bytes."""
        if total is None:
            return
        free, rest = shutil.disk_usage(self.path.parent).free, total - self.size
        if rest + ROOM > free:
            raise DataError(
                f"no room for {self.target.name!r}: {rest / 1e6:,.1f} MB are still to come, and at {str(self.path.parent)!r} the disk has {free / 1e6:,.1f} MB free. "
                "Free some space, or choose another folder with --downloads. What has come is kept; the same command goes on there."
            )

    def install(self) -> None:
        """What has come is the whole: give it its name."""
        self._close()
        try:
            flush_to_disk(self.path)
            rename_flushed(self.path, self.target)
            self._state_path.unlink(missing_ok=True)
        except OSError as error:
            raise self._named(error) from None

    def discard(self) -> None:
        """Forget what has come."""
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
        fault = write_failed(error, self.path, f"the download of {self.target.name!r}")
        return DataError(f"{fault} What has come is kept; the same command goes on there.")
