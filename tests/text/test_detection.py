"""The language of a sample of lines; the server's tests have `detect`."""

from __future__ import annotations

import pytest

from nmt_cli.text.detection import language_of, plain, recognised

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
