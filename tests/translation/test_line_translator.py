"""Lines to translations: order, blanks, long lines, windows, and that nothing but the line matters."""

from __future__ import annotations

import copy
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from few_words import WORDS, model, sentence, tokenizer
from held_search import held_until
from in_memory import line_translator
from numpy.typing import NDArray
from reference_decoder import ReferenceDecoder
from run_search import beam_search
from small_models import needs_engine
from waiting import LIMIT, wait_until

from nmt_cli.data.normalization import META_SPACE
from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.errors import UsageError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DecodeSection
from nmt_cli.registry import SEARCHES
from nmt_cli.search.ensemble import EnsembleDecoder
from nmt_cli.search.length_penalties import gnmt
from nmt_cli.search.protocols import Decoder
from nmt_cli.search.running import RunningSearch
from nmt_cli.search.search import SamplingOptions, SearchOptions
from nmt_cli.search.sentence import Hypothesis
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
def test_batches_change_nothing(batch_tokens: int) -> None:
    assert list(translator(batch_tokens=batch_tokens).translate(lines())) == expected()


def test_neighbours_change_nothing() -> None:
    order = random.Random(1).sample(range(100), 100)
    shuffled = list(translator().translate([lines()[i] for i in order]))
    assert [shuffled[order.index(i)] for i in range(100)] == expected()
    assert list(translator().translate([lines()[17]])) == [expected()[17]]


def test_windows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", WindowSize(3, 11))
    sizes = [len(window) for window in translator().windows(iter(lines()))]
    assert max(sizes) <= 11
    assert len(sizes) > 9
    assert list(translator().translate(iter(lines()))) == expected()


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
    "workers": {"nbest": 2, "more": {"workers": 2}},
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
def test_no_candidate_of_an_ensemble_is_blank() -> None:
    assert [bool(result.text) for result in ensemble(model(), model(seed=1)).translate(lines())] == [
        bool(line.strip()) for line in lines()
    ]


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


def test_no_character_and_no_output_ends_a_line() -> None:
    odd = [f"the cat{c}the dog" for c in ("\u2028", "\u2029", "\x85", "\r", "\v", "\f", "\x1c", "\x00", "\ufffd", "🐈")]
    results = list(translator().translate(odd))
    assert len(results) == len(odd)
    assert not any("\n" in result.text for result in results)


def test_nbest_is_ranked_and_its_best_is_the_best() -> None:
    for result, best in zip(translator(nbest=4).translate(lines()), expected(), strict=True):
        scores = [candidate.score for candidate in result.nbest]
        assert len(scores) == (4 if result.source.strip() else 1)
        assert scores == sorted(scores, reverse=True)
        assert replace(result, nbest=result.nbest[:1]) == best


def test_a_long_line_is_translated_in_parts() -> None:
    first, second = two_sentences()
    whole, alone = (list(translator(longest=14).translate(t)) for t in ([f"{first} {second}"], [first, second]))
    assert whole[0].text == f"{alone[0].text} {alone[1].text}"
    assert whole[0].log_prob == pytest.approx(sum(r.log_prob for r in alone))
    assert whole[0].length == sum(r.length for r in alone)
    assert whole[0].score == pytest.approx(whole[0].log_prob / ((5 + whole[0].length) / 6) ** 0.6)
    long = " ".join(WORDS * 12)
    results = list(translator(max_positions=30).translate([long, "the cat"]))
    assert results[0].length > 30
    assert results[1] == next(iter(translator(max_positions=30).translate(["the cat"])))
    first, second = two_sentences()
    [one] = translator(longest=14).translate([Line(f"{first} {second}", prefix="a dog and")])
    begun, rest = translator(longest=14).translate([Line(first, prefix="a dog and"), second])
    assert begun.text.startswith("a dog and")
    assert one.text == f"{begun.text} {rest.text}"


def test_output_begins_before_input_ends() -> None:
    go_on = threading.Event()

    def slow() -> Iterator[str]:
        yield "the cat"
        assert go_on.wait(LIMIT)
        yield "the dog"

    results = translator().translate(slow())
    assert next(results).source == "the cat"
    go_on.set()
    assert [result.source for result in results] == ["the dog"]


def test_an_error_of_the_input_comes_after_what_was_read() -> None:
    def broken() -> Iterator[str]:
        yield "the cat"
        raise ValueError("cut")

    results = translator().translate(broken())
    assert next(results).source == "the cat"
    with pytest.raises(ValueError, match="cut"):
        next(results)


def test_bf16_runs_and_leaves_the_model_in_fp32() -> None:
    some = line_translator(model(), tokenizer(), tokenizer(), DecodeSection(max_extra=3), precision="bf16")
    assert len(list(some.translate(["the cat", "the dog"]))) == 2
    assert model().output_weight.dtype == torch.float32


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
    encode = tokenizer().encode
    for line, result in zip(lines(), expected(), strict=True):
        [ids] = encode([line])
        assert result.length <= len(ids) + 3 + 1


@pytest.fixture
def few_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several workers share what one worker would translate alone."""
    monkeypatch.setattr(pool, "FEW_SENTENCES", 2)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.usefixtures("few_alone")
def test_the_number_of_workers_changes_nothing(workers: int) -> None:
    several = translator(more={"workers": workers})
    assert list(several.translate(lines())) == expected()
    assert list(several.translate(lines())) == expected()  # again


@pytest.mark.parametrize("search", [{}, {"search": "sample", "sampling": SamplingOptions(top_p=0.9)}])
@pytest.mark.usefixtures("few_alone")
def test_several_workers_stream(search: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several windows under way at once, with fewer and more lines than workers."""
    monkeypatch.setattr(module, "WINDOW", WindowSize(2, 16))
    given: dict[str, Any] = {**search, "align": True}
    one = list(translator(nbest=2, more=given).translate(lines()))
    assert list(translator(nbest=2, more={**given, "workers": 3}).translate(iter(lines()))) == one


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


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.usefixtures("few_alone")
def test_an_error_in_a_worker_is_raised(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("cut")

    monkeypatch.setattr(RunningSearch, "step", broken)
    with pytest.raises(ValueError, match="cut"):
        list(translator(more={"workers": workers}, batch_tokens=200).translate(lines()))
    with pytest.raises(ValueError, match="cut"):
        list(translator(more={"workers": workers}).translate(lines()[:1] + lines()[2:3]))


@needs_engine  # it has the pool
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("few_alone")
def test_workers_stop_in_a_batch_when_nobody_waits(
    workers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python joins threads when it leaves: a batch without end would keep it."""
    gate = held_until(monkeypatch, tmp_path)
    monkeypatch.setattr(module, "WINDOW", WindowSize(20, 20))
    given = [""] * 20 + [
        line for line in lines() if line
    ]  # the second window is searched when the first has been answered
    some = translator(batch_tokens=200, more={"workers": workers})
    results = some.translate(given)
    assert next(results).text == ""
    gate.begun()
    results.close()
    wait_until(lambda: some.models.pool.running == 0)


def ensemble(*models: Transformer, **more: Any) -> LineTranslator:
    return line_translator(models, tokenizer(), tokenizer(), DecodeSection(max_extra=3), **more)


def test_an_ensemble_of_one_model_and_of_models_of_other_lengths() -> None:
    for one, twice in zip(expected(), ensemble(model(), model()).translate(lines()), strict=True):
        assert twice.text == one.text
        assert twice.score == pytest.approx(one.score, abs=1e-5)
    assert ensemble(model(), model(30)).longest == 29


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


def test_prefixes_mix_with_plain_lines_and_neighbours_with_prefixes_change_nothing() -> None:
    mixed = [line if number % 3 else Line(line, prefix="") for number, line in enumerate(lines())]
    assert list(translator().translate(mixed)) == expected()
    given = [Line(line, prefix=" ".join(WORDS[: number % 5])) for number, line in enumerate(lines()[:30])]
    together = list(translator().translate(given))
    assert [result for line in given for result in translator().translate([line])] == together


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


def test_alignments_of_a_line_in_parts_count_over_all_parts() -> None:
    texts = two_sentences()
    some = translator(longest=14, more={"align": True})
    [whole], (first, second) = some.translate([" ".join(texts)]), some.translate(texts)
    sources, targets = len(first.source_tokens), len(first.tokens)
    assert first.alignment is not None
    assert second.alignment is not None
    assert whole.alignment == (*first.alignment, *((i + sources, j + targets) for i, j in second.alignment))
    assert whole.source_tokens == first.source_tokens + second.source_tokens


class GreedySearch:
    """A search from outside the package: the most probable token, of the first hypothesis alone, until it is the end symbol."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.decoder, self.arrays, self.options = decoder, decoder.arrays, options
        self.outputs: list[tuple[int, int, list[int]]] = []  # (sentence id, longest length, tokens)
        self.log_probs: list[float] = []

    @property
    def busy(self) -> bool:
        return bool(self.outputs)

    @property
    def open_hypotheses(self) -> int:
        return len(self.outputs)

    def add(self, sentence_ids: Any, sentences: Any) -> None:
        self.outputs += [
            (number, sentence.max_length, []) for number, sentence in zip(sentence_ids, sentences, strict=True)
        ]
        self.log_probs += [0.0] * len(sentence_ids)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        arrays, beam = self.decoder.arrays, self.options.beam
        newest = np.repeat([[(tokens or [self.options.bos])[-1]] for _, _, tokens in self.outputs], beam, 1)
        logits = self.decoder.step(arrays.array(newest), np.arange(len(newest)) * beam)
        log_probs = arrays.host(arrays.log_softmax(logits))
        finished, stay = [], []
        for index, (number, longest, tokens) in enumerate(self.outputs):
            best = self._best(log_probs[index], longest, tokens)
            self.log_probs[index] += float(log_probs[index, best])
            if best == self.options.eos:
                score = self.log_probs[index] / float(gnmt(len(tokens) + 1, self.options.alpha))
                finished.append((number, [Hypothesis(tokens, self.log_probs[index], score)]))
            else:
                tokens.append(best)
                stay.append(index)
        self.outputs, self.log_probs = [self.outputs[i] for i in stay], [self.log_probs[i] for i in stay]
        self.decoder.keep(np.array(stay, np.int64))
        return finished

    def _best(self, log_probs: NDArray[Any], longest: int, tokens: list[int]) -> int:
        allowed = log_probs.copy()
        allowed[list(self.options.banned_tokens)] = -np.inf
        return self.options.eos if len(tokens) == longest else int(allowed.argmax())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("few_alone")
def test_a_search_from_outside_the_package_translates(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered by name; equal to beam search with a beam of one."""
    monkeypatch.setitem(SEARCHES, "greedy", f"{__name__}:GreedySearch")
    more = {"search": "greedy", "workers": workers}
    found = translator(beam=1, min_length=0, batch_tokens=100, more=more).translate(lines())
    for ours, theirs in zip(found, translator(beam=1, min_length=0).translate(lines()), strict=True):
        assert ours.text == theirs.text
        assert ours.score == pytest.approx(theirs.score, abs=1e-4)


def test_an_unknown_search_is_named() -> None:
    with pytest.raises(UsageError, match=r"search 'bean': expected beam, sample, mbr or diverse\. Did you mean 'beam'"):
        translator(more={"search": "bean"})
