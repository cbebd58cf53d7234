"""Sampling: outputs follow the distribution after temperature and cuts, and depend on seed and sentence alone."""

import itertools
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from both_arrays import TORCH
from run_search import beam_search, sample, search_options
from small_models import random_sources, section
from torch import Tensor

from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.engine.model import Bans
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.length_penalties import gnmt
from nmt_cli.search.sampling import draw
from nmt_cli.search.search import SamplingOptions, SearchOptions
from nmt_cli.search.sentence import Hypothesis
from nmt_cli.translation.cached_decoder import CachedDecoder

NEVER = (PAD, UNK, BOS)
SIZE = 8
DRAWS = 4000


class Chain:
    """Logits that depend on the newest token alone: a Markov chain."""

    arrays = TORCH

    def __init__(self) -> None:
        self.logits = 1.5 * torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(4))

    def step(self, tokens: Tensor, rows: np.ndarray) -> Tensor:
        return self.logits[tokens.flatten()[rows]]

    def reorder(self, parents: Tensor) -> None:
        """A chain knows nothing of its outputs."""

    def keep(self, sentences: np.ndarray) -> None:
        """A chain knows nothing of its sentences."""


def options(width: int, nbest: int | None = None, **sampling: Any) -> SearchOptions:
    return search_options(width, nbest=nbest or width, sampling=SamplingOptions(**sampling))


def check_frequencies(found: list[Hypothesis], expected: dict[tuple[int, ...], float]) -> None:
    """By chi-square; what has no probability never comes."""
    assert sum(expected.values()) == pytest.approx(1)
    counts = dict.fromkeys(expected, 0)
    for hypothesis in found:
        counts[tuple(hypothesis.tokens)] += 1
    assert all(counts[output] == 0 for output, chance in expected.items() if chance == 0)
    often = [output for output, chance in expected.items() if chance * DRAWS >= 5]
    statistic = sum((counts[output] - expected[output] * DRAWS) ** 2 / (expected[output] * DRAWS) for output in often)
    assert len(often) >= 3
    assert statistic < len(often) + 4 * math.sqrt(2 * len(often))


def chances_of(temperature: float = 1.0) -> np.ndarray:
    """The probabilities of the tokens that may follow each token."""
    logits = Chain().logits.double() / temperature
    logits[:, list(NEVER)] = -math.inf
    chances: np.ndarray = logits.softmax(1).numpy()
    return chances


@pytest.mark.parametrize(("temperature", "min_length"), [(0.4, 0), (1.0, 0), (3.0, 0), (1.0, 1)])
def test_outputs_are_as_frequent_as_their_probability_says(temperature: float, min_length: int) -> None:
    """All outputs of at most two tokens. If one must have text: token 5 has none, so the first may not be the last."""
    steps = chances_of(temperature)

    def following(token: int, *banned: int) -> np.ndarray:
        chances: np.ndarray = steps[token].copy()
        chances[list(banned) if min_length else []] = 0
        chances /= chances.sum()
        return chances

    first, expected = following(BOS, EOS), dict[tuple[int, ...], float]()
    expected[()] = first[EOS]
    for one in range(EOS + 1, SIZE):
        second = following(one, EOS, 5) if one == 5 else steps[one]
        expected[(one,)] = first[one] * second[EOS]
        expected |= {(one, other): first[one] * second[other] for other in range(EOS + 1, SIZE)}
    sampling = SamplingOptions(temperature=temperature)
    given = search_options(DRAWS, min_length=min_length, textless=(5,), sampling=sampling)
    [found] = sample(Chain(), [2], given, [[5, EOS]])
    check_frequencies(found, expected)
    whole = Chain().logits.log_softmax(1)
    for hypothesis in found[:100]:
        path = itertools.pairwise([BOS, *hypothesis.tokens, EOS])
        assert hypothesis.log_prob == pytest.approx(sum(float(whole[a, b]) for a, b in path), abs=1e-4)


def drawn(logits: Tensor, uniform: Tensor, bans: Any = Bans(()), **settings: Any) -> Tensor:  # noqa: B008
    """One token for each row."""
    tokens: Tensor = draw(logits, uniform, bans, SamplingOptions(**settings), torch.arange(len(logits)))
    return tokens


def random_logits(rows: int, size: int, spread: float) -> Tensor:
    return spread * torch.randn(rows, size, generator=torch.Generator().manual_seed(size))


WAYS: list[dict[str, float]] = [
    {},
    {"temperature": 0.7},
    {"top_k": 20},
    {"top_p": 0.8},
    {"min_p": 0.05},
    {"temperature": 1.5, "top_k": 30, "top_p": 0.9, "min_p": 0.1},
    {"top_p": 0.95, "min_p": 0.02},
    {"top_p": 0.6, "min_p": 0.9},
    {"temperature": 0.8, "min_p": 0.3},
]
"""Each way to draw, and all cuts together."""


@pytest.mark.parametrize(("size", "spread"), [(100, 1.0), (128, 2.0), (700, 0.5), (700, 4.0)])
@pytest.mark.parametrize("settings", WAYS)
def test_cuts_and_probabilities_are_those_of_transformers(settings: dict[str, float], size: int, spread: float) -> None:
    """Uniform numbers at equal distances give each token in proportion to its probability: to one part of the distance."""
    process = pytest.importorskip("transformers.generation.logits_process")
    [logits] = random_logits(1, size, spread)
    expected = process.TemperatureLogitsWarper(settings.get("temperature", 1.0))(None, logits[None])
    if "top_k" in settings:
        expected = process.TopKLogitsWarper(int(settings["top_k"]))(None, expected)
    if "top_p" in settings:
        expected = process.TopPLogitsWarper(settings["top_p"])(None, expected)
    if "min_p" in settings:
        expected = process.MinPLogitsWarper(settings["min_p"])(None, expected)
    chances = expected[0].double().softmax(0)

    count = 20_000
    uniform = (torch.arange(count, dtype=torch.double) + 0.5) / count
    frequency = drawn(logits.expand(count, -1), uniform, **settings).bincount(minlength=size) / count
    assert (frequency - chances).abs().max() < 1.1 / count
    kept = chances > 0
    assert not frequency[~kept].any()
    assert frequency[kept & (chances > 1.1 / count)].all()


@pytest.mark.parametrize("settings", WAYS)
def test_a_row_is_drawn_alike_whatever_its_neighbours(settings: dict[str, float]) -> None:
    """Of a large vocabulary, where a row has few or many likely tokens."""
    logits = torch.cat([random_logits(20, 10_001, 1.0), random_logits(20, 10_001, 5.0)])[
        torch.randperm(40, generator=torch.Generator().manual_seed(1))
    ]
    uniform = torch.rand(40, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    together = drawn(logits, uniform, **settings)
    for size in (1, 3):
        assert torch.cat(
            [drawn(logits[i : i + size], uniform[i : i + size], **settings) for i in range(0, 40, size)]
        ).equal(together)


@pytest.mark.parametrize("settings", WAYS)
@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_give_tokens_that_may_follow(settings: dict[str, Any], uniform: float) -> None:
    """Not a banned token, nor one whose probability is rounded to 0, nor one beyond the vocabulary; logits are not changed."""
    logits = random_logits(50, 640, 1.0)
    logits[:, 30:] = -1000.0
    before, banned = logits.clone(), (0, 1, 2, 29)
    tokens = drawn(logits, torch.full((50,), uniform, dtype=torch.double), Bans(banned), **settings)
    assert logits.equal(before)
    assert set(tokens.tolist()) <= set(range(30)) - set(banned)


def test_bans_differ_by_row_and_of_equal_logits_top_k_keeps_k() -> None:
    counts = torch.arange(100) % 4
    tokens = drawn(torch.zeros(100, 3 + 1), torch.zeros(100, dtype=torch.double), Bans((0, 1, 2), counts))
    assert tokens.equal(counts)
    uniform = torch.linspace(0, 0.999, 500, dtype=torch.double)
    assert len(drawn(torch.zeros(500, 200), uniform, top_k=7).unique()) == 7  # type: ignore[no-untyped-call]
    assert len(drawn(torch.zeros(500, 200), uniform, top_p=0.5).unique()) == 100  # type: ignore[no-untyped-call]


VOCABULARY = 150
SOURCES = random_sources(20, 25, VOCABULARY)


@cache
def model() -> Transformer:
    torch.manual_seed(0)
    config = section(d_model=64, d_ff=128, num_heads=4, max_positions=128)
    return Transformer(config, VOCABULARY, VOCABULARY).eval()


def limits(batch: list[list[int]]) -> list[int]:
    return [len(source) + 4 for source in batch]


def samples(
    batch: list[list[int]],
    width: int = 2,
    prefixes: list[list[int]] | None = None,
    nbest: int | None = None,
    **settings: Any,
) -> list[list[Hypothesis]]:
    return sample(
        CachedDecoder(model(), batch, width), limits(batch), options(width, nbest, **settings), batch, prefixes
    )


@pytest.mark.parametrize(
    "settings", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-6}, {"temperature": 1e-30}, {"min_p": 1.0}]
)
def test_what_leaves_one_token_is_greedy_search(settings: dict[str, Any]) -> None:
    greedy = beam_search(CachedDecoder(model(), SOURCES, 1), limits(SOURCES), options(1))
    found = samples(SOURCES, 3, **settings)
    assert [[h.tokens for h in row] for row in found] == [[row[0].tokens] * 3 for row in greedy]
    for row, [best] in zip(found, greedy, strict=True):
        assert row[0].log_prob == pytest.approx(best.log_prob, abs=1e-4)


def test_the_seed_and_the_sentence_choose() -> None:
    twice = [SOURCES[0], SOURCES[1], SOURCES[0]]
    first, second, again = samples(twice, seed=7)
    assert first == again != second
    assert samples(twice, seed=7)[0] == first
    assert samples(twice, seed=8)[0] != first
    assert first[0].tokens != first[1].tokens  # samples of a sentence are drawn independently


def test_more_samples_are_the_same_and_more_and_ranked() -> None:
    for few, many in zip(samples(SOURCES, 2), samples(SOURCES, 5), strict=True):
        assert {tuple(h.tokens) for h in few} < {tuple(h.tokens) for h in many}
    ranked = samples(SOURCES, 5)
    for row in ranked:
        assert [h.score for h in row] == sorted((h.score for h in row), reverse=True)
    assert samples(SOURCES, 5, nbest=2) == [row[:2] for row in ranked]


@torch.inference_mode()
def log_prob(source: list[int], tokens: list[int]) -> float:
    logits = model().logits(model()(torch.tensor([source]), None, torch.tensor([[BOS, *tokens]])))
    return float(logits.log_softmax(-1)[0].gather(1, torch.tensor([*tokens, EOS])[:, None]).sum())


@pytest.mark.parametrize("settings", [{}, {"top_k": 5, "temperature": 3.0}])
def test_prefixes_are_kept_and_log_prob_is_the_models_own(settings: dict[str, Any]) -> None:
    prefixes = [[9, 8, 7], [], [40], *[[]] * 17]
    found = samples(SOURCES, 2, prefixes, **settings)
    for source, prefix, row in zip(SOURCES, prefixes, found, strict=True):
        for h in row:
            assert h.tokens[: len(prefix)] == prefix
            assert h.log_prob == pytest.approx(log_prob(source, h.tokens), abs=1e-3)
            assert h.score == h.log_prob / gnmt(len(h.tokens) + 1, 0.6)
            assert not {PAD, UNK, BOS, EOS} & set(h.tokens)
            assert len(h.tokens) <= len(source) + 4
    assert [found[i] for i in (1, 3, 19)] == [samples(SOURCES, **settings)[i] for i in (1, 3, 19)]


def test_equal_samples_are_computed_once() -> None:
    """The decoder computes as many rows as there are different beginnings of open samples, and those of a prefix are one."""

    class Counting(CachedDecoder):
        rows: list[int] = []  # noqa: RUF012

        def step(self, tokens: Tensor, rows: np.ndarray) -> Tensor:
            self.rows.append(len(rows))
            return super().step(tokens, rows)

    batch, prefixes = SOURCES[:3], [[9, 8, 7], [9], []]
    found = sample(Counting(model(), batch, 30), limits(batch), options(30, temperature=0.3), batch, prefixes)
    expected = [
        sum(len({tuple(h.tokens[:step]) for h in row if len(h.tokens) >= step}) for row in found)
        for step in range(max(len(h.tokens) for row in found for h in row) + 1)
    ]
    assert Counting.rows == expected
    assert expected[0] == 3
    assert max(expected) > 30
