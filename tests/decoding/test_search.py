"""Beam search against brute force, greedy and itself, over a toy model whose logits depend on the whole history."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from nmt_cli.decoding.continuations import top_continuations
from nmt_cli.decoding.search import Hypothesis, Search, SearchOptions, beam_search, length_penalty
from nmt_cli.errors import ModelError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
NEVER = (PAD, UNK, BOS)


def toy_logits(sentence: int, history: tuple[int, ...], size: int, spread: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hash((sentence, *history)) % 2**31)
    return torch.randn(size, generator=generator) * spread


class Toy:
    """A model whose next logits are drawn from (sentence, history); keeps histories as tuples."""

    def __init__(self, sentences: list[int], beam: int, size: int, spread: float = 1.0) -> None:
        self.sentences, self.size, self.spread, self.steps, self.asked = sentences, size, spread, 0, 0
        self.histories: list[list[tuple[int, ...]]] = [[()] * beam for _ in sentences]

    def step(self, tokens: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.asked += len(rows)
        self.histories = [[(*h, t) for h, t in zip(row, new, strict=True)] for row, new in zip(self.histories, tokens.tolist(), strict=True)]
        every = [(s, h) for s, row in zip(self.sentences, self.histories, strict=True) for h in row]
        return torch.stack([toy_logits(*every[row], self.size, self.spread) for row in rows.tolist()])

    def reorder(self, parents: torch.Tensor) -> None:
        self.histories = [[row[p] for p in ps] for row, ps in zip(self.histories, parents.tolist(), strict=True)]

    def keep(self, sentences: torch.Tensor) -> None:
        self.sentences = [self.sentences[i] for i in sentences.tolist()]
        self.histories = [self.histories[i] for i in sentences.tolist()]


def options(beam: int, alpha: float = 0.6, nbest: int = 1, stop_early: bool = True, prune: float = 0.0) -> SearchOptions:
    return SearchOptions(beam=beam, alpha=alpha, nbest=nbest, stop_early=stop_early, prune=prune, bos=BOS, eos=EOS, never=NEVER)


def search(sentences: list[int], limits: list[int], size: int = 7, spread: float = 1.0, **kwargs: object) -> list[list[Hypothesis]]:
    opts = options(**kwargs)  # type: ignore[arg-type]
    return beam_search(Toy(sentences, opts.beam, size, spread), torch.tensor(limits), opts)


def log_prob(sentence: int, tokens: tuple[int, ...], size: int, spread: float = 1.0) -> float:
    history, total = (BOS,), 0.0
    for token in (*tokens, EOS):
        total += toy_logits(sentence, history, size, spread).log_softmax(-1)[token].item()
        history += (token,)
    return total


def brute_force(sentence: int, limit: int, size: int, alpha: float, spread: float = 1.0) -> list[tuple[float, list[int]]]:
    """Every output there can be, scored: best first."""
    words = range(EOS + 1, size)
    every = (tokens for n in range(limit + 1) for tokens in itertools.product(words, repeat=n))
    scored = [(log_prob(sentence, tokens, size, spread) / length_penalty(len(tokens) + 1, alpha), list(tokens)) for tokens in every]
    return sorted(scored, key=lambda pair: -pair[0])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("limit", [0, 1, 4])
def test_a_wide_beam_is_brute_force(alpha: float, limit: int) -> None:
    for sentence in range(6):
        expected = brute_force(sentence, limit, 7, alpha)[:5]
        found = search([sentence], [limit], beam=3**4, alpha=alpha, nbest=min(5, len(expected)))[0]
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


def greedy(sentence: int, limit: int, size: int, spread: float) -> list[int]:
    """The plain loop: the most probable token until it is the end symbol."""
    history: tuple[int, ...] = (BOS,)
    while len(history) <= limit:
        logits = toy_logits(sentence, history, size, spread)
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


@pytest.mark.parametrize(("beam", "nbest"), [(1, 1), (2, 1), (4, 4), (5, 2)])
def test_batched_is_single(beam: int, nbest: int) -> None:
    sentences, limits = list(range(30)), [1 + i * 7 % 12 for i in range(30)]
    together = search(sentences, limits, beam=beam, nbest=nbest, size=9)
    alone = [search([s], [n], beam=beam, nbest=nbest, size=9)[0] for s, n in zip(sentences, limits, strict=True)]
    assert together == alone


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("nbest", [1, 3])
def test_stopping_early_loses_nothing(alpha: float, nbest: int) -> None:
    sentences, limits = list(range(40)), [3 + i % 9 for i in range(40)]
    early = search(sentences, limits, beam=4, alpha=alpha, nbest=nbest, spread=3.0)
    late = search(sentences, limits, beam=4, alpha=alpha, nbest=nbest, spread=3.0, stop_early=False)
    assert early == late


class Pruned(Toy):
    """Tells how far below the best open hypothesis of its sentence each one lies, that is asked for."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.distances: list[float] = []

    def step(self, tokens: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        logits = super().step(tokens, rows)
        width = tokens.size(1)
        of: dict[int, list[float]] = {}
        for row in rows.tolist():
            sentence, history = self.sentences[row // width], self.histories[row // width][row % width]
            steps = (toy_logits(sentence, history[:place], self.size, self.spread).log_softmax(-1)[history[place]].item() for place in range(1, len(history)))
            of.setdefault(sentence, []).append(sum(steps))
        self.distances += [max(all_of) - one for all_of in of.values() for one in all_of]
        return logits


def test_pruning_gives_up_what_lies_far_below_the_best() -> None:
    asked = []
    for prune in (0.0, 5.0, 0.5):
        toy = Pruned(list(range(20)), 4, 7, 2.0)
        found = beam_search(toy, torch.full((20,), 12), options(beam=4, prune=prune))
        assert all(found)
        assert (max(toy.distances) <= prune + 1e-4) == (prune > 0)
        asked.append(toy.asked)
    assert asked[0] > asked[1] > asked[2]


@pytest.mark.parametrize("nbest", [1, 4])
def test_pruning_by_much_changes_nothing(nbest: int) -> None:
    sentences, limits = list(range(30)), [1 + i * 7 % 12 for i in range(30)]
    assert search(sentences, limits, beam=4, nbest=nbest, prune=1e6) == search(sentences, limits, beam=4, nbest=nbest)


class Ending(Toy):
    """The end symbol comes first at log P = -0.1, all others lie 4 below it; being longer they might win yet."""

    def step(self, tokens: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros_like(super().step(tokens, rows))
        logits[:, EOS] = 4.0
        return logits


def test_pruning_looks_at_what_has_finished_too() -> None:
    for prune, steps in ((3.0, 1), (0.0, 2)):
        toy = Ending([0], 4, 7, 1.0)
        [[best]] = beam_search(toy, torch.tensor([50]), options(beam=4, alpha=2.0, prune=prune))
        assert best.tokens == []
        assert min(toy.steps, 2) == steps


def test_stopping_early_saves_steps() -> None:
    steps = []
    for stop_early in (True, False):
        opts = options(beam=4, stop_early=stop_early)
        toy = Toy(list(range(20)), 4, 7, 6.0)
        beam_search(toy, torch.full((20,), 30), opts)
        steps.append(toy.steps)
    assert steps[1] == 31
    assert steps[0] < 31


def test_giving_up_the_hopeless_asks_the_model_less() -> None:
    asked = []
    for stop_early in (True, False):
        toy = Toy(list(range(20)), 4, 9, 4.0)
        beam_search(toy, torch.full((20,), 12), options(beam=4, stop_early=stop_early))
        asked.append(toy.asked)
    assert asked[1] == 20 + 12 * 20 * 4  # one hypothesis in the first step, four from then on
    assert asked[0] < 0.8 * asked[1]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_prefix_is_kept_and_counts(beam: int) -> None:
    prefixes = [[], [5], [6, 4, 5], [4, 4]]
    found = beam_search(Toy([0, 1, 2, 3], beam, 7), torch.tensor([6, 1, 8, 2]), options(beam), prefixes)
    for sentence, (prefix, [best]) in enumerate(zip(prefixes, found, strict=True)):
        assert best.tokens[: len(prefix)] == prefix
        assert best.log_prob == pytest.approx(log_prob(sentence, tuple(best.tokens), 7), abs=1e-4)
    assert found[0] == search([0], [6], beam=beam)[0]


def test_a_prefix_is_the_best_of_what_begins_so() -> None:
    best = next(tokens for _, tokens in brute_force(3, 4, 7, 0.6) if tokens[:2] == [6, 5])
    [found] = beam_search(Toy([3], 81, 7), torch.tensor([4]), options(81), [[6, 5]])
    assert found[0].tokens == best


def test_reported_numbers_belong_to_the_tokens() -> None:
    for sentence, found in enumerate(search(list(range(25)), [8] * 25, beam=4, nbest=4)):
        assert len({tuple(h.tokens) for h in found}) == len(found) == 4
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        for h in found:
            assert h.log_prob == pytest.approx(log_prob(sentence, tuple(h.tokens), 7), abs=1e-4)
            assert h.score == pytest.approx(h.log_prob / ((5 + len(h.tokens) + 1) / 6) ** 0.6, rel=1e-6)
            assert not {PAD, UNK, BOS, EOS} & set(h.tokens)
            assert len(h.tokens) <= 8


def test_an_end_symbol_that_never_wins_is_forced_at_the_limit() -> None:
    class Endless(Toy):
        def step(self, tokens: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            logits = super().step(tokens, rows)
            logits[..., EOS] = -50.0
            return logits

    for beam in (1, 4):
        found = beam_search(Endless([0, 1, 2], beam, 7), torch.tensor([2, 9, 5]), options(beam))
        assert [len(h[0].tokens) for h in found] == [2, 9, 5]
        assert all(h[0].log_prob < -50 for h in found)


def test_certain_endings_do_not_starve_the_beam() -> None:
    """When every hypothesis ends at the first step, the open ones must still be W others."""

    class Ending(Toy):
        def step(self, tokens: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            logits = super().step(tokens, rows)
            if self.steps == 1:
                logits[..., EOS] += 3.0
            return logits

    found = beam_search(Ending([0], 3, 12), torch.tensor([4]), options(3, alpha=3.0, nbest=3, stop_early=False))[0]
    assert len(found) == 3
    assert max(len(h.tokens) for h in found) > 0


def test_equals_are_ranked_by_hypothesis_and_token() -> None:
    class Flat(Toy):
        def step(self, tokens: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(super().step(tokens, rows))

    found = beam_search(Flat([0, 1], 3, 200), torch.tensor([2, 2]), options(3, alpha=9.0, nbest=3, stop_early=False))
    assert [[h.tokens for h in row] for row in found] == [[[4, 4], [4, 5], [4, 6]]] * 2


@pytest.mark.parametrize(("width", "size", "count"), [(1, 5, 1), (4, 7, 8), (4, 64, 8), (3, 65, 6), (4, 1000, 8), (2, 4, 20)])
def test_top_continuations_is_a_plain_topk(width: int, size: int, count: int) -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, width, size).mul(4).round()  # many equals
    so_far = -torch.rand(6, width)
    so_far[:, 1:] = torch.where(torch.rand(6, width - 1) < 0.3, -math.inf, so_far[:, 1:])
    total = logits.logsumexp(-1)
    rows = (so_far.flatten() > -math.inf).nonzero().flatten()
    values, flat = top_continuations(logits.flatten(0, 1)[rows], total.flatten()[rows], so_far, rows, count)
    plain, order = (so_far[:, :, None] + (logits - total[:, :, None])).flatten(1).sort(dim=1, descending=True, stable=True)
    finite = ~torch.isneginf(plain[:, :count])
    there = min(count, width * size)
    assert torch.equal(values[:, :there], plain[:, :there])
    assert torch.isneginf(values[:, there:]).all()
    assert torch.equal(flat[:, :there][finite], order[:, :there][finite])


def test_a_model_that_says_nan_is_named() -> None:
    class Broken(Toy):
        def step(self, tokens: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return super().step(tokens, rows) * math.nan

    with pytest.raises(ModelError, match="not a number"):
        beam_search(Broken([0, 1], 2, 7), torch.tensor([3, 3]), options(2))


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_sentences_that_come_and_go_are_searched_as_if_alone(alpha: float) -> None:
    """They enter at any step, also after all others have left, with limits and prefixes of their own."""

    class Growing(Toy):
        def enter(self, sentences: list[int]) -> None:
            self.sentences = [*self.sentences, *sentences]
            self.histories += [[()] * 3 for _ in sentences]

    opts, found = options(3, alpha=alpha, nbest=2), {}
    toy = Growing([], 3, 9, 2.0)
    search_ = Search(toy, opts)
    batches = {0: [0, 1, 2], 2: [3], 3: [4, 5], 40: [6, 7], 41: [8]}
    for step in range(60):
        if sentences := batches.get(step):
            toy.enter(sentences)
            search_.enter(sentences, torch.tensor([4 + s % 5 for s in sentences]), [[5] * (s % 3) for s in sentences])
        for key, hypotheses in search_.step():
            assert key not in found
            found[key] = hypotheses
    assert not search_.busy
    for sentence in range(9):
        alone = beam_search(Toy([sentence], 3, 9, 2.0), torch.tensor([4 + sentence % 5]), opts, [[5] * (sentence % 3)])[0]
        assert found[sentence] == alone
