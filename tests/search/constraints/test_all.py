"""All constraints: neighbours, batches, the engine, n-best lists, prefixes and sampling change nothing but what they should."""

import math
from functools import cache
from typing import Any

import pytest
from engine_switch import without_engine
from few_words import LIST, WORDS, lines, model, tokenizer
from in_memory import line_translator
from small_models import needs_engine

from nmt_cli.data.tokenizer import EOS
from nmt_cli.errors import UsageError
from nmt_cli.recipe import DecodeSection
from nmt_cli.search.beam_search import BeamSearch
from nmt_cli.search.constraints.no_repeat_ngram import NoRepeatNgram
from nmt_cli.search.constraints.repetition_penalty import RepetitionPenalty
from nmt_cli.search.sampling import SamplingSearch
from nmt_cli.search.search import MbrOptions, SamplingOptions
from nmt_cli.search.sentence import Sentence
from nmt_cli.translation.cached_decoder import CachedDecoder
from nmt_cli.translation.confidence import DEFAULT
from nmt_cli.translation.line import Line, Translation

RULES: dict[str, dict[str, Any]] = {
    "no_repeat_ngram": {"no_repeat_ngram": 1},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "banned_words": {"banned_words": [*WORDS[::2], "a", "o", "big cat", "e", "6", "]"]},
    "outputs": {"outputs": LIST},
    "all": {"no_repeat_ngram": 2, "repetition_penalty": 0.8, "banned_words": ["the", "red cat"], "outputs": LIST},
}
SEARCHES = ("beam", "sample")


def translated(some: list[Line], rule: str, search: str, **more: Any) -> list[Translation]:
    decode = DecodeSection(max_extra=6, min_length=2, batch_tokens=100_000)
    translator = line_translator(
        model(), tokenizer(), tokenizer(), decode, nbest=3, search=search, constraints=RULES.get(rule), **more
    )
    return list(translator.translate(some))


@cache
def together(rule: str, search: str) -> list[Translation]:
    return translated(lines(), rule, search)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [1, 8])
def test_neighbours_change_nothing(rule: str, search: str, size: int) -> None:
    """Equal to the last bit alone, in eights, and all 64 together."""
    count = 64 if size > 1 else 16
    batches = [lines()[i : i + size] for i in range(0, count, size)]
    found = [result for batch in batches for result in translated(batch, rule, search)]
    assert found == together(rule, search)[:count]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("rule", RULES)
def test_the_rule_changes_outputs_and_no_prefix(rule: str, search: str) -> None:
    free = translated(lines(), "", search)
    assert sum(a.text != b.text for a, b in zip(free, together(rule, search), strict=True)) > 10
    for line, result in zip(lines(), together(rule, search), strict=True):
        prefix = line.inputs.get("prefix", "")
        assert all(candidate.text.startswith(prefix) for candidate in result.nbest)
        assert all(candidate.log_prob > -1000 for candidate in result.nbest)  # the model's own


@pytest.mark.parametrize("rule", RULES)
def test_sentences_that_come_and_go_do_not_matter(rule: str) -> None:
    """A worker adds batches to a search that runs."""
    decode = DecodeSection(max_extra=6, min_length=2, batch_tokens=60)
    translator = line_translator(model(), tokenizer(), tokenizer(), decode, nbest=3, constraints=RULES[rule], workers=2)
    assert list(translator.translate(lines())) == together(rule, "beam")


EVERY: dict[str, dict[str, Any]] = {
    "beam": {"calibration": DEFAULT},
    "samples": {"search": "sample", "sampling": SamplingOptions(temperature=0.9), "calibration": DEFAULT},
    "samples with cuts": {"search": "sample", "sampling": SamplingOptions(top_k=30, top_p=0.9, min_p=0.01)},
    "diverse": {"search": "diverse", "nbest": 4},
    "mbr of samples": {"search": "mbr", "sampling": SamplingOptions(top_p=0.5), "mbr": MbrOptions(utility="bleu")},
    "mbr of a beam": {"search": "mbr", "mbr": MbrOptions(candidates="beam")},
}


@needs_engine
@pytest.mark.parametrize("search", EVERY)
@pytest.mark.parametrize("rule", ["", *RULES, "terms"])
def test_searches_over_numpy_and_torch_give_the_same(rule: str, search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the engine the arrays are NumPy's, over a decoder of torch they are torch's."""
    more = {**EVERY[search], "constraints": RULES.get(rule)}
    decode = DecodeSection(max_extra=6, min_length=2, **more.pop("decode", {}))
    given: list[Line] = lines()[:24]
    if rule == "terms":
        if "sample" in search:
            pytest.skip("samples follow no terms")
        given = [Line(line.text, terms=["big dog|cat", "hous*"]) for line in given]
    ours = list(line_translator(model(), tokenizer(), tokenizer(), decode, **more).translate(given))
    without_engine(monkeypatch)
    theirs = list(line_translator(model(), tokenizer(), tokenizer(), decode, **more).translate(given))
    for one, other in zip(ours, theirs, strict=True):
        assert [c.text for c in one.nbest] == [c.text for c in other.nbest]
        for a, b in zip(one.nbest, other.nbest, strict=True):
            assert (a.score, a.log_prob) == pytest.approx((b.score, b.log_prob), abs=1e-3)
            assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=1e-3)


WRONG: list[tuple[str, Any, str]] = [
    *(("no_repeat_ngram", value, "no_repeat_ngram .* 1 or more, or 0") for value in (None, -1, 1.5, "3", True)),
    *(("repetition_penalty", value, "above 0") for value in (None, 0, -1.0, "2", True, math.inf, math.nan)),
    *((name, value, f"{name} .*: expected a list") for name in ("banned_words", "outputs") for value in (None, "dog")),
    *(("banned_words", ["dog", *blank], f"banned word 2 is {blank}") for blank in ([""], [" "])),
    ("banned_words", ["\u200b"], r"banned word 1 is '\\u200b'"),
    ("banned_words", ["Ωmega"], "banned word 1, 'Ωmega'"),
    ("outputs", [], "outputs .*: expected a list of one or more"),
    ("outputs", ["the dog", " "], "allowed output 2 is ' '"),
    ("outputs", ["\u200b"], r"allowed output 1 is '\\u200b'"),
    ("outputs", ["the", "Ω"], "allowed output 2, 'Ω'"),
    ("outputs", ["the", "dog " * 100], "'dog dog .*' has .* tokens: .* 63 at most"),
]


@pytest.mark.parametrize(("rule", "value", "message"), WRONG)
def test_wrong_values_are_named(rule: str, value: Any, message: str) -> None:
    """By a vocabulary without bytes, which cannot write all characters."""
    with pytest.raises(UsageError, match=message):
        line_translator(model(), tokenizer(60), tokenizer(60), DecodeSection(), constraints={rule: value})


def test_there_are_values_that_are_no_rule() -> None:
    assert not NoRepeatNgram(0).edits
    assert not RepetitionPenalty(1.0).edits


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [BeamSearch, SamplingSearch])
def test_a_finished_sentence_may_stay_while_others_that_came_later_go_on(rule: str, kind: Any) -> None:
    """It leaves with others, and its steps are counted on, beyond its longest output."""
    chosen = line_translator(model(), tokenizer(), tokenizer(), DecodeSection(), constraints=RULES[rule]).search
    texts = tokenizer().encode([line.text for line in lines()[:8]])
    decoder = CachedDecoder(model(), [[*texts[0], EOS]], chosen.beam)
    search = kind(decoder, chosen)
    search.add([0], [Sentence(texts[0], 3)])
    found = dict(search.step() + search.step() + search.step())
    decoder.add([[*text, EOS] for text in texts[1:]])
    search.add(range(1, 8), [Sentence(text, 3) for text in texts[1:]])
    while search.busy:
        found.update(search.step())
    assert sorted(found) == list(range(8))
    assert all(hypotheses for hypotheses in found.values())
