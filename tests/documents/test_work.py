"""The work for a document grows as its size: counted are the lines of code that run, and the characters that sentencex gets."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from fuzz import SHAPES
from random_documents import Scrambled, scrambled

from nmt_cli.documents import read_document

sentencex = pytest.importorskip("sentencex")
SIZE = 4000
"""Characters of the smallest document. Elements that are moved with words take quadratic time up to `MOST_WORK`, which is less."""
SENTENCES = (
    "The dog sees a cat.",
    "Mr. Smith has 3.5 dogs!",
    "Is it so?",
    "A " + "very " * 450 + "big dog runs.",
    "Yes.",
)


@contextmanager
def counted() -> Iterator[list[int]]:
    """Yield a list whose only item is the number of lines of nmt_cli/documents that ran in the block."""
    count = [0]

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        count[0] += event == "line"
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if "nmt_cli/documents" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield count
    finally:
        sys.settrace(before)


def grows_as(work: Callable[[int], int], size: int) -> None:
    once, twice, fourfold = (work(size * factor) for factor in (1, 2, 4))
    assert twice < 2.3 * once, (once, twice, fourfold)
    assert fourfold < 2.3 * twice, (once, twice, fourfold)


@pytest.mark.parametrize("name", SHAPES)
def test_lines_of_code(name: str) -> None:
    form, piece = SHAPES[name]

    def work(characters: int) -> int:
        rng = random.Random(0)
        with counted() as count:
            document = read_document(piece * (characters // len(piece)), form, "en")
        translations = [scrambled(rng, line) for line in document.lines]
        with counted() as more:
            document.write(translations)
        return count[0] + more[0]

    grows_as(work, SIZE)


@pytest.mark.parametrize("aligned", ["one to one", "all to one"])
def test_tokens_that_cover_many_words(aligned: str) -> None:
    """The only token of the line is aligned to the only one of the translation, again and again; or to all tokens."""

    def work(count: int) -> int:
        words = ["x" * (number % 7 + 1) for number in range(count)]
        text = " ".join(words)
        tokens = (f"\u2581{text}",) if aligned == "one to one" else tuple(f"\u2581{word}" for word in words)
        pairs = tuple((0, number % len(tokens)) for number in range(count))
        document = read_document(f"<b>{words[0]}</b> {' '.join(words[1:])}", "html", split_sentences="0")
        with counted() as lines:
            assert document.write([Scrambled(text, tokens, (f"\u2581{text}",), pairs)]).text.count("<b>") == 1
        return lines[0]

    grows_as(work, 300)


@pytest.mark.parametrize("piece", ["A. ", "a ", "a", "„", "(", "'a ", "The dog sees a cat. ", "你好。", "." * 50 + " "])
def test_characters_that_the_splitter_of_sentences_gets(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    segment, sizes = sentencex.segment, list[int]()

    def noted(language: str, text: str) -> Any:
        sizes.append(len(text))
        return segment(language, text)

    monkeypatch.setattr(sentencex, "segment", noted)
    for characters in (20_000, 40_000, 80_000):
        sizes.clear()
        assert read_document(piece * (characters // len(piece)), "text", "en").parts
        assert max(sizes) <= 2000  # it takes quadratic time
        assert sum(sizes) <= 2.2 * characters


@pytest.mark.parametrize("seed", range(5))
def test_long_texts_have_the_sentences_of_their_parts(seed: int) -> None:
    rng = random.Random(seed)
    sentences = [rng.choice(SENTENCES) for _ in range(400)]
    assert read_document(" ".join(sentences), "text", "en").lines == sentences
