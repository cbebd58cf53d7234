"""Dynamic beam allocation: choose the candidates that stay open where constraints demand something of the output.

Post and Vilar (2018), vectorised as by Hu et al. (2019). Candidates with the same progress form a bank. If the W best
candidates were kept by probability alone, candidates that are less probable because of a demanded token would be lost.
So each bank keeps its best candidate before any bank keeps its second best, and banks with more progress choose first.

    best candidates of all, proposals of the constraints, … ──▶ allocate: `Candidates`, of which W do not end

    B sentences   C candidates   W beam   N open hypotheses   E proposals per hypothesis
"""

from __future__ import annotations

from .arrays import NONE, Array, arrays_of
from .beam_state import Beam, Candidates, Scores
from .constraint import Constraints


def allocate(
    beam: Beam, candidates: Candidates, scores: Scores, constraints: Constraints, rows: Array, eos: int
) -> Candidates:
    """Return `candidates` and more. Of those that do not end, at most W are kept: the ones that `choose` selects.

    The new candidates of each hypothesis are its best token, the tokens that constraints propose, and the end symbol if
    it is the most probable token. This end symbol may be missing among `candidates`, because the tokens that
    constraints demanded lower the probability of the hypothesis. `rows` (B, W) are the rows of the hypotheses among the
    N open ones.
    """
    logits, states, arrays = scores.logits, beam.constraints, arrays_of(scores.logits)
    where, concat = arrays.where, arrays.concat
    proposals = constraints.proposals(states, beam.step(scores.rows), logits)  # (B, W, E)
    batch, width, _ = proposals.shape
    ends = arrays.copy(logits[:, eos])[rows]  # (B, W)
    logits[:, eos] = NONE
    best = logits.argmax(1)[rows][:, :, None]  # (B, W, 1) the best token to follow each hypothesis
    tokens = concat([best, best * 0 + eos, proposals], 2)  # (B, W, 2 + E)
    values = where(tokens < 0, NONE, logits[rows[:, :, None], tokens.clip(0)])
    wants_end = constraints.demands(states)[:, None] & (ends >= values[:, :, 0])
    values[:, :, 1] = where(wants_end, ends, NONE)
    if scores.only is not None:
        values = where((scores.only[rows] >= 0)[:, :, None], NONE, values)
    log_probs = (beam.open.log_probs[:, :, None] + values).reshape((batch, -1))
    log_probs = concat([candidates.log_probs, log_probs], 1)
    hypotheses = tokens * 0 + arrays.arange(width)[:, None]
    parents = concat([candidates.parents, hypotheses.reshape((batch, -1))], 1)
    tokens = concat([candidates.tokens, tokens.reshape((batch, -1))], 1)
    log_probs = without_repeats(log_probs, parents * logits.shape[1] + tokens)
    ends = tokens == eos
    kept = choose(where(ends, NONE, log_probs), constraints.progress(states, parents, tokens), width)
    return Candidates(where(kept | ends, log_probs, NONE), parents, tokens)


def without_repeats(log_probs: Array, numbers: Array) -> Array:
    """Return log_probs (B, C) with -inf for each candidate whose number (B, C) an earlier candidate has too, with a
    log-probability above -inf.
    """
    arrays = arrays_of(numbers)
    numbers = arrays.where(log_probs == NONE, -1 - arrays.arange(numbers.shape[1]), numbers)
    order = arrays.argsort(numbers)
    ordered = arrays.gather(numbers, order)
    repeated = ordered != ordered
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    log_probs = arrays.copy(log_probs)
    sentence, position = arrays.nonzero(repeated)
    log_probs[sentence, order[sentence, position]] = NONE
    return log_probs


def choose(log_probs: Array, progress: Array, width: int) -> Array:
    """Return whether the beam keeps each candidate: bool, (B, C), true for at most W = `width` per sentence.

    log_probs (B, C), -inf: no candidate; progress (B, C) at least 0. Equal candidates are ordered by index.
    """
    arrays, absent = arrays_of(log_probs), log_probs == NONE
    order = arrays.argsort(log_probs)
    banks = arrays.gather(arrays.where(absent, -1, progress), order)
    by_bank = arrays.argsort(banks)
    order, banks = arrays.gather(order, by_bank), arrays.gather(banks, by_bank)  # by bank, then by probability
    position = arrays.arange(banks.shape[1])
    begins = banks == banks
    begins[:, 1:] = banks[:, 1:] != banks[:, :-1]
    rank = position - arrays.running_max(arrays.where(begins, position, 0))  # within its bank
    rank = arrays.where(banks < 0, banks.shape[1], rank)
    chosen = arrays.gather(order, arrays.argsort(-rank)[:, :width])
    kept = absent & False
    kept[arrays.arange(len(kept))[:, None], chosen] = True
    return kept & ~absent
