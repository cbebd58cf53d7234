"""How probable given translations are: log P(target | source) of pairs of lines, as a stream (forced decoding).

    pairs ──▶ windows, the first small ──▶ ids ──▶ batches of one padded shape ──▶ model ──▶ hidden (B, T, D)
          ──▶ R rows at a time: logits (R, V) ──▶ log P of each token ──▶ a sum a pair, in the order of the pairs

log P is natural, the sum over the target's tokens and its end symbol; without smoothing, dropout or length penalty:
minus the NLL that training reports. What the two lines hold decides what is scored:

* A blank line has no tokens. Blank against blank has probability 1, as `nmt translate` answers blank with blank:
  0 tokens, log P 0, and the model is not asked. A blank target of a text is its end symbol alone: 1 token. Of a blank
  source the model sees the end symbol alone.
* A pair with a side longer than `max_positions`, end symbol counted, has no log P (None): parts would be given another
  probability than the whole.

Invariance. What a pair gets does not depend, in fp32 on a CPU, on those it is computed with: both sides are padded to
multiples of 4, only pairs of equal padded lengths go together, and no matrix product has fewer than 16 rows, batches
being filled up with copies (see `decoders` for why). The tokens' log P are summed exactly.

    B pairs   S source length   T target length, end symbol counted in both   D d_model   V vocabulary   R rows
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.tokenizer import BOS, EOS, PAD, Tokenizer, Vocabulary
from ..errors import NmtError
from ..model.transformer import Transformer

FIRST_WINDOW, LAST_WINDOW = 64, 16_384
"""Pairs of the first window, and of the largest: each is twice as large as the one before, so that batches fill up."""
WINDOW_CHARACTERS = 1 << 22
"""And a window's characters, so that memory stays bounded whatever the lines hold."""
ROW_MULTIPLE, FEWEST_ROWS = 4, 16
LOGITS_AT_ONCE = {"cpu": 1 << 23, "cuda": 1 << 26}
"""Numbers (R x V) at most, unless twice FEWEST_ROWS rows are more: 32 and 256 MiB."""
LARGEST = 709.0
"""The exponent of the largest perplexity shown: e to it is still a number."""

Ids = list[int]


@dataclass(frozen=True)
class Scored:
    """A pair of lines and log P of the target."""

    source: str
    target: str
    tokens: int
    """Of the target, end symbol counted; 0: both lines are blank."""
    log_prob: float | None
    """None: a side is longer than the model can take."""

    @property
    def perplexity(self) -> float | None:
        return None if self.log_prob is None else perplexity(self.log_prob, self.tokens)


def perplexity(log_prob: float, tokens: int) -> float:
    """exp of the NLL a token; 1 of no tokens."""
    return math.exp(min(-log_prob / max(tokens, 1), LARGEST))


class Scorer:
    """A model and its tokenizers, ready to score.

    `batch_tokens`: tokens of a batch's longer side at most, padding counted, at least one pair; changes the speed only.
    `precision` "fp32" or "bf16" (matrix products). The model is read, never changed.
    """

    def __init__(self, model: Transformer, vocabulary: Vocabulary, *, batch_tokens: int = 4096, precision: str = "fp32") -> None:
        self.model, self.vocabulary, self.batch_tokens, self.precision = model, vocabulary, batch_tokens, precision
        self.device = model.output_weight.device
        self.longest = model.config.max_positions
        self.rows = max(2 * FEWEST_ROWS, LOGITS_AT_ONCE.get(self.device.type, LOGITS_AT_ONCE["cuda"]) // model.target_vocab)  # R

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Scored]:
        """A result for each pair of source and target, in order."""
        for window in self.windows(pairs):
            yield from window

    def windows(self, pairs: Iterable[tuple[str, str]]) -> Iterator[list[Scored]]:
        """The same in the pieces in which it is computed; what `pairs` raises comes after the pairs before it."""
        for window in _windows(pairs):
            yield self._score_window(window)

    def _score_window(self, pairs: Sequence[tuple[str, str]]) -> list[Scored]:
        sources = _ids(self.vocabulary.source, [source for source, _ in pairs])
        targets = _ids(self.vocabulary.target, [target for _, target in pairs])
        tokens = [len(target) if len(source) + len(target) > 2 else 0 for source, target in zip(sources, targets, strict=True)]
        log_probs: list[float | None] = [None if count else 0.0 for count in tokens]
        batches: dict[tuple[int, int], list[int]] = {}
        for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if tokens[index] and max(len(source), len(target)) <= self.longest:
                batches.setdefault((self._padded(len(source)), self._padded(len(target))), []).append(index)
        for shape, indices in batches.items():
            step = max(1, self.batch_tokens // max(shape))
            for start in range(0, len(indices), step):
                chosen = indices[start : start + step]
                for index, log_prob in zip(chosen, self._batch([sources[i] for i in chosen], [targets[i] for i in chosen], shape), strict=True):
                    log_probs[index] = log_prob
        return [Scored(*pair, count, log_prob) for pair, count, log_prob in zip(pairs, tokens, log_probs, strict=True)]

    def _padded(self, length: int) -> int:
        return min(-(-length // ROW_MULTIPLE) * ROW_MULTIPLE, self.longest)

    @torch.inference_mode()
    def _batch(self, sources: list[Ids], targets: list[Ids], shape: tuple[int, int]) -> list[float]:
        """log P of targets given sources, all ending in EOS, of equal padded lengths `shape`."""
        count = len(sources)
        missing = max(0, -(-FEWEST_ROWS // min(shape)) - count)
        sources, targets = sources + sources[-1:] * missing, targets + targets[-1:] * missing
        src, lengths = self._tensor(sources, shape[0]), torch.tensor([len(source) for source in sources], device=self.device)
        mask = (torch.arange(shape[0], device=self.device) < lengths[:, None])[:, None, None, :]  # (B, 1, 1, S), also where all is True
        tgt_in, tgt_out = self._tensor([[BOS, *target[:-1]] for target in targets], shape[1]), self._tensor(targets, shape[1])
        with self._precision():
            rows = self._of_tokens(self.model(src, mask, tgt_in).flatten(0, 1), tgt_out.flatten())  # (B * T,)
        by_pair: list[list[float]] = rows.view(len(targets), -1)[:count].tolist()
        return [math.fsum(of_tokens[: len(target)]) for of_tokens, target in zip(by_pair, targets, strict=False)]

    def _tensor(self, rows: list[Ids], size: int) -> Tensor:
        return torch.tensor([row + [PAD] * (size - len(row)) for row in rows]).to(self.device)

    def _of_tokens(self, hidden: Tensor, gold: Tensor) -> Tensor:
        """log P of each token of `gold` (N,) by `hidden` (N, D), in fp32; all pieces have FEWEST_ROWS rows at least."""
        pieces = -(-len(gold) // self.rows)
        found = []
        for h, gold_r in zip(hidden.tensor_split(pieces), gold.tensor_split(pieces), strict=True):
            logits = self.model.logits(h).float()  # (R, V)
            found.append(logits.gather(1, gold_r[:, None]).squeeze(1) - logits.logsumexp(1))
        return torch.cat(found)

    def _precision(self) -> Any:
        if self.precision == "bf16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Ids]:
    """Ids of each text, EOS at the end; a blank text has no others."""
    return [[*ids, EOS] for ids in tokenizer.encode([text if text.strip() else "" for text in texts])]


def _windows(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Pairs in windows; a fault of `pairs` is raised after the pairs that came before it."""
    window: list[tuple[str, str]] = []
    size, characters, fault = FIRST_WINDOW, 0, None
    try:
        for pair in pairs:
            window.append(pair)
            characters += sum(map(len, pair))
            if len(window) >= size or characters >= WINDOW_CHARACTERS:
                yield window
                window, size, characters = [], min(2 * size, LAST_WINDOW), 0
    except NmtError as error:
        fault = error
    if window:
        yield window
    if fault:
        raise fault
