"""The demo corpus: the package has what its generator writes, and the splits hold combinations out.

The corpus is frozen: what holds for its sentences was looked at when it was written, and the first test notices any change.
"""

import re
from pathlib import Path

import demo_corpus as teaching
import pytest
from demo_corpus import corpus, numbers

from nmt_cli.data.demo_corpus import pairs, write_corpus

Splits = dict[str, list[corpus.Example]]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def splits() -> Splits:
    return corpus.examples(teaching.SEED, teaching.TRAIN_PAIRS, teaching.VALID_PAIRS, teaching.TEST_PAIRS)


def test_the_package_has_what_the_generator_writes(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    for language, text in teaching.texts().items():
        written = [(tmp_path / f"{name}.{language}").read_text(encoding="utf-8") for name in corpus.SPLITS]
        assert "\n".join(written) == text.decode("utf-8")
        lines = [line for split in written for line in split.splitlines()]
        assert len(lines) == len(set(lines)) == 31_500


def test_what_is_held_out_is_in_every_test_sentence_and_never_in_training(splits: Splits) -> None:
    trained = {combination for example in splits["train"] for combination in example.combinations}
    assert not any(map(corpus.held_out, trained))
    for example in (*splits["valid"], *splits["test"]):
        assert any(map(corpus.held_out, example.combinations)), example
        assert set(example.combinations) - trained
    text = "\n".join(example.en for example in splits["train"])
    kinds = {"compound", "number", "name"}
    held = {
        one for e in splits["test"] for one in e.combinations if corpus.held_out(one) and one.split(":")[0] in kinds
    }
    assert {combination.split(":")[0] for combination in held} == kinds
    for combination in sorted(held):  # not even as a text
        kind, _, value = combination.partition(": ")
        word = numbers.cardinal(int(value)).en if kind == "number" else value
        assert not re.search(rf"\b{word}\b(?!-)", text), combination


def test_the_first_pairs_of_each_split() -> None:
    some, every = pairs(300, 10, 20), pairs()
    assert {name: len(split) for name, split in some.items()} == {"train": 300, "valid": 10, "test": 20}
    assert all(split == every[name][: len(split)] for name, split in some.items())
    assert pairs(0, 0, 0) == {"train": [], "valid": [], "test": []}
