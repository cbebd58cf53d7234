"""Beam search against brute force, greedy search and itself, over a toy model whose logits depend on the whole history."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from run_search import beam_search, over, plain_sentences, search_options
from small_models import needs_engine, searched
from toy_decoder import Histories, Toy, ToySearch, toy_logits

from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.errors import ModelError
from nmt_cli.search.arrays import NUMPY
from nmt_cli.search.beam_search import BeamSearch
from nmt_cli.search.constraints.prefix import Prefix
from nmt_cli.search.diverse_beam_search import DiverseBeamSearch
from nmt_cli.search.ensemble import EnsembleDecoder
from nmt_cli.search.length_penalties import average, gnmt, none, power
from nmt_cli.search.mbr import MbrSearch
from nmt_cli.search.sampling import SamplingSearch
from nmt_cli.search.search import UNLIMITED, MbrOptions, SamplingOptions, SearchOptions
from nmt_cli.search.sentence import Hypothesis

NEVER = (PAD, UNK, BOS)
ARRIVALS = [(0, [0, 1, 2]), (2, [3]), (3, [4, 5]), (40, [6, 7]), (41, [8])]


class NumPyToy(Toy):
    """Its arrays are NumPy's."""

    arrays = NUMPY

    def step(self, tokens: Any, rows: np.ndarray) -> Any:
        return super().step(tokens, rows).numpy()


class Scripted(Histories):
    """A model of one sentence that has these probabilities after a history, elsewhere the `other` ones; without any, all
    tokens are equally probable.
    """

    def __init__(
        self, probabilities: dict[tuple[int, ...], dict[int, float]], beam: int, other: dict[int, float] | None = None
    ) -> None:
        super().__init__([0], beam)
        self.probabilities, self.other = probabilities, other or {}

    def step(self, tokens: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
        logits = torch.zeros(len(rows), 9)
        for row, (_, history) in zip(logits, self.extended(tokens, rows), strict=True):
            for token, probability in self.probabilities.get(history, self.other).items():
                row -= 1e4 * (row == 0)
                row[token] = math.log(probability)
        return logits


def options(beam: int, alpha: float = 0.6, nbest: int = 1, **more: Any) -> SearchOptions:
    return search_options(beam, alpha=alpha, nbest=nbest, **more)


def search(
    sentences: list[int], limits: list[int], size: int = 7, spread: float = 1.0, **kwargs: Any
) -> list[list[Hypothesis]]:
    opts = options(**kwargs)
    return beam_search(Toy(sentences, opts.beam, size, spread), limits, opts)


def log_prob(sentence: int, tokens: tuple[int, ...], size: int, spread: float = 1.0) -> float:
    history: tuple[int, ...] = (BOS,)
    total = 0.0
    for token in (*tokens, EOS):
        total += toy_logits(sentence, history, size, spread).log_softmax(-1)[token].item()
        history += (token,)
    return total


SHORTEST = [(0, ()), *itertools.product([1, 2, 3, 9], [(), (5,), (4, 6)])]


@pytest.mark.parametrize("limit", [0, 1, 4])
@pytest.mark.parametrize(
    ("alpha", "min_length", "textless"), [(0.0, 0, ()), (2.0, 0, ()), *((0.6, *one) for one in SHORTEST)]
)
def test_a_wide_beam_is_brute_force(limit: int, alpha: float, min_length: int, textless: tuple[int, ...]) -> None:
    """The limit wins over the shortest length."""

    def long_enough(tokens: tuple[int, ...]) -> bool:
        return sum(token not in textless for token in tokens) >= min(min_length, limit)

    toy = ToySearch(7, (4, 5, 6), ())
    toy.check_brute_force(limit, long_enough, alpha=alpha, min_length=min_length, textless=textless)


WORDS = (-3.0, -0.4, 0.3, 2.0)
"""Word penalties: among them ones with which the longest and the shortest output win."""


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_word_penalty_is_brute_force(words: float, alpha: float) -> None:
    """Every token costs it, the end symbol too; what is given up could not win at any length."""
    toy = ToySearch(7, (4, 5, 6), ())
    toy.check_brute_force(
        4, score=lambda tokens, log_probs: sum(log_probs) - words * len(log_probs), alpha=alpha, word_penalty=words
    )


@pytest.mark.parametrize("words", [0.0, *WORDS])
@pytest.mark.parametrize(("alpha", "nbest"), [(0.0, 2), (1.0, 1), (1.0, 3)])
@pytest.mark.parametrize("kind", [Toy, pytest.param(NumPyToy, marks=needs_engine)])
def test_a_lookahead_asks_the_model_less_and_loses_nothing_that_could_win_within_it(
    words: float, alpha: float, nbest: int, kind: Any
) -> None:
    """With one as long as the longest output it finds what the search finds that gives nothing up."""
    asked, found = [], []
    for lookahead in (1, 3, 13, UNLIMITED, 0):
        toy = kind(list(range(20)), 4, 9)
        more: dict[str, Any] = {"nbest": nbest, "lookahead": lookahead, "word_penalty": words}
        found.append(beam_search(toy, [12] * 20, options(beam=4, alpha=alpha, **more)))
        asked.append(toy.asked)
    assert asked == sorted(asked)
    assert asked[2] == asked[3]
    assert words < 0 or asked[3] < 0.95 * asked[4]
    assert words or not alpha or asked[0] < asked[2]
    assert asked[4] == 20 + 12 * 20 * 4  # one hypothesis in the first step, four from then on
    assert found[2] == found[3] == found[4]
    for shorter in found[:2]:
        assert words or all(one[0].score <= best[0].score for one, best in zip(shorter, found[3], strict=True))


SHORT: dict[str, Any] = {"min_length": 2, "textless": (5, 7)}
"""Options with which many hypotheses are too short, for a model that ends early."""


def brief(sentences: list[int], beam: int, spread: float = 1.0) -> Toy:
    """A model that prefers to end, and tokens without text."""

    def change(logits: torch.Tensor) -> None:
        logits[:, [EOS, 5, 7]] += 3.0

    return Toy(sentences, beam, 9, spread, change)


def test_a_hypothesis_does_not_inherit_what_another_one_lacked() -> None:
    """[5, 5], of white space, is given up in slot 1; [4, 6, 6], which comes there next but one, may end."""
    chances = {
        (BOS,): {4: 0.9, 5: math.exp(-9.5)},
        (BOS, 4): {EOS: 0.2, 6: 0.5},
        (BOS, 5): {5: 0.9},
        (BOS, 4, 6): {4: 0.6, 6: 0.39},
        (BOS, 4, 6, 6): {EOS: 0.99},
    }
    toy = Scripted(chances, 2, {4: 0.9})
    [[best]] = beam_search(toy, [20], options(2, alpha=1.2, min_length=1, textless=(5,)))
    assert best.tokens == [4, 6, 6]


def test_a_prefix_counts_as_what_it_is() -> None:
    """Its tokens that carry text count, the others do not; one that fills the output leaves room for nothing."""
    prefixes = [[4, 6], [5], [5, 5], []]
    found = beam_search(brief([0, 1, 2, 3], 1), [8, 8, 2, 8], options(1, min_length=2, textless=(5, 7)), prefixes)
    tokens = [best.tokens for [best] in found]
    assert [row[: len(prefix)] for row, prefix in zip(tokens, prefixes, strict=True)] == prefixes
    assert tokens[0] == beam_search(brief([0], 1), [8], options(1), prefixes[:1])[0][0].tokens
    assert sum(token not in (5, 7) for token in tokens[1]) >= 2
    assert tokens[2] == [5, 5]


@pytest.mark.parametrize(("size", "textless"), [(4, ()), (6, (4, 5))])
def test_a_vocabulary_without_text_bans_nothing(size: int, textless: tuple[int, ...]) -> None:
    for beam in (1, 3):
        some = {"size": size, "beam": beam, "nbest": 1}
        assert search([0, 1], [3, 0], min_length=1, textless=textless, **some) == search([0, 1], [3, 0], **some)


def greedy(sentence: int, limit: int, size: int, spread: float) -> list[int]:
    """The plain loop: the most probable token until it is the end symbol."""
    history: tuple[int, ...] = (BOS,)
    while len(history) <= limit:
        logits = toy_logits(sentence, history, size, spread).clone()
        logits[list(NEVER)] = -math.inf
        token = int(logits.argmax())
        if token == EOS:
            break
        history += (token,)
    return list(history[1:])


@pytest.mark.parametrize("spread", [0.01, 1.0, 5.0])
def test_beam_of_one_is_greedy(spread: float) -> None:
    sentences, limits = list(range(40)), [i % 13 for i in range(40)]
    found = search(sentences, limits, size=11, spread=spread, beam=1)
    assert [h[0].tokens for h in found] == [greedy(s, n, 11, spread) for s, n in zip(sentences, limits, strict=True)]
    for sentence, [best] in zip(sentences, found, strict=True):
        assert best.log_prob == pytest.approx(log_prob(sentence, tuple(best.tokens), 11, spread), abs=1e-4)


def test_a_search_ends_when_no_hypothesis_can_become_better() -> None:
    toy = Toy(list(range(20)), 4, 7, 6.0)
    beam_search(toy, [30] * 20, options(beam=4))
    assert toy.steps < 31


def test_a_hypothesis_is_given_up_when_the_tokens_of_the_lookahead_would_have_to_cost_less_than_nothing() -> None:
    """Two outputs with lp = 10^(|Y| - 1): the empty one, and one that wins because its second token and its end cost nothing."""
    probabilities = {(BOS,): {EOS: 0.9, 5: 0.1}, (BOS, 5): {6: 1.0}, (BOS, 5, 6): {EOS: 1.0}}
    for lookahead, tokens in ((1, []), (2, [5, 6]), (UNLIMITED, [5, 6])):
        best = beam_search(
            Scripted(probabilities, 2),
            [2],
            options(beam=2, length_penalty=lambda n, alpha: 10.0 ** (n - 1), lookahead=lookahead),
        )[0][0]
        assert best.tokens == tokens, lookahead


@pytest.mark.parametrize("beam", [1, 4])
def test_a_prefix_is_kept_and_counts(beam: int) -> None:
    prefixes = [[], [5], [6, 4, 5], [4, 4]]
    found = beam_search(Toy([0, 1, 2, 3], beam, 7), [6, 1, 8, 2], options(beam), prefixes)
    for sentence, (prefix, [best]) in enumerate(zip(prefixes, found, strict=True)):
        assert best.tokens[: len(prefix)] == prefix
        assert best.log_prob == pytest.approx(log_prob(sentence, tuple(best.tokens), 7), abs=1e-4)
    assert found[0] == search([0], [6], beam=beam)[0]


def test_a_prefix_is_the_best_of_what_begins_so() -> None:
    toy, words = ToySearch(7, (4, 5, 6), [Prefix()]), (4, 5, 6)
    _, best = toy.best(3, ((6, 5, *rest) for n in range(3) for rest in itertools.product(words, repeat=n)))[0]
    assert toy.beam_search([3], 4, 81, [[6, 5]])[0][0].tokens == best


@pytest.mark.parametrize(
    ("penalty", "alpha", "values"),
    [
        (gnmt, 0.6, [(6 / 6) ** 0.6, (8 / 6) ** 0.6]),
        (gnmt, 0.0, [1, 1]),
        (power, 1.5, [1, 3**1.5]),
        (average, 0.6, [1, 3]),
        (none, 0.6, [1, 1]),
    ],
)
def test_length_penalties(penalty: Callable[[int, float], float], alpha: float, values: list[float]) -> None:
    """Of outputs of one and of three tokens, as docs/search.md has them."""
    assert [penalty(1, alpha), penalty(3, alpha)] == pytest.approx(values, rel=1e-6)


def test_an_end_symbol_that_never_wins_is_forced_at_the_limit() -> None:
    for beam in (1, 4):
        toy = Toy([0, 1, 2], beam, 7, change=lambda logits: logits[:, EOS].fill_(-50))
        found = beam_search(toy, [2, 9, 5], options(beam))
        assert [len(h[0].tokens) for h in found] == [2, 9, 5]
        assert all(h[0].log_prob < -50 for h in found)


def test_certain_endings_do_not_starve_the_beam() -> None:
    """When every hypothesis ends at the first step, the open ones must still be W others."""
    toy = Toy([0], 3, 12, change=lambda logits: logits[:, EOS].add_(3 if len(logits) == 1 else 0))
    [found] = beam_search(toy, [4], options(3, alpha=3.0, nbest=3, lookahead=0))
    assert len(found) == 3
    assert max(len(h.tokens) for h in found) > 0


def test_equals_are_ranked_by_hypothesis_and_token() -> None:
    flat = Toy([0, 1], 3, 200, change=lambda logits: logits.zero_())
    found = beam_search(flat, [2, 2], options(3, alpha=9.0, nbest=3, lookahead=0))
    assert [[h.tokens for h in row] for row in found] == [[[4, 4], [4, 5], [4, 6]]] * 2


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "beam": (BeamSearch, {}),
    "without a length penalty": (BeamSearch, {"alpha": 0.0, **SHORT}),
    "long enough": (BeamSearch, SHORT),
    "words": (BeamSearch, {"word_penalty": -0.4}),
    "two groups": (DiverseBeamSearch, {"diverse_groups": 2}),
    "four groups": (DiverseBeamSearch, {"diverse_groups": 4}),
    "samples": (SamplingSearch, {"sampling": SamplingOptions()}),
    "mbr of samples": (MbrSearch, {"sampling": SamplingOptions(), "mbr": MbrOptions()}),
    "mbr of a beam": (MbrSearch, {"mbr": MbrOptions(candidates="beam")}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_that_come_and_go_are_searched_as_if_alone(kind: str) -> None:
    """They enter at any step, also after all others have left, with limits and prefixes of their own."""
    numbers, (search, more) = range(9), KINDS[kind]
    prefixes = [[5] * (s % 3) for s in numbers]
    given = plain_sentences([4 + s % 5 for s in numbers], prefixes, [[s] for s in numbers])
    opts = options(4, nbest=2, detokenize=lambda rows: ["".join(map(chr, row)) for row in rows], **more)
    joined = over(lambda: brief([], 4, 2.0), opts, search)
    found = searched(joined, given, ARRIVALS)
    assert joined.step() == []
    assert found == [searched(over(lambda: brief([], 4, 2.0), opts, search), [one])[0] for one in given]
    assert max(map(len, found)) == 2
    assert all(h.tokens[: len(prefix)] == prefix for prefix, row in zip(prefixes, found, strict=True) for h in row)
    without = replace(opts, lookahead=0)
    assert search is MbrSearch or searched(over(lambda: brief([], 4, 2.0), without, search), given) == found


@pytest.mark.parametrize("toy", [Toy, pytest.param(NumPyToy, marks=needs_engine)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_whose_logits_are_nan_is_named(kind: str, toy: Any) -> None:
    search, more = KINDS[kind]
    some = slice(0, None, 2 if search is BeamSearch else 1)
    broken = search(toy([0, 1], 4, 9, change=lambda logits: logits[some, 5].fill_(math.nan)), options(4, **more))
    with pytest.raises(ModelError, match="not a number"):
        searched(broken, plain_sentences([3, 3], None, [[0], [1]]))


@pytest.mark.parametrize("kind", [Toy, pytest.param(NumPyToy, marks=needs_engine)])
def test_an_ensemble_averages_probabilities(kind: Any) -> None:
    ensemble = EnsembleDecoder([kind([0, 1], 2, 7, spread) for spread in (0.5, 2.0, 9.0)])
    tokens, rows = torch.tensor([[BOS] * 2] * 2), np.arange(4)
    found = torch.as_tensor(ensemble.step(tokens, rows)).exp()
    alone = [Toy([0, 1], 2, 7, spread).step(tokens, rows).softmax(1) for spread in (0.5, 2.0, 9.0)]
    torch.testing.assert_close(found, torch.stack(alone).mean(0))
