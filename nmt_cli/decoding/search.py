"""Beam search (section 6.1) over anything that can say what may come next: it sees a `Decoder`, never a model.

    B sentences not finished   W beam   N open hypotheses in all   V vocabulary   C candidates a step   L longest output

    worker ──▶ Search(decoder, options): add(keys, limits) · step() ──▶ (key, n-best hypotheses) of what has finished
                  │  step(tokens (B, W), rows (N,)) ──▶ logits (N, V)
                  │  reorder(parents (B, W)): hypothesis w goes on from what hypothesis parents[b, w] was
                  └─ keep(sentences (B',)): the others have finished and leave

Sentences enter whenever the caller has some, and leave when they have finished: each is at a step of its own.
`beam_search` is the search of one batch from its beginning to its end.

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

`min_length` bans the end symbol after a hypothesis that is too short; see `shortest`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..errors import ModelError
from . import min_length as shortest
from .candidates import Best, best_continuations

COMPACT_BELOW = 0.7
"""Finished sentences leave once no more than this share of the sentences is unfinished: leaving costs a copy."""


class Decoder(Protocol):
    """What a search asks of a model: it holds B sentences with W hypotheses each."""

    def step(self, tokens: Tensor, rows: Tensor) -> Tensor:
        """The newest token of each hypothesis, (B, W), and which hypotheses are open, (N,) ascending b * W + w ->
        logits of the next token of each open one, (N, V); they may be written to."""
        ...

    def reorder(self, parents: Tensor) -> None:
        """(B, W): hypothesis w of sentence b goes on from what was its hypothesis parents[b, w]."""
        ...

    def keep(self, sentences: Tensor) -> None:
        """(B',) ascending indices: those sentences stay; the others leave."""
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
    min_length: int = 0
    """As in [decode]."""
    textless: tuple[int, ...] = ()
    """Ids that do not count in `min_length`."""
    best: Best = best_continuations
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

    keys: Tensor  # (B,) which sentence a row is
    lengths: Tensor  # (B,) |Y| of what ends in the coming step
    newest: Tensor  # (B, W) the last tokens of the open hypotheses
    limits: Tensor  # (B,) tokens at most
    forced: Tensor  # (B, P) the tokens that an output must begin with; beyond its prefix: -1
    tokens: Tensor  # (B, W, L) open hypotheses; beyond their length: zeros
    log_probs: Tensor  # (B, W) of the open hypotheses, best first; -inf: there is none, nor behind it
    missing: Tensor  # (B, W) tokens with text that an open hypothesis lacks before it may end
    ended_tokens: Tensor  # (B, N, L)
    ended_lengths: Tensor  # (B, N) without the end symbol
    ended_log_probs: Tensor  # (B, N)
    ended_scores: Tensor  # (B, N) best first; -inf: there is none

    @staticmethod
    def start(keys: Sequence[int], limits: Tensor, options: SearchOptions, prefixes: Sequence[Sequence[int]] | None) -> _Beam:
        batch, longest, device = limits.size(0), int(limits.max()), limits.device
        log_probs = torch.full((batch, options.beam), float("-inf"), device=device)
        log_probs[:, 0] = 0.0  # at first there is one hypothesis, the empty one
        return _Beam(
            keys=torch.tensor(keys, device=device),
            lengths=torch.ones(batch, dtype=torch.long, device=device),
            newest=torch.full((batch, options.beam), options.bos, dtype=torch.long, device=device),
            limits=limits,
            forced=padded_prefixes(prefixes or [[]] * batch, device),
            tokens=torch.zeros(batch, options.beam, longest, dtype=torch.long, device=device),
            log_probs=log_probs,
            missing=shortest.missing(limits, options)[:, None].repeat(1, options.beam),
            ended_tokens=torch.zeros(batch, options.nbest, longest, dtype=torch.long, device=device),
            ended_lengths=torch.zeros(batch, options.nbest, dtype=torch.long, device=device),
            ended_log_probs=torch.full((batch, options.nbest), float("-inf"), device=device),
            ended_scores=torch.full((batch, options.nbest), float("-inf"), device=device),
        )

    def joined(self, other: _Beam) -> _Beam:
        """Both, one behind the other; what differs in L or P is filled up."""
        fill = {"forced": -1}
        both = {}
        for name, mine in vars(self).items():
            parts = [mine, getattr(other, name)]
            size = max(part.size(-1) for part in parts)
            if mine.dim() == 3 or name == "forced":
                parts = [torch.nn.functional.pad(part, (0, size - part.size(-1)), value=fill.get(name, 0)) for part in parts]
            both[name] = torch.cat(parts)
        return _Beam(**both)

    def select(self, rows: Tensor) -> _Beam:
        return _Beam(**{name: value.index_select(0, rows) for name, value in vars(self).items()})


def padded_prefixes(prefixes: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """(B, P) ids; beyond a prefix: -1."""
    size = max(len(prefix) for prefix in prefixes)
    return torch.tensor([[*prefix, *[-1] * (size - len(prefix))] for prefix in prefixes], dtype=torch.long, device=device).view(len(prefixes), size)


class Search:
    """Beam search over the sentences that `decoder` holds: call `add` whenever it has been given some, and `step` as
    long as it is `busy`.
    """

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.decoder, self.options = decoder, options
        self._beam: _Beam | None = None
        self._rows = torch.empty(0, dtype=torch.long)
        self._penalties = torch.empty(0)

    @property
    def busy(self) -> bool:
        return self._beam is not None

    @property
    def open(self) -> int:
        """N, the open hypotheses."""
        return len(self._rows)

    def add(self, keys: Sequence[int], limits: Tensor, prefixes: Sequence[Sequence[int]] | None = None) -> None:
        """Sentences that the decoder has just been given, behind those it has; `keys` will name them in the results.

        `limits` (B,) int64 says how many tokens each output may have; `prefixes` what each output begins with, no
        longer than its limit: those tokens count in log P like others.
        """
        new = _Beam.start(keys, limits, self.options, prefixes)
        self._beam = self._beam.joined(new) if self._beam else new
        if len(self._penalties) < int(limits.max()) + 2:  # one by one: a power's last bit depends on its place among others
            self._penalties = torch.tensor([length_penalty(n, self.options.alpha) for n in range(2 * int(limits.max()) + 2)], device=limits.device)
        self._rows = _open(self._beam)

    @torch.inference_mode()
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """One token more. Returns the keys of sentences that leave, and the `nbest` best hypotheses of each, best first.

        Fewer than `nbest` come only if there are no more. Raises `ModelError` if the model's output is not a number.
        """
        beam = self._beam
        if beam is None:
            return []
        logits = self.decoder.step(beam.newest, self._rows).float()
        parents = _advance(beam, logits, self._rows, self._penalties, self.options)
        self._rows = _open(beam)
        unfinished = beam.log_probs[:, 0].isneginf().logical_not_()
        left = int(unfinished.sum())
        if not left:
            self._beam = None
            self.decoder.keep(self._rows)  # none
            return _collected(beam)
        self.decoder.reorder(parents)
        if left > COMPACT_BELOW * len(unfinished):
            return []
        stay = unfinished.nonzero().flatten()
        found = _collected(beam.select(unfinished.logical_not_().nonzero().flatten()))
        self._beam = beam.select(stay)
        self._rows = _open(self._beam)
        self.decoder.keep(stay)
        return found


def _open(beam: _Beam) -> Tensor:
    """(N,) the open hypotheses as b * W + w, ascending."""
    return beam.log_probs.flatten().isneginf().logical_not_().nonzero().flatten()


def beam_search(
    decoder: Decoder, limits: Tensor, options: SearchOptions, prefixes: Sequence[Sequence[int]] | None = None
) -> list[list[Hypothesis]]:
    """The `nbest` best hypotheses of each of the sentences that `decoder` holds, nothing generated yet; see `Search`."""
    search, results = Search(decoder, options), [list[Hypothesis]() for _ in limits]
    search.add(range(len(limits)), limits, prefixes)
    while search.busy:
        for key, found in search.step():
            results[key] = found
    return results


def _advance(beam: _Beam, logits: Tensor, rows: Tensor, penalties: Tensor, options: SearchOptions) -> Tensor:
    """Take one step: what ends joins the finished, the W best others stay open. Returns their parents, (B, W).

    logits (N, V) are those of the open hypotheses `rows`; `penalties` are lp by length.
    """
    width = options.beam
    some_missing = bool(options.min_length) and bool(beam.missing.any())
    banned = shortest.banned(beam.missing.flatten()[rows], (beam.limits + 1 - beam.lengths)[rows // width], options, logits.size(1)) if some_missing else None
    log_probs, parents, tokens = _candidates(beam, logits, rows, banned, options)  # (B, C), best first
    ends = tokens == options.eos
    _finish(beam, log_probs.masked_fill(~ends, float("-inf")), parents, penalties, options)

    open_log_probs, best = log_probs.masked_fill(ends, float("-inf")).sort(dim=1, descending=True, stable=True)
    if best.size(1) < width:  # greedy, or a vocabulary smaller than the beam
        missing = width - best.size(1)
        best = torch.nn.functional.pad(best, (0, missing))
        open_log_probs = torch.nn.functional.pad(open_log_probs, (0, missing), value=float("-inf"))
    best, open_log_probs = best[:, :width], open_log_probs[:, :width]
    parents, beam.newest = parents.gather(1, best), tokens.gather(1, best)  # (B, W)
    if some_missing:
        beam.missing = shortest.missing_after(beam.missing.gather(1, parents), beam.newest, options)
    beam.tokens = beam.tokens.gather(1, parents[:, :, None].expand(-1, -1, beam.tokens.size(2)))
    if beam.tokens.size(2):
        place = (beam.lengths - 1).clamp_max(beam.tokens.size(2) - 1)[:, None, None].expand(-1, width, 1)
        beam.tokens.scatter_(2, place, beam.newest[:, :, None])

    hopeless = (beam.limits < beam.lengths)[:, None]
    if options.stop_early:
        attainable = open_log_probs / penalties[beam.limits + 1][:, None]
        hopeless = hopeless | (attainable <= beam.ended_scores[:, -1:])
    beam.log_probs = open_log_probs.masked_fill(hopeless, float("-inf"))
    beam.lengths = beam.lengths + 1
    return parents


def _candidates(beam: _Beam, logits: Tensor, rows: Tensor, banned: Tensor | None, options: SearchOptions) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations: log P of the whole, parent hypothesis, token; each (B, C), best first."""
    width = beam.log_probs.size(1)
    only = _only(beam, rows // width, options)
    never = options.never if banned is None else shortest.bannable(options)
    log_probs, flat = options.best(logits, beam.log_probs, rows, 2 * width if width > 1 else 1, never, only, banned)
    return log_probs, flat // logits.size(1), flat % logits.size(1)


def _only(beam: _Beam, sentences: Tensor, options: SearchOptions) -> Tensor | None:
    """(N,) the one token that may follow a hypothesis of these sentences, -1: any; None: any follows each."""
    must_end = (beam.limits < beam.lengths)[sentences]
    size = beam.forced.size(1)
    if not size and not bool(must_end.any()):
        return None
    only = torch.full_like(sentences, -1)
    if size:
        forced = beam.forced.gather(1, (beam.lengths - 1).clamp_max(size - 1)[:, None])[:, 0]
        only = forced.masked_fill(beam.lengths > size, -1)[sentences]
    return only.masked_fill(must_end, options.eos)


def _finish(beam: _Beam, log_probs: Tensor, parents: Tensor, penalties: Tensor, options: SearchOptions) -> None:
    """Rank the hypotheses that end now among the finished ones; log_probs (B, C), -inf where none ends."""
    if bool(torch.isneginf(log_probs).all()):
        return
    scores = torch.cat([beam.ended_scores, log_probs / penalties[beam.lengths][:, None]], dim=1)
    scores, best = scores.sort(dim=1, descending=True, stable=True)  # an older one stands before an equal newer one
    best = best[:, : options.nbest]
    tokens = beam.tokens.gather(1, parents[:, :, None].expand(-1, -1, beam.tokens.size(2)))
    lengths = (beam.lengths - 1)[:, None].expand_as(parents)
    beam.ended_scores = scores[:, : options.nbest]
    beam.ended_log_probs = torch.cat([beam.ended_log_probs, log_probs], dim=1).gather(1, best)
    beam.ended_lengths = torch.cat([beam.ended_lengths, lengths], dim=1).gather(1, best)
    beam.ended_tokens = torch.cat([beam.ended_tokens, tokens], dim=1).gather(1, best[:, :, None].expand(-1, -1, tokens.size(2)))


def _collected(beam: _Beam) -> list[tuple[int, list[Hypothesis]]]:
    """The key and the finished hypotheses of every row."""
    columns = (beam.keys, beam.ended_tokens, beam.ended_lengths, beam.ended_log_probs, beam.ended_scores)
    results = []
    for key, tokens, lengths, log_probs, scores in zip(*(column.tolist() for column in columns), strict=True):
        found = [Hypothesis(t[:n], p, s) for t, n, p, s in zip(tokens, lengths, log_probs, scores, strict=True) if s != float("-inf")]
        results.append((key, check_numbers(found)))
    return results


def check_numbers(found: list[Hypothesis]) -> list[Hypothesis]:
    """The same; raises ModelError if there are none, or not with a number for a score."""
    if not found or any(h.score != h.score for h in found):
        raise ModelError("the model's output is not a number (NaN or infinite): its weights are damaged or it diverged in training. Use another checkpoint.")
    return found
