"""The prepared corpus on disk: checked by hash before its first use, read through a memory map.

    FOLDER/index.json                           ShardIndex: what the shards hold, and from which inputs they were built
    FOLDER/train-00000.safetensors …            source, target: flat ids (uint16; uint32 for more than 65,535 tokens)
    FOLDER/valid-00000.safetensors …            source_offsets, target_offsets: int64, one more than there are pairs
    FOLDER/valid.source.txt, valid.target.txt   the raw validation text: BLEU is measured on text, not on tokens
    FOLDER/tokenizer.model                      or tokenizer.source.model and tokenizer.target.model

Pair i of a shard is source[source_offsets[i] : source_offsets[i + 1]] and likewise target, without begin and end
symbols. Opening a corpus reads only the headers. Lengths are computed from the offsets. `Corpus.pair` reads the ids.

A training holds a shared lock on the folder (`hold`), and `nmt preprocess` holds an exclusive one. So the shards are
not replaced while a training uses them. A lock ends with its process. `shard_writer` writes the shards.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from .. import __version__
from ..errors import DataError, reading, writing
from ..recipe import DataSection, Recipe, with_present_names
from ..storage.files import Lock, sha256, write_named
from ..storage.sealed_json import Entry, FileEntry, Record, file_entry, read_record, to_json
from ..text.lines import read_parallel

INDEX_FILE = "index.json"
VALID_TEXT = ("valid.source.txt", "valid.target.txt")
TEXT = "text"
"""The folder of text that the package generated itself."""
Split = Literal["train", "valid"]
Ids = npt.NDArray[np.unsignedinteger[Any]]
Lengths = npt.NDArray[np.int32]


LARGEST_HEADER = 1 << 20
"""Largest size of the header of a shard, in bytes: it has four tensors."""
REMEDY = "Move the folder away, and make the shards again with nmt preprocess."


class ShardEntry(FileEntry):
    pairs: int


FILE_KEYS = ("train_source", "train_target", "valid_source", "valid_target", "tokenizer")
"""Keys of [data] that name files. The contents of the files decide whether shards and runs are of the same text."""
CHANGED_DEFAULTS = ("normalization",)
"""Keys of [data] whose default has changed. A recipe that does not set them means, of older shards, the older default.
"""


class SplitEntry(Entry):
    """The contents of one split, and the number of pairs that were dropped."""

    read: int
    dropped: dict[str, int]
    """Number of dropped pairs by reason: `empty` (a side below min_length), `too_long` (above max_length), `ratio`
    (above max_ratio)."""
    pairs: int
    source_tokens: int
    target_tokens: int
    longest_source: int
    longest_target: int
    shards: list[ShardEntry]
    ids_sha256: str = ""
    """SHA-256 of all ids and lengths. It does not depend on the number of shards. Exists since format version 2."""


class ShardIndex(Record):
    """index.json."""

    model_config = ConfigDict(frozen=True)
    largest: ClassVar[int] = 1 << 26

    format_version: int = Record.newest
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
    """Tokenizers, raw validation text, and the text that the package generated itself."""
    inputs: dict[str, list[FileEntry]]
    fingerprint: str
    """SHA-256 of the inputs' contents and the [data] section."""

    @property
    def data_fingerprint(self) -> str:
        """Return the SHA-256 of the inputs' contents and the tokenizer. It does not depend on the number of shards."""
        hashes = [entry.sha256 for role in sorted(self.inputs) for entry in self.inputs[role]]
        return hashlib.sha256("\n".join([*hashes, self.tokenizer_sha256]).encode()).hexdigest()

    @property
    def ids_fingerprint(self) -> str:
        """Return the SHA-256 of the shards' contents.

        It does not depend on the number of shards. "" for format version 1.
        """
        hashes = [self.splits[split].ids_sha256 for split in sorted(self.splits)]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest() if all(hashes) else ""

    @property
    def vocabularies(self) -> tuple[int, int]:
        """Return the sizes of the source and the target vocabulary."""
        return self.source_size, self.target_size


def write_index(folder: Path, index: ShardIndex) -> None:
    write_named(folder / INDEX_FILE, to_json(index), "the index of the shards")


def read_index(folder: str | Path) -> ShardIndex:
    """Read index.json, without checking the files that it lists. Raises DataError."""
    try:
        return read_record(Path(folder) / INDEX_FILE, ShardIndex, DataError, REMEDY)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{str(folder)!r} holds no prepared corpus (no {INDEX_FILE}): run nmt preprocess RECIPE --out "
            f"{folder} first."
        ) from None


def open_index(folder: str | Path) -> ShardIndex:
    """Read index.json and check the sizes of its files. `verify` also checks their contents. Raises DataError."""
    folder, index = Path(folder), read_index(folder)
    for entry in listed(index):
        path = folder / entry.file
        size = path.stat().st_size if path.is_file() else None
        if size != entry.bytes:
            state = "is missing" if size is None else f"has {size:,} bytes, expected {entry.bytes:,}"
            raise DataError(f"{str(path)!r} {state}: the prepared corpus is not whole. {REMEDY}")
    return index


def listed(index: ShardIndex) -> list[FileEntry]:
    """Return the entry of every file that an index lists."""
    return [*index.files, *(shard for split in index.splits.values() for shard in split.shards)]


def verify(folder: str | Path) -> ShardIndex:
    """Compare the SHA-256 of every file with the index. Raises DataError with the names of all files that differ."""
    folder, index = Path(folder), open_index(folder)
    changed = [entry.file for entry in listed(index) if file_entry(folder / entry.file).sha256 != entry.sha256]
    if changed:
        raise DataError(
            f"in {str(folder)!r} the contents have changed since they were written: {', '.join(changed)}. {REMEDY}"
        )
    return index


def hold(folder: str | Path) -> Lock:
    """Lock the folder against `nmt preprocess`.

    Several processes may hold this lock. Raises DataError while shards are written into the folder.
    """
    busy = DataError(
        f"nmt preprocess is writing to {str(folder)!r}. Wait until it has finished, or name other shards "
        "with --data DIR."
    )
    with reading(folder):
        return Lock(folder, busy, shared=True)


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Lock the folder against trainings and other writers. If it does not exist, it is made, and removed if it stays
    empty. Raises DataError if the folder is in use, or cannot be made.
    """
    busy = DataError(
        f"the shards in {str(folder)!r} are in use: an nmt train reads them, or another nmt preprocess writes there. "
        "Let it finish, or choose another --out."
    )
    with writing(folder, "the shards"):
        existed = folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(folder, busy)
    with lock:
        try:
            yield
        finally:
            if not existed:
                with suppress(OSError):  # it is not empty
                    folder.rmdir()


def not_shards(folder: Path) -> str:
    """Return why `folder` does not hold just unchanged shards of `nmt preprocess`; "" if it does.

    Files may be missing. Raises DataError if the index is damaged.
    """
    if not (folder / INDEX_FILE).exists():
        return "nmt preprocess did not write it"
    recorded = {entry.file: entry.sha256 for entry in listed(read_index(folder))}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name == INDEX_FILE or (name == TEXT and path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file() or name not in recorded:
            return f"it holds {name!r}, which nmt preprocess did not write"
        if sha256(path) != recorded[name]:
            return f"its file {name!r} was changed after it was written"
    return ""


def check_matches(index: ShardIndex, recipe: Recipe, folder: str | Path, *, names: bool = True) -> None:
    """Raise DataError if the shards were built with another [data] section than that of the recipe.

    shard_pairs may differ. Without `names`, the names of files may differ too.
    """
    differ = {key: values for key, values in differences(index, recipe).items() if names or key not in FILE_KEYS}
    if not differ:
        return
    command = f"nmt preprocess … --out {shlex.quote(str(folder))}"
    remedy = (
        f"If the text is the same, {command} compares its contents, keeps the shards and stores the new names."
        if differ.keys() <= set(FILE_KEYS)
        else f"Replace them with {command} --force."
    )
    raise DataError(
        f"the shards in {str(folder)!r}, built with the recipe {index.recipe!r}, do not fit the recipe "
        f"{recipe.name!r}:\n"
        + "".join(
            f"  - data.{key}: the shards have {was!r}, the recipe {now!r}\n" for key, (was, now) in differ.items()
        )
        + f"{remedy} Or name other shards with --data DIR."
    )


def differences(index: ShardIndex, recipe: Recipe) -> dict[str, tuple[Any, Any]]:
    """Return the keys of [data] whose values differ: (the shards', the recipe's)."""
    defaults = {key: info.default for key, info in DataSection.model_fields.items()}
    was, now = {**defaults, **with_present_names({"data": index.data}, "the shards")["data"]}, recipe.data.model_dump()
    return {
        key: (was.get(key), now.get(key))
        for key in {**now, **was}
        if key != "shard_pairs" and was.get(key) != now.get(key)
    }


def with_earlier_defaults(recipe: Recipe, index: ShardIndex) -> Recipe:
    """Return the recipe with the shards' values of the keys in CHANGED_DEFAULTS that it does not set."""
    unset = [key for key in CHANGED_DEFAULTS if key in index.data and key not in recipe.data.model_fields_set]
    data = recipe.data.model_copy(update={key: index.data[key] for key in unset})
    return recipe.model_copy(update={"data": data})


def valid_text(folder: str | Path) -> tuple[list[str], list[str]]:
    """Return the raw validation text, source and target: one line per pair of the `valid` corpus."""
    source, target = ([Path(folder) / name] for name in VALID_TEXT)
    pairs = list(read_parallel(source, target))
    return [line for line, _ in pairs], [line for _, line in pairs]


class Corpus:
    """One split, memory-mapped."""

    def __init__(self, folder: str | Path, split: Split, index: ShardIndex | None = None) -> None:
        self.folder, self.split = Path(folder), split
        self.index = index or open_index(folder)
        if split not in self.index.splits:
            raise DataError(f"{str(folder)!r} has no split {split!r}; it has {', '.join(self.index.splits)}.")
        self.entry = self.index.splits[split]
        self.shards = [_tensors(self.folder / shard.file, shard.pairs) for shard in self.entry.shards]
        self.starts = [0, *np.cumsum([shard.pairs for shard in self.entry.shards], dtype=np.int64).tolist()]
        self.source_lengths = MappedLengths(self, "source", self.entry.longest_source)
        self.target_lengths = MappedLengths(self, "target", self.entry.longest_target)

    def __len__(self) -> int:
        return self.entry.pairs

    def pair(self, i: int) -> tuple[Ids, Ids]:
        """Return the source and target ids of pair `i`, without begin and end symbols: views of the memory map."""
        if not 0 <= i < len(self):
            raise IndexError(f"pair {i} of {len(self)}")
        shard = bisect_right(self.starts, i) - 1
        tensors, i = self.shards[shard], i - self.starts[shard]
        source, target = tensors["source_offsets"], tensors["target_offsets"]
        return tensors["source"][source[i] : source[i + 1]], tensors["target"][target[i] : target[i + 1]]


@dataclass(frozen=True)
class MappedLengths:
    """The lengths of one side of a corpus in tokens, begin and end symbols not counted, from the memory map."""

    corpus: Corpus
    side: str
    longest: int

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitem__(self, pairs: npt.NDArray[np.int64]) -> Lengths:
        """Return the lengths of these pairs.  # (n,) -> (n,)"""
        lengths = np.empty(len(pairs), np.int32)
        shards = np.searchsorted(self.corpus.starts, pairs, "right") - 1
        for shard in np.unique(shards).tolist():
            here = shards == shard
            offsets = self.corpus.shards[shard][f"{self.side}_offsets"]
            indices = pairs[here] - self.corpus.starts[shard]
            lengths[here] = offsets[indices + 1] - offsets[indices]
        return lengths

    def max(self, *, initial: int) -> int:
        return max(initial, self.longest)


def _tensors(path: Path, pairs: int) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a shard as views of its memory map. Raises DataError if they do not fit its `pairs`."""
    try:
        tensors = _map(path)
        sides = [(tensors[side], tensors[f"{side}_offsets"]) for side in ("source", "target")]
        whole = all(len(offsets) == pairs + 1 and offsets[0] == 0 and offsets[-1] == len(ids) for ids, offsets in sides)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"cannot read the shard {str(path)!r}: {error}. {REMEDY}") from None
    if not whole:
        raise DataError(f"the shard {str(path)!r} is damaged: its offsets do not fit its {pairs:,} pairs. {REMEDY}")
    return tensors


def _map(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a safetensors file as a memory map, without reading the data.

    The file has the size of the header in eight bytes, a JSON header, and the data.
    """
    raw = np.asarray(np.memmap(path, np.uint8, "r"))
    start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
    header = json.loads(raw[8 : min(start, LARGEST_HEADER)].tobytes())
    kinds: dict[str, type[np.generic]] = {"U16": np.uint16, "U32": np.uint32, "I64": np.int64}
    return {
        name: raw[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]].view(kinds[entry["dtype"]])
        for name, entry in header.items()
        if name != "__metadata__"
    }
