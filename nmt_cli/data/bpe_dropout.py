"""BPE-dropout: in each epoch, words are cut into other subwords (Provilkov et al. 2020, arXiv 1910.13267).

    pair's ids ──▶ words ──▶ for each word, one of DRAWS random segmentations ──▶ pair's new ids

BPE merges characters into subwords, always the possible merge of the highest priority. BPE-dropout leaves out each
possible merge with probability `p` at every step, so that frequent words are sometimes seen in parts (algorithm 1).
Nothing is stored: the ids of the shards are cut anew each time they are read.

Each word has DRAWS random segmentations, which depend only on the word. The seed, the epoch and the index of the pair
choose one of them. So a resumed training, or one on several machines, sees the same segmentations. They are cached, so
a word is cut at most DRAWS times.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from .batches import Pair
from .normalization import META_SPACE
from .tokenizer import Tokenizer, Vocabulary

DRAWS = 64
"""Number of segmentations of one word."""
KEPT = 1_000_000
"""Maximum number of cached segmentations, about 250 MB. A full cache is emptied."""

Ids = npt.NDArray[np.integer]


class BpeDropout:
    """Cuts the words of a corpus into other subwords in each epoch."""

    def __init__(self, vocabulary: Vocabulary, p: float, seed: int, longest: int) -> None:
        """`longest` is the largest number of tokens of a side. A side that would become longer keeps its ids.

        Raises UsageError when no side is BPE within words.
        """
        self.seed, self.longest = seed, longest
        source = WordCutter(vocabulary.source, p) if vocabulary.source.by_words else None
        target = (
            source if vocabulary.joint else WordCutter(vocabulary.target, p) if vocabulary.target.by_words else None
        )
        if source is None and target is None:
            raise UsageError(
                f"train.bpe_dropout = {p}: the tokenizer is not BPE within words. Expected one that nmt "
                'preprocess learns with target_tokenization = "bpe", or train.bpe_dropout = 0.'
            )
        self._cutters = source, target

    def __call__(self, pair: Pair, epoch: int, number: int) -> Pair:
        """Return the pair `number` of the corpus as it is cut in `epoch`."""
        random = np.random.default_rng((self.seed, epoch, number))
        source, target = (self._cut(ids, cutter, random) for ids, cutter in zip(pair, self._cutters, strict=True))
        return source, target

    def _cut(self, ids: Ids, cutter: WordCutter | None, random: np.random.Generator) -> Ids:
        if cutter is None or not len(ids):
            return ids
        cut = cutter.cut(ids, random.integers(0, DRAWS, len(ids), np.uint8))
        return cut if len(cut) <= self.longest else ids


class WordCutter:
    """Cuts the words of one tokenizer by BPE-dropout."""

    def __init__(self, tokenizer: Tokenizer, p: float) -> None:
        """`p` is the probability with which a possible merge is left out; 0 gives the tokenizer's own segmentation."""
        self.p = p
        self._pieces, self._scores = tokenizer.table, tokenizer.scores
        self._begins = np.array([piece.startswith(META_SPACE) for piece in self._pieces])
        self._numbers = {piece: number for number, piece in enumerate(self._pieces) if number not in tokenizer.not_text}
        self._kept: dict[tuple[bytes, int], bytes] = {}  # ids as bytes, because most of the time is spent on look-ups

    def cut(self, ids: Ids, draws: npt.NDArray[np.uint8]) -> Ids:
        """Return the ids of some words in other segmentations, one word after another.

        `draws` holds one segmentation number for each word.
        """
        size, text = ids.itemsize, ids.tobytes()
        bounds = [0, *((np.flatnonzero(self._begins[ids[1:]]) + 1) * size).tolist(), len(text)]
        words = ((text[first:end], draw) for first, end, draw in zip(bounds, bounds[1:], draws.tolist(), strict=False))
        kept = self._kept
        cut = b"".join([kept[key] if key in kept else self._keep(key, ids.dtype) for key in words])
        return np.frombuffer(cut, ids.dtype)

    def _keep(self, key: tuple[bytes, int], dtype: np.dtype[Any]) -> bytes:
        """Compute the segmentation of `key`, a word and a segmentation number, store it in the cache and return it."""
        if len(self._kept) >= KEPT:
            self._kept.clear()
        word, draw = key
        cut = np.array(self._segmentation(np.frombuffer(word, dtype).tolist(), draw), dtype).tobytes()
        self._kept[key] = cut
        return cut

    def _segmentation(self, word: list[int], draw: int) -> list[int]:
        """Return the segmentation of a word by algorithm 1.

        The word is returned unchanged if it has bytes or unknown characters, or if it is a symbol, which merges cannot
        produce.
        """
        if any(self._pieces[number] not in self._numbers for number in word):
            return word
        text = "".join(self._pieces[number] for number in word)
        cut = self._merged(text, self.p, Random(zlib.crc32(text.encode()) * DRAWS + draw).random)
        if len(word) == 1 < len(cut) and self._merged(text, 0.0, Random().random) != word:
            return word
        return cut or word

    def _merged(self, text: str, p: float, uniform: Callable[[], float]) -> list[int]:
        """Return the subwords of a word after its merges; each possible merge is left out with probability `p` at every
        step.

        Return [] if a part of the result is not in the vocabulary.
        """
        parts, numbers, scores = list(text), self._numbers, self._scores
        while True:
            possible = [
                (scores[number], -i)
                for i in range(len(parts) - 1)
                if (number := numbers.get(parts[i] + parts[i + 1])) is not None
            ]
            merges = [merge for merge in possible if uniform() >= p]
            if not merges:
                break
            i = -max(merges)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return [numbers[part] for part in parts] if all(part in numbers for part in parts) else []
