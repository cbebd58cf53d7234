"""Downloads an archive from the first address that provides it. A download can resume; it is checked and then renamed.

    fetch ──▶ is the file here? ──▶ each address in turn: request ──▶ NAME.part ──▶ length, checksum ──▶ NAME

The part downloaded so far is in NAME.part; NAME.part.json holds its address, its ETag or date, and the total length.
A download resumes with the header Range, and with If-Range if the server sent an ETag or date, so that two versions of
a file are never joined. Without an ETag or date it resumes only if a checksum is known. After a temporary error (no
connection, a cut, 5xx, 429) it tries the same address again, with growing pauses. It stops after ATTEMPTS attempts in a
row that received no byte. After any other error, or a wrong checksum, it tries the next address. Proxies are taken from
the environment, as urllib does.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from .. import __version__, console
from ..errors import DataError, reading, write_failed
from ..storage.files import flush_to_disk, rename_flushed, sha256, write_atomic
from ..storage.sealed_json import Entry
from .dataset import Archive, Source
from .manifest import ArchiveEntry

ATTEMPTS, PAUSE, LONGEST_PAUSE = 5, 1.0, 60.0
"""Maximum number of attempts in a row without a byte; the first pause in seconds, doubled each time; the longest pause
in seconds."""
TIMEOUT = 60.0
"""Seconds without a byte after which an attempt fails."""
PIECE = 1 << 18
ANNOUNCED = 10_000_000
"""Downloads of at least this number of bytes are reported before they start."""
RESERVE = 1 << 20
"""Number of bytes that stay free on the disk."""
TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
AGENT = f"nmt/{__version__} (Python-urllib)"
RESUME = "What was downloaded is kept; run the same command again to resume."


class _AddressFailed(Exception):
    """The reason why an address does not provide the file. The next address is tried."""


class _TemporaryError(Exception):
    """A temporary error, and the seconds that the server asks to wait."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def get(url: str, most: int) -> bytes:
    """Return what a server answers, of at most `most` bytes; there is one attempt. Raises DataError with the reason."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": AGENT, "Accept": "application/json"})
        with urllib.request.build_opener().open(request, timeout=TIMEOUT) as response:
            data: bytes = response.read(most + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise DataError(f"{url}: {_status(error)}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DataError(f"{url}: {_reason(error)}.") from None
    if len(data) > most:
        raise DataError(f"{url}: the answer has more than {most:,} bytes.")
    return data


def fetch(
    archive: Archive,
    folder: Path,
    mirrors: Sequence[str] = (),
    verify: bool = True,
    known: Mapping[str, str] | None = None,
    way_out: str = "give --mirror URL, or",
) -> ArchiveEntry:
    """Return which file of `folder` is the archive; download it if it is missing. Its `url` is None if it was there.

    `mirrors` are tried first: address + "/" + name. `known` has the SHA-256 of archives that were used before, by name.
    `way_out` is what else the user can do where every address fails.

    If `verify` is False, a wrong checksum is reported and accepted. Raises DataError if every address fails (with the
    error of each), if a file in `folder` has the archive's name but is another file, and if `folder` cannot be written.
    """
    for source in archive.sources:
        if (folder / source.name).exists():
            return _existing(source, folder / source.name, verify, (known or {}).get(source.name))
    first = archive.sources[0]
    sources = [replace(first, url=f"{mirror.rstrip('/')}/{first.name}") for mirror in mirrors] + list(archive.sources)
    reasons: list[str] = []
    for source in sources:
        try:
            fetched = _download(source, _Part(folder / source.name), verify)
        except _AddressFailed as reason:
            reasons.append(f"  - {source.url}: {reason}")
            if len(reasons) < len(sources):
                console.say(f"{source.url}: {reason}; trying the next address")
        else:
            for other in archive.sources:
                if other.name != source.name:
                    _Part(folder / other.name).discard()
            return fetched
    raise DataError(
        f"cannot fetch {first.name!r}:\n"
        + "\n".join(reasons)
        + f"\nCheck the connection (a proxy is taken from https_proxy), {way_out} "
        f"put the file into {str(folder)!r} yourself. {RESUME}"
    )


def _existing(source: Source, path: Path, verify: bool, before: str | None) -> ArchiveEntry:
    """Return the file that exists in the folder already; `before`: its SHA-256 when it was used before, if it was.

    Raises DataError if it is not the archive.
    """
    with reading(path, " Move it away to have it fetched again."):
        digest = sha256(path)
        fault = _difference(path, source.digest, digest)
    if source.digest is None and before not in (None, digest):
        fault = f"it has changed since it was fetched: its SHA-256 is {digest}, was {before}"
    if fault and verify:
        raise DataError(
            f"{str(path)!r} is not the archive that it should be: {fault}. Remove it to have it fetched again, "
            "or give --no-verify to take it as it is."
        )
    return _entry(source, digest, None, verify)


def _entry(source: Source, digest: str, url: str | None, verify: bool) -> ArchiveEntry:
    return ArchiveEntry(file=source.name, url=url, sha256=digest, verified=verify and source.digest is not None)


def _difference(path: Path, expected: str | None, digest: str) -> str:
    """Return how a file's checksum differs from `expected`; "" if it does not. `digest` is the file's SHA-256."""
    name, found = "SHA-256", digest
    if expected and expected.startswith("md5:"):
        with path.open("rb") as stream:
            name, found = "MD5", hashlib.file_digest(stream, "md5").hexdigest()
    same = expected is None or expected.partition(":")[2] == found
    return "" if same else f"its {name} is {found}, expected {expected}"


# --- a download ------------------------------------------------------------------------------------------------------


class _Origin(Entry):
    """The origin of a part: the address, the value for If-Range, the total length in bytes."""

    url: str = ""
    mark: str | None = None
    total: int | None = None


class _Part:
    """The downloaded part of a file. Every block is written at once, so an interrupt loses nothing that arrived.

    Errors of the disk are raised as DataError, so that they are not mistaken for errors of the network.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path, self._origin_path = Path(f"{target}.part"), Path(f"{target}.part.json")
        if self.path.exists() and not self._origin_path.exists():  # nmt data writes the .json first
            raise DataError(
                f"{str(self.path)!r} was not begun by nmt: there is no file beside it that says where it is from. "
                "Move it away, or choose another folder for downloads."
            )
        try:
            self.origin = _Origin.model_validate_json(self._origin_path.read_bytes())
        except (OSError, ValidationError):
            self.origin = _Origin()

    @property
    def size(self) -> int:
        """Return the number of downloaded bytes."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            failure = write_failed(error, self.path, f"the download of {self.target.name!r}")
            raise DataError(f"{failure} {RESUME}") from None

    def restart(self, origin: _Origin) -> None:
        """Remove the downloaded part and begin at byte 0."""
        self.discard()
        self.origin = origin
        with self._writing():
            write_atomic(self._origin_path, origin.model_dump_json().encode())
            self.path.touch()  # an archive may be empty

    def append(self, piece: bytes) -> None:
        view = memoryview(piece)
        with self._writing(), self.path.open("ab") as file:
            while view:
                view = view[os.write(file.fileno(), view) :]

    def check_disk_space(self, total: int | None) -> None:
        """Raise DataError if the disk has no space for the rest of `total` bytes."""
        free, rest = shutil.disk_usage(self.path.parent).free, (total or 0) - self.size
        if total is not None and rest + RESERVE > free:
            raise DataError(
                f"no space for {self.target.name!r}: {rest / 1e6:,.1f} MB are missing, and at "
                f"{str(self.path.parent)!r} the disk has {free / 1e6:,.1f} MB free. "
                f"Free some space, or choose another folder for downloads. {RESUME}"
            )

    def install(self) -> None:
        """Rename the complete file to its final name."""
        with self._writing():
            flush_to_disk(self.path)
            rename_flushed(self.path, self.target)
            self._origin_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the downloaded part."""
        self.origin = _Origin()
        with self._writing():
            self.path.unlink(missing_ok=True)
            self._origin_path.unlink(missing_ok=True)


def _download(source: Source, part: _Part, verify: bool) -> ArchiveEntry:
    """Download from one address. Raises _AddressFailed."""
    repeated = False
    while True:
        joined = _receive_all(source, part, verify)
        digest = sha256(part.path)
        difference = _difference(part.path, source.digest, digest)
        if not difference or not verify:
            break
        part.discard()
        if repeated or not joined:
            raise _AddressFailed(f"wrong checksum: {difference}; the part was removed")
        repeated = True
        console.say(
            f"{source.name}: wrong checksum: {difference}; it was joined from several parts and is downloaded again"
        )
    if difference:
        console.warn(f"{source.name}: {difference}; accepted because of --no-verify.")
    part.install()
    if source.digest is None:
        console.say(
            f"{source.name}: no checksum is published for it; its SHA-256 is {digest}, now in the data set's manifest"
        )
    return _entry(source, digest, source.url, verify)


def _receive_all(source: Source, part: _Part, verify: bool) -> bool:
    """Send requests until the file is complete. Return whether it was joined from several. Raises _AddressFailed."""
    failures = 0
    while True:
        before = part.size
        try:
            return _receive(source, part, verify)
        except _TemporaryError as error:
            failures = 1 if part.size > before else failures + 1
            if failures >= ATTEMPTS:
                raise _AddressFailed(f"{error}, {ATTEMPTS} times in a row") from None
            wait = min(max(PAUSE * 2 ** (failures - 1), error.wait), LONGEST_PAUSE)
            console.say(f"{source.name}: {error}; again in {wait:.0f} s")
            time.sleep(wait)


def _receive(source: Source, part: _Part, verify: bool) -> bool:
    """Send one request and write the answer to `part`. Return whether the file was joined from several requests."""
    checked = verify and source.digest is not None
    same = part.origin.url == source.url and part.origin.mark is not None
    begin = part.size if same or checked else 0
    headers = {"User-Agent": AGENT, "Accept": "*/*"}
    if begin:
        headers["Range"] = f"bytes={begin}-"
        if same:
            headers["If-Range"] = str(part.origin.mark)
    try:
        request = urllib.request.Request(source.url, headers=headers)
        with urllib.request.build_opener().open(request, timeout=TIMEOUT) as response:
            begin, total = _agreed(response, part, begin, same)
            if verify and source.size is not None:
                if total not in (None, source.size):
                    raise _AddressFailed(f"the server has {total:,} bytes, expected {source.size:,}")
                total = source.size  # no more is read
            if begin == 0:
                part.restart(_Origin(url=source.url, mark=_mark(response), total=total))
            part.check_disk_space(total)
            if total is None or total - begin >= ANNOUNCED:
                length = "of unknown length" if total is None else f"{(total - begin) / 1e6:,.1f} MB to download"
                console.say(f"{source.url}: {length}")
            _copy(response, part, total, source.name)
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error, part, begin)
    except (OSError, http.client.HTTPException) as error:
        untrusted = isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError)
        raise (_AddressFailed if untrusted else _TemporaryError)(_reason(error)) from None
    except ValueError as error:
        raise _AddressFailed(f"no address that can be fetched: {error}") from None
    if total is not None and part.size < total:
        raise _TemporaryError(f"the connection ended after {part.size:,} of {total:,} bytes")
    return begin > 0


def _reason(error: Exception) -> str:

    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__


def _status(error: urllib.error.HTTPError) -> str:
    return f"HTTP {error.code} {error.reason}".strip()


def _copy(response: Any, part: _Part, total: int | None, name: str) -> None:
    """Write the server's data as soon as it arrives."""
    received = part.size
    with console.progress(total, name, "B") as bar:
        bar.update(received)
        while (total is None or received < total) and (
            piece := response.read1(PIECE if total is None else min(PIECE, total - received))
        ):
            part.append(piece)
            bar.update(len(piece))
            received += len(piece)


def _agreed(response: Any, part: _Part, begin: int, same: bool) -> tuple[int, int | None]:
    """Return the position at which the server's answer begins, and the total length of the file."""
    length = response.headers.get("Content-Length", "")
    if response.status != 206:
        if begin:
            console.say(
                f"{part.target.name}: the server starts from the beginning: it cannot resume, or its file has changed"
            )
        return 0, int(length) if length.isdigit() else None
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    mark, origin = _mark(response), part.origin
    total = int(span[2]) if span and span[2] != "*" else None
    changed = (same and mark not in (None, origin.mark)) or (
        None not in (origin.total, total) and total != origin.total
    )
    if span is None or int(span[1]) != begin or changed:
        part.discard()
        raise _TemporaryError("the server's file has changed since the download began")
    return begin, total


def _refused(error: urllib.error.HTTPError, part: _Part, begin: int) -> bool:
    """Return True if an HTTP status other than 2xx means that the file is complete.

    Otherwise raises _TemporaryError or _AddressFailed.
    """
    if error.code == 416 and begin:
        complete = error.headers.get("Content-Range", "") == f"bytes */{begin}"
        if complete and part.origin.total in (None, begin):
            return True
        part.discard()
        raise _TemporaryError("the server's file is shorter than the downloaded part")
    status = _status(error)
    if error.code in TEMPORARY:
        wait = error.headers.get("Retry-After", "")
        raise _TemporaryError(status, float(wait) if wait.isdigit() else 0.0)
    raise _AddressFailed(status)


def _mark(response: Any) -> str | None:
    """Return the value for If-Range: a strong ETag, else the date."""
    tag: str | None = response.headers.get("ETag")
    date: str | None = response.headers.get("Last-Modified")
    return tag if tag and not tag.startswith("W/") else date
