"""Forced scoring: log P(target | source) of given pairs of lines, as a stream.

    pairs ──▶ windows ──▶ token ids ──▶ batches of one padded shape ──▶ model ──▶ hidden (B, T, D)
          ──▶ R rows at a time: logits (R, V) ──▶ log P of each token ──▶ a sum per pair, in the order of the pairs

log P is the sum of natural logarithms over the target's tokens and its end symbol, without smoothing, dropout or length
penalty. It is minus the NLL that training reports.

* A blank line has no tokens. Two blank lines have probability 1, because `nmt translate` answers a blank line with a
  blank line: 0 tokens, log P 0, and the model is not run. A blank target of a source with text has 1 token, its end symbol. For a
  blank source the model gets the end symbol alone.
* A pair with a side longer than `max_positions`, end symbol counted, has no log P (None): the parts of a text would have
  another probability than the whole.

The score of a pair does not depend, in fp32 on a CPU, on the other pairs of its batch: both sides are padded to
multiples of 4, only pairs of equal padded lengths share a batch, and no matrix product has fewer than 16 rows, because
small batches are padded with copies (`cached_decoder` gives the reason). The tokens' log P are summed exactly.

    B pairs   S source length   T target length, end symbol counted in both   D d_model   V vocabulary   R rows
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..data.tokenizer import BOS, EOS, PAD, Tokenizer, Vocabulary
from ..device import is_host
from ..model.precision import convert
from ..model.transformer import Transformer
from .batches import token_batches
from .windows import WindowSize, windows

WINDOW = WindowSize(first=64, last=16_384, characters=1 << 22)
"""Sizes of the windows of pairs that are scored together."""
ROW_MULTIPLE, FEWEST_ROWS = 4, 16
"""Padded lengths are multiples of ROW_MULTIPLE; a matrix product has at least FEWEST_ROWS rows."""
LOGITS_ON_HOST, LOGITS_ON_ACCELERATOR = 1 << 23, 1 << 26
"""Largest number of logits (R x V) at once: 32 and 256 MiB. R is at least 2 * FEWEST_ROWS."""
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


class Scorer:
    """A model and its tokenizers.

    `batch_tokens` is the largest number of tokens on the longer side of a batch, padding counted; it changes only the speed.
    `precision` is a name in registry.PRECISIONS. The model is read, never changed.
    """

    def __init__(
        self, model: Transformer, vocabulary: Vocabulary, *, batch_tokens: int = 4096, precision: str = "fp32"
    ) -> None:
        self.model, self.vocabulary, self.batch_tokens = convert(model, precision), vocabulary, batch_tokens
        self.device = model.device
        self.longest = model.config.max_positions
        self.rows = max(
            2 * FEWEST_ROWS, (LOGITS_ON_HOST if is_host(self.device) else LOGITS_ON_ACCELERATOR) // model.target_vocab
        )  # R

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Scored]:
        """Yield a result for each pair of source and target, in order."""
        for window in self.windows(pairs):
            yield from window

    def windows(self, pairs: Iterable[tuple[str, str]]) -> Iterator[list[Scored]]:
        """Yield the results of `score` in lists, as they are computed. An error that `pairs` raises is raised after the results of the pairs before it."""
        for window in windows(pairs, WINDOW):
            yield self._score_window(window or [])

    def _score_window(self, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        sources = _ids(self.vocabulary.source, [source for source, _ in pairs])
        targets = _ids(self.vocabulary.target, [target for _, target in pairs])
        tokens = [
            len(target) if len(source) + len(target) > 2 else 0 for source, target in zip(sources, targets, strict=True)
        ]
        log_probs: list[float | None] = [None if count else 0.0 for count in tokens]
        by_shape: dict[tuple[int, int], list[int]] = {}
        for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if tokens[index] and max(len(source), len(target)) <= self.longest:
                by_shape.setdefault((self._padded(len(source)), self._padded(len(target))), []).append(index)
        for shape, indices in by_shape.items():
            for batch in token_batches(indices, [max(shape)] * len(pairs), self.batch_tokens):
                scores = self._batch([sources[i] for i in batch], [targets[i] for i in batch], shape)
                for index, log_prob in zip(batch, scores, strict=True):
                    log_probs[index] = log_prob
        return [Scored(*pair, count, log_prob) for pair, count, log_prob in zip(pairs, tokens, log_probs, strict=True)]

    def _padded(self, length: int) -> int:
        return min(-(-length // ROW_MULTIPLE) * ROW_MULTIPLE, self.longest)

    @torch.inference_mode()
    def _batch(self, sources: list[Ids], targets: list[Ids], shape: tuple[int, int]) -> list[float]:
        """Return log P of the targets given the sources. All end in EOS; `shape` are their padded lengths."""
        count = len(sources)
        missing = max(0, -(-FEWEST_ROWS // min(shape)) - count)
        sources, targets = sources + sources[-1:] * missing, targets + targets[-1:] * missing
        src, lengths = (
            self._tensor(sources, shape[0]),
            torch.tensor([len(source) for source in sources], device=self.device),
        )
        mask = (torch.arange(shape[0], device=self.device) < lengths[:, None])[
            :, None, None, :
        ]  # (B, 1, 1, S), even if all values are True
        tgt_in, tgt_out = (
            self._tensor([[BOS, *target[:-1]] for target in targets], shape[1]),
            self._tensor(targets, shape[1]),
        )
        rows = self._token_log_probs(self.model(src, mask, tgt_in).flatten(0, 1), tgt_out.flatten())  # (B * T,)
        by_pair: list[list[float]] = rows.view(len(targets), -1)[:count].tolist()
        return [math.fsum(of_tokens[: len(target)]) for of_tokens, target in zip(by_pair, targets, strict=False)]

    def _tensor(self, rows: list[Ids], size: int) -> Tensor:
        return torch.tensor([row + [PAD] * (size - len(row)) for row in rows]).to(self.device)

    def _token_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return log P of each token of `targets` (N,) given `hidden` (N, D), in fp32. All chunks have at least FEWEST_ROWS rows."""
        chunks = -(-len(targets) // self.rows)
        log_probs = []
        for h, target in zip(hidden.tensor_split(chunks), targets.tensor_split(chunks), strict=True):
            logits = self.model.logits(h).float()  # (R, V)
            log_probs.append(logits.gather(1, target[:, None]).squeeze(1) - logits.logsumexp(1))
        return torch.cat(log_probs)


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ids]:
    """Return the ids of each text and EOS; a blank text has EOS alone."""
    return [[*ids, EOS] for ids in tokenizer.encode([text if text.strip() else "" for text in texts])]
