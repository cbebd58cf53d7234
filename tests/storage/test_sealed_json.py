"""A record is read as it was written or not at all: of every single flipped bit, every cut and every wrong type."""

import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sealed

from nmt_cli.errors import DataError
from nmt_cli.storage.sealed_json import Record, content_hash, read_record, to_json


class Example(Record):
    count: int
    rate: float
    names: list[str]
    free: dict[str, Any]


class Renamed(Record):
    """Its first version called `size` something else, and had no version."""

    newest: ClassVar[int] = 3
    size: int

    @classmethod
    def upgrade(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"format_version": 1, "size": values["length"]} if "length" in values else values


EXAMPLE = Example(format_version=2, count=3, rate=1e-09, names=["ä", "\u2028"], free={"deep": [1, None, {"x": True}]})


def read(data: bytes, folder: Path) -> Example:
    (folder / "example.json").write_bytes(data)
    return read_record(folder / "example.json", Example, DataError, "Restore it.")


def test_what_is_written_is_read_back_by_every_version(tmp_path: Path) -> None:
    assert read(to_json(EXAMPLE), tmp_path) == EXAMPLE
    assert read(json.dumps(json.loads(to_json(EXAMPLE))).encode(), tmp_path) == EXAMPLE  # laid out otherwise
    compact = '{"a":[1,2.5,null],"b":"é"}'
    values = {"b": "é", "content_sha256": "x", "a": [1, 2.5, None]}
    assert content_hash(values) == hashlib.sha256(compact.encode()).hexdigest()
    path = tmp_path / "renamed.json"
    path.write_text('{"length": 7}')
    assert read_record(path, Renamed, DataError, "").size == 7
    path.write_text('{"format_version": 4, "size": 7}')
    with pytest.raises(DataError, match=r"has format version 4; this nmt .* reads up to 3\. Install a newer nmt"):
        read_record(path, Renamed, DataError, "")


def test_a_file_that_is_not_there_is_the_callers_affair(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_record(tmp_path / "none.json", Example, DataError, "")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"cannot read '.*folder': Is a directory"):
        read_record(tmp_path / "folder", Example, DataError, "")


def test_every_cut_and_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    data = to_json(EXAMPLE).rstrip()
    for end in range(len(data)):
        with pytest.raises(DataError, match=r"example\.json' is damaged"):
            read(data[:end], tmp_path)
    data, unnoticed = to_json(EXAMPLE), 0
    for damaged in sealed.flipped(data):
        said = ""
        try:
            assert read(damaged, tmp_path) == EXAMPLE
            unnoticed += 1
        except DataError as error:
            said = str(error)
        assert not said or "example.json" in said
    assert unnoticed <= 4  # 1e-09 as 1E-09, and where a character of the layout becomes another of the layout


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"count": "3"}, "count: input should be a valid integer"),
        ({"count": True}, "count: input should be a valid integer"),
        ({"names": None}, "names: field required"),
        ({"other": 1}, "other: extra inputs are not permitted"),
        ({"format_version": 0}, "format_version is 0, expected a whole number from 1 to 2"),
    ],
)
def test_wrong_types_are_named_though_the_hash_fits(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "example.json").write_bytes(to_json(EXAMPLE))
    sealed.change(tmp_path / "example.json", **changes)
    with pytest.raises(DataError, match=rf"example\.json' is damaged: {said}.*Restore it\."):
        read((tmp_path / "example.json").read_bytes(), tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff", b'{"rate": NaN}', b'{"rate": 1e999}', b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_what_is_no_json_of_ours_is_named(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"example\.json' is damaged"):
        read(data, tmp_path)


def test_a_changed_value_is_noticed_by_the_hash(tmp_path: Path) -> None:
    values = json.loads(to_json(EXAMPLE))
    for changed in ({**values, "count": 4}, {key: values[key] for key in values if key != "content_sha256"}):
        with pytest.raises(DataError, match=r"the SHA-256 that it states \(content_sha256\)\. Restore it\."):
            read(json.dumps(changed).encode(), tmp_path)
