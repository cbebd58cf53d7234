"""Dynamic beam allocation: choose the candidates that stay open where constraints demand something of the output.

Post and Vilar (2018), vectorised as by Hu et al. (2019). Candidates with the same progress form a bank. If the W best
candidates were kept by probability alone, candidates that are less probable because of a demanded token would be lost. So each bank
keeps its best candidate before any bank keeps its second best, and banks with more progress choose first.

    best candidates of all, proposals of the constraints, … ──▶ allocate: `Candidates`, of which W do not end

    B sentences   C candidates   W beam   N open hypotheses   E proposals per hypothesis
"""

from __future__ import annotations

import torch
from torch import Tensor

from .beam_state import NONE, Beam, Candidates, Scores
from .candidates import best_tokens
from .constraint import Constraints, Step


def allocate(
    beam: Beam, candidates: Candidates, scores: Scores, constraints: Constraints, step: Step, rows: Tensor, eos: int
) -> Candidates:
    """Return `candidates` and more. Of those that do not end, at most W are kept: the ones that `choose` selects.

    The new candidates of each hypothesis are its best token, the tokens that constraints propose, and the end symbol if it
    is the most probable token. This end symbol may be missing among `candidates`, because the tokens that constraints
    demanded lower the probability of the hypothesis. `rows` (B, W) are the rows of the hypotheses among the N open ones.
    """
    logits, states = scores.logits, beam.constraints
    proposals = constraints.proposals(states, step, logits)  # (B, W, E)
    batch, width, count = proposals.shape
    wants_end = logits[:, eos] == logits.amax(1)
    ends = (
        logits[:, eos].masked_fill(~wants_end, NONE)[rows].masked_fill(~constraints.demands(states)[:, None], NONE)
    )  # (B, W)
    logits[:, eos] = NONE
    best = best_tokens(logits)[rows]  # (B, W) the best token to follow each hypothesis
    tokens = torch.cat([best[:, :, None], torch.full_like(best, eos)[:, :, None], proposals], dim=2)  # (B, W, 2 + E)
    values = logits[rows[:, :, None], tokens.clamp_min(0)].masked_fill(tokens < 0, NONE)
    values[:, :, 1] = ends
    if scores.only is not None:
        values = values.masked_fill((scores.only[rows] >= 0)[:, :, None], NONE)
    log_probs = torch.cat([candidates.log_probs, (beam.open.log_probs[:, :, None] + values).flatten(1)], dim=1)
    hypotheses = torch.arange(width, device=logits.device).repeat_interleave(2 + count).expand(batch, -1)
    parents = torch.cat([candidates.parents, hypotheses], dim=1)
    tokens = torch.cat([candidates.tokens, tokens.flatten(1)], dim=1)
    log_probs = without_repeats(log_probs, parents * logits.size(1) + tokens)
    kept = choose(log_probs.masked_fill(tokens == eos, NONE), constraints.progress(states, parents, tokens), width)
    return Candidates(log_probs.masked_fill(~kept & (tokens != eos), NONE), parents, tokens, None)


def without_repeats(log_probs: Tensor, numbers: Tensor) -> Tensor:
    """Return log_probs (B, C) with -inf for each candidate whose number (B, C) an earlier candidate has too, with a log-probability above -inf."""
    numbers = torch.where(log_probs.isneginf(), -1 - torch.arange(numbers.size(1), device=numbers.device), numbers)
    ordered, order = numbers.sort(dim=1, stable=True)
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return log_probs.masked_fill(torch.zeros_like(repeated).scatter_(1, order, repeated), NONE)


def choose(log_probs: Tensor, progress: Tensor, width: int) -> Tensor:
    """Return whether the beam keeps each candidate: bool, (B, C), true for at most W = `width` per sentence.

    log_probs (B, C), -inf: no candidate; progress (B, C) at least 0. Equal candidates are ordered by index.
    """
    absent = log_probs.isneginf()
    order = log_probs.sort(dim=1, descending=True, stable=True).indices
    banks, by_bank = progress.masked_fill(absent, -1).gather(1, order).sort(dim=1, descending=True, stable=True)
    order = order.gather(1, by_bank)  # by bank, then by probability
    position = torch.arange(banks.size(1), device=banks.device).expand_as(banks)
    begins = torch.ones_like(banks, dtype=torch.bool)
    begins[:, 1:] = banks[:, 1:] != banks[:, :-1]
    rank = position - torch.where(begins, position, 0).cummax(dim=1).values  # within its bank
    rank = rank.masked_fill(banks < 0, banks.size(1))
    chosen = order.gather(1, rank.sort(dim=1, stable=True).indices[:, :width])
    return torch.zeros_like(absent).scatter_(1, chosen, True) & ~absent
