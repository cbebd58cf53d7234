"""The prepared corpus on disk: written in a stream, checked by hash, read through the memory map.

    FOLDER/index.json                           ShardIndex: what the shards hold, from what, made how
    FOLDER/train-00000.safetensors …            source, target: flat ids (uint16; uint32 where a vocabulary exceeds 65,535)
    FOLDER/valid-00000.safetensors …            source_offsets, target_offsets: int64, one more than there are pairs
    FOLDER/valid.source.txt, valid.target.txt   the raw validation text: BLEU is measured on text, not on pieces
    FOLDER/tokenizer.model                      or tokenizer.source.model and tokenizer.target.model

Pair i of a shard is source[source_offsets[i] : source_offsets[i + 1]] and likewise target, without begin and end
symbols. Opening a corpus reads headers alone; lengths come from the offsets; ids are read where a pair is asked for.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, ValidationError

from .. import __version__
from ..errors import DataError
from ..recipe import DataSection, Recipe
from .lines import iter_lines, open_binary, write_aside

FORMAT_VERSION = 1
INDEX_FILE = "index.json"
VALID_TEXT = ("valid.source.txt", "valid.target.txt")
Split = Literal["train", "valid"]
Ids = npt.NDArray[np.unsignedinteger[Any]]
Lengths = npt.NDArray[np.int32]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


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


class ShardIndex(_Entry):
    """index.json."""

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
    """Tokenizers and raw validation text."""
    inputs: dict[str, list[FileEntry]]
    fingerprint: str
    """SHA-256 of the inputs' contents and the [data] section."""

    @property
    def text(self) -> str:
        """SHA-256 of the inputs' contents and the tokenizer, however they are cut into shards."""
        hashes = [entry.sha256 for role in sorted(self.inputs) for entry in self.inputs[role]]
        return hashlib.sha256("\n".join([*hashes, self.tokenizer_sha256]).encode()).hexdigest()


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

    def write(self, block: Block) -> None:
        """Take pairs in; every full shard goes to the disk at once. Raises DataError when it cannot be written."""
        for side, lengths in enumerate((block.source_lengths, block.target_lengths)):
            self._tokens[side] += int(lengths.sum())
            self._longest[side] = max(self._longest[side], int(lengths.max(initial=0)))
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
    write_aside(folder / INDEX_FILE, (index.model_dump_json(indent=2) + "\n").encode(), "the index of the shards")


def open_index(folder: str | Path) -> ShardIndex:
    """Read index.json and check, by size alone, that its files are there. For their contents: `verify`."""
    folder = Path(folder)
    path = folder / INDEX_FILE
    again = "write the folder anew with nmt preprocess … --force"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{str(folder)!r} holds no prepared corpus (no {INDEX_FILE}): run nmt preprocess RECIPE --out {folder} first.") from None
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except ValueError as error:
        raise DataError(f"{str(path)!r} is not JSON: {error}. It is damaged: {again}.") from None
    version = values.get("format_version") if isinstance(values, dict) else None
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise DataError(f"{str(path)!r} has format version {version}, this nmt ({__version__}) reads up to {FORMAT_VERSION}: update nmt, or {again}.")
    try:
        index = ShardIndex.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise DataError(f"{str(path)!r} is no index of shards ({place}: {fault['msg']}). It is damaged: {again}.") from None
    for entry in listed(index):
        size = _size(folder / entry.file)
        if size != entry.bytes:
            state = "is missing" if size is None else f"has {size:,} bytes, expected {entry.bytes:,}"
            raise DataError(f"{str(folder / entry.file)!r} {state}: the prepared corpus is not whole; {again}.")
    return index


def listed(index: ShardIndex) -> list[FileEntry]:
    """Every file that an index vouches for."""
    return [*index.files, *(shard for split in index.splits.values() for shard in split.shards)]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def verify(folder: str | Path) -> ShardIndex:
    """Read every file and compare its SHA-256 with the index; name all that differ."""
    folder, index = Path(folder), open_index(folder)
    changed = [entry.file for entry in listed(index) if file_entry(folder / entry.file).sha256 != entry.sha256]
    if changed:
        raise DataError(f"in {str(folder)!r} the contents have changed since they were written: {', '.join(changed)}. Write the folder anew with nmt preprocess … --force.")
    return index


def check_matches(index: ShardIndex, recipe: Recipe, folder: str | Path) -> None:
    """Refuse shards that were made by another [data] section than the recipe's (their size in pairs may differ)."""
    differ = differences(index, recipe)
    if differ:
        raise DataError(
            f"the shards in {str(folder)!r} were made by another recipe ({index.recipe!r}) than {recipe.name!r}:\n"
            + "\n".join(f"  - data.{key}: the shards have {was!r}, the recipe {now!r}" for key, (was, now) in differ.items())
            + f"\nMake them anew (nmt preprocess {recipe.name or 'RECIPE'} --out {folder} --force), or name other shards with --data DIR."
        )


def differences(index: ShardIndex, recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """Keys of [data] that the shards and the recipe give other values: (shards', recipe's)."""
    defaults = {key: info.default for key, info in DataSection.model_fields.items()}
    was, now = {**defaults, **index.data}, recipe.data.model_dump()
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
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"cannot read the shard {str(path)!r}: {error}. Make it anew with nmt preprocess … --force.") from None
        if not whole:
            raise DataError(f"the shard {str(path)!r} is damaged: its offsets do not fit its {pairs:,} pairs. Make it anew with nmt preprocess … --force.")

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
