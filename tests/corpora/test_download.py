"""Downloads from a server that cuts, refuses, forgets ranges and changes its files."""

import errno
import hashlib
import json
import os
import random
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from website import Site, serve

from nmt_cli.corpora import download
from nmt_cli.corpora.dataset import Archive, Source
from nmt_cli.corpora.download import fetch
from nmt_cli.errors import DataError

NAME = "corpus.tgz"
CONTENT = random.Random(1).randbytes(100_000)
SHA = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
OTHER = random.Random(2).randbytes(100_000)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PAUSE", 0.0)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site() -> Iterator[Site]:
    with serve() as site:
        site.files[NAME] = CONTENT
        site.marks[NAME] = '"first"'
        yield site


@pytest.fixture
def second() -> Iterator[Site]:
    with serve() as site:
        site.files[NAME] = CONTENT
        yield site


def archive(*sites: Site, digest: str | None = SHA, size: int | None = None) -> Archive:
    return Archive(tuple(Source(url=f"{site.address}/data/{NAME}", digest=digest, size=size) for site in sites))


def fetched(folder: Path, *sites: Site, digest: str | None = SHA) -> bytes:
    """What `fetch` leaves, which is removed."""
    path = folder / fetch(archive(*sites, digest=digest), folder).file
    content = path.read_bytes()
    path.unlink()
    return content


def begun(folder: Path, content: bytes, url: str, mark: str | None = '"first"') -> None:
    """What an earlier command left."""
    (folder / f"{NAME}.part").write_bytes(content)
    state = {"url": f"{url}/data/{NAME}", "mark": mark, "total": len(CONTENT)}
    (folder / f"{NAME}.part.json").write_text(json.dumps(state))


def here(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("digest", [SHA, MD5, None])
def test_an_archive_is_fetched_checked_and_written_down(
    digest: str | None, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = fetch(archive(site, digest=digest, size=len(CONTENT)), tmp_path)
    assert (entry.file, entry.verified) == (NAME, digest is not None)
    assert (entry.url, f"sha256:{entry.sha256}") == (f"{site.address}/data/{NAME}", SHA)
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert here(tmp_path) == {NAME}
    assert ("no checksum is published" in capsys.readouterr().err) == (digest is None)
    assert site.requests[0][1]["user-agent"].startswith("nmt/")


def test_what_is_there_also_under_a_second_name_is_not_fetched(site: Site, tmp_path: Path) -> None:
    both = Archive((*archive(site).sources, Source(url=f"{site.address}/corpus.zip", digest=SHA)))
    for name in ("corpus.zip", NAME):
        (tmp_path / name).write_bytes(CONTENT)
        entry = fetch(both, tmp_path)
        assert (entry.file, entry.url) == (name, None)
    assert site.requests == []


@pytest.mark.parametrize(
    ("digest", "known", "said"),
    [
        (SHA, {}, "its SHA-256 is"),
        (MD5, {}, f"its MD5 is {hashlib.md5(OTHER).hexdigest()}, expected md5:"),
        (None, {NAME: SHA.removeprefix("sha256:")}, "has changed since it was fetched"),
    ],
)
def test_what_is_there_and_is_something_else_is_refused_and_left(
    digest: str | None, known: dict[str, str], said: str, site: Site, tmp_path: Path
) -> None:
    (tmp_path / NAME).write_bytes(OTHER)
    with pytest.raises(DataError, match=said):
        fetch(archive(site, digest=digest), tmp_path, known=known)
    assert (tmp_path / NAME).read_bytes() == OTHER
    entry = fetch(archive(site, digest=digest), tmp_path, verify=False, known=known)
    assert (entry.verified, entry.sha256) == (False, hashlib.sha256(OTHER).hexdigest())
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    with pytest.raises(DataError, match=r"cannot read .*corpus.tgz': Is a directory"):
        fetch(archive(site, digest=digest), tmp_path)


def test_a_length_that_is_not_said_is_no_matter_and_another_one_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the server has 100,000 bytes, expected 99"):
        fetch(archive(site, size=99), tmp_path)
    assert here(tmp_path) == set()  # before a byte is kept
    site.lengths = False
    assert fetched(tmp_path, site) == CONTENT
    with pytest.raises(DataError, match="wrong checksum"):
        fetch(archive(site, size=99), tmp_path)  # no more is read
    site.files[NAME] = b""
    assert fetched(tmp_path, site, digest=None) == b""
    with pytest.raises(DataError, match="wrong checksum"):
        fetched(tmp_path, site)


def test_a_cut_download_goes_on_where_it_ended(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.cuts = [30_000, 50_000]
    assert fetched(tmp_path, site) == CONTENT
    assert site.asked(NAME, "range") == [None, "bytes=30000-", "bytes=80000-"]
    assert site.asked(NAME, "if-range") == [None, '"first"', '"first"']
    assert "30,000 of 100,000 bytes; again in 0 s" in capsys.readouterr().err
    site.ranges, site.cuts = False, [30_000]
    assert fetched(tmp_path, site) == CONTENT  # a server without ranges begins anew
    assert "starts from the beginning" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "elsewhere", "mark", "digest", "asked"),
    [
        (CONTENT[:70_000], "", '"first"', None, ["bytes=70000-"]),
        (OTHER[:70_000], "", '"old"', None, ["bytes=70000-"]),  # the whole comes: the file has changed
        (CONTENT[:70_000], "", None, None, [None]),  # nothing tells whether it has
        (CONTENT[:70_000], "", None, SHA, ["bytes=70000-"]),  # the checksum will
        (OTHER[:70_000], "http://elsewhere.example", '"first"', SHA, ["bytes=70000-", None]),
        (OTHER[:70_000], "http://elsewhere.example", '"first"', None, [None]),
        (CONTENT, "", '"first"', None, ["bytes=100000-"]),  # the server says 416: there is no more
    ],
)
def test_an_earlier_commands_part_is_gone_on_with_where_it_can_be_the_same_file(
    part: bytes,
    elsewhere: str,
    mark: str | None,
    digest: str | None,
    asked: list[str | None],
    site: Site,
    tmp_path: Path,
) -> None:
    begun(tmp_path, part, elsewhere or site.address, mark)
    assert fetched(tmp_path, site, digest=digest) == CONTENT
    assert site.asked(NAME, "range") == asked
    assert here(tmp_path) == set()


def test_a_server_that_ignores_if_range_is_noticed(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path, CONTENT[:70_000], site.address)
    site.files[NAME], site.marks[NAME] = OTHER, '"second"'
    request = urllib.request.Request

    def forgetful(url: str, headers: dict[str, str]) -> Any:
        return request(url, headers={key: value for key, value in headers.items() if key != "If-Range"})

    monkeypatch.setattr(urllib.request, "Request", forgetful)
    assert fetched(tmp_path, site, digest=None) == OTHER
    assert site.asked(NAME, "range") == ["bytes=70000-", None]


def test_a_part_is_dropped_where_it_is_too_long_or_its_notes_cannot_be_read(site: Site, tmp_path: Path) -> None:
    url = f"{site.address}/data/{NAME}"
    states = ["", "[]", '{"url": 3}', '{"url": "x", "mark": 1, "total": null}', '{"other": 1}']
    for state in [json.dumps({"url": url, "mark": '"first"', "total": None}), *states]:
        (tmp_path / f"{NAME}.part").write_bytes(OTHER + b"more")
        (tmp_path / f"{NAME}.part.json").write_text(state)
        assert fetched(tmp_path, site, digest=None) == CONTENT


def test_a_part_that_another_program_left_is_not_touched(site: Site, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(b"a browser's")
    with pytest.raises(DataError, match=r"\.part' was not begun by nmt:"):
        fetch(archive(site), tmp_path)
    assert (tmp_path / f"{NAME}.part").read_bytes() == b"a browser's"


def test_a_fault_that_may_pass_is_tried_again_and_a_server_may_ask_to_wait(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(download, "time", SimpleNamespace(sleep=waited.append))
    monkeypatch.setattr(download, "PAUSE", 1.0)
    site.statuses, site.headers = [503, 500, 429, 408], {"Retry-After": "3"}
    assert fetched(tmp_path, site) == CONTENT
    assert waited == [3.0, 3.0, 4.0, 8.0]
    site.statuses, site.headers = [503], {"Retry-After": "86400"}
    fetched(tmp_path, site)
    assert waited[4:] == [60.0]


def test_patience_ends_and_progress_makes_it_anew(site: Site, tmp_path: Path) -> None:
    site.cuts = [10_000] * 9
    assert fetched(tmp_path, site) == CONTENT
    site.cuts = [0] * 20
    site.requests.clear()
    with pytest.raises(DataError, match="after 0 of 100,000 bytes, 5 times in a row"):
        fetched(tmp_path, site)
    assert len(site.requests) == 5


def test_mirrors_come_first_and_after_a_missing_file_the_next_address(
    site: Site, second: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(archive(site), tmp_path, [f"{second.address}/m/"]).url == f"{second.address}/m/{NAME}"
    assert site.requests == []
    (tmp_path / NAME).unlink()
    del second.files[NAME]
    assert fetch(archive(site), tmp_path, [second.address]).url == f"{site.address}/data/{NAME}"
    assert len(second.requests) == 2
    assert "HTTP 404 Not Found; trying the next address" in capsys.readouterr().err


def test_what_one_address_began_another_ends_also_under_another_name(site: Site, second: Site, tmp_path: Path) -> None:
    site.cuts = [40_000, 0, 0, 0, 0]
    assert fetched(tmp_path, site, second) == CONTENT
    assert second.asked(NAME, "range") == ["bytes=40000-"]
    assert second.asked(NAME, "if-range") == [None]  # its marks are its own
    site.cuts, second.files = [40_000, 0, 0, 0, 0], {"corpus.zip": CONTENT}
    both = Archive((*archive(site).sources, Source(url=f"{second.address}/corpus.zip", digest=SHA)))
    fetch(both, tmp_path)
    assert here(tmp_path) == {"corpus.zip"}


def test_a_wrong_checksum_is_refused_and_the_next_address_tried_or_taken_on_demand(
    site: Site, second: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.files[NAME] = OTHER
    assert fetched(tmp_path, site, second) == CONTENT
    assert len(site.requests) == 1
    with pytest.raises(DataError, match=f"(?s)MD5 is {hashlib.md5(OTHER).hexdigest()}.*put the file into '.*'"):
        fetched(tmp_path, site, digest=MD5)
    assert here(tmp_path) == set()
    site.cuts = [50_000, 50_000] * 10  # cut downloads come to an end, too
    site.requests.clear()
    with pytest.raises(DataError, match="wrong checksum"):
        fetched(tmp_path, site)
    assert len(site.requests) == 4
    site.cuts = []
    entry = fetch(archive(site, size=3), tmp_path, verify=False)
    assert ((tmp_path / entry.file).read_bytes(), entry.verified) == (OTHER, False)
    assert "accepted because of --no-verify" in capsys.readouterr().err


def test_no_server_no_answer_and_no_address_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.05)
    monkeypatch.setattr(download, "ATTEMPTS", 2)
    with socket.socket() as closed, socket.socket() as silent:
        for server in (closed, silent):
            server.bind(("127.0.0.1", 0))
        silent.listen()
        addresses = [f"http://127.0.0.1:{server.getsockname()[1]}/{NAME}" for server in (closed, silent)]
        says = ["Connection refused, 2 times in a row", "timed out, 2 times in a row", "no address that can be fetched"]
        for address, said in zip([*addresses, NAME], says, strict=True):
            with pytest.raises(DataError, match=rf"cannot fetch '{NAME}':\n.*{said}"):
                fetch(Archive((Source(url=address),)), tmp_path)


def test_a_proxy_is_taken_from_the_environment(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", site.address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    fetch(Archive((Source(url=f"http://corpora.example/wmt/{NAME}", digest=SHA),)), tmp_path)
    assert [path for path, _ in site.requests] == [f"http://corpora.example/wmt/{NAME}"]


def test_too_little_room_is_told_before_a_download(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=50_000))
    with pytest.raises(DataError, match=r"no space for 'corpus.tgz': 0.1 MB are missing, .* 0.1 MB free"):
        fetch(archive(site), tmp_path)


def test_a_disk_that_fills_keeps_what_came_and_the_rest_is_fetched_later(
    site: Site, second: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.cuts = [40_000]
    write, room = os.write, [60_000]

    def filling(file: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(file, data[: room[0]])
        room[0] -= taken
        return taken

    with monkeypatch.context() as full:
        full.setattr(os, "write", filling)
        with pytest.raises(DataError, match=r"the disk is full.*run the same command again to resume"):
            fetch(archive(site, second), tmp_path)
    assert second.requests == []  # no other address helps
    assert (tmp_path / f"{NAME}.part").read_bytes() == CONTENT[:60_000]
    assert (tmp_path / fetch(archive(site), tmp_path).file).read_bytes() == CONTENT
    assert site.asked(NAME, "range")[-1] == "bytes=60000-"
