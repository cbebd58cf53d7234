"""Archives as streams: what is read, and what is refused."""

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from website import tgz, zipped

from nmt_cli.corpora import archives
from nmt_cli.corpora.archives import check_holds, contents, open_member
from nmt_cli.errors import DataError

FILES: dict[str, bytes | str] = {"training/a.en": "one\ntwo\n", "training/a.de": "eins\nzwei\n", "other": bytes(3000)}
PACKED: dict[str, Callable[..., bytes]] = {
    "x.tgz": tgz,
    "x.tar": partial(tgz, mode="w"),
    "x.tar.xz": partial(tgz, mode="w:xz"),
    "x.tar.bz2": partial(tgz, mode="w:bz2"),
    "x.zip": zipped,
}


@pytest.fixture(params=PACKED)
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = tmp_path / request.param
    path.write_bytes(PACKED[request.param](FILES))
    return path


def read(path: Path, name: str) -> bytes:
    with open_member(path, name) as stream:
        return stream.read()


def test_members_are_listed_and_read(packed: Path) -> None:
    assert contents(packed) == {"training/a.en": 8, "training/a.de": 10, "other": 3000}
    for name, content in FILES.items():
        assert read(packed, name) == (content.encode() if isinstance(content, str) else content)
    with open_member(packed, "training/a.de") as second, open_member(packed, "training/a.en") as first:
        assert list(zip(first, second, strict=True)) == [(b"one\n", b"eins\n"), (b"two\n", b"zwei\n")]
    with pytest.raises(DataError, match=r"does not hold 'training/a.fr'; it has"):
        check_holds(packed, contents(packed), ["training/a.en", "training/a.fr"])
    check_holds(packed, contents(packed), ["other"])


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress, bytes])
def test_what_is_compressed_within_is_decompressed_too(pack: object, tmp_path: Path) -> None:
    content = pack(b"within\n")  # type: ignore[operator]
    (tmp_path / "x.tar").write_bytes(tgz({"a.gz": content}, "w"))
    (tmp_path / "x.zip").write_bytes(zipped({"a.gz": content}))
    (tmp_path / "alone").write_bytes(content)
    for name, member in (("x.tar", "a.gz"), ("x.zip", "a.gz"), ("alone", "")):
        assert read(tmp_path / name, member) == b"within\n"
    assert contents(tmp_path / "alone") == {"": len(content)}


@pytest.mark.parametrize("name", ["./dot", "../climbs", "/etc/absolute", "a/../../b", "..", "a\\..\\b", "C:/windows"])
def test_a_name_that_climbs_out_is_a_name_and_no_path(name: str, tmp_path: Path) -> None:
    for kind, pack in PACKED.items():
        folder = tmp_path / f"in {kind}"
        folder.mkdir()
        (folder / kind).write_bytes(pack({"good": "a", name: "b"}))
        assert contents(folder / kind) == {"good": 1, name.removeprefix("./"): 1}
        with open_member(folder / kind, name.removeprefix("./")) as stream:
            assert stream.read() == b"b"
        assert [path.name for path in folder.iterdir()] == [kind]
    assert not (tmp_path / "climbs").exists()


def test_links_and_devices_are_no_files(tmp_path: Path) -> None:
    tar, packed = tmp_path / "x.tar", tmp_path / "x.zip"
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        with tarfile.open(tar, mode="w") as archive:
            member = tarfile.TarInfo("a/link")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        assert contents(tar) == {}
    with zipfile.ZipFile(packed, "w") as archive_of_zip:
        link = zipfile.ZipInfo("a/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive_of_zip.writestr(link, "../../x")
    assert contents(packed) == {}


def test_more_content_than_text_has_is_refused_where_it_swells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "SLACK", 1000)
    for kind in ("x.tgz", "x.zip"):
        (tmp_path / kind).write_bytes(PACKED[kind]({"bomb": bytes(10**6)}))
        with pytest.raises(DataError, match="it would unpack to more than 200 times its size"):
            contents(tmp_path / kind)
    (tmp_path / "x.tar").write_bytes(tgz({"a.gz": gzip.compress(bytes(10**6))}, "w"))
    contents(tmp_path / "x.tar")
    with pytest.raises(DataError, match="more than 200 times"):
        read(tmp_path / "x.tar", "a.gz")


def damaged(data: bytes) -> dict[str, bytes]:
    return {
        "cut": data[: len(data) // 2],
        "changed": data[: len(data) // 2] + b"damage" + data[len(data) // 2 + 6 :],
        "empty": b"",
        "text": b"<html>not found</html>\n" * 50,
    }


@pytest.mark.parametrize("how", ["cut", "changed", "empty", "text"])
@pytest.mark.parametrize("kind", ["x.tgz", "x.zip", "x.tar.xz"])
def test_a_damaged_archive_is_a_named_fault(kind: str, how: str, tmp_path: Path) -> None:
    noise = bytes(range(256)) * 100
    path = tmp_path / kind
    path.write_bytes(damaged(PACKED[kind]({"a": noise, "b": noise[::-1]}))[how])
    with pytest.raises(DataError, match=r"x\.(tgz|zip|tar\.xz)"):
        [read(path, name) for name in contents(path)]


def test_archives_whose_last_bytes_are_wrong_that_are_encrypted_or_missing_are_named(tmp_path: Path) -> None:
    data = bytearray(tgz(FILES))
    data[-6] ^= 1  # a tar ends before the compressed file does: what follows is read too
    (tmp_path / "x.tgz").write_bytes(bytes(data))
    with pytest.raises(DataError, match="damaged or cut archive"):
        contents(tmp_path / "x.tgz")
    data = bytearray(zipped({"a": "text"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    (tmp_path / "x.zip").write_bytes(bytes(data))
    for name, member, said in (("x.zip", "a", "encrypted"), ("x.gz", "", "cannot read")):
        with pytest.raises(DataError, match=said):
            read(tmp_path / name, member)
