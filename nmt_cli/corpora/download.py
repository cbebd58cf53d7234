"""Downloads an archive from the first address that provides it. A download can resume; it is checked and then renamed.

    fetch ──▶ is the file here? ──▶ each address in turn: request ──▶ NAME.part ──▶ length, checksum ──▶ NAME

The part downloaded so far is in NAME.part; NAME.part.json holds its address, its ETag or date, and the total length.
A download resumes with the header Range, and with If-Range if the server sent an ETag or date, so that two versions of
a file are never joined. Without an ETag or date it resumes only if a checksum is known. After a temporary error (no
connection, a cut, 5xx, 429) it tries the same address again, with growing pauses. It stops after ATTEMPTS attempts in a
row that received no byte. After any other error, or a wrong checksum, it tries the next address. Proxies are taken from
the environment, as urllib does.

With the library pooch this would need less code. But pooch does not resume, knows only one address per file, and
removes the downloaded part after an interrupt.
"""

from __future__ import annotations

import hashlib
import http.client
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__, console
from ..errors import DataError
from ..files import sha256
from .dataset import Archive, Source
from .partial import Partial, State
from .sums import record, recorded

ATTEMPTS, PAUSE, LONGEST_PAUSE = 5, 1.0, 60.0
"""Maximum number of attempts in a row without a byte; the first pause in seconds, doubled each time; the longest pause
in seconds."""
TIMEOUT = 60.0
"""Seconds without a byte after which an attempt fails."""
PIECE = 1 << 18
ANNOUNCED = 10_000_000
"""Downloads of at least this number of bytes are reported before they start."""
TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
AGENT = f"nmt/{__version__} (Python-urllib)"


@dataclass(frozen=True)
class Fetched:
    """A downloaded archive.

    `url` is None if the file existed before. `verified` is True if its published checksum was compared.
    """

    path: Path
    sha256: str
    url: str | None
    verified: bool


class _AddressFailed(Exception):
    """The reason why an address does not provide the file. The next address is tried."""


class _TemporaryError(Exception):
    """A temporary error, and the seconds that the server asks to wait."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def fetch(archive: Archive, folder: Path, mirrors: Sequence[str] = (), verify: bool = True) -> Fetched:
    """Return the archive as a file in `folder`; download it if it is missing.

    `mirrors` are tried first: address + "/" + name.

    If `verify` is False, a wrong checksum is reported and accepted. Raises DataError if every address fails (with the
    error of each), if a file in `folder` has the archive's name but is another file, and if `folder` cannot be written.
    """
    for source in archive.sources:
        if (folder / source.name).exists():
            return _existing(source, folder / source.name, verify)
    first = archive.sources[0]
    sources = [
        Source(url=f"{mirror.rstrip('/')}/{first.name}", digest=first.digest, size=first.size) for mirror in mirrors
    ] + list(archive.sources)
    reasons: list[str] = []
    for source in sources:
        with Partial(folder / source.name) as partial:
            try:
                fetched = _from(source, partial, verify)
                for other in archive.sources:
                    if other.name != source.name:
                        Partial(folder / other.name).discard()  # parts downloaded from other addresses
                return fetched
            except _AddressFailed as reason:
                reasons.append(f"  - {source.url}: {reason}")
                if len(reasons) < len(sources):
                    console.say(f"{source.url}: {reason}; trying the next address")
    raise DataError(
        f"cannot fetch {first.name!r}:\n"
        + "\n".join(reasons)
        + "\nCheck the connection (a proxy is taken from https_proxy), give --mirror URL, "
        f"or put the file into {str(folder)!r} yourself. What was downloaded is kept; run the same command "
        "again to resume."
    )


def _existing(source: Source, path: Path, verify: bool) -> Fetched:
    """Return the file that exists in the folder already. Raises DataError if it is not the archive."""
    expected = source.digest if verify else None
    try:
        digest = sha256(path)
    except OSError as error:
        raise DataError(
            f"cannot read {str(path)!r}: {error.strerror}. Move it away to have it fetched again."
        ) from None
    before = recorded(path)
    if expected is not None and not matches(path, expected, digest):
        raise DataError(
            f"{str(path)!r} is not the archive that it should be: its {_shown(path, expected, digest)}, "
            f"expected {expected}. Remove it to have it fetched again, or give --no-verify to take it as it is."
        )
    if expected is None and verify and before is not None and before != digest:
        raise DataError(
            f"{str(path)!r} has changed since it was fetched: its SHA-256 is {digest}, was {before}. Remove it "
            "to have it fetched again, or give --no-verify to take it as it is."
        )
    record(path, digest)
    return Fetched(path, digest, None, expected is not None)


def matches(path: Path, expected: str, digest: str) -> bool:
    """Return whether a file has the checksum `expected`; `digest` is its SHA-256."""
    return _computed(path, expected, digest) == expected


def _computed(path: Path, expected: str, digest: str) -> str:
    """Return the checksum of a file in the form of `expected`: the same algorithm before the colon."""
    if expected.startswith("sha256:"):
        return f"sha256:{digest}"
    summed = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            summed.update(piece)
    return f"md5:{summed.hexdigest()}"


def _shown(path: Path, expected: str, digest: str) -> str:
    kind, _, value = _computed(path, expected, digest).partition(":")
    return f"{'SHA-256' if kind == 'sha256' else 'MD5'} is {value}"


def _from(source: Source, partial: Partial, verify: bool) -> Fetched:
    """Download from one address. Raises _AddressFailed."""
    expected = source.digest if verify else None
    failures, repeated = 0, False
    while True:
        before = partial.size
        try:
            joined = _receive(source, partial, expected is not None, verify)
        except _TemporaryError as error:
            failures = 1 if partial.size > before else failures + 1
            if failures >= ATTEMPTS:
                raise _AddressFailed(f"{error}, {ATTEMPTS} times in a row") from None
            wait = min(max(PAUSE * 2 ** (failures - 1), error.wait), LONGEST_PAUSE)
            console.say(f"{source.name}: {error}; again in {wait:.0f} s")
            time.sleep(wait)
            continue
        digest = sha256(partial.path)
        if expected is None or matches(partial.path, expected, digest):
            break
        reason = f"wrong checksum: its {_shown(partial.path, expected, digest)}, expected {expected}"
        partial.discard()
        if repeated or not joined:
            raise _AddressFailed(f"{reason}; the part was removed")
        repeated = True
        console.say(f"{source.name}: {reason}; it was joined from several parts and is downloaded again")
    if not verify and source.digest and not matches(partial.path, source.digest, digest):
        console.warn(
            f"{source.name}: its {_shown(partial.path, source.digest, digest)}, not {source.digest}; accepted "
            "because of --no-verify."
        )
    partial.install()
    record(partial.target, digest)
    if source.digest is None:
        console.say(
            f"{source.name}: no checksum is published for it; its SHA-256 is {digest}, now in "
            f"{partial.target.parent / 'SHA256SUMS'}"
        )
    return Fetched(partial.target, digest, source.url, expected is not None)


def _receive(source: Source, partial: Partial, checked: bool, verify: bool) -> bool:
    """Send one request and write the answer to `partial`. Return whether the file was joined from several requests."""
    same = partial.state.url == source.url and partial.state.mark is not None
    begin = partial.size if same or checked else 0
    if checked and begin and begin == source.size:
        return True  # an earlier command was stopped between the last byte and the check
    headers = {"User-Agent": AGENT, "Accept": "*/*"}
    if begin:
        headers["Range"] = f"bytes={begin}-"
        if same:
            headers["If-Range"] = str(partial.state.mark)
    try:
        with urllib.request.build_opener().open(
            urllib.request.Request(source.url, headers=headers), timeout=TIMEOUT
        ) as response:
            begin, total = _agreed(response, partial, begin, same)
            if verify and source.size is not None and total not in (None, source.size):
                raise _AddressFailed(f"the server has {total:,} bytes, expected {source.size:,}")
            if begin == 0:
                partial.restart(State(url=source.url, mark=_mark(response), total=total))
            partial.check_disk_space(total)
            if total is None or total - begin >= ANNOUNCED:
                console.say(
                    f"{source.url}: "
                    + (f"{(total - begin) / 1e6:,.1f} MB to download" if total is not None else "of unknown length")
                )
            _copy(response, partial, total, source.name)
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error, partial, begin)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise _AddressFailed(f"its certificate is not trusted: {reason.verify_message}") from None
        raise _TemporaryError(_in_words(reason)) from None
    except ValueError as error:
        raise _AddressFailed(f"no address that can be fetched: {error}") from None
    if total is not None and partial.size < total:
        raise _TemporaryError(f"the connection ended after {partial.size:,} of {total:,} bytes")
    return begin > 0


def _copy(response: Any, partial: Partial, total: int | None, name: str) -> None:
    """Write the server's data as soon as it arrives."""
    received = partial.size
    with console.progress(total, name, "B") as bar:
        bar.update(received)
        while (total is None or received < total) and (
            piece := response.read1(PIECE if total is None else min(PIECE, total - received))
        ):
            partial.write(piece)
            bar.update(len(piece))
            received += len(piece)


def _agreed(response: Any, partial: Partial, begin: int, same: bool) -> tuple[int, int | None]:
    """Return the position at which the server's answer begins, and the total length of the file."""
    length = response.headers.get("Content-Length")
    if response.status != 206:
        if begin:
            console.say(
                f"{partial.target.name}: the server starts from the beginning: it cannot resume, or its file "
                "has changed"
            )
        return 0, int(length) if length is not None and length.isdigit() else None
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    mark, state = _mark(response), partial.state
    total = int(span[2]) if span and span[2] != "*" else None
    changed = (same and mark is not None and mark != state.mark) or (
        None not in (state.total, total) and total != state.total
    )
    if span is None or int(span[1]) != begin or changed:
        partial.discard()
        raise _TemporaryError("the server's file has changed since the download began")
    return begin, total


def _refused(error: urllib.error.HTTPError, partial: Partial, begin: int) -> bool:
    """Return True if an HTTP status other than 2xx means that the file is complete.

    Otherwise raises _TemporaryError or _AddressFailed.
    """
    if error.code == 416 and begin:
        if re.fullmatch(rf"bytes \*/{begin}", error.headers.get("Content-Range", "")) and partial.state.total in (
            None,
            begin,
        ):
            return True
        partial.discard()
        raise _TemporaryError("the server's file is shorter than the downloaded part")
    status = f"HTTP {error.code} {error.reason}".strip()
    if error.code in TEMPORARY:
        wait = error.headers.get("Retry-After", "")
        raise _TemporaryError(status, float(wait) if wait.isdigit() else 0.0)
    raise _AddressFailed(status)


def _mark(response: Any) -> str | None:
    """Return the value for If-Range: a strong ETag, else the date."""
    tag: str | None = response.headers.get("ETag")
    date: str | None = response.headers.get("Last-Modified")
    return tag if tag and not tag.startswith("W/") else date


def _in_words(reason: object) -> str:
    if isinstance(reason, TimeoutError) and not reason.strerror:
        return f"no answer for {TIMEOUT:.0f} s"
    if isinstance(reason, http.client.IncompleteRead):
        return "the connection ended early"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
