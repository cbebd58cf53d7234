"""Beam search (section 6.1) over anything that can say what may come next: it sees a `Stepper`, never a model.

    B sentences not finished   W beam   N open hypotheses in all   V vocabulary   C candidates a step   L longest output

    translator ──▶ beam_search(stepper, limits, options) ──▶ n-best hypotheses a sentence
                      │  step(tokens (B, W), rows (N,)) ──▶ logits (N, V)
                      │  reorder(parents (B, W)): hypothesis w goes on from what hypothesis parents[b, w] was
                      └─ keep(sentences (B',)): the others have finished and leave

Score: log P(Y) / lp(Y) with the length penalty lp(Y) = ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, equation 14). |Y|
counts the end symbol, always. log P is the sum of the model's log-probabilities; PAD, BOS and UNK are never generated,
and what the model gives to them is not shared out among the others.

Each step takes the 2W best continuations of a sentence: a hypothesis has one end symbol only, so W of them at least
are open, and endings never starve the beam. A beam of one takes the one best: it is greedy search, and ends at the
first end symbol.

An open hypothesis that can no longer reach its sentence's n best is given up: log P only falls and lp only grows, so it
ends with log P / lp(longest) at most. What would take its place in the beam is worse still, so the n best are never
lost by it, and the model is asked about open hypotheses alone: one a sentence in the first step, few in the last. A
sentence is finished when none is left. An output holds at most `limits[b]` tokens, the end symbol besides; a
hypothesis of that length is given the end symbol, at its own log-probability. Nothing that happens to a sentence
depends on the others, and equals are ranked by (hypothesis, token id).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import ModelError

COMPACT_BELOW = 0.7
"""Finished sentences leave once no more than this share of the sentences is unfinished: leaving costs a copy."""
CHUNK = 64
"""Vocabulary entries looked at as one when the best continuations are sought."""


class Stepper(Protocol):
    """What a search asks of a model: it holds B sentences with W hypotheses each, all of the same length."""

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """The newest token of each hypothesis, (B, W), and which hypotheses are open, (N,) ascending b * W + w ->
        logits of the next token of each open one, (N, V); they may be written to."""
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
    """False: nothing is given up before the longest output. It is the slow twin; the n best are the same."""


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
    forced: Tensor  # (B, P) the tokens that an output must begin with; beyond its prefix: -1
    tokens: Tensor  # (B, W, L) open hypotheses; beyond their length: zeros
    log_probs: Tensor  # (B, W) of the open hypotheses, best first; -inf: there is none, nor behind it
    ended_tokens: Tensor  # (B, N, L)
    ended_lengths: Tensor  # (B, N) without the end symbol
    ended_log_probs: Tensor  # (B, N)
    ended_scores: Tensor  # (B, N) best first; -inf: there is none

    @staticmethod
    def start(limits: Tensor, options: SearchOptions, prefixes: Sequence[Sequence[int]] | None) -> _Beam:
        batch, longest, device = limits.size(0), int(limits.max()), limits.device
        log_probs = torch.full((batch, options.beam), float("-inf"), device=device)
        log_probs[:, 0] = 0.0  # at first there is one hypothesis, the empty one
        return _Beam(
            order=torch.arange(batch, device=device),
            limits=limits,
            forced=padded_prefixes(prefixes or [[]] * batch, device),
            tokens=torch.zeros(batch, options.beam, longest, dtype=torch.long, device=device),
            log_probs=log_probs,
            ended_tokens=torch.zeros(batch, options.nbest, longest, dtype=torch.long, device=device),
            ended_lengths=torch.zeros(batch, options.nbest, dtype=torch.long, device=device),
            ended_log_probs=torch.full((batch, options.nbest), float("-inf"), device=device),
            ended_scores=torch.full((batch, options.nbest), float("-inf"), device=device),
        )

    def select(self, rows: Tensor) -> _Beam:
        return _Beam(**{name: value.index_select(0, rows) for name, value in vars(self).items()})


def padded_prefixes(prefixes: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """(B, P) ids; beyond a prefix: -1."""
    size = max(len(prefix) for prefix in prefixes)
    return torch.tensor([[*prefix, *[-1] * (size - len(prefix))] for prefix in prefixes], dtype=torch.long, device=device).view(len(prefixes), size)


@torch.inference_mode()
def beam_search(
    stepper: Stepper, limits: Tensor, options: SearchOptions, prefixes: Sequence[Sequence[int]] | None = None
) -> list[list[Hypothesis]]:
    """The `nbest` best hypotheses of each sentence, best first.

    `stepper` holds B sentences, nothing generated yet; `limits` (B,) int64 says how many tokens each output may have;
    `prefixes` what each output begins with, no longer than its limit: those tokens count in log P like others.
    Fewer than `nbest` come back only if there are no more. Raises `ModelError` if the model's output is not a number.
    """
    beam = _Beam.start(limits, options, prefixes)
    results: list[list[Hypothesis]] = [[] for _ in range(limits.size(0))]
    newest = torch.full((limits.size(0), options.beam), options.bos, dtype=torch.long, device=limits.device)
    shortest, longest = int(limits.min()), int(limits.max())
    for length in range(1, longest + 2):  # |Y| of what ends in this step
        rows = beam.log_probs.flatten().isneginf().logical_not_().nonzero().flatten()
        logits = stepper.step(newest, rows).float()
        parents, newest = _advance(beam, logits, rows, length, length > shortest, options)
        unfinished = beam.log_probs[:, 0].isneginf().logical_not_().nonzero().flatten()
        if not len(unfinished):
            break
        stepper.reorder(parents)
        if len(unfinished) <= COMPACT_BELOW * len(beam.limits):
            finished = beam.log_probs[:, 0].isneginf().nonzero().flatten()
            _collect(beam.select(finished), results)
            beam, newest = beam.select(unfinished), newest.index_select(0, unfinished)
            stepper.keep(unfinished)
    _collect(beam, results)
    return results


def _advance(
    beam: _Beam, logits: Tensor, rows: Tensor, length: int, ending: bool, options: SearchOptions
) -> tuple[Tensor, Tensor]:
    """Take one step: what ends joins the finished, the W best others stay open. Returns their parents and tokens.

    logits (N, V) are those of the open hypotheses `rows`; `ending`: some sentences may have reached their limit.
    """
    width = options.beam
    log_probs, parents, tokens = _candidates(beam, logits, rows, length, ending, options)  # (B, C), best first
    ends = tokens == options.eos
    _finish(beam, log_probs.masked_fill(~ends, float("-inf")), parents, length, options)

    open_log_probs, best = log_probs.masked_fill(ends, float("-inf")).sort(dim=1, descending=True, stable=True)
    if best.size(1) < width:  # greedy, or a vocabulary smaller than the beam
        missing = width - best.size(1)
        best = torch.nn.functional.pad(best, (0, missing))
        open_log_probs = torch.nn.functional.pad(open_log_probs, (0, missing), value=float("-inf"))
    best, open_log_probs = best[:, :width], open_log_probs[:, :width]
    parents, tokens = parents.gather(1, best), tokens.gather(1, best)  # (B, W)
    beam.tokens = beam.tokens.gather(1, parents[:, :, None].expand(-1, -1, beam.tokens.size(2)))
    if length <= beam.tokens.size(2):
        beam.tokens[:, :, length - 1] = tokens

    hopeless = (beam.limits < length)[:, None]
    if options.stop_early:
        attainable = open_log_probs / length_penalty(beam.limits + 1, options.alpha)[:, None]  # type: ignore[index]
        hopeless = hopeless | (attainable <= beam.ended_scores[:, -1:])
    beam.log_probs = open_log_probs.masked_fill(hopeless, float("-inf"))
    return parents, tokens


def _candidates(
    beam: _Beam, logits: Tensor, rows: Tensor, length: int, ending: bool, options: SearchOptions
) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations: log P of the whole, parent hypothesis, token; each (B, C), best first."""
    width = beam.log_probs.size(1)
    total = logits.logsumexp(-1)  # (N,)
    sentences = rows // width
    forced = beam.forced[:, length - 1].index_select(0, sentences) if length <= beam.forced.size(1) else sentences[:0]
    bound = (forced >= 0).nonzero().flatten()
    kept = logits[bound, forced[bound]]
    for never in options.never:
        logits[:, never] = float("-inf")
    if len(bound):
        logits[bound] = float("-inf")
        logits[bound, forced[bound]] = kept
    if ending:
        must_end = (beam.limits < length).index_select(0, sentences)
        last = logits[:, options.eos].clone()
        logits.masked_fill_(must_end[:, None], float("-inf"))
        logits[:, options.eos] = last
    count = 2 * width if width > 1 else 1
    log_probs, flat = top_continuations(logits, total, beam.log_probs, rows, count)
    return log_probs, flat // logits.size(1), flat % logits.size(1)


def top_continuations(logits: Tensor, total: Tensor, so_far: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of so_far + (logits - total) over (W, V), largest first: values and flat indices, (B, C).

    so_far (B, W); logits (N, V) and total (N,) of the hypotheses `rows` (N,): the others have none. Rounding keeps
    order, so the largest lie in those chunks of the vocabulary whose own maxima are largest: only these are looked
    into. Equals are ranked by index.
    """
    (batch, width), size = so_far.shape, logits.size(1)
    whole = size // CHUNK * CHUNK
    maxima = [logits[:, :whole].view(len(logits), -1, CHUNK).amax(-1)] if whole else []
    maxima += [logits[:, whole:].amax(-1, keepdim=True)] if whole < size else []
    of_rows = so_far.flatten()[rows]
    of_chunks = of_rows[:, None] + (torch.cat(maxima, dim=1) - total[:, None])  # (N, chunks)
    chunks = of_chunks.size(1)
    chunk_max = of_chunks.new_full((batch * width, chunks), float("-inf")).index_copy_(0, rows, of_chunks)
    best = _largest(chunk_max.view(batch, -1), count)[1].sort(dim=1).values  # (B, chunks looked into)

    hypothesis, first = best // chunks, best % chunks * CHUNK
    token = first[:, :, None] + torch.arange(CHUNK, device=logits.device)  # (B, chunks looked into, CHUNK)
    place = torch.zeros(batch * width, dtype=torch.long, device=rows.device).index_copy_(0, rows, torch.arange(len(rows), device=rows.device))
    own = place[hypothesis + torch.arange(batch, device=rows.device)[:, None] * width]  # (B, chunks looked into) of N
    nothing = so_far.gather(1, hypothesis).isneginf()
    picked = logits.flatten()[own[:, :, None] * size + token.clamp_max(size - 1)]
    values = of_rows[own][:, :, None] + (picked - total[own][:, :, None])
    values = values.masked_fill((token >= size) | nothing[:, :, None], float("-inf"))
    values, places = _largest(values.flatten(1), count)
    flat = hypothesis[:, :, None] * size + token.clamp_max(size - 1)
    return values, flat.flatten(1).gather(1, places)


def _largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row of x (B, n) fp32, largest first, equals in the order of their index: values and
    indices, (B, min(count, n)). `topk` leaves open which of equals it takes, and a stable sort takes five times as long:
    the keys here are whole numbers that hold the value above and the index below, and none are equal."""
    size = x.size(1)
    bits = (x + 0.0).view(torch.int32)  # -0 becomes 0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # whole numbers in the order of the values
    keys = (ordered.long() << 32) | torch.arange(size - 1, -1, -1, device=x.device)
    places = keys.topk(min(count, size), dim=1).indices
    return x.gather(1, places), places


def _finish(beam: _Beam, log_probs: Tensor, parents: Tensor, length: int, options: SearchOptions) -> None:
    """Rank the hypotheses that end now among the finished ones; log_probs (B, C), -inf where none ends."""
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
        results[sentence] = check_numbers(found)


def check_numbers(found: list[Hypothesis]) -> list[Hypothesis]:
    """The same; raises ModelError if there are none, or not with a number for a score."""
    if not found or any(h.score != h.score for h in found):
        raise ModelError("the model's output is not a number (NaN or infinite): its weights are damaged or it diverged in training. Use another checkpoint.")
    return found
