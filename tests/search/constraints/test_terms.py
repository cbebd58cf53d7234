"""Lexical constraints: the automaton against regular expressions, dynamic beam allocation against its definition, and terms in real searches."""

import random
import re
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from both_arrays import TORCH, over_both_arrays
from few_words import LIST, WORDS, lines, model, tokenizer
from in_memory import line_translator

from nmt_cli.data.tokenizer import EOS
from nmt_cli.recipe import DecodeSection
from nmt_cli.search.allocation import choose
from nmt_cli.search.arrays import NUMPY, Arrays
from nmt_cli.search.constraint import Step
from nmt_cli.search.constraints.terms import Terms, alternatives
from nmt_cli.search.sentence import Sentence
from nmt_cli.translation.line import Line, Translation

TERMS = ["cat", "the dog", "big|small red", "with", "under the house", "hous*", "zebra", "e", "red red", "dog|cat"]
"""Words of the vocabulary and others, phrases, alternatives, an open end."""


def occurrences(term: str, text: str) -> int:
    """How often a term occurs as whole words; the next occurrence may overlap the one before, but not begin with it."""
    end = {True: r"(?!\w)", False: ""}
    return sum(
        len(re.findall(rf"(?<!\S)(?={re.escape(part)}{end[whole]})", text)) for part, whole in alternatives(term)
    )


def met(wanted: list[str], text: str) -> bool:
    return all(occurrences(term, text) >= count for term, count in Counter(wanted).items())


def after(terms: list[str], ids: list[int]) -> tuple[int, list[int]]:
    """What is missing after these tokens, and the progress after each of them."""
    rule = Terms(None, tokenizer())
    [encoded] = rule.encode([terms], tokenizer(), 100)
    state = rule.start([Sentence([], 100, {"terms": encoded} if encoded else {})], 1, NUMPY)
    progress = []
    for token in ids:
        now = np.array([[token]])
        progress.append(rule.progress(state, now * 0, now).item())
        state = rule.advance(state, now)
    return rule.missing(state).item(), progress


def test_the_automaton_finds_what_a_regular_expression_finds() -> None:
    rng, counts = random.Random(1), [0, 0]
    for _ in range(400):
        text = " ".join(rng.choices([*WORDS, "zebra"], k=rng.randint(0, 9)))
        wanted = rng.choices(TERMS, k=rng.randint(1, 4))
        ids = tokenizer().encode([text])[0]
        missing, progress = after(wanted, ids)
        assert (missing == 0) == met(wanted, text), (wanted, text)
        counts[missing == 0] += 1
        if missing == 0 and not any(sign in term for term in wanted for sign in "|*"):
            assert progress[-1] == sum(len(ids) for ids in tokenizer().encode(wanted))
    assert min(counts) > 15


def test_alternatives_and_words_that_go_on() -> None:
    assert after(["house"], tokenizer().encode(["house"])[0])[0] == 0
    longer = [*tokenizer().encode(["house"])[0], tokenizer().encode(["xs"])[0][-1]]
    assert tokenizer().decode([longer]) == ["houses"]
    assert after(["house"], longer)[0] > 0
    assert after(["house*"], longer)[0] == 0
    assert after(["house"], [*tokenizer().encode(["house"])[0], *tokenizer().encode(["."])[0][-1:]])[0] == 0
    assert alternatives("Hund|Hunde | Hunden*") == [("Hund", True), ("Hunde", True), ("Hunden", False)]
    assert alternatives(r"a\|b|c") == [("a|b", True), ("c", True)]
    assert alternatives(" | ") == []
    assert alternatives("*") == []
    assert after(["猫"], tokenizer().encode(["猫"])[0])[0] == 0  # in bytes


def test_where_the_model_would_end_a_term_must_follow() -> None:
    rule = Terms(None, tokenizer())
    [encoded] = rule.encode([["cat"]], tokenizer(), 100)
    state = rule.start([Sentence([], 9, {"terms": encoded})], 1, TORCH)
    log_probs = torch.zeros(1, tokenizer().vocab_size)
    log_probs[:, EOS] = 3
    zeros = torch.zeros(1, 1, 9, dtype=torch.long)
    rule.edit(state, Step(torch.arange(1), zeros, zeros[0, 0, :1], torch.tensor([9])), log_probs)
    assert log_probs[0].isfinite().nonzero().flatten().tolist() == [tokenizer().encode(["cat"])[0][0]]


def chosen(log_probs: list[float], progress: list[int], width: int) -> set[int]:
    """Round by round, each bank gives its next best candidate; banks with more progress first."""
    banks: dict[int, list[int]] = {}
    for index in sorted(range(len(log_probs)), key=lambda i: -log_probs[i]):
        if log_probs[index] > -torch.inf:
            banks.setdefault(progress[index], []).append(index)
    kept: list[int] = []
    while any(banks.values()):
        kept += [bank.pop(0) for _, bank in sorted(banks.items(), reverse=True) if bank]
    return set(kept[:width])


@over_both_arrays
def test_dynamic_beam_allocation_is_its_definition(arrays: Arrays) -> None:
    rng = random.Random(2)
    for _ in range(200):
        count, width = rng.randint(1, 20), rng.randint(1, 8)
        log_probs = [[rng.choice([-torch.inf, rng.randint(-9, 0)]) for _ in range(count)] for _ in range(3)]
        progress = [[rng.randint(0, 4) for _ in range(count)] for _ in range(3)]
        kept = choose(arrays.array(log_probs, arrays.float32), arrays.array(progress, arrays.int64), width)
        assert [{index for index, one in enumerate(row) if one} for row in kept.tolist()] == [
            chosen(a, b, width) for a, b in zip(log_probs, progress, strict=True)
        ]


def test_more_terms_than_there_is_room_for() -> None:
    [result] = constrained([Line("the cat", terms=LIST[:40])], beam=2, nbest=2)
    assert result.text


@cache
def requests() -> list[Line]:
    """Lines with no, one, or several terms; some with prefixes."""
    rng, found = random.Random(3), []
    for line in lines():
        inputs: dict[str, Any] = line.inputs
        if count := rng.choice([0, 1, 1, 2, 4]):
            inputs["terms"] = rng.sample(TERMS, count)
        found.append(Line(line.text, **inputs))
    return found


RULE: dict[str, Any] = {"terms": None}


def constrained(
    some: list[Line], nbest: int = 3, constraints: dict[str, Any] | None = RULE, workers: int = 1, **decode: Any
) -> list[Translation]:
    section = DecodeSection(**{"max_extra": 16, "min_length": 2, "batch_tokens": 100_000, **decode})
    more: dict[str, Any] = {"nbest": nbest, "constraints": constraints, "workers": workers}
    return list(line_translator(model(), tokenizer(), tokenizer(), section, **more).translate(some))


@cache
def together() -> list[Translation]:
    return constrained(requests())


def check(results: list[Translation]) -> None:
    for request, result in zip(requests(), results, strict=True):
        for candidate in result.nbest:
            assert met(request.inputs.get("terms", []), candidate.text), (request, candidate)


@pytest.mark.parametrize("beam", [1, 2, 4, 12])
def test_all_terms_are_there(beam: int) -> None:
    """Of a model with random weights, which wants none of them."""
    results = constrained(requests(), min(beam, 3), beam=beam)
    assert beam == 1 or any(len(result.nbest) > 1 for result in results)
    check(results)


def test_a_worker_with_other_sentences_and_lines_without_terms() -> None:
    assert constrained(requests(), workers=2, batch_tokens=60) == together()
    free = [Line(one.text, prefix=one.inputs.get("prefix", "")) for one in requests()]
    assert constrained(free) == constrained(free, constraints=None)


def test_terms_with_other_rules_at_once() -> None:
    some = [Line(line.text, terms=["cat", "dog"]) for line in lines()]
    rules = {"terms": None, "banned_words": ["zzz"]}
    results = constrained(some, constraints=rules, no_repeat_ngram=4, repetition_penalty=1.2)
    assert all(met(["cat", "dog"], result.text) for result in results)
    assert all(result.log_prob > -1000 for result in results)


def test_diverse_beam_search_has_all_terms() -> None:
    check(constrained(requests(), 4, search="diverse", diverse_groups=2))
