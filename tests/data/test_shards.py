"""The shards' format: what is written is read back, without being loaded, and every kind of damage is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from nmt_cli.data.shard_writer import Block, ShardWriter, id_type
from nmt_cli.data.shards import (
    INDEX_FILE,
    VALID_TEXT,
    Corpus,
    ShardIndex,
    check_matches,
    differences,
    open_index,
    valid_text,
    verify,
    write_index,
)
from nmt_cli.errors import DataError
from nmt_cli.recipe import Recipe
from nmt_cli.storage.sealed_json import file_entry

Pairs = list[tuple[list[int], list[int]]]


def recipe(**data: Any) -> Recipe:
    return Recipe.from_dict({"name": "tiny", "data": {"train_source": ["s"], "train_target": ["t"], **data}}, "test")


def some_pairs(count: int) -> Pairs:
    random = np.random.default_rng(count)
    return [tuple(random.integers(4, 300, random.integers(0, 9)).tolist() for _ in range(2)) for _ in range(count)]


def block_of(pairs: list[tuple[list[int], list[int]]], dtype: type = np.uint16) -> Block:
    sides = list(zip(*pairs, strict=True)) or [(), ()]
    flat: list[np.ndarray] = [np.array([number for ids in side for number in ids], dtype) for side in sides]
    lengths = [np.array([len(ids) for ids in side], np.int32) for side in sides]
    return Block(flat[0], flat[1], lengths[0], lengths[1])


def make(
    folder: Path, train: Pairs, valid: Pairs, shard_pairs: int = 7, block: int = 5, dtype: Any = np.uint16
) -> ShardIndex:
    splits: dict[Any, Any] = {}
    for split, pairs in (("train", train), ("valid", valid)):
        writer = ShardWriter(folder, split, shard_pairs, dtype)  # type: ignore[arg-type]
        for i in range(0, len(pairs), block):
            writer.write(block_of(pairs[i : i + block], dtype))
        splits[split] = writer.close(len(pairs), {})
    for name in VALID_TEXT:
        lines = (f"{name} {i}\u2028\n" for i in range(len(valid)))
        (folder / name).write_text("".join(lines), encoding="utf-8", newline="\n")
    values: dict[str, Any] = {"joint": True, "source_size": 300, "target_size": 300, "tokenizer_sha256": "0" * 64}
    values |= {"splits": splits, "files": [file_entry(folder / name) for name in VALID_TEXT]}
    values |= {"recipe": "tiny", "data": recipe().data.model_dump(), "inputs": {}, "fingerprint": "f"}
    index = ShardIndex(**values)
    write_index(folder, index)
    return index


@pytest.mark.parametrize(
    ("count", "block", "dtype"),
    [(0, 1, np.uint16), (1, 5, np.uint16), (7, 1, np.uint16), (8, 5, np.uint32), (33, 40, np.uint32)],
)
def test_what_is_written_is_read_back(tmp_path: Path, count: int, block: int, dtype: Any) -> None:
    assert (id_type(65_535, 8), id_type(8, 65_536)) == (np.uint16, np.uint32)
    pairs = [([*source, 70_000] if dtype is np.uint32 else source, target) for source, target in some_pairs(count)]
    make(tmp_path, pairs, [], block=block, dtype=dtype)
    corpus = Corpus(tmp_path, "train")
    assert len(corpus) == count
    assert len(list(tmp_path.glob("train-*.safetensors"))) == -(-count // 7)
    assert [(s.tolist(), t.tolist()) for s, t in map(corpus.pair, range(count))] == pairs
    for lengths, side in ((corpus.source_lengths, 0), (corpus.target_lengths, 1)):
        expected = [len(pair[side]) for pair in pairs]
        assert lengths[np.arange(count)].dtype == np.int32
        assert (len(lengths), lengths.max(initial=0)) == (count, max(expected, default=0))
        for some in (np.arange(count), np.random.default_rng(1).permutation(count)[:5]):
            assert lengths[some].tolist() == [expected[i] for i in some]
    for i in (-1, count):
        with pytest.raises(IndexError, match=f"pair {i} of {count}"):
            corpus.pair(i)


def test_shards_do_not_depend_on_the_blocks_they_came_in_nor_their_fingerprint_on_the_cuts(tmp_path: Path) -> None:
    pairs, found, written = some_pairs(33), set[str](), []
    for number, (shard_pairs, block) in enumerate(((7, 1), (7, 40), (2, 1), (100, 1))):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.add(make(folder, pairs, [], shard_pairs, block).splits["train"].ids_sha256)
        written.append([path.read_bytes() for path in sorted(folder.glob("train*"))])
    assert written[0] == written[1]
    assert len(found) == 1
    assert make(tmp_path, [*pairs[:-1], ([1], [1])], []).splits["train"].ids_sha256 not in found


def test_the_format_is_plain_safetensors(tmp_path: Path) -> None:
    index = make(tmp_path, [([5, 6], [7]), ([], [8, 9, 10])], [([4], [4])])
    tensors = load_file(tmp_path / "train-00000.safetensors")
    assert {name: (str(tensor.dtype), tensor.tolist()) for name, tensor in tensors.items()} == {
        "source": ("uint16", [5, 6]),
        "target": ("uint16", [7, 8, 9, 10]),
        "source_offsets": ("int64", [0, 2, 2]),
        "target_offsets": ("int64", [0, 1, 4]),
    }
    train = index.splits["train"]
    assert (train.pairs, train.source_tokens, train.target_tokens) == (2, 2, 4)
    assert (train.longest_source, train.longest_target) == (2, 3)
    assert open_index(tmp_path) == index == verify(tmp_path)
    assert valid_text(tmp_path) == tuple([f"{name} 0\u2028"] for name in VALID_TEXT)
    with pytest.raises(ValueError, match="read-only"):
        Corpus(tmp_path, "train").pair(0)[0][0] = 1
    with pytest.raises(DataError, match=r"has no split 'test'; it has train, valid"):
        Corpus(tmp_path, "test")  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_opening_reads_no_ids(tmp_path: Path) -> None:
    def resident() -> int:
        """Kilobytes of this process in memory."""
        return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])

    ids, lengths = np.full(20_000_000, 9, np.uint16), np.full(20_000, 1000, np.int32)
    writer = ShardWriter(tmp_path, "train", 20_000)
    writer.write(Block(ids, ids, lengths, lengths))  # 80 MB
    entry = writer.close(1, {})
    index = make(tmp_path, [], [])
    write_index(tmp_path, index.model_copy(update={"splits": {"train": entry}}))
    before = resident()
    corpus = Corpus(tmp_path, "train")
    assert corpus.source_lengths[np.arange(20_000)].sum() == 20_000_000
    assert corpus.pair(19_999)[0].tolist() == [9] * 1000
    assert resident() - before < 8_000


def test_without_an_index_there_is_no_corpus(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError, match=r"no index.json.*: run nmt preprocess"):
            open_index(folder)
    (tmp_path / INDEX_FILE).write_text("{")  # the other ways are those of every record, test_sealed_json.py
    with pytest.raises(DataError, match=r"index.json' is damaged.* make the shards again"):
        open_index(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "missing", "a length", "the header", "an offset"])
def test_damaged_shards_are_named_when_they_are_opened(tmp_path: Path, damage: str) -> None:
    make(tmp_path, some_pairs(9), [])
    shard = tmp_path / "train-00001.safetensors"
    data = bytearray(shard.read_bytes())
    if damage == "an offset":
        data[8 + int.from_bytes(data[:8], "little")] ^= 7
    else:
        at = 20 * (damage == "the header")
        data[at : at + 8] = b"\xff" * 8
    shard.write_bytes(data[:-1] if damage == "cut" else data)
    if damage == "missing":
        shard.unlink()
    with pytest.raises(DataError, match=r"train-00001.safetensors'"):
        Corpus(tmp_path, "train")


def test_shards_of_another_recipe_are_refused_key_by_key(tmp_path: Path) -> None:
    index = make(tmp_path, some_pairs(3), [])
    check_matches(index, recipe(), tmp_path)
    check_matches(index, recipe(shard_pairs=5), tmp_path)
    said = r"(?s)vocab_size: .* 37000, the recipe 8000.*max_length: .* 256, the recipe 99.*--force.*--data DIR"
    with pytest.raises(DataError, match=said):
        check_matches(index, recipe(vocab_size=8000, max_length=99), tmp_path)
    older = index.model_copy(update={"data": {k: v for k, v in index.data.items() if k != "max_ratio"}})
    assert differences(older, recipe()) == {}  # a key that is newer than the shards counts as its default
    assert differences(older, recipe(max_ratio=3.0)) == {"max_ratio": (9.0, 3.0)}
