"""The translation of a line, as words with the untranslatable parts in their places again.

    translation, stand-ins ──▶ Target: words (n), gaps between them, links to source words

A stand-in that the model copied becomes the part that it stands for. Where the model did not copy it, the words that are aligned to
it are replaced. Where there are none, the part is `missing`, and the projection inserts it like a tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .segment import Escape, Segment, Stay, Translated
from .words import Links, Span, links, words_of


@dataclass
class Target:
    """The words of a translation as the document writes them."""

    words: list[str]
    gaps: list[str]
    """White space before each word, and behind the last one: n + 1."""
    links: Links
    missing: list[int] = field(default_factory=list)
    """Untranslatable parts that the words do not contain, by index in the segment."""


def target_of(segment: Segment, source_words: Sequence[Span], translation: Translated, escape: Escape) -> Target:
    """Return the words of a translation, `source_words` are those of the line."""
    text = translation.text
    spans = words_of(text)
    found = links(segment.line, source_words, spans, translation)
    parts, missing = _places(segment, source_words, text, spans, found)
    target = Target([], [], [], missing)
    done = index = 0
    while index < len(spans):
        start, end = spans[index]
        target.gaps.append(escape(text[done:start]))
        stay = parts.get(index)
        if stay is None:
            target.words.append(escape(text[start:end]))
            target.links.append(found[index])
            index += 1
        else:
            part, index = stay
            end = spans[index - 1][1]
            target.words.append(segment.stays[part].raw)
            target.links.append(dict.fromkeys(_own(segment.stays[part], source_words), 1.0))
        done = end
    target.gaps.append("")
    return target


Places = dict[int, tuple[int, int]]
"""First target word → the untranslatable part that replaces it, and the target word behind those that it replaces."""


def _places(segment: Segment, source_words: Sequence[Span], text: str, spans: Sequence[Span], found: Links) -> tuple[Places, list[int]]:
    """Return where the untranslatable parts are, and those that are nowhere."""
    texts = [text[start:end] for start, end in spans]
    places: Places = {}
    lost = []
    taken: set[int] = set()
    for part, stay in enumerate(segment.stays):
        word = segment.line[stay.start : stay.end]
        copies = [index for index, copy in enumerate(texts) if copy == word and index not in taken]
        if copies:
            places[copies[0]] = (part, copies[0] + 1)
            taken.add(copies[0])
        else:
            lost.append(part)
    missing = []
    for part in lost:
        own = set(_own(segment.stays[part], source_words))
        aligned = [index for index, shares in enumerate(found) if index not in taken and sum(shares.get(word, 0.0) for word in own) > 0.5]
        if not aligned:
            missing.append(part)
            continue
        first = aligned[0]
        last = first
        while last + 1 in aligned:
            last += 1
        places[first] = (part, last + 1)
        taken.update(range(first, last + 1))
    return places, missing


def _own(stay: Stay, source_words: Sequence[Span]) -> list[int]:
    """Return the source words of a stand-in."""
    return [index for index, (start, end) in enumerate(source_words) if stay.start <= start and end <= stay.end]
