"""No repeated n-grams, and the repetition penalty: as transformers' processors, and against brute force."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from both_arrays import over_both_arrays
from toy_decoder import ToySearch
from transformers import NoRepeatNGramLogitsProcessor, RepetitionPenaltyLogitsProcessor

from nmt_cli.search.arrays import Arrays
from nmt_cli.search.constraint import Constraint, Step
from nmt_cli.search.constraints.no_repeat_ngram import NoRepeatNgram
from nmt_cli.search.constraints.repetition_penalty import RepetitionPenalty


def repeats(tokens: Sequence[int], n: int) -> bool:
    ngrams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(ngrams)) < len(ngrams)


@over_both_arrays
@pytest.mark.parametrize(
    ("rule", "processor"),
    [(NoRepeatNgram(n), NoRepeatNGramLogitsProcessor(n)) for n in (1, 2, 3, 4, 30, 1_000_000)]
    + [(RepetitionPenalty(p), RepetitionPenaltyLogitsProcessor(float(p))) for p in (0.5, 1.0, 1.2, 3)],
)
def test_log_probs_are_edited_as_by_transformers(rule: Constraint, processor: Any, arrays: Arrays) -> None:
    """Rows of different lengths; what is behind a row's length means nothing."""
    rng, size, width = random.Random(1), 9, 3
    for _ in range(40):
        lengths = [rng.choice([0, 1, 2, 5, 12, 25]) for _ in range(4)]
        tokens = torch.tensor(
            [[[rng.randrange(4, 4 + rng.choice([1, 2, 5])) for _ in range(26)] for _ in range(width)] for _ in lengths]
        )
        for sentence, length in enumerate(lengths):
            tokens[sentence, :, length:] = rng.choice([-1, 0, 5])
        rows = torch.tensor(sorted(rng.sample(range(4 * width), rng.randint(0, 4 * width))), dtype=torch.long)
        log_probs = torch.randn(len(rows), size).log_softmax(1)
        expected = log_probs.clone()
        for index, row in enumerate(rows.tolist()):
            history = tokens.flatten(0, 1)[row, : lengths[row // width]]
            expected[index] = processor(history[None], expected[index][None])[0]
        step = Step(*(arrays.array(torch.as_tensor(each).numpy()) for each in (rows, tokens, lengths, [9] * 4)))
        edited = arrays.array(log_probs.numpy())
        rule.edit(None, step, edited)
        assert edited.tolist() == expected.tolist()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_wide_beam_is_brute_force(n: int) -> None:
    toy = ToySearch(7, [4, 5, 6], [NoRepeatNgram(n)])
    toy.check_brute_force(5, lambda tokens: not repeats(tokens, n))
    assert not any(repeats(h.tokens, n) for row in toy.sample(range(20), 12, 20) for h in row)


@pytest.mark.parametrize("penalty", [0.7, 1.5])
def test_a_wide_beam_is_brute_force_by_the_adjusted_score_and_log_prob_is_the_models_own(penalty: float) -> None:
    def adjusted(tokens: Sequence[int], log_probs: list[float]) -> float:
        return sum(p * (penalty if (*tokens, -1)[i] in tokens[:i] else 1) for i, p in enumerate(log_probs))

    toy = ToySearch(7, [4, 5, 6], [RepetitionPenalty(penalty)])
    toy.check_brute_force(5, score=adjusted)
    for h in toy.sample([0], 12, 9)[0]:
        assert h.log_prob == pytest.approx(sum(toy.log_probs(0, h.tokens)), abs=1e-4)
