"""Forced scoring: log P(target | source) of given pairs of lines, as a stream.

    pairs ──▶ windows ──▶ token ids ──▶ a forced pass (`forced`) ──▶ log P of each token
          ──▶ a sum per pair, in the order of the pairs

log P is the sum of natural logarithms over the target's tokens and its end symbol, without smoothing, dropout or length
penalty. It is minus the NLL that training reports.

* A blank line has no tokens. Two blank lines have probability 1, because `nmt translate` answers a blank line with a
  blank line: 0 tokens, log P 0, and the model is not run. A blank target of a source with text has 1 token, its end
  symbol. For a blank source the model gets the end symbol alone.
* If the model has tags of target languages (`data.tags`), a source that is not blank begins with one.
* A pair with a side longer than `max_positions`, end symbol counted, has no log P (None): the parts of a text would
  have another probability than the whole.

The tokens' log P are summed exactly. The score of a pair does not depend on the other pairs, see `forced`. This file
does not load torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..data.tags import Tags
from ..data.tokenizer import BOS, Vocabulary, ended
from .forced import ForcedModel
from .windows import WindowSize, windows

WINDOW = WindowSize(first=64, last=16_384, characters=1 << 22)
"""Sizes of the windows of pairs that are scored together."""
LARGEST = 709.0
"""Largest logarithm of a perplexity: e to this power is still finite."""

Ids = list[int]


@dataclass(frozen=True)
class Scored:
    """A pair of lines, and log P of the target."""

    source: str
    target: str
    tokens: int
    """Tokens of the target, end symbol counted; 0: both lines are blank."""
    log_prob: float | None
    """None: a side is longer than the model can take."""

    @property
    def perplexity(self) -> float | None:
        return None if self.log_prob is None else perplexity(self.log_prob, self.tokens)


def perplexity(log_prob: float, tokens: int) -> float:
    """Return exp of the NLL per token; 1 if there are no tokens."""
    return math.exp(min(-log_prob / max(tokens, 1), LARGEST))


class PairScorer:
    """A model and its tokenizers.

    `tags` are those of the source, `language` is the code of one of them, or "": that of the recipe's language.
    """

    def __init__(
        self, model: ForcedModel, vocabulary: Vocabulary, tags: Tags | None = None, language: str = ""
    ) -> None:
        self.model, self.vocabulary = model, vocabulary
        self.tags, self.language = tags or Tags(vocabulary.source, ""), language
        self.longest = model.config.max_positions

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Scored]:
        """Yield a result for each pair of source and target, in order. Raises UsageError, see `Tags.split`."""
        for window in self.windows(pairs):
            yield from window

    def windows(self, pairs: Iterable[tuple[str, str]]) -> Iterator[list[Scored]]:
        """Yield the results of `score` in lists, as they are computed.

        An error that `pairs` raises is raised after the results of the pairs before it.
        """
        for window in windows(pairs, WINDOW):
            yield self._score_window(window or [])

    def _score_window(self, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        texts = self.tags.encode(_blanked(source for source, _ in pairs), self.language)
        sources = [ended(ids, self.model.config.source_end) for ids in texts]
        targets = [ended(ids) for ids in self.vocabulary.target.encode(_blanked(target for _, target in pairs))]
        tokens = [len(target) if ids or len(target) > 1 else 0 for ids, target in zip(texts, targets, strict=True)]
        log_probs: list[float | None] = [None if count else 0.0 for count in tokens]
        scored = [i for i, n in enumerate(tokens) if n and max(len(sources[i]), len(targets[i])) <= self.longest]
        following = [targets[i] for i in scored]
        read = [[BOS, *target[:-1]] for target in following]
        of_tokens, _ = self.model.forced([sources[i] for i in scored], read, following) if scored else ([], {})
        for index, values in zip(scored, of_tokens, strict=True):
            log_probs[index] = math.fsum(values.tolist())
        return [Scored(*pair, count, log_prob) for pair, count, log_prob in zip(pairs, tokens, log_probs, strict=True)]


def _blanked(texts: Iterable[str]) -> list[str]:
    """Return the texts, with "" for blank ones, so that these have no tokens."""
    return [text if text.strip() else "" for text in texts]
