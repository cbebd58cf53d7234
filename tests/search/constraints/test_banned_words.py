"""Banned words: against regular expressions over decoded texts, and against brute force."""

from __future__ import annotations

import codecs
import io
import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import sentencepiece
from toy_decoder import ToySearch

from nmt_cli.data.normalization import META_SPACE
from nmt_cli.data.tokenizer import UNK, Tokenizer, learn_bpe
from nmt_cli.recipe import DataSection
from nmt_cli.search.constraint import LAST_RESORT
from nmt_cli.search.constraints.banned_words import BannedWords
from nmt_cli.search.constraints.phrases import in_word
from nmt_cli.search.constraints.prefix import Prefix

WORDS = ["the", "dog", "dogs", "dogma", "big", "bigger", "hot dog", "cat", "well-done", "don't", "a.m.", "don"]
TEXT = [f"{' '.join(random.Random(n).choices(WORDS, k=4))}." for n in range(300)] + [
    "東京タワーは高い",
    "大阪と東京",
    "हिन्दी",
] * 20
BANNED = ["dog", "big dog", "don", "C++", "東京", "हिन", "e", "well-done the"]


@cache
def tokenizer() -> Tokenizer:
    return learn_bpe(TEXT, DataSection(generator="teaching", vocab_size=370, character_coverage=0.9999))


@cache
def table() -> list[str]:
    return tokenizer().table


def ids(*pieces: str) -> list[int]:
    return [table().index(piece) for piece in pieces]


WORD = r"[^\W\u3040-\u30ff\u4e00-\u9fff]"
"""A word character, as far as these tests need it; marks besides."""
MARK = r"[\u0300-\u036f\u0900-\u0903\u093a-\u094f]"


@cache
def occurrence(phrase: str, final: bool) -> str:
    """A regular expression; unless the text is `final`, a word that may be continued is none."""
    spaced = r"\s+".join(map(re.escape, phrase.split()))
    begins, ends = (re.fullmatch(f"{WORD}|{MARK}", character) for character in (phrase[0], phrase[-1]))
    before = f"(?<!{WORD})(?<!{MARK})" if begins else ""
    after = f"(?!{WORD}|{MARK})" + ("" if final else r"(?=[\s\S])") if ends else ""
    return f"{before}{spaced}{after}"


@cache
def any_of(phrases: tuple[str, ...], final: bool, end: str = "") -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{occurrence(phrase, final)}){end}" for phrase in phrases))


@cache
def raw(token: int) -> bytes:
    byte = re.fullmatch(r"<0x(..)>", table()[token])
    return bytes([int(byte.group(1), 16)]) if byte else table()[token].replace(META_SPACE, " ").encode()


def text_of(tokens: Sequence[int]) -> str:
    """The text of tokens, without the bytes of a character that is not finished."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(map(raw, tokens)))


def contains(tokens: Sequence[int], phrases: Sequence[str], final: bool) -> bool:
    text = tokenizer().decode([tokens])[0] if final else text_of(tokens)
    return bool(any_of(tuple(phrases), final).search(text))


@cache
def beginnings_of_letters() -> set[bytes]:
    letters = (
        chr(code).encode() for code in range(0x80, 0x40000) if not 0xD800 <= code < 0xE000 and in_word(chr(code))
    )
    return {letter[:end] for letter in letters for end in range(1, 4)}


def hopeless(tokens: Sequence[int], phrases: Sequence[str]) -> bool:
    """Whether a banned word is followed by bytes that begin no letter."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    is_open = bool(any_of(tuple(phrases), True, "$").search(decoder.decode(b"".join(map(raw, tokens)))))
    pending = decoder.getstate()[0]
    return is_open and bool(pending) and pending not in beginnings_of_letters()


@cache
def last_token(phrase: str) -> list[int]:
    return tokenizer().encode([phrase.split()[-1]])[0]


def at_once(tokens: Sequence[int], phrases: Sequence[str]) -> bool:
    """Whether the newest token is the last word of a phrase, which it completes if nothing follows."""
    completed = [phrase for phrase in phrases if last_token(phrase) == [tokens[-1]]]
    return bool(completed) and bool(any_of(tuple(completed), True, "$").search(text_of(tokens)))


@pytest.mark.parametrize("phrases", [["dog"], BANNED, ["東京", "京タ", "ワ"], ["हिन"], ["don't", "a.m.", "."]])
def test_the_tokens_that_complete_a_phrase_are_forbidden(phrases: list[str]) -> None:
    """Random texts of all tokens, single bytes too, and of tokens near the phrases."""
    rng, matcher = random.Random(0), BannedWords(phrases, tokenizer()).matcher
    every = list(range(4, tokenizer().vocab_size))
    near = [
        token
        for token in every
        if len(table()[token]) < 5 and any(table()[token].strip(META_SPACE) in phrase for phrase in phrases)
    ]
    near += ids(META_SPACE, "<0xE4>", "<0xBA>", "<0xAC>", "<0xC3>", "<0x97>", "<0xA4>", "<0x20>")
    checked = 0
    for _ in range(25):
        state, tokens = 0, list[int]()
        for _ in range(8):
            last = set(matcher.completing(state, 0)) - {UNK}
            assert last == {
                token for token in every if any_of(tuple(phrases), True).search(text_of([*tokens, token]))
            }  # also bytes after a word
            forbidden = set(matcher.completing(state, 3)) - {UNK}
            assert forbidden == {
                token
                for token in every
                if contains([*tokens, token], phrases, False)
                or at_once([*tokens, token], phrases)
                or hopeless([*tokens, token], phrases)
            }
            checked += len(forbidden)
            token = rng.choice(rng.choice([every, near, near]))
            if token in forbidden:
                break
            tokens.append(token)
            state = matcher.after(state, token)
            assert matcher.open(state) == bool(any_of(tuple(phrases), True, "$").search(text_of(tokens)))
    assert checked > 20


def test_subwords_of_several_words_complete_phrases_within() -> None:
    words, model = ["hot dog", "the cat.", "big", "dogs"], io.BytesIO()
    lines = (" ".join(random.Random(n).choices(words, k=4)) for n in range(200))
    options: dict[str, Any] = {
        "vocab_size": 80,
        "model_type": "bpe",
        "split_by_whitespace": False,
        "split_by_unicode_script": False,
    }
    options |= {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **options)
    several, rng = Tokenizer(model.getvalue()), random.Random(0)
    phrases = ["dog", "the cat", "hot", "g big"]
    last = [several.encode([phrase.split()[-1]])[0] for phrase in phrases]
    whole = {tokens[0] for tokens in last if len(tokens) == 1}
    assert any(re.search(r"\w\W", piece.replace(META_SPACE, " ")) for piece in several.table[4:])
    matcher = BannedWords(phrases, several).matcher
    for _ in range(100):
        state, text = 0, ""
        for _ in range(6):
            forbidden = set(matcher.completing(state, 3)) - {UNK}
            for token in range(4, several.vocab_size):
                after = text + several.table[token].replace(META_SPACE, " ")
                found = re.search(r"(?<!\w)(?:dog|the +cat|hot|g +big)(?=\W)", after) or (
                    token in whole and re.search(r"(?<!\w)(?:dog|the +cat|hot|g +big)$", after)
                )
                assert bool(found) == (token in forbidden)
            token = rng.choice([token for token in range(4, several.vocab_size) if token not in forbidden])
            state, text = matcher.after(state, token), text + several.table[token].replace(META_SPACE, " ")


KNOWN = [META_SPACE + "dog", META_SPACE + "d", "o", "g", "s", ".", META_SPACE + "big", META_SPACE]


@pytest.mark.parametrize("phrases", [["dog"], ["big dog"], ["dog", "big"], ["o"], ["d", "dogs"], ["."]])
def test_a_wide_beam_is_brute_force(phrases: list[str]) -> None:
    toy = ToySearch(tokenizer().vocab_size, ids(*KNOWN), [BannedWords(phrases, tokenizer())])

    def allowed(tokens: tuple[int, ...]) -> bool:
        return not contains(tokens, phrases, True) and not any(
            at_once(tokens[: i + 1], phrases) for i in range(len(tokens))
        )

    for sentence in range(3):
        expected = toy.best(sentence, filter(allowed, toy.every(3)))[:9]
        found = toy.beam_search([sentence], 3, 8**3, nbest=9)[0]
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


def test_an_output_that_must_end_in_a_banned_word_ends_as_the_last_resort() -> None:
    toy = ToySearch(tokenizer().vocab_size, ids(*KNOWN), [Prefix(), BannedWords(["dog", "d", "bigger"], tokenizer())])
    prefix = ids(META_SPACE + "big", META_SPACE + "d", "o", "g")
    [[only]] = toy.beam_search([0], 4, 4, [prefix])
    assert only.tokens == prefix
    assert only.score < LAST_RESORT / 2
    assert only.log_prob == pytest.approx(sum(toy.log_probs(0, prefix)), abs=1e-2)
    assert not any(h.tokens == prefix for h in toy.beam_search([0], 5, 4, [prefix])[0] if h.score > LAST_RESORT / 2)


def test_a_prefix_may_contain_a_banned_word() -> None:
    toy = ToySearch(tokenizer().vocab_size, ids(*KNOWN), [Prefix(), BannedWords(["dog"], tokenizer())])
    prefix = ids(META_SPACE + "dog", META_SPACE + "big", META_SPACE + "dog")
    for row in toy.beam_search([0, 1], 8, 4, [prefix, prefix]):
        for h in row:
            assert h.tokens[:3] == prefix
            assert not re.search(r"\bdog\b", tokenizer().decode([h.tokens])[0][len("dog big ") :])
            assert h.score > LAST_RESORT / 2


def test_words_are_normalised_and_none_is_no_rule() -> None:
    assert BannedWords(["  do\xadg \t big "], tokenizer()).matcher.phrases == ["dog big"]
    assert not BannedWords([], tokenizer()).edits
