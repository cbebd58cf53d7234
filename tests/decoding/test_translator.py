"""Lines to translations: order, blanks, long lines, windows, and that nothing but the line matters."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import cache

import pytest
import torch

from nmt_cli.data.tokenizer import EOS, Tokenizer, learn_bpe
from nmt_cli.decoding import translator as module
from nmt_cli.decoding import windows as reading
from nmt_cli.decoding.split import parts_of
from nmt_cli.decoding.translator import Translator
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection, DecodeSection, ModelSection

WORDS = ["the", "a", "small", "big", "red", "cat", "dog", "house", "sees", "likes", "finds", "under", "over", "with", "and", "then"]


def sentence(rng: random.Random, length: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length)) + rng.choice([".", "!", ""])


@cache
def tokenizer() -> Tokenizer:
    rng = random.Random(0)
    text = [sentence(rng, rng.randint(2, 9)) for _ in range(300)]
    return learn_bpe(text, DataSection(generator="teaching", vocab_size=330))


@cache
def model(max_positions: int = 64) -> Transformer:
    torch.manual_seed(0)
    config = ModelSection(encoder_layers=1, decoder_layers=2, d_model=32, d_ff=64, num_heads=2, max_positions=max_positions)
    return Transformer(config, tokenizer().vocab_size, tokenizer().vocab_size).eval()


def translator(nbest: int = 1, longest: int = 0, max_positions: int = 64, **decode: object) -> Translator:
    options = DecodeSection.model_validate({"max_extra": 3, **decode})
    return Translator(model(max_positions), tokenizer(), tokenizer(), options, nbest=nbest, longest=longest)


@cache
def lines() -> list[str]:
    rng = random.Random(7)
    return [sentence(rng, rng.choice([0, 1, 2, 3, 5, 8, 13, 21])) if i % 9 else " \t" * (i % 2) for i in range(100)]


@cache
def expected() -> list[module.Result]:
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
    monkeypatch.setattr(reading, "FIRST_WINDOW", 3)
    monkeypatch.setattr(reading, "LAST_WINDOW", 11)
    sizes = [len(window) for window in translator().windows(iter(lines()))]
    assert max(sizes) <= 11
    assert len(sizes) > 9
    assert list(translator().translate(iter(lines()))) == expected()


def test_sources_stand_beside_their_translations_in_order() -> None:
    assert [result.source for result in expected()] == lines()


def test_empty_and_blank_lines_do_not_reach_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Translator, "_search", lambda *_: pytest.fail("the model was asked"))
    blank = ["", " ", "\t", "\u3000", "\r", "\x85", "\u2028", "\v\f", "\u200b"]
    results = list(translator().translate(blank))
    assert [result.translation for result in results] == [""] * len(blank)
    assert all(result.best.score == 0.0 and result.tokens == 0 for result in results)


def test_characters_that_others_take_for_line_ends_stay_inside() -> None:
    odd = [f"the cat{c}the dog" for c in ("\u2028", "\u2029", "\x85", "\r", "\v", "\f", "\x1c", "\x00", "\ufffd", "🐈")]
    results = list(translator().translate(odd))
    assert len(results) == len(odd)
    assert not any("\n" in result.translation for result in results)


def test_no_line_break_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "decode", lambda self, rows: ["a\nb"] * len(list(rows)))
    assert [r.translation for r in translator().translate(["the cat"])] == ["a b"]


def test_an_output_is_no_longer_than_its_own_input_allows() -> None:
    encode = tokenizer().encode
    for line, result in zip(lines(), expected(), strict=True):
        [ids] = encode([line])
        assert result.tokens <= len(ids) + 3 + 1


def test_nbest_is_distinct_and_ranked() -> None:
    for result in translator(nbest=3).translate([line for line in lines() if line.strip()]):
        scores = [candidate.score for candidate in result.candidates]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)


def test_the_best_of_nbest_is_the_best() -> None:
    assert [r.best for r in translator(nbest=4).translate(lines())] == [r.best for r in expected()]


def test_a_long_line_is_translated_in_parts() -> None:
    rng = random.Random(3)
    first, second = sentence(rng, 10).rstrip(".!") + ".", sentence(rng, 11).rstrip(".!") + "!"
    whole, alone = (list(translator(longest=14).translate(t)) for t in ([f"{first} {second}"], [first, second]))
    assert whole[0].translation == f"{alone[0].translation} {alone[1].translation}"
    assert whole[0].best.log_prob == pytest.approx(sum(r.best.log_prob for r in alone))
    assert whole[0].tokens == sum(r.tokens for r in alone)
    assert whole[0].best.score == pytest.approx(whole[0].best.log_prob / ((5 + whole[0].tokens) / 6) ** 0.6)


@pytest.mark.parametrize("text", ["the cat sees " * 500, "cat" * 900, "x" * 3000, "the cat. " * 700 + "end", "猫が好き。" * 300, "🐈" * 400])
def test_nothing_is_lost_in_splitting(text: str) -> None:
    parts = parts_of(text, tokenizer().encode, 20)
    assert all(1 <= len(part) <= 20 for part in parts)
    together = "".join("".join(tokenizer().decode([part])) for part in parts)
    assert together.replace(" ", "") == text.replace(" ", "") or "🐈" in text
    [ids] = tokenizer().encode([text])
    assert abs(sum(map(len, parts)) - len(ids)) <= len(parts) + 1


def test_splits_are_sought_at_sentence_ends_first_then_clauses_then_words() -> None:
    encode, decode = tokenizer().encode, tokenizer().decode
    text = "the cat sees the dog. the dog, red and big, likes the house and the cat and the dog and the house."
    parts = decode(parts_of(text, encode, 14))
    assert parts[0] == "the cat sees the dog."
    assert parts[1].endswith(",")
    assert " ".join(parts) == text


def test_lines_longer_than_the_model_are_split_even_where_nobody_says_so() -> None:
    long = " ".join(WORDS * 12)
    results = list(translator(max_positions=30).translate([long, "the cat"]))
    assert results[0].tokens > 30
    assert results[1] == next(iter(translator(max_positions=30).translate(["the cat"])))


def test_output_begins_before_input_ends() -> None:
    go_on = threading.Event()

    def slow() -> Iterator[str]:
        yield "the cat"
        assert go_on.wait(60)
        yield "the dog"

    results = translator().translate(slow())
    assert next(results).source == "the cat"
    go_on.set()
    assert [result.source for result in results] == ["the dog"]


def test_a_fault_of_the_input_comes_after_what_was_read() -> None:
    def broken() -> Iterator[str]:
        yield "the cat"
        raise ValueError("cut")

    results = translator().translate(broken())
    assert next(results).source == "the cat"
    with pytest.raises(ValueError, match="cut"):
        next(results)


def test_no_lines_no_results() -> None:
    assert list(translator().translate([])) == list(translator().translate(iter([]))) == []


def test_bf16_runs_and_leaves_the_model_in_fp32() -> None:
    some = Translator(model(), tokenizer(), tokenizer(), DecodeSection(max_extra=3), precision="bf16")
    assert len(list(some.translate(["the cat", "the dog"]))) == 2
    assert model().output_weight.dtype == torch.float32


def test_the_end_symbol_closes_every_source(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    plain = module.FastStepper
    monkeypatch.setattr(module, "FastStepper", lambda model, sources, *rest: (seen.extend(sources), plain(model, sources, *rest))[1])
    list(translator().translate(["the cat"]))
    assert seen == [[*tokenizer().encode(["the cat"])[0], EOS]]
