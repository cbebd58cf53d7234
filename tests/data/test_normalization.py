"""The rule `nfc` keeps the text, and characters that no reader sees change nothing, whatever model reads the line."""

import random
import re
import unicodedata

import pytest

from nmt_cli.data.normalization import UNSEEN, kept, nearly, nfc
from nmt_cli.data.tokenizer import Tokenizer, learn_bpe
from nmt_cli.recipe import DataSection

SCRIPTS = [
    "你好，世界！「今天」……（全角）：１２３％",
    "น้ำทำให้ทุกคนจำได้ ๑๒๓",
    "می‌خواهم کتاب‌ها را بخوانم؟",
    "½ cup ™ E=mc² ﬁne ① ㎏ … ‘x’ “y” — ª º",
    "한국어 문장입니다。",
    "שָׁלוֹם עולם",
    "Việt Nam ệ ữ",
    "Qui\u202f? «\u00a0Moi\u00a0»",
    "❤\ufe0f 👩\u200d💻 🇩🇪",
]


def vocabulary(normalization: str = "nfc", lines: list[str] = SCRIPTS, **changes: object) -> Tokenizer:
    values = {"train_source": ["s"], "train_target": ["t"], "vocab_size": 700, "normalization": normalization}
    return learn_bpe(lines * 30, DataSection.model_validate({**values, **changes}))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return vocabulary()


@pytest.mark.parametrize("line", SCRIPTS)
def test_text_of_every_script_comes_back_as_nfc(tokenizer: Tokenizer, line: str) -> None:
    expected = unicodedata.normalize("NFC", line)
    for form in ("NFC", "NFD"):
        written = unicodedata.normalize(form, line)
        assert unicodedata.normalize("NFC", tokenizer.decode(tokenizer.encode([written]))[0]) == expected
    assert tokenizer.decode(tokenizer.encode([expected])) == [expected] == [tokenizer.normalized(expected)]
    assert nearly(expected) == expected
    assert nearly("cafe\u0301 so\xadft a\tb\u09df") == "café soft a b\u09df"


def test_the_rule_gives_nothing_but_canonically_equivalent_text() -> None:
    """On random characters of all planes that have letters; random strings also hold marks in every order."""
    rule = nfc(frozenset())
    characters = [
        chr(code) for code in range(0x20, 0x20000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")
    ]
    marks = [character for character in characters if unicodedata.combining(character)]
    letters = [character for character in characters if unicodedata.decomposition(character)]
    draw = random.Random(1)
    for _ in range(3000):
        text = "".join(draw.choices(characters, k=4) + draw.choices(letters, k=3) + draw.choices(marks, k=3))
        visible = UNSEEN.sub(lambda match: " " if match[0].isspace() else "", re.sub("[\u2581\ufffd]", " ", text))
        got, expected = (
            unicodedata.normalize("NFC", form.replace("\u2581", " ")).split(" ")
            for form in (rule.normalize(text), visible)
        )
        assert [word for word in got if word] == [word for word in expected if word], ascii(text)


def test_every_composition_of_unicode_is_made() -> None:
    rule = nfc(frozenset())
    for code in [*range(0xA1, 0xD800), *range(0xF900, 0x1F000), *range(0x2F800, 0x2FA20)]:
        character = chr(code)
        if unicodedata.category(character) in ("Cn", "Co") or UNSEEN.match(character) or character in "\u2581\ufffd":
            continue
        forms = [unicodedata.normalize(form, character) for form in ("NFC", "NFD")]
        if forms[0] in (" ", "`", ";"):  # a few characters are white space or ASCII in NFC
            continue
        assert {rule.normalize(text) for text in (character, *forms)} == {"\u2581" + forms[0]}, hex(code)


@pytest.mark.parametrize("normalization", ["nfc", "nmt_nfkc", "identity"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_what_no_reader_sees_changes_no_token(normalization: str, byte_fallback: bool) -> None:
    """nmt_nfkc writes two of them as a space; models that were trained with it read them so."""
    size = 290 if byte_fallback else 30
    model = vocabulary(normalization, ["the small dog sleeps"], byte_fallback=byte_fallback, vocab_size=size)
    for unseen in "\xad\u2060\u202a\x08\x00\u034f\U000e0041" + "\ufeff\u200e" * (normalization != "nmt_nfkc"):
        line = f"the sm{unseen}all {unseen}dog{unseen} {unseen} sleeps"
        assert model.encode([line]) == model.encode(["the small dog sleeps"]), ascii(unseen)
        assert model.pieces(f"sm{unseen}all") == model.pieces("small")
    # white space that the text lacks is a plain space
    for space in "\t\xa0\u3000\u2028\x85\v" * (normalization != "nmt_nfkc"):
        assert model.encode([f"the{space}small{space} dog"]) == model.encode(["the small dog"])


def test_what_a_script_needs_is_kept_where_it_is_frequent() -> None:
    persian, french = [("می\u200cخواهم", 30), ("کتاب", 70)], [("Qui\u202f?", 30), ("Moi", 70)]
    assert kept(persian) == {"\u200c"}
    assert kept(french) == {"\u202f"}
    assert kept([("می\u200cخواهم", 20)]) == {"\u200c"}
    assert kept([("می\u200cخواهم", 19), ("کتاب", 81)]) == frozenset()
    assert kept([("a\xadb", 50), ("a\u2060b", 50)]) == frozenset()
    tokenizer = vocabulary(lines=["می\u200cخواهم کتاب\u200cها"], vocab_size=290)
    english = vocabulary(lines=["the small dog"], vocab_size=290)
    assert "\u200c" in tokenizer.decode(tokenizer.encode(["می\u200cخواهم"]))[0]
    assert english.encode(["sm\u200call"]) == english.encode(["small"])
    assert tokenizer.normalized("می\u200cخواهم") == "می\u200cخواهم"


@pytest.mark.parametrize(
    ("written", "other"), [("আমায\u09bc", "আমা\u09df"), ("আমা\u09df", "আমায\u09bc"), ("\u05e9\u05c1ל", "\ufb2aל")]
)
def test_letters_that_nfc_takes_apart_are_written_as_most_of_the_text_writes_them(written: str, other: str) -> None:
    model = vocabulary(lines=[written, written, other] * 9, byte_fallback=False, vocab_size=10)
    assert unicodedata.normalize("NFD", written) == unicodedata.normalize("NFD", other)
    assert model.decode(model.encode([written, other])) == [written, written]
