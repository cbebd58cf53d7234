r"""What a line is: `\n` ends it and nothing else does; archives, odd bytes, unequal sides."""

import gzip
import io
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import wait_until, was_read

from nmt_cli.errors import DataError
from nmt_cli.text.encodings import wide_encoding
from nmt_cli.text.lines import Changed, iter_lines, open_binary, open_descriptor, read_parallel

ODD = "a\u2028b\u2029c\u0085d\x0be\x0cf\rg\x1ch"


def lines_of(data: bytes) -> list[bytes]:
    return list(iter_lines(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\nb\rc", [b"a\r", b"b\rc"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [b"a", b"\xef\xbb\xbfb"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [b""]),
        (ODD.encode(), [ODD.encode()]),
        (b"\x00\xff\n\xc3", [b"\x00\xff", b"\xc3"]),
    ],
)
def test_a_line_ends_at_a_newline_only(data: bytes, lines: list[bytes]) -> None:
    assert lines_of(data) == lines


def test_missing_files_and_folders_and_unequal_numbers_are_named(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "absent", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(DataError, match=f"cannot read '{path}': {said}"):
            open_binary(path)
    with pytest.raises(DataError, match=r"1 source file\(s\) but 0 target"):
        list(read_parallel([tmp_path / "a"], []))


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def test_parallel_files_are_read_in_pairs_and_in_order(tmp_path: Path) -> None:
    sources = [write(tmp_path / "1.en", b"one", b"tw\xff"), write(tmp_path / "2.en", b"three")]
    targets = [write(tmp_path / "1.de", b"eins", b"zwei"), write(tmp_path / "2.de", b"dr\xfei")]
    replaced: Counter[str] = Counter()
    pairs = list(read_parallel(sources, targets, replaced))
    assert pairs == [("one", "eins"), ("tw\ufffd", "zwei"), ("three", "dr\ufffdi")]
    assert replaced == {str(sources[0]): 1, str(targets[1]): 1}
    assert list(read_parallel([], [])) == []


@pytest.mark.parametrize(("source", "target"), [(5, 3), (3, 5), (1, 0), (0, 1), (4, 3)])
def test_unequal_sides_name_both_counts_and_where_they_part(tmp_path: Path, source: int, target: int) -> None:
    files = [tmp_path / "s", tmp_path / "t"]
    for file, count in zip(files, (source, target), strict=True):
        write(file, *(b"line %d" % i for i in range(1, count + 1)))
    with pytest.raises(DataError) as caught:
        list(read_parallel(files[:1], files[1:]))
    apart = min(source, target) + 1
    for said in (str(files[0]), str(files[1]), f"{source} line", f"{target} line", f"line {apart}", f"'line {apart}'"):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("Ein Haus.\n".encode("utf-16"), "UTF-16"),
        ("Ein Haus.\n".encode("utf-16-le"), "UTF-16LE"),
        ("\nEin Haus, 東京 und π.\n".encode("utf-16-le"), "UTF-16LE"),
        ("Ein Haus.\n".encode("utf-32"), "UTF-32"),
        ("Ein Haus.\n".encode("utf-16-be"), "UTF-16BE"),
        ("Ein Haus.\n".encode("utf-32-le"), "UTF-32LE"),
        ("Ein Haus.\n".encode("utf-32-be"), "UTF-32BE"),
        (b"", ""),
        (bytes(1000), ""),
        (b"a line with\0one zero byte\n", ""),
        (b"\xef\xbb\xbfEin Haus.\n", ""),
        (random.Random(1).randbytes(1000), ""),
    ],
)
def test_utf_16_is_known_by_its_mark_or_its_zero_bytes(head: bytes, encoding: str) -> None:
    assert wide_encoding(head) == encoding


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_utf_16_is_refused_by_the_name_of_its_file(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "text").write_bytes(pack("\nEin Haus.\n".encode("utf-16-le")))
    said = rf"^'{tmp_path}/text' is UTF-16LE text: expected UTF-8.*iconv -f UTF-16LE"
    with open_binary(tmp_path / "text") as stream, pytest.raises(DataError, match=said):
        list(iter_lines(stream))
    with open_binary(tmp_path / "text") as stream:
        assert len(list(iter_lines(stream, any_bytes=True))) == 3


def test_the_example_shows_how_two_texts_differ() -> None:
    changed = Changed()
    changed.add("cafe\u0301", "caf\u00e9")
    assert changed.described("target") == r"1 target line, such as 'cafe\u0301', now 'caf\xe9'"


def test_a_mark_that_comes_byte_by_byte_is_seen() -> None:
    read, write = os.pipe()
    content = "Ein Haus.\n".encode("utf-16")

    def send() -> None:
        with suppress(BrokenPipeError), open(write, "wb", buffering=0) as stream:
            for number in content:
                stream.write(bytes([number]))
                wait_until(lambda: was_read(stream.fileno()))

    thread = threading.Thread(target=send)
    thread.start()
    with open_descriptor(read, "the pipe") as stream, pytest.raises(DataError, match=r"^the pipe is UTF-16 text"):
        list(iter_lines(stream, any_bytes=True))
    thread.join()
