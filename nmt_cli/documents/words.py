"""Words of a line and of its translation, and the links between them.

    tokens, alignment of tokens ──▶ spans of the tokens in the text
        ──▶ links: for each target word, shares of source words

A word is a run of letters, their marks, and digits; it may have a hyphen, apostrophe, full stop or comma inside. Every
other character is a separate word. So is every letter, with its marks, of the scripts that put no spaces between words.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from itertools import groupby

from ..data.normalization import META_SPACE, UNSEEN
from ..data.tokenizer import BYTE
from ..text.scripts import UNSPACED
from .segment import Translated

Span = tuple[int, int]
"""Offset of the first character, and the offset after the last one."""
Range = tuple[int, int]
"""Index of the first word, and the index after the last word."""
Links = list[dict[int, float]]
"""For each target word: source word → its share, 0 to 1. Empty if no source word is known."""

MARKS = "\u200b-\u200f" + "".join(
    mark for mark in map(chr, range(0x300, 0xFE30)) if unicodedata.category(mark)[0] == "M"
)
"""The marks of letters, and the characters that join letters, keep them apart or say their direction."""
_LETTERS = rf"(?:(?![{UNSPACED}])[\w{MARKS}])+"
WORD = re.compile(rf"[{UNSPACED}][{MARKS}]*|{_LETTERS}(?:[-‐'’.,·]{_LETTERS})*|\S")
NEAR = 64
"""Number of characters after the expected position in which a token is searched."""


def words_of(text: str, cuts: Iterable[int] = ()) -> list[Span]:
    """Return the span of each word; `cuts` are offsets at which words are divided."""
    spans: list[Span] = []
    waiting = deque(sorted(set(cuts)))
    for match in WORD.finditer(text):
        start, end = match.span()
        while waiting and waiting[0] < end:
            cut = waiting.popleft()
            if cut > start:
                spans.append((start, cut))
                start = cut
        spans.append((start, end))
    return spans


def token_spans(tokens: Sequence[str], text: str) -> list[Span]:
    """Return the span of each token in a text.

    The tokens are SentencePiece's strings (▁ for a space, <0xC3> for a byte).

    The tokens may come from the normalised text (NFC or NFKC, without characters that no reader sees). The span of a
    token that is not found is empty.
    """
    stream, origin = _decomposed(text)
    spans: list[Span] = []
    done = 0
    for piece, count in _pieces(tokens):
        position = stream.find(piece, done, done + len(piece) + NEAR) if piece else done
        start = position if position >= 0 else min(done, len(stream))
        done = start + len(piece) if position >= 0 else start
        spans += [(origin[start], origin[done - 1] + 1) if done > start else (origin[start], origin[start])] * count
    return spans


def _decomposed(text: str) -> tuple[str, list[int]]:
    """Return a text in NFKD without white space and the unseen, and each character's index in `text`, and the end's."""
    if text.isascii():
        origin = [index for index, character in enumerate(text) if not character.isspace()]
        return "".join(text[index] for index in origin), [*origin, len(text)]
    pairs = [(form, index) for index, character in enumerate(text) for form in _form(character)]
    return "".join(form for form, _ in pairs), [*(index for _, index in pairs), len(text)]


def _form(text: str) -> str:
    """Return the letters and signs of a text, decomposed: equal texts in NFC, NFD and NFKC have the same form."""
    return UNSEEN.sub("", unicodedata.normalize("NFKD", text)).replace(" ", "")


def _pieces(tokens: Sequence[str]) -> Iterable[tuple[str, int]]:
    """Yield the characters of each token with the number of tokens, 1.

    Byte tokens in a row are joined into one string.
    """
    for is_byte, run in groupby(tokens, lambda token: BYTE.fullmatch(token) is not None):
        if is_byte:
            values = bytes(int(token[3:5], 16) for token in run)
            yield _form(values.decode("utf-8", "replace")), len(values)
        else:
            yield from ((_form(token.replace(META_SPACE, "")), 1) for token in run)


MOST_WORDS = 50
"""A token that covers more words than this does not say which of them belong together. Without this limit, time would
be cubic."""


def links(
    source: str, words: Sequence[Span], wholes: Sequence[Range], target_words: Sequence[Span], translation: Translated
) -> tuple[Links, dict[int, Range]]:
    """Return for each target word the shares of source words that its tokens are aligned to; and, for each target word
    that copies a whole, the words of this whole.

    `words` are the source words, `wholes` the ranges of those that markup does not divide.
    """
    from_tokens = [overlapping(words, span) for span in token_spans(translation.source_tokens, source)]
    to_tokens = [overlapping(target_words, span) for span in token_spans(translation.tokens, translation.text)]
    source_texts = [source[words[first][0] : words[end - 1][1]] for first, end in wholes]
    target_texts = [translation.text[start:end] for start, end in target_words]
    whole_of = [whole for whole, range_ in enumerate(wholes) for _ in range(*range_)]
    result: Links = [{} for _ in target_words]
    for source_token, target_token in dict.fromkeys(translation.alignment or ()):
        if source_token >= len(from_tokens) or target_token >= len(to_tokens):
            continue
        sources, targets = from_tokens[source_token], to_tokens[target_token]
        first, end = (whole_of[sources[0]], whole_of[sources[-1]] + 1) if sources else (0, 0)
        if end - first == len(targets) and source_texts[first:end] == target_texts[targets.start : targets.stop]:
            pairs = [(range(*wholes[first + index]), target) for index, target in enumerate(targets)]
        elif max(len(sources), len(targets)) <= MOST_WORDS:
            pairs = [(sources, target) for target in targets]
        else:
            continue
        for some, target in pairs:
            for word in some:
                result[target][word] = result[target].get(word, 0.0) + 1 / len(some)
    for shares in result:
        total = sum(shares.values())
        for word in shares:
            shares[word] /= total
    return result, _copies(source_texts, target_texts, wholes, whole_of, result)


def _copies(
    source_texts: Sequence[str],
    target_texts: Sequence[str],
    wholes: Sequence[Range],
    whole_of: Sequence[int],
    word_links: Links,
) -> dict[int, Range]:
    """Return the copies, and link them with their words alone; link punctuation only with itself.

    A copy is a target word that has the text of the whole that it is linked to most, or that both sides have once,
    such as names and numbers.
    """
    where, once = _once(source_texts), _once(target_texts)
    copies: dict[int, Range] = {}
    for index, text in enumerate(target_texts):
        whole = where.get(text) if text in once and (len(text) > 1 or not text.isalpha()) else None
        if whole is None and word_links[index]:
            shares: dict[int, float] = {}
            for word, share in word_links[index].items():
                shares[whole_of[word]] = shares.get(whole_of[word], 0.0) + share
            whole = max(shares, key=lambda one: (shares[one], source_texts[one] == text))
            whole = whole if source_texts[whole] == text else None
        if whole is not None:
            copies[index] = first, end = wholes[whole]
            word_links[index] = dict.fromkeys(range(first, end), 1 / (end - first))
        elif not text[0].isalnum():
            word_links[index] = {}
    return copies


def _once(texts: Sequence[str]) -> dict[str, int]:
    """Return the index of each text that occurs exactly once."""
    counts = Counter(texts)
    return {text: index for index, text in enumerate(texts) if counts[text] == 1}


def overlapping(words: Sequence[Span], span: Span) -> range:
    """Return the indices of the words that share characters with a span."""
    if span[0] == span[1]:
        return range(0)
    first = bisect_right(words, span[0], key=lambda word: word[1])
    return range(first, bisect_left(words, span[1], key=lambda word: word[0]))
