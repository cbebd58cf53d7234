r"""A job: a corpus cut into shards, which any machines translate in any order, and which are joined again.

    inputs ──▶ cutting.create ──▶ NAME/job.json, and NAME/input/K.zst for inputs that are compressed
    Job.read(NAME).shard(K), lines ──▶ the command translates ──▶ NAME/output/K.zst and its record
    status, check and write, clean

A shard is a range of bytes, from the start of a line to the end of one. Its output depends on these bytes, the models
and the options alone, and job.json has their SHA-256. So two machines may do one shard: the later file replaces the
same text. A record has the SHA-256 of the text, so it fits both files. What stands at the head of an input, such as
a byte-order mark, is dealt with when it is cut: nothing looks for it at the head of a shard.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

from backports import zstd
from pydantic import Field

from .. import __version__
from ..errors import MACHINE, RETRY, DataError, NmtError, UsageError, listed, reading, shown
from ..model.folder_files import CONFIG
from ..storage.files import clear_partial, sha256, write_named
from ..storage.made_from import MadeFrom, record_of, recorded
from ..storage.sealed_json import Entry, FileEntry, Record, read_record, to_json
from ..text.lines import decode_line

MANIFEST = "job.json"
NUMBERS = {"slurm": "SLURM_ARRAY_TASK_ID", "kubernetes": "JOB_COMPLETION_INDEX"}
"""Name of a scheduler → the environment variable with the number of the shard."""
BLOCK = 1 << 20
"""Number of bytes of an output that are read at a time."""


class Shard(Entry):
    """Whole lines: a range of bytes of an input, or a file of the job with lines of an input that is compressed."""

    number: int
    file: str
    """An absolute path, or one in the folder of the job."""
    start: int
    bytes: int
    sha256: str
    lines_before: int
    """Number of lines of the input that stand before it."""
    lines: int

    @property
    def is_piece(self) -> bool:
        """Whether the file is of the job."""
        return not Path(self.file).is_absolute()


class Failed(Record):
    """Why a shard was not done the last time; the time is UTC, by the clock of the machine."""

    newest, sealed = 1, 1

    why: str
    exit_status: int
    time: str


class Job(Record):
    """The content of job.json, and the folder that it is in."""

    newest, sealed, largest = 1, 1, 1 << 32

    folder: Annotated[Path, Field(exclude=True)] = Path()
    made: MadeFrom
    """All that the outputs depend on besides the shards."""
    models: list[str]
    inputs: list[str]
    """Absolute paths."""
    shard_lines: int
    shards: list[Shard]

    @classmethod
    def read(cls, folder: Path) -> Job:
        """Return the job in a folder. Raises DataError."""
        try:
            job = read_record(folder / MANIFEST, cls, DataError, "Create the job again.")
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(f"{str(folder)!r} is no job: it has no {MANIFEST}, which nmt job create writes.") from None
        return job.model_copy(update={"folder": folder})

    def shard(self, name: str) -> Shard:
        """Return the shard of a number, or of the number that a scheduler of `NUMBERS` gives. Raises UsageError."""
        number = os.environ.get(NUMBERS[name], "") if name in NUMBERS else name
        if not (number.isascii() and number.isdigit() and int(number) < len(self.shards)):
            raise UsageError(
                f"{NUMBERS.get(name, 'shard')} {shown(number)}: expected a number below {len(self.shards)}, the shards "
                f"of {str(self.folder)!r}, or {' or '.join(NUMBERS)} in a task of theirs."
            )
        return self.shards[int(number)]

    def lines(self, shard: Shard, replaced: Counter[str]) -> Iterator[str]:
        """Yield lines as text, without their ends; `replaced` counts, by file, those with invalid UTF-8.

        Raises DataError after the last line if the bytes are not those that were cut.
        """
        file, digest, left = self.folder / shard.file, hashlib.sha256(), shard.bytes
        with _opened(file, shard.is_piece, shard.start) as stream:
            while left and (raw := stream.readline(left)):
                digest.update(raw)
                left -= len(raw)
                if raw.endswith(b"\n"):
                    raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
                text, damaged = decode_line(raw)
                replaced[str(file)] += damaged
                yield text
        if digest.hexdigest() != shard.sha256:
            raise DataError(
                f"{str(file)!r} was changed after the job was created: the lines of shard {shard.number} have another "
                "SHA-256. Give it its earlier content, or create another job."
            )

    def output(self, shard: Shard) -> Path:
        """Return the path of a shard's output."""
        return self.folder / "output" / f"{shard.number}.zst"

    def made_from(self, shard: Shard) -> MadeFrom:
        """Return what a shard's output is made from."""
        options = {**self.made.options, "lines_before": shard.lines_before}
        return self.made.model_copy(update={"input_sha256": [shard.sha256], "options": options})

    def check_same(self) -> None:
        """Raise DataError unless this nmt and the models are those that the job was created with."""
        again = f"that {str(self.folder)!r} was created with. Use that one, or create another job."
        if self.made.package_version != __version__:
            raise DataError(f"nmt {__version__} is not the version {self.made.package_version} {again}")
        for model, digest in zip(self.models, self.made.model_sha256, strict=True):
            with reading(model):
                same = sha256(Path(model, CONFIG)) == digest
            if not same:
                raise DataError(f"{model!r} is not the model {again}")

    def done(self, shard: Shard, read: bool = True) -> MadeFrom | None:
        """Return the record of a shard's output, None if one of them is missing or damaged.

        `read` False: the output is only looked for.
        """
        path = self.output(shard)
        with suppress(NmtError):
            record = recorded(path, self.made_from(shard))
            if record and record.lines == shard.lines and path.is_file():
                return record if not read or record.output == text_entry(path) else None
        return None

    @contextmanager
    def failing(self, shard: Shard) -> Iterator[None]:
        """Write down why the block fails; remove an earlier failure if it does not. A signal is no failure."""
        try:
            yield
        except Exception as error:
            of_machine = isinstance(error, MemoryError) or getattr(error, "errno", None) in MACHINE
            status = error.exit_code if isinstance(error, NmtError) else RETRY if of_machine else 1
            why, time = str(error) or type(error).__name__, datetime.now(UTC).isoformat(timespec="seconds")
            failed = Failed(format_version=Failed.newest, why=why, exit_status=status, time=time)
            with suppress(NmtError):  # of both errors, the first one counts
                write_named(self._failure(shard), to_json(failed), "the reason of a failure")
            raise
        self._failure(shard).unlink(missing_ok=True)

    def _failure(self, shard: Shard) -> Path:
        return self.folder / "failed" / f"{shard.number}.json"

    def _failed(self, shard: Shard) -> Failed | None:
        """Return why a shard failed, None if it did not or if that is damaged."""
        with suppress(NmtError, OSError):
            return read_record(self._failure(shard), Failed, DataError, "")
        return None

    def status(self) -> dict[str, Any]:
        """Return what the records say: how much is done, which shards are missing, and which failed and why.

        `lines_per_second` is the mean of one machine with its start: the lines of all records by their seconds.
        """
        records, missing, failed = list[MadeFrom](), list[int](), list[dict[str, Any]]()
        for shard in self.shards:
            if record := self.done(shard, read=False):
                records.append(record)
            elif why := self._failed(shard):
                failed.append({"shard": shard.number, **why.model_dump(exclude={"format_version"})})
            else:
                missing.append(shard.number)
        lines, seconds = sum(one.lines for one in records), sum(one.seconds for one in records)
        return {
            "shards": len(self.shards),
            "lines": sum(shard.lines for shard in self.shards),
            "done": len(records),
            "lines_done": lines,
            "lines_per_second": round(lines / seconds, 1) if seconds else None,
            "missing": missing,
            "failed": failed,
        }

    def check(self) -> None:
        """Read all outputs. Raises DataError that names the shards whose output is missing or damaged."""
        if wrong := [shard.number for shard in self.shards if not self.done(shard)]:
            raise DataError(
                f"{str(self.folder)!r}: {len(wrong):,} of {len(self.shards):,} shards are missing or damaged: "
                f"{ranges(wrong)}. Do each of them: nmt job shard {self.folder} {wrong[0]}"
            )

    def write(self, sink: BinaryIO) -> None:
        """Write the outputs in order. Raises DataError."""
        for shard in self.shards:
            with _opened(self.output(shard)) as stream:
                shutil.copyfileobj(stream, sink, BLOCK)

    def clean(self) -> list[Path]:
        """Remove whole outputs, pieces of inputs and records, and at last the manifest. Raises OSError.

        Return the files that stay, because they are not provably of the job.
        """
        for shard in self.shards:
            if self.done(shard):
                record_of(self.output(shard)).unlink()
                self.output(shard).unlink()
            if self._failed(shard):
                self._failure(shard).unlink()
            with suppress(NmtError):
                piece = self.folder / shard.file
                if shard.is_piece and text_entry(piece).sha256 == shard.sha256:
                    piece.unlink()
        folders = [self.folder / name for name in ("input", "output", "failed")]
        for folder in filter(Path.is_dir, folders):
            clear_partial(folder, re.compile(r"\d+\..+"))
        (self.folder / MANIFEST).unlink()
        for folder in (*folders, self.folder):
            with suppress(OSError):
                folder.rmdir()
        return sorted(path for path in self.folder.rglob("*") if not path.is_dir())


@contextmanager
def _opened(path: Path, packed: bool = True, start: int = 0) -> Iterator[BinaryIO]:
    """Provide a file from a byte on; `packed`: the text of one that the job has compressed. Raises DataError."""
    try:
        with reading(path), cast(BinaryIO, zstd.open(path)) if packed else path.open("rb") as stream:
            stream.seek(start)
            yield stream
    except (zstd.ZstdError, EOFError) as error:
        raise DataError(f"{str(path)!r} is damaged: {error}. Create the job again.") from None


def text_entry(path: Path) -> FileEntry:
    """Return the entry of a compressed file: size and SHA-256 of its text. Raises DataError."""
    digest, size = hashlib.sha256(), 0
    with _opened(path) as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
            size += len(block)
    return FileEntry(file=path.name, bytes=size, sha256=digest.hexdigest())


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as Slurm reads them: 0-3,7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return listed(["-".join(map(str, run)) for run in runs], 100, ",")
