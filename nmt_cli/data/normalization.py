"""NFC as a rule of SentencePiece, and the characters that no reader sees.

    words and counts ──▶ kept ──▶ nfc ──▶ SentencePieceNormalizer ──▶ stored in the model file, so every export has it
    Tokenizer, line  ──▶ leaving_out ──▶ the line without what its vocabulary does not know and no reader sees

The rule `nfc` keeps the text. It composes letters and their marks (Unicode's canonical composition). It leaves out
characters that no reader sees (control characters, the soft hyphen, …) and writes white space as a plain space, except
for those that are frequent in the training text, because scripts and typography need them: JOINERS and WIDE_SPACES.
Some letters are decomposed in NFC (`excluded`, such as the Bengali U+09DF): they are written as the training text
writes them most of the time.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from ..text.lines import well_formed

SPACES = "\t\n\v\f\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space other than the plain space."""
INVISIBLE = (
    "\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # control characters
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # Default_Ignorable_Code_Point
)
"""Characters that no reader sees, as Unicode lists them."""
JOINERS = "\u061c\u180b-\u180d\u180f\u200b-\u200f\ufe00-\ufe0f"
"""Joiners and the zero-width space, marks of direction, the variation selectors of Mongolian and of emoji."""
WIDE_SPACES = "\xa0\u202f\u3000"
KEEPABLE = re.compile(f"[{JOINERS}{WIDE_SPACES}]")
KEPT_COUNT, KEPT_JOINER, KEPT_SPACE = 20, 1e-4, 1e-2
"""A character of KEEPABLE is kept if so many words of the text have it, and this share of the words: a joiner, a space.

A space needs more: as a part of words it makes more different words, and most texts have a few of them by accident."""
UNSEEN = re.compile(f"[{SPACES}{INVISIBLE}]")
REPLACEMENT = "\ufffd"
"""It stands for bytes that are not UTF-8."""
META_SPACE = "\u2581"
"""SentencePiece's character for a space: the lower one eighth block."""


def kept(words: Iterable[tuple[str, int]]) -> frozenset[str]:
    """Return the characters of KEEPABLE and `excluded()` that stay as they are, for the words of a text with counts."""
    seen: Counter[str] = Counter()
    total = 0
    pattern = re.compile("|".join([KEEPABLE.pattern, *excluded(), *excluded().values()]))
    for word, count in words:
        total += count
        if not word.isascii():
            seen.update(dict.fromkeys(pattern.findall(word), count))
    shares = {
        character: KEPT_SPACE if character.isspace() else KEPT_JOINER for character in _ranges(JOINERS + WIDE_SPACES)
    }
    frequent = {character for character, share in shares.items() if seen[character] >= max(KEPT_COUNT, share * total)}
    return frozenset(frequent | {letter for letter, form in excluded().items() if seen[letter] > seen[form]})


def nfc(kept: frozenset[str]) -> Any:
    """Return the rule `nfc` as a SentencePieceNormalizer. The characters `kept` stay as they are."""
    import sentencepiece

    unseen = dict.fromkeys(_ranges(INVISIBLE), "") | dict.fromkeys(_ranges(SPACES), " ")
    rules = _compositions() | unseen | {META_SPACE: " ", REPLACEMENT: " "}
    letters = {form: letter for letter, form in excluded().items() if letter in kept}
    rules = {text: letters.get(form, form) for text, form in rules.items()} | letters
    sentencepiece.set_min_log_level(2)
    return sentencepiece.SentencePieceNormalizer(
        norm_map=sorted((text, form) for text, form in rules.items() if text not in {*kept, "\0"})
    )


def nearly(text: str) -> str:
    """Return a text as the rule `nfc` writes it where every character that can be kept is kept.

    It needs no vocabulary.
    """
    if text.isascii() and text.isprintable():
        return text
    composed = re.sub(f"[^{''.join(excluded())}]+", lambda match: unicodedata.normalize("NFC", match[0]), text)
    return UNSEEN.sub(lambda match: match[0] if KEEPABLE.match(match[0]) else " " * match[0].isspace(), composed)


@cache
def excluded() -> dict[str, str]:
    """Return the letters that NFC writes as several characters (its composition exclusions), each with its NFC."""
    forms = {character: unicodedata.normalize("NFC", character) for character in _letters()}
    return {character: form for character, form in forms.items() if len(form) > 1}


def _letters() -> Iterable[str]:
    """Return all characters in the planes of Unicode that hold decomposable ones."""
    return map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x30000)])


def _ranges(characters: str) -> list[str]:
    """Return the characters of a regular expression's class."""
    ranges = re.findall("(.)(?:-(.))?", characters, re.DOTALL)
    return [chr(code) for first, last in ranges for code in range(ord(first), ord(last or first) + 1)]


@cache
def _compositions() -> dict[str, str]:
    """Return the strings that NFC composes or replaces, each with its NFC: marks of one character in any order."""
    composed = {}
    for character in _letters():
        decomposed = unicodedata.normalize("NFD", character)
        if decomposed == character:
            continue
        for text in {character, *_spellings(decomposed)}:
            if (form := unicodedata.normalize("NFC", text)) != text:
                composed[text] = form
    return composed


def _spellings(decomposed: str) -> Iterable[str]:
    """Return what is canonically equivalent to a decomposed character: marks reordered, a beginning composed."""
    for marks in set(itertools.permutations(decomposed[1:])):
        text = decomposed[0] + "".join(marks)
        if unicodedata.normalize("NFD", text) == decomposed:
            yield from (unicodedata.normalize("NFC", text[:end]) + text[end:] for end in range(1, len(text) + 1))


def replacing(replacements: Mapping[str, str], controls: bool) -> Callable[[str], str] | None:
    """Return a function that makes these replacements in a text, see `sentencepiece_model.Extension`; or None."""
    if not replacements and not controls:
        return None
    with_spaces = "".join(re.escape(old[0]) for old in replacements if len(old) > 1)
    others = "".join(re.escape(old) for old in replacements if len(old) == 1)
    classes = [f"[{with_spaces}] *"] * bool(with_spaces) + [f"[{others}]"] * bool(others)
    anything = re.compile("|".join(classes) or r"(?!)")
    new = {old[0]: text for old, text in replacements.items()}
    unchanged = not any(old.isascii() for old in new)  # plain ASCII, which most texts are

    def replaced(text: str) -> str:
        if unchanged and text.isascii() and text.isprintable():
            return text
        text = anything.sub(lambda match: new[match[0][0]], text)
        if controls and not text.isprintable():
            text = "".join(" " if unicodedata.category(character)[0] == "C" else character for character in text)
        return text

    return replaced


def leaving_out(unknown: Callable[[str], bool]) -> Callable[[str], str]:
    """Return a function that leaves out of a line what no reader sees and a vocabulary does not know.

    Unknown white space becomes a plain space. The result is well formed: SentencePiece takes nothing else. `unknown`
    returns whether the vocabulary has to write a character in bytes, or as <unk>.
    """

    @cache
    def written(character: str) -> str:
        return (" " if character.isspace() else "") if unknown(character) else character

    def left_out(text: str) -> str:
        if text.isascii() and text.isprintable():
            return text
        return UNSEEN.sub(lambda match: written(match[0]), well_formed(text))

    return left_out
