"""Numbers, clock times, dates, years and prices in words, English and German."""

from __future__ import annotations

from typing import NamedTuple

from demo_corpus.semantics import MONTHS


class Text(NamedTuple):
    """A piece of text in both languages."""

    en: str
    de: str


_EN = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_DE = (
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
)
_EN_TENS = ("-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_DE_TENS = ("-", "-", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
_EN_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_DE_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}


def cardinal(value: int) -> Text:
    """Return a number from 0 to 999 in words: "three hundred and twenty-one", "dreihunderteinundzwanzig"."""
    if value >= 100:
        hundreds, rest = divmod(value, 100)
        tail = cardinal(rest) if rest else Text("", "")
        en = f"{_EN[hundreds]} hundred" + (f" and {tail.en}" if rest else "")
        return Text(en, _unit(hundreds) + "hundert" + tail.de)
    if value < 20:
        return Text(_EN[value], _DE[value])
    tens, unit = divmod(value, 10)
    if not unit:
        return Text(_EN_TENS[tens], _DE_TENS[tens])
    return Text(f"{_EN_TENS[tens]}-{_EN[unit]}", f"{_unit(unit)}und{_DE_TENS[tens]}")


def _unit(digit: int) -> str:
    """Return a digit as the first part of a German number: ein, not eins."""
    return "ein" if digit == 1 else _DE[digit]


def ordinal(value: int, ending: str) -> Text:
    """Return an ordinal from 1 to 31. `ending` is the German adjective ending: "third", "dritten"."""
    en, de = cardinal(value)
    head, dash, last = en.rpartition("-")
    regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    stem = _DE_ORDINALS.get(value) or de + ("t" if value < 20 else "st")
    return Text(head + dash + _EN_ORDINALS.get(last, regular), stem + ending)


def clock(hour: int, minute: int) -> Text:
    """Return a clock time, hour 1 to 12: "half past seven" is "halb acht"."""
    following = hour % 12 + 1
    if minute == 0:
        return Text(f"{_EN[hour]} o'clock", f"{_unit(hour)} Uhr")
    if minute == 30:
        return Text(f"half past {_EN[hour]}", f"halb {_DE[following]}")
    if minute == 15:
        return Text(f"a quarter past {_EN[hour]}", f"Viertel nach {_DE[hour]}")
    if minute == 45:
        return Text(f"a quarter to {_EN[following]}", f"Viertel vor {_DE[following]}")
    if minute < 30:
        return Text(f"{cardinal(minute).en} past {_EN[hour]}", f"{cardinal(minute).de} nach {_DE[hour]}")
    remaining = cardinal(60 - minute)
    return Text(f"{remaining.en} to {_EN[following]}", f"{remaining.de} vor {_DE[following]}")


def date(day: int, month: int, nominative: bool = False) -> Text:
    """Return a date, month 0 to 11: "on the third of May" / "am dritten Mai".

    With `nominative` it is "the third of May" / "der dritte Mai".
    """
    en_month, de_month = MONTHS[month]
    number = ordinal(day, "e" if nominative else "en")
    if nominative:
        return Text(f"the {number.en} of {en_month}", f"der {number.de} {de_month}")
    return Text(f"on the {number.en} of {en_month}", f"am {number.de} {de_month}")


def year(value: int) -> Text:
    """Return a year of the twentieth century, 1920 to 1999: "nineteen sixty-three"."""
    rest = cardinal(value - 1900)
    return Text(f"nineteen {rest.en}", f"neunzehnhundert{rest.de}")


def price(euros: int, cents: int) -> Text:
    """Return a price in the accusative, two euros or more: "four euros and fifty cents" is "vier Euro fünfzig"."""
    whole = cardinal(euros)
    if not cents:
        return Text(f"{whole.en} euros", f"{whole.de} Euro")
    part = cardinal(cents)
    return Text(f"{whole.en} euros and {part.en} cents", f"{whole.de} Euro {part.de}")
