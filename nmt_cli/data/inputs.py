"""The input files of the shards: this module finds them, reports missing ones, and hashes their contents.

    recipe [data] + --data-dir … ──▶ find_inputs ──▶ Inputs: paths by role, the pairs of a split, a hash of every file

The demo corpus is written to a temporary folder and then read like any other text.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError, did_you_mean, listed, writing
from ..recipe import DataSection
from ..storage.sealed_json import FileEntry, file_entry
from ..text.lines import BUFFER, open_binary, read_parallel
from ..text.other_formats import check_text_files
from .shards import FILE_KEYS, TEXT, Split

ROLES = FILE_KEYS[:4]
SPLITS: tuple[Split, ...] = ("train", "valid")
LATER = {"target_vocab_size": 0, "target_character_coverage": 0.0, "target_tokenization": "bpe", "terminals": ""}
"""Keys of [data] that earlier versions did not have. Each value stands for the behaviour of those versions, so their
shards stay valid."""
HASHED_AS = {"target_tokenization": "target_pieces"}
"""Keys of [data] that have been renamed. They are hashed under their first name, so earlier shards stay valid."""


@dataclass(frozen=True)
class Inputs:
    """The input files of the shards. They exist and are plain files."""

    files: dict[str, list[Path]]
    """Paths by role (ROLES)."""
    names: dict[str, list[str]]
    """The names of the same files in the recipe, by role."""
    tokenizer: Path | None = None
    generated: Path | None = None
    """The folder of generated text, which is stored beside the shards."""

    def pairs(self, split: Split, replaced: Counter[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield the pairs of a split; see `read_parallel`."""
        return read_parallel(self.files[f"{split}_source"], self.files[f"{split}_target"], replaced)

    def entries(self) -> dict[str, list[FileEntry]]:
        """Return the size and hash of every input file, by role: of compressed text, those of the unpacked text."""
        entries = {
            role: [text_entry(path, name) for path, name in zip(self.files[role], self.names[role], strict=True)]
            for role in ROLES
        }
        if self.tokenizer is not None:
            models = sorted(self.tokenizer.glob("tokenizer*.model")) if self.tokenizer.is_dir() else [self.tokenizer]
            entries["tokenizer"] = [file_entry(path) for path in models]
        return entries

    def with_earlier_hashes(
        self, entries: dict[str, list[FileEntry]], earlier: dict[str, list[FileEntry]]
    ) -> dict[str, list[FileEntry]]:
        """Return `entries` with the hashes in `earlier` of the same compressed files, which it did not unpack."""
        entries = {role: list(files) for role, files in entries.items()}
        for role in ROLES:
            for i, (path, was) in enumerate(zip(self.files[role], earlier.get(role, []), strict=False)):
                if entries[role][i].sha256 != was.sha256 == file_entry(path).sha256:
                    entries[role][i] = was.model_copy(update={"file": entries[role][i].file})
        return entries


def text_entry(path: Path, name: str) -> FileEntry:
    """Return the size and SHA-256 of a plain or compressed file's text. Raises DataError."""
    digest, size = hashlib.sha256(), 0
    with open_binary(path) as stream:
        while block := stream.read(BUFFER):
            digest.update(block)
            size += len(block)
    return FileEntry(file=name, bytes=size, sha256=digest.hexdigest())


@contextmanager
def find_inputs(data: DataSection, data_dirs: Sequence[Path]) -> Iterator[Inputs]:
    """Find each of the recipe's files in the first of `data_dirs` that holds it, or write the demo corpus.

    Raises DataError with every missing file, and with every file that is not text.
    """
    tokenizer = _find_tokenizer(data, data_dirs)
    if not data.generator:
        names: dict[str, list[str]] = {role: getattr(data, role) for role in ROLES}
        found = {role: _find(names[role], data_dirs) for role in ROLES}
        check_text_files([path for role in ROLES for path in found[role]])
        yield Inputs(found, names, tokenizer)
        return
    from .demo_corpus import LANGUAGES, write_corpus

    sides = {"source": data.source_language, "target": data.target_language}
    if others := sorted(set(sides.values()).difference(LANGUAGES)):
        raise DataError(
            f"the demo corpus is in {' and '.join(LANGUAGES)}, not in {' and '.join(map(repr, others))}: correct "
            "data.source_language and data.target_language."
        )
    files = {f"{split}_{side}": [f"{split}.{language}"] for split in SPLITS for side, language in sides.items()}
    with tempfile.TemporaryDirectory(prefix="nmt-") as folder:
        with writing(Path(folder), "the demo corpus"):
            write_corpus(Path(folder))
        yield Inputs(
            {role: [Path(folder) / name for name in names] for role, names in files.items()},
            {role: [f"{TEXT}/{name}" for name in names] for role, names in files.items()},
            tokenizer,
            Path(folder),
        )


def _find(names: Sequence[str], data_dirs: Sequence[Path]) -> list[Path]:
    """Return the paths of a recipe's files. Raises DataError with every missing file and similar names."""
    if not data_dirs and any(not Path(name).is_absolute() for name in names):
        raise DataError(
            f"the recipe's files ({listed(names)}) need a folder: give --data-dir DIR, the folder that contains them."
        )
    candidates = [[folder / name for folder in data_dirs or [Path()]] for name in names]
    paths = [next((path for path in choices if os.path.isfile(path)), choices[0]) for choices in candidates]
    missing = [
        _missing(path)
        for path, choices in zip(paths, candidates, strict=True)
        if not os.path.isfile(path)
        for path in dict.fromkeys(choices)
    ]
    if missing:
        raise DataError("\n".join(missing))
    return paths


def _missing(path: Path) -> str:
    if os.path.exists(path):
        return f"{str(path)!r} is not a plain file; it is read more than once, so it cannot be a folder or a pipe."
    try:
        names = sorted(os.listdir(path.parent))
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no file {str(path)!r}: the folder {str(path.parent)!r} does not exist. Check --data-dir."
    except OSError as error:
        return f"cannot look for {str(path)!r}: {error.strerror}."
    held = listed(names) or "nothing"
    return f"there is no file {str(path)!r}.{did_you_mean(path.name, names, most=3) or f' Its folder holds: {held}.'}"


def _find_tokenizer(data: DataSection, data_dirs: Sequence[Path]) -> Path | None:
    if not data.tokenizer:
        return None
    paths = list(dict.fromkeys([*(folder / data.tokenizer for folder in data_dirs), Path(data.tokenizer)]))
    for path in paths:
        if path.exists():
            return path
    raise DataError(
        f"data.tokenizer = {data.tokenizer!r}: there is no such file; looked for "
        f"{' and '.join(repr(str(path)) for path in paths)}."
    )


def fingerprint_of(data: DataSection, entries: dict[str, list[FileEntry]]) -> str:
    """Return a hash of the inputs' contents and of [data] without shard_pairs."""
    contents = {role: [entry.sha256 for entry in files] for role, files in entries.items()}
    left_out = {"shard_pairs", *(key for key, usual in LATER.items() if getattr(data, key) == usual)}
    values = {HASHED_AS.get(key, key): value for key, value in data.model_dump(exclude=left_out).items()}
    return hashlib.sha256(json.dumps([values, contents], sort_keys=True).encode()).hexdigest()
