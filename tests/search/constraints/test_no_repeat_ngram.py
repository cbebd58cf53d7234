"""No repeated n-grams: as transformers' processor, and against brute force."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from both_arrays import over_both_arrays
from toy_decoder import ToySearch
from transformers import NoRepeatNGramLogitsProcessor

from nmt_cli.errors import UsageError
from nmt_cli.search.arrays import Arrays
from nmt_cli.search.constraint import Step
from nmt_cli.search.constraints.no_repeat_ngram import NoRepeatNgram


def repeats(tokens: Sequence[int], n: int) -> bool:
    ngrams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(ngrams)) < len(ngrams)


@over_both_arrays
@pytest.mark.parametrize("n", [1, 2, 3, 4, 30, 1_000_000])
def test_the_same_tokens_are_forbidden_as_by_transformers(n: int, arrays: Arrays) -> None:
    """Rows of different lengths; what is behind a row's length means nothing."""
    rng, size, width = random.Random(n), 9, 3
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
            expected[index] = NoRepeatNGramLogitsProcessor(n)(history[None], expected[index][None])[0]
        step = Step(*(arrays.array(torch.as_tensor(each).numpy()) for each in (rows, tokens, lengths, [9] * 4)))
        edited = arrays.array(log_probs.numpy())
        NoRepeatNgram(n).edit(None, step, edited)
        assert edited.tolist() == expected.tolist()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_wide_beam_is_brute_force(n: int) -> None:
    toy = ToySearch(7, [4, 5, 6], [NoRepeatNgram(n)])
    for sentence in range(5):
        expected = toy.best(sentence, (tokens for tokens in toy.every(5) if not repeats(tokens, n)))[:9]
        found = toy.beam_search([sentence], 5, 3**5, nbest=9)[0]
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_samples_repeat_nothing(n: int) -> None:
    rows = ToySearch(7, [4, 5, 6], [NoRepeatNgram(n)]).sample(range(20), 12, 20)
    free = ToySearch(7, [4, 5, 6], []).sample(range(20), 12, 20)
    assert not any(repeats(h.tokens, n) for row in rows for h in row)
    assert any(repeats(h.tokens, n) for row in free for h in row)


def test_a_prefix_may_repeat_itself_and_zero_is_no_rule() -> None:
    found = ToySearch(7, [4, 5, 6], [*ToySearch(7, [], []).options(1).constraints, NoRepeatNgram(1)]).beam_search(
        [0, 1], 6, 4
    )
    assert all(not repeats(h.tokens, 1) for row in found for h in row)
    assert not NoRepeatNgram(0).edits


@pytest.mark.parametrize("value", [None, -1, 1.5, "3", True])
def test_wrong_values_are_named(value: object) -> None:
    with pytest.raises(UsageError, match=r"no_repeat_ngram .*expected .* 1 or more, or 0"):
        NoRepeatNgram(value)
