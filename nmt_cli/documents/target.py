"""The translation of a line, as words in which the untranslatable parts are restored.

    translation, Source ──▶ Target: words (n), gaps between them, links to source words

A word that the model copied is spelled as in the document; if markup divides it there, it is divided here. A stand-in
that the model copied is replaced by its untranslatable part; a second copy is left out. If the model did not copy the
stand-in, the part replaces the words that are aligned to the stand-in. If no word is aligned, the part is `missing`,
and the projection inserts it like a tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from .segment import Escape, Translated
from .source import Source
from .words import Links, Range, links, words_of


@dataclass
class Target:
    """The words of a translation, spelled as in the document."""

    words: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    """White space before each word, and after the last word: n + 1. None at both ends."""
    links: Links = field(default_factory=list)
    spoken: list[bool] = field(default_factory=list)
    """Whether each word has a letter or a digit, or is an untranslatable part. Of the parts of a divided word, one."""
    missing: Set[int] = frozenset()
    """The source words of the untranslatable parts that the words do not contain."""
    restored: int = 0
    """Number of untranslatable parts whose stand-ins the model did not copy."""

    def add(self, gap: str, word: str, shares: dict[int, float], spoken: bool) -> None:
        """Add a word and the gap before it."""
        self.gaps.append(gap if self.words else "")
        self.words.append(word)
        self.links.append(shares)
        self.spoken.append(spoken)

    def sources(self) -> list[int]:
        """Return for each word the source word in which it has the largest share; -2 for a word without links."""
        return [max(shares, key=shares.__getitem__) if shares else -2 for shares in self.links]


def target_of(source: Source, translation: Translated, escape: Escape) -> Target:
    """Return the words of a translation."""
    text, line = translation.text, source.segment.line
    wholes = {line[source.spans[first][0] : source.spans[end - 1][1]]: (first, end) for first, end in source.wholes}
    numbers = {number: words for number, words in wholes.items() if words[0] in source.stays}
    spans = words_of(text, _edges(text, numbers))
    texts = [text[start:end] for start, end in spans]
    word_links, copies = links(line, source.spans, source.wholes, spans, translation)
    _count(word_links, copies, source.main)
    spelled, dropped = _spelled(numbers, copies, texts, word_links)
    placed = {word for words, _ in spelled.values() for word in range(*words)}
    lost = [words for number, words in numbers.items() if number not in texts]
    target = Target(missing=source.stays.keys() - placed, restored=sum(end - first for first, end in lost))
    done = index = 0
    kept = ""
    while index < len(spans):
        start, end = spans[index]
        gap = text[done:start] or (kept if text[start].isalnum() else "")
        kept = ""
        if index in dropped:
            kept = gap
            index += 1
        elif index in spelled:
            words, index = spelled[index]
            for word in range(*words):
                target.add(gap, source.word(word), {word: 1.0}, source.spoken[word])
                gap = ""
            end = spans[index - 1][1]
            if words[0] in source.stays:
                kept = "" if line[source.spans[words[1] - 1][1] :][:1].isalnum() else " "
        else:
            target.add(gap, escape(texts[index]), word_links[index], any(map(str.isalnum, texts[index])))
            index += 1
        done = end
    target.gaps.append("")
    return target


def _count(word_links: Links, copies: Mapping[int, Range], main: Sequence[int]) -> None:
    """Link the words that are no copies with words that count alone, and not with divided words that are copied."""
    divided = {word for words in copies.values() if words[1] - words[0] > 1 for word in range(*words)}
    for index in set(range(len(word_links))) - copies.keys():
        shares: dict[int, float] = {}
        for word, share in word_links[index].items():
            if word not in divided:
                shares[main[word]] = shares.get(main[word], 0.0) + share
        word_links[index] = shares


_DIGITS = re.compile(r"\d+")


def _edges(text: str, numbers: Mapping[str, Range]) -> list[int]:
    """Return the start and end of each stand-in in a text, because the model may have joined a stand-in with a word."""
    return [edge for match in _DIGITS.finditer(text) if match[0] in numbers for edge in match.span()] if numbers else []


def _spelled(
    numbers: Mapping[str, Range], copies: Mapping[int, Range], texts: Sequence[str], word_links: Links
) -> tuple[dict[int, tuple[Range, int]], set[int]]:
    """Return the target words that the document spells, and the words that repeat a stand-in.

    The former are: first target word → (source words, the index after the last target word).
    """
    spelled = {index: (words, index + 1) for index, words in copies.items() if texts[index] not in numbers}
    number_of = {word: number for number, words in numbers.items() for word in range(*words)}
    found: dict[str, list[int]] = {}
    aligned: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        if text in numbers:
            found.setdefault(text, []).append(index)
        elif index not in spelled:
            shares = [(number_of[word], share) for word, share in word_links[index].items() if word in number_of]
            for number in dict(shares):
                if sum(share for other, share in shares if other == number) > 0.5:
                    aligned.setdefault(number, []).append(index)
    for number, (first, *_) in found.items():
        spelled[first] = numbers[number], first + 1
    for number in aligned.keys() - found.keys():
        first, *others = aligned[number]
        row = sum(1 for place, index in enumerate(others, first + 1) if index == place)
        spelled[first] = numbers[number], first + 1 + row
    return spelled, {index for indices in found.values() for index in indices[1:]}
