"""Downloads from a server that cuts, refuses, forgets ranges and changes its files."""

from __future__ import annotations

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
from unittest.mock import MagicMock

import pytest
from website import Site, serve

from nmt_cli import console
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


def begun(
    folder: Path, content: bytes, site: Site | str, mark: str | None = '"first"', total: int | None = len(CONTENT)
) -> None:
    """What an earlier command left."""
    url = site if isinstance(site, str) else f"{site.address}/data/{NAME}"
    (folder / f"{NAME}.part").write_bytes(content)
    (folder / f"{NAME}.part.json").write_text(json.dumps({"url": url, "mark": mark, "total": total}))


def here(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# The whole at once


@pytest.mark.parametrize("digest", [SHA, MD5, None])
def test_an_archive_is_fetched_checked_and_written_down(
    digest: str | None, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched = fetch(archive(site, digest=digest, size=len(CONTENT)), tmp_path)
    assert (fetched.file, fetched.verified) == (NAME, digest is not None)
    assert fetched.url == f"{site.address}/data/{NAME}"
    assert (tmp_path / fetched.file).read_bytes() == CONTENT
    assert f"sha256:{fetched.sha256}" == SHA
    assert here(tmp_path) == {NAME}
    assert ("no checksum is published for it; its SHA-256 is" in capsys.readouterr().err) == (digest is None)
    assert site.requests[0][1]["user-agent"].startswith("nmt/")


def test_what_is_there_also_under_a_second_name_is_not_fetched(site: Site, tmp_path: Path) -> None:
    both = Archive((*archive(site).sources, Source(url=f"{site.address}/corpus.zip", digest=SHA)))
    for name in ("corpus.zip", NAME):
        (tmp_path / name).write_bytes(CONTENT)
        fetched = fetch(both, tmp_path)
        assert (fetched.file, fetched.url) == (name, None)
    assert site.requests == []


def test_what_is_there_and_is_something_else_is_refused_and_left(site: Site, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(OTHER)
    for digest, said in ((SHA, "its SHA-256 is"), (MD5, f"its MD5 is {hashlib.md5(OTHER).hexdigest()}, expected md5:")):
        with pytest.raises(DataError, match=said):
            fetch(archive(site, digest=digest), tmp_path)
    assert (tmp_path / NAME).read_bytes() == OTHER
    assert fetch(archive(site), tmp_path, verify=False).verified is False
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    with pytest.raises(DataError, match=r"cannot read .*corpus.tgz': Is a directory"):
        fetch(archive(site), tmp_path)


def test_an_archive_without_a_known_checksum_must_stay_as_it_was_fetched(site: Site, tmp_path: Path) -> None:
    known = {NAME: fetch(archive(site, digest=None), tmp_path).sha256}
    (tmp_path / NAME).write_bytes(OTHER)
    with pytest.raises(DataError, match="has changed since it was fetched"):
        fetch(archive(site, digest=None), tmp_path, known=known)
    fetched = fetch(archive(site, digest=None), tmp_path, verify=False, known=known)
    assert fetched.sha256 == hashlib.sha256(OTHER).hexdigest()


def test_a_length_that_is_not_said_is_no_matter_and_another_one_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the server has 100,000 bytes, expected 99"):
        fetch(archive(site, size=99), tmp_path)
    assert here(tmp_path) == set()  # before a byte is kept
    site.lengths = False
    assert (tmp_path / fetch(archive(site, size=len(CONTENT)), tmp_path).file).read_bytes() == CONTENT


def test_a_file_of_no_bytes_is_a_file(site: Site, tmp_path: Path) -> None:
    site.files[NAME] = b""
    assert (tmp_path / fetch(archive(site, digest=None), tmp_path).file).read_bytes() == b""
    (tmp_path / NAME).unlink()
    with pytest.raises(DataError, match="wrong checksum"):
        fetch(archive(site), tmp_path)


# Interrupted


def test_a_cut_download_goes_on_where_it_ended(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.cuts = [30_000, 50_000]
    assert (tmp_path / fetch(archive(site), tmp_path).file).read_bytes() == CONTENT
    assert site.asked(NAME, "range") == [None, "bytes=30000-", "bytes=80000-"]
    assert site.asked(NAME, "if-range") == [None, '"first"', '"first"']
    assert "the connection ended after 30,000 of 100,000 bytes; again in 0 s" in capsys.readouterr().err


def test_an_earlier_commands_part_is_gone_on_with(site: Site, tmp_path: Path) -> None:
    begun(tmp_path, CONTENT[:70_000], site)
    assert (tmp_path / fetch(archive(site, digest=None), tmp_path).file).read_bytes() == CONTENT
    assert site.asked(NAME, "range") == ["bytes=70000-"]
    assert here(tmp_path) == {NAME}


def test_a_server_without_ranges_begins_anew(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.ranges, site.cuts = False, [30_000]
    assert (tmp_path / fetch(archive(site), tmp_path).file).read_bytes() == CONTENT
    assert site.asked(NAME, "range") == [None, "bytes=30000-"]
    assert "starts from the beginning" in capsys.readouterr().err


@pytest.mark.parametrize("digest", [f"sha256:{hashlib.sha256(OTHER).hexdigest()}", None])
def test_two_versions_of_a_file_are_never_joined(digest: str | None, site: Site, tmp_path: Path) -> None:
    begun(tmp_path, CONTENT[:70_000], site)
    site.files[NAME], site.marks[NAME] = OTHER, '"second"'
    assert (tmp_path / fetch(archive(site, digest=digest), tmp_path).file).read_bytes() == OTHER
    assert site.asked(NAME, "if-range") == ['"first"']


def test_a_server_that_ignores_if_range_is_found_out(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path, CONTENT[:70_000], site)
    site.files[NAME], site.marks[NAME] = OTHER, '"second"'
    request = urllib.request.Request

    def forgetful(url: str, headers: dict[str, str]) -> Any:
        return request(url, headers={key: value for key, value in headers.items() if key != "If-Range"})

    monkeypatch.setattr(urllib.request, "Request", forgetful)
    assert (tmp_path / fetch(archive(site, digest=None), tmp_path).file).read_bytes() == OTHER
    assert site.asked(NAME, "range") == ["bytes=70000-", None]


def test_without_a_mark_a_rest_is_asked_for_only_where_a_checksum_tells(site: Site, tmp_path: Path) -> None:
    del site.marks[NAME]
    begun(tmp_path, CONTENT[:70_000], site, mark=None)
    fetch(archive(site, digest=None), tmp_path)
    begun(tmp_path, CONTENT[:70_000], site, mark=None)
    (tmp_path / NAME).unlink()
    fetch(archive(site), tmp_path)
    assert site.asked(NAME, "range") == [None, "bytes=70000-"]


def test_a_part_of_another_file_is_found_out(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its checksum; where there is none, a part of another address is never joined."""
    for digest, asked, said in ((SHA, ["bytes=70000-", None], True), (None, [None], False)):
        begun(tmp_path, OTHER[:70_000], "http://elsewhere.example/corpus.tgz")
        assert (tmp_path / fetch(archive(site, digest=digest), tmp_path).file).read_bytes() == CONTENT
        assert site.asked(NAME, "range") == asked
        assert ("it was joined from several parts and is downloaded again" in capsys.readouterr().err) == said
        (tmp_path / NAME).unlink()
        site.requests.clear()


def test_a_download_stopped_after_its_last_byte_is_complete(site: Site, tmp_path: Path) -> None:
    begun(tmp_path, CONTENT, site)
    fetch(archive(site, digest=None), tmp_path)  # the server says 416: there is no more
    assert site.asked(NAME, "range") == ["bytes=100000-"]


def test_a_part_is_dropped_where_it_is_too_long_or_its_notes_cannot_be_read(site: Site, tmp_path: Path) -> None:
    url = f"{site.address}/data/{NAME}"
    states = ["", "[]", '{"url": 3}', '{"url": "x", "mark": 1, "total": null}', '{"other": 1}']
    for state in [json.dumps({"url": url, "mark": '"first"', "total": None}), *states]:
        (tmp_path / f"{NAME}.part").write_bytes(OTHER + b"more")
        (tmp_path / f"{NAME}.part.json").write_text(state)
        path = tmp_path / fetch(archive(site, digest=None), tmp_path).file
        assert path.read_bytes() == CONTENT
        path.unlink()


def test_a_part_that_another_program_left_is_not_touched(site: Site, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(b"a browser's")
    with pytest.raises(DataError, match=r"\.part' was not begun by nmt data"):
        fetch(archive(site), tmp_path)
    assert (tmp_path / f"{NAME}.part").read_bytes() == b"a browser's"


# Faults of the server


def test_a_fault_that_may_pass_is_tried_again(site: Site, tmp_path: Path) -> None:
    site.statuses = [500, 503, 429, 408]
    assert (tmp_path / fetch(archive(site), tmp_path).file).read_bytes() == CONTENT
    assert len(site.requests) == 5


def test_a_server_may_ask_to_wait(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(download, "time", SimpleNamespace(sleep=waited.append))
    monkeypatch.setattr(download, "PAUSE", 1.0)
    site.statuses, site.headers = [503, 500, 429], {"Retry-After": "3"}
    fetch(archive(site), tmp_path)
    assert waited == [3.0, 3.0, 4.0]
    site.statuses, site.headers = [503], {"Retry-After": "86400"}
    (tmp_path / NAME).unlink()
    fetch(archive(site), tmp_path)
    assert waited[3:] == [60.0]


def test_patience_ends_and_progress_makes_it_anew(site: Site, tmp_path: Path) -> None:
    site.cuts = [10_000] * 9
    assert (tmp_path / fetch(archive(site), tmp_path).file).read_bytes() == CONTENT
    (tmp_path / NAME).unlink()
    site.cuts = [0] * 20
    site.requests.clear()
    with pytest.raises(DataError, match="after 0 of 100,000 bytes, 5 times in a row"):
        fetch(archive(site), tmp_path)
    assert len(site.requests) == 5


def test_after_a_missing_file_the_next_address(
    site: Site, second: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del site.files[NAME]
    assert fetch(archive(site, second), tmp_path).url == f"{second.address}/data/{NAME}"
    assert len(site.requests) == 1
    assert "HTTP 404 Not Found; trying the next address" in capsys.readouterr().err


def test_mirrors_come_first_and_the_official_address_after_them(site: Site, second: Site, tmp_path: Path) -> None:
    assert fetch(archive(site), tmp_path, [f"{second.address}/m/"]).url == f"{second.address}/m/{NAME}"
    assert site.requests == []
    (tmp_path / NAME).unlink()
    del second.files[NAME]
    assert fetch(archive(site), tmp_path, [second.address]).url == f"{site.address}/data/{NAME}"


def test_what_one_address_began_another_ends(site: Site, second: Site, tmp_path: Path) -> None:
    site.cuts = [40_000, 0, 0, 0, 0]
    fetch(archive(site, second), tmp_path)
    assert second.asked(NAME, "range") == ["bytes=40000-"]
    assert second.asked(NAME, "if-range") == [None]  # its marks are its own


def test_what_one_address_began_goes_where_another_has_another_name(site: Site, second: Site, tmp_path: Path) -> None:
    site.cuts, second.files = [40_000, 0, 0, 0, 0], {"corpus.zip": CONTENT}
    both = Archive((*archive(site).sources, Source(url=f"{second.address}/corpus.zip", digest=SHA)))
    assert (tmp_path / fetch(both, tmp_path).file) == tmp_path / "corpus.zip"
    assert here(tmp_path) == {"corpus.zip"}


def test_a_wrong_checksum_is_refused_and_the_next_address_tried(site: Site, second: Site, tmp_path: Path) -> None:
    site.files[NAME] = OTHER
    assert fetch(archive(site, second), tmp_path).url == f"{second.address}/data/{NAME}"
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match=f"(?s)MD5 is {hashlib.md5(OTHER).hexdigest()}.*put the file into '.*/other'"):
        fetch(archive(site, digest=MD5), tmp_path / "other")
    assert here(tmp_path / "other") == set()


def test_cut_downloads_with_a_wrong_checksum_come_to_an_end(site: Site, tmp_path: Path) -> None:
    site.files[NAME], site.cuts = OTHER, [50_000, 50_000] * 10
    with pytest.raises(DataError, match="wrong checksum"):
        fetch(archive(site), tmp_path)
    assert len(site.requests) == 4


def test_a_wrong_checksum_is_taken_on_demand(site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.files[NAME] = OTHER
    fetched = fetch(archive(site, size=3), tmp_path, verify=False)
    assert ((tmp_path / fetched.file).read_bytes(), fetched.verified) == (OTHER, False)
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


# Faults of the disk


def test_too_little_room_is_told_before_a_byte_comes(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 50_000})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(
        DataError, match=r"no space for 'corpus.tgz': 0.1 MB are missing, and at .* the disk has 0.1 MB free"
    ):
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
        with pytest.raises(
            DataError, match=r"the disk is full.*What was downloaded is kept; run the same command again to resume"
        ):
            fetch(archive(site, second), tmp_path)
    assert second.requests == []  # no other address helps
    assert (tmp_path / f"{NAME}.part").read_bytes() == CONTENT[:60_000]
    assert (tmp_path / fetch(archive(site), tmp_path).file).read_bytes() == CONTENT
    assert site.asked(NAME, "range")[-1] == "bytes=60000-"


def test_a_stop_midway_keeps_what_came(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bar = MagicMock()  # it is interrupted at its second piece
    bar.__enter__.return_value.update.side_effect = [None, None, KeyboardInterrupt]
    monkeypatch.setattr(download, "PIECE", 10_000)
    with monkeypatch.context() as stopping:
        stopping.setattr(console, "progress", lambda *_: bar)
        with pytest.raises(KeyboardInterrupt):
            fetch(archive(site, digest=None), tmp_path)
    came = (tmp_path / f"{NAME}.part").read_bytes()
    assert 0 < len(came) <= 20_000
    assert came == CONTENT[: len(came)]
    fetch(archive(site, digest=None), tmp_path)
    assert site.asked(NAME, "range") == [None, f"bytes={len(came)}-"]
