"""Lines to translations: order, blanks, long lines, windows, and that nothing but the line matters."""

import copy
import random
import sys
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from few_words import WORDS, model, sentence, tokenizer
from held_search import held_until
from in_memory import line_translator
from reference_decoder import ReferenceDecoder
from run_search import beam_search
from small_models import needs_engine
from waiting import LIMIT, wait_until

from nmt_cli.data.normalization import META_SPACE
from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DecodeSection
from nmt_cli.registry import SEARCHES
from nmt_cli.search.ensemble import EnsembleDecoder
from nmt_cli.search.protocols import Decoder
from nmt_cli.search.running import RunningSearch
from nmt_cli.search.search import SamplingOptions, SearchOptions
from nmt_cli.translation import pool
from nmt_cli.translation import translator as module
from nmt_cli.translation.alignment import aligned
from nmt_cli.translation.line import Line, Translation
from nmt_cli.translation.torch_forced import TorchForced
from nmt_cli.translation.translator import LineTranslator
from nmt_cli.translation.windows import WindowSize


def translator(
    nbest: int = 1, longest: int = 0, max_positions: int = 64, more: dict[str, Any] | None = None, **decode: object
) -> LineTranslator:
    """`more`: what else the LineTranslator takes."""
    options = DecodeSection.model_validate({"max_extra": 3, **decode})
    return line_translator(
        model(max_positions), tokenizer(), tokenizer(), options, nbest=nbest, longest=longest, **(more or {})
    )


def two_sentences() -> list[str]:
    rng = random.Random(3)
    return [sentence(rng, 10).rstrip(".!") + ".", sentence(rng, 11).rstrip(".!") + "!"]


@cache
def lines() -> list[str]:
    rng = random.Random(7)
    return [sentence(rng, rng.choice([0, 1, 2, 3, 5, 8, 13, 21])) if i % 9 else " \t" * (i % 2) for i in range(100)]


@cache
def expected() -> list[Translation]:
    return list(translator().translate(lines()))


@pytest.mark.parametrize("batch_tokens", [1, 64, 100_000])
def test_batches_neighbours_and_windows_change_nothing(batch_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    some = translator(batch_tokens=batch_tokens)
    order = random.Random(1).sample(range(100), 100)
    shuffled = list(some.translate([lines()[i] for i in order]))
    assert [shuffled[order.index(i)] for i in range(100)] == expected()
    assert list(some.translate([lines()[17]])) == [expected()[17]]
    monkeypatch.setattr(module, "WINDOW", WindowSize(3, 11))
    assert max(len(window) for window in some.windows(iter(lines()))) == 11
    assert list(some.translate(iter(lines()))) == expected()


class NoSearch:
    """A search that nothing may reach."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        raise AssertionError("the model was asked")


def test_empty_and_blank_lines_do_not_reach_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SEARCHES, "none", f"{__name__}:NoSearch")
    some = translator(more={"search": "none"})
    with pytest.raises(AssertionError, match="the model was asked"):
        list(some.translate(["the cat"]))
    blank = ["", " ", "\t", "\u3000", "\r", "\x85", "\u2028", "\v\f", "\u200b"]
    results = list(some.translate(blank))
    assert list(some.translate([])) == list(some.translate(iter([]))) == []
    assert [result.text for result in results] == [""] * len(blank)
    assert all(result.score == 0.0 and result.length == 0 for result in results)


BLANK = [META_SPACE, "<0x20>", "<0x09>", "<0xC2>", "<0xA0>"]
"""Pieces of white space; the last two together are a no-break space."""


@pytest.fixture
def reluctant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model ends at once if it may, and else writes white space if it may."""
    plain = model

    def reluctant(*given: int, **more: int) -> Transformer:
        some = copy.deepcopy(plain(*given, **more))
        weights = some.state_dict()
        table, norm = weights["embeddings.shared"], "decoder.1.around_feed_forward.norm"
        weights[f"{norm}.weight"][0], weights[f"{norm}.bias"][0] = 0.0, 1.0  # the first number of each output state
        table[:, 0] = 0.0
        table[[numbers()[piece] for piece in BLANK], 0] = 40.0
        table[EOS, 0] = 80.0
        return some

    monkeypatch.setattr(sys.modules[__name__], "model", reluctant)


WAYS: dict[str, dict[str, Any]] = {
    "beam": {"nbest": 4},
    "greedy": {"beam": 1},
    "samples": {"nbest": 3, "beam": 3, "more": {"search": "sample", "sampling": SamplingOptions(seed=2)}},
    "in parts": {"longest": 4, "nbest": 2},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("reluctant")
def test_no_candidate_of_a_line_is_blank(way: str) -> None:
    options = WAYS[way]
    free = list(translator(**{**options, "min_length": 0}).translate(lines()))
    assert all(result.text == "" for result in free)
    for line, result in zip(lines(), translator(**options).translate(lines()), strict=True):
        assert all(bool(candidate.text.strip()) == bool(line.strip()) for candidate in result.nbest)


@pytest.mark.usefixtures("reluctant")
def test_each_part_of_a_line_has_its_own_shortest_output() -> None:
    texts = two_sentences()
    [whole], apart = (
        list(translator(longest=14, min_length=2).translate(given)) for given in ([" ".join(texts)], texts)
    )
    assert whole.text == " ".join(result.text for result in apart)
    assert sum(token not in tokenizer().textless for token in ids_of(whole.tokens)) == 4


@pytest.mark.usefixtures("reluctant")
def test_the_shortest_output_gives_way_and_counts_a_prefix() -> None:
    for line, result in zip(lines(), translator(min_length=10**6).translate(lines()), strict=True):
        [ids] = tokenizer().encode([line])
        assert result.length == (len(ids) + 3 + 1 if ids else 0)
    [result] = translator().translate([Line("the cat", prefix="a dog")])
    assert result.text == "a dog"


def test_nbest_is_ranked_and_its_best_is_the_best() -> None:
    for result, best in zip(translator(nbest=4).translate(lines()), expected(), strict=True):
        scores = [candidate.score for candidate in result.nbest]
        assert len(scores) == (4 if result.source.strip() else 1)
        assert scores == sorted(scores, reverse=True)
        assert replace(result, nbest=result.nbest[:1]) == best


def test_a_long_line_is_translated_in_parts() -> None:
    first, second = two_sentences()
    some = translator(nbest=2, longest=14, more={"align": True})
    [whole], (begun, rest) = some.translate([f"{first} {second}"]), some.translate([first, second])
    both = zip(begun.nbest, rest.nbest, strict=True)
    assert [one.text for one in whole.nbest] == [f"{one.text} {other.text}" for one, other in both]
    assert (whole.tokens, whole.text) == (begun.tokens + rest.tokens, whole.nbest[0].text)
    assert whole.log_prob == pytest.approx(begun.log_prob + rest.log_prob)
    assert whole.length == begun.length + rest.length
    assert whole.score == pytest.approx(whole.log_prob / ((5 + whole.length) / 6) ** 0.6)
    assert whole.source_tokens == begun.source_tokens + rest.source_tokens
    sources, targets = len(begun.source_tokens), len(begun.tokens)
    assert begun.alignment
    assert rest.alignment
    assert whole.alignment == (*begun.alignment, *((i + sources, j + targets) for i, j in rest.alignment))
    [whole] = some.translate([Line(f"{first} {second}", prefix="a dog and")])
    begun, rest = some.translate([Line(first, prefix="a dog and"), second])
    assert begun.text.startswith("a dog and")
    assert whole.text == f"{begun.text} {rest.text}"
    long, short = translator(max_positions=30).translate([" ".join(WORDS * 12), "the cat"])
    assert long.length > 30
    assert [short] == list(translator(max_positions=30).translate(["the cat"]))


@cache
def numbers() -> dict[str, int]:
    """Ids by subword."""
    return {piece: number for number, piece in enumerate(tokenizer().table)}


def ids_of(pieces: tuple[str, ...]) -> list[int]:
    return [numbers()[piece] for piece in pieces]


def test_pieces_are_the_subwords_of_the_text_and_no_more_than_the_input_allows() -> None:
    for line, result in zip(lines(), translator(nbest=2).translate(lines()), strict=True):
        assert ids_of(result.source_tokens) == tokenizer().encode([line])[0]
        for candidate in result.nbest:
            assert tokenizer().decode([ids_of(candidate.tokens)]) == [candidate.text]
        assert result.length == (len(result.tokens) + 1 if line.strip() else 0)
        assert result.length <= len(result.source_tokens) + 3 + 1


@pytest.fixture
def few_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers share what one worker would translate alone."""
    monkeypatch.setattr(pool, "FEW_SENTENCES", 2)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("search", [{}, {"search": "sample", "sampling": SamplingOptions(top_p=0.9)}])
@pytest.mark.usefixtures("few_alone")
def test_more_workers_change_nothing(workers: int, search: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several windows under way at once, with fewer and more lines than workers; and once more."""
    monkeypatch.setattr(module, "WINDOW", WindowSize(2, 16))
    given: dict[str, Any] = {**search, "align": True}
    one = list(translator(nbest=2, more=given).translate(lines()))
    several = translator(nbest=2, more={**given, "workers": workers})
    assert list(several.translate(iter(lines()))) == list(several.translate(lines())) == one


@needs_engine  # without it they are processes
@pytest.mark.usefixtures("few_alone")
def test_workers_work_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither goes beyond its first step before the other one has come there."""
    both, step, begun, same = threading.Barrier(2), RunningSearch.step, set[int](), expected()

    def met(self: RunningSearch[Any]) -> Any:
        if threading.get_ident() not in begun:
            begun.add(threading.get_ident())
            both.wait(LIMIT)
        return step(self)

    monkeypatch.setattr(RunningSearch, "step", met)
    assert list(translator(more={"workers": 2}).translate(lines())) == same


@needs_engine  # it has the pool
@pytest.mark.usefixtures("few_alone")
def test_workers_stop_in_a_batch_when_nobody_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python joins threads when it leaves: a batch without end would keep it."""
    gate = held_until(monkeypatch, tmp_path)
    monkeypatch.setattr(module, "WINDOW", WindowSize(20, 20))
    some = translator(batch_tokens=200, more={"workers": 2})
    results = some.translate([""] * 20 + [line for line in lines() if line])
    assert next(results).text == ""  # the second window is searched when the first has been answered
    gate.begun()
    results.close()
    wait_until(lambda: some.models.pool.running == 0)


def ensemble(*models: Transformer, **more: Any) -> LineTranslator:
    return line_translator(models, tokenizer(), tokenizer(), DecodeSection(max_extra=3), **more)


def test_two_models_are_searched_by_their_mean_probability() -> None:
    models = [model(), model(seed=1)]
    given = [line for line in lines() if line.strip()][:20]
    sources = [[*ids, EOS] for ids in tokenizer().encode(given)]
    plain = EnsembleDecoder([ReferenceDecoder(one, sources, 4) for one in models])
    limits = [len(source) + 2 for source in sources]
    options = SearchOptions(beam=4, alpha=0.6, bos=BOS, eos=EOS, banned_tokens=(PAD, UNK, BOS), min_length=1)
    best = beam_search(plain, limits, replace(options, textless=tokenizer().textless))
    found = list(ensemble(*models).translate(given))
    assert [ids_of(result.tokens) for result in found] == [row[0].tokens for row in best]
    assert [result.score for result in found] == pytest.approx([row[0].score for row in best], abs=1e-4)
    assert [result.text for result in found] != [result.text for result in ensemble(models[1]).translate(given)]
    assert ensemble(model(), model(30)).longest == 29


@pytest.mark.usefixtures("few_alone")
def test_neighbours_and_workers_change_nothing_in_an_ensemble() -> None:
    models = [model(), model(seed=1)]
    several = list(ensemble(*models, workers=2).translate(lines()))
    assert [result for line in lines()[:10] for result in ensemble(*models).translate([line])] == several[:10]


def test_a_translation_begins_with_its_prefix() -> None:
    given = [Line(line, prefix="the red cat" if number % 2 else " ") for number, line in enumerate(lines())]
    found = list(translator(nbest=2).translate(given))
    assert [result.source for result in found] == lines()
    for number, (line, result) in enumerate(zip(lines(), found, strict=True)):
        if not line.strip():
            assert result.text == ""
        elif number % 2:
            assert all(candidate.text.startswith("the red cat") for candidate in result.nbest)
        else:
            assert result.nbest[0] == expected()[number].nbest[0]  # an empty prefix is none


def test_the_longest_output_grows_by_its_prefix_up_to_the_models_length() -> None:
    [result] = translator(max_extra=1).translate([Line("the cat", prefix=" ".join(WORDS))])
    assert result.text.startswith(" ".join(WORDS))
    [result] = translator(max_positions=30).translate([Line("the cat", prefix=" ".join(WORDS * 9))])
    assert " ".join(WORDS * 9).startswith(result.text)
    assert result.length == 30


def test_alignments_follow_the_attention() -> None:
    for line, result in zip(lines(), translator(more={"align": True}).translate(lines()), strict=True):
        source, output = tokenizer().encode([line])[0], ids_of(result.tokens)
        places = aligned(TorchForced(model()), [*source, EOS], output)
        assert result.alignment == tuple((place, token) for token, place in enumerate(places) if place < len(source))
        assert result.nbest == next(iter(translator().translate([line]))).nbest
    blank, other = translator(more={"align": True}).translate([" ", "the cat"])
    assert blank.alignment == ()
    assert other.alignment
    assert {result.alignment for result in expected()} == {None}
