"""Banned words: against regular expressions over decoded texts, and against brute force."""

import codecs
import io
import random
import re
from collections.abc import Callable, Sequence
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
def across_words() -> Tokenizer:
    """Its subwords may have several words."""
    words, model = ["hot dog", "the cat.", "big", "dogs"], io.BytesIO()
    lines = (" ".join(random.Random(n).choices(words, k=4)) for n in range(200))
    options: dict[str, Any] = {"vocab_size": 80, "model_type": "bpe", "split_by_whitespace": False}
    options |= {"split_by_unicode_script": False, "pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **options)
    return Tokenizer(model.getvalue())


def ids(*pieces: str) -> list[int]:
    return [tokenizer().table.index(piece) for piece in pieces]


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
def beginnings_of_letters() -> set[bytes]:
    letters = (
        chr(code).encode() for code in range(0x80, 0x40000) if not 0xD800 <= code < 0xE000 and in_word(chr(code))
    )
    return {letter[:end] for letter in letters for end in range(1, 4)}


class Oracle:
    """What banned phrases mean, by regular expressions over texts."""

    def __init__(self, phrases: Sequence[str], of: Tokenizer) -> None:
        self.phrases, self.tokenizer = tuple(phrases), of
        self.last = {phrase: of.encode([phrase.split()[-1]])[0] for phrase in phrases}
        self.raw = [
            bytes([int(piece[3:5], 16)]) if re.fullmatch("<0x..>", piece) else piece.replace(META_SPACE, " ").encode()
            for piece in of.table
        ]

    def text(self, tokens: Sequence[int]) -> tuple[str, bytes]:
        """The text of tokens, and the bytes of a character that is not finished."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(b"".join(self.raw[token] for token in tokens)), decoder.getstate()[0]

    def contain(self, tokens: Sequence[int], final: bool = True) -> bool:
        return bool(any_of(self.phrases, final).search(self.text(tokens)[0]))

    def end_in_one(self, tokens: Sequence[int]) -> bool:
        return bool(any_of(self.phrases, True, "$").search(self.text(tokens)[0]))

    def hopeless(self, tokens: Sequence[int]) -> bool:
        """Whether a banned word is followed by bytes that begin no letter."""
        pending = self.text(tokens)[1]
        return bool(pending) and pending not in beginnings_of_letters() and self.end_in_one(tokens)

    def at_once(self, tokens: Sequence[int]) -> bool:
        """Whether the newest token is the last word of a phrase, which it completes if nothing follows."""
        completed = tuple(phrase for phrase in self.phrases if self.last[phrase] == [tokens[-1]])
        return bool(completed) and bool(any_of(completed, True, "$").search(self.text(tokens)[0]))

    def forbid(self, tokens: Sequence[int]) -> bool:
        return self.contain(tokens, False) or self.at_once(tokens) or self.hopeless(tokens)


@pytest.mark.parametrize(
    ("of", "phrases"),
    [
        *(
            (tokenizer, phrases)
            for phrases in (["dog"], BANNED, ["東京", "京タ", "ワ"], ["हिन"], ["don't", "a.m.", "."])
        ),
        (across_words, ["dog", "the cat", "hot", "g big"]),
    ],
)
def test_the_tokens_that_complete_a_phrase_are_forbidden(of: Callable[[], Tokenizer], phrases: list[str]) -> None:
    """Random texts of all tokens, single bytes too, and of tokens near the phrases."""
    rng, oracle, table = random.Random(0), Oracle(phrases, of()), of().table
    matcher = BannedWords(phrases, of()).matcher
    every = range(4, len(table))
    near = [
        token
        for token in every
        if (len(table[token]) < 5 and any(table[token].strip(META_SPACE) in phrase for phrase in phrases))
        or table[token] in ("<0xE4>", "<0xBA>", "<0xAC>", "<0xC3>", "<0x97>", "<0xA4>", "<0x20>")
    ]
    checked = 0
    for _ in range(25):
        state, tokens = 0, list[int]()
        for _ in range(8):
            last = set(matcher.completing(state, 0)) - {UNK}  # also bytes after a word
            assert last == {token for token in every if oracle.contain([*tokens, token])}
            forbidden = set(matcher.completing(state, 3)) - {UNK}
            assert forbidden == {token for token in every if oracle.forbid([*tokens, token])}
            checked += len(forbidden)
            token = rng.choice(rng.choice([every, near, near]))
            if token in forbidden:
                break
            tokens.append(token)
            state = matcher.after(state, token)
            assert matcher.open(state) == oracle.end_in_one(tokens)
    assert checked > 20


KNOWN = [META_SPACE + "dog", META_SPACE + "d", "o", "g", "s", ".", META_SPACE + "big", META_SPACE]


@pytest.mark.parametrize("phrases", [["dog"], ["big dog"], ["dog", "big"], ["o"], ["d", "dogs"], ["."]])
def test_a_wide_beam_is_brute_force(phrases: list[str]) -> None:
    oracle = Oracle(phrases, tokenizer())

    def allowed(tokens: tuple[int, ...]) -> bool:
        text = tokenizer().decode([tokens])[0]
        return not any_of(oracle.phrases, True).search(text) and not any(
            oracle.at_once(tokens[: i + 1]) for i in range(len(tokens))
        )

    toy = ToySearch(tokenizer().vocab_size, ids(*KNOWN), [BannedWords(phrases, tokenizer())])
    toy.check_brute_force(3, allowed)


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
