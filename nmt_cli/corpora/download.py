"""One archive from the first address that gives it whole: resumed where it was cut, checked, then renamed.

    fetch ──▶ there already? ──▶ each address in turn: request ──▶ NAME.part ──▶ length, checksum ──▶ NAME

What has come stays in NAME.part, with NAME.part.json beside it: the address, its ETag or date, the length. The rest is
asked for with Range; with If-Range where the server gave such a mark, so that two versions of a file are never joined.
Without a mark a rest is asked for only where a checksum tells afterwards whether the whole is right. A fault that may
pass (no connection, a cut, 5xx, 429) is tried again, ATTEMPTS times with growing pauses after the last byte that came;
any other, and a wrong checksum, goes on to the next address. Proxies are taken from the environment, as urllib does.
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
"""Seconds: the first pause, doubled each time, and the longest that a server may ask for."""
TIMEOUT = 60.0
"""Seconds without a byte."""
PIECE = 1 << 18
TELL = 10_000_000
"""Bytes to come that are told of before they do."""
PASSING = {408, 425, 429, 500, 502, 503, 504}
AGENT = f"nmt/{__version__} (Python-urllib)"


@dataclass(frozen=True)
class Fetched:
    """An archive that is here. `url` is None where it was here before; `verified`: by a checksum of the table."""

    path: Path
    sha256: str
    url: str | None
    verified: bool


class _Unusable(Exception):
    """Why an address gives nothing; the next one is tried."""


class _Passing(Exception):
    """A fault that may pass, and the seconds that the server asks to wait."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def fetch(archive: Archive, folder: Path, mirrors: Sequence[str] = (), verify: bool = True) -> Fetched:
    """The archive as a file of `folder`; downloaded unless it is there. `mirrors` are tried first: address + "/" + name.

    `verify` False: a checksum other than the table's is told of and taken. Raises DataError naming every address and why
    it failed, for a file in `folder` that is not the archive, and where nothing can be written.
    """
    for source in archive.sources:
        if (folder / source.name).exists():
            return _there(source, folder / source.name, verify)
    first = archive.sources[0]
    sources = [Source(url=f"{mirror.rstrip('/')}/{first.name}", digest=first.digest, size=first.size) for mirror in mirrors] + list(archive.sources)
    reasons: list[str] = []
    for source in sources:
        with Partial(folder / source.name) as partial:
            try:
                fetched = _from(source, partial, verify)
                for other in archive.sources:
                    if other.name != source.name:
                        Partial(folder / other.name).discard()  # what an earlier address began
                return fetched
            except _Unusable as reason:
                reasons.append(f"  - {source.url}: {reason}")
                if len(reasons) < len(sources):
                    console.say(f"{source.url}: {reason}; trying the next address")
    raise DataError(
        f"cannot fetch {first.name!r}:\n" + "\n".join(reasons) + "\nCheck the connection (a proxy is taken from https_proxy), give --mirror URL, "
        f"or put the file into {str(folder)!r} yourself. What has come is kept; the same command goes on there."
    )


def _there(source: Source, path: Path, verify: bool) -> Fetched:
    """The archive that is here, if it is that."""
    known = source.digest if verify else None
    try:
        digest = sha256(path)
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}. Move it away to have it fetched again.") from None
    before = recorded(path)
    if known is not None and not matches(path, known, digest):
        raise DataError(f"{str(path)!r} is not the archive that it should be: its {_shown(path, known, digest)}, expected {known}. Remove it to have it fetched again, or give --no-verify to take it as it is.")
    if known is None and verify and before is not None and before != digest:
        raise DataError(f"{str(path)!r} has changed since it was fetched: its SHA-256 is {digest}, was {before}. Remove it to have it fetched again, or give --no-verify to take it as it is.")
    record(path, digest)
    return Fetched(path, digest, None, known is not None)


def matches(path: Path, known: str, digest: str) -> bool:
    """Whether a file has the checksum `known`; `digest` is its SHA-256."""
    return _computed(path, known, digest) == known


def _computed(path: Path, known: str, digest: str) -> str:
    """A file's checksum of the kind of `known`, in its form."""
    if known.startswith("sha256:"):
        return f"sha256:{digest}"
    summed = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            summed.update(piece)
    return f"md5:{summed.hexdigest()}"


def _shown(path: Path, known: str, digest: str) -> str:
    kind, _, value = _computed(path, known, digest).partition(":")
    return f"{'SHA-256' if kind == 'sha256' else 'MD5'} is {value}"


def _from(source: Source, partial: Partial, verify: bool) -> Fetched:
    """Fetch from one address. Raises _Unusable where it cannot give the archive."""
    known = source.digest if verify else None
    failures, anew = 0, False
    while True:
        before = partial.size
        try:
            joined = _receive(source, partial, known is not None, verify)
        except _Passing as fault:
            failures = 1 if partial.size > before else failures + 1
            if failures >= ATTEMPTS:
                raise _Unusable(f"{fault}, {ATTEMPTS} times in a row") from None
            wait = min(max(PAUSE * 2 ** (failures - 1), fault.wait), LONGEST_PAUSE)
            console.say(f"{source.name}: {fault}; again in {wait:.0f} s")
            time.sleep(wait)
            continue
        digest = sha256(partial.path)
        if known is None or matches(partial.path, known, digest):
            break
        reason = f"wrong checksum: its {_shown(partial.path, known, digest)}, expected {known}"
        partial.discard()
        if anew or not joined:
            raise _Unusable(f"{reason}; what came was removed")
        anew = True
        console.say(f"{source.name}: {reason}; it was put together from several parts and is fetched anew")
    if not verify and source.digest and not matches(partial.path, source.digest, digest):
        console.warn(f"{source.name}: its {_shown(partial.path, source.digest, digest)}, not {source.digest}; taken all the same (--no-verify).")
    partial.install()
    record(partial.target, digest)
    if source.digest is None:
        console.say(f"{source.name}: no checksum is published for it; its SHA-256 is {digest}, now in {partial.target.parent / 'SHA256SUMS'}")
    return Fetched(partial.target, digest, source.url, known is not None)


def _receive(source: Source, partial: Partial, checked: bool, verify: bool) -> bool:
    """One request, written to `partial` to its end. Returns whether parts of several requests were joined."""
    same = partial.state.url == source.url and partial.state.mark is not None
    begin = partial.size if same or checked else 0
    if checked and begin and begin == source.size:
        return True  # stopped between the last byte and the check
    headers = {"User-Agent": AGENT, "Accept": "*/*"}
    if begin:
        headers["Range"] = f"bytes={begin}-"
        if same:
            headers["If-Range"] = str(partial.state.mark)
    try:
        with urllib.request.build_opener().open(urllib.request.Request(source.url, headers=headers), timeout=TIMEOUT) as response:
            begin, total = _agreed(response, partial, begin, same)
            if verify and source.size is not None and total not in (None, source.size):
                raise _Unusable(f"the server has {total:,} bytes, expected {source.size:,}")
            if begin == 0:
                partial.restart(State(url=source.url, mark=_mark(response), total=total))
            partial.check_room(total)
            if total is None or total - begin >= TELL:
                console.say(f"{source.url}: " + (f"{(total - begin) / 1e6:,.1f} MB to come" if total is not None else "of unknown length"))
            _copy(response, partial, total, source.name)
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error, partial, begin)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise _Unusable(f"its certificate is not trusted: {reason.verify_message}") from None
        raise _Passing(_in_words(reason)) from None
    except ValueError as error:
        raise _Unusable(f"no address that can be fetched: {error}") from None
    if total is not None and partial.size < total:
        raise _Passing(f"the connection ended after {partial.size:,} of {total:,} bytes")
    return begin > 0


def _copy(response: Any, partial: Partial, total: int | None, name: str) -> None:
    """What the server sends, each piece written as soon as it is there."""
    come = partial.size
    with console.progress(total, name, "B") as bar:
        bar.update(come)
        while (total is None or come < total) and (piece := response.read1(PIECE if total is None else min(PIECE, total - come))):
            partial.write(piece)
            bar.update(len(piece))
            come += len(piece)


def _agreed(response: Any, partial: Partial, begin: int, same: bool) -> tuple[int, int | None]:
    """Where the server really begins, and the length of the whole."""
    length = response.headers.get("Content-Length")
    if response.status != 206:
        if begin:
            console.say(f"{partial.target.name}: the server begins anew: it cannot resume, or its file has changed")
        return 0, int(length) if length is not None and length.isdigit() else None
    span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    mark, state = _mark(response), partial.state
    total = int(span[2]) if span and span[2] != "*" else None
    changed = (same and mark is not None and mark != state.mark) or (None not in (state.total, total) and total != state.total)
    if span is None or int(span[1]) != begin or changed:
        partial.discard()
        raise _Passing("the server's file is not the one that was begun")
    return begin, total


def _refused(error: urllib.error.HTTPError, partial: Partial, begin: int) -> bool:
    """What an HTTP status other than 2xx means; True: what is there is the whole."""
    if error.code == 416 and begin:
        if re.fullmatch(rf"bytes \*/{begin}", error.headers.get("Content-Range", "")) and partial.state.total in (None, begin):
            return True
        partial.discard()
        raise _Passing("the server's file is shorter than what was begun")
    said = f"HTTP {error.code} {error.reason}".strip()
    if error.code in PASSING:
        wait = error.headers.get("Retry-After", "")
        raise _Passing(said, float(wait) if wait.isdigit() else 0.0)
    raise _Unusable(said)


def _mark(response: Any) -> str | None:
    """What If-Range can be asked with: a strong ETag, else the date."""
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
