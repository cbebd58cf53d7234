"""A closed list of outputs: against brute force over the list."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from in_memory import line_translator
from small_models import section
from toy_decoder import ToySearch

from nmt_cli.data.tokenizer import Tokenizer, learn_bpe
from nmt_cli.errors import UsageError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection, DecodeSection
from nmt_cli.search.constraint import Constraint
from nmt_cli.search.constraints.no_repeat_ngram import NoRepeatNgram
from nmt_cli.search.constraints.outputs import Outputs
from nmt_cli.search.constraints.prefix import Prefix

WORDS = ["the", "a", "small", "big", "red", "cat", "dog", "house", "sees", "likes", "finds", "under"]


def lines(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return list(dict.fromkeys(" ".join(rng.choices(WORDS, k=rng.randint(1, 7))) for _ in range(2 * count)))[:count]


@cache
def tokenizer(byte_fallback: bool = True) -> Tokenizer:
    return learn_bpe(
        lines(300),
        DataSection(generator="teaching", vocab_size=310 if byte_fallback else 60, byte_fallback=byte_fallback),
    )


@cache
def model() -> Transformer:
    torch.manual_seed(0)
    config = section(encoder_layers=1, decoder_layers=1, max_positions=64)
    return Transformer(config, tokenizer().vocab_size, tokenizer().vocab_size).eval()


ENTRIES = ["the dog", "the dog sees", "the", "a cat", "a", "big house", "red", "the dog likes a cat", "the dog"]


def ids(entries: list[str]) -> list[tuple[int, ...]]:
    return sorted({tuple(tokens) for tokens in tokenizer().encode(entries)})


def toy(*constraints: Constraint, entries: list[str] = ENTRIES) -> ToySearch:
    known = sorted({token for tokens in ids([*entries, "under"]) for token in tokens})
    return ToySearch(tokenizer().vocab_size, known, [*constraints, Outputs(entries, tokenizer())])


@pytest.mark.parametrize("min_length", [0, 1, 4, 99])
@pytest.mark.parametrize("longest", [2, 4, 30])
def test_a_wide_beam_is_brute_force_over_the_list(min_length: int, longest: int) -> None:
    """Entries that do not fit are not reachable. An entry may begin another one. The shortest output gives way."""
    search = toy()
    for sentence in range(6):
        reachable = [tokens for tokens in ids(ENTRIES) if len(tokens) <= longest]
        found = search.beam_search([sentence], longest, 16, min_length=min_length)[0]
        expected = search.best(sentence, iter(reachable))
        if min_length > 1:  # an entry that begins another one may be too short
            expected = [(score, tokens) for score, tokens in expected if tokens in [h.tokens for h in found]]
            assert expected
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)
        assert [h.log_prob for h in found] == pytest.approx(
            [sum(search.log_probs(sentence, h.tokens)) for h in found], abs=1e-4
        )


@pytest.mark.parametrize("min_length", [0, 3, 99])
def test_samples_are_in_the_list(min_length: int) -> None:
    rows = toy().sample(range(20), 30, 10, min_length=min_length)
    assert {tuple(h.tokens) for row in rows for h in row} <= set(ids(ENTRIES))
    assert min_length or {tuple(h.tokens) for row in rows for h in row} == set(ids(ENTRIES))


def test_white_space_that_the_shortest_output_bans_may_follow_where_an_entry_needs_it() -> None:
    search = toy()
    space = {tokens[0] for tokens in ids(ENTRIES)}
    for name in ("beam_search", "sample"):
        rows = getattr(search, name)(range(5), 30, 4, min_length=30, textless=tuple(space))
        assert {tuple(h.tokens) for row in rows for h in row} <= set(ids(ENTRIES))


def test_a_prefix_leads_into_the_list() -> None:
    [prefix] = tokenizer().encode(["the dog"])
    for row in toy(Prefix()).beam_search([0, 1], 30, 4, [prefix, prefix]):
        assert {tokenizer().decode([h.tokens])[0] for h in row} == {"the dog", "the dog sees", "the dog likes a cat"}


def test_nothing_fails_where_no_entry_can_be_reached() -> None:
    """A prefix that no entry has, outputs that are too short, and rules that contradict the list."""
    [prefix] = tokenizer().encode(["under"])
    assert [[h.tokens for h in row] for row in toy(Prefix()).beam_search([0], 30, 4, [prefix])] == [[prefix]]
    assert [[h.tokens for h in row] for row in toy(entries=["the dog sees"]).beam_search([0], 1, 4)] == [[[]]]
    twice = toy(NoRepeatNgram(1), entries=["the the", "a a", "red"])
    assert twice.beam_search([0, 1], 30, 4, nbest=1) == [row[:1] for row in twice.beam_search([0, 1], 30, 4)]
    for row in twice.beam_search([0, 1], 30, 4):
        assert tokenizer().decode([row[0].tokens]) == ["red"]
        assert row[0].score > -1000
    assert all(row for row in twice.sample([0, 1], 30, 4))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"outputs None: expected a list of one or more"),
        ([], r"outputs \[\]: expected a list of one or more"),
        ("the dog", r"outputs 'the dog': expected a list"),
        (["the dog", " "], r"allowed output 2 is ' ': expected text in each of them\. Delete the blank line"),
        (["\u200b"], r"allowed output 1 is '\\u200b': expected text"),
    ],
)
def test_wrong_values_are_named(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Outputs(value, tokenizer())


def test_an_output_that_the_model_cannot_write_is_named() -> None:
    with pytest.raises(UsageError, match=r"allowed output 2, 'Ω', has characters that the vocabulary"):
        Outputs(["the", "Ω"], tokenizer(byte_fallback=False))
    with pytest.raises(
        UsageError, match=r"the allowed output 'dog dog .*' has \d+ tokens: the model can write 63 at most\. Shorten it"
    ):
        line_translator(
            model(), tokenizer(), tokenizer(), DecodeSection(), constraints={"outputs": ["the", "dog " * 100]}
        )
