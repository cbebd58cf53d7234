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
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import console
from ..errors import DataError, writing
from ..storage.files import Lock, sha256
from ..storage.output_paths import output_files
from ..text.compression import compressing
from ..text.lines import decoded_lines, parallel
from . import split
from .archives import check_holds, contents, open_member
from .dataset import Archive, Dataset, Joined, Split, members_of, outputs
from .download import fetch
from .manifest import NAME, Manifest, TextEntry, WrittenFile, load
from .sgm import segments

CHUNK = 10_000
"""Pairs between two steps of the progress bar."""


@dataclass(frozen=True)
class Built:
    """The result of `build_dataset`. `fresh` is False if everything existed already."""

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
    return Built(out, fresh, time.monotonic() - started, manifest)


def _build(
    name: str, dataset: Dataset, out: Path, downloads: Path, mirrors: Sequence[str], verify: bool
) -> tuple[bool, Manifest]:
    """Write the missing texts. Return whether any were missing, and the manifest."""
    manifest = _begun(name, dataset, out)
    texts = {_fingerprint(text, dataset): text for text in dataset.texts}
    manifest.texts = [entry for entry in manifest.texts if entry.fingerprint in texts and _whole(entry, out)]
    done = {entry.fingerprint for entry in manifest.texts}
    todo = {fingerprint: text for fingerprint, text in texts.items() if fingerprint not in done}
    if todo:
        manifest.complete = False
        manifest.save(out)
        paths = _fetch_all(list(todo.values()), downloads, mirrors, verify, manifest, out)
        for fingerprint, text in todo.items():
            manifest.texts.append(_write(text, dataset, out, paths, fingerprint))
            manifest.save(out)
    if not manifest.complete:
        manifest.complete = True
        manifest.save(out)
    return bool(todo), manifest


# --- the folder ------------------------------------------------------------------------------------------------------


def _locked(out: Path) -> Lock:
    """Create the folder and lock it against other `nmt data` commands. Raises DataError."""
    busy = DataError(f"another nmt data is writing to {str(out)!r} just now: let it finish, or choose another --out.")
    with writing(out, "the data set"):
        out.mkdir(parents=True, exist_ok=True)
        return Lock(out, busy)


def _begun(name: str, dataset: Dataset, out: Path) -> Manifest:
    """Return the manifest of the folder, or a new one.

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
        origin = [[(archive.name, member) for archive, member in part] for part in text.parts]
        origin += [text.training, text.lines]
    return hashlib.sha256(repr((files, origin)).encode()).hexdigest()[:16]


# --- archives ---------------------------------------------------------------------------------------------------------


def _fetch_all(
    texts: Sequence[Joined | Split],
    downloads: Path,
    mirrors: Sequence[str],
    verify: bool,
    manifest: Manifest,
    out: Path,
) -> dict[Archive, Path]:
    """Download and check every archive that `texts` need, before any text is written. Returns their paths."""
    archives = list(dict.fromkeys(archive for text in texts for archive, _ in members_of(text)))
    with writing(downloads, "the archives"):
        downloads.mkdir(parents=True, exist_ok=True)
    paths: dict[Archive, Path] = {}
    for number, archive in enumerate(archives, 1):
        known = {entry.file: entry for entry in manifest.archives}
        entry = fetch(archive, downloads, mirrors, verify, {file: earlier.sha256 for file, earlier in known.items()})
        path = paths[archive] = downloads / entry.file
        console.say(
            f"archive {number} of {len(archives)}: {entry.file}, {path.stat().st_size / 1e6:,.1f} MB, "
            f"{'was here' if entry.url is None else 'fetched'}, "
            f"{'checksum right' if entry.verified else 'not verified'}"
        )
        earlier = known.get(entry.file)
        if earlier and entry.url is None and earlier.sha256 == entry.sha256:
            entry.url = earlier.url
        manifest.archives = sorted((known | {entry.file: entry}).values(), key=lambda item: item.file)
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
    targets = [out / file for file in files]
    counts: Counter[str] = Counter()
    written = Counter[int]()
    with (
        output_files(targets, "the text", ours=lambda _: "no nmt data wrote it") as raw,
        ExitStack() as stack,
        console.progress(None, files[0], " pairs") as bar,
    ):
        streams = [stack.enter_context(compressing(stream, file)) for file, stream in zip(files, raw, strict=True)]
        for number, (source, target) in _pairs(text, paths, counts):
            streams[2 * number].write(source.encode() + b"\n")
            streams[2 * number + 1].write(target.encode() + b"\n")
            written[number] += 1
            if written[number] % CHUNK == 0:
                bar.update(CHUNK)
    entries = [
        WrittenFile(file=file, bytes=path.stat().st_size, sha256=sha256(path), lines=written[index // 2])
        for index, (file, path) in enumerate(zip(files, targets, strict=True))
    ]
    description = f"{', '.join(files)}: {counts['read']:,} pairs"
    if isinstance(text, Split):
        description += f", {written[1]:,} each held out for validation and test"
    elif text.training:
        description += f"; {counts['dropped']:,} with an empty side dropped"
    if counts["replaced"]:
        description += f"; {counts['replaced']:,} lines held invalid UTF-8, replaced by U+FFFD"
    console.say(description)
    return TextEntry(
        fingerprint=fingerprint,
        files=entries,
        read=counts["read"],
        dropped=counts["dropped"],
        replaced=counts["replaced"],
    )


def _pairs(
    text: Joined | Split, paths: dict[Archive, Path], counts: Counter[str]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the pairs to write, each with the number of its two files among those of `text`: 0, or 0 to 2 for a Split.

    Raises DataError if the sides of a part, or a text, have another number of lines than they should.
    """
    if isinstance(text, Split):
        with _lines((text.archive, text.member), paths, counts) as (name, lines):
            pairs = split.read_pairs(lines, name)
        counts["read"] = len(pairs)
        for number, part in enumerate(split.cut(pairs).values()):
            yield from ((number, pair) for pair in part)
        return
    for source, target in text.parts:
        with _lines(source, paths, counts) as (name, lines), _lines(target, paths, counts) as (other_name, other_lines):
            for pair in parallel((repr(name), lines), (repr(other_name), other_lines)):
                counts["read"] += 1
                if text.training and not (pair[0].strip() and pair[1].strip()):
                    counts["dropped"] += 1
                else:
                    yield 0, pair
    named = f"{text.files[0]!r} and {text.files[1]!r}"
    if text.lines not in (None, counts["read"]):
        where = ", ".join(str(paths[archive]) for (archive, _), _ in text.parts)
        raise DataError(
            f"{named} come to {counts['read']:,} lines, expected {text.lines:,}: {where!r} is not the archive that it "
            "should be. Remove it to have it fetched again."
        )
    if counts["read"] == counts["dropped"]:
        raise DataError(
            f"{named} come to no pair at all: {counts['read']:,} were read. Are the archives what they should be?"
        )


@contextmanager
def _lines(
    file: tuple[Archive, str], paths: dict[Archive, Path], counts: Counter[str]
) -> Iterator[tuple[str, Iterator[str]]]:
    """Provide the name and the lines of a file in an archive; "replaced" counts those with invalid UTF-8."""
    archive, member = file
    path = paths[archive]
    name = f"{path}:{member}" if member else str(path)
    with open_member(path, member) as stream:
        lines = decoded_lines(stream, "replaced", counts)
        yield name, segments(lines, name) if member.endswith(".sgm") else lines
