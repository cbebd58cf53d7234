"""A closed list of outputs: against brute force over the list."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from both_arrays import over_both_arrays
from in_memory import line_translator
from run_search import beam_search, plain_sentences
from small_models import section
from toy_decoder import ToyDecoder, ToySearch

from nmt_cli.data.tokenizer import Tokenizer, learn_bpe
from nmt_cli.errors import UsageError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection, DecodeSection
from nmt_cli.search.arrays import Arrays
from nmt_cli.search.constraint import Constraint, Step
from nmt_cli.search.constraints.no_repeat_ngram import NoRepeatNgram
from nmt_cli.search.constraints.outputs import Outputs
from nmt_cli.search.constraints.prefix import Prefix
from nmt_cli.search.search import SearchOptions
from nmt_cli.search.sentence import Sentence
from nmt_cli.translation.cached_decoder import CachedDecoder

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


@pytest.mark.slow
def test_of_five_thousand_outputs_the_best_is_that_of_forced_scoring() -> None:
    entries, sources = lines(5000, seed=3), [[*tokens, 3] for tokens in tokenizer().encode(lines(1, seed=9))]
    rule = Outputs(entries, tokenizer())
    options = SearchOptions(beam=400, alpha=0.6, bos=2, eos=3, banned_tokens=(0, 1, 2), nbest=20, constraints=(rule,))
    found = beam_search(CachedDecoder(model(), sources, 400), [60] * 1, options)
    for source, row in zip(sources, found, strict=True):
        scored = sorted(
            ((forced_score(source, tokens, options), tokens) for tokens in map(list, ids(entries))),
            reverse=True,
            key=lambda pair: pair[0],
        )[:20]
        assert [h.score for h in row] == pytest.approx([score for score, _ in scored], abs=1e-3)
        assert [h.tokens for h in row][:5] == [tokens for _, tokens in scored][:5]


@torch.inference_mode()
def forced_score(source: list[int], tokens: list[int], options: SearchOptions) -> float:
    logits = model().logits(model()(torch.tensor([source]), None, torch.tensor([[2, *tokens]])))
    log_prob = float(logits.log_softmax(-1)[0].gather(1, torch.tensor([*tokens, 3])[:, None]).sum())
    return options.score(log_prob, len(tokens) + 1)


@over_both_arrays
def test_no_open_hypothesis_is_no_error(arrays: Arrays) -> None:
    rule = Outputs(ENTRIES, tokenizer())
    shapes = (0,), (1, 2, 3), (1,), (1,)
    step = Step(*(arrays.zeros(shape, arrays.int64) for shape in shapes))
    state = rule.start([Sentence([4], 3)], 2, arrays)
    rule.edit(state, step, arrays.zeros((0, tokenizer().vocab_size), arrays.float32))


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


def test_sentences_of_other_longest_outputs_do_not_matter() -> None:
    search = toy()
    plain = plain_sentences([2, 30])
    assert [sentence.max_length for sentence in plain] == [2, 30]
    both = beam_search(*_batch(search, [0, 1], [2, 30]))
    assert both == [beam_search(*_batch(search, [0], [2]))[0], beam_search(*_batch(search, [1], [30]))[0]]


def _batch(search: ToySearch, sentences: list[int], longest: list[int]) -> tuple[ToyDecoder, list[int], SearchOptions]:
    return ToyDecoder(sentences, 4, search.size, search.known), longest, search.options(4)
