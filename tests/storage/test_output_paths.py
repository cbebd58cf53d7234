"""What may be replaced: an earlier output of the same command, a file that the user named, and nothing else."""

import os
import stat
import threading
from pathlib import Path

import pytest

from nmt_cli.errors import DataError, UsageError
from nmt_cli.storage.output_paths import check_output_folder, output_file, output_files, output_folder


def mine(_: Path) -> str:
    return ""


def anothers(_: Path) -> str:
    return "someone else wrote it"


def write(path: Path, **options: object) -> None:
    with output_file(path, "the text", **options) as stream:  # type: ignore[arg-type]
        stream.write(b"new")


def fill(path: Path, **options: object) -> None:
    with output_folder(path, "the model", **{"ours": anothers, **options}) as aside:  # type: ignore[arg-type]
        (aside / "new").touch()


def names(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())


def test_a_new_file_and_its_folders_are_made_and_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    for _ in range(2):
        write(path)
        assert path.read_bytes() == b"new"
        path.write_bytes(b"old")


@pytest.mark.parametrize("there", [True, False])
def test_links_are_followed_and_stay(there: bool, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    if there:
        (tmp_path / "real/file").write_bytes(b"old")
    (tmp_path / "middle").symlink_to("real/file")
    (tmp_path / "link").symlink_to("middle")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert (tmp_path / "real/file").read_bytes() == b"new"
    assert names(tmp_path / "real") == ["file"]


def test_a_device_a_pipe_and_an_open_descriptor_are_written_to_and_stay(tmp_path: Path) -> None:
    before = os.stat("/dev/null").st_ino
    (tmp_path / "link").symlink_to("/dev/null")
    write(tmp_path / "link")
    assert os.stat("/dev/null").st_ino == before
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write(tmp_path / "pipe")
    reader.join()
    assert read == [b"new"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with (tmp_path / "file").open("wb") as stream:
        write(Path(f"/dev/fd/{stream.fileno()}"))
        assert (tmp_path / "file").stat().st_ino == os.fstat(stream.fileno()).st_ino


def test_its_own_input_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"text")
    (tmp_path / "link").symlink_to("input")
    (tmp_path / "model").mkdir()
    for path, given in (("input", "input"), ("link", "input"), ("input", "link"), ("model/config.json", "model")):
        with pytest.raises(UsageError, match="its own input"):
            write(tmp_path / path, inputs=[tmp_path / given])
    assert (tmp_path / "input").read_bytes() == b"text"
    assert names(tmp_path / "model") == []


def test_where_a_proof_is_asked_for_only_an_earlier_output_or_the_same_bytes_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_bytes(b"mine")
    with pytest.raises(UsageError, match=r"page' is not replaced: someone else wrote it\. Choose another output"):
        write(path, ours=anothers)
    assert (names(tmp_path), path.read_bytes()) == (["page"], b"mine")
    write(path, ours=mine)
    assert path.read_bytes() == b"new"
    write(path, ours=anothers)


def test_of_several_files_all_or_none_are_replaced(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    paths[1].write_bytes(b"mine")
    with (
        pytest.raises(UsageError, match="two' is not replaced"),
        output_files(paths, "the pairs", ours=anothers) as (one, two),
    ):
        assert (one.write(b"1"), two.write(b"2")) == (1, 1)
    assert names(tmp_path) == ["two"]
    assert paths[1].read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("path", "said"),
    [("/", "'/' is a folder"), ("file/below", "is a file"), ("n" * 5000, "too long"), ("circle", "circle")],
)
def test_what_cannot_be_a_file_is_named(path: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises((UsageError, DataError), match=said) as caught:
        write(tmp_path / path)
    assert len(str(caught.value)) < 1000


def test_a_new_an_empty_and_an_own_folder_are_filled_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "own").mkdir(mode=0o750)
    (tmp_path / "own/old").touch()
    (tmp_path / "link").symlink_to("own")
    (tmp_path / "dangling").symlink_to("absent")
    for name in ("own", "link"):
        with pytest.raises(UsageError, match="someone else wrote it"):
            fill(tmp_path / name)
        fill(tmp_path / name, ours=mine)
    for name in ("a/new", "empty", "dangling"):
        fill(tmp_path / name)
    assert names(tmp_path) == ["a", "absent", "dangling", "empty", "link", "own"]
    assert [names(tmp_path / name) for name in ("a/new", "empty", "own", "absent")] == [["new"]] * 4
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "dangling").is_symlink()
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o750


def test_everything_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("folder", "input", "above/input"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "kept").touch()
    (tmp_path / "file").write_bytes(b"mine")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("above/input")
    inputs = [tmp_path / "input", tmp_path / "link"]
    before = sorted(str(item) for item in tmp_path.rglob("*"))
    for path in ("folder", "file", "/", ".", "input", "input/inside", "above"):
        ours = mine if path in ("input", "above") else anothers
        with pytest.raises(UsageError):
            fill(Path(path), inputs=inputs, ours=ours)
        with pytest.raises(UsageError):
            check_output_folder(Path(path), "the model", ours, inputs)
        assert sorted(str(item) for item in tmp_path.rglob("*")) == before
