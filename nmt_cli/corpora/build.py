"""A data set from its archives to the files that `nmt preprocess` reads.

    table ──▶ fetch what is missing ──▶ look through each archive ──▶ text by text: join, drop empty, write aside, rename
      └── manifest: complete? nothing to do; else it goes on with the texts that are not recorded

Cleaning is the paper's, no more (section 5.1 names the corpora and nothing else): the corpora are joined in the table's
order; a training pair with an empty side is dropped and counted; a line is what `data.lines` says. Length and ratio are
`nmt preprocess`'s care. Test sets keep every line, and their number must be right. Text streams from the archives
through one line at a time, so memory does not grow with the corpus (`split` alone holds its pairs). The same archives
give the same bytes: gzip without time or name.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from .. import console
from ..errors import DataError, write_failed
from ..files import clear_partial, lock, new_files, sha256
from ..lines import decode_line, iter_lines, read_pairs
from . import split, sums
from .archives import check_holds, contents, open_member
from .dataset import Archive, Dataset, Split, Text, archives_of, outputs
from .download import Fetched, fetch
from .manifest import NAME, ArchiveEntry, FileEntry, Manifest, TextEntry, load
from .sgm import segments

LEVEL = 4
"""Of gzip: half the time of its usual 6, for a twentieth more bytes."""
BUFFER = 1 << 20
"""Bytes compressed at once."""
CHUNK = 10_000
"""Pairs between two steps of the bar."""


@dataclass(frozen=True)
class Summary:
    """What `lay` did. `fresh` False: everything was there already."""

    name: str
    folder: Path
    fresh: bool
    seconds: float
    manifest: Manifest

    def to_dict(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "fresh": self.fresh, "seconds": round(self.seconds, 3), **self.manifest.model_dump()}


def lay(name: str, dataset: Dataset, out: Path, downloads: Path, mirrors: Sequence[str] = (), verify: bool = True, keep: bool = True) -> Summary:
    """Fetch a data set and write its files into `out`, or find that they are there.

    Archives come into `downloads`; `keep` False: they are removed at the end. `mirrors`, `verify`: see `download.fetch`.
    Raises DataError for what cannot be fetched, is not what it should be, or cannot be written.
    """
    started = time.monotonic()
    try:
        with _locked(out):
            fresh, manifest = _lay(name, dataset, out, downloads, mirrors, verify)
            if not keep:
                _remove_archives(dataset, downloads, manifest)
    except OSError as error:
        raise DataError(f"cannot work on {str(error.filename or out)!r}: {error.strerror or error}.") from None
    return Summary(name, out, fresh, time.monotonic() - started, manifest)


def _lay(name: str, dataset: Dataset, out: Path, downloads: Path, mirrors: Sequence[str], verify: bool) -> tuple[bool, Manifest]:
    """Whether anything had to be done, and the manifest of what is there now."""
    manifest = _begun(name, dataset, out)
    texts = {_fingerprint(text, dataset): text for text in dataset.texts}
    manifest.texts = [entry for entry in manifest.texts if entry.fingerprint in texts and _whole(entry, out)]
    done = {entry.fingerprint for entry in manifest.texts}
    fresh = len(done) < len(texts)
    if fresh:
        manifest.complete = False
        manifest.save(out)
        todo = {fingerprint: text for fingerprint, text in texts.items() if fingerprint not in done}
        paths = _fetch_all(todo.values(), downloads, mirrors, verify, manifest)
        manifest.save(out)
        for fingerprint, text in todo.items():
            manifest.texts.append(_write(text, dataset, out, paths, fingerprint))
            manifest.save(out)
    if not manifest.complete:
        manifest.complete = True
        manifest.save(out)
    return fresh, manifest


# --- what is there ----------------------------------------------------------------------------------------------------


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """The folder is there, and no other command of this kind writes to it meanwhile."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out, os.O_RDONLY)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{str(out)!r} is a file or lies below one, expected a folder: choose another --out.") from None
    except OSError as error:
        raise write_failed(error, out, "the data set") from None
    try:
        if not lock(handle):
            raise DataError(f"another nmt data is writing to {str(out)!r} just now: let it finish, or choose another --out.")
        yield
    finally:
        os.close(handle)


def _begun(name: str, dataset: Dataset, out: Path) -> Manifest:
    """The manifest of the folder, or a new one; what a killed command left half-written is gone.

    Raises DataError where files of others would be overwritten.
    """
    manifest = load(out)
    if manifest is None:
        files = [file for text in dataset.texts for file in outputs(text, dataset.languages)]
        others = [file for file in files if (out / file).exists()]
        if others:
            raise DataError(f"{str(out)!r} holds {others[0]!r} already, and no {NAME}: it was not written by nmt data. Choose another --out, or move the file away.")
        return Manifest(dataset=name)
    if manifest.dataset != name:
        raise DataError(f"{str(out)!r} holds the data set {manifest.dataset!r}, not {name!r}: choose another --out.")
    written = [out / NAME, *(out / file for text in dataset.texts for file in outputs(text, dataset.languages))]
    for folder in {path.parent for path in written}:
        if folder.is_dir():
            clear_partial(folder, [path.name for path in written if path.parent == folder])
    return manifest


def _whole(entry: TextEntry, out: Path) -> bool:
    """Whether a text's files are all there; raises DataError for one that has been changed."""
    there = [file for file in entry.files if (out / file.file).exists()]
    for file in there:
        if (out / file.file).stat().st_size != file.bytes or sha256(out / file.file) != file.sha256:
            raise DataError(f"{str(out / file.file)!r} has been changed since it was written. Move it away to have it made again, or choose another --out.")
    return len(there) == len(entry.files)


def _fingerprint(text: Text | Split, dataset: Dataset) -> str:
    """What a text is made from and how; addresses and checksums of the archives are left out."""
    files = outputs(text, dataset.languages)
    if isinstance(text, Split):
        made: list[Any] = [text.archive.name, text.member, split.SEED, split.HELD_OUT]
    else:
        made = [[(archive.name, member) for archive, member in (part.source, part.target)] for part in text.parts]
        made += [text.training, text.lines]
    return hashlib.sha256(repr((files, made)).encode()).hexdigest()[:16]


# --- archives ---------------------------------------------------------------------------------------------------------


def _fetch_all(texts: Iterable[Text | Split], downloads: Path, mirrors: Sequence[str], verify: bool, manifest: Manifest) -> dict[Archive, Path]:
    """Every archive that `texts` need, here and looked through; all are looked through before any text is written."""
    texts = list(texts)
    archives = list(dict.fromkeys(archive for text in texts for archive in archives_of(text)))
    try:
        downloads.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failed(error, downloads, "the archives") from None
    paths: dict[Archive, Path] = {}
    for number, archive in enumerate(archives, 1):
        fetched = fetch(archive, downloads, mirrors, verify)
        console.say(f"archive {number} of {len(archives)}: {fetched.path.name}, {fetched.path.stat().st_size / 1e6:,.1f} MB, {_told(fetched)}")
        paths[archive] = fetched.path
        entry = ArchiveEntry(file=fetched.path.name, url=fetched.url, sha256=fetched.sha256, verified=fetched.verified)
        earlier = next((old for old in manifest.archives if old.file == entry.file), None)
        if earlier is not None and entry.url is None and earlier.sha256 == entry.sha256:
            entry.url = earlier.url
        manifest.archives = [*(old for old in manifest.archives if old.file != entry.file), entry]
        manifest.archives.sort(key=lambda known: known.file)
    with console.progress(len(paths), "looking through the archives", scale=False) as bar:
        for archive, path in paths.items():
            check_holds(path, contents(path), [member for text in texts for one, member in _members(text) if one == archive])
            bar.update()
    return paths


def _told(fetched: Fetched) -> str:
    return f"{'was here' if fetched.url is None else 'fetched'}, {'checksum right' if fetched.verified else 'not verified'}"


def _members(text: Text | Split) -> Iterator[tuple[Archive, str]]:
    if isinstance(text, Split):
        yield text.archive, text.member
        return
    for part in text.parts:
        yield part.source
        yield part.target


def _remove_archives(dataset: Dataset, downloads: Path, manifest: Manifest) -> None:
    """Remove the archives that were fetched and are as they came; one that lay there before stays."""
    fetched = {entry.file: entry.sha256 for entry in manifest.archives if entry.url is not None}
    for archive in dataset.archives:
        for source in archive.sources:
            path = downloads / source.name
            if path.is_file() and not path.is_symlink() and fetched.get(source.name) == sha256(path):
                path.unlink()
                sums.forget(path)


# --- texts ------------------------------------------------------------------------------------------------------------


def _write(text: Text | Split, dataset: Dataset, out: Path, paths: dict[Archive, Path], fingerprint: str) -> TextEntry:
    """One text's files, written aside and renamed once all of it is right."""
    files = outputs(text, dataset.languages)
    counts: Counter[str] = Counter()
    try:
        for file in files:
            (out / file).parent.mkdir(parents=True, exist_ok=True)
        with new_files([out / file for file in files], _check_same) as raw, ExitStack() as stack:
            streams = [stack.enter_context(_packed(stream)) if file.endswith(".gz") else stream for file, stream in zip(files, raw, strict=True)]
            if isinstance(text, Split):
                _write_split(text, paths, streams, counts)
            else:
                _write_pairs(text, paths, streams, counts)
        entries = [FileEntry(file=file, bytes=(out / file).stat().st_size, sha256=sha256(out / file), lines=counts[f"lines {place}"]) for place, file in enumerate(files)]
    except OSError as error:
        fault = write_failed(error, out, "the text")
        raise DataError(f"{fault} The archives are kept; the same command goes on there.") from None
    console.say(f"{', '.join(files)}: {_described(text, counts)}")
    return TextEntry(fingerprint=fingerprint, files=entries, read=counts["read"], dropped=counts["dropped"], replaced=counts["replaced"])


def _check_same(aside: Path, path: Path) -> None:
    """Raise DataError where `path` is neither what a killed command had written nor, as that is the same, what `aside` holds."""
    if sha256(aside) != sha256(path):
        raise DataError(f"{str(path)!r} would be replaced, and no nmt data wrote it. Move it away, or choose another --out.")


def _described(text: Text | Split, counts: Counter[str]) -> str:
    said = f"{counts['read']:,} pairs"
    if isinstance(text, Split):
        said += f", {counts['lines 2']:,} each held out for validation and test"
    elif text.training:
        said += f"; {counts['dropped']:,} with an empty side dropped"
    return said + (f"; {counts['replaced']:,} lines held invalid UTF-8, replaced by U+FFFD" if counts["replaced"] else "")


def _write_pairs(text: Text, paths: dict[Archive, Path], streams: Sequence[BinaryIO], counts: Counter[str]) -> None:
    source_file, target_file = streams
    with console.progress(None, text.files[0], " pairs") as bar:
        for source, target in _pairs(text, paths, counts):
            counts["read"] += 1
            if counts["read"] % CHUNK == 0:
                bar.update(CHUNK)
            if text.training and not (source.strip() and target.strip()):
                counts["dropped"] += 1
                continue
            source_file.write(source.encode() + b"\n")
            target_file.write(target.encode() + b"\n")
    if text.lines not in (None, counts["read"]):
        where = ", ".join(str(paths[part.source[0]]) for part in text.parts)
        raise DataError(f"{text.files[0]!r} and {text.files[1]!r} come to {counts['read']:,} lines, expected {text.lines:,}: {where!r} is not the archive that it should be. Remove it to have it fetched again.")
    if not counts["read"] - counts["dropped"]:
        raise DataError(f"{text.files[0]!r} and {text.files[1]!r} come to no pair at all: {counts['read']:,} were read. Are the archives what they should be?")
    counts["lines 0"] = counts["lines 1"] = counts["read"] - counts["dropped"]


def _pairs(text: Text, paths: dict[Archive, Path], counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """The pairs of all parts. Raises DataError where the sides of a part differ in their number of lines."""
    for part in text.parts:
        replaced: Counter[str] = Counter()
        with _side(*part.source, paths) as (source_name, source), _side(*part.target, paths) as (target_name, target):
            yield from read_pairs(source_name, source, target_name, target, replaced)
        counts["replaced"] += replaced.total()


@contextmanager
def _side(archive: Archive, member: str, paths: dict[Archive, Path]) -> Iterator[tuple[str, BinaryIO]]:
    """A side of a part as a stream of lines, and its name."""
    path = paths[archive]
    name = f"{path}:{member}" if member else str(path)
    with open_member(path, member) as stream:
        if member.endswith(".sgm"):
            yield name, io.BytesIO("".join(f"{line}\n" for line in segments(stream, name)).encode())
        else:
            yield name, stream


def _write_split(text: Split, paths: dict[Archive, Path], streams: Sequence[BinaryIO], counts: Counter[str]) -> None:
    path = paths[text.archive]
    with open_member(path, text.member) as stream:
        decoded = [decode_line(raw) for raw in iter_lines(stream)]
    counts["replaced"] = sum(replaced for _, replaced in decoded)
    pairs = split.read_pairs((line for line, _ in decoded), f"{path}:{text.member}")
    counts["read"] = len(pairs)
    for (place, pair_of), parts in zip(itertools.product(range(3), (0, 1)), _sides(split.cut(pairs)), strict=True):
        counts[f"lines {place * 2 + pair_of}"] = len(parts)
        streams[place * 2 + pair_of].writelines(f"{line}\n".encode() for line in parts)


def _sides(parts: dict[str, list[split.Pair]]) -> Iterator[list[str]]:
    for name in ("train", "valid", "test"):
        yield [source for source, _ in parts[name]]
        yield [target for _, target in parts[name]]


@contextmanager
def _packed(stream: BinaryIO) -> Iterator[BinaryIO]:
    """A stream that compresses into another, always to the same bytes."""
    packed = gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=LEVEL, mtime=0)
    with packed, io.BufferedWriter(cast(io.RawIOBase, packed), BUFFER) as buffered:
        yield buffered
