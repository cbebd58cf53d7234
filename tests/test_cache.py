"""The cache folder is used only where nobody else can write; remembered hashes are those of the file as it is."""

from __future__ import annotations

import atexit
import errno
import grp
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt_cli import cache, console
from nmt_cli.cache import MOST_RECORDS, cache_folder, compile_cache, read_private, remembered_sha256, write_private
from nmt_cli.files import sha256


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of all caches, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    console.WARNED.clear()
    yield tmp_path / "cache"
    console.WARNED.clear()


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files whose hash is computed; what was written a moment ago is remembered as well."""
    paths: list[Path] = []
    monkeypatch.setattr(cache, "sha256", lambda path: (paths.append(path), sha256(path))[1])  # type: ignore[func-returns-value]
    monkeypatch.setattr(cache, "SETTLED", 0)
    return paths


def warnings(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_the_folder_and_a_file_are_the_users_alone(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the umask."""
    before = os.umask(0)
    try:
        assert cache_folder() == base / "nmt"
        write_private(tmp_path / "file", b"data")
    finally:
        os.umask(before)
    assert (mode(base), mode(base / "nmt"), mode(tmp_path / "file")) == (0o700, 0o700, 0o600)
    assert sorted(os.listdir(tmp_path)) == ["cache", "file"]
    assert cache_folder() == base / "nmt"
    assert warnings(capsys) == []


@pytest.mark.parametrize("value", ["", "relative/cache", "."])
def test_without_an_absolute_path_it_is_at_home(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "nmt"
    assert os.listdir(tmp_path) == ["home"]


def test_a_link_to_another_disk_is_followed_once(base: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    base.mkdir()
    (base / "nmt").symlink_to(tmp_path / "disk" / "nmt")
    assert cache_folder() == tmp_path / "disk" / "nmt"


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_write_to_is_not_used(bits: int, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (base / "nmt").mkdir(parents=True)
    (base / "nmt").chmod(bits)
    assert cache_folder() is None
    assert cache_folder() is None
    [line] = warnings(capsys)
    for part in (repr(str(base / "nmt")), f"user {os.geteuid()}", f"mode {bits:03o}", "chmod go-w", "XDG_CACHE_HOME"):
        assert part in line


def test_nor_is_another_users(base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert cache_folder() is not None
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert cache_folder() is None
    [line] = warnings(capsys)
    assert f"belongs to user {owner}" in line
    assert f"expected user {owner + 1}" in line or f"expected user 0 or {owner + 1}" in line


def test_nothing_is_made_in_the_home_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `sudo`: a folder of root's there would lock its owner out."""
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 1234, 1234)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(home))
    assert cache_folder() is None
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("bits", "safe"), [(0o755, True), (0o1777, True), (0o777, False), (0o757, False), (0o775, False)]
)
def test_nor_is_one_that_others_could_replace(
    bits: int, safe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder above it decides: writable by others, unless it is sticky as /tmp is."""
    monkeypatch.setattr(cache, "_own_group", lambda _: False)
    above = tmp_path / "above"
    monkeypatch.setenv("XDG_CACHE_HOME", str(above / "cache"))
    above.mkdir()
    above.chmod(bits)
    assert (cache_folder() is not None) == safe
    assert (above / "cache").exists() == safe
    lines = warnings(capsys)
    assert [repr(str(above)) in line and "others can replace" in line for line in lines] == ([] if safe else [True])


@pytest.mark.parametrize(
    ("gid", "name", "members", "own"),
    [
        (7, "me", [], True),
        (7, "me", ["me"], True),
        (7, "staff", [], False),
        (7, "me", ["you"], False),
        (8, "me", [], False),
    ],
)
def test_a_group_of_its_own(
    gid: int, name: str, members: list[str], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me", pw_gid=7))
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=name, gr_mem=members))
    assert cache._own_group(gid) is own


@pytest.mark.parametrize(
    "fault", ["no home", "no such home", "the home is a file", "a file in the way", "a circle of links", "no user"]
)
def test_without_a_folder_hashes_are_computed(
    fault: str,
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    computed: list[Path],
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"text")
    if fault == "a file in the way":
        base.mkdir()
        (base / "nmt").write_text("mine")
    elif fault == "a circle of links":
        base.symlink_to(base)
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv(
            "HOME", {"no such home": str(tmp_path / "none"), "the home is a file": str(file)}.get(fault, "")
        )
        user = {"no home": SimpleNamespace(pw_dir="/nonexistent")}.get(fault)
        monkeypatch.setattr(pwd, "getpwuid", lambda _: user if user else dict[int, Any]()[0])
    for _ in range(2):
        assert remembered_sha256(file) == hashlib.sha256(b"text").hexdigest()
    assert len(computed) == 2
    [line] = warnings(capsys)
    assert line.startswith("warning: no cache folder is used")
    assert not Path("/nonexistent").exists()
    assert not (tmp_path / "none").exists()
    assert fault != "a file in the way" or (base / "nmt").read_text() == "mine"


OWNER = os.geteuid()


def in_turn(*steps: Callable[[], object]) -> None:
    for step in steps:
        step()


UNSAFE: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], object], str]] = {
    "a link": (lambda path, _: path.symlink_to(path.rename(path.with_name("other"))), "symbolic links"),
    "a pipe": (lambda path, _: in_turn(path.unlink, lambda: os.mkfifo(path)), "regular file"),
    "a folder": (lambda path, _: in_turn(path.unlink, path.mkdir), "directory"),
    "writable by the group": (lambda path, _: path.chmod(0o620), "has mode 6"),
    "writable by all": (lambda path, _: path.chmod(0o602), "has mode 6"),
    "of another user": (lambda _, patch: patch.setattr(os, "geteuid", lambda: OWNER + 1), f"belongs to user {OWNER}"),
    "too large": (lambda _, patch: patch.setattr(cache, "LARGEST", 3), "regular file"),
}


@pytest.mark.parametrize("fault", UNSAFE)
def test_a_file_that_others_could_write_is_not_read(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, (change, reason) = tmp_path / "file", UNSAFE[fault]
    write_private(path, b"data")
    assert read_private(path) == b"data"
    change(path, monkeypatch)
    with pytest.raises(OSError, match=reason):
        read_private(path)


def test_a_hash_is_computed_once(base: Path, tmp_path: Path, computed: list[Path]) -> None:
    (tmp_path / "model").mkdir()
    file = tmp_path / "model" / "weights"
    file.write_bytes(b"weights")
    for _ in range(3):
        assert remembered_sha256(file) == hashlib.sha256(b"weights").hexdigest()
    assert computed == [file]
    assert os.listdir(tmp_path / "model") == ["weights"]
    [record] = (base / "nmt" / "sha256").iterdir()
    assert mode(record) == 0o600
    assert mode(record.parent) == 0o700


def overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as stream:
        stream.write(data)


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "a flipped bit": lambda file, _: overwrite(file, b"v"),
    "replaced": lambda file, other: in_turn(
        other.unlink, lambda: other.write_bytes(b"WEIGHTS"), lambda: other.replace(file)
    ),
    "overwritten": lambda file, _: overwrite(file, b"WEIGHTS"),
    "cut off": lambda file, _: os.truncate(file, 3),
    "through a hard link": lambda _, other: overwrite(other, b"WEIGHTS"),
    "a link to another file": lambda file, other: in_turn(
        other.unlink, lambda: other.write_bytes(b"WEIGHTS"), file.unlink, lambda: file.symlink_to(other)
    ),
}
"""Of a file, or a link to one, and of its hard link."""


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed_though_the_mtime_is_restored(change: str, tmp_path: Path, computed: list[Path]) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    real = tmp_path / "real" if change == "a link to another file" else file
    real.write_bytes(b"weights")
    os.link(real, other)
    if real != file:
        file.symlink_to(real)
    times = os.stat(file)
    assert remembered_sha256(file) == remembered_sha256(file) == hashlib.sha256(b"weights").hexdigest()
    assert len(computed) == 1
    CHANGES[change](file, other)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert os.stat(file).st_mtime_ns == times.st_mtime_ns
    assert remembered_sha256(file) == sha256(file) != hashlib.sha256(b"weights").hexdigest()


def test_what_changed_just_now_is_not_remembered(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change within the clock's tick would leave the times as they are."""
    now = time.time_ns()
    file = tmp_path / "file"
    file.write_bytes(b"weights")
    for seconds in (0, 1, -100):  # the last: the clock was set back
        monkeypatch.setattr(time, "time_ns", lambda seconds=seconds: now + seconds * 10**9)
        remembered_sha256(file)
        assert list((base / "nmt" / "sha256").iterdir()) == []
    os.utime(file, (0, 0))  # mtime is old, ctime is not
    remembered_sha256(file)
    assert list((base / "nmt" / "sha256").iterdir()) == []
    monkeypatch.setattr(time, "time_ns", lambda: now + 60 * 10**9)
    remembered_sha256(file)
    assert len(list((base / "nmt" / "sha256").iterdir())) == 1


def test_nor_is_what_changes_meanwhile(tmp_path: Path, computed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"weights")

    def slow(path: Path) -> str:
        found = sha256(path)
        file.write_bytes(b"WEIGHTS")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(cache, "sha256", slow)
        remembered_sha256(file)
    assert remembered_sha256(file) == hashlib.sha256(b"WEIGHTS").hexdigest()


def damaged(data: bytes, other: bytes) -> dict[str, bytes]:
    digest = data.split()[-2]
    return {
        "empty": b"",
        "cut off": data[:-5],
        "without its end": data[:-1],
        "zeros": bytes(len(data)),
        "garbage": bytes(range(256)),
        "another hash": data.replace(digest, b"0" * 64),
        "another version": b"2" + data[1:],
        "that of another file": other,
        "twice": data * 2,
    }


@pytest.mark.parametrize("damage", list(damaged(b"1 0 0", b"")))
def test_a_damaged_record_does_not_count(damage: str, base: Path, tmp_path: Path, computed: list[Path]) -> None:
    records: dict[str, Path] = {}
    for name in ("file", "other"):
        (tmp_path / name).write_bytes(name.encode())
        remembered_sha256(tmp_path / name)
        records[name] = next(path for path in (base / "nmt" / "sha256").iterdir() if path not in records.values())
    file, record = tmp_path / "file", records["file"]
    sound = record.read_bytes()
    record.write_bytes(damaged(sound, records["other"].read_bytes())[damage])
    assert remembered_sha256(file) == hashlib.sha256(b"file").hexdigest()
    assert record.read_bytes() == sound
    assert computed == [file, tmp_path / "other", file]


@pytest.mark.parametrize("planted", ["writable by others", "a link"])
def test_a_planted_record_does_not_count(planted: str, base: Path, tmp_path: Path, computed: list[Path]) -> None:
    """It has the right form, and says that a damaged file is whole."""
    file = tmp_path / "file"
    file.write_bytes(b"damaged")
    remembered_sha256(file)
    [record] = (base / "nmt" / "sha256").iterdir()
    record.write_bytes(cache._record(file.stat(), hashlib.sha256(b"whole").hexdigest()))
    assert remembered_sha256(file) == hashlib.sha256(b"whole").hexdigest()  # believed, as long as it is the user's
    if planted == "a link":
        record.rename(tmp_path / "elsewhere")
        record.symlink_to(tmp_path / "elsewhere")
    else:
        record.chmod(0o666)
    assert remembered_sha256(file) == hashlib.sha256(b"damaged").hexdigest()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_cache_that_cannot_be_written_changes_nothing(
    number: int,
    base: Path,
    tmp_path: Path,
    computed: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"weights")

    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    for function in ("touch", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(Path, function, lambda *_, **__: fails(0))
            assert remembered_sha256(file) == hashlib.sha256(b"weights").hexdigest()
    assert list((base / "nmt" / "sha256").iterdir()) == []
    assert warnings(capsys) == []


def test_old_records_go(base: Path, tmp_path: Path, computed: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_RECORDS == 4096
    monkeypatch.setattr(cache, "MOST_RECORDS", 8)
    files = [tmp_path / str(number) for number in range(30)]
    for number, file in enumerate(files):
        file.write_bytes(b"%d" % number)
    for number, file in enumerate(files):
        remembered_sha256(file)
        os.utime(base / "nmt" / "sha256" / f"{file.stat().st_dev:x}-{file.stat().st_ino:x}", (number, number))
        assert len(list((base / "nmt" / "sha256").iterdir())) <= 8
    computed.clear()
    for file in files[-6:]:
        remembered_sha256(file)
    assert computed == []


def test_only_regular_files_are_remembered(base: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        remembered_sha256(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        remembered_sha256(tmp_path)
    assert remembered_sha256(Path("/dev/null")) == hashlib.sha256().hexdigest()
    assert not (base / "nmt" / "sha256").exists()


CONCURRENT = """
import sys
from pathlib import Path
from nmt_cli import cache
cache.SETTLED = 0
cache.MOST_RECORDS = 16
for _ in range(20):
    for path in sorted(Path(sys.argv[1]).iterdir()):
        assert cache.remembered_sha256(path) == path.name, path
print("done")
"""


@pytest.mark.slow
def test_processes_share_the_records(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They begin without a folder, and prune and replace one another's records."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(24):
        (folder / hashlib.sha256(b"%d" % number).hexdigest()).write_bytes(b"%d" % number)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CONCURRENT, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(4)
    ]
    assert [process.communicate()[0] for process in processes] == ["done\n"] * 4
    records = list((base / "nmt" / "sha256").iterdir())
    assert 0 < len(records) <= 24
    assert all(not record.name.startswith(".") and record.read_bytes().count(b"\n") == 1 for record in records)


KILLED = """
import os, sys
from pathlib import Path
from nmt_cli import cache
cache.SETTLED = 0
if sys.argv[2] == "killed":
    Path.replace = lambda *_: os.kill(os.getpid(), 9)
cache.remembered_sha256(Path(sys.argv[1]))
"""


def test_what_a_killed_process_left_is_removed_by_the_next_one(base: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"weights")
    folder = base / "nmt" / "sha256"
    for how, left in (("killed", [True]), ("killed", [True]), ("whole", [False])):
        done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "file"), how])
        assert done.returncode == (-9 if how == "killed" else 0)
        assert [".partial-" in name for name in os.listdir(folder)] == left


COMPILE = """
from nmt_cli.cache import compile_cache
compile_cache()
import torch
torch._inductor.config.cpp.simdlen = 1  # no search for the best vector instructions, which compiles programs of its own
print(torch.compile(lambda x: (2 * x).relu())(torch.ones(9)).tolist() == [2.0] * 9)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler for torch.compile")
def test_torch_keeps_its_code_in_the_cache_folder(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none in a folder for temporary files, where others can have put some before."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
    assert mode(base / "nmt" / "inductor") == 0o700
    assert list((base / "nmt" / "inductor").rglob("*.so")) != []
    assert [
        path for path in (tmp_path / "tmp").rglob("*") if path.suffix in (".py", ".so", ".h", ".gch", ".o", ".cpp")
    ] == []


def test_another_folder_for_compiled_code(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    compile_cache()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/mine"
    assert not base.exists()
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setattr(atexit, "register", lambda *_, **__: None)
    base.mkdir()
    base.chmod(0o777)
    compile_cache()
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert mode(folder) == 0o700
    assert not (base / "nmt").exists()
    folder.rmdir()
