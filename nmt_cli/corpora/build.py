"""Builds a data set: from its archives to the files that `nmt preprocess` reads.

    Dataset ──▶ download missing archives ──▶ check each ──▶ for each text: join, drop empty, write aside, rename
      └── manifest: complete? nothing to do; otherwise it resumes with the texts that are not recorded

The text is cleaned no more than in the paper (section 5.1 names only the corpora). The corpora are joined in the data
set's order, and a training pair with an empty side is dropped and counted. `nmt preprocess` filters by length and
ratio. Test sets keep every line, and their number of lines is checked. Joined is streamed line by line, so memory does
not grow with the corpus; only `split` holds its pairs. The same archives give the same bytes, because `compressing`
writes no time or name.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .. import console
from ..errors import DataError, write_failed
from ..storage.files import Lock, clear_partial, sha256
from ..storage.output_paths import output_files
from ..text.compression import compressing
from ..text.lines import decode_line, iter_lines, read_pairs
from . import split
from .archives import check_holds, contents, open_member
from .dataset import Archive, Dataset, Joined, Split, members_of, outputs
from .download import fetch
from .manifest import NAME, ArchiveEntry, Manifest, TextEntry, WrittenFile, load
from .sgm import segments

CHUNK = 10_000
"""Pairs between two steps of the progress bar."""


@dataclass(frozen=True)
class Built:
    """The result of `build_dataset`. `fresh` is False if everything existed already."""

    name: str
    folder: Path
    fresh: bool
    seconds: float
    manifest: Manifest

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "fresh": self.fresh,
            "seconds": round(self.seconds, 3),
            **self.manifest.model_dump(),
        }


def build_dataset(
    name: str,
    dataset: Dataset,
    out: Path,
    downloads: Path,
    mirrors: Sequence[str] = (),
    verify: bool = True,
    keep: bool = True,
) -> Built:
    """Download a data set and write its files into `out`, unless they exist already.

    Archives are stored in `downloads`, and removed at the end if `keep` is False. For `mirrors` and `verify`
    see `download.fetch`. Raises DataError if an archive cannot be downloaded or has other contents than expected, and
    if `out` cannot be written.
    """
    started = time.monotonic()
    try:
        with _locked(out):
            fresh, manifest = _build(name, dataset, out, downloads, mirrors, verify)
            if not keep:
                _remove_archives(dataset, downloads, manifest)
    except OSError as error:
        raise DataError(f"cannot work on {str(error.filename or out)!r}: {error.strerror or error}.") from None
    return Built(name, out, fresh, time.monotonic() - started, manifest)


def _build(
    name: str, dataset: Dataset, out: Path, downloads: Path, mirrors: Sequence[str], verify: bool
) -> tuple[bool, Manifest]:
    """Write the missing texts. Return whether any were missing, and the manifest."""
    manifest = _begun(name, dataset, out)
    texts = {_fingerprint(text, dataset): text for text in dataset.texts}
    manifest.texts = [entry for entry in manifest.texts if entry.fingerprint in texts and _whole(entry, out)]
    done = {entry.fingerprint for entry in manifest.texts}
    fresh = len(done) < len(texts)
    if fresh:
        manifest.complete = False
        manifest.save(out)
        todo = {fingerprint: text for fingerprint, text in texts.items() if fingerprint not in done}
        paths = _fetch_all(todo.values(), downloads, mirrors, verify, manifest, out)
        for fingerprint, text in todo.items():
            manifest.texts.append(_write(text, dataset, out, paths, fingerprint))
            manifest.save(out)
    if not manifest.complete:
        manifest.complete = True
        manifest.save(out)
    return fresh, manifest


# --- the folder ------------------------------------------------------------------------------------------------------


def _locked(out: Path) -> Lock:
    """Create the folder and lock it against other `nmt data` commands. Raises DataError."""
    busy = DataError(f"another nmt data is writing to {str(out)!r} just now: let it finish, or choose another --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        return Lock(out, busy)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{str(out)!r} is a file or is below one, expected a folder: choose another --out.") from None
    except OSError as error:
        raise write_failed(error, out, "the data set") from None


def _begun(name: str, dataset: Dataset, out: Path) -> Manifest:
    """Return the manifest of the folder, or a new one. Remove partial files of a killed command.

    Raises DataError if files that `nmt data` did not write would be overwritten.
    """
    manifest = load(out)
    if manifest is None:
        files = [file for text in dataset.texts for file in outputs(text, dataset.languages)]
        existing = [file for file in files if (out / file).exists()]
        if existing:
            raise DataError(
                f"{str(out)!r} holds {existing[0]!r} already, and no {NAME}: it was not written by nmt data. "
                "Choose another --out, or move the file away."
            )
        return Manifest(dataset=name)
    if manifest.dataset != name:
        raise DataError(f"{str(out)!r} holds the data set {manifest.dataset!r}, not {name!r}: choose another --out.")
    written = [out / NAME, *(out / file for text in dataset.texts for file in outputs(text, dataset.languages))]
    for folder in {path.parent for path in written}:
        if folder.is_dir():
            clear_partial(folder, [path.name for path in written if path.parent == folder])
    return manifest


def _whole(entry: TextEntry, out: Path) -> bool:
    """Return whether all files of a text exist. Raises DataError if a file has been changed."""
    existing = [file for file in entry.files if (out / file.file).exists()]
    for file in existing:
        if (out / file.file).stat().st_size != file.bytes or sha256(out / file.file) != file.sha256:
            raise DataError(
                f"{str(out / file.file)!r} has been changed since it was written. Move it away to have it "
                "written again, or choose another --out."
            )
    return len(existing) == len(entry.files)


def _fingerprint(text: Joined | Split, dataset: Dataset) -> str:
    """Return a hash of how a text is built, without the addresses and checksums of the archives."""
    files = outputs(text, dataset.languages)
    if isinstance(text, Split):
        origin: list[Any] = [text.archive.name, text.member, split.SEED, split.HELD_OUT]
    else:
        origin = [[(archive.name, member) for archive, member in (part.source, part.target)] for part in text.parts]
        origin += [text.training, text.lines]
    return hashlib.sha256(repr((files, origin)).encode()).hexdigest()[:16]


# --- archives ---------------------------------------------------------------------------------------------------------


def _fetch_all(
    texts: Iterable[Joined | Split],
    downloads: Path,
    mirrors: Sequence[str],
    verify: bool,
    manifest: Manifest,
    out: Path,
) -> dict[Archive, Path]:
    """Download and check every archive that `texts` need, before any text is written. Returns their paths."""
    texts = list(texts)
    archives = list(dict.fromkeys(archive for text in texts for archive, _ in members_of(text)))
    try:
        downloads.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failed(error, downloads, "the archives") from None
    paths: dict[Archive, Path] = {}
    for number, archive in enumerate(archives, 1):
        fetched = fetch(archive, downloads, mirrors, verify, {entry.file: entry.sha256 for entry in manifest.archives})
        console.say(
            f"archive {number} of {len(archives)}: {fetched.path.name}, {fetched.path.stat().st_size / 1e6:,.1f} MB, "
            f"{'was here' if fetched.url is None else 'fetched'}, "
            f"{'checksum right' if fetched.verified else 'not verified'}"
        )
        paths[archive] = fetched.path
        entry = ArchiveEntry(file=fetched.path.name, url=fetched.url, sha256=fetched.sha256, verified=fetched.verified)
        earlier = next((old for old in manifest.archives if old.file == entry.file), None)
        if earlier is not None and entry.url is None and earlier.sha256 == entry.sha256:
            entry.url = earlier.url
        manifest.archives = [*(old for old in manifest.archives if old.file != entry.file), entry]
        manifest.archives.sort(key=lambda item: item.file)
        manifest.save(out)
    with console.progress(len(paths), "checking the archives", scale=False) as bar:
        for archive, path in paths.items():
            check_holds(
                path,
                contents(path),
                [member for text in texts for container, member in members_of(text) if container == archive],
            )
            bar.update()
    return paths


def _remove_archives(dataset: Dataset, downloads: Path, manifest: Manifest) -> None:
    """Remove the archives that were downloaded and have not changed since. Archives that existed before stay."""
    fetched = {entry.file: entry.sha256 for entry in manifest.archives if entry.url is not None}
    for archive in dataset.archives:
        for source in archive.sources:
            path = downloads / source.name
            if path.is_file() and not path.is_symlink() and fetched.get(source.name) == sha256(path):
                path.unlink()


# --- texts ------------------------------------------------------------------------------------------------------------


def _write(
    text: Joined | Split, dataset: Dataset, out: Path, paths: dict[Archive, Path], fingerprint: str
) -> TextEntry:
    """Write the files of one text under temporary names, and rename them when all are correct."""
    files = outputs(text, dataset.languages)
    counts: Counter[str] = Counter()
    targets = [out / file for file in files]
    with output_files(targets, "the text", ours=lambda _: "no nmt data wrote it") as raw, ExitStack() as stack:
        streams = [stack.enter_context(compressing(stream, file)) for file, stream in zip(files, raw, strict=True)]
        if isinstance(text, Split):
            _write_split(text, paths, streams, counts)
        else:
            _write_pairs(text, paths, streams, counts)
    entries = [
        WrittenFile(file=file, bytes=path.stat().st_size, sha256=sha256(path), lines=counts[f"lines {index}"])
        for index, (file, path) in enumerate(zip(files, targets, strict=True))
    ]
    console.say(f"{', '.join(files)}: {_described(text, counts)}")
    return TextEntry(
        fingerprint=fingerprint,
        files=entries,
        read=counts["read"],
        dropped=counts["dropped"],
        replaced=counts["replaced"],
    )


def _described(text: Joined | Split, counts: Counter[str]) -> str:
    description = f"{counts['read']:,} pairs"
    if isinstance(text, Split):
        description += f", {counts['lines 2']:,} each held out for validation and test"
    elif text.training:
        description += f"; {counts['dropped']:,} with an empty side dropped"
    return description + (
        f"; {counts['replaced']:,} lines held invalid UTF-8, replaced by U+FFFD" if counts["replaced"] else ""
    )


def _write_pairs(text: Joined, paths: dict[Archive, Path], streams: Sequence[BinaryIO], counts: Counter[str]) -> None:
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
        raise DataError(
            f"{text.files[0]!r} and {text.files[1]!r} come to {counts['read']:,} lines, expected "
            f"{text.lines:,}: {where!r} is not the archive that it should be. Remove it to have it fetched "
            "again."
        )
    if not counts["read"] - counts["dropped"]:
        raise DataError(
            f"{text.files[0]!r} and {text.files[1]!r} come to no pair at all: {counts['read']:,} were read. "
            "Are the archives what they should be?"
        )
    counts["lines 0"] = counts["lines 1"] = counts["read"] - counts["dropped"]


def _pairs(text: Joined, paths: dict[Archive, Path], counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of all parts. Raises DataError if the sides of a part differ in their number of lines."""
    for part in text.parts:
        replaced: Counter[str] = Counter()
        with _side(*part.source, paths) as (source_name, source), _side(*part.target, paths) as (target_name, target):
            yield from read_pairs(source_name, source, target_name, target, replaced)
        counts["replaced"] += replaced.total()


@contextmanager
def _side(archive: Archive, member: str, paths: dict[Archive, Path]) -> Iterator[tuple[str, BinaryIO]]:
    """Provide one side of a part: its name and a stream of lines."""
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
    for index, (stream, lines) in enumerate(zip(streams, _sides(split.cut(pairs)), strict=True)):
        counts[f"lines {index}"] = len(lines)
        stream.writelines(f"{line}\n".encode() for line in lines)


def _sides(parts: dict[str, list[split.Pair]]) -> Iterator[list[str]]:
    for name in ("train", "valid", "test"):
        yield [source for source, _ in parts[name]]
        yield [target for _, target in parts[name]]
