"""Pairwise utilities are sacrebleu's own sentence scores."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import sacrebleu

from nmt_cli.search.utilities import bleu, chrf


def random_texts(alphabet: str) -> list[str]:
    rng = random.Random(alphabet.encode("utf-8", "surrogatepass"))
    lengths = [rng.randint(0, longest) for longest in (0, 1, 2, 3, 6, 9, 30, 30, 80)]
    return ["".join(rng.choices(alphabet, k=length)) for length in lengths]


ALPHABETS = [
    "ab ",
    "abcdefgh .,",
    " \t\u3000\u2028",
    "日本語の文。 ",
    "😀👍🏽\u200d \u0301x",
    "&quot;<skipped>&amp; -\n",
    "\ud800a ",
]
TEXTS = [
    [],
    ["", ""],
    ["a", "a"],
    ["ab", "a b", " ab "],
    ["the cat .", "the cat.", "the  cat ."],
    ["a a a a a a a", "a a a", "a", "b a a"],
    ["a b c d e", "a b c d", "a b c", "a b", "e d c b a"],
    ["x" * 300, "x" * 299 + "y", "y" * 5],
    *map(random_texts, ALPHABETS),
]


@pytest.mark.parametrize(
    ("utility", "score"), [(chrf, sacrebleu.sentence_chrf), (bleu, sacrebleu.sentence_bleu)], ids=["chrf", "bleu"]
)
@pytest.mark.parametrize("texts", TEXTS)
def test_utilities_are_sentence_scores(utility: Any, score: Any, texts: list[str]) -> None:
    expected = [[score(hypothesis, [reference]).score for reference in texts] for hypothesis in texts]
    found = utility(texts)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.reshape(expected, (len(texts), len(texts))), atol=1e-9, rtol=0)
