"""From archives to files: what is joined, what is dropped, what is refused, and going on."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from website import sgm, tgz, zipped

from nmt_cli.corpora import build, split
from nmt_cli.corpora.build import Built, build_dataset
from nmt_cli.corpora.dataset import Archive, Dataset, Joined, PairedFiles, Source, Split
from nmt_cli.corpora.manifest import load
from nmt_cli.errors import DataError, UsageError
from nmt_cli.storage.files import lock

Make = Callable[..., Built]
ONE = Archive((Source(url="http://nowhere.invalid/one.tgz"), Source(url="http://nowhere.invalid/one.zip")))
TWO = Archive((Source(url="http://nowhere.invalid/two.tar"),))
TEST = Archive((Source(url="http://nowhere.invalid/test.tgz"),))
MADE = Dataset(
    title="Made",
    languages=("en", "de"),
    size="1 kB",
    licence="free",
    texts=(
        Joined(
            files=("test.en", "test.de"),
            lines=3,
            parts=(PairedFiles((TEST, "t/test-src.en.sgm"), (TEST, "t/test-ref.de.sgm")),),
        ),
        Joined(
            files=("train.en.gz", "sub/train.de.gz"),
            training=True,
            parts=(
                PairedFiles((ONE, "training/a.en"), (ONE, "training/a.de")),
                PairedFiles((TWO, "b.en.gz"), (TWO, "b.de.gz")),
            ),
        ),
    ),
    recipe="none",
)
A = {"en": "a\r\n\n b \u2028c\nd\n", "de": "A\nleer\nB\n \u00a0\n"}
B = {"en": b"\xef\xbb\xbfe\nf \xff g", "de": b"E\nF\n"}


def one() -> dict[str, bytes | str]:
    return {"training/a.de": A["de"], "training/x": "y", "training/a.en": A["en"]}


@pytest.fixture
def downloads(tmp_path: Path) -> Path:
    """Archives that lie there, as if they had been fetched."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    (folder / "one.tgz").write_bytes(tgz(one()))
    (folder / "two.tar").write_bytes(tgz({f"b.{language}.gz": gzip.compress(B[language]) for language in B}, "w"))
    (folder / "test.tgz").write_bytes(
        tgz({"t/test-src.en.sgm": sgm(["x", "", "z"]), "t/test-ref.de.sgm": sgm(["X", "Y", "Z"], "refset")})
    )
    return folder


@pytest.fixture
def make(tmp_path: Path, downloads: Path) -> Make:
    return lambda dataset=MADE, **options: build_dataset("made", dataset, tmp_path / "out", downloads, **options)


def text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def test_corpora_are_joined_and_empty_pairs_dropped(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = make()
    assert text(tmp_path / "out/train.en.gz") == "a\n b \u2028c\ne\nf \ufffd g\n"
    assert text(tmp_path / "out/sub/train.de.gz") == "A\nB\nE\nF\n"
    assert text(tmp_path / "out/test.en") == "x\n\nz\n"  # a test set keeps its lines
    assert text(tmp_path / "out/test.de") == "X\nY\nZ\n"
    train = next(entry for entry in summary.manifest.texts if len(entry.files[0].file) > 7)
    assert (train.read, train.dropped, train.replaced, [file.lines for file in train.files]) == (6, 2, 1, [4, 4])
    said = capsys.readouterr().err
    assert "train.en.gz, sub/train.de.gz: 6 pairs; 2 with an empty side dropped; 1 lines held invalid UTF-8" in said
    assert "archive 3 of 3: two.tar, 0.0 MB, was here, not verified" in said
    values = json.loads((tmp_path / "out/manifest.json").read_text())
    assert values["complete"] is True
    assert [archive["file"] for archive in values["archives"]] == ["one.tgz", "test.tgz", "two.tar"]
    for file in (file for entry in values["texts"] for file in entry["files"]):
        path = tmp_path / "out" / file["file"]
        assert (file["bytes"], file["lines"]) == (path.stat().st_size, text(path).count("\n"))


def test_the_same_archives_however_packed_give_the_same_bytes(make: Make, tmp_path: Path, downloads: Path) -> None:
    make()
    before = {name: (tmp_path / "out" / name).read_bytes() for name in ("train.en.gz", "sub/train.de.gz")}
    for name in before:
        os.utime(tmp_path / "out" / name, (1, 1))
        (tmp_path / "out" / name).unlink()
    assert make().fresh
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    assert before["train.en.gz"][3:8] == bytes(5)  # no name, no time
    (downloads / "one.tgz").unlink()
    (downloads / "one.zip").write_bytes(zipped(one()))
    build_dataset("made", MADE, tmp_path / "again", downloads)
    assert {name: (tmp_path / "again" / name).read_bytes() for name in before} == before


def test_again_it_does_nothing(make: Make, tmp_path: Path, downloads: Path) -> None:
    make()
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    for path in downloads.iterdir():
        path.unlink()
    assert make().fresh is False
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == times


def test_it_goes_on_with_the_text_that_is_missing(make: Make, tmp_path: Path, downloads: Path) -> None:
    make()
    (tmp_path / "out/test.de").unlink()
    (downloads / "one.tgz").unlink()  # not needed for it
    time = (tmp_path / "out/train.en.gz").stat().st_mtime_ns
    assert make().fresh
    assert text(tmp_path / "out/test.de") == "X\nY\nZ\n"
    assert (tmp_path / "out/train.en.gz").stat().st_mtime_ns == time


@pytest.mark.parametrize("missing", [False, True])
def test_a_file_that_was_changed_since_is_left_and_told(missing: bool, make: Make, tmp_path: Path) -> None:
    """Though another file of its text is missing."""
    make()
    if missing:
        (tmp_path / "out/test.de").unlink()
    (tmp_path / "out/test.en").write_text("mine\n")
    with pytest.raises(DataError, match=r"test.en' has been changed since it was written. Move it away"):
        make()
    assert (tmp_path / "out/test.en").read_text() == "mine\n"


def test_files_of_others_are_not_overwritten(make: Make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/train.en.gz").write_text("mine")
    with pytest.raises(DataError, match=r"holds 'train.en.gz' already, and no manifest.json"):
        make()
    assert (tmp_path / "out/train.en.gz").read_text() == "mine"


def test_a_folder_of_another_data_set_is_refused(make: Make, tmp_path: Path, downloads: Path) -> None:
    make()
    with pytest.raises(DataError, match="holds the data set 'made', not 'other'"):
        build_dataset("other", MADE, tmp_path / "out", downloads)


def test_a_damaged_manifest_is_named_and_one_of_version_1_is_read(make: Make, tmp_path: Path) -> None:
    make()
    path = tmp_path / "out/manifest.json"
    values = json.loads(path.read_text())
    del values["content_sha256"], values["format_version"]
    path.write_text(json.dumps({**values, "format": 1}))
    assert not make().fresh
    path.write_text("{}")
    with pytest.raises(DataError, match="It is no manifest of nmt data"):
        make()


def test_the_manifest_says_where_an_archive_is_from_as_long_as_it_is_the_same(
    make: Make, tmp_path: Path, downloads: Path
) -> None:
    make()
    manifest = load(tmp_path / "out")
    assert manifest is not None
    for entry in manifest.archives:
        entry.url = f"https://example.org/{entry.file}"
    manifest.texts = []
    manifest.save(tmp_path / "out")
    (downloads / "two.tar").write_bytes((downloads / "two.tar").read_bytes() + bytes(512))
    urls = {entry.file: entry.url for entry in make(verify=False).manifest.archives}
    assert urls == {**{name: f"https://example.org/{name}" for name in ("one.tgz", "test.tgz")}, "two.tar": None}


def test_fetched_archives_are_removed_where_that_is_asked_for(make: Make, downloads: Path, tmp_path: Path) -> None:
    (downloads / "mine.tgz").touch()
    there = {path.name for path in downloads.iterdir()}
    make(keep=False)
    # they lay there before: they are not ours
    assert {path.name for path in downloads.iterdir()} == there
    manifest = load(tmp_path / "out")
    assert manifest is not None
    for entry in manifest.archives:
        entry.url = "https://example.org"
    manifest.save(tmp_path / "out")
    changed = downloads / manifest.archives[0].file
    changed.write_bytes(changed.read_bytes() + b" ")
    make(keep=False)
    assert {path.name for path in downloads.iterdir()} == {"mine.tgz", changed.name}


def test_a_file_that_no_manifest_records_is_replaced_by_the_same_bytes_alone(make: Make, tmp_path: Path) -> None:
    make()
    manifest = load(tmp_path / "out")
    assert manifest is not None
    manifest.texts, manifest.complete = [], False
    manifest.save(tmp_path / "out")
    make()  # as after a kill between the files and the manifest
    manifest.texts = []
    manifest.save(tmp_path / "out")
    (tmp_path / "out/test.en").write_text("my own\n")
    with pytest.raises(UsageError, match=r"out/test.en' is not replaced: no nmt data wrote it"):
        make()
    assert (tmp_path / "out/test.en").read_text() == "my own\n"


# What is refused


def test_unequal_line_counts_name_both_counts_and_leave_nothing(make: Make, tmp_path: Path, downloads: Path) -> None:
    (downloads / "one.tgz").write_bytes(tgz(one() | {"training/a.en": "a\nb\n"}))
    with pytest.raises(DataError, match=r"one.tgz:training/a.en' has 2 lines, .*one.tgz:training/a.de' has 4 lines"):
        make()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"test.en", "test.de", "manifest.json", "sub"}
    assert list((tmp_path / "out/sub").iterdir()) == []
    (downloads / "one.tgz").write_bytes(tgz(one()))
    make(verify=False)  # what was written of it before goes for another archive now


def test_a_test_set_of_another_length_is_refused(make: Make) -> None:
    longer = replace(MADE, texts=(replace(MADE.texts[0], lines=4),))  # type: ignore[arg-type]
    with pytest.raises(
        DataError, match=r"'test.en' and 'test.de' come to 3 lines, expected 4: .*test.tgz' is not the archive"
    ):
        make(longer)


def test_text_without_any_pair_is_refused(make: Make, downloads: Path) -> None:
    (downloads / "one.tgz").write_bytes(tgz({"training/a.en": "\n", "training/a.de": "x\n"}))
    text = MADE.texts[1]
    assert isinstance(text, Joined)
    with pytest.raises(DataError, match="come to no pair at all: 1 were read"):
        make(replace(MADE, texts=(replace(text, parts=text.parts[:1]),)))


def test_a_missing_member_is_named_before_any_text_is_written(make: Make, tmp_path: Path, downloads: Path) -> None:
    (downloads / "two.tar").write_bytes(tgz({"c/b.en.gz": gzip.compress(b"x")}, "w"))
    with pytest.raises(DataError, match=r"does not hold 'b.de.gz', 'b.en.gz'; it has"):
        make()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"manifest.json"}
    assert json.loads((tmp_path / "out/manifest.json").read_text())["complete"] is False


def test_out_that_is_a_file_and_what_cannot_be_made_are_named(make: Make, tmp_path: Path, downloads: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(DataError, match=r"out': it is a file, expected a folder"):
        make()
    with pytest.raises(DataError, match="cannot write the archives at"):
        build_dataset("made", MADE, tmp_path / "new", downloads / "one.tgz" / "x")


def test_two_at_once_are_kept_apart(make: Make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    other = os.open(tmp_path / "out", os.O_RDONLY)
    assert lock(other)
    with pytest.raises(DataError, match="another nmt data is writing to"):
        make()
    os.close(other)
    make()


def test_what_a_killed_command_left_is_cleared_away(make: Make, tmp_path: Path) -> None:
    make()
    for name in ("test.en", "sub/train.de.gz"):
        (tmp_path / "out" / name).unlink()
    left = [tmp_path / "out/.test.en.partial-1", tmp_path / "out/sub/.train.de.gz.partial-1"]
    for path in left:
        path.write_text("half")
    make()
    assert not any(path.exists() for path in left)


def test_a_stop_midway_leaves_nothing_half_written(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(*arguments: object) -> object:
        yield 0, ("a", "A")
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(build, "_pairs", stopping)
        with pytest.raises(KeyboardInterrupt):
            make()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"manifest.json"}
    assert make().fresh


# Tatoeba


def test_tab_separated_pairs_are_cut_into_three(
    tmp_path: Path, downloads: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(split, "HELD_OUT", 20)
    monkeypatch.setattr(split.cut, "__defaults__", (20, split.SEED))
    lines = [f"Sentence {number}.\tSatz {number}.\tCC-BY" for number in range(100)]
    (downloads / "deu-eng.zip").write_bytes(
        zipped({"deu.txt": "\ufeff" + "\r\n".join(lines), "_about.txt": "CC BY 2.0"})
    )
    tatoeba = replace(
        MADE, texts=(Split(archive=Archive((Source(url="http://nowhere.invalid/deu-eng.zip"),)), member="deu.txt"),)
    )
    summary = build_dataset("tatoeba", tatoeba, tmp_path / "out", downloads)
    parts = {}
    for name in ("train", "valid", "test"):
        files = (tmp_path / f"out/{name}.{language}{'.gz' * (name == 'train')}" for language in ("en", "de"))
        parts[name] = list(zip(*(text(file).splitlines() for file in files), strict=True))
    assert parts == split.cut(split.read_pairs(lines, "x"), 20)
    assert [file.lines for file in summary.manifest.texts[0].files] == [60, 60, 20, 20, 20, 20]
    assert "100 pairs, 20 each held out for validation and test" in capsys.readouterr().err
