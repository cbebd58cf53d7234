"""Compressed text through the commands: read from files and stdin, written as the name says, and never read in part."""

import gzip
import subprocess
from pathlib import Path

import forked
import pytest
from backports import zstd
from untrained import write_untrained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with an untrained model in it."""
    return write_untrained(tmp_path_factory.mktemp("run") / "best").parent


def nmt(*args: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return forked.run(Path.cwd(), "translate", *args, text=stdin)


def test_compressed_text_in_and_out(folder: Path, tmp_path: Path) -> None:
    given = b"the cat.\na dog.\n"
    plain = nmt("-m", folder, stdin=given).stdout
    packed = gzip.compress(given[:9]) + bytes(8) + gzip.compress(given[9:])
    for suffix, unpack in ((".gz", gzip.decompress), (".zst", zstd.decompress)):
        out, link = tmp_path / f"out{suffix}", tmp_path / f"link{suffix}"
        out.write_bytes(b"earlier")
        out.chmod(0o640)
        link.symlink_to(out)
        done = nmt("-m", folder, "--output", link, stdin=packed)
        assert (done.returncode, done.stdout) == (0, b"")
        assert unpack(out.read_bytes()) == plain
        assert link.is_symlink()
        assert out.stat().st_mode & 0o777 == 0o640
    done = nmt("-m", folder, "--output", tmp_path / "bad.xz", stdin=packed + b"garbage")
    assert done.returncode == 1
    assert f"byte {len(packed)}".encode() in done.stderr
    assert not (tmp_path / "bad.xz").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_compressed_output_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    for suffix in (".gz", ".xz", ".bz2", ".zst"):
        (tmp_path / f"full{suffix}").symlink_to("/dev/full")
        options = ("--model", folder, "--input", Path(__file__), "--output", tmp_path / f"full{suffix}")
        assert "the disk is full" in forked.nmt(Path.cwd(), "translate", *options, code=75)


def test_no_command_reads_a_part_of_a_file(tmp_path: Path) -> None:
    text = b"(TOP (NN word))\n" * 200
    whole, half = gzip.compress(text), gzip.compress(text[: len(text) // 2])
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "two").write_bytes(half + half)
    (tmp_path / "bad").write_bytes(half + whole[:20] + bytes(20))
    calls = [
        ("score", "{}", "--ref", "plain", "--metric", "bleu"),
        ("score", "plain", "--ref", "{}", "--metric", "bleu"),
        ("init", "mine", "--source", "{}", "--target", "{}", "--source-language", "en", "--target-language", "de"),
        ("data", "trees", "{}", "--out", "out"),
    ]
    for command in calls:
        done = forked.run(tmp_path, *(word.format("bad") for word in command))
        assert done.returncode == 1
        assert b"error: 'bad' is " in done.stderr
        assert f"stream 2, which begins at byte {len(half):,}".encode() in done.stderr
        assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())
        assert not (tmp_path / "mine.toml").exists()
    assert forked.run(tmp_path, "score", "two", "--ref", "plain", "--metric", "bleu").stdout.startswith(
        b"BLEU   100.00"
    )
