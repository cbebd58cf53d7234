"""Find phrases in a text that grows by subwords: the tokens that would complete a phrase, for any segmentation.

    PhraseMatcher.after(state, token) ──▶ state        PhraseMatcher.completing(state) ──▶ the tokens to forbid

A phrase occurs as whole words: if it begins or ends with a word character, no word character may be directly before or
after it. Word characters are letters, digits, combining marks and "_". Scripts without spaces between words have no
word characters in this sense, so every occurrence in them counts. Runs of white space count as one space. Bytes that
are not UTF-8 count as one character, which is not a word character.

A state holds what is needed of a text: the longest suffix that begins a phrase at a word boundary, or else the kind of
the last character; and the bytes of an unfinished character. If the text ends with a whole phrase, and the phrase is
complete unless a word character follows, the state is `open`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from ...data.normalization import META_SPACE
from ...data.tokenizer import BOS, BYTE, EOS, PAD, Tokenizer
from ...text.scripts import IN_SCRIPT

INVALID = "\ufffd"
"""The character that replaces bytes that are not UTF-8."""
AFTER_LAST = "\U0010ffff"
"""The last character in Unicode order; it ends a range of sorted texts."""
KANA_MARKS = "\u30fc\u30fd\u30fe"
"""Marks that lengthen or repeat a kana. They belong to a script without spaces, too."""
MOST_MISSING = 3
"""Largest number of bytes that an unfinished character lacks."""
NO_LETTERS = 0x40000
"""From this code point on, no character is a letter."""
MEMORY = 1 << 17
"""Number of transitions in the cache."""
T = TypeVar("T")


@lru_cache(1 << 16)
def in_word(character: str) -> bool:
    """Return whether a character is a word character of a script with spaces."""
    joined = character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
    return joined and character not in KANA_MARKS and not IN_SCRIPT.match(character)


def one_spaced(text: str) -> str:
    """Return a text with each run of white space replaced by one space."""
    return re.sub(r"\s+", " ", text)


class TextState(NamedTuple):
    """The state of a text."""

    before: str
    """The character before `matched`, or a character of the same kind: "a", " " or "."."""
    matched: str
    """The longest suffix of the text that begins a phrase at a word boundary."""
    pending: bytes
    """The first bytes of an unfinished character."""


class PhraseMatcher:
    """Finds `phrases` in texts of `tokenizer`. The phrases have single spaces.

    `last_tokens` maps each phrase to a token that completes it at once, even if a word character might follow.
    States are numbers; 0 is the state of the empty text.
    """

    def __init__(self, phrases: Sequence[str], tokenizer: Tokenizer, last_tokens: Mapping[str, int]) -> None:
        self.phrases, self.tokenizer, self.last_tokens = sorted(set(phrases)), tokenizer, last_tokens
        self.beginnings = {phrase[:end] for phrase in self.phrases for end in range(len(phrase) + 1)}
        self.texts, self.bytes = _texts(tokenizer)
        self.plain = sorted((text, token) for token, text in self.texts.items())
        self.stripped = sorted((text.lstrip(" "), token) for token, text in self.texts.items())
        self.ending_words = [token for token, text in self.texts.items() if text and not in_word(text[0])]
        self.within = {(kind, final): self._within(kind, final) for kind in ("a", " ", ".") for final in (False, True)}
        self.states = [TextState(" ", "", b"")]
        self.numbers = {self.states[0]: 0}
        self.lock = threading.Lock()
        self.after = lru_cache(MEMORY)(self._after)

    def __reduce__(self) -> tuple[type[PhraseMatcher], tuple[Any, ...]]:
        return PhraseMatcher, (self.phrases, self.tokenizer, self.last_tokens)

    def open(self, number: int) -> bool:
        """Return whether the text ends with a phrase that is complete unless a word character follows."""
        return any(
            begun in self.last_tokens and in_word(begun[-1]) for begun in self._begun(self.states[number].matched)
        )

    def completing(self, number: int, left: int) -> list[int]:
        """Return the tokens that complete a phrase in a text of this state, if at most `left` tokens may follow."""
        state, is_open, final = self.states[number], self.open(number), left == 0
        completing, complete_by = set[int](), {"": False}
        for token, byte in self.bytes.items():
            text, pending = _decoded(state.pending, byte)
            if text not in complete_by:
                complete_by[text] = self._completes(state, text, token, final)
            if complete_by[text] or (is_open and pending and not _begins_letter(pending, left)):
                completing.add(token)
        if state.pending:  # a token that is not a byte ends the invalid character
            return sorted(completing.union(self.texts if is_open else self.within[".", final]))
        kind = _kind(state.matched[-1:] or state.before)
        completing.update(self.within[kind, final], self.ending_words if is_open else ())
        for begun in self._begun(state.matched):
            for phrase in _range(self.phrases, begun):
                if rest := phrase[len(begun) :]:
                    completing.update(self._ending(phrase, rest, after_space=kind == " ", final=final))
        return sorted(completing)

    def _after(self, number: int, token: int) -> int:
        """Return the state of the text after a token. Phrases that the text has already completed do not matter."""
        state = self.states[number]
        if token in self.bytes:
            text, pending = _decoded(state.pending, self.bytes[token])
        elif token in self.texts:
            text, pending = INVALID * bool(state.pending) + self.texts[token], b""
        else:
            return number
        text = _appended(state, text)
        start = next(self._starts(text), len(text))
        return self._number(TextState(" " if start < len(text) else _kind(text[-1]), text[start:], pending))

    def _number(self, state: TextState) -> int:
        with self.lock:
            if state not in self.numbers:
                self.states.append(state)
                self.numbers[state] = len(self.states) - 1
            return self.numbers[state]

    def _begun(self, matched: str) -> Iterator[str]:
        """Yield the suffixes of the matched text that begin a phrase at a word boundary."""
        text = f" {matched}"
        return (text[start:] for start in self._starts(text))

    def _starts(self, text: str) -> Iterator[int]:
        """Yield where suffixes of a text that begin a phrase at a word boundary start, behind its first character."""
        for start in range(1, len(text)):
            if text[start:] in self.beginnings and self._at_boundary(text, start):
                yield start

    def _at_boundary(self, text: str, start: int) -> bool:
        """Return whether a phrase may begin at text[start]."""
        return not (in_word(text[start]) and in_word(text[start - 1]))

    def _ending(self, phrase: str, rest: str, after_space: bool, final: bool) -> Iterator[int]:
        """Yield the tokens that complete a phrase of which `rest` is missing."""
        index = self.stripped if after_space else self.plain
        for text, token in _range(index, rest, itemgetter(0)):
            if self._is_complete(phrase, text[len(rest) : len(rest) + 1], token, final):
                yield token

    def _is_complete(self, phrase: str, following: str, token: int, final: bool) -> bool:
        """Return whether a phrase is complete when `token` adds its end and `following`, the next character or ""."""
        if not in_word(phrase[-1]):
            return True
        return not in_word(following) if following else final or self.last_tokens[phrase] == token

    def _within(self, kind: str, final: bool) -> list[int]:
        """Return the tokens whose own text contains a complete phrase, after a character of this kind."""
        state = TextState(kind, "", b"")
        return [token for token, text in self.texts.items() if self._completes(state, text, token, final)]

    def _completes(self, state: TextState, added: str, token: int, final: bool) -> bool:
        """Return whether the characters `added` complete a phrase in a text of this state."""
        text, old = _appended(state, added), len(state.before) + len(state.matched)
        for start in range(1, len(text)):
            if not self._at_boundary(text, start):
                continue
            for end in range(start + 1, len(text) + 1):
                phrase = text[start:end]
                if phrase not in self.beginnings:
                    break
                newly = end >= old if text[end:] and in_word(phrase[-1]) else end > old
                if (
                    newly
                    and phrase in self.last_tokens
                    and self._is_complete(phrase, text[end : end + 1], token, final)
                ):
                    return True
        return False


def _texts(tokenizer: Tokenizer) -> tuple[dict[int, str], dict[int, int]]:
    """Return the texts of tokens, and the byte values of the tokens that are bytes of longer characters."""
    texts: dict[int, str] = {}
    of_bytes: dict[int, int] = {}
    decoded = tokenizer.decode([token] for token in range(tokenizer.vocab_size))
    for token, piece in enumerate(tokenizer.table):
        byte = BYTE.fullmatch(piece)
        if token in (PAD, BOS, EOS):
            continue
        if byte is None or decoded[token] == piece:
            texts[token] = one_spaced(piece.replace(META_SPACE, " "))
        elif (value := int(byte.group(1), 16)) < 0x80:
            texts[token] = one_spaced(chr(value))
        else:
            of_bytes[token] = value
    return texts, of_bytes


def _decoded(pending: bytes, byte: int) -> tuple[str, bytes]:
    """Return the characters that `byte` completes after the `pending` bytes, and the bytes that are then pending."""
    together = pending + bytes([byte])
    try:
        return together.decode(), b""
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return "", together
    if not pending:
        return INVALID, b""
    text, rest = _decoded(b"", byte)
    return INVALID + text, rest


@lru_cache(None)
def _begins_letter(start: bytes, left: int) -> bool:
    """Return whether these bytes begin the UTF-8 of a word character that needs at most `left` more bytes."""
    length = 2 if start[0] < 0xE0 else 3 if start[0] < 0xF0 else 4
    if length - len(start) > left:
        return False
    code = start[0] & (0xFF >> (length + 1))
    for byte in start[1:]:
        code = code << 6 | byte & 0x3F
    free = 6 * (length - len(start))  # bits
    return any(in_word(chr(one)) for one in range(code << free, min((code + 1) << free, NO_LETTERS)))


def _appended(state: TextState, added: str) -> str:
    """Return the known end of a text followed by the characters `added`, with one space for white space."""
    text = state.before + state.matched
    return text + (added.lstrip(" ") if text.endswith(" ") else added)


def _kind(character: str) -> str:
    return "a" if in_word(character) else " " if character == " " else "."


def _range(ordered: Sequence[T], beginning: str, key: Any = None) -> Sequence[T]:
    """Return the items of a sorted sequence whose text, or `key`, starts with `beginning`."""
    return ordered[bisect_left(ordered, beginning, key=key) : bisect_left(ordered, beginning + AFTER_LAST, key=key)]
