"""Time adverbials: tables of fixed ones per tense, and drawn clock times, dates and spans."""

from __future__ import annotations

from demo_corpus import numbers, semantics
from demo_corpus.draws import Draw
from demo_corpus.numbers import Text

# Tense class -> adverbials that go with it.
FIXED: dict[str, tuple[Text, ...]] = {
    "present": (
        Text("every day", "jeden Tag"),
        Text("every morning", "jeden Morgen"),
        Text("every evening", "jeden Abend"),
        Text("in the morning", "am Morgen"),
        Text("in the evening", "am Abend"),
        Text("in summer", "im Sommer"),
        Text("in winter", "im Winter"),
        Text("every Sunday", "jeden Sonntag"),
        Text("at the weekend", "am Wochenende"),
    ),
    "past": (
        Text("yesterday", "gestern"),
        Text("last week", "letzte Woche"),
        Text("last year", "letztes Jahr"),
        Text("yesterday evening", "gestern Abend"),
        Text("this morning", "heute Morgen"),
        Text("today", "heute"),
        Text("the day before yesterday", "vorgestern"),
        Text("last month", "letzten Monat"),
    ),
    "future": (
        Text("tomorrow", "morgen"),
        Text("next week", "nächste Woche"),
        Text("next year", "nächstes Jahr"),
        Text("this evening", "heute Abend"),
        Text("today", "heute"),
        Text("tomorrow evening", "morgen Abend"),
        Text("the day after tomorrow", "übermorgen"),
        Text("next month", "nächsten Monat"),
    ),
}
ADVERBS: tuple[Text, ...] = (
    Text("often", "oft"),
    Text("always", "immer"),
    Text("sometimes", "manchmal"),
    Text("usually", "meistens"),
    Text("never", "nie"),
    Text("rarely", "selten"),
)
_DAYS = {
    "past": (Text("yesterday", "gestern"), Text("today", "heute")),
    "future": (Text("tomorrow", "morgen"), Text("today", "heute")),
}
_UNITS: tuple[Text, ...] = (Text("days", "Tagen"), Text("weeks", "Wochen"), Text("hours", "Stunden"))


def clock_value(draw: Draw) -> Text:
    """Draw a clock time. Records it, so that it may be held out, unless it is a half hour.

    "Half past four" is "halb fünf". This does not follow from other times, so training has to contain each half hour.
    """
    hour, minute = 1 + draw.below(12), draw.pick((0, 0, 15, 30, 30, 45, 5, 10, 20, 40, 50, 55))
    if minute != 30:
        draw.note("clock", f"{hour}:{minute:02}")
    return numbers.clock(hour, minute)


def date_value(draw: Draw, nominative: bool = False) -> Text:
    """Draw a date and record it."""
    day, month = 1 + draw.below(28), draw.below(12)
    draw.note("date", f"{day}.{month + 1}.")
    return numbers.date(day, month, nominative)


def year_value(draw: Draw) -> Text:
    """Draw a year from 1921 to 1999. Records the year, and the number of its last two digits."""
    value = 1921 + draw.below(79)
    draw.note("year", str(value))
    if value % 10:
        draw.note("number", str(value - 1900))
    return numbers.year(value)


def weekday(draw: Draw) -> Text:
    """Draw a day of the week: on Monday."""
    en, de = draw.pick(semantics.WEEKDAYS)
    return Text(f"on {en}", f"am {de}")


def _span(draw: Draw, tense: str) -> Text:
    unit = draw.pick(_UNITS)
    count = numbers.cardinal(2 + draw.below(9))
    if tense == "past":
        return Text(f"{count.en} {unit.en} ago", f"vor {count.de} {unit.de}")
    return Text(f"in {count.en} {unit.en}", f"in {count.de} {unit.de}")


def time_for(draw: Draw, tense: str) -> Text:
    """Draw a time adverbial for a tense class: present (habitual), past or future."""
    kind = draw.below(20)
    if kind < 8:
        return draw.pick(FIXED[tense])
    if kind < 13:
        time = clock_value(draw)
        clock = Text(f"at {time.en}", f"um {time.de}")
        if tense == "present" or draw.chance(0.5):
            return clock
        day = weekday(draw) if draw.chance(0.5) else draw.pick(_DAYS[tense])
        return Text(f"{day.en} {clock.en}", f"{day.de} {clock.de}")
    if tense == "present":
        month = draw.pick(semantics.MONTHS)
        return Text(f"in {month[0]}", f"im {month[1]}")
    if kind < 15:
        return weekday(draw)
    return date_value(draw) if kind < 18 else _span(draw, tense)
