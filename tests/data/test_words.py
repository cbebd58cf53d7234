"""Words counted and remembered give what whole sentences give: the same pieces learned, the same ids."""

import io
import random
from collections import Counter
from typing import Any

import pytest
import sentencepiece

from nmt_cli.data.demo_corpus import pairs as demo_pairs
from nmt_cli.data.tokenizer import Tokenizer, learn_bpe, learn_from_words
from nmt_cli.data.words import WordCounts, WordEncoder, count_words
from nmt_cli.errors import DataError
from nmt_cli.recipe import DataSection

NORMALIZATIONS = ("nfc", "identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")
ODD = "abc äß 日本 \u0308\u0301 ¨´ﷺﬁ²Ａ…\t\xa0\u3000\u200b\x01\u00ad\u2028 ½ Ж🙂e\u0301\ud7a3\u1100\u1161 -.,' ΐ ͅ \u1fed\u2581"


def section(**changes: Any) -> DataSection:
    return DataSection(**{"generator": "teaching", "vocab_size": 900, "byte_fallback": False, **changes})


def garbage(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice(ODD) for _ in range(draw.randint(0, 25))) for _ in range(count)]


def pieces(tokenizer: Tokenizer) -> list[tuple[str, float]]:
    processor = tokenizer._processor
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(tokenizer.vocab_size)]


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_words_teach_what_sentences_teach(text: list[str], normalization: str) -> None:
    lines = text + [line.replace("\t", " ").replace("\u2581", "") for line in garbage(300, 1)]
    data = section(normalization=normalization)
    assert pieces(learn_from_words(count_words(lines).items(), data)) == pieces(learn_bpe(lines, data))


def test_the_order_of_words_does_not_matter_and_there_must_be_some(text: list[str]) -> None:
    words = list(count_words(text).items())
    assert learn_from_words(reversed(words), section()).model == learn_from_words(words, section()).model
    with pytest.raises(DataError, match="the training text is empty"):
        learn_from_words([], section())


def test_words_are_counted_between_spaces_and_tabs_chunk_by_chunk(text: list[str]) -> None:
    assert count_words(["a b\ta", "  a", "", "c\u00a0d"]) == {"a": 3, "b": 1, "c\u00a0d": 1}
    counts = WordCounts()
    for first in range(0, len(text), 100):
        counts.add(count_words(text[first : first + 100]))
    assert dict(counts.most_frequent()) == count_words(text)


def test_too_many_words_lose_rare_ones_and_keep_the_frequent() -> None:
    draw = random.Random(1)
    frequent = {f"word{i}": 50 for i in range(200)}
    counts = WordCounts(held=20_000)
    for chunk in range(40):
        counts.add(Counter({**dict.fromkeys(frequent, 1), **{f"rare{chunk}-{draw.random()}": 1 for _ in range(500)}}))
    left = dict(counts.most_frequent())
    assert sum(map(len, left)) <= 20_000
    assert all(left[word] == 40 for word in frequent)
    chunks = Counter(word.split("-")[0] for word in left if word.startswith("rare"))
    assert len(chunks) > 30, "rare words of the whole text are kept, not those of one end"


def test_the_most_frequent_words_within_so_many_characters() -> None:
    counts = WordCounts()
    counts.add(Counter({"aaa": 9, "bb": 5, "c": 2, "d": 2, "e": 2, "ff": 1}))
    assert dict(counts.most_frequent(5)) == {"aaa": 9, "bb": 5}
    six = dict(counts.most_frequent(6))
    assert six.keys() - {"aaa", "bb"} < {"c", "d", "e"}
    assert len(six) == 3
    assert len(dict(counts.most_frequent(10))) == 6
    assert WordCounts().most_frequent() == []


@pytest.fixture(scope="module")
def text() -> list[str]:
    return [side for pair in demo_pairs(train=600, valid=1, test=1)["train"] for side in pair]


def check(tokenizer: Tokenizer, lines: list[str], encoder: WordEncoder | None = None) -> None:
    encoder = encoder or WordEncoder(tokenizer)
    for first in range(0, len(lines), 97):
        part = lines[first : first + 97]
        ids, lengths = encoder.encode(part)
        expected = tokenizer.encode(part)
        assert lengths.tolist() == [len(row) for row in expected]
        assert ids.tolist() == [number for row in expected for number in row]


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_remembered_words_give_the_same_ids(text: list[str], normalization: str, byte_fallback: bool) -> None:
    tokenizer = learn_bpe(text, section(normalization=normalization, byte_fallback=byte_fallback))
    assert tokenizer.by_words
    check(tokenizer, text + garbage(3000, 7) + ["", " ", "  a  b "])
    check(tokenizer, [])


def test_words_are_cut_once_and_a_full_memory_forgets(text: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = learn_bpe(text, section())
    forgetful = WordEncoder(tokenizer, remembered=200)
    check(tokenizer, text, forgetful)
    assert len(forgetful._numbers) < 400
    encoder, asked, plain = WordEncoder(tokenizer), list[str](), tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda texts: asked.extend(texts) or plain(texts))  # type: ignore[func-returns-value]
    for _ in range(3):
        encoder.encode(text)
    assert sorted(asked) == sorted(set(" ".join(text).split(" ")))


@pytest.mark.parametrize(
    "options",
    [
        {"split_by_whitespace": False},
        {"model_type": "unigram", "hard_vocab_limit": False},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"treat_whitespace_as_suffix": True},
        {"user_defined_symbols": ["the\u2581small"]},
    ],
)
def test_a_tokenizer_that_joins_words_is_left_to_itself(text: list[str], options: dict[str, Any]) -> None:
    model = io.BytesIO()
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    options = {"model_type": "bpe", "vocab_size": 500, "minloglevel": 2, **ids, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=model, **options)
    tokenizer = Tokenizer(model.getvalue())
    assert not tokenizer.by_words
    check(tokenizer, [*text[:300], "  two  spaces "])
