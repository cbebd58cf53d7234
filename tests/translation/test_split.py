"""Lines are split at the ends of their sentences, in every script; nothing is lost."""

from collections.abc import Sequence
from functools import cache

import pytest

from nmt_cli.data.tokenizer import Tokenizer, learn_bpe
from nmt_cli.recipe import DataSection
from nmt_cli.translation.split import joined, parts_of, sentences

SENTENCES = {
    "English": [
        "Mr. Smith met J. K. Rowling.",
        "“Stop!” he said.",
        "Is it 3.14?",
        "(No.)",
        "We saw no. 5 in the U.S. Army.",
    ],
    "German": ["Am 3. Mai kam Dr. Weiß.", "Das ist z. B. gut.", "„Geh!“, rief er.", "»Nein.«", "Ludwig XIV. starb."],
    "French": ["Il a dit : « Viens ! »", "« Non ? »", "M. Dupont est là…", "Oui."],
    "Spanish": ["¿Qué hora es?", "¡Hola!", "El Sr. García salió."],
    "Greek": ["Καλημέρα.", "Τι κάνεις\u037e", "Καλά."],
    "Russian": ["Он родился в 1999 г. в Москве.", "«Да!»", "Нет."],
    "Hindi": ["यह एक वाक्य है।", "डॉ. सिंह आए।", "तुम कैसे हो?", "वह चला गया॥"],
    "Urdu": ["یہ ایک جملہ ہے۔", "آپ کیسے ہیں؟", "ٹھیک ہے۔"],
    "Arabic": ["كيف حالك؟", "أنا بخير.", "شكرا!"],
    "Amharic": ["ሰላም ነው።", "እንዴት ነህ፧", "ደህና።"],
    "Khmer": ["សួស្តី។", "លាហើយ៕"],
    "Tibetan": ["བཀྲ་ཤིས།", "བདེ་ལེགས༎"],
    "Thai": ["สวัสดีครับ", "วันนี้มีต่าง ๆ นานา", "ราคา 20 บาท"],
    "Lao": ["ສະບາຍດີ", "ຂອບໃຈ"],
}
"""Sentences that are separated by spaces."""
CLOSE = {
    "Chinese": ["这是第一句。", "你好吗？", "“好！”", "他说。", "圆周率是３．１４。", "真的吗?", "是。"],
    "Japanese": ["「行く。」と言った。", "終わり！", "（そう。）", "次です｡", "え？！"],
    "Amharic": ["ሰላም።", "ደህና።"],
    "separators": ["One line", "\u2028another line", "\u2029the last"],
}
"""Sentences that follow each other without a space."""


@cache
def tokenizer() -> Tokenizer:
    return learn_bpe(["the cat sees the dog and the house."] * 3, DataSection(generator="teaching", vocab_size=300))


def split_at(text: str, longest: int, safe: int | None = None) -> list[list[int]]:
    encode = tokenizer().encode
    return parts_of(text, encode([text])[0], encode, longest if safe is None else safe, longest)


@pytest.mark.parametrize(
    ("space", "texts"), [*((" ", texts) for texts in SENTENCES.values()), *(("", texts) for texts in CLOSE.values())]
)
def test_sentences_are_found_in_every_script_and_without_spaces_between_them(space: str, texts: list[str]) -> None:
    assert sentences(space.join(texts)) == [text.strip() for text in texts]


def test_every_sentence_terminal_of_unicode_ends_a_sentence() -> None:
    regex = pytest.importorskip("regex")
    terminals = regex.findall(r"\p{Sentence_Terminal}", "".join(map(chr, [*range(0xD800), *range(0xE000, 0x20000)])))
    assert len(terminals) > 150
    for terminal in terminals:
        assert sentences(f"Alpha{terminal} Beta") == [f"Alpha{terminal}", "Beta"], f"U+{ord(terminal):04X}"


@pytest.mark.parametrize(
    "text",
    [
        "version 3.14 of example.org is out",
        "Er kommt ca. um 12 Uhr, evtl. später, usw. und so fort",
        "1. The first",
        "Wait ... what",
        "Stop!",
        "...",
        "",
        " . ",
    ],
)
def test_one_sentence_is_one_sentence(text: str) -> None:
    assert sentences(text) == [text]


def test_a_sentence_has_a_letter_or_numbers_alone() -> None:
    assert sentences("Wow! ... !!! 😀 Yes. 1. One. 2. Two. (!)") == [
        "Wow! ... !!!",
        "😀 Yes.",
        "1. One.",
        "2. Two. (!)",
    ]
    assert sentences("3 1 2. 40 5 6. 7 8 9.") == ["3 1 2.", "40 5 6.", "7 8 9."]
    assert sentences("a man sits . a dog runs ! it barks .") == ["a man sits .", "a dog runs !", "it barks ."]
    assert sentences("A man sits. and a dog runs.") == ["A man sits. and a dog runs."]


@pytest.mark.parametrize(
    "text", ["the cat sees " * 500, "cat" * 900, "x" * 3000, "the cat. " * 700 + "end", "猫が好き。" * 300, "🐈" * 400]
)
def test_nothing_is_lost_in_splitting(text: str) -> None:
    parts = split_at(text, 20)
    assert all(1 <= len(part) <= 20 for part in parts)
    together = "".join("".join(tokenizer().decode([part])) for part in parts)
    assert together.replace(" ", "") == text.replace(" ", "") or "🐈" in text
    [ids] = tokenizer().encode([text])
    assert abs(sum(map(len, parts)) - len(ids)) <= len(parts) + 1


def test_splits_are_sought_at_sentence_ends_first_then_clauses_then_words() -> None:
    decode = tokenizer().decode
    text = "the cat sees the dog. the dog, and the house, sees the house and the cat and the dog and the house."
    parts = decode(split_at(text, 14))
    assert parts[0] == "the cat sees the dog."
    assert parts[1].endswith(",")
    assert " ".join(parts) == text


def test_each_sentence_beyond_the_safe_length_is_a_part_and_whole_where_it_can_be() -> None:
    texts = ["the cat sees.", "the dog and the house and the cat sees the dog.", "the house."]
    ids = tokenizer().encode(texts)
    assert len(ids[1]) > 8
    assert split_at(" ".join(texts), longest=40, safe=8) == ids
    [whole] = tokenizer().encode([" ".join(texts)])
    assert split_at(" ".join(texts), longest=40, safe=len(whole)) == [whole]
    assert split_at(" ".join(texts), longest=40, safe=len(whole) - 1) == ids
    text = "the cat, the dog, the house, the cat and the dog."
    assert split_at(text, longest=len(tokenizer().encode([text])[0]), safe=3) == tokenizer().encode([text])
    assert all(len(part) <= 8 for part in split_at(text, longest=len(ids) - 1, safe=8))
    texts = ["The cat sees 12.", "the dog is 15.", "it is the house."]
    assert split_at(" ".join(texts), longest=24, safe=20) == tokenizer().encode(texts)


@pytest.mark.parametrize("unit", ["x", "The cat sees the dog. ", ".", ". ", "Mr. ", "5. ", "，", "กข ", '."', "a, "])
def test_the_work_grows_no_faster_than_the_line(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The characters that are tokenised, and the characters that patterns and words are searched in."""

    def work(length: int) -> int:
        seen = 0

        def encode(texts: Sequence[str]) -> list[list[int]]:
            nonlocal seen
            seen += sum(map(len, texts))
            return tokenizer().encode(texts)

        text = (unit * length)[:length]
        parts_of(text, tokenizer().encode([text])[0], encode, 20, 40)
        return seen

    few, many = work(5_000), work(40_000)
    assert many <= 9 * few + 100


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["One.", "Two."], "One. Two."),
        (["", "One.", "", "Two."], "One. Two."),
        (["你好。", "我是。"], "你好。我是。"),
        (["“你好。”", "他说。"], "“你好。”他说。"),
        (["はい", "「そう」", "です"], "はい「そう」です"),
        (["สวัสดี", "ครับ"], "สวัสดี ครับ"),
        (["안녕", "안녕."], "안녕 안녕."),
        (["Yes.", "“Yes.”"], "Yes. “Yes.”"),
        ([], ""),
    ],
)
def test_translations_are_joined_as_their_script_asks(texts: list[str], expected: str) -> None:
    assert joined(texts) == expected
