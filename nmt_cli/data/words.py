"""A text as words: each different word is counted for learning BPE, and is encoded only once.

    text ──▶ count_words ──▶ WordCounts ──▶ (word, count) … ──▶ tokenizer.learn_from_words
    text ──▶ WordEncoder ──▶ ids, the same as from Tokenizer.encode, through a cache of words

SentencePiece's usual BPE never merges across a space, so the subwords of a text are those of its words, one after
another. `Tokenizer.by_words` reports whether this holds for a model. Words repeat (Zipf's law), so a dictionary
replaces most merges. The reference implementations are `tokenizer.learn_bpe` (from whole sentences) and
`Tokenizer.encode`; tests compare with them.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .normalization import META_SPACE
from .tokenizer import Tokenizer

HELD = 20_000_000
"""Characters of different words that are counted at a time, about 400 MB. Beyond that, some rare words are dropped."""
LEARNED = 12_000_000
"""Characters of different words that BPE is learned from, the most frequent first. SentencePiece takes 75 bytes per
character."""
REMEMBERED = 4_000_000
"""Characters of different words whose ids an encoder caches before it empties the cache."""


class WordCounts:
    """The word counts of a text of any size, in bounded memory. Words are separated by spaces.

    When the different words have more than `held` characters together, half of the words that were seen once are
    dropped. A hash chooses them. If this is not enough, half of the rest is dropped, and so on; after eight halvings
    words that were seen twice are dropped too, and so on. The words that matter for BPE stay. In a language without
    spaces every sentence is a word, and a random sample of the sentences stays.
    """

    def __init__(self, held: int = HELD) -> None:
        self.held = held
        self._counts: Counter[str] = Counter()
        self._size = 0  # characters of all words
        self._halvings = 0

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of a part of the text."""
        self._size += sum(map(len, counts.keys() - self._counts.keys()))
        self._counts.update(counts)
        if self._size > self.held:
            self._halve()
        while self._size > self.held:
            self._halvings += 1
            self._halve()

    def _halve(self) -> None:
        """Drop the words that the current number of halvings excludes, also among recently added words."""
        rare, mask = 1 + self._halvings // 8, (1 << self._halvings) - 1
        for word in [word for word, count in self._counts.items() if count <= rare and _hash(word) & mask]:
            self._size -= len(word)
            del self._counts[word]

    def most_frequent(self, learned: int = LEARNED) -> list[tuple[str, int]]:
        """Return the most frequent words, with at most `learned` characters together, and their counts.

        Among words with the same count, a hash chooses. Their position in the text does not matter.
        """
        words = list(self._counts.items())
        if self._size <= learned:
            return words
        words.sort(key=lambda item: (-item[1], _hash(item[0]), item[0]))
        sizes = itertools.accumulate(len(word) for word, _ in words)
        return [item for item, size in zip(words, sizes, strict=True) if size <= learned]


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Return the counts of the words of some texts.

    A tab also separates words, because in SentencePiece's input a tab stands before the count.
    """
    counts = Counter(" ".join(texts).replace("\t", " ").split(" "))
    counts.pop("", None)
    return counts


def _hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


class WordEncoder:
    """Encodes texts; each different word is encoded only once."""

    def __init__(self, tokenizer: Tokenizer, remembered: int = REMEMBERED) -> None:
        self.tokenizer, self.remembered = tokenizer, remembered
        self._forget()

    def _forget(self) -> None:
        self._numbers = defaultdict[str, int](itertools.count().__next__)  # words are numbered by their first look-up
        self._size = 0
        self._ids: npt.NDArray[np.int32] = np.zeros(0, np.int32)  # ids of all words, one after another
        self._starts: npt.NDArray[np.int64] = np.zeros(1, np.int64)  # where the ids of each word start, and the end

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the ids of all texts in one array (N,), without begin and end symbols, and their lengths (texts,)."""
        together = " ".join(texts)
        if not self.tokenizer.by_words or META_SPACE in together:
            return flat(self.tokenizer.encode(texts))
        if self._size > self.remembered:
            self._forget()
        known = len(self._numbers)
        number = np.fromiter(map(self._numbers.__getitem__, together.split(" ")), np.int64)
        if len(self._numbers) > known:
            self._learn(list(itertools.islice(self._numbers, known, None)))
        lengths = np.diff(self._starts)[number]
        ends = np.cumsum(lengths)
        positions = np.arange(ends[-1]) + np.repeat(self._starts[number] - (ends - lengths), lengths)
        firsts = np.cumsum([0, *(text.count(" ") + 1 for text in texts)])
        return self._ids[positions], np.diff(np.concatenate([[0], ends])[firsts])

    def _learn(self, words: list[str]) -> None:
        ids, lengths = flat(self.tokenizer.encode(words))
        self._size += sum(map(len, words))
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(lengths)])
        self._ids = np.concatenate([self._ids, ids])


def flat(rows: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return lists of ids as one array, and the length of each."""
    return np.fromiter(itertools.chain.from_iterable(rows), np.int32), np.fromiter(map(len, rows), np.int64)
