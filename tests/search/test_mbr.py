"""Minimum Bayes risk decoding: hypotheses by expected utility, as a brute-force search with sacrebleu ranks them. The
pairwise utilities are sacrebleu's own sentence scores.
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from run_search import beam_search, plain_sentences, sample, search_options
from small_models import random_sources, searched, section

from nmt_cli.errors import UsageError
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.mbr import MbrSearch, by_expected_utility
from nmt_cli.search.search import MbrOptions, SamplingOptions, SearchOptions
from nmt_cli.search.sentence import Hypothesis
from nmt_cli.search.utilities import bleu, chrf
from nmt_cli.translation.cached_decoder import CachedDecoder

Utility = Callable[[Sequence[str]], np.ndarray]
VOCABULARY = 60
SAMPLES = 12
SOURCES = random_sources(12, 9, VOCABULARY)
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in ("a", "e", "i", "o", "u ")]
"""The text of each token: several tokens begin no word, and token 4 has the text of token 5."""


def texts_of(rows: list[list[int]]) -> list[str]:
    return ["".join(SYLLABLES[max(token, 5)] for token in row).strip() for row in rows]


@cache
def model() -> Transformer:
    torch.manual_seed(0)
    config = section(encoder_layers=1, decoder_layers=1, max_positions=64)
    model = Transformer(config, VOCABULARY, VOCABULARY).eval()
    with torch.no_grad():
        model.output_weight.mul_(3.0)  # far from uniform, so that samples resemble each other
    return model


def limits(batch: list[list[int]]) -> list[int]:
    return [len(source) + 3 for source in batch]


def options(nbest: int = SAMPLES, sampling: SamplingOptions | None = None, **mbr: Any) -> SearchOptions:
    chosen = {"sampling": sampling or SamplingOptions(), "mbr": MbrOptions(**mbr)}
    return search_options(SAMPLES, nbest=nbest, min_length=1, detokenize=texts_of, **chosen)


def search(batch: list[list[int]], chosen: SearchOptions) -> list[list[Hypothesis]]:
    decoder = CachedDecoder(model(), batch, SAMPLES)
    return searched(MbrSearch(decoder, chosen), plain_sentences(limits(batch), None, batch))


def brute_force(hypotheses: list[Hypothesis], weights: list[float], utility: Utility) -> list[tuple[str, float, float]]:
    """Text, expected utility and greatest log P of each distinct text, best first."""
    texts = texts_of([h.tokens for h in hypotheses])
    best: dict[str, tuple[float, float]] = {}
    for hypothesis, text, values in zip(hypotheses, texts, utility(texts), strict=True):
        value = sum(weight * one for weight, one in zip(weights, values, strict=True)) / sum(weights)
        best[text] = (value, max(hypothesis.log_prob, best.get(text, (0.0, -math.inf))[1]))
    return sorted(((text, *both) for text, both in best.items()), key=lambda row: (-round(row[1], 9), -row[2]))


def check(found: list[Hypothesis], expected: list[tuple[str, float, float]]) -> None:
    assert texts_of([h.tokens for h in found]) == [text for text, _, _ in expected]
    assert [h.score for h in found] == pytest.approx([value for _, value, _ in expected], abs=1e-9)
    assert [h.log_prob for h in found] == [log_prob for _, _, log_prob in expected]


@pytest.mark.parametrize("sampling", [SamplingOptions(), SamplingOptions(temperature=0.5, min_p=0.05, seed=4)])
@pytest.mark.parametrize("utility", [chrf, bleu])
def test_samples_are_ranked_by_utility(sampling: SamplingOptions, utility: Utility) -> None:
    chosen = options(sampling=sampling, utility=utility.__name__)
    samples = sample(CachedDecoder(model(), SOURCES, SAMPLES), limits(SOURCES), chosen, SOURCES)
    found = search(SOURCES, chosen)
    for row, hypotheses in zip(found, samples, strict=True):
        check(row, brute_force(hypotheses, [1.0] * SAMPLES, utility))
    assert any(len(row) < SAMPLES for row in found)  # some texts are equal
    assert any(
        row[0].tokens != max(hypotheses, key=lambda h: h.log_prob).tokens
        for row, hypotheses in zip(found, samples, strict=True)
    )


def test_the_nbest_list_of_beam_search_is_weighted_by_probability() -> None:
    chosen = options(candidates="beam")
    lists = beam_search(CachedDecoder(model(), SOURCES, SAMPLES), limits(SOURCES), chosen)
    for row, hypotheses in zip(search(SOURCES, chosen), lists, strict=True):
        check(row, brute_force(hypotheses, [math.exp(h.log_prob) for h in hypotheses], chrf))


def same(texts: Sequence[str]) -> np.ndarray:
    return np.ones((len(texts), len(texts)))


def test_equal_utilities_are_ordered_and_misuse_is_named() -> None:
    hypotheses = [Hypothesis([number], log_prob, 0.0) for number, log_prob in enumerate([-3.0, -1.0, -2.0, -1.0, -0.5])]
    found = by_expected_utility(hypotheses, ["a", "b", "c", "d", "a"], np.ones(5), same)
    assert [(*h.tokens, h.log_prob) for h in found] == [(4, -0.5), (1, -1.0), (3, -1.0), (2, -2.0)]
    assert {h.score for h in found} == {1.0}
    decoder = CachedDecoder(model(), SOURCES, SAMPLES)
    with pytest.raises(UsageError, match="'meteor'"):
        MbrSearch(decoder, options(utility="meteor"))


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
