"""Sampling: random outputs instead of the best ones; each token is drawn from the model's distribution.

    B sentences   W samples per sentence   M open samples   N different open samples   V vocabulary   L longest output

    one step:  decoder.step ──▶ logits (N, V) ──▶ draw ──▶ tokens (M,) ──▶ samples that differ now: decoder.reorder

The temperature divides the logits. Then `top_k` keeps the k most probable tokens, `top_p` the fewest tokens whose
probabilities reach p (nucleus sampling, Holtzman et al. 2020), and `min_p` the tokens that have at least this share of
the largest probability (Nguyen et al. 2024). The random numbers of a sentence come from the seed and
the sentence's own tokens: the same line gives the same samples, whatever its line number and its neighbours. The W
samples are independent. log P is the model's own, as in beam search: temperature, cuts and bans do not change it.

The samples of a sentence are equal at first. The decoder computes equal samples once: it computes the first of them, their
leader. As soon as a sample differs from its leader, the decoder computes it separately, with the leader's past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..device import is_host, widest_float
from ..errors import UsageError
from .candidates import CHUNK, LOGITS_IN_CACHE, ban, log_softmax_, log_sum_exp
from .constraint import Constraints, States, Step
from .min_length import Bans, MinLength
from .protocols import Decoder
from .search import (
    FinishedSentences,
    Hypothesis,
    SamplingOptions,
    SearchOptions,
    check_numbers,
    plain_sentences,
    run_to_end,
)
from .search_state import Rows, Sentences, split_off_finished, without
from .sentence import Sentence

NUCLEUS = 64
"""Number of candidates that `top_p` sorts first. Where they do not reach p, the whole vocabulary is sorted."""


def sample(
    decoder: Decoder,
    max_lengths: Tensor,
    options: SearchOptions,
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Return `options.beam` samples of each sentence that `decoder` holds, the best `options.nbest` of them; see `Search.add`."""
    return run_to_end(
        SamplingSearch(decoder, options), plain_sentences(max_lengths, prefixes, sources), max_lengths.device
    )


@dataclass
class Samples(Rows):
    """The state of B sentences and their W samples each."""

    sentences: Sentences
    constraints: States
    open: Tensor  # (B, W) whether a sample has not ended
    tokens: Tensor  # (B, W, L + 1) end symbol included
    newest: Tensor  # (B, W) the last token
    lengths: Tensor  # (B, W) end symbol counted
    log_probs: Tensor  # (B, W)
    missing: Tensor  # (B, W) see `MinLength`
    leaders: Tensor  # (B, W) the first sample of the sentence that has the same tokens; for open samples only
    uniform: Tensor  # (B, W, L + 1) random numbers in [0, 1), one per token
    token_log_probs: Tensor | None  # (B, W, L + 1) if asked for

    def hypotheses(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the samples of each sentence, by score. Raises ModelError, see `check_numbers`."""
        details = self.log_probs[:, :, None][:, :, :0] if self.token_log_probs is None else self.token_log_probs
        columns = (self.tokens, self.lengths, self.log_probs, details)
        return [
            self._ranked(t, n, p, d, options)
            for t, n, p, d in zip(*(column.tolist() for column in columns), strict=True)
        ]

    @staticmethod
    def _ranked(
        tokens: list[list[int]],
        lengths: list[int],
        log_probs: list[float],
        details: list[list[float]],
        options: SearchOptions,
    ) -> list[Hypothesis]:
        samples = [  # scored one by one: a power's last bit depends on its position in a vector
            Hypothesis(t[: n - 1], p, options.score(p, n), tuple(d[:n]))
            for t, n, p, d in zip(tokens, lengths, log_probs, details, strict=True)
        ]
        return check_numbers(sorted(samples, key=lambda h: -h.score)[: options.nbest])


class SamplingSearch:
    """See `Search`."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.decoder, self.options = decoder, options
        self.min_length, self.constraints = MinLength(options), Constraints(options.constraints)
        if self.constraints.progresses:
            raise UsageError(
                "sampling cannot follow constraints that demand something of the output, as --terms does: they need beam search."
            )
        self.samples: Samples | None = None
        self.open = torch.empty(0, dtype=torch.long)  # (M,) the open samples, b * W + w
        self.rows = torch.empty(0, dtype=torch.long)  # (N,) their leaders
        self.row_of = torch.empty(0, dtype=torch.long)  # (M,) the index in `rows` of each sample's leader

    @property
    def busy(self) -> bool:
        """See `Search`."""
        return self.samples is not None

    @property
    def open_hypotheses(self) -> int:
        """See `Search`. Samples that are still equal count: they will differ soon."""
        return len(self.open)

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence], device: torch.device) -> None:
        """See `Search`. The random numbers depend on the tokens of the sentences."""
        max_lengths = torch.tensor([sentence.max_length for sentence in sentences], device=device)
        shape, longest = (len(sentences), self.options.beam), int(max_lengths.max()) + 1
        numbers = np.stack(
            [_uniform(self.options.sampling.seed, sentence.tokens, shape[1], longest) for sentence in sentences]
        )
        new = Samples(
            Sentences.start(sentence_ids, max_lengths),
            self.constraints.start(sentences, shape[1], device),
            open=torch.ones(shape, dtype=torch.bool, device=device),
            tokens=torch.zeros(*shape, longest, dtype=torch.long, device=device),
            newest=torch.full(shape, self.options.bos, dtype=torch.long, device=device),
            lengths=torch.zeros(shape, dtype=torch.long, device=device),
            log_probs=torch.zeros(shape, device=device),
            missing=self.min_length.missing(max_lengths)[:, None].repeat(1, shape[1]),
            leaders=torch.zeros(shape, dtype=torch.long, device=device),
            uniform=torch.from_numpy(numbers).to(device),
            token_log_probs=torch.zeros(*shape, longest, device=device) if self.options.token_log_probs else None,
        )
        self._set(self.samples.concat(new) if self.samples else new)

    @torch.inference_mode()
    def step(self) -> FinishedSentences:
        """See `Search`."""
        samples = self.samples
        if samples is None:
            return []
        logits = self.decoder.step(samples.newest, self.rows).float()
        step = Step(self.rows, samples.tokens, samples.sentences.lengths - 1, samples.sentences.remaining)
        required = self.constraints.required(samples.constraints, step)
        if bool(samples.sentences.complete.any()):
            required = samples.sentences.required_tokens(required, step.sentences, self.options.eos)
        logits, own = self._edited(samples, step, logits, required)
        missing = step.of_rows(samples.missing)
        bans = (
            self.min_length.bans(missing, step.remaining[step.sentences], logits.size(1))
            if bool(missing.any())
            else self.min_length.always
        )
        tokens = self._draw(samples, step, logits, bans, required)
        log_probs = own[self.row_of, tokens]
        self._append(
            samples, tokens, log_probs if self.constraints.edits else log_probs - log_sum_exp(own)[self.row_of]
        )
        if bans.counts is not None:
            missing = samples.missing.view(-1)
            missing[self.open] = self.min_length.missing_after(missing[self.open], tokens)
        self._part(samples, tokens, logits.size(1))
        return self._leave(samples)

    def _set(self, samples: Samples) -> None:
        """Make these the samples of the search."""
        width = self.options.beam
        self.samples = samples if len(samples.sentences.ids) else None
        self.open = samples.open.flatten().nonzero().flatten()
        leaders = self.open // width * width + samples.leaders.flatten()[self.open]
        self.rows, self.row_of = torch.unique(leaders, return_inverse=True)

    def _edited(self, samples: Samples, step: Step, logits: Tensor, required: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (N, V) that the constraints have edited, and the model's own. Without such constraints: the logits, twice."""
        if not self.constraints.edits:
            return logits, logits
        own = log_softmax_(logits)
        edited = own.clone()
        self.constraints.edit(samples.constraints, step, edited, required, self.options.eos)
        return edited, own

    def _draw(self, samples: Samples, step: Step, logits: Tensor, bans: Bans, required: Tensor | None) -> Tensor:
        """Return the next token of each open sample, (M,). Where the leader has a `required` token, (N,), it is this token."""
        uniform = samples.uniform.flatten(0, 1)[self.open, step.lengths[self.open // self.options.beam]]
        if self.constraints.edits:
            bans = self.min_length.give_way(bans, logits)
        tokens = draw(logits, uniform, bans, self.options.sampling, self.row_of)
        return tokens if required is None else torch.where(required[self.row_of] >= 0, required[self.row_of], tokens)

    def _append(self, samples: Samples, tokens: Tensor, log_probs: Tensor) -> None:
        """Append to each open sample its token (M,) with its log-probability (M,)."""
        lengths = samples.sentences.lengths[self.open // self.options.beam]
        samples.tokens.view(-1, samples.tokens.size(2))[self.open, lengths - 1] = tokens
        samples.log_probs.view(-1)[self.open] += log_probs
        if samples.token_log_probs is not None:
            samples.token_log_probs.view(-1, samples.tokens.size(2))[self.open, lengths - 1] = log_probs
        samples.newest.view(-1)[self.open] = tokens
        samples.lengths.view(-1)[self.open] = lengths
        samples.open.view(-1)[self.open] = tokens != self.options.eos
        samples.sentences.lengths = samples.sentences.lengths + 1
        samples.constraints = self.constraints.advance(samples.constraints, samples.newest)

    def _part(self, samples: Samples, tokens: Tensor, vocabulary: int) -> None:
        """Set new leaders where samples that were equal got different tokens (M,)."""
        width = self.options.beam
        _, equal = torch.unique(
            self.row_of * vocabulary + tokens, return_inverse=True
        )  # (M,) samples with the same number are equal now
        first = torch.full_like(self.open, samples.open.numel()).scatter_reduce_(0, equal, self.open, "amin")
        parents = torch.arange(width, device=tokens.device).repeat(len(samples.open))
        parents[self.open] = self.rows[self.row_of] % width
        samples.leaders.view(-1)[self.open] = first[equal] % width
        if not parents[first[equal]].equal(first[equal] % width):
            self.decoder.reorder(parents.view(-1, width))

    def _leave(self, samples: Samples) -> FinishedSentences:
        """Return the finished sentences and drop them, if enough have finished."""
        finished: FinishedSentences = []
        if split := split_off_finished(samples.open.any(1), self.options.compact_below):
            stay, leave = split
            leaving = samples.select(leave)
            finished = list(zip(leaving.sentences.ids.tolist(), leaving.hypotheses(self.options), strict=True))
            samples = samples.select(stay)
            self.decoder.keep(stay)
        self._set(samples)
        return finished

    def drop(self, sentence_ids: Sequence[int]) -> None:
        """See `Search`."""
        if self.samples:
            stay = without(self.samples.sentences.ids, sentence_ids)
            self.decoder.keep(stay)
            self._set(self.samples.select(stay))


def _uniform(seed: int, source: Sequence[int], width: int, length: int) -> np.ndarray:
    """Return (W, L) random numbers in [0, 1) of one sentence. The numbers of sample w do not depend on W and L.

    Philox computes them from a key of the sentence and a counter (Salmon et al. 2011). The counter of sample w begins at w * 2^128.
    """
    bits = np.random.Philox(np.random.SeedSequence([seed, *source]))
    generator, state = np.random.Generator(bits), bits.state
    numbers = np.empty((width, length))
    for sample, row in enumerate(numbers):
        state["state"]["counter"][2] = sample
        bits.state = state
        generator.random(out=row)
    return numbers


def draw(logits: Tensor, uniform: Tensor, bans: Bans, options: SamplingOptions, row_of: Tensor | None = None) -> Tensor:
    """Return a token for each of M samples, given uniform (M,) in [0, 1). Sample m uses row row_of[m] of the logits (N, V).

    Without `row_of`, M is N, one sample per row. The logits are left unchanged.
    """
    weights = _weights(logits, bans, options).view(len(logits), -1, CHUNK)
    if row_of is None:
        row_of = torch.arange(len(logits), device=logits.device)
    chunk, inside = _choose(_widened(weights.sum(-1)).cumsum(1)[row_of], uniform)
    token, _ = _choose(_widened(weights[row_of, chunk]).cumsum(1), inside)
    return (chunk * CHUNK + token).clamp_max(logits.size(1) - 1)  # larger only where the logits are not numbers


def _widened(weights: Tensor) -> Tensor:
    return weights.to(widest_float(weights.device))


def _choose(cumulative: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return the part of [0, 1) into which `uniform` (M,) falls, if weights divide [0, 1): its index, and the share of the part before `uniform`.

    `cumulative` (M, C) fp64 are the cumulative sums of the weights. A weight of 0 is never chosen.
    """
    total = cumulative[:, -1:].contiguous()
    target = uniform[:, None] * total
    last = torch.searchsorted(cumulative, total).clamp_max(cumulative.size(1) - 1)  # the last one with a weight above 0
    index = torch.minimum(torch.searchsorted(cumulative, target, right=True), last)
    before = F.pad(cumulative, (1, 0)).gather(1, index)
    share = (target - before) / (cumulative.gather(1, index) - before)
    return index[:, 0], share[:, 0].clamp(0.0, 1.0)


def _weights(logits: Tensor, bans: Bans, options: SamplingOptions) -> Tensor:
    """Return weights (N, V rounded up to chunks): the probabilities of the tokens, times a factor per row; 0: banned or cut off."""
    count, size = logits.shape
    weights = logits.new_empty(count, -(-size // CHUNK) * CHUNK)
    at_once = LOGITS_IN_CACHE // size + 1 if is_host(logits.device) else max(1, count)
    for start in range(0, count, at_once):
        rows = slice(start, start + at_once)
        block = weights[rows]
        block[:, :size], block[:, size:] = logits[rows], float("-inf")
        ban(block, bans.tokens, None if bans.counts is None else bans.counts[rows])
        if 0 < options.top_k < size or options.top_p < 1:
            _keep_best(block, options)
            continue
        _to_weights(block, block.amax(1, keepdim=True), options)
        if options.min_p:
            torch.threshold_(
                block, float(np.nextafter(np.float32(options.min_p), np.float32(0))), 0.0
            )  # keeps larger values
    return weights


def _to_weights(logits: Tensor, largest: Tensor, options: SamplingOptions) -> Tensor:
    """Turn logits (N, C) into exp((logit - largest) / temperature), in the same memory, given `largest` (N, 1)."""
    logits -= largest
    if options.temperature != 1:
        logits /= options.temperature
    return logits.exp_()


def _keep_best(logits: Tensor, options: SamplingOptions) -> None:
    """Turn logits (N, V) into weights, in place; 0 for tokens that `top_k`, `top_p` and `min_p`, applied in this order, do not keep."""
    values, tokens = logits.topk(min(options.top_k or NUCLEUS, logits.size(1)), dim=1)
    total = None
    if not options.top_k:
        total = _widened(_to_weights(logits.clone(), values[:, :1], options).view(len(logits), -1, CHUNK).sum(-1)).sum(
            1
        )
    kept, complete = _cut(values, total, options)
    rows = complete.logical_not().nonzero().flatten()
    others = logits[rows]
    logits.zero_().scatter_(1, tokens, kept)
    if len(rows):
        sorted_values, sorted_tokens = _sorted_tokens(others)
        logits[rows] = torch.zeros_like(sorted_values).scatter_(1, sorted_tokens, _cut(sorted_values, None, options)[0])


def _cut(values: Tensor, total: Tensor | None, options: SamplingOptions) -> tuple[Tensor, Tensor]:
    """Return the weights of logits `values` (N, C), largest first, with 0 for those cut off; and whether C candidates are enough, (N,).

    `total` (N,) is the weight of all tokens before `top_p`; None: the weight of these C.
    """
    weights = _to_weights(values.clone(), values[:, :1], options)
    cumulative = _widened(weights).cumsum(1)
    needed = options.top_p * (cumulative[:, -1] if total is None else total)
    kept = (cumulative < needed[:, None]).sum(1) + 1  # up to the candidate that reaches p
    complete = cumulative[:, -1] >= needed
    if options.min_p:
        likely = (weights >= options.min_p).sum(1)
        kept, complete = torch.minimum(kept, likely), complete | (likely < weights.size(1))
    return weights.masked_fill_(torch.arange(weights.size(1), device=weights.device) >= kept[:, None], 0.0), complete


def _sorted_tokens(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (N, V) sorted, largest first, and their tokens. Equal logits are ordered by token.

    The sort gets integers: the logit in the upper bits, the token in the lower ones. On a CPU, numpy sorts them several times
    as fast as torch sorts values and indices.
    """
    bits = (logits + 0.0).view(torch.int32)  # -0 becomes 0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the values
    sort_keys = (~ordered.long() << 32) | torch.arange(logits.size(1), device=logits.device)
    in_order = (
        torch.from_numpy(np.sort(sort_keys.numpy(), axis=1)) if is_host(logits.device) else sort_keys.sort(dim=1).values
    )
    ordered = ~(in_order >> 32).int()
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32), in_order & 0xFFFFFFFF
