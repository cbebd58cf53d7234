"""Diverse beam search against the published algorithm in plain lists, plain beam search and itself, over a toy model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import toy_decoder
from run_search import beam_search, plain_sentences, run_arrivals, run_to_end, search_options
from toy_decoder import toy_logits

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.errors import ModelError, UsageError
from nmt_cli.search.arrays import Arrays
from nmt_cli.search.constraint import Constraint, Step
from nmt_cli.search.constraints.prefix import Prefix
from nmt_cli.search.diverse_beam_search import DiverseBeamSearch
from nmt_cli.search.length_penalties import gnmt
from nmt_cli.search.protocols import Decoder
from nmt_cli.search.search import SearchOptions
from nmt_cli.search.search_state import FREE, OfHypotheses
from nmt_cli.search.sentence import Hypothesis, Sentence


class Toy(toy_decoder.Toy):
    """A model whose next logits are drawn from (sentence, history)."""

    def __init__(self, sentences: list[int], beam: int) -> None:
        super().__init__(sentences, beam, 9, 1.5)


def options(beam: int, groups: int, penalty: float = 0.5, **more: Any) -> SearchOptions:
    return search_options(beam, diverse_groups=groups, diversity_penalty=penalty, **more)


def diverse(decoder: Decoder, sentences: list[Sentence], opts: SearchOptions) -> list[list[Hypothesis]]:
    return run_to_end(DiverseBeamSearch(decoder, opts), sentences)


def searched(
    sentences: list[int], opts: SearchOptions, prefixes: list[list[int]] | None = None, limits: list[int] | None = None
) -> list[list[Hypothesis]]:
    limits = limits or [2 + s * 5 % 9 for s in sentences]
    return diverse(Toy(sentences, opts.beam), plain_sentences(limits, prefixes), opts)


def published(
    sentence: int, limit: int, opts: SearchOptions, prefix: tuple[int, ...] = (), size: int = 9, spread: float = 1.5
) -> list[tuple[tuple[int, ...], float]]:
    """The algorithm for one sentence, written out: outputs, each with log P / lp, best first."""
    groups, width, longest = opts.diverse_groups, opts.beam // opts.diverse_groups, gnmt(limit + 1, opts.alpha)
    beams: list[list[tuple[float, float, tuple[int, ...]]]] = [[(0.0, 0.0, ())] for _ in range(groups)]
    finished: list[list[tuple[float, float, tuple[int, ...]]]] = [[] for _ in range(groups)]

    def hopeless(total: float, group: int) -> bool:
        return len(finished[group]) >= width and total / longest <= finished[group][width - 1][0]

    for length in range(limit + 1):
        chosen: Counter[int] = Counter()
        for group in range(groups):
            candidates = []
            for total, own, tokens in beams[group]:
                log_probs = toy_logits(sentence, (BOS, *tokens), size, spread).log_softmax(-1).tolist()
                only = [prefix[length]] if length < len(prefix) else [EOS] if length == limit else []
                for token in only or range(EOS, size):
                    penalty = 0.0 if only else opts.diversity_penalty * chosen[token]
                    candidates.append((total + log_probs[token] - penalty, own + log_probs[token], (*tokens, token)))
            best = sorted(candidates, reverse=True)[: 2 * width if width > 1 else 1]
            beams[group] = [candidate for candidate in best if candidate[2][-1] != EOS][:width]
            chosen.update(tokens[-1] for total, _, tokens in beams[group] if not hopeless(total, group))
            penalty = gnmt(length + 1, opts.alpha)
            finished[group] += [
                (total / penalty, own / penalty, tokens[:-1]) for total, own, tokens in best if tokens[-1] == EOS
            ]
            finished[group].sort(reverse=True)
            beams[group] = [candidate for candidate in beams[group] if not hopeless(candidate[0], group)]
    merged = sorted({(score, tokens) for rows in finished for _, score, tokens in rows[:width]}, reverse=True)
    return [(tokens, score) for score, tokens in merged][: opts.nbest]


@pytest.mark.parametrize("penalty", [0.0, 0.3, 0.5, 3.0])
@pytest.mark.parametrize(("beam", "groups"), [(4, 1), (4, 2), (4, 4), (6, 3), (6, 2), (9, 3), (2, 2)])
def test_it_is_the_published_algorithm(beam: int, groups: int, penalty: float) -> None:
    opts = options(beam, groups, penalty)
    limits = [s % 9 for s in range(20)]
    for sentence, found in enumerate(searched(list(range(20)), opts, limits=limits)):
        expected = published(sentence, limits[sentence], opts)
        assert [tuple(h.tokens) for h in found] == [tokens for tokens, _ in expected]
        assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_it_is_the_published_algorithm_behind_prefixes(alpha: float) -> None:
    """A token of a prefix is not penalised: it is nobody's choice."""
    opts, prefixes = options(6, 3, 2.0, alpha=alpha), [[5 + s % 3] * (s % 4) for s in range(20)]
    for sentence, found in enumerate(searched(list(range(20)), opts, prefixes, [7] * 20)):
        expected = published(sentence, 7, opts, tuple(prefixes[sentence]))
        assert [tuple(h.tokens) for h in found] == [tokens for tokens, _ in expected]
        assert all(h.tokens[: len(prefixes[sentence])] == prefixes[sentence] for h in found)


@pytest.mark.parametrize(("groups", "penalty", "beam"), [(1, 0.5, 4), (1, 0.0, 3), (2, 0.0, 2)])
def test_one_group_or_no_penalty_is_plain_beam_search(groups: int, penalty: float, beam: int) -> None:
    """Byte for byte; without a penalty all groups find the same."""
    sentences, limits = list(range(30)), [1 + s * 7 % 12 for s in range(30)]
    opts = options(beam * groups, groups, penalty, nbest=beam, token_log_probs=True)
    plain = options(beam, 1, nbest=beam, token_log_probs=True)
    assert searched(sentences, opts, limits=limits) == beam_search(Toy(sentences, beam), limits, plain)


def test_a_beam_smaller_than_the_groups_has_as_many_groups_as_hypotheses() -> None:
    assert searched(list(range(20)), options(2, 4)) == searched(list(range(20)), options(2, 2))


def own_path(sentence: int, hypothesis: Hypothesis) -> list[float]:
    """The model's own log P of each token."""
    tokens = [BOS, *hypothesis.tokens, EOS]
    return [
        toy_logits(sentence, tuple(tokens[:i]), 9, 1.5).log_softmax(-1)[tokens[i]].item() for i in range(1, len(tokens))
    ]


@pytest.mark.parametrize("more", [{}, {"min_length": 2, "textless": (5, 7)}, {"token_log_probs": True}])
def test_numbers_are_the_models_own(more: dict[str, Any]) -> None:
    for sentence, found in enumerate(searched(list(range(20)), options(6, 3, 1.0, **more))):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({tuple(h.tokens) for h in found}) == len(found)
        for h in found:
            path = own_path(sentence, h)
            assert h.log_prob == pytest.approx(sum(path), abs=1e-4)
            assert h.score == pytest.approx(h.log_prob / gnmt(len(h.tokens) + 1, 0.6), rel=1e-5)
            assert h.token_log_probs == (pytest.approx(path, abs=1e-4) if "token_log_probs" in more else ())


def test_fewer_hypotheses_are_the_first_of_more_and_stopping_early_changes_nothing() -> None:
    sentences = list(range(40))
    every = searched(sentences, options(6, 2, 0.7))
    for nbest in (1, 2, 5):
        assert searched(sentences, options(6, 2, 0.7, nbest=nbest)) == [row[:nbest] for row in every]
    assert searched(sentences, options(6, 2, 0.7, lookahead=0)) == every


@pytest.mark.parametrize("groups", [2, 4])
def test_sentences_that_come_and_go_are_searched_as_if_alone(groups: int) -> None:
    opts, toy = options(4, groups, nbest=2), Toy([], 4)
    search = DiverseBeamSearch(toy, opts)
    limits, prefixes = [4 + s % 5 for s in range(9)], [[5] * (s % 3) for s in range(9)]

    def enter(sentences: Sequence[int]) -> None:
        toy.add(sentences)
        search.add(sentences, plain_sentences([limits[s] for s in sentences], [prefixes[s] for s in sentences]))

    found = run_arrivals(search, {0: [0, 1, 2], 2: [3], 3: [4, 5], 40: [6, 7], 41: [8]}, enter)
    assert found == [searched([s], opts, [prefixes[s]], [limits[s]])[0] for s in range(9)]


class NoSixes(Constraint):
    """Forbids token 6, and makes token 4 less probable."""

    name = "no_sixes"
    edits = adjusts = True

    def edit(self, state: Any, step: Step, log_probs: torch.Tensor) -> None:
        log_probs[:, 6] = -math.inf
        log_probs[:, 4] *= 1.5


@dataclass
class Has(OfHypotheses):
    """Whether hypotheses have what they need."""

    has: torch.Tensor  # (B, W)


class Sevens(Constraint):
    """Demands token 7 somewhere in the output."""

    name = "sevens"
    progresses = True

    def start(self, sentences: Sequence[Sentence], width: int, arrays: Arrays) -> Has:
        return Has(torch.zeros(len(sentences), width, dtype=torch.bool))

    def advance(self, state: Has, tokens: torch.Tensor) -> Has:
        return Has(state.has | (tokens == 7))

    def proposals(self, state: Has, step: Step, log_probs: torch.Tensor) -> torch.Tensor:
        return torch.where(state.has, FREE, 7)[:, :, None]

    def progress(self, state: Has, parents: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return (state.has.gather(1, parents) | (tokens == 7)).long()

    def demands(self, state: Has) -> torch.Tensor:
        return torch.ones(len(state.has), dtype=torch.bool)

    def missing(self, state: Has) -> torch.Tensor:
        return (~state.has).long()


@pytest.mark.parametrize(("beam", "groups"), [(6, 3), (4, 4)])
def test_constraints_that_demand_hold_in_every_group(beam: int, groups: int) -> None:
    opts = options(beam, groups, constraints=(Prefix(), Sevens()))
    without = searched(list(range(20)), options(beam, groups), limits=[6] * 20)
    assert not all(7 in row[0].tokens for row in without)
    for sentence, found in enumerate(searched(list(range(20)), opts, limits=[6] * 20)):
        assert 7 in found[0].tokens
        has = [7 in h.tokens for h in found]
        assert has == sorted(has, reverse=True)
        assert found == searched([sentence], opts, limits=[6])[0]


def test_constraints_that_edit_hold_in_every_group() -> None:
    opts = options(6, 3, 1.0, constraints=(Prefix(), NoSixes()))
    for sentence, found in enumerate(searched(list(range(20)), opts)):
        assert found == searched([sentence], opts)[0]
        for h in found:
            assert 6 not in h.tokens
            assert h.log_prob == pytest.approx(sum(own_path(sentence, h)), abs=1e-4)


def test_what_it_does_not_take_is_named() -> None:
    class Broken(Toy):
        def step(self, tokens: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
            return super().step(tokens, rows) * math.nan

    with pytest.raises(ModelError, match="not a number"):
        diverse(Broken([0, 1], 4), plain_sentences([3, 3]), options(4, 2))
    with pytest.raises(
        UsageError,
        match="a beam of 6 cannot be divided into 4 groups of equal size: give a beam that is a multiple of 4",
    ):
        DiverseBeamSearch(Toy([0], 6), options(6, 4))
