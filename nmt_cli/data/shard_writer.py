"""Writes shards as a stream: takes blocks of pairs and writes safetensors files with a fixed number of pairs each.

Block: source, target (N,) flat ids; source_lengths, target_lengths (pairs,) int32
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..storage.files import write_named
from .shards import Ids, Lengths, ShardEntry, Split, SplitEntry


@dataclass
class Block:
    """Consecutive pairs: flat ids of all pairs, and the length of each, for source and target."""

    source: Ids
    target: Ids
    source_lengths: Lengths
    target_lengths: Lengths

    def __len__(self) -> int:
        return len(self.source_lengths)

    def cut(self, pairs: int) -> tuple[Block, Block]:
        """Return the first `pairs` pairs and the other pairs."""
        s, t = int(self.source_lengths[:pairs].sum()), int(self.target_lengths[:pairs].sum())
        return (
            Block(self.source[:s], self.target[:t], self.source_lengths[:pairs], self.target_lengths[:pairs]),
            Block(self.source[s:], self.target[t:], self.source_lengths[pairs:], self.target_lengths[pairs:]),
        )


def id_type(*vocab_sizes: int) -> npt.DTypeLike:
    """Return the integer type for the ids: uint16 for vocabularies of up to 65,535 tokens, uint32 above."""
    return np.uint16 if max(vocab_sizes) <= 65_535 else np.uint32


@dataclass
class ShardWriter:
    """Writes the shards of one split.

    It holds the pairs of one shard in memory. Every shard except the last has `shard_pairs` pairs.
    """

    folder: Path
    split: Split
    shard_pairs: int
    dtype: npt.DTypeLike = np.uint16
    _held: list[Block] = field(default_factory=list)
    _shards: list[ShardEntry] = field(default_factory=list)
    _tokens: list[int] = field(default_factory=lambda: [0, 0])
    _longest: list[int] = field(default_factory=lambda: [0, 0])
    _digests: list[Any] = field(default_factory=lambda: [hashlib.sha256() for _ in range(4)])

    def write(self, block: Block) -> None:
        """Add pairs and write every shard that is full. Raises DataError if a shard cannot be written."""
        for digest, numbers in zip(
            self._digests, (block.source, block.target, block.source_lengths, block.target_lengths), strict=True
        ):
            digest.update(np.ascontiguousarray(numbers, dtype="<u4").tobytes())
        while len(block):
            part, block = block.cut(self.shard_pairs - sum(map(len, self._held)))
            self._held.append(part)
            if sum(map(len, self._held)) == self.shard_pairs:
                self._flush()

    def close(self, read: int, dropped: dict[str, int]) -> SplitEntry:
        """Write the remaining pairs as the last shard, and return the entry for the index.

        `read` and `dropped` are the numbers of pairs that were read, and that were dropped, by reason.
        """
        if self._held:
            self._flush()
        return SplitEntry(
            read=read,
            dropped=dropped,
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
        for number, side in enumerate(("source", "target")):
            lengths = np.concatenate([getattr(block, f"{side}_lengths") for block in self._held])
            self._tokens[number] += int(lengths.sum())
            self._longest[number] = max(self._longest[number], int(lengths.max(initial=0)))
            tensors[side] = np.concatenate([getattr(block, side) for block in self._held]).astype(
                self.dtype, copy=False
            )
            tensors[f"{side}_offsets"] = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._held.clear()
        path = self.folder / f"{self.split}-{len(self._shards):05d}.safetensors"
        data = save(tensors)
        write_named(path, data, "a shard")
        pairs = len(tensors["source_offsets"]) - 1
        self._shards.append(
            ShardEntry(file=path.name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), pairs=pairs)
        )
