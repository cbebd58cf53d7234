"""A closed list of outputs: against brute force over the list."""

import pytest
from few_words import tokenizer
from toy_decoder import ToySearch

from nmt_cli.search.constraint import Constraint
from nmt_cli.search.constraints.no_repeat_ngram import NoRepeatNgram
from nmt_cli.search.constraints.outputs import Outputs
from nmt_cli.search.constraints.prefix import Prefix

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
