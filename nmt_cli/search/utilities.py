"""Utilities for minimum Bayes risk decoding: compute the sentence-level scores of all pairs of texts at once.

    n texts ──▶ symbols: characters (chrF) or words (BLEU) ──▶ per order: n-gram counts and matches ──▶ scores (n, n)

U[i, j] is the score of text i as the hypothesis with text j as the reference, from 0 to 100. The scores are sacrebleu's
own, up to rounding. `nmt_cli.registry.UTILITIES` lists the utilities by name.

    n distinct texts   P symbols of all texts   F features

Two texts share min(count, count) occurrences of an n-gram. So feature (g, k) of a text is "n-gram g occurs more than k
times". The features that two texts have in common are their matches. The features of a text are bits, 64 to a number:
the bits that two texts share are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
"""Scores of all pairs of n texts, (n, n)."""
Integers = NDArray[np.int64]

CHARACTER_ORDER, BETA = 6, 2
WORD_ORDER = 4


def chrf(texts: Sequence[str]) -> Scores:
    """Return sacrebleu's sentence chrF2 (Popović 2015) of all pairs, (n, n): 1- to 6-grams, without white space."""
    texts = ["".join(text.split()) for text in texts]
    characters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    precision, recall, orders = np.zeros((3, len(texts), len(texts)))
    for totals, matches in _ngram_matches(characters.astype(np.int64), lengths, CHARACTER_ORDER):
        precision += matches / np.maximum(totals, 1)[:, None]
        recall += matches / np.maximum(totals, 1)
        orders += (totals[:, None] > 0) & (totals > 0)  # both texts have n-grams of this order
    precision /= np.maximum(orders, 1)
    recall /= np.maximum(orders, 1)
    divisor = BETA**2 * precision + recall
    return np.asarray(100 * (1 + BETA**2) * precision * recall / np.where(divisor > 0, divisor, 1.0))


def bleu(texts: Sequence[str]) -> Scores:
    """Return sacrebleu's sentence BLEU (Papineni et al. 2002) of all pairs, (n, n): 13a, exp, effective order."""
    from sacrebleu.metrics.bleu import BLEU

    tokenize = BLEU().tokenizer
    words = [tokenize(text.rstrip()).split() for text in texts]
    index: dict[str, int] = {}
    symbols = np.array([index.setdefault(word, len(index)) for text in words for word in text], dtype=np.int64)
    lengths = np.array([len(text) for text in words], dtype=np.int64)
    logs, matched = np.zeros((2, len(words), len(words)))
    smoothing, orders = np.ones_like(logs), np.zeros((len(words), 1))
    for totals, matches in _ngram_matches(symbols, lengths, WORD_ORDER):
        total = totals[:, None].astype(np.float64)
        none = (matches == 0) & (total > 0)
        smoothing[none] *= 2
        precision = np.where(none, 1 / smoothing, matches) / np.maximum(total, 1)
        logs += np.log(precision, out=np.zeros_like(logs), where=np.broadcast_to(total > 0, logs.shape))
        orders += total > 0
        matched += matches
    brevity = np.exp(np.minimum(0.0, 1 - lengths / np.maximum(lengths, 1)[:, None]))
    return np.asarray(np.where(matched > 0, 100 * brevity * np.exp(logs / np.maximum(orders, 1)), 0.0))


def _ngram_matches(symbols: Integers, lengths: Integers, max_order: int) -> Iterator[tuple[Integers, Scores]]:
    """Yield for each order the n-grams of each text (n,), and the matches of all pairs of texts (n, n).

    `symbols` (P,) are the symbols of all texts, one text after the other; `lengths` (n,) are the numbers of symbols.
    """
    count = len(lengths)
    texts = np.repeat(np.arange(count), lengths)
    remaining = np.repeat(lengths.cumsum(), lengths) - np.arange(len(symbols))  # of each symbol's text
    alphabet = int(symbols.max(initial=0)) + 1
    begins, ngrams = np.arange(len(symbols)), np.zeros(len(symbols), dtype=np.int64)  # where they begin, and their ids
    for order in range(1, max_order + 1):
        longer = remaining[begins] >= order
        begins, ngrams = begins[longer], ngrams[longer]
        ngrams = np.unique(ngrams * alphabet + symbols[begins + order - 1], return_inverse=True)[1]
        matches, shared = _matches(ngrams, texts[begins], count)
        totals = np.maximum(lengths - order + 1, 0)
        np.fill_diagonal(matches, totals)
        yield totals, matches
        kept = shared[ngrams]  # a longer n-gram is shared only if its beginning is
        begins, ngrams = begins[kept], ngrams[kept]


def _matches(ngrams: Integers, texts: Integers, count: int) -> tuple[Scores, NDArray[np.bool_]]:
    """Return the matches of all pairs of different texts (n, n), and whether each n-gram is in several texts.

    `ngrams` (P,) are the n-grams of the texts `texts` (P,).
    """
    pairs, occurrences = np.unique(ngrams * count + texts, return_counts=True)
    ngram, text = pairs // count, pairs % count
    in_texts = np.bincount(ngram)
    several = in_texts[ngram] > 1
    ngram, text, occurrences = ngram[several], text[several], occurrences[several]
    most = np.zeros(len(in_texts), dtype=np.int64)
    np.maximum.at(most, ngram, occurrences)
    first_feature = most.cumsum() - most  # of each n-gram
    rows = np.repeat(text, occurrences)
    times = np.arange(len(rows)) - np.repeat(occurrences.cumsum() - occurrences, occurrences)
    return _products(rows, np.repeat(first_feature[ngram], occurrences) + times, count, int(most.sum())), in_texts > 1


def _products(rows: Integers, features: Integers, count: int, size: int) -> Scores:
    """Return how many features each pair of `count` rows shares, (n, n). Row rows[i] has feature features[i]."""
    width = -(-size // 64)
    words = np.zeros(count * width, np.uint64)
    np.add.at(words, rows * width + features // 64, np.uint64(1) << (features % 64).astype(np.uint64))
    sets = words.reshape(count, width)
    return np.array([np.bitwise_count(sets & own).sum(1) for own in sets], np.float64).reshape(count, count)
