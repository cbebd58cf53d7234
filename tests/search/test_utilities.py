"""Pairwise utilities are sacrebleu's own sentence scores."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import sacrebleu

from nmt_cli.search.utilities import bleu, chrf

Utility = Callable[[Sequence[str]], np.ndarray]


def sentence_chrf(hypothesis: str, reference: str) -> float:
    return sacrebleu.sentence_chrf(hypothesis, [reference]).score


def sentence_bleu(hypothesis: str, reference: str) -> float:
    return sacrebleu.sentence_bleu(hypothesis, [reference]).score


ALL = [(chrf, sentence_chrf), (bleu, sentence_bleu)]


def check(texts: list[str], utility: Utility, score: Callable[[str, str], float]) -> None:
    found = utility(texts)
    assert found.shape == (len(texts), len(texts))
    assert found.dtype == np.float64
    expected = [[score(hypothesis, reference) for reference in texts] for hypothesis in texts]
    assert np.abs(found - np.array(expected).reshape(found.shape)).max(initial=0) < 1e-9


def random_text(rng: random.Random, alphabet: str, longest: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, longest)))


@pytest.mark.parametrize(("utility", "score"), ALL)
@pytest.mark.parametrize(
    "alphabet",
    [
        "ab ",
        "abcdefgh .,",
        " \t\u3000\u2028",
        "日本語の文。 ",
        "😀👍🏽\u200d \u0301x",
        "&quot;<skipped>&amp; -\n",
        "\ud800a ",
    ],
)
def test_random_texts(utility: Utility, score: Callable[[str, str], float], alphabet: str) -> None:
    rng = random.Random(alphabet.encode("utf-8", "surrogatepass"))
    check([random_text(rng, alphabet, longest) for longest in (0, 1, 2, 3, 6, 9, 30, 30, 80)], utility, score)


@pytest.mark.parametrize(("utility", "score"), ALL)
@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["", ""],
        ["a", "a"],
        ["ab", "a b", " ab "],
        ["the cat .", "the cat.", "the  cat ."],
        ["a a a a a a a", "a a a", "a", "b a a"],
        ["a b c d e", "a b c d", "a b c", "a b", "e d c b a"],
        ["x" * 300, "x" * 299 + "y", "y" * 5],
    ],
)
def test_short_and_equal_texts(utility: Utility, score: Callable[[str, str], float], texts: list[str]) -> None:
    check(texts, utility, score)
