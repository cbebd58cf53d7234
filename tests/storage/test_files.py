"""Files, links and folders are complete or not there, and a fault leaves no litter."""

import errno
import fcntl
import os
import re
import stat
from contextlib import nullcontext
from pathlib import Path

import pytest

from nmt_cli.errors import UsageError
from nmt_cli.storage import files
from nmt_cli.storage.files import clear_partial, link_atomic, new_files, new_folder, write_atomic


class Fault(Exception):
    pass


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def failing(*_: object, **__: object) -> None:
    raise Fault


def ours(_: Path) -> str:
    return ""


def test_readers_see_the_old_file_until_the_new_one_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen, fsync = tmp_path / "file", list[bytes](), os.fsync
    write_atomic(path, b"old")

    def flushed(descriptor: int) -> None:
        seen.append(path.read_bytes())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", flushed)
    write_atomic(path, b"new\n\x00")
    assert seen == [b"old", b"new\n\x00"]  # the file's own flush, then the folder's
    assert path.read_bytes() == b"new\n\x00"
    assert names(tmp_path) == ["file"]


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    write_atomic(tmp_path / "fresh", b"new")
    assert (tmp_path / "fresh").stat().st_mode == path.stat().st_mode  # as any new file
    for mode in (0o600, 0o755):
        path.chmod(mode)
        write_atomic(path, b"new")
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("where", ["lock", "block", "fsync", "replace"])
def test_of_new_files_none_is_there_after_a_fault(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").write_text("old")
    if where != "block":
        monkeypatch.setattr({"lock": files, "fsync": os, "replace": Path}[where], where, failing)

    def write() -> None:
        with new_files([tmp_path / "one", tmp_path / "two"]) as (one, _):
            one.write(b"1")
            if where == "block":
                raise Fault

    with pytest.raises(Fault):
        write()
    assert names(tmp_path) == ["one"]
    assert (tmp_path / "one").read_text() == "old"


def test_a_link_is_made_and_replaced_and_nothing_else(tmp_path: Path) -> None:
    for target in ("one", "two"):
        (tmp_path / target).mkdir()
        link_atomic(tmp_path / "last", target)
        assert (tmp_path / "last").readlink() == Path(target)
    (tmp_path / "file").touch()
    for name, error in (("two", OSError), ("file", FileExistsError)):
        with pytest.raises(error, match=name):
            link_atomic(tmp_path / name, "one")
    assert names(tmp_path) == ["file", "last", "one", "two"]
    assert names(tmp_path / "one") == names(tmp_path / "two") == []


@pytest.mark.parametrize("fault", ["", "in the block", "in rename 1", "in rename 2"])
@pytest.mark.parametrize("there_before", [True, False])
def test_a_new_folder_replaces_the_old_one_altogether_unless_there_is_a_fault(
    fault: str, there_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename, calls = tmp_path / "folder", Path.rename, list[Path]()
    if there_before:
        path.mkdir()
        (path / "old").touch()

    def spy(self: Path, target: Path) -> Path:
        calls.append(target)
        if fault == f"in rename {len(calls)}":
            raise Fault
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", spy)
    expected = fault and (there_before or fault != "in rename 2")  # a new folder has one rename
    with pytest.raises(Fault) if expected else nullcontext(), new_folder(path, ours) as aside:
        (aside / "new").touch()
        assert not there_before or names(path) == ["old"]
        if fault == "in the block":
            raise Fault
    assert names(tmp_path) == ["folder"] * (there_before or not expected)
    assert not path.exists() or names(path) == ["old" if expected else "new"]


@pytest.mark.parametrize("name", ["out", "n" * 250, "ü" * 120, "a'b\n"])
def test_what_a_killed_process_left_is_removed_and_not_what_one_writes(name: str, tmp_path: Path) -> None:
    """Two writers of one file: neither removes what the other writes, and the last one to end wins. A number says nothing."""
    path, other = tmp_path / name, f".{name[0]}.partial-1"
    with new_folder(path):
        pass
    path.rmdir()
    with new_files([path]):
        [left] = names(tmp_path)
    (tmp_path / left).write_bytes(b"half")
    (tmp_path / other).touch()  # of another file
    write_atomic(path, b"1")
    assert names(tmp_path) == sorted([name, other])
    with new_files([path]) as (first,):
        with new_files([path]) as (second,):
            assert len(names(tmp_path)) == 4
            second.write(b"second")
        first.write(b"first")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == sorted([name, other])


def test_what_another_user_writes_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".out.partial-1").touch()
    owner = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: owner + 1)
        clear_partial(tmp_path, ["out"])
    assert names(tmp_path) == [".out.partial-1"]
    clear_partial(tmp_path, ["out"])
    assert names(tmp_path) == []


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    (tmp_path / ".out.partial-1").touch()
    write_atomic(tmp_path / "out", b"1")
    assert names(tmp_path) == [".out.partial-1", "out"]
    with new_folder(tmp_path / "folder") as aside:
        (aside / "new").touch()
    assert names(tmp_path) == [".out.partial-1", "folder", "out"]


def test_a_folder_that_is_being_replaced_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though another process clears up between the two renames."""
    rename = files.rename_flushed

    def between(aside: Path, path: Path) -> None:
        clear_partial(tmp_path, ["folder"])
        rename(aside, path)

    monkeypatch.setattr(files, "rename_flushed", between)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    with new_folder(tmp_path / "folder", ours) as aside:
        (aside / "new").touch()
    assert (names(tmp_path), names(tmp_path / "folder")) == (["folder"], ["new"])


def test_clearing_leaves_other_names_alone(tmp_path: Path) -> None:
    kept = [".thesis.old-2024", ".folder.partial-x", ".folder.old", "folder.partial-1", ".step-x.partial-3"]
    for name in [*kept, ".folder.partial-1", ".step-7.old-2"]:
        (tmp_path / name).mkdir()
    clear_partial(tmp_path, ["folder"])
    clear_partial(tmp_path, re.compile(r"step-\d+"))
    assert names(tmp_path) == sorted([*kept, "step-7"])


def test_a_folder_that_fills_up_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with pytest.raises(UsageError, match="it exists"), new_folder(path):
        (path / "mine").mkdir(parents=True)
    assert (names(path), names(tmp_path)) == (["mine"], ["folder"])


def test_all_in_a_folder_is_flushed_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str | int] = []
    rename, fsync = Path.rename, os.fsync

    def renamed(self: Path, target: Path) -> Path:
        events.append("rename")
        return rename(self, target)

    def flushed(descriptor: int) -> None:
        events.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(os, "fsync", flushed)
    with new_folder(tmp_path / "folder") as aside:
        assert names(aside) == []
        (aside / "inner").mkdir()
        (aside / "inner" / "file").write_bytes(b"1")
        assert not (tmp_path / "folder").exists()
    assert names(tmp_path) == ["folder"]
    written = [tmp_path / "folder", tmp_path / "folder" / "inner", tmp_path / "folder" / "inner" / "file"]
    assert set(events[:3]) == {item.stat().st_ino for item in written}
    assert events[3:] == ["rename", tmp_path.stat().st_ino]
