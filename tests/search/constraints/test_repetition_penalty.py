"""Repetition penalty: as transformers' processor, and against brute force."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from both_arrays import over_both_arrays
from toy_decoder import ToySearch
from transformers import RepetitionPenaltyLogitsProcessor

from nmt_cli.errors import UsageError
from nmt_cli.search.arrays import Arrays
from nmt_cli.search.constraint import Step
from nmt_cli.search.constraints.repetition_penalty import RepetitionPenalty
from nmt_cli.search.length_penalties import gnmt


@over_both_arrays
@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.2, 3])
def test_the_same_log_probs_change_as_by_transformers(penalty: float, arrays: Arrays) -> None:
    """Rows of different lengths; what is behind a row's length means nothing."""
    rng, size, width = random.Random(1), 9, 3
    for _ in range(40):
        lengths = [rng.choice([0, 1, 2, 5, 12]) for _ in range(4)]
        tokens = torch.tensor([[[rng.randrange(4, 9) for _ in range(13)] for _ in range(width)] for _ in lengths])
        for sentence, length in enumerate(lengths):
            tokens[sentence, :, length:] = rng.choice([-1, 0, 5])
        rows = torch.tensor(sorted(rng.sample(range(4 * width), rng.randint(0, 4 * width))), dtype=torch.long)
        log_probs = torch.randn(len(rows), size).log_softmax(1)
        expected = log_probs.clone()
        for index, row in enumerate(rows.tolist()):
            history = tokens.flatten(0, 1)[row, : lengths[row // width]]
            expected[index] = RepetitionPenaltyLogitsProcessor(float(penalty))(history[None], expected[index][None])[0]
        step = Step(*(arrays.array(torch.as_tensor(each).numpy()) for each in (rows, tokens, lengths, [9] * 4)))
        edited = arrays.array(log_probs.numpy())
        RepetitionPenalty(penalty).edit(None, step, edited)
        assert edited.tolist() == expected.tolist()


@pytest.mark.parametrize("penalty", [0.7, 1.5])
def test_a_wide_beam_is_brute_force_by_the_adjusted_score_and_log_prob_is_the_models_own(penalty: float) -> None:
    def adjusted(tokens: Sequence[int], log_probs: list[float]) -> float:
        return sum(
            p * (penalty if token in tokens[:i] else 1)
            for i, (token, p) in enumerate(zip([*tokens, -1], log_probs, strict=True))
        )

    toy = ToySearch(7, [4, 5, 6], [RepetitionPenalty(penalty)])
    for sentence in range(5):
        expected = toy.best(sentence, toy.every(5), adjusted)[:9]
        found = toy.beam_search([sentence], 5, 3**5, nbest=9)[0]
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)
        assert [h.log_prob for h in found] == pytest.approx(
            [sum(toy.log_probs(sentence, h.tokens)) for h in found], abs=1e-4
        )


def test_samples_repeat_less_and_have_the_models_own_log_prob() -> None:
    def repetitions(toy: ToySearch) -> int:
        return sum(len(h.tokens) - len(set(h.tokens)) for row in toy.sample(range(20), 12, 20) for h in row)

    toy = ToySearch(9, [4, 5, 6, 7, 8], [RepetitionPenalty(3.0)])
    assert repetitions(toy) < 0.6 * repetitions(ToySearch(9, [4, 5, 6, 7, 8], []))
    for sentence, row in enumerate(toy.sample(range(5), 12, 3)):
        for h in row:
            assert h.log_prob == pytest.approx(sum(toy.log_probs(sentence, h.tokens)), abs=1e-4)
            assert h.score == pytest.approx(h.log_prob / gnmt(len(h.tokens) + 1, 0.6))
    assert not RepetitionPenalty(1.0).edits


@pytest.mark.parametrize("value", [None, 0, -1.0, "2", True, float("inf"), float("nan")])
def test_wrong_values_are_named(value: object) -> None:
    with pytest.raises(UsageError, match=r"repetition_penalty .*expected a number above 0"):
        RepetitionPenalty(value)
