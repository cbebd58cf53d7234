"""Codes of languages: which are the same, and which language serves a request. The language of a sample of lines."""

import pytest

from nmt_cli.text.detection import language_of, plain, recognised
from nmt_cli.text.languages import NAMES, base, canonical, find, languages_in, name_of, short, single


@pytest.mark.parametrize(
    ("code", "served", "expected"),
    [
        ("de", ["fr", "de"], "de"),
        ("zh", ["yue", "cmn"], "cmn"),
        ("zh", ["cmn", "zho"], "cmn"),
        ("zh-hans", ["cmn", "cmn_Hans"], "cmn_Hans"),
        ("zh_Hant", ["cmn", "cmn_Hans"], "cmn"),
        ("zh", ["cmn_Hans", "cmn_Hant"], "cmn_Hans"),
        ("nds", ["deu", "nds"], "nds"),
        ("EN-US", ["en"], "en"),
        ("pt-PT", ["pt-BR"], "pt-BR"),
        ("xx", ["de"], None),
        ("de_AT", ["de"], "de"),
        ("iw", ["he"], "he"),
        ("nb", ["nn", "no"], "no"),
        ("sh", ["srp_Cyrl", "srp_Latn"], "srp_Latn"),
        ("sr", ["srp_Latn"], None),
        ("zh-TW", ["zh"], "zh"),
        ("zh-TW", ["zh", "zh-Hans", "zh-Hant"], "zh-Hant"),
        ("en-AU", ["en-US", "en-GB"], "en-GB"),
    ],
)
def test_the_language_for_a_code(code: str, served: list[str], expected: str | None) -> None:
    assert find(code, served) == expected


def test_forms_of_codes() -> None:
    assert [code for code in NAMES if canonical(code) != code] == []
    assert (canonical("DEU"), canonical("cmn_Hans"), base("por_BR"), canonical("nds")) == ("de", "zh-hans", "pt", "nds")
    assert (short("deu"), short("cmn_Hans"), short("nds"), short("fr_BE")) == ("de", "zh-Hans", "nds", "fr_BE")
    assert (name_of("deu"), name_of("pt-BR"), name_of("nds")) == ("German", "Portuguese (BR)", "nds")


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("opus-mt-en-de", ("en", "de")),
        ("opus-mt-tc-big-gmq-en", ("gmq", "en")),
        ("opus-mt-en-ROMANCE", ("en", "ROMANCE")),
        ("models--Helsinki-NLP--opus-mt-tc-bible-big-deu_eng_fra-mul", ("mul", "mul")),
        ("deu+fra-eng", ("mul", "en")),
        ("eng-ara_Arab", ("en", "ar-Arab")),
        ("en-pt_BR", ("en", "pt-BR")),
        *((name, ("", "")) for name in ("my-model", "big-top", "opus-2020-02-26", "opus-mt-de-en-tuned", "")),
    ],
)
def test_a_models_name_says_its_languages(name: str, languages: tuple[str, str]) -> None:
    source, target = languages_in(name)
    assert (single(source), single(target)) == languages


SENTENCES = {
    "de": "Der Hund schläft heute in der Küche",
    "en": "The dog sleeps in the kitchen today",
    "cs": "Pes a kočka dnes spí v kuchyni",
    "ja": "犬は今日台所で寝ています",
}


def lines(code: str) -> list[str]:
    return [f"{SENTENCES[code]} {number}." for number in range(40)]


@pytest.mark.parametrize("code", SENTENCES)
def test_the_language_of_lines(code: str) -> None:
    assert language_of(lines(code)) == code


def test_no_language_is_said_where_nothing_shows_it() -> None:
    assert language_of([]) == language_of(["word"] * 1000) == language_of(str(number) for number in range(1000)) == ""
    assert language_of([line for both in zip(lines("en"), lines("ja"), strict=True) for line in both][:9]) == ""


def test_codes() -> None:
    assert [plain(code) for code in ("pt-BR", "ger", "nb", "bs", "xx")] == ["pt", "de", "no", "hr", "xx"]
    assert [recognised(code) for code in ("pt-BR", "ger", "nb", "bs", "xx", "")] == [True] * 4 + [False] * 2
