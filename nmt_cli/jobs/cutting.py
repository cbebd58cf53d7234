r"""A corpus is cut into the shards of a job, in one pass over each input.

    input ──▶ blocks ──▶ cut at every N-th \n ──▶ lines, bytes and SHA-256 of each shard
                                               └▶ NAME/input/0/K.zst, if the input is compressed or NAME is in a store

A folder is written aside and renamed when it is whole, and in a store job.json comes last: a job is complete or absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from .. import console
from ..errors import DataError, UsageError, listed
from ..storage.sealed_json import to_json
from ..text.compression import FORMATS, compressing
from ..text.encodings import UTF8_MARK
from ..text.lines import iter_lines, open_binary
from .folder import Folder
from .job import MANIFEST, Job, Shard, numbered

BLOCK = 1 << 22
"""Number of bytes that are read at a time."""


def create(planned: Job, files: Sequence[Path], references: Sequence[Path] = ()) -> tuple[Job, bool]:
    """Cut the files, and the translations that are to be scored, and write the job `planned`, which lacks its shards.

    Return the job, and whether it is new: False if the same one was there. Raises UsageError for another job or
    something else in the folder, DataError for what is no text.
    """
    folder = planned.folder
    if _is_there(folder):
        there, wanted = Job.read(str(folder)), _cut_both(planned, files, references)
        was, new = ({**job.model_dump(exclude={"made"}), **job.made.model_dump()} for job in (there, wanted))
        if names := [name for name in was if was[name] != new[name]]:
            raise UsageError(f"{str(folder)!r} is another job: it has other {listed(names)}. Give another name.")
        return there, False
    with folder.created(MANIFEST, [*files, *references, *map(Path, planned.models)]) as aside:
        job = _cut_both(planned, files, references, aside)
        with aside.writing(MANIFEST, "the job", new=True) as sink:
            sink.write(to_json(job))
    return job, True


def _is_there(folder: Folder) -> bool:
    """Return whether the folder has a job. Raises OSError."""
    try:
        folder.open(MANIFEST).close()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _cut_both(planned: Job, files: Sequence[Path], references: Sequence[Path], aside: Folder | None = None) -> Job:
    """Return the job with its shards. Raises DataError if the files and their translations are not parallel."""
    shards, parallel = _cut_all(planned, "input", files, aside), _cut_all(planned, "reference", references, aside)
    if references and [one.lines for one in shards] != [one.lines for one in parallel]:
        counts = [f"{sum(one.lines for one in part):,}" for part in (shards, parallel)]
        raise DataError(
            f"--input has {counts[0]} lines, --ref has {counts[1]}: expected as many in each pair of files."
        )
    return planned.model_copy(update={"shards": shards, "references": parallel})


def _cut_all(planned: Job, what: str, files: Sequence[Path], aside: Folder | None) -> list[Shard]:
    """Return the shards; write those of compressed inputs into `what`, in the folder `aside`.

    Raises DataError, UsageError.
    """
    found: list[Shard] = []
    for path in files:
        if path.exists() and not path.is_file():
            raise UsageError(f"{str(path)!r} is no regular file: a job reads its inputs again. Write it to a file.")
        with open_binary(path) as stream:
            next(iter_lines(stream, any_bytes=True), None)  # refuses what nmt translate refuses
        found += _cut(path, planned.shard_lines, what, len(found), aside, planned.folder.has_inputs)
    return found


def _cut(path: Path, most: int, what: str, number: int, aside: Folder | None, packed: bool) -> Iterator[Shard]:
    """Yield the shards of an input; the first one has this number. `packed`: they are of the job, as of an input that
    is compressed.
    """
    with path.open("rb") as file:
        head = file.read(16)
    packed, before, start = packed or any(head.startswith(format.magic) for format in FORMATS.values()), 0, 0
    digest, size, sink = hashlib.sha256(), 0, None
    with open_binary(path) as stream, ExitStack() as stack, console.progress(None, "cutting", "B") as bar:
        if not packed and head.startswith(UTF8_MARK):
            start = len(UTF8_MARK)
        for part, lines in _parts(stream, most):
            piece = numbered(what, number)
            if aside and packed and not sink:
                sink = stack.enter_context(compressing(stack.enter_context(aside.writing(piece, "a shard")), piece))
            if sink:
                sink.write(part)
            digest.update(part)
            size += len(part)
            bar.update(len(part))
            if lines:
                stack.close()
                yield Shard(
                    number=number,
                    file=piece if packed else str(path.absolute()),
                    start=0 if packed else start,
                    bytes=size,
                    sha256=digest.hexdigest(),
                    lines_before=before,
                    lines=lines,
                )
                number, start, before = number + 1, start + size, before + lines
                digest, size, sink = hashlib.sha256(), 0, None


def _parts(stream: BinaryIO, most: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the text in parts, each with the number of the shard's lines if it ends there, else with 0.

    A byte-order mark at the head is left out.
    """
    import numpy as np

    lines, last, block = 0, b"\n", stream.read(BLOCK).removeprefix(UTF8_MARK)
    while block:
        ends, at = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1, 0
        for end in ends[most - lines - 1 :: most].tolist():
            yield memoryview(block)[at:end], most
            at, lines = end, 0
        lines += int(np.count_nonzero(ends > at))
        if at < len(block):
            yield memoryview(block)[at:], 0
        last, block = block[-1:], stream.read(BLOCK)
    if lines or last != b"\n":
        yield memoryview(b""), lines + (last != b"\n")
