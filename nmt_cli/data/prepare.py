"""From text to shards: read, learn the vocabulary, encode, filter, write.

    inputs ── fingerprint ──▶ the same as before? done
       └──▶ read: pairs, words ──▶ learn BPE from the words ──▶ encode in chunks ──▶ filter ──▶ shards ──▶ install
            (reading and encoding in a process per core, results in order)

The result depends on the text and the recipe's [data] section alone, not on the number of workers. Memory holds a few
chunks and one shard. Everything is built in a hidden folder aside (`.NAME.partial`, locked, so that a second command
does not meddle and what a killed one left behind is cleaned up) and put in place at the end: whatever goes wrong, the
earlier shards stay as they were. A folder of shards that a training reads is locked and is not replaced.

What is replaced is proven to be an earlier product: the folder's index.json, which checks itself, lists the file, and its
SHA-256 is the one recorded there. Every other file stays, and one with a name that is needed is an error. Putting shards in
place of others takes several renames: they begin with a mark (`INSTALLING`) in the folder aside, and where it is found the
next command finishes them.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import console
from ..cache import remembered_sha256
from ..errors import DataError, write_failed
from ..files import ASIDE, flush_to_disk, follow_links, lock, sha256
from ..hardware import cores
from ..lines import write_aside
from ..recipe import DataSection, Recipe
from .inputs import SPLITS, TEXT, Inputs, find_inputs, fingerprint_of, named
from .shards import (
    INDEX_FILE,
    VALID_TEXT,
    Block,
    FileEntry,
    ShardIndex,
    ShardWriter,
    Split,
    SplitEntry,
    differences,
    file_entry,
    held_alone,
    id_type,
    listed,
    open_index,
    read_index,
    write_index,
)
from .tokenizer import Tokenizer, Vocabulary
from .words import WordCounts, WordEncoder, count_words
from .workers import pool

CHUNK = 4000
"""Pairs that a worker encodes at once."""
READ = 20_000
"""Pairs whose words a worker counts at once."""
REASONS = ("empty", "too_long", "ratio")
"""Why pairs are dropped, the first that holds."""
OURS = re.compile(r"index\.json|(train|valid)-\d{5,}\.safetensors|valid\.(source|target)\.txt|tokenizer(\.source|\.target)?\.model")
"""Names of what this command writes, beside the folder TEXT."""
INSTALLING = "installing"
"""A file in the folder aside: it is whole, and its files are being put in place."""


@dataclass(frozen=True)
class Summary:
    """What `prepare` did. `fresh` False: the shards were there already and nothing was done."""

    folder: Path
    index: ShardIndex
    fresh: bool
    seconds: float
    replaced: dict[str, int] = field(default_factory=dict)
    """Lines with invalid UTF-8, a count for each file."""

    def to_dict(self) -> dict[str, Any]:
        skipped = {"data", "inputs", "files"}
        return {"folder": str(self.folder), "fresh": self.fresh, "seconds": round(self.seconds, 3), "replaced": self.replaced, **self.index.model_dump(exclude=skipped)}


def prepare(recipe: Recipe, data_dir: Path | None, out: Path, force: bool = False, workers: int | None = None) -> Summary:
    """Make the shards of a recipe in the folder `out`, or find that they are there already.

    `workers`: processes that encode; None: one a core. Raises `DataError` for inputs that are missing, damaged, not
    parallel or all filtered out, for a folder that holds something else, and where nothing can be written.
    """
    started = time.monotonic()
    if os.path.exists(out) and not os.path.isdir(out):
        raise DataError(f"{str(out)!r} is a file, expected a folder for the shards: choose another --out.")
    with find_inputs(recipe.data, data_dir) as inputs:
        entries = inputs.entries()
        fingerprint = fingerprint_of(recipe.data, entries)
        _finish_installing(out)
        earlier = None if force else _earlier(recipe, out, fingerprint, entries)
        if earlier is not None:
            return Summary(out, earlier, False, time.monotonic() - started)
        replaced: Counter[str] = Counter()
        with held_alone(out), _aside(out) as partial:
            _check_replaceable(out)
            index = _build(recipe, inputs, partial, workers or cores(), replaced, entries, fingerprint)
            write_index(partial, index)
            _install(partial, out)
    return Summary(out, index, True, time.monotonic() - started, dict(replaced))


def _build(recipe: Recipe, inputs: Inputs, folder: Path, workers: int, replaced: Counter[str], entries: dict[str, list[FileEntry]], fingerprint: str) -> ShardIndex:
    counts, words = _read(inputs, workers, recipe.data.joint_vocab, replaced)
    for file, lines in replaced.items():
        console.warn(f"{file}: {lines:,} line(s) hold invalid UTF-8; what is invalid was replaced by U+FFFD")
    if not counts["train"]:
        raise DataError(f"the training text is empty: {named(inputs.files['train_source'])} holds no lines.")
    vocabulary = _vocabulary(recipe.data, inputs, words, workers)
    splits = {split: _encode(recipe.data, inputs, split, counts[split], vocabulary, folder, workers) for split in SPLITS}
    vocabulary.save(folder)
    if inputs.generated is not None:
        (folder / TEXT).mkdir()
        for made in sorted(inputs.generated.iterdir()):
            write_aside(folder / TEXT / made.name, made.read_bytes(), "the teaching corpus")
    texts = [f"{TEXT}/{path.name}" for path in sorted((folder / TEXT).glob("*"))]
    return ShardIndex(
        recipe=recipe.name,
        data=recipe.data.model_dump(),
        joint=vocabulary.joint,
        source_size=vocabulary.source_size,
        target_size=vocabulary.target_size,
        tokenizer_sha256=vocabulary.sha256,
        splits=splits,
        files=[file_entry(folder / name, name) for name in (*vocabulary.files, *VALID_TEXT, *texts)],
        inputs=entries,
        fingerprint=fingerprint,
    )


# --- text to shards -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Counter:
    """Counts the words of a chunk of pairs, for each vocabulary: the workers' job while all is read for the first time."""

    joint: bool

    def __call__(self, chunk: list[tuple[str, str]]) -> list[Counter[str]]:
        sides = [list(side) for side in zip(*chunk, strict=True)]
        return [count_words(texts) for texts in ([sides[0] + sides[1]] if self.joint else sides)]


def _read(inputs: Inputs, workers: int, joint: bool, replaced: Counter[str]) -> tuple[dict[Split, int], list[WordCounts]]:
    """Pairs of each split, and the training text's words for each vocabulary that is to be learned.

    Reading all once shows every fault of the files before hours of work.
    """
    words = [WordCounts() for _ in range(0 if inputs.tokenizer else 1 if joint else 2)]
    pairs: dict[Split, int] = {"train": 0, "valid": sum(1 for _ in inputs.pairs("valid", replaced))}
    with console.progress(None, "reading train", " pairs") as bar, pool(_Counter(joint), workers if words else 1) as run:
        chunks = _chunks(inputs.pairs("train", replaced), READ)
        for chunk, counts in run(chunks) if words else ((chunk, []) for chunk in chunks):
            pairs["train"] += len(chunk)
            for held, found in zip(words, counts, strict=True):
                held.add(found)
            bar.update(len(chunk))
    return pairs, words


def _chunks(pairs: Iterator[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    return iter(lambda: list(itertools.islice(pairs, size)), [])


@dataclass(frozen=True)
class _Learner:
    """Learns the vocabulary; a job for a process of its own, where Ctrl-C can end it at once."""

    data: DataSection

    def __call__(self, words: list[list[tuple[str, int]]]) -> Vocabulary:
        return Vocabulary.learn(words, self.data)


def _vocabulary(data: DataSection, inputs: Inputs, words: list[WordCounts], workers: int) -> Vocabulary:
    if inputs.tokenizer is None:
        chosen = [held.most_frequent() for held in words]
        words.clear()  # their memory is wanted elsewhere
        with pool(_Learner(data), workers) as run:
            return next(iter(run([chosen])))[1]
    if inputs.tokenizer.is_dir():
        vocabulary = Vocabulary.load(inputs.tokenizer)
    else:
        both = Tokenizer.load(inputs.tokenizer)
        vocabulary = Vocabulary(both, both)
    if vocabulary.joint != data.joint_vocab:
        has = "one joint vocabulary" if vocabulary.joint else "two vocabularies"
        raise DataError(f"data.tokenizer = {data.tokenizer!r} holds {has}, but data.joint_vocab = {str(data.joint_vocab).lower()}: change one of them.")
    return vocabulary


@dataclass
class _Encoded:
    block: Block
    kept: list[int]
    dropped: dict[str, int]


class _Encoder:
    """Encodes and filters a chunk of pairs: the workers' job."""

    def __init__(self, vocabulary: Vocabulary, data: DataSection, split: Split) -> None:
        self.data, self.split = data, split
        self.dtype = id_type(vocabulary.source_size, vocabulary.target_size)
        source = WordEncoder(vocabulary.source)
        self.encoders = (source, source if vocabulary.joint else WordEncoder(vocabulary.target))

    def __call__(self, chunk: list[tuple[str, str]]) -> _Encoded:
        sides = [encoder.encode(texts) for encoder, texts in zip(self.encoders, zip(*chunk, strict=True), strict=True)]
        (source, source_lengths), (target, target_lengths) = sides
        why = reasons(source_lengths, target_lengths, self.data, self.split)
        kept = why == ""
        source, target = source[np.repeat(kept, source_lengths)], target[np.repeat(kept, target_lengths)]
        lengths = [side[kept].astype(np.int32) for side in (source_lengths, target_lengths)]
        block = Block(source.astype(self.dtype), target.astype(self.dtype), *lengths)
        return _Encoded(block, np.flatnonzero(kept).tolist(), {reason: int((why == reason).sum()) for reason in REASONS})


def reasons(source: NDArray[np.int64], target: NDArray[np.int64], data: DataSection, split: Split) -> NDArray[np.str_]:
    """Why pairs of so many tokens are dropped, one of REASONS; empty: they are kept. Of validation, only what cannot be
    scored goes.  # (pairs,)"""
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    if split == "valid":
        return np.where(shorter > 0, "", "empty")
    faults = (shorter < data.min_length, longer > data.max_length, (longer + 1) / (shorter + 1) > data.max_ratio)
    return np.select(faults, REASONS, "")


def _encode(data: DataSection, inputs: Inputs, split: Split, pairs: int, vocabulary: Vocabulary, folder: Path, workers: int) -> SplitEntry:
    writer = ShardWriter(folder, split, data.shard_pairs, id_type(vocabulary.source_size, vocabulary.target_size))
    dropped: Counter[str] = Counter()
    text: list[tuple[str, str]] = []
    chunks = _chunks(inputs.pairs(split), CHUNK)
    workers = min(workers, -(-pairs // CHUNK))
    with console.progress(pairs, f"encoding {split}", " pairs") as bar, pool(_Encoder(vocabulary, data, split), workers) as run:
        for chunk, encoded in run(chunks):
            writer.write(encoded.block)
            dropped.update(encoded.dropped)
            if split == "valid":
                text += (chunk[i] for i in encoded.kept)
            bar.update(len(chunk))
    if split == "valid":
        for name, side in zip(VALID_TEXT, zip(*text, strict=True) if text else [(), ()], strict=True):
            write_aside(folder / name, "".join(f"{line}\n" for line in side).encode(), "the validation text")
    writer.read, writer.dropped = pairs, dict(dropped)
    entry = writer.close()
    if pairs and not entry.pairs:
        why = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items())
        raise DataError(
            f"all {pairs:,} {split} pairs were dropped ({why}). Check that the files are what they should be, "
            f"and data.min_length = {data.min_length}, max_length = {data.max_length}, max_ratio = {data.max_ratio:g}."
        )
    return entry

# --- the folder -----------------------------------------------------------------------------------------------------


def _earlier(recipe: Recipe, out: Path, fingerprint: str, entries: dict[str, list[FileEntry]]) -> ShardIndex | None:
    """The index of shards that are just these; None: the folder is free; otherwise a refusal."""
    try:
        there = sorted(name for name in os.listdir(out) if not name.startswith(".")) if out.exists() else []
    except OSError as error:
        raise write_failed(error, out, "the shards") from None
    if not there:
        return None
    if INDEX_FILE not in there:
        raise DataError(f"the folder {str(out)!r} is not empty and holds no {INDEX_FILE} but {named(there)}. Choose another --out, or give --force to put the shards beside these files.")
    way_out = "Give --force to replace the shards there (other files stay), or another --out."
    index = open_index(out)
    if index.fingerprint == fingerprint:
        return index
    changes = [f"data.{key}: was {was!r}, is {now!r}" for key, (was, now) in differences(index, recipe).items()]
    for role in sorted({*index.inputs, *entries}):
        was, now = ({entry.sha256: entry.file for entry in side.get(role, [])} for side in (index.inputs, entries))
        changes += [f"{role}: the contents of {now[key]!r} have changed" for key in now if key not in was]
    raise DataError(f"the folder {str(out)!r} holds other shards (recipe {index.recipe!r}):\n" + "".join(f"  - {change}\n" for change in changes) + way_out)


def _partial(out: Path) -> Path:
    """The folder aside: on the same disk as `out`, inside it where it exists."""
    real = follow_links(out)
    return (real if real.is_dir() else real.parent) / f".{real.name}.partial"


@contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """A locked, empty folder to build in; gone at the end, whatever happens."""
    partial = _partial(out)
    try:
        partial.mkdir(parents=True, exist_ok=True)
        handle = os.open(partial, os.O_RDONLY)
    except OSError as error:
        raise write_failed(error, out, "the shards") from None
    try:
        if not lock(handle):
            raise DataError(f"another nmt preprocess is writing to {str(out)!r} just now: let it finish, or choose another --out.")
        _clear(partial)
        try:
            yield partial
        finally:
            if partial.exists() and os.path.samestat(os.stat(partial), os.fstat(handle)) and not (partial / INSTALLING).exists():
                _clear(partial)
                with suppress(OSError):
                    partial.rmdir()
    except OSError as error:
        raise write_failed(error, out, "the shards") from None
    finally:
        os.close(handle)


def _clear(partial: Path) -> None:
    """Remove what an earlier command left in the folder aside. Raises DataError for what cannot be its work."""
    for item in list(partial.iterdir()):
        name = found["name"] if (found := ASIDE.fullmatch(item.name)) else item.name
        if item.is_symlink() or not (OURS.fullmatch(name) or name in (TEXT, INSTALLING)):
            raise DataError(f"{str(item)!r} is not of nmt preprocess, which works in the folder that it lies in. Move it away.")
        shutil.rmtree(item) if item.is_dir() else item.unlink()


def _check_replaceable(out: Path, new: Path | None = None) -> list[Path]:
    """The files of `out` that an earlier command wrote, as paths below it.

    Raises DataError for a file of another that would be replaced: one with a name of ours, or one that is in the folder
    `new`, unless it has the same contents there.
    """
    if not out.is_dir():
        return []
    recorded = _recorded(out)
    wanted = {path.relative_to(new) for path in new.rglob("*") if path.is_file()} if new else set()
    there = {path.relative_to(out) for path in out.iterdir() if OURS.fullmatch(path.name)} | {path for path in wanted if os.path.lexists(out / path)}
    ours = [path for path in sorted(there) if (recorded and str(path) == INDEX_FILE) or _unchanged(out / path, recorded.get(str(path)))]
    others = [path for path in sorted(there - set(ours)) if not (new and path in wanted and _unchanged(out / path, sha256(new / path)))]
    if others:
        raise DataError(
            f"{str(out / others[0])!r} would be replaced, and it is not as nmt preprocess wrote it: {INDEX_FILE} "
            f"{'records another SHA-256' if str(others[0]) in recorded else 'does not list it'}. Move it away, or choose another --out."
        )
    return [*ours, *(path for path in (Path(name) for name in recorded) if path not in there and _unchanged(out / path, recorded[str(path)]))]


def _recorded(out: Path) -> dict[str, str]:
    """SHA-256 of the files of ours that the folder's index lists, by name; of other names it is not believed."""
    entries = listed(read_index(out)) if (out / INDEX_FILE).exists() else []
    return {entry.file: entry.sha256 for entry in entries if OURS.fullmatch(entry.file) or Path(entry.file).parent == Path(TEXT)}


def _unchanged(path: Path, recorded: str | None) -> bool:
    return recorded is not None and path.is_file() and not path.is_symlink() and remembered_sha256(path) == recorded


def _install(partial: Path, out: Path) -> None:
    """Put the finished folder in place: by one rename where `out` is new, else file by file and the index last."""
    flush_to_disk(partial)
    if not out.exists():
        real = follow_links(out)
        os.rename(partial, real)
        flush_to_disk(real.parent)
        return
    earlier = _check_replaceable(out, partial)
    (partial / INSTALLING).touch()
    flush_to_disk(partial)
    _move(partial, out, earlier)


def _move(partial: Path, out: Path, earlier: list[Path]) -> None:
    """Replace the files `earlier` in `out` by those in the marked folder aside."""
    new = {path.relative_to(partial) for path in partial.rglob("*") if path.is_file()} - {Path(INSTALLING)}
    for path in sorted(new, key=lambda path: (str(path) == INDEX_FILE, path)):
        if str(path) == INDEX_FILE:  # the last: until then the earlier index says what is to be removed
            for old in set(earlier) - _listed_in(partial):
                (out / old).unlink(missing_ok=True)
            flush_to_disk(out)
        (out / path).parent.mkdir(exist_ok=True)
        os.replace(partial / path, out / path)
    flush_to_disk(out)
    (partial / INSTALLING).unlink()


def _listed_in(folder: Path) -> set[Path]:
    return {Path(INDEX_FILE), *(Path(entry.file) for entry in listed(read_index(folder)))}


def _finish_installing(out: Path) -> None:
    """Finish what a command that was killed had begun to put in place. Raises DataError where others use the folder."""
    partial = _partial(out)
    if not out.is_dir() or not (partial / INSTALLING).exists():
        return
    with held_alone(out):
        try:
            if (partial / INDEX_FILE).exists():
                coming = _listed_in(partial)
                earlier = [path for name, digest in _recorded(out).items() if (path := Path(name)) not in coming and _unchanged(out / path, digest)]
                _move(partial, out, earlier)
            _clear(partial)
            partial.rmdir()
        except OSError as error:
            raise write_failed(error, out, "the shards") from None
    console.say(f"{out}: finished putting in place the shards of a command that was stopped")
