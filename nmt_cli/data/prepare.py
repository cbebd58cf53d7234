"""From text to shards: read, learn the vocabulary, encode, filter, write.

    inputs ── fingerprint ──▶ the same as before? done
       └──▶ read: pairs, words ──▶ learn BPE from the words ──▶ encode in chunks ──▶ filter ──▶ shards ──▶ rename
            (reading and encoding in a process per core, results in order)

The result depends on the text and on the recipe's [data] section alone, not on the number of workers. Memory holds a
few chunks and one shard. The folder is built aside, as every output (`output_paths`): until it is complete, earlier
shards stay.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import console
from ..device.processor import cores
from ..errors import DataError, listed, writing
from ..recipe import DataSection, Recipe
from ..registry import tree_function
from ..storage.files import clear_partial, write_named
from ..storage.output_paths import output_folder, resolved
from ..storage.sealed_json import FileEntry, file_entry
from ..text.lines import Changed
from ..text.other_formats import check_replaced
from ..text.parallel_check import PairSample, remarks
from .inputs import SPLITS, Inputs, find_inputs, fingerprint_of
from .shard_writer import Block, ShardWriter, id_type
from .shards import (
    FILE_KEYS,
    INDEX_FILE,
    TEXT,
    VALID_TEXT,
    ShardIndex,
    Split,
    SplitEntry,
    differences,
    held_alone,
    hold,
    not_shards,
    open_index,
    with_earlier_defaults,
    write_index,
)
from .tags import Tags
from .tokenizer import Tokenizer, Vocabulary
from .words import WordCounts, WordEncoder, count_words
from .workers import pool

CHUNK = 4000
"""Pairs that a worker encodes at once."""
READ = 20_000
"""Pairs whose words a worker counts at once."""
SIDES = ("source", "target")
REASONS = ("empty", "too_long", "ratio")
"""Why a pair is dropped. If several reasons are true, the first one counts."""


@dataclass(frozen=True)
class Summary:
    """The result of `prepare`. `fresh` is False if the shards existed already and nothing was done."""

    folder: Path
    index: ShardIndex
    fresh: bool
    seconds: float
    replaced: dict[str, int] = field(default_factory=dict)
    """Lines with invalid UTF-8, by file."""
    changed: dict[str, Changed] = field(default_factory=dict)
    """What normalisation changes in the training and validation text, by side; {} if the shards existed already."""

    def to_dict(self) -> dict[str, Any]:
        skipped = {"data", "inputs", "files"}
        return {
            "folder": str(self.folder),
            "fresh": self.fresh,
            "seconds": round(self.seconds, 3),
            "replaced": self.replaced,
            "changed": {side: asdict(changed) for side, changed in self.changed.items()},
            **self.index.model_dump(exclude=skipped),
        }


def prepare(
    recipe: Recipe, data_dirs: Sequence[Path], out: Path, force: bool = False, workers: int | None = None
) -> Summary:
    """Build the shards of a recipe in the folder `out`, unless it holds them already.

    `data_dirs` are the folders that are searched for the recipe's files; the first one that holds a file counts.
    `workers` is the number of processes that encode; None means one per core. Raises `DataError` if inputs are missing,
    damaged, not parallel or all filtered out, if `out` holds other files or shards, and if the shards cannot be
    written. Raises UsageError, with `force`, if `out` is not a folder of unchanged shards and nothing else.
    """
    started = time.monotonic()
    with find_inputs(recipe.data, data_dirs) as inputs:
        if terminals := recipe.data.terminals:
            tree_function("check")([*inputs.files["train_target"], *inputs.files["valid_target"]], terminals)
        entries = inputs.entries()
        _check_not_empty(inputs, entries)
        names = _names_in(out)
        if names and not force:
            return Summary(out, _earlier(recipe, out, names, inputs, entries), False, time.monotonic() - started)
        replaced: Counter[str] = Counter()
        sources = [path for paths in inputs.files.values() for path in paths]
        with (
            held_alone(resolved(out, "the shards")),
            output_folder(out, "the folder of shards", not_shards, sources) as folder,
        ):
            index, changed = _build(recipe, inputs, folder, workers or cores(), replaced, entries)
            write_index(folder, index)
    return Summary(out, index, True, time.monotonic() - started, dict(replaced), changed)


def _names_in(out: Path) -> list[str]:
    """Return the names in the folder; earlier shards that a killed command renamed get them back. Raises DataError."""
    with writing(out, "the shards"):
        real = resolved(out, "the shards")
        if real.parent.is_dir():
            clear_partial(real.parent, [real.name])
        return sorted(os.listdir(out)) if out.exists() else []


def _check_not_empty(inputs: Inputs, entries: dict[str, list[FileEntry]]) -> None:
    """Raise DataError if all files of a split are named and hold nothing."""
    for split, what, way_out in (
        ("train", "training", ""),
        ("valid", "validation", ", or train without: data.valid_source = [] and data.valid_target = []"),
    ):
        roles = [f"{split}_{side}" for side in SIDES]
        if inputs.files[roles[0]] and not any(entry.bytes for role in roles for entry in entries[role]):
            files = listed([repr(str(path)) for role in roles for path in inputs.files[role]])
            raise DataError(
                f"the {what} text is empty: {files} hold no lines. Write its sentences to these files, one per line, "
                f"or name other ones in {' and '.join(f'data.{role}' for role in roles)}{way_out}."
            )


def _build(
    recipe: Recipe,
    inputs: Inputs,
    folder: Path,
    workers: int,
    replaced: Counter[str],
    entries: dict[str, list[FileEntry]],
) -> tuple[ShardIndex, dict[str, Changed]]:
    """Write shards and vocabulary into `folder`. Return their index, and for each side what normalisation changes."""
    languages = ("", "") if recipe.data.terminals else (recipe.data.source_language, recipe.data.target_language)
    counts, words = _read(inputs, workers, recipe.data.joint_vocab, replaced, languages)
    console.warn_replaced(replaced)
    vocabulary = _vocabulary(recipe.data, inputs, words, workers)
    _check_tags(vocabulary, recipe.data)
    changed = {side: Changed() for side in SIDES}
    splits = {
        split: _encode(recipe.data, inputs, split, counts[split], vocabulary, folder, workers, changed)
        for split in SPLITS
    }
    vocabulary.save(folder)
    if inputs.generated is not None:
        (folder / TEXT).mkdir()
        for path in sorted(inputs.generated.iterdir()):
            write_named(folder / TEXT / path.name, path.read_bytes(), "the demo corpus")
    texts = [f"{TEXT}/{path.name}" for path in sorted((folder / TEXT).glob("*"))]
    index = ShardIndex(
        recipe=recipe.name,
        data=recipe.data.model_dump(),
        joint=vocabulary.joint,
        source_size=vocabulary.source_size,
        target_size=vocabulary.target_size,
        tokenizer_sha256=vocabulary.sha256,
        splits=splits,
        files=[file_entry(folder / name, name) for name in (*vocabulary.files, *VALID_TEXT, *texts)],
        inputs=entries,
        fingerprint=fingerprint_of(recipe.data, entries),
    )
    return index, changed


def _earlier(
    recipe: Recipe, out: Path, names: Sequence[str], inputs: Inputs, entries: dict[str, list[FileEntry]]
) -> ShardIndex:
    """Return the index of `out` if it holds exactly these shards. Raises DataError otherwise.

    If the files have other names than before, the index gets these names. `names` are those in `out`.
    """
    if INDEX_FILE not in names:
        raise DataError(
            f"the folder {str(out)!r} is not empty and holds no {INDEX_FILE} but {listed(names)}. Choose another --out."
        )
    index = open_index(out)
    data = with_earlier_defaults(recipe, index).data
    entries = inputs.with_earlier_hashes(entries, index.inputs)
    before = data.model_copy(update={key: index.data[key] for key in FILE_KEYS if key in index.data})
    if index.fingerprint == fingerprint_of(before, entries):
        return index if before == data else _renamed(index, out, data, entries)
    differ = differences(index, recipe.model_copy(update={"data": before}))
    changes = [f"data.{key}: was {was!r}, is {now!r}" for key, (was, now) in differ.items()]
    for role in sorted({*index.inputs, *entries}):
        was, now = (side.get(role, []) for side in (index.inputs, entries))
        if [entry.sha256 for entry in was] != [entry.sha256 for entry in now]:
            renamed = [entry.file for entry in was] != [entry.file for entry in now]
            known = f"{_files(now)} is not known to hold the text of {_files(was)}"
            changes.append(f"{role}: " + (known if renamed else f"the contents of {_files(now)} have changed"))
    raise DataError(
        f"the folder {str(out)!r} holds other shards (recipe {index.recipe!r}):\n"
        + "".join(f"  - {change}\n" for change in changes)
        + "Give --force to replace the shards there, or another --out."
    )


def _files(entries: Sequence[FileEntry]) -> str:
    return listed([repr(entry.file) for entry in entries])


def _renamed(index: ShardIndex, out: Path, data: DataSection, entries: dict[str, list[FileEntry]]) -> ShardIndex:
    """Write the present names of the files into the index, and return it."""
    names = {key: getattr(data, key) for key in FILE_KEYS}
    update = {"data": {**index.data, **names}, "inputs": entries, "fingerprint": fingerprint_of(data, entries)}
    with hold(out):  # no other nmt preprocess writes there
        write_index(out, index := index.model_copy(update=update))
    return index


# --- text to shards -------------------------------------------------------------------------------------------------


def _counted(joint: bool, chunk: list[tuple[str, str]]) -> list[Counter[str]]:
    """Return the counts of the words of some pairs, for each vocabulary. Runs while the text is read the first time."""
    source, target = zip(*chunk, strict=True)
    return [count_words(source + target)] if joint else [count_words(source), count_words(target)]


def _read(
    inputs: Inputs, workers: int, joint: bool, replaced: Counter[str], languages: Sequence[str]
) -> tuple[dict[Split, int], list[WordCounts]]:
    """Return the number of pairs in each split, and the words of the training text for each vocabulary to be learned.

    The text is read completely, so that every error in the files is found before hours of work. `languages` are those
    of source and target, two empty names if the target is no text.
    """
    words = [WordCounts() for _ in range(0 if inputs.tokenizer else 1 if joint else 2)]
    samples = {split: PairSample() for split in SPLITS}
    pairs: dict[Split, int] = {
        "train": 0,
        "valid": sum(1 for _ in samples["valid"].over(inputs.pairs("valid", replaced))),
    }
    with (
        console.progress(None, "reading train", " pairs") as bar,
        pool(partial(_counted, joint), workers if words else 1) as run,
    ):
        chunks = _chunks(samples["train"].over(inputs.pairs("train", replaced)), READ)
        for chunk, counts in run(chunks) if words else ((chunk, []) for chunk in chunks):
            pairs["train"] += len(chunk)
            for held, counted in zip(words, counts, strict=True):
                held.add(counted)
            bar.update(len(chunk))
    check_replaced(replaced)
    for split, sample in samples.items():
        for remark in remarks(sample, [inputs.files[f"{split}_{side}"] for side in SIDES], languages):
            console.warn(remark)
    return pairs, words


def _chunks(pairs: Iterator[tuple[str, str]], size: int) -> Iterator[list[tuple[str, str]]]:
    return iter(lambda: list(itertools.islice(pairs, size)), [])


def _vocabulary(data: DataSection, inputs: Inputs, words: list[WordCounts], workers: int) -> Vocabulary:
    if inputs.tokenizer is None:
        chosen = [held.most_frequent() for held in words]
        words.clear()  # free their memory
        with pool(partial(Vocabulary.learn, data=data), workers) as run:  # in a process that Ctrl-C can end at once
            return next(iter(run([chosen])))[1]
    if inputs.tokenizer.is_dir():
        vocabulary = Vocabulary.load(inputs.tokenizer)
    else:
        both = Tokenizer.load(inputs.tokenizer)
        vocabulary = Vocabulary(both, both)
    _check_vocabulary(vocabulary, data)
    return vocabulary


def _check_vocabulary(vocabulary: Vocabulary, data: DataSection) -> None:
    """Raise DataError unless the tokenizers that `data.tokenizer` names are such as the other keys say."""
    separate = vocabulary.shared and not vocabulary.joint
    one = "two tokenizers over one joint vocabulary" if separate else "two vocabularies"
    has = "one joint vocabulary" if vocabulary.joint else one
    if data.separate_tokenizers:
        key, fits = "separate_tokenizers", separate
    else:  # two tokenizers of equal tokens may also be those of a model with two embeddings
        key, fits = "joint_vocab", vocabulary.joint == data.joint_vocab
    if fits:
        return
    value = str(getattr(data, key)).lower()
    remedy = "set data.separate_tokenizers = true" if separate else "change one of them"
    raise DataError(f"data.tokenizer = {data.tokenizer!r} holds {has}, but data.{key} = {value}: {remedy}.")


def _check_tags(vocabulary: Vocabulary, data: DataSection) -> None:
    """Raise DataError if the vocabulary has tags of target languages, and none for that of the recipe."""
    tags = Tags(vocabulary.source, data.target_language)
    if tags and not tags.default:
        raise DataError(
            f"data.target_language = {data.target_language!r}: the model with data.tokenizer = {data.tokenizer!r} "
            f"translates into {tags.listed()}. Set data.target_language to one of them."
        )


@dataclass
class _Encoded:
    block: Block
    kept: list[int]
    dropped: dict[str, int]
    changed: list[Changed]
    """For source and target."""


class _Encoder:
    """Encodes and filters a chunk of pairs. It runs in the workers."""

    def __init__(self, vocabulary: Vocabulary, data: DataSection, split: Split) -> None:
        self.data, self.split = data, split
        self.tags = Tags(vocabulary.source, data.target_language)
        self.dtype = id_type(vocabulary.source_size, vocabulary.target_size)
        source = WordEncoder(vocabulary.source)
        self.encoders = (source, source if vocabulary.joint else WordEncoder(vocabulary.target))

    def __call__(self, chunk: list[tuple[str, str]]) -> _Encoded:
        texts = list(zip(*chunk, strict=True))
        if self.tags:
            codes, texts[0] = zip(*map(self.tags.split, texts[0]), strict=True)
        sides = [encoder.encode(side) for encoder, side in zip(self.encoders, texts, strict=True)]
        changed = [_changed(encoder.tokenizer, side) for encoder, side in zip(self.encoders, texts, strict=True)]
        (source, source_lengths), (target, target_lengths) = sides
        if self.tags:
            source, source_lengths = _tagged(source, source_lengths, [self.tags.ids[code] for code in codes])
        why = reasons(source_lengths, target_lengths, self.data, self.split)
        kept = why == ""
        source, target = source[np.repeat(kept, source_lengths)], target[np.repeat(kept, target_lengths)]
        lengths = [side[kept].astype(np.int32) for side in (source_lengths, target_lengths)]
        block = Block(source.astype(self.dtype), target.astype(self.dtype), *lengths)
        dropped = {reason: int((why == reason).sum()) for reason in REASONS}
        return _Encoded(block, np.flatnonzero(kept).tolist(), dropped, changed)


def _tagged(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], tags: Sequence[int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return texts and their lengths with a tag before each text that has tokens.  # (N,), (texts,)"""
    some = lengths > 0
    starts = np.cumsum(lengths) - lengths
    return np.insert(ids, starts[some], np.array(tags, np.int32)[some]), lengths + some


def _changed(tokenizer: Tokenizer, texts: Sequence[str]) -> Changed:
    """Return what normalisation changes in one side of a chunk."""
    changed = Changed()
    keeps_ascii = tokenizer.normalized("A") == "A"
    for text in texts:
        if not (keeps_ascii and text.isascii() and text.isprintable()):
            changed.add(text, tokenizer.normalized(text))
    return changed


def reasons(source: NDArray[np.int64], target: NDArray[np.int64], data: DataSection, split: Split) -> NDArray[np.str_]:
    """Return the reason why each pair is dropped: one of REASONS, or "" if the pair is kept.  # (pairs,)

    `source` and `target` are lengths in tokens. From the validation text only pairs with an empty
    side are dropped, because they cannot be scored.
    """
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    if split == "valid":
        return np.where(shorter > 0, "", "empty")
    conditions = (shorter < data.min_length, longer > data.max_length, (longer + 1) / (shorter + 1) > data.max_ratio)
    return np.select(conditions, REASONS, "")


def _encode(
    data: DataSection,
    inputs: Inputs,
    split: Split,
    pairs: int,
    vocabulary: Vocabulary,
    folder: Path,
    workers: int,
    changed: dict[str, Changed],
) -> SplitEntry:
    writer = ShardWriter(folder, split, data.shard_pairs, id_type(vocabulary.source_size, vocabulary.target_size))
    dropped: Counter[str] = Counter()
    text: list[tuple[str, str]] = []
    chunks = _chunks(inputs.pairs(split), CHUNK)
    workers = min(workers, -(-pairs // CHUNK))
    with (
        console.progress(pairs, f"encoding {split}", " pairs") as bar,
        pool(_Encoder(vocabulary, data, split), workers) as run,
    ):
        for chunk, encoded in run(chunks):
            writer.write(encoded.block)
            dropped.update(encoded.dropped)
            for which, lines in zip(SIDES, encoded.changed, strict=True):
                changed[which].include(lines)
            if split == "valid":
                text += (chunk[i] for i in encoded.kept)
            bar.update(len(chunk))
    if split == "valid":
        for side, name in enumerate(VALID_TEXT):
            write_named(folder / name, "".join(f"{pair[side]}\n" for pair in text).encode(), "the validation text")
    entry = writer.close(pairs, dict(dropped))
    if pairs and not entry.pairs:
        why = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items())
        raise DataError(
            f"all {pairs:,} {split} pairs were dropped ({why}). Check that the files are what they should be, "
            f"and data.min_length = {data.min_length}, max_length = {data.max_length}, max_ratio = {data.max_ratio:g}."
        )
    return entry
