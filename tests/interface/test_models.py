"""Models that have names: which are published, fetching one, and where --model finds it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marian_models import own_spm, student, students_files, written
from remote_settings import by_type, model_files, publish, settings_server
from website import Site

import nmt_cli as nmt
from nmt_cli.errors import DataError, ModelError, UsageError
from nmt_cli.model.folder_files import find_model, models_folder, read_metrics

VOCABULARIES = {"srcvocab": ("srcvocab.a.spm", b"source"), "trgvocab": ("trgvocab.a.spm", b"target")}


@pytest.fixture(autouse=True)
def folder(workdir: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> Path:
    """The folder of models."""
    monkeypatch.setenv("NMT_MODELS", str(workdir / "models"))
    monkeypatch.setattr("nmt_cli.corpora.download.PAUSE", 0.0)
    return workdir / "models"


@pytest.fixture
def site() -> Iterator[Site]:
    with settings_server() as site:
        yield site


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_of_each_direction_the_best_released_model_comes_first(site: Site) -> None:
    versions = {"tiny": "3.0 3.10 3.9", "base": "3.1a2 4.0", "base-memory": "3.0 3.1a1", "odd": "3.0"}
    for architecture, several in versions.items():
        for version in several.split():
            publish(site, "en-de", architecture, version)
    publish(site, "en-zh", files={**model_files(), **VOCABULARIES}, targetLanguage="zh-Hans")
    one_is_missing = {"model": model_files()["model"], "srcvocab": VOCABULARIES["srcvocab"]}
    publish(site, "de-en", files=one_is_missing)
    found = nmt.available(site.address)
    assert [(one["name"], one["architecture"], one["version"]) for one in found] == [
        ("en-de", "base-memory", "3.0"),
        ("en-de", "tiny", "3.10"),
        ("en-de", "odd", "3.0"),
        ("en-de", "base", "3.1a2"),
        ("en-zh-Hans", "tiny", "3.0"),
    ]
    assert found[1]["bytes"] == sum(len(site.files[file.rsplit("/", 1)[-1]]) for file in found[1]["files"])


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../model.bin"},
        {"name": "/etc/passwd"},
        {"sourceLanguage": ".."},
        {"targetLanguage": "de/x"},
        {"version": "2.1"},
        {"version": "3.٣"},
        {"filter_expression": None},
        {"decompressedHash": "x"},
        {"decompressedSize": -1},
        {"decompressedSize": 1 << 40},
        {"attachment": {"hash": "0" * 64, "size": 3, "location": "../../x"}},
        {"attachment": {"hash": "0" * 64, "size": 3, "location": "http://elsewhere/x"}},
        {"attachment": None},
    ],
)
def test_records_in_another_form_are_left_out(changes: dict[str, Any], site: Site) -> None:
    publish(site, "en-de", **changes)
    publish(site, "de-en")
    assert [one["name"] for one in nmt.available(site.address)] == ["de-en"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"": b"no JSON"}, "it is not JSON"),
        ({"": b'{"capabilities": 3}'}, "is no server of models"),
        ({"": b'{"capabilities": {"attachments": {"base_url": "file:///etc/"}}}'}, "is no server of models"),
        ({"records": b'{"data": 3}'}, "is no server of models"),
        ({"records": b"[]"}, "expected a JSON object"),
        ({"records": None}, "HTTP 404"),
    ],
)
def test_another_server_is_a_named_error(files: dict[str, bytes | None], said: str, site: Site) -> None:
    site.files = {name: data for name, data in (site.files | files).items() if data is not None}
    with pytest.raises(DataError, match=said):
        nmt.available(site.address)
    with pytest.raises(UsageError, match="begins with https://"):
        nmt.available("file:///etc")


def test_a_model_is_fetched_in_two_parts_and_translates_by_its_name(site: Site, folder: Path) -> None:
    publish(site, "en-de")
    site.cuts = [1 << 20, 1 << 20, 5000]  # the weights come after the two answers
    done = nmt.get_model("EN_de", url=f"{site.address}/")
    assert done is not None
    assert (done.path, {path.name for path in folder.iterdir()}) == (folder / "en-de", {".downloads", "en-de"})
    assert list((folder / ".downloads").iterdir()) == []
    ranges = [headers.get("range") for path, headers in site.requests if path.endswith(".zst")]
    assert ranges == [None, "bytes=5000-", None]
    assert not any("lex" in path for path, _ in site.requests)
    assert done.recipe.name == "en-de-tiny-3.0"
    card = (folder / "en-de/README.md").read_text()
    assert "Licence: MPL-2.0" in card
    assert f"Fetched from {site.address.removesuffix('/v1')}/attachments/main-workspace/" in card
    [listed] = nmt.models()
    keys = ("name", "source_language", "target_language", "license")
    assert [listed[key] for key in keys] == ["en-de", "en", "de", "MPL-2.0"]
    assert listed["origin"].startswith(site.address.removesuffix("/v1"))
    assert listed["bytes"] == sum(map(len, content(folder / "en-de").values()))
    with nmt.load("en-de") as translator:
        assert len(translator.translate(["the dog sees the cat"])) == 1
    assert nmt.info("en-de")["name"] == "en-de-tiny-3.0"


def test_a_file_in_the_place_of_the_folder_is_a_named_error(site: Site, folder: Path) -> None:
    publish(site, "en-de")
    folder.write_text("mine")
    with pytest.raises(DataError, match="a part of its path is a file, not a folder"):
        nmt.get_model("en-de", url=site.address)
    assert (nmt.models(), folder.read_text()) == ([], "mine")


def test_a_model_with_two_vocabularies_is_fetched(site: Site, folder: Path) -> None:
    files = students_files(student([own_spm(400, (0,)), own_spm(420, (1,))], layers=(1, 1)))
    publish(site, "en-de", files=by_type(files), filter_expression="env.appinfo.OS != 'Android'")
    nmt.get_model("en-de", url=site.address)
    assert {"tokenizer.source.model", "tokenizer.target.model"} <= content(folder / "en-de").keys()


@pytest.mark.slow
def test_the_same_model_is_left_and_a_newer_one_replaces_it(site: Site, folder: Path) -> None:
    publish(site, "en-de")
    nmt.get_model("en-de", url=site.address)
    before, asked = content(folder / "en-de"), len(site.requests)
    assert nmt.get_model("en-de", url=site.address) is None
    assert len(site.requests) == asked + 2  # for the records
    publish(site, "en-de", "tiny", "3.1", files=model_files(2))
    assert nmt.get_model("en-de", url=site.address) is not None
    after = content(folder / "en-de")
    assert after["model.safetensors"] != before["model.safetensors"]
    publish(site, "en-de", "base", files=model_files(3))
    assert nmt.get_model("en-de", url=site.address, architecture="tiny") is None
    with pytest.raises(UsageError, match=r"--architecture 'huge': expected base or tiny"):
        nmt.get_model("en-de", url=site.address, architecture="huge")
    (folder / "en-de/notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is not replaced: it holds 'notes\.txt', which nmt did not write"):
        nmt.get_model("en-de", url=site.address)
    assert content(folder / "en-de") == {**after, "notes.txt": b"mine"}


@pytest.mark.slow
def test_a_model_of_another_command_is_not_replaced(site: Site, folder: Path) -> None:
    publish(site, "en-de")
    nmt.import_model(written(folder.parent / "source", dict(model_files().values())), folder / "en-de")
    before = content(folder / "en-de")
    with pytest.raises(UsageError, match="is not replaced: it is a model folder that nmt models get did not write"):
        nmt.get_model("en-de", url=site.address)
    assert content(folder / "en-de") == before
    assert nmt.models()[0]["origin"] == "source"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record, site: record["attachment"].update(hash="0" * 64), r"wrong checksum: its SHA-256 is"),
        (lambda record, site: record["attachment"].update(size=99), r"the server has .* bytes, expected 99"),
        (lambda record, site: record.update(decompressedHash="0" * 64), r"is not what the server's record says"),
    ],
)
def test_a_file_that_is_not_what_its_record_says_is_refused(change: Any, said: str, site: Site, folder: Path) -> None:
    records = publish(site, "en-de")
    change(records[0], site)
    site.files["records"] = json.dumps({"data": records}).encode()
    with pytest.raises(DataError, match=said):
        nmt.get_model("en-de", url=site.address)
    assert not (folder / "en-de").exists()
    assert nmt.models() == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("de-pt", r"no model 'de-pt' is published: fetch de-en and en-pt, and translate into English"),
        ("zh-Hans-de", r"no model 'zh-Hans-de' is published: fetch zh-Hans-en and en-de, and"),
        ("en-d", r"no model 'en-d' is published.*Did you mean 'en-de'\?"),
        ("../x", r"no model '\.\./x' is published"),
    ],
)
def test_a_direction_that_is_not_published_is_a_named_error(name: str, said: str, site: Site) -> None:
    for one in ("en-de", "de-en", "en-pt"):
        publish(site, one)
    publish(site, "zh-en", sourceLanguage="zh-Hans")
    with pytest.raises(UsageError, match=said):
        nmt.get_model(name, url=site.address)


def test_a_path_comes_before_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (folder / "one", folder / "two", folder / "a/b", Path("one")):
        place.mkdir(parents=True)
        (place / "config.json").write_text("{}")
    assert find_model(Path("one")) == Path("one")
    assert find_model(Path("two")) == folder / "two"
    for missing in (Path("a/b"), Path("/two")):
        with pytest.raises(ModelError, match=r"^no model at '\S+'\. .*`nmt models get en-de`"):
            find_model(missing)
    with pytest.raises(ModelError, match=r"^no model at 'en-de' \(nor at '.*models/en-de'\)\. "):
        find_model(Path("en-de"))
    assert nmt.models() == []  # they are damaged
    shutil.rmtree(folder)
    assert nmt.models() == []
    monkeypatch.delenv("NMT_MODELS")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert models_folder() == Path("/data/nmt/models")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert models_folder() == Path("/home/me/.local/share/nmt/models")
    assert read_metrics(Path("nowhere")) == {}
