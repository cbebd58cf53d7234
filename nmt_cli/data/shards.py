"""The prepared corpus on disk: written in a stream, checked by hash before its first use, read through the memory map.

    FOLDER/index.json                           ShardIndex: what the shards hold, from what, made how
    FOLDER/train-00000.safetensors …            source, target: flat ids (uint16; uint32 where a vocabulary exceeds 65,535)
    FOLDER/valid-00000.safetensors …            source_offsets, target_offsets: int64, one more than there are pairs
    FOLDER/valid.source.txt, valid.target.txt   the raw validation text: BLEU is measured on text, not on pieces
    FOLDER/tokenizer.model                      or tokenizer.source.model and tokenizer.target.model

Pair i of a shard is source[source_offsets[i] : source_offsets[i + 1]] and likewise target, without begin and end
symbols. Opening a corpus reads headers alone; lengths come from the offsets; ids are read where a pair is asked for.

Who trains on a folder holds a shared lock on it (`hold`), and who writes shards into it an exclusive one: what a training
uses is not replaced under it. The locks end with their processes.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from .. import __version__
from ..cache import remembered_sha256
from ..errors import DataError
from ..files import lock
from ..lines import iter_lines, open_binary, write_aside
from ..recipe import DataSection, Recipe, with_present_names
from ..records import Record, read_record, to_json

FORMAT_VERSION = Record.newest
INDEX_FILE = "index.json"
VALID_TEXT = ("valid.source.txt", "valid.target.txt")
Split = Literal["train", "valid"]
Ids = npt.NDArray[np.unsignedinteger[Any]]
Lengths = npt.NDArray[np.int32]


REMEDY = "Remove it, and make the shards again with nmt preprocess … --force."


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class FileEntry(_Entry):
    """A file of the folder (or an input, named by its path) as it was when it was written."""

    file: str
    bytes: int
    sha256: str


class ShardEntry(FileEntry):
    pairs: int


class SplitEntry(_Entry):
    """What one split holds, and what was left out of it."""

    read: int = 0
    dropped: dict[str, int] = {}
    """Pairs left out: `empty` (a side below min_length), `too_long` (above max_length), `ratio` (above max_ratio)."""
    pairs: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    longest_source: int = 0
    longest_target: int = 0
    shards: list[ShardEntry] = []
    ids_sha256: str = ""
    """SHA-256 of all ids and lengths, however they are cut into shards (since format version 2)."""


class ShardIndex(Record):
    """index.json."""

    model_config = ConfigDict(frozen=True)

    format_version: int = FORMAT_VERSION
    package_version: str = __version__
    recipe: str
    data: dict[str, Any]
    """The recipe's whole [data] section."""
    joint: bool
    source_size: int
    target_size: int
    tokenizer_sha256: str
    splits: dict[Split, SplitEntry]
    files: list[FileEntry]
    """Tokenizers, raw validation text, and the text that the package made itself."""
    inputs: dict[str, list[FileEntry]]
    fingerprint: str
    """SHA-256 of the inputs' contents and the [data] section."""

    @property
    def data_fingerprint(self) -> str:
        """SHA-256 of the inputs' contents and the tokenizer, however they are cut into shards."""
        hashes = [entry.sha256 for role in sorted(self.inputs) for entry in self.inputs[role]]
        return hashlib.sha256("\n".join([*hashes, self.tokenizer_sha256]).encode()).hexdigest()

    @property
    def ids_fingerprint(self) -> str:
        """SHA-256 of what the shards hold, however they are cut; "" for shards of format version 1."""
        hashes = [self.splits[split].ids_sha256 for split in sorted(self.splits)]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if all(hashes) else ""

    @property
    def vocabularies(self) -> tuple[int, int]:
        """Tokens in the source's and the target's vocabulary."""
        return self.source_size, self.target_size


@dataclass
class Block:
    """Pairs in a row: flat ids and a length for each pair, source and target."""

    source: Ids
    target: Ids
    source_lengths: Lengths
    target_lengths: Lengths

    def __len__(self) -> int:
        return len(self.source_lengths)

    def cut(self, pairs: int) -> tuple[Block, Block]:
        """The first `pairs` pairs, and the others."""
        s, t = int(self.source_lengths[:pairs].sum()), int(self.target_lengths[:pairs].sum())
        return (
            Block(self.source[:s], self.target[:t], self.source_lengths[:pairs], self.target_lengths[:pairs]),
            Block(self.source[s:], self.target[t:], self.source_lengths[pairs:], self.target_lengths[pairs:]),
        )


def id_type(*vocab_sizes: int) -> npt.DTypeLike:
    """The type that holds every id: uint16 up to 65,535 pieces, uint32 above."""
    return np.uint16 if max(vocab_sizes) <= 65_535 else np.uint32


@dataclass
class ShardWriter:
    """Writes the shards of one split: holds one shard's pairs in memory, cuts at exactly `shard_pairs`."""

    folder: Path
    split: Split
    shard_pairs: int
    dtype: npt.DTypeLike = np.uint16
    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    _held: list[Block] = field(default_factory=list)
    _shards: list[ShardEntry] = field(default_factory=list)
    _tokens: list[int] = field(default_factory=lambda: [0, 0])
    _longest: list[int] = field(default_factory=lambda: [0, 0])
    _digests: list[Any] = field(default_factory=lambda: [hashlib.sha256() for _ in range(4)])

    def write(self, block: Block) -> None:
        """Take pairs in; every full shard goes to the disk at once. Raises DataError when it cannot be written."""
        for side, lengths in enumerate((block.source_lengths, block.target_lengths)):
            self._tokens[side] += int(lengths.sum())
            self._longest[side] = max(self._longest[side], int(lengths.max(initial=0)))
        for digest, numbers in zip(self._digests, (block.source, block.target, block.source_lengths, block.target_lengths), strict=True):
            digest.update(np.ascontiguousarray(numbers, dtype="<u4").tobytes())
        while len(block):
            taken, block = block.cut(self.shard_pairs - sum(map(len, self._held)))
            self._held.append(taken)
            if sum(map(len, self._held)) == self.shard_pairs:
                self._flush()

    def close(self) -> SplitEntry:
        """Write what is left; the entry for the index."""
        if self._held:
            self._flush()
        return SplitEntry(
            read=self.read,
            dropped=self.dropped,
            pairs=sum(shard.pairs for shard in self._shards),
            source_tokens=self._tokens[0],
            target_tokens=self._tokens[1],
            longest_source=self._longest[0],
            longest_target=self._longest[1],
            shards=self._shards,
            ids_sha256=hashlib.sha256(b"".join(digest.digest() for digest in self._digests)).hexdigest(),
        )

    def _flush(self) -> None:
        from safetensors.numpy import save

        tensors: dict[str, npt.NDArray[Any]] = {}
        for side in ("source", "target"):
            lengths = np.concatenate([getattr(block, f"{side}_lengths") for block in self._held])
            tensors[side] = np.concatenate([getattr(block, side) for block in self._held]).astype(self.dtype, copy=False)
            tensors[f"{side}_offsets"] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._held.clear()
        path = self.folder / f"{self.split}-{len(self._shards):05d}.safetensors"
        data = save(tensors)
        write_aside(path, data, "a shard")
        pairs = len(tensors["source_offsets"]) - 1
        self._shards.append(ShardEntry(file=path.name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), pairs=pairs))


def file_entry(path: Path, name: str | None = None) -> FileEntry:
    """Size and SHA-256 of a file as it stands."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return FileEntry(file=name or path.name, bytes=file.tell(), sha256=digest)
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}.") from None


def write_index(folder: Path, index: ShardIndex) -> None:
    write_aside(folder / INDEX_FILE, to_json(index), "the index of the shards")


def read_index(folder: str | Path) -> ShardIndex:
    """Read index.json; what it lists is not looked at. Raises DataError."""
    try:
        return read_record(Path(folder) / INDEX_FILE, ShardIndex, DataError, REMEDY)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{str(folder)!r} holds no prepared corpus (no {INDEX_FILE}): run nmt preprocess RECIPE --out {folder} first.") from None


def open_index(folder: str | Path) -> ShardIndex:
    """Read index.json and check, by size alone, that its files are there. For their contents: `verify`. Raises DataError."""
    folder, index = Path(folder), read_index(folder)
    for entry in listed(index):
        size = _size(folder / entry.file)
        if size != entry.bytes:
            state = "is missing" if size is None else f"has {size:,} bytes, expected {entry.bytes:,}"
            raise DataError(f"{str(folder / entry.file)!r} {state}: the prepared corpus is not whole. {REMEDY}")
    return index


def listed(index: ShardIndex) -> list[FileEntry]:
    """Every file that an index vouches for."""
    return [*index.files, *(shard for split in index.splits.values() for shard in split.shards)]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def verify(folder: str | Path, hash_of: Callable[[Path], str] = remembered_sha256) -> ShardIndex:
    """Compare the SHA-256 of every file with the index; raises DataError naming all that differ.

    `hash_of` reads a file, or remembers that it was read.
    """
    folder, index = Path(folder), open_index(folder)
    try:
        changed = [entry.file for entry in listed(index) if hash_of(folder / entry.file) != entry.sha256]
    except OSError as error:
        raise DataError(f"cannot read {str(error.filename or folder)!r}: {error.strerror or error}.") from None
    if changed:
        raise DataError(f"in {str(folder)!r} the contents have changed since they were written: {', '.join(changed)}. {REMEDY}")
    return index


def hold(folder: str | Path) -> int:
    """Lock the folder against `nmt preprocess` and return the descriptor that holds the lock until it is closed.

    Others may hold it too. Raises DataError while shards are being written into it.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"cannot open the folder of shards {str(folder)!r}: {error.strerror}.") from None
    if not lock(handle, shared=True):
        os.close(handle)
        raise DataError(f"nmt preprocess is writing to {str(folder)!r}. Wait until it has finished, or name other shards with --data DIR.")
    return handle


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Lock the folder, if it exists, against trainings and other writers. Raises DataError where it is in use."""
    if not folder.is_dir():
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not lock(handle):
            raise DataError(f"the shards in {str(folder)!r} are in use: an nmt train reads them, or another nmt preprocess writes there. Let it finish, or choose another --out.")
        yield
    finally:
        os.close(handle)


def check_matches(index: ShardIndex, recipe: Recipe, folder: str | Path) -> None:
    """Refuse shards that were made by another [data] section than the recipe's (their size in pairs may differ)."""
    differ = differences(index, recipe)
    if differ:
        raise DataError(
            f"the shards in {str(folder)!r} were made by another recipe ({index.recipe!r}) than {recipe.name!r}:\n"
            + "\n".join(f"  - data.{key}: the shards have {was!r}, the recipe {now!r}" for key, (was, now) in differ.items())
            + f"\nReplace them (nmt preprocess {recipe.name or 'RECIPE'} --out {folder} --force), or name other shards with --data DIR."
        )


def differences(index: ShardIndex, recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """Keys of [data] that the shards and the recipe give other values: (shards', recipe's)."""
    defaults = {key: info.default for key, info in DataSection.model_fields.items()}
    was, now = {**defaults, **with_present_names({"data": index.data}, "the shards")["data"]}, recipe.data.model_dump()
    return {key: (was.get(key), now.get(key)) for key in {**now, **was} if key != "shard_pairs" and was.get(key) != now.get(key)}


def valid_text(folder: str | Path) -> tuple[list[str], list[str]]:
    """The raw validation text, source and target, line for line with the `valid` corpus."""
    sides = []
    for name in VALID_TEXT:
        with open_binary(Path(folder) / name) as stream:
            sides.append([line.decode("utf-8") for line in iter_lines(stream)])
    return sides[0], sides[1]


class Corpus:
    """One split, memory-mapped. Pickled as its place: a worker opens its own map."""

    def __init__(self, folder: str | Path, split: Split, index: ShardIndex | None = None) -> None:
        self.folder, self.split = Path(folder), split
        self.index = index or open_index(folder)
        if split not in self.index.splits:
            raise DataError(f"{str(folder)!r} has no split {split!r}; it has {', '.join(self.index.splits)}.")
        self.entry = self.index.splits[split]
        self._shards = [_Shard(self.folder / shard.file, shard.pairs) for shard in self.entry.shards]
        self._starts = [0, *np.cumsum([shard.pairs for shard in self.entry.shards], dtype=np.int64).tolist()]

    @classmethod
    def open(cls, folder: str | Path, split: Split) -> Corpus:
        return cls(folder, split)

    def __reduce__(self) -> tuple[type[Corpus], tuple[Path, Split, ShardIndex]]:
        return Corpus, (self.folder, self.split, self.index)

    def __len__(self) -> int:
        return self.entry.pairs

    @property
    def source_lengths(self) -> MappedLengths:
        """Tokens of the source sides, begin and end symbols not counted."""
        return MappedLengths(self, "source", self.entry.longest_source)

    @property
    def target_lengths(self) -> MappedLengths:
        """Tokens of the target sides, begin and end symbols not counted."""
        return MappedLengths(self, "target", self.entry.longest_target)

    def lengths(self, side: str, pairs: npt.NDArray[np.int64]) -> Lengths:
        """Tokens of these pairs' source or target sides, begin and end symbols not counted.  # (n,) -> (n,)"""
        found = np.empty(len(pairs), np.int32)
        shards = np.searchsorted(self._starts, pairs, "right") - 1
        for shard in np.unique(shards).tolist():
            here = shards == shard
            places, offsets = pairs[here] - self._starts[shard], self._shards[shard].tensors[f"{side}_offsets"]
            found[here] = offsets[places + 1] - offsets[places]
        return found

    def pair(self, i: int) -> tuple[Ids, Ids]:
        """Source and target ids of pair `i`, without begin and end symbols: read-only views of the map."""
        if not 0 <= i < len(self):
            raise IndexError(f"pair {i} of {len(self)}")
        place = bisect_right(self._starts, i) - 1
        return self._shards[place].pair(i - self._starts[place])


@dataclass(frozen=True)
class MappedLengths:
    """The lengths of a corpus's one side, looked up where they lie: `lengths[pairs]`, or all of them as an array."""

    corpus: Corpus
    side: str
    longest: int

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitem__(self, pairs: npt.NDArray[np.int64]) -> Lengths:
        return self.corpus.lengths(self.side, pairs)

    def max(self, *, initial: int) -> int:
        return max(initial, self.longest)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[np.arange(len(self))].astype(dtype or np.int32)


class _Shard:
    """The tensors of one safetensors file as views of its memory map."""

    def __init__(self, path: Path, pairs: int) -> None:
        try:
            self.tensors = _map(path)
            offsets = [self.tensors[f"{side}_offsets"] for side in ("source", "target")]
            ends = [len(self.tensors[side]) for side in ("source", "target")]
            whole = all(len(o) == pairs + 1 and o[0] == 0 and o[-1] == end for o, end in zip(offsets, ends, strict=True))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"cannot read the shard {str(path)!r}: {error}. {REMEDY}") from None
        if not whole:
            raise DataError(f"the shard {str(path)!r} is damaged: its offsets do not fit its {pairs:,} pairs. {REMEDY}")

    def pair(self, i: int) -> tuple[Ids, Ids]:
        t = self.tensors
        source, target = t["source_offsets"], t["target_offsets"]
        return t["source"][source[i] : source[i + 1]], t["target"][target[i] : target[i + 1]]


def _map(path: Path) -> dict[str, npt.NDArray[Any]]:
    """A safetensors file (eight bytes: the size of a JSON header; the header; the data) without reading the data."""
    raw = np.asarray(np.memmap(path, np.uint8, "r"))
    start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    header = json.loads(raw[8:start].tobytes())
    kinds: dict[str, type[np.generic]] = {"U16": np.uint16, "U32": np.uint32, "I64": np.int64}
    return {
        name: raw[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]].view(kinds[entry["dtype"]])
        for name, entry in header.items()
        if name != "__metadata__"
    }
