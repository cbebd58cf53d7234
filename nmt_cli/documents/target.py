"""The translation of a line, as words in which the untranslatable parts are restored.

    translation, stand-ins ──▶ Target: words (n), gaps between them, links to source words

A stand-in that the model copied is replaced by its untranslatable part; a second copy is left out. If the model did not
copy the stand-in, the part replaces the words that are aligned to the stand-in. If no word is aligned, the part is
`missing`, and the projection inserts it like a tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .segment import Escape, Segment, Translated
from .words import Links, Span, links, words_of


@dataclass
class Target:
    """The words of a translation, spelled as in the document."""

    words: list[str]
    gaps: list[str]
    """White space before each word, and after the last word: n + 1."""
    links: Links
    spoken: list[bool] = field(default_factory=list)
    """Whether each word has a letter or a digit, or is an untranslatable part."""
    missing: list[int] = field(default_factory=list)
    """Indices (in the segment) of the untranslatable parts that the words do not contain."""


def target_of(segment: Segment, source_words: Sequence[Span], translation: Translated, escape: Escape) -> Target:
    """Return the words of a translation. `source_words` are the words of the line."""
    text = translation.text
    numbers = {segment.line[stay.start : stay.end]: part for part, stay in enumerate(segment.stays)}
    spans = words_of(text, _edges(text, numbers))
    word_links = links(segment.line, source_words, spans, translation)
    part_of_word = parts_of_words(segment, source_words)
    replacements, dropped = _replacements(numbers, part_of_word, [text[start:end] for start, end in spans], word_links)
    placed = {part for part, _ in replacements.values()}
    target = Target([], [], [], missing=[part for part in range(len(segment.stays)) if part not in placed])
    sources: dict[int, list[int]] = {}
    for word, part in part_of_word.items():
        sources.setdefault(part, []).append(word)
    done = index = 0
    kept = ""
    while index < len(spans):
        start, end = spans[index]
        gap = escape(text[done:start]) or (kept if text[start].isalnum() else "")
        kept = ""
        if index in dropped:
            kept = gap
            index += 1
        elif index in replacements:
            part, index = replacements[index]
            target.gaps.append(gap)
            target.words.append(segment.stays[part].raw)
            target.links.append(dict.fromkeys(sources[part], 1.0))
            target.spoken.append(True)
            end = spans[index - 1][1]
            kept = "" if segment.line[segment.stays[part].end :][:1].isalnum() else " "
        else:
            target.gaps.append(gap)
            target.words.append(escape(text[start:end]))
            target.links.append(word_links[index])
            target.spoken.append(any(map(str.isalnum, text[start:end])))
            index += 1
        done = end
    target.gaps.append("")
    return target


_DIGITS = re.compile(r"\d+")

Replacements = dict[int, tuple[int, int]]
"""First replaced target word → (the untranslatable part, the index after the last replaced target word)."""


def _edges(text: str, numbers: Mapping[str, int]) -> list[int]:
    """Return the start and end of each stand-in in a text, because the model may have joined a stand-in with a word."""
    return [edge for match in _DIGITS.finditer(text) if match[0] in numbers for edge in match.span()] if numbers else []


def parts_of_words(segment: Segment, source_words: Sequence[Span]) -> dict[int, int]:
    """Return the untranslatable part of each source word that is inside one."""
    part_of_word: dict[int, int] = {}
    part = 0
    for word, (start, end) in enumerate(source_words):
        while part < len(segment.stays) and segment.stays[part].end <= start:
            part += 1
        if part < len(segment.stays) and segment.stays[part].start <= start and end <= segment.stays[part].end:
            part_of_word[word] = part
    return part_of_word


def _replacements(
    numbers: Mapping[str, int], part_of_word: Mapping[int, int], texts: Sequence[str], word_links: Links
) -> tuple[Replacements, set[int]]:
    """Return the target words to replace by untranslatable parts, and the words that repeat a stand-in."""
    copies: dict[int, list[int]] = {}
    aligned: dict[int, list[int]] = {}
    for index, text in enumerate(texts):
        if text in numbers:
            copies.setdefault(numbers[text], []).append(index)
            continue
        shares: dict[int, float] = {}
        for word, share in word_links[index].items():
            if word in part_of_word:
                shares[part_of_word[word]] = shares.get(part_of_word[word], 0.0) + share
        for part, share in shares.items():
            if share > 0.5:
                aligned.setdefault(part, []).append(index)
    replacements: Replacements = {}
    for part, indices in copies.items():
        replacements[indices[0]] = part, indices[0] + 1
    for part in aligned.keys() - copies.keys():
        first, *others = aligned[part]
        last = first
        for index in others:
            if index != last + 1:
                break
            last = index
        replacements[first] = part, last + 1
    return replacements, {index for indices in copies.values() for index in indices[1:]}
