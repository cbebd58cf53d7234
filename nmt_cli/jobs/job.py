r"""A job: a corpus cut into shards, which any machines translate in any order, and which are joined again.

    inputs ──▶ cutting.create ──▶ NAME/job.json, and NAME/input/0/K.zst for inputs that are compressed
    Job.read(NAME).shard(K), lines ──▶ the command translates or scores ──▶ keep: NAME/output/0/K.zst and its record
    status, join, clean

A shard is a range of bytes, from the start of a line to the end of one. Its output depends on these bytes, the models
and the options alone, and job.json has their SHA-256. So two machines may do one shard: the later file replaces the
same text. A record has the SHA-256 of the text, so it fits both files. What stands at the head of an input, such as
a byte-order mark, is dealt with when it is cut: nothing looks for it at the head of a shard.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from backports import zstd
from pydantic import ConfigDict, Field

from .. import __version__
from ..device.memory import of_memory
from ..errors import MACHINE, RETRY, DataError, NmtError, UsageError, listed, reading, shown
from ..model.folder_files import CONFIG
from ..storage.files import sha256
from ..storage.made_from import RECORD, MadeFrom
from ..storage.sealed_json import Entry, FileEntry, Record, RecordT, parse_record, to_json
from ..text.lines import decode_line
from .folder import Folder, at

MANIFEST = "job.json"
NUMBERS = {"slurm": "SLURM_ARRAY_TASK_ID", "kubernetes": "JOB_COMPLETION_INDEX"}
"""Name of a scheduler → the environment variable with the number of the shard."""
STREAMS = 8
"""Number of shards that are read at a time."""


def numbered(folder: str, number: int) -> str:
    """Return the name of a file in a folder of the job, in parts of 1,000: writing one lists the files beside it."""
    return f"{folder}/{number // 1000}/{number}.zst"


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

    @property
    def output(self) -> str:
        """Name of the output in the folder."""
        return numbered("output", self.number)

    @property
    def failure(self) -> str:
        """Name of the file that says why the shard failed."""
        return f"failed/{self.number}.json"


class Failed(Record):
    """Why a shard was not done the last time; the time is UTC, by the clock of the machine."""

    newest, sealed = 1, 1

    why: str
    exit_status: int
    time: str


class Job(Record):
    """The content of job.json, and the folder that it is in."""

    newest, sealed = 1, 1
    model_config = ConfigDict(arbitrary_types_allowed=True)

    folder: Annotated[Folder, Field(exclude=True)] = Folder(Path())
    made: MadeFrom
    """All that the outputs depend on besides the shards."""
    models: list[str]
    inputs: list[str]
    """Absolute paths."""
    shard_lines: int
    shards: list[Shard]
    references: list[Shard]
    """Of a job that scores: the translations of the shards' lines."""

    @classmethod
    def read(cls, name: str) -> Job:
        """Return the job in a folder or store. Raises DataError, UsageError."""
        job = _read(folder := at(name), MANIFEST, cls)
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
        file, digest, left = self.folder.where(shard.file), hashlib.sha256(), shard.bytes
        with reading(file), io.BytesIO(self._unpacked(shard.file)) if shard.is_piece else open(file, "rb") as stream:
            stream.seek(shard.start)
            while left and (raw := stream.readline(left)):
                digest.update(raw)
                left -= len(raw)
                if raw.endswith(b"\n"):
                    raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
                text, damaged = decode_line(raw)
                replaced[file] += damaged
                yield text
        if digest.hexdigest() != shard.sha256:
            raise DataError(
                f"{file!r} was changed after the job was created: the lines of shard {shard.number} have another "
                "SHA-256. Give it its earlier content, or create another job."
            )

    def made_from(self, shard: Shard) -> MadeFrom:
        """Return what a shard's output is made from."""
        options = {**self.made.options, "lines_before": shard.lines_before}
        hashes = [part[shard.number].sha256 for part in (self.shards, self.references) if part]
        return self.made.model_copy(update={"input_sha256": hashes, "options": options})

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

    def recorded(self, shard: Shard) -> MadeFrom | None:
        """Return the record of a shard's output, None if it is missing or damaged, or if it does not fit."""
        with suppress(NmtError):
            record = _read(self.folder, f"{shard.output}{RECORD}", MadeFrom)
            return record if record.fits(self.made_from(shard)) and record.lines == shard.lines else None
        return None

    def text(self, shard: Shard) -> bytes | None:
        """Return the output of a shard, None if it or its record is missing or damaged."""
        with suppress(NmtError):
            if record := self.recorded(shard):
                text = self._unpacked(shard.output)
                return text if record.output == _entry(shard, text) else None
        return None

    def keep(self, shard: Shard, text: bytes, lines: int, seconds: float) -> None:
        """Write the output of a shard, then its record. Raises DataError."""
        with self.folder.writing(shard.output, "the output") as sink:
            sink.write(zstd.compress(text, options={zstd.CompressionParameter.checksum_flag: 1}))
        own = {"output": _entry(shard, text), "lines": lines, "seconds": seconds}
        record = self.made_from(shard).model_copy(update=own)
        self._write(f"{shard.output}{RECORD}", record, "the record of the output")

    def _unpacked(self, name: str) -> bytes:
        """Return the text of a compressed file. Raises DataError."""
        try:
            with reading(self.folder.where(name)), self.folder.open(name) as stream:
                return zstd.decompress(stream.read())
        except zstd.ZstdError as error:
            raise DataError(f"{self.folder.where(name)!r} is damaged: {error}.") from None

    @contextmanager
    def failing(self, shard: Shard) -> Iterator[None]:
        """Write down why the block fails. A signal is no failure."""
        try:
            yield
        except Exception as error:
            of_machine = of_memory(error) or getattr(error, "errno", None) in MACHINE
            status = error.exit_code if isinstance(error, NmtError) else RETRY if of_machine else 1
            self.fail(shard, str(error) or type(error).__name__, status)
            raise

    def fail(self, shard: Shard, why: str, exit_status: int) -> None:
        """Write down why a shard failed."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        failed = Failed(format_version=Failed.newest, why=why, exit_status=exit_status, time=time)
        with suppress(NmtError):  # of two errors, the first one counts
            self._write(shard.failure, failed, "the reason of a failure")

    def _failed(self, shard: Shard) -> Failed | None:
        """Return why a shard failed, None if it did not or if that is damaged."""
        with suppress(NmtError):
            return _read(self.folder, shard.failure, Failed)
        return None

    def _write(self, name: str, record: Record, what: str) -> None:
        with self.folder.writing(name, what) as sink:
            sink.write(to_json(record))

    def status(self) -> dict[str, Any]:
        """Return what the records say: how much is done, which shards are missing, and which failed and why.

        `lines_per_second` is the mean of one machine with its start: the lines of all records by their seconds.
        """
        names = set(self.folder.names())
        records, missing, failed = list[MadeFrom](), list[int](), list[dict[str, Any]]()
        with ThreadPoolExecutor(STREAMS) as pool:
            found = pool.map(lambda one: self.recorded(one) if one.output in names else None, self.shards)
        for shard, record in zip(self.shards, found, strict=True):
            if record:
                records.append(record)
            elif shard.failure in names and (why := self._failed(shard)):
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

    def join(self, sink: BinaryIO) -> None:
        """Write the outputs in order, up to the first one that is missing or damaged.

        Raises DataError that names all of these.
        """
        wrong: list[int] = []
        for shard, text in self._texts():
            if text is None:
                wrong.append(shard.number)
            elif not wrong:
                sink.write(text)
        if wrong:
            raise DataError(
                f"{str(self.folder)!r}: {len(wrong):,} of {len(self.shards):,} shards are missing or damaged: "
                f"{ranges(wrong)}. Do each of them: nmt job shard {self.folder} {wrong[0]}"
            )

    def _texts(self) -> Iterator[tuple[Shard, bytes | None]]:
        """Yield the shards in order, each with its output; some are read ahead."""
        ahead = deque[tuple[Shard, Future[bytes | None]]]()
        with ThreadPoolExecutor(STREAMS) as pool:
            for shard in self.shards:
                ahead.append((shard, pool.submit(self.text, shard)))
                if len(ahead) > STREAMS:
                    yield (done := ahead.popleft())[0], done[1].result()
            for shard, text in ahead:
                yield shard, text.result()

    def clean(self) -> list[str]:
        """Remove whole outputs, pieces of inputs and records, and at last the manifest. Raises OSError.

        Return the names of the files that stay, because they are not provably of the job.
        """
        for shard in self.shards:
            if self.text(shard) is not None:
                self.folder.remove(f"{shard.output}{RECORD}")
                self.folder.remove(shard.output)
            if self._failed(shard):
                self.folder.remove(shard.failure)
        for shard in (*self.shards, *self.references):
            with suppress(NmtError):
                if shard.is_piece and hashlib.sha256(self._unpacked(shard.file)).hexdigest() == shard.sha256:
                    self.folder.remove(shard.file)
        self.folder.remove(MANIFEST)
        self.folder.prune()
        return self.folder.names()


def _entry(shard: Shard, text: bytes) -> FileEntry:
    """Return what a record says of an output."""
    return FileEntry(file=f"{shard.number}.zst", bytes=len(text), sha256=hashlib.sha256(text).hexdigest())


def _read(folder: Folder, name: str, kind: type[RecordT]) -> RecordT:
    """Read a record. Raises DataError."""
    remedy = "Create the job with nmt job create."
    with reading(where := folder.where(name), f" {remedy}"), folder.open(name) as stream:
        return parse_record(stream.read(), where, kind, DataError, remedy)


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as Slurm reads them: 0-3,7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return listed(["-".join(map(str, run)) for run in runs], 100, ",")
