"""Splits a text into sentences.

The splitter is the library sentencex, maintained by Wikimedia. It has rules and abbreviations for about 250 languages,
and fallbacks for the others. It needs no model. Its time is quadratic for many short sentences. So it gets a long text
in parts (`_ends`). docs/documents.md compares it with other splitters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import accumulate

from ..errors import UsageError, extra_module
from ..text.languages import base

SPLIT_SENTENCES = {"0": "never", "1": "at punctuation and line ends", "nonewlines": "at punctuation only"}
"""Values of `split_sentences`. The names are those of DeepL's interface."""
SPACES = re.compile(r"\s")
QUOTES = re.compile('[„“”"«»]')
"""A quotation mark without partner would hide the ends of all later sentences. So these marks are replaced by an
apostrophe."""
MANY_QUOTES = re.compile("['’‘„“”\"«»]{10,}")
"""Long runs of quotation marks, which would take sentencex quadratic time. They are replaced by hyphens."""
PART = 2000
"""The largest number of characters that sentencex gets at once."""
AHEAD = 100
"""So many characters behind a sentence decide whether it ends there."""
LINES = re.compile(r"(?<=\n)")

Splitter = Callable[[str], list[tuple[int, int]]]
"""Text → the start and end of each sentence, without white space at its ends."""


def splitter(language: str, split_sentences: str) -> Splitter:
    """Return the splitter of a language, given by its ISO code. "" or an unknown code gives common rules.

    Raises UsageError.
    """
    if split_sentences not in SPLIT_SENTENCES:
        choices = ", ".join(f"{name!r} ({where})" for name, where in SPLIT_SENTENCES.items())
        raise UsageError(f"split_sentences is {split_sentences!r}: expected {choices}.")
    if split_sentences == "0":
        return whole
    sentencex, code = extra_module("sentencex", "documents", "a document"), base(language) or "en"

    def split(text: str) -> list[tuple[int, int]]:
        sentences, start = [], 0
        for line in LINES.split(text) if split_sentences == "1" else [text]:
            plain, begin = _plain(line), 0
            for end in _ends(plain, lambda part: sentencex.segment(code, part)):
                sentences += whole(plain[begin:end], start + begin)
                begin = end
            start += len(line)
        return sentences

    return split


def _ends(text: str, segment: Callable[[str], list[str]]) -> Iterator[int]:
    """Yield the position behind each sentence of a text. `segment` gets at most PART characters at once.

    A part begins with a sentence. A longer sentence is seen in parts that overlap by half.
    """
    start = seen = 0  # no more sentence ends before `seen`
    while start + PART < len(text):
        ends = accumulate(map(len, segment(text[start : start + PART])), initial=start)
        last = start + PART - AHEAD
        found = [end for end in ends if seen < end <= last]
        yield from found
        start, seen = found[-1] if found else start + PART // 2, last
    yield from (end for end in accumulate(map(len, segment(text[start:])), initial=start) if end > seen)


def _plain(text: str) -> str:
    """Return the text with characters replaced for sentencex. The length stays the same."""
    return QUOTES.sub("'", MANY_QUOTES.sub(lambda run: "-" * len(run[0]), SPACES.sub(" ", text)))


def whole(text: str, start: int = 0) -> list[tuple[int, int]]:
    """Return the whole text, without white space at its ends, as one sentence. Return [] if the text is blank."""
    stripped = text.strip()
    first = start + len(text) - len(text.lstrip())
    return [(first, first + len(stripped))] if stripped else []
