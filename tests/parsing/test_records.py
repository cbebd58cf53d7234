"""The records of conversions: of which file each is, and trees of other terminals."""

import hashlib
from pathlib import Path

import pytest

from nmt_cli.errors import DataError
from nmt_cli.parsing.records import Conversion, check_terminals, conversion_of
from nmt_cli.storage.sealed_json import to_json


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    """Return NAME.linear with a record of it alone, of terminals that are tags."""
    path = tmp_path / "some.linear"
    path.write_bytes(b"NN\n")
    files = {path.name: hashlib.sha256(b"NN\n").hexdigest()}
    record = Conversion(format_version=Conversion.newest, files=files, terminals="tags")
    (tmp_path / "some.trees.json").write_bytes(to_json(record))
    return path


def test_the_record_is_beside_each_file_and_others_have_none(trees: Path) -> None:
    for name in ("some.linear", "some.words", "some.ptb"):
        found = conversion_of(trees.with_name(name))
        assert found is not None
        assert (found.terminals, [*found.files]) == ("tags", ["some.linear"])
    for name in ("other.linear", "none/some.linear", "some.linear/x.linear"):
        assert conversion_of(trees.parent / name) is None
        check_terminals([trees.parent / name], "words")


def test_a_damaged_record_and_trees_of_other_terminals_are_refused(trees: Path) -> None:
    check_terminals([trees], "tags")
    check_terminals([trees.with_name("some.words")], "xx")  # the record does not have this file
    with pytest.raises(DataError, match=r"some\.linear' are written as tags, .* data\.terminals = 'words'"):
        check_terminals([trees.with_name("none.linear"), trees], "words")
    record = trees.with_name("some.trees.json")
    record.write_bytes(record.read_bytes().replace(b"tags", b"both"))
    with pytest.raises(DataError, match=r"some\.trees\.json'.*Do this\.$"):
        conversion_of(trees, "Do this.")
