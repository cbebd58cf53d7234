r"""A corpus is cut into the shards of a job, in one pass over each input.

    input ──▶ blocks ──▶ cut at every N-th \n ──▶ lines, bytes and SHA-256 of each shard
                                               └▶ NAME/input/K.zst, if the input is compressed

The folder is written aside and renamed when it is whole: a job is complete or absent.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from .. import console
from ..errors import UsageError, listed
from ..storage.files import write_atomic
from ..storage.output_paths import output_folder
from ..storage.sealed_json import to_json
from ..text.compression import FORMATS, compressing
from ..text.encodings import UTF8_MARK
from ..text.lines import iter_lines, open_binary
from .job import MANIFEST, Job, Shard

BLOCK = 1 << 22
"""Number of bytes that are read at a time."""


def create(planned: Job, files: Sequence[Path]) -> tuple[Job, bool]:
    """Cut the files and write the job `planned`, which lacks its shards, into its folder.

    Return the job, and whether it is new: False if the same one was there. Raises UsageError for another job or
    something else in the folder, DataError for what is no text.
    """
    folder = planned.folder
    if os.path.lexists(folder / MANIFEST):
        there, wanted = Job.read(folder), planned.model_copy(update={"shards": _cut_all(planned, files)})
        was, new = ({**job.model_dump(exclude={"made"}), **job.made.model_dump()} for job in (there, wanted))
        if names := [name for name in was if was[name] != new[name]]:
            raise UsageError(f"{str(folder)!r} is another job: it has other {listed(names)}. Give another name.")
        return there, False
    inputs = [*files, *map(Path, planned.models)]
    with output_folder(folder, "the job", lambda _: f"it has no {MANIFEST}", inputs) as aside:
        job = planned.model_copy(update={"shards": _cut_all(planned, files, aside)})
        write_atomic(aside / MANIFEST, to_json(job))
    return job, True


def _cut_all(planned: Job, files: Sequence[Path], aside: Path | None = None) -> list[Shard]:
    """Return the shards; write those of compressed inputs into the folder `aside`. Raises DataError, UsageError."""
    found: list[Shard] = []
    for path in files:
        if path.exists() and not path.is_file():
            raise UsageError(f"{str(path)!r} is no regular file: a job reads its inputs again. Write it to a file.")
        with open_binary(path) as stream:
            next(iter_lines(stream, any_bytes=True), None)  # refuses what nmt translate refuses
        found += _cut(path, planned.shard_lines, len(found), aside)
    return found


def _cut(path: Path, most: int, number: int, aside: Path | None) -> Iterator[Shard]:
    """Yield the shards of an input; the first one has this number."""
    with path.open("rb") as file:
        head = file.read(16)
    compressed, before, start = any(head.startswith(format.magic) for format in FORMATS.values()), 0, 0
    digest, size, sink = hashlib.sha256(), 0, None
    with open_binary(path) as stream, ExitStack() as stack, console.progress(None, "cutting", "B") as bar:
        if not compressed and head.startswith(UTF8_MARK):
            start = len(UTF8_MARK)
        for part, lines in _parts(stream, most):
            piece = f"input/{number}.zst"
            if aside and compressed and not sink:
                (aside / piece).parent.mkdir(exist_ok=True)
                sink = stack.enter_context(compressing(stack.enter_context((aside / piece).open("wb")), piece))
            if sink:
                sink.write(part)
            digest.update(part)
            size += len(part)
            bar.update(len(part))
            if lines:
                stack.close()
                yield Shard(
                    number=number,
                    file=piece if compressed else str(path.absolute()),
                    start=0 if compressed else start,
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
