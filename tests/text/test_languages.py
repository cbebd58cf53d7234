"""Codes of languages: which are the same, and which language serves a request. The language of a sample of lines."""

import pytest

from nmt_cli.text.detection import language_of, plain, recognised
from nmt_cli.text.languages import LANGUAGES, TWO_LETTERS, base, canonical, find, languages_in, name_of, short, single


@pytest.mark.parametrize(
    ("code", "served", "expected"),
    [
        ("de", ["fr", "de"], "de"),
        ("zh", ["yue", "cmn"], "cmn"),
        ("zh", ["cmn", "zho"], "cmn"),
        ("zh-hans", ["cmn", "cmn_Hans"], "cmn_Hans"),
        ("zh_Hant", ["cmn", "cmn_Hans"], "cmn"),
        ("zh", ["cmn_Hans", "cmn_Hant"], None),
        ("nds", ["deu", "nds"], "nds"),
        ("EN-US", ["en"], "en"),
        ("pt-PT", ["pt-BR"], "pt-BR"),
        ("xx", ["de"], None),
    ],
)
def test_the_language_for_a_code(code: str, served: list[str], expected: str | None) -> None:
    assert find(code, served) == expected


BIBLIOGRAPHIC = """alb sqi arm hye baq eus bur mya chi zho cze ces dut nld fre fra geo kat ger deu
gre ell ice isl mac mkd mao mri may msa per fas rum ron slo slk tib bod wel cym"""
"""The 20 codes of ISO 639-2, each before that of ISO 639-3."""


def test_bibliographic_codes() -> None:
    codes = [canonical(code) for code in BIBLIOGRAPHIC.split()]
    assert codes[::2] == codes[1::2]
    assert (len(set(codes)), max(map(len, codes))) == (20, 2)


def test_forms_of_codes() -> None:
    assert len(TWO_LETTERS) == sum(len(line.split(", ")[2].split()) for line in LANGUAGES.splitlines())
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


WORDS = {
    "de": ("Der Hund", "die Katze", "schläft heute in der Küche", "läuft nicht über die Straße"),
    "en": ("The dog", "the cat", "sleeps in the kitchen today", "does not run across the street"),
    "cs": ("Pes", "kočka", "dnes spí v kuchyni", "neběží přes ulici"),
    "ja": ("犬は", "猫は", "今日台所で寝ています", "通りを走りません"),
}


def lines(code: str) -> list[str]:
    first, second, *rest = WORDS[code]
    return [f"{subject} {verb} {number}." for number in range(20) for subject in (first, second) for verb in rest]


@pytest.mark.parametrize("code", WORDS)
def test_the_language_of_lines(code: str) -> None:
    assert language_of(lines(code)) == code


def test_no_language_is_said_where_nothing_shows_it() -> None:
    assert language_of([]) == language_of(["word"] * 1000) == language_of(str(number) for number in range(1000)) == ""
    assert language_of([line for both in zip(lines("en"), lines("ja"), strict=True) for line in both][:9]) == ""


def test_codes() -> None:
    assert [plain(code) for code in ("pt-BR", "ger", "nb", "bs", "xx")] == ["pt", "de", "no", "hr", "xx"]
    assert [recognised(code) for code in ("pt-BR", "ger", "nb", "bs", "xx", "")] == [True] * 4 + [False] * 2
