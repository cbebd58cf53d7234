"""Compressed text: all of a file is read, or it is refused; outputs are compressed as their names say."""

import bz2
import gzip
import io
import lzma
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from website import zipped

from nmt_cli.errors import DataError
from nmt_cli.text.compression import FORMATS, Damaged, Unpacked, compressing
from nmt_cli.text.lines import iter_lines, open_binary, open_descriptor

ONE, TWO = b"one\nzwei\n" * 40, bytes(range(256)) * 3 + b"\n"
SKIPPABLE = b"\x5a\x2a\x4d\x18\x05\x00\x00\x00hello"


def zst(data: bytes) -> bytes:
    """As the command zstd writes it, with a checksum."""
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


MODULES = {".gz": gzip, ".xz": lzma, ".bz2": bz2, ".zst": zstd}
PACK: dict[str, Callable[[bytes], bytes]] = {name: module.compress for name, module in MODULES.items()}
PACK[".zst"] = zst
every_format = pytest.mark.parametrize("suffix", FORMATS)


def unpacked(packed: bytes, step: int = 1 << 30, size: int = 1 << 18) -> bytes:
    """Read a source that returns at most `step` bytes at a time, in pieces of at most `size` bytes."""
    source, pieces = io.BytesIO(packed), []
    reader = Unpacked(lambda wanted: source.read(min(step, wanted)))
    while piece := reader.read(size):
        assert len(piece) <= size
        pieces.append(piece)
    assert reader.read(size) == b""
    return b"".join(pieces)


STEPS = [(1, 1), (7, 100), (1 << 30, 1 << 18)]


@every_format
@pytest.mark.parametrize(("step", "size"), STEPS)
def test_all_streams_are_read(suffix: str, step: int, size: int) -> None:
    pack = PACK[suffix]
    assert unpacked(pack(ONE) + pack(b"") + pack(TWO) + pack(ONE), step, size) == ONE + TWO + ONE
    assert unpacked(pack(b""), step, size) == b""
    assert unpacked(ONE + pack(ONE), step, size) == ONE + pack(ONE)  # plain, whatever comes later


@pytest.mark.parametrize(("step", "size"), STEPS)
def test_padding_that_a_format_allows_is_passed_over(step: int, size: int) -> None:
    for suffix, length in ((".gz", 1), (".gz", 511), (".xz", 4), (".xz", 512)):
        pack, zeros = PACK[suffix], bytes(length)
        assert unpacked(pack(ONE) + zeros + pack(TWO) + zeros, step, size) == ONE + TWO
    assert unpacked(SKIPPABLE + zst(ONE) + SKIPPABLE + zst(TWO) + SKIPPABLE, step, size) == ONE + TWO


@pytest.mark.parametrize(("suffix", "length"), [(".xz", 1), (".xz", 6), (".bz2", 4), (".zst", 4)])
def test_other_padding_is_refused(suffix: str, length: int) -> None:
    for rest in (b"", PACK[suffix](TWO)):
        with pytest.raises(Damaged, match=r"zero bytes stand before byte|what follows from byte"):
            unpacked(PACK[suffix](ONE) + bytes(length) + rest)


@every_format
def test_what_follows_the_last_stream_is_named_by_its_byte(suffix: str, tmp_path: Path) -> None:
    packed, path = PACK[suffix](ONE), tmp_path / "text"
    said = rf"text' is a damaged or cut archive: what follows from byte {len(packed):,} on is no {FORMATS[suffix].name}"
    for rest in (b"more text\n", b"B", b"\x1f?", *(PACK[other](TWO) for other in FORMATS if other != suffix)):
        path.write_bytes(packed + rest)
        with open_binary(path) as stream, pytest.raises(DataError, match=said):
            list(iter_lines(stream))


@every_format
def test_a_cut_file_is_refused_wherever_it_is_cut(suffix: str) -> None:
    first, second = PACK[suffix](ONE), PACK[suffix](TWO)
    both = first + second
    for end in range(len(FORMATS[suffix].magic[0]), len(both)):
        if end != len(first):  # a file that is cut between two streams looks complete
            with pytest.raises(Damaged, match=r"ends within stream|what follows"):
                unpacked(both[:end])
    assert unpacked(first) == ONE


@every_format
def test_a_changed_byte_is_never_a_wrong_result(suffix: str) -> None:
    first, second = PACK[suffix](ONE), PACK[suffix](TWO)
    refused = 0
    for at in range(len(second)):
        changed = second[:at] + bytes([second[at] ^ 0x11]) + second[at + 1 :]
        try:
            result = unpacked(first + changed)
        except Damaged:
            refused += 1
        else:
            assert result == ONE + TWO
    assert refused > 0.8 * len(second)  # gzip does not check its time and the name of the system


@pytest.mark.parametrize("pack", [bytes, *PACK.values()])
def test_lines_of_a_pipe_come_before_what_follows(pack: Callable[[bytes], bytes]) -> None:
    read, write = os.pipe()
    go_on = threading.Event()

    def send() -> None:
        with open(write, "wb", buffering=0) as pipe:
            for byte in pack(b"first line\n"):
                pipe.write(bytes([byte]))
            assert go_on.wait(60)
            pipe.write(pack(b"second"))

    writer = threading.Thread(target=send)
    writer.start()
    with open_descriptor(read, "standard input") as stream:
        lines = iter_lines(stream)
        assert next(lines) == b"first line"  # the writer still waits
        go_on.set()
        assert list(lines) == [b"second"]
    writer.join()


@every_format
def test_a_small_file_that_swells_is_read_in_pieces(suffix: str) -> None:
    source = io.BytesIO(PACK[suffix](bytes(50_000_000)))
    reader, total, most = Unpacked(source.read), 0, 0
    while piece := reader.read(10_000):
        total, most = total + len(piece), max(most, len(piece))
    assert (total, most) == (50_000_000, 10_000)


def test_text_with_such_a_name_and_text_about_archives_is_read(tmp_path: Path) -> None:
    for content in (b"plain words\n", b"Gr\xfc\xdfe\n", "größer\t東京\f\n".encode(), b"BZh9 is how this text begins\n"):
        for suffix in FORMATS:
            (tmp_path / f"text{suffix}").write_bytes(content)
            with open_binary(tmp_path / f"text{suffix}") as stream:
                assert stream.read() == content
    for content in (b"ustar".rjust(262) + b" text", b"PK is a name\n", b"7z and Rar!\n"):
        (tmp_path / "text").write_bytes(content)
        with open_binary(tmp_path / "text") as stream:
            assert stream.read() == content


@pytest.mark.parametrize("content", [b"", bytes(1000), b"\x1f\x8b\x00" + bytes(range(1, 256)), bytes(range(256))])
def test_what_is_neither_compressed_nor_text_is_refused_by_its_name(content: bytes, tmp_path: Path) -> None:
    for name in ("text.gz", "text"):
        (tmp_path / name).write_bytes(content)
    said = r"text\.gz' is named \.gz, but is neither compressed nor text; it begins with b'"
    with open_binary(tmp_path / "text.gz") as stream, pytest.raises(DataError, match=said):
        list(iter_lines(stream))
    with open_binary(tmp_path / "text") as stream:
        assert stream.read() == content


def tar(kind: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=kind) as archive:
        archive.addfile(tarfile.TarInfo("a.en"), io.BytesIO())
    return stream.getvalue()


ARCHIVES = {
    "ustar": (tar(tarfile.USTAR_FORMAT), "a tar archive: expected a text file.*: tar -xf FILE"),
    "pax": (tar(tarfile.PAX_FORMAT), "a tar archive"),
    "zip": (zipped({"a.en": "text\n"}), "a zip archive.*unzip FILE"),
    "7z": (b"7z\xbc\xaf\x27\x1c\x00\x04", "a 7z archive.*7z x FILE"),
    "rar": (b"Rar!\x1a\x07\x01\x00", "a RAR archive.*unrar x FILE"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
@pytest.mark.parametrize("pack", [bytes, *PACK.values()])
def test_archives_of_several_files_are_refused(kind: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    content, message = ARCHIVES[kind]
    (tmp_path / "text").write_bytes(pack(content))
    with open_binary(tmp_path / "text") as stream, pytest.raises(DataError, match=rf"text' is {message}"):
        stream.read()


@every_format
def test_a_stream_is_compressed_as_the_name_says_and_has_no_name_or_time(suffix: str) -> None:
    written = []
    for name in (f"out{suffix}", f"other{suffix}"):
        sink = io.BytesIO()
        with compressing(sink, name) as stream:
            for _ in range(1000):
                stream.write(ONE)
            stream.flush()
        assert not sink.closed
        written.append(sink.getvalue())
    assert written[0] == written[1]
    assert suffix != ".gz" or written[0][3:8] == bytes(5)
    assert unpacked(written[0]) == MODULES[suffix].decompress(written[0]) == ONE * 1000
    assert len(written[0]) < len(ONE * 1000) / 10
    for name in ("out", f"{suffix[1:]}", suffix, f"out{suffix}.txt"):
        with compressing(sink, name) as stream:
            assert stream is sink
