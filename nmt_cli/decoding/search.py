"""Beam search (section 6.1) over anything that can say what may come next: it sees a `Stepper`, never a model.

    B sentences not finished   W beam   V vocabulary   N n-best   C candidates a step   L longest output

    translator ──▶ beam_search(stepper, limits, options) ──▶ N hypotheses a sentence
                      │  step(tokens (B, W)) ──▶ logits (B, W, V)
                      │  reorder(parents (B, W)): hypothesis w goes on from what hypothesis parents[b, w] was
                      └─ keep(sentences (B',)): the others have finished and leave

Score: log P(Y) / lp(Y) with the length penalty lp(Y) = ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, equation 14). |Y|
counts the end symbol, always. log P is the sum of the model's log-probabilities; PAD, BOS and UNK are never generated,
and what the model gives to them is not shared out among the others.

Each step takes the 2W best continuations of a sentence: a hypothesis has one end symbol only, so W of them at least
are open, and endings never starve the beam. A beam of one takes the one best: it is greedy search, and ends at the
first end symbol.

A sentence is finished when none of its open hypotheses can still reach its N best: log P only falls and lp only grows,
so an open one ends with log P / lp(longest) at most. The best is therefore never lost by stopping. An output holds at
most `limits[b]` tokens, the end symbol besides; a hypothesis of that length is given the end symbol, at its own
log-probability. Nothing that happens to a sentence depends on the others, and equals are ranked by
(hypothesis, token id).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import ModelError

COMPACT_BELOW = 0.85
"""Finished sentences leave once no more than this share of the sentences is unfinished: leaving costs a copy."""
CHUNK = 64
"""Vocabulary entries looked at as one when the best continuations are sought."""


class Stepper(Protocol):
    """What a search asks of a model: it holds B sentences with W hypotheses each, all of the same length."""

    def step(self, tokens: Tensor) -> Tensor:
        """The newest token of each hypothesis, (B, W) -> logits of the next one, (B, W, V); they may be written to."""
        ...

    def reorder(self, parents: Tensor) -> None:
        """(B, W): hypothesis w of sentence b goes on from what was its hypothesis parents[b, w]."""
        ...

    def keep(self, sentences: Tensor) -> None:
        """(B',) indices: those sentences stay, in this order; the others leave."""
        ...


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """`beam`, `alpha` as in [decode]; `nbest` at most `beam`; the ids that search must know."""

    beam: int
    alpha: float
    bos: int
    eos: int
    never: tuple[int, ...]
    """Ids that are never generated."""
    nbest: int = 1
    stop_early: bool = True
    """False: search goes on to the longest output. It is the slow twin; the best hypothesis is the same."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its tokens without the end symbol, log P with the end symbol, log P / lp."""

    tokens: list[int]
    log_prob: float
    score: float


def length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """((5 + |Y|) / 6) ** alpha; `length` counts the end symbol."""
    return ((5.0 + length) / 6.0) ** alpha


@dataclass
class _Beam:
    """Everything that is known of B sentences, a row each: open hypotheses, and the N best finished ones."""

    order: Tensor  # (B,) which sentence of the batch a row is
    limits: Tensor  # (B,) tokens at most
    done: Tensor  # (B,) bool
    tokens: Tensor  # (B, W, L) open hypotheses; beyond their length: zeros
    log_probs: Tensor  # (B, W) of the open hypotheses, best first; -inf: there is none
    ended_tokens: Tensor  # (B, N, L)
    ended_lengths: Tensor  # (B, N) without the end symbol
    ended_log_probs: Tensor  # (B, N)
    ended_scores: Tensor  # (B, N) best first; -inf: there is none

    @staticmethod
    def start(limits: Tensor, options: SearchOptions) -> _Beam:
        batch, longest, device = limits.size(0), int(limits.max()), limits.device
        log_probs = torch.full((batch, options.beam), float("-inf"), device=device)
        log_probs[:, 0] = 0.0  # at first there is one hypothesis, the empty one
        return _Beam(
            order=torch.arange(batch, device=device),
            limits=limits,
            done=torch.zeros(batch, dtype=torch.bool, device=device),
            tokens=torch.zeros(batch, options.beam, longest, dtype=torch.long, device=device),
            log_probs=log_probs,
            ended_tokens=torch.zeros(batch, options.nbest, longest, dtype=torch.long, device=device),
            ended_lengths=torch.zeros(batch, options.nbest, dtype=torch.long, device=device),
            ended_log_probs=torch.full((batch, options.nbest), float("-inf"), device=device),
            ended_scores=torch.full((batch, options.nbest), float("-inf"), device=device),
        )

    def select(self, rows: Tensor) -> _Beam:
        return _Beam(**{name: value.index_select(0, rows) for name, value in vars(self).items()})


@torch.inference_mode()
def beam_search(stepper: Stepper, limits: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """The `nbest` best hypotheses of each sentence, best first.

    `stepper` holds B sentences, nothing generated yet; `limits` (B,) int64 says how many tokens each output may have.
    Fewer than `nbest` come back only if there are no more. Raises `ModelError` if the model's output is not a number.
    """
    beam = _Beam.start(limits, options)
    results: list[list[Hypothesis]] = [[] for _ in range(limits.size(0))]
    newest = torch.full((limits.size(0), options.beam), options.bos, dtype=torch.long, device=limits.device)
    for length in range(1, int(limits.max()) + 2):  # |Y| of what ends in this step
        parents, newest = _advance(beam, stepper.step(newest), length, options)
        done = int(beam.done.sum())
        if done == beam.done.size(0):
            break
        stepper.reorder(parents)
        if done and done >= (1 - COMPACT_BELOW) * beam.done.size(0):
            _collect(beam.select(beam.done.nonzero().flatten()), results)
            unfinished = (~beam.done).nonzero().flatten()
            beam, newest = beam.select(unfinished), newest.index_select(0, unfinished)
            stepper.keep(unfinished)
    _collect(beam, results)
    return results


def _advance(beam: _Beam, logits: Tensor, length: int, options: SearchOptions) -> tuple[Tensor, Tensor]:
    """Take one step: what ends joins the finished, the W best others stay open. Returns their parents and tokens."""
    width = options.beam
    log_probs, parents, tokens = _candidates(beam, logits, length, options)  # (B, C), best first
    ends = tokens == options.eos
    _finish(beam, log_probs.masked_fill(~ends, float("-inf")), parents, length, options)

    open_log_probs, best = log_probs.masked_fill(ends, float("-inf")).sort(dim=1, descending=True, stable=True)
    if best.size(1) < width:  # greedy, or a vocabulary smaller than the beam
        missing = width - best.size(1)
        best = torch.nn.functional.pad(best, (0, missing))
        open_log_probs = torch.nn.functional.pad(open_log_probs, (0, missing), value=float("-inf"))
    best, beam.log_probs = best[:, :width], open_log_probs[:, :width]
    parents, tokens = parents.gather(1, best), tokens.gather(1, best)  # (B, W)
    beam.tokens = beam.tokens.gather(1, parents[:, :, None].expand(-1, -1, beam.tokens.size(2)))
    if length <= beam.tokens.size(2):
        beam.tokens[:, :, length - 1] = tokens

    at_limit = beam.limits < length
    if options.stop_early:
        attainable = beam.log_probs[:, 0] / length_penalty(beam.limits + 1, options.alpha)
        at_limit = at_limit | (beam.ended_scores[:, -1] >= attainable)
    beam.done = beam.done | at_limit
    return parents, tokens


def _candidates(beam: _Beam, logits: Tensor, length: int, options: SearchOptions) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations: log P of the whole, parent hypothesis, token; each (B, C), best first."""
    logits = logits.float()
    total = logits.logsumexp(-1, keepdim=True)  # (B, W, 1)
    logits[:, :, list(options.never)] = float("-inf")
    must_end = beam.limits < length
    if bool(must_end.any()):
        ending = logits[:, :, options.eos].clone()
        logits.masked_fill_(must_end[:, None, None], float("-inf"))
        logits[:, :, options.eos] = ending
    count = 2 * options.beam if options.beam > 1 else 1
    log_probs, flat = top_continuations(logits, total, beam.log_probs[:, :, None], count)
    return log_probs, flat // logits.size(2), flat % logits.size(2)


def top_continuations(logits: Tensor, total: Tensor, so_far: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of so_far + (logits - total) over (W, V), largest first: values and flat indices, (B, C).

    logits (B, W, V), total and so_far (B, W, 1). Rounding keeps order, so the largest lie in those chunks of the
    vocabulary whose own maxima are largest: only these are looked into. Equals are ranked by index.
    """
    size = logits.size(2)
    whole = size // CHUNK * CHUNK
    maxima = [logits[:, :, :whole].view(*logits.shape[:2], -1, CHUNK).amax(-1)] if whole else []
    maxima += [logits[:, :, whole:].amax(-1, keepdim=True)] if whole < size else []
    chunk_max = so_far + (torch.cat(maxima, dim=2) - total)  # (B, W, chunks)
    chunks = chunk_max.size(2)
    best = _largest(chunk_max.flatten(1), count)[1].sort(dim=1).values  # (B, chunks looked into)

    row, first = best // chunks, best % chunks * CHUNK
    token = first[:, :, None] + torch.arange(CHUNK, device=logits.device)  # (B, chunks looked into, CHUNK)
    beyond = token >= size
    flat = row[:, :, None] * size + token.clamp_max(size - 1)
    picked = logits.flatten(1).gather(1, flat.flatten(1)).view_as(flat)
    values = so_far.flatten(1).gather(1, row)[:, :, None] + (picked - total.flatten(1).gather(1, row)[:, :, None])
    values, places = _largest(values.masked_fill(beyond, float("-inf")).flatten(1), count)
    return values, flat.flatten(1).gather(1, places)


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Like `topk`, equals in the order of their index; x (B, n) -> values and indices, (B, min(count, n))."""
    values, places = x.sort(dim=1, descending=True, stable=True)
    return values[:, :count], places[:, :count]


def _finish(beam: _Beam, log_probs: Tensor, parents: Tensor, length: int, options: SearchOptions) -> None:
    """Rank the hypotheses that end now among the finished ones; log_probs (B, C), -inf where none ends."""
    log_probs = log_probs.masked_fill(beam.done[:, None], float("-inf"))
    if bool(torch.isneginf(log_probs).all()):
        return
    scores = torch.cat([beam.ended_scores, log_probs / length_penalty(length, options.alpha)], dim=1)
    scores, best = scores.sort(dim=1, descending=True, stable=True)  # an older one stands before an equal newer one
    best = best[:, : options.nbest]
    tokens = beam.tokens.gather(1, parents[:, :, None].expand(-1, -1, beam.tokens.size(2)))
    lengths = torch.full_like(parents, length - 1)
    beam.ended_scores = scores[:, : options.nbest]
    beam.ended_log_probs = torch.cat([beam.ended_log_probs, log_probs], dim=1).gather(1, best)
    beam.ended_lengths = torch.cat([beam.ended_lengths, lengths], dim=1).gather(1, best)
    beam.ended_tokens = torch.cat([beam.ended_tokens, tokens], dim=1).gather(1, best[:, :, None].expand(-1, -1, tokens.size(2)))


def _collect(beam: _Beam, results: list[list[Hypothesis]]) -> None:
    """Write the finished hypotheses of every row to its sentence's place in `results`."""
    columns = (beam.order, beam.ended_tokens, beam.ended_lengths, beam.ended_log_probs, beam.ended_scores)
    for sentence, tokens, lengths, log_probs, scores in zip(*(column.tolist() for column in columns), strict=True):
        found = [Hypothesis(t[:n], p, s) for t, n, p, s in zip(tokens, lengths, log_probs, scores, strict=True) if s != float("-inf")]
        if not found or any(h.score != h.score for h in found):
            raise ModelError("the model's output is not a number (NaN or infinite): its weights are damaged or it diverged in training. Use another checkpoint.")
        results[sentence] = found
