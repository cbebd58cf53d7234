"""From archives to files: what is joined, what is dropped, what is refused, and going on."""

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from website import sgm, tgz, zipped

from nmt_cli.corpora import split
from nmt_cli.corpora.build import Built, build_dataset
from nmt_cli.corpora.dataset import Archive, Dataset, Joined, PairedFiles, Source, Split
from nmt_cli.corpora.manifest import Manifest, load
from nmt_cli.errors import DataError, UsageError
from nmt_cli.storage.files import lock

Make = Callable[..., Built]


def archive(*names: str) -> Archive:
    return Archive(tuple(Source(url=f"http://nowhere.invalid/{name}") for name in names))


ONE, TWO, TEST = archive("one.tgz", "one.zip"), archive("two.tar"), archive("test.tgz")
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


def manifest_of(folder: Path, **changes: Any) -> Manifest:
    """The manifest in `out`, with changes that are written."""
    manifest = load(folder / "out")
    assert manifest is not None
    for name, value in changes.items():
        setattr(manifest, name, value)
    if changes:
        manifest.save(folder / "out")
    return manifest


def test_corpora_are_joined_without_empty_pairs(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary = make()
    assert text(tmp_path / "out/train.en.gz") == "a\n b \u2028c\ne\nf \ufffd g\n"
    assert text(tmp_path / "out/sub/train.de.gz") == "A\nB\nE\nF\n"
    assert text(tmp_path / "out/test.en") == "x\n\nz\n"  # a test set keeps its lines
    assert text(tmp_path / "out/test.de") == "X\nY\nZ\n"
    train = next(entry for entry in summary.manifest.texts if len(entry.files[0].file) > 7)
    assert (train.read, train.dropped, train.replaced, [file.lines for file in train.files]) == (6, 2, 1, [4, 4])
    said = capsys.readouterr().err
    assert "6 pairs; 2 with an empty side dropped; 1 lines held invalid UTF-8" in said
    assert "archive 3 of 3: two.tar, 0.0 MB, was here, not verified" in said
    manifest = manifest_of(tmp_path)
    assert manifest.complete
    assert [entry.file for entry in manifest.archives] == ["one.tgz", "test.tgz", "two.tar"]
    for file in (file for entry in manifest.texts for file in entry.files):
        path = tmp_path / "out" / file.file
        assert (file.bytes, file.lines) == (path.stat().st_size, text(path).count("\n"))


def test_the_same_archives_however_packed_give_the_same_bytes(make: Make, tmp_path: Path, downloads: Path) -> None:
    make()
    names = ("train.en.gz", "sub/train.de.gz")
    before = [(tmp_path / "out" / name).read_bytes() for name in names]
    assert before[0][3:8] == bytes(5)  # no name, no time
    (downloads / "one.tgz").unlink()
    (downloads / "one.zip").write_bytes(zipped(one()))
    build_dataset("made", MADE, tmp_path / "again", downloads)
    assert [(tmp_path / "again" / name).read_bytes() for name in names] == before


def test_again_it_does_nothing_but_goes_on_with_missing_text(make: Make, tmp_path: Path, downloads: Path) -> None:
    make()
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    (downloads / "one.tgz").unlink()  # not needed for what is there
    assert make().fresh is False
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == times
    (tmp_path / "out/test.de").unlink()
    assert make().fresh
    assert text(tmp_path / "out/test.de") == "X\nY\nZ\n"
    train = tmp_path / "out/train.en.gz"
    assert train.stat().st_mtime_ns == times[train]


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


def test_files_and_folders_of_others_are_not_overwritten(make: Make, tmp_path: Path, downloads: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(DataError, match=r"out': it is a file, expected a folder"):
        make()
    (tmp_path / "out").unlink()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/train.en.gz").write_text("mine")
    with pytest.raises(DataError, match=r"holds 'train.en.gz' already, and no manifest.json"):
        make()
    assert (tmp_path / "out/train.en.gz").read_text() == "mine"
    build_dataset("made", MADE, tmp_path / "made", downloads)
    with pytest.raises(DataError, match="holds the data set 'made', not 'other'"):
        build_dataset("other", MADE, tmp_path / "made", downloads)
    with pytest.raises(DataError, match="cannot write the archives at"):
        build_dataset("made", MADE, tmp_path / "new", downloads / "one.tgz" / "x")


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


def test_fetched_archives_are_removed_where_that_is_asked_for_and_others_have_no_address(
    make: Make, downloads: Path, tmp_path: Path
) -> None:
    (downloads / "mine.tgz").touch()
    there = {path.name for path in downloads.iterdir()}
    make(keep=False)
    assert {path.name for path in downloads.iterdir()} == there  # they lay there before: they are not ours
    archives = manifest_of(tmp_path).archives
    for entry in archives:
        entry.url = f"https://example.org/{entry.file}"
    manifest_of(tmp_path, archives=archives, texts=[])
    changed = downloads / "two.tar"
    changed.write_bytes(changed.read_bytes() + bytes(512))
    urls = {entry.file: entry.url for entry in make(verify=False, keep=False).manifest.archives}
    assert urls == {**{name: f"https://example.org/{name}" for name in ("one.tgz", "test.tgz")}, "two.tar": None}
    assert {path.name for path in downloads.iterdir()} == {"mine.tgz", "two.tar"}


def test_after_a_kill_the_same_bytes_are_taken_and_what_was_left_is_cleared_away(make: Make, tmp_path: Path) -> None:
    make()
    manifest_of(tmp_path, texts=[], complete=False)  # between the files and the manifest
    left = [tmp_path / "out/.test.en.partial-1", tmp_path / "out/sub/.train.de.gz.partial-1"]
    for path in left:
        path.write_text("half")
    other = os.open(tmp_path / "out", os.O_RDONLY)
    assert lock(other)
    with pytest.raises(DataError, match="another nmt data is writing to"):
        make()
    os.close(other)
    make()
    assert not any(path.exists() for path in left)
    manifest_of(tmp_path, texts=[])
    (tmp_path / "out/test.en").write_text("my own\n")
    with pytest.raises(UsageError, match=r"out/test.en' is not replaced"):
        make()
    assert (tmp_path / "out/test.en").read_text() == "my own\n"


@pytest.mark.parametrize(
    ("name", "content", "said", "left"),
    [
        (
            "one.tgz",
            tgz(one() | {"training/a.en": "a\nb\n"}),
            r"one.tgz:training/a.en' has 2 lines, .*one.tgz:training/a.de' has 4 lines",
            {"test.en", "test.de", "manifest.json", "sub"},
        ),
        ("two.tar", tgz({"c": b"x"}, "w"), r"does not hold 'b.de.gz', 'b.en.gz'; it has", {"manifest.json"}),
        (
            "test.tgz",
            tgz({"t/test-src.en.sgm": sgm(["x"]), "t/test-ref.de.sgm": sgm(["X"])}),
            "come to 1 lines, expected 3: .*test.tgz' is not the archive",
            {"manifest.json"},
        ),
    ],
)
def test_an_archive_of_other_content_is_named_and_leaves_no_text(
    name: str, content: bytes, said: str, left: set[str], make: Make, tmp_path: Path, downloads: Path
) -> None:
    right = (downloads / name).read_bytes()
    (downloads / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        make()
    assert {path.name for path in (tmp_path / "out").iterdir()} == left
    assert not manifest_of(tmp_path).complete
    (downloads / name).write_bytes(right)
    make(verify=False)  # what was written of it before goes for another archive now


def test_text_without_any_pair_is_refused(make: Make, downloads: Path) -> None:
    (downloads / "one.tgz").write_bytes(tgz({"training/a.en": "\n", "training/a.de": "x\n"}))
    text = MADE.texts[1]
    assert isinstance(text, Joined)
    with pytest.raises(DataError, match="come to no pair at all: 1 were read"):
        make(replace(MADE, texts=(replace(text, parts=text.parts[:1]),)))


def test_tab_separated_pairs_are_cut_into_three(
    tmp_path: Path, downloads: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(split, "HELD_OUT", 20)
    monkeypatch.setattr(split.cut, "__defaults__", (20, split.SEED))
    lines = [f"Sentence {number}.\tSatz {number}.\tCC-BY" for number in range(100)]
    (downloads / "deu-eng.zip").write_bytes(zipped({"deu.txt": "\ufeff" + "\r\n".join(lines), "_about.txt": ""}))
    tatoeba = replace(MADE, texts=(Split(archive=archive("deu-eng.zip"), member="deu.txt"),))
    summary = build_dataset("tatoeba", tatoeba, tmp_path / "out", downloads)
    parts = {}
    for name in ("train", "valid", "test"):
        files = (tmp_path / f"out/{name}.{language}{'.gz' * (name == 'train')}" for language in ("en", "de"))
        parts[name] = list(zip(*(text(file).splitlines() for file in files), strict=True))
    assert parts == split.cut(split.read_pairs(lines, "x"), 20)
    assert [file.lines for file in summary.manifest.texts[0].files] == [60, 60, 20, 20, 20, 20]
    assert summary.manifest.texts[0].replaced == 0
    assert "100 pairs, 20 each held out for validation and test" in capsys.readouterr().err
