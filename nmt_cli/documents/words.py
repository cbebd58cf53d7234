"""Words of a line and of its translation, and the links between them.

    tokens, alignment of tokens ──▶ spans of the tokens in the text
        ──▶ links: for each target word, shares of source words

A word is a run of letters and digits; it may have a hyphen, apostrophe, full stop or comma inside. Every other
character is a separate word. So is every character of Chinese and Japanese, which are written without spaces.
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
from .segment import Translated

Span = tuple[int, int]
Links = list[dict[int, float]]
"""For each target word: source word → its share, 0 to 1. Empty if no source word is known."""

IDEOGRAPH = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{IDEOGRAPH}]|[^\W{IDEOGRAPH}]+(?:[-‐'’.,·][^\W{IDEOGRAPH}]+)*|\S")
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
    """Return the text in NFKD without white space and unseen characters, and the index in `text` of each character and
    of the end.
    """
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


def links(source: str, source_words: Sequence[Span], target_words: Sequence[Span], translation: Translated) -> Links:
    """Return for each target word the shares of source words that its tokens are aligned to."""
    source_spans = token_spans(translation.source_tokens, source)
    target_spans = token_spans(translation.tokens, translation.text)
    result: Links = [{} for _ in target_words]
    for source_token, target_token in translation.alignment or ():
        if source_token >= len(source_spans) or target_token >= len(target_spans):
            continue
        from_words = overlapping(source_words, source_spans[source_token])
        to_words = overlapping(target_words, target_spans[target_token])
        if len(from_words) > MOST_WORDS or len(to_words) > MOST_WORDS:
            continue
        for target in to_words:
            for word in from_words:
                result[target][word] = result[target].get(word, 0.0) + 1 / len(from_words)
    for shares in result:
        total = sum(shares.values())
        for word in shares:
            shares[word] /= total
    _correct(source, source_words, translation.text, target_words, result)
    return result


def _correct(
    source: str, source_words: Sequence[Span], target: str, target_words: Sequence[Span], word_links: Links
) -> None:
    """Correct the links: link words that both sides have once, such as names and numbers, and link punctuation only
    with itself.
    """
    source_texts, target_texts = (
        [source[start:end] for start, end in source_words],
        [target[start:end] for start, end in target_words],
    )
    where = _once(source_texts)
    once = _once(target_texts)
    for index, text in enumerate(target_texts):
        if text in once and text in where and (len(text) > 1 or not text.isalpha()):
            word_links[index] = {where[text]: 1.0}
        elif not text[0].isalnum():
            word_links[index] = {word: share for word, share in word_links[index].items() if source_texts[word] == text}


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
