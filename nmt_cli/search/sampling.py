"""Sampling: random outputs instead of the best ones; each token is drawn from the model's distribution.

    B sentences   W samples per sentence   M open samples   N different open samples   V vocabulary   L longest output

    one step:  decoder.step ──▶ logits (N, V) ──▶ draw ──▶ tokens (M,) ──▶ samples that differ now: decoder.reorder

The temperature divides the logits. Then `top_k` keeps the k most probable tokens, `top_p` the fewest tokens whose
probabilities reach p (nucleus sampling, Holtzman et al. 2020), and `min_p` the tokens that have at least this share of
the largest probability (Nguyen et al. 2024). The random numbers of a sentence come from the seed and
the sentence's own tokens: the same line gives the same samples, whatever its line number and its neighbours. The W
samples are independent. log P is the model's own, as in beam search: temperature, cuts and bans do not change it.

The samples of a sentence are equal at first. The decoder computes equal samples once: it computes the first of them,
their leader. As soon as a sample differs from its leader, the decoder computes it separately, with the leader's past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..engine.model import Bans
from ..errors import UsageError
from .array_search import ArraySearch
from .arrays import NONE, NUMPY, Array, arrays_of, ban, merged
from .constraint import States, Step
from .protocols import Decoder
from .search import SamplingOptions, SearchOptions
from .search_state import Rows, Sentences
from .sentence import FinishedSentences, Hypothesis, Sentence, check_numbers

CHUNK = 64
"""Size of the chunks of the vocabulary: a draw chooses a chunk, then a token of it."""
LOGITS_IN_CACHE = 1 << 18
"""Number of logits that are processed at once, so that they stay in a core's cache: 1 MiB."""
NUCLEUS = 64
"""Number of candidates that `top_p` sorts first. Where they do not reach p, the whole vocabulary is sorted."""


@dataclass
class Samples(Rows):
    """The state of B sentences and their W samples each."""

    sentences: Sentences
    constraints: States
    tokens: Array  # (B, W, L + 1) end symbol included
    newest: Array  # (B, W) the last token; the end symbol: the sample has ended
    lengths: Array  # (B, W) end symbol counted
    log_probs: Array  # (B, W)
    missing: Array  # (B, W) see `MinLength`
    leaders: Array  # (B, W) the first sample of the sentence that has the same tokens; for open samples only
    uniform: Array  # (B, W, L + 1) random numbers in [0, 1), one per token
    token_log_probs: Array | None  # (B, W, L + 1) if asked for

    def hypotheses(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the samples of each sentence, by score. Raises ModelError, see `check_numbers`."""
        details = self.log_probs[:, :, None][:, :, :0] if self.token_log_probs is None else self.token_log_probs
        columns = (self.tokens, self.lengths, self.log_probs, details)
        results = list[list[Hypothesis]]()
        for of_sentence in zip(*(column.tolist() for column in columns), strict=True):
            samples = [  # scored one by one: a power's last bit depends on its position in a vector
                Hypothesis(t[: n - 1], p, options.score(p, n), tuple(d[:n]))
                for t, n, p, d in zip(*of_sentence, strict=True)
            ]
            results.append(check_numbers(sorted(samples, key=lambda h: -h.score)[: options.nbest]))
        return results


class SamplingSearch(ArraySearch):
    """See `Search`."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        super().__init__(decoder, options)
        if self.constraints.progresses:
            raise UsageError(
                "sampling cannot follow constraints that demand something of the output, as --terms does: they "
                "need beam search."
            )
        self.open: Array = ()  # (M,) the open samples, b * W + w
        self.rows: Array  # (N,) their leaders
        self.row_of: Array  # (M,) the index in `rows` of each sample's leader

    @property
    def open_hypotheses(self) -> int:
        """See `Search`. Samples that are still equal count: they will differ soon."""
        return len(self.open) if self.state else 0

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        """See `Search`. The random numbers depend on the tokens of the sentences."""
        arrays, seed = self.arrays, self.options.sampling.seed
        max_lengths = arrays.array([sentence.max_length for sentence in sentences], arrays.int64)
        shape, longest = (len(sentences), self.options.beam), int(max_lengths.max()) + 1
        numbers = np.stack([_uniform(seed, sentence.tokens, shape[1], longest) for sentence in sentences])
        zeros = arrays.zeros(shape, arrays.int64)
        path = arrays.zeros((*shape, longest), arrays.float32) if self.options.token_log_probs else None
        samples = Samples(
            Sentences.start(arrays, sentence_ids, max_lengths),
            self.constraints.start(sentences, shape[1], arrays),
            tokens=arrays.zeros((*shape, longest), arrays.int64),
            newest=zeros + self.options.bos,
            lengths=arrays.copy(zeros),
            log_probs=arrays.zeros(shape, arrays.float32),
            missing=zeros + self.min_length.missing(max_lengths)[:, None],
            leaders=zeros,
            uniform=arrays.array(numbers, arrays.widest),
            token_log_probs=path,
        )
        self._enter(samples)

    def _step(self, samples: Samples) -> None:
        arrays = self.arrays
        own = arrays.log_softmax(self.decoder.step(samples.newest, arrays.host(self.rows)))
        step = Step(self.rows, samples.tokens, samples.sentences.lengths - 1, samples.sentences.remaining)
        required = self.constraints.required(samples.constraints, step)
        if bool(samples.sentences.complete.any()):
            required = samples.sentences.required_tokens(required, step.sentences, self.options.eos)
        edited, bans = self._edited(samples, step, own, required)
        lengths = samples.sentences.lengths[self.open // self.options.beam]  # (M,)
        uniform = merged(samples.uniform)[self.open, lengths - 1]
        tokens = draw(edited, uniform, bans, self.options.sampling, self.row_of)
        if required is not None:
            tokens = arrays.where(required[self.row_of] >= 0, required[self.row_of], tokens)
        self._append(samples, lengths, tokens, own[self.row_of, tokens])
        if bans.counts is not None:
            missing = merged(samples.missing)
            missing[self.open] = self.min_length.missing_after(missing[self.open], tokens)
        self._part(samples, tokens, own.shape[1])

    def _read(self, samples: Samples) -> None:
        width, arrays = self.options.beam, self.arrays
        is_open = samples.newest != self.options.eos
        self.unfinished, self.open = arrays.host(is_open.any(1)), arrays.nonzero(merged(is_open))[0]
        self.rows, self.row_of = arrays.unique(self.open // width * width + merged(samples.leaders)[self.open])

    def _edited(self, samples: Samples, step: Step, own: Array, required: Array | None) -> tuple[Array, Bans]:
        """Return the log-probabilities (N, V) that the constraints have edited, and the tokens that may not follow."""
        missing, bans, edited = step.of_rows(samples.missing), self.min_length.always, own
        if bool(missing.any()):
            bans = self.min_length.bans(missing, step.remaining[step.sentences], own.shape[1])
        if self.constraints.edits:
            edited = self.arrays.copy(own)
            self.constraints.edit(samples.constraints, step, edited, required, self.options.eos)
            bans = self.min_length.give_way(bans, edited)
        return edited, bans

    def _append(self, samples: Samples, lengths: Array, tokens: Array, log_probs: Array) -> None:
        """Append to each open sample, of the new length (M,), its token (M,) with its log-probability (M,)."""
        merged(samples.tokens)[self.open, lengths - 1] = tokens
        merged(samples.log_probs)[self.open] += log_probs
        if samples.token_log_probs is not None:
            merged(samples.token_log_probs)[self.open, lengths - 1] = log_probs
        merged(samples.newest)[self.open] = tokens
        merged(samples.lengths)[self.open] = lengths
        samples.sentences.lengths = samples.sentences.lengths + 1
        samples.constraints = self.constraints.advance(samples.constraints, samples.newest)

    def _part(self, samples: Samples, tokens: Array, vocabulary: int) -> None:
        """Set new leaders where samples that were equal got different tokens (M,)."""
        width, arrays = self.options.beam, self.arrays
        choices = -(self.row_of * vocabulary + tokens)  # (M,) samples with the same number are equal
        order = arrays.argsort(choices[None])[0]
        first = arrays.searchsorted(-choices[order], -choices)  # of each, among the ordered ones
        leaders = self.open[order[first]]  # (M,)
        parents = samples.leaders * 0 + arrays.arange(width)
        merged(parents)[self.open] = self.rows[self.row_of] % width
        merged(samples.leaders)[self.open] = leaders % width
        if bool((merged(parents)[leaders] != leaders % width).any()):
            self.decoder.reorder(parents)

    def _results(self, samples: Samples) -> FinishedSentences:
        return list(zip(samples.sentences.ids.tolist(), samples.hypotheses(self.options), strict=True))


def _uniform(seed: int, source: Sequence[int], width: int, length: int) -> np.ndarray:
    """Return (W, L) random numbers in [0, 1) of one sentence. The numbers of sample w do not depend on W and L.

    Philox computes them from a key of the sentence and a counter (Salmon et al. 2011). The counter of sample w begins
    at w * 2^128.
    """
    bits = np.random.Philox(np.random.SeedSequence([seed, *source]))
    generator, state = np.random.Generator(bits), bits.state
    numbers = np.empty((width, length))
    for sample, row in enumerate(numbers):
        state["state"]["counter"][2] = sample
        bits.state = state
        generator.random(out=row)
    return numbers


def draw(logits: Array, uniform: Array, bans: Bans, options: SamplingOptions, row_of: Array) -> Array:
    """Return a token for each of M samples, given uniform (M,) in [0, 1).

    Sample m uses row row_of[m] of the logits (N, V), which are left unchanged.
    """
    arrays, weights = arrays_of(logits), _weights(logits, bans, options)
    chunks = weights.reshape((len(logits), -1, CHUNK))
    cumulative = arrays.astype(arrays.sums(chunks), arrays.widest).cumsum(1)
    chunk, inside = _choose(cumulative[row_of], uniform)
    token, _ = _choose(arrays.astype(chunks[row_of, chunk], arrays.widest).cumsum(1), inside)
    return (chunk * CHUNK + token).clip(0, logits.shape[1] - 1)  # outside only where the logits are not numbers


def _choose(cumulative: Array, uniform: Array) -> tuple[Array, Array]:
    """Return the part of [0, 1) into which `uniform` (M,) falls, if weights divide [0, 1): its index, and the share of
    the part before `uniform`.

    `cumulative` (M, C) are the cumulative sums of the weights. A weight of 0 is never chosen.
    """
    arrays, total = arrays_of(cumulative), cumulative[:, -1:]
    target = uniform[:, None] * total
    last = (cumulative < total).sum(1)  # the last one with a weight above 0
    index = arrays.minimum((cumulative <= target).sum(1), last)
    numbers = arrays.arange(len(index))
    end, before = cumulative[numbers, index], cumulative[numbers, index - 1]
    before = arrays.where(index > 0, before, 0.0)
    return index, ((target[:, 0] - before) / (end - before)).clip(0.0, 1.0)


def _weights(logits: Array, bans: Bans, options: SamplingOptions) -> Array:
    """Return weights (N, V rounded up to chunks): probabilities times a factor per row; 0: banned or cut off."""
    arrays, (count, size) = arrays_of(logits), logits.shape
    weights = arrays.zeros((count, -(-size // CHUNK) * CHUNK), logits.dtype)
    at_once = LOGITS_IN_CACHE // size + 1 if arrays is NUMPY else max(1, count)
    for start in range(0, count, at_once):
        rows = slice(start, start + at_once)
        block = weights[rows]
        block[:, :size], block[:, size:] = logits[rows], NONE
        ban(block, bans.of(rows))
        if 0 < options.top_k < size or options.top_p < 1:
            _keep_best(block, options)
            continue
        _to_weights(block, arrays.amax(block, 1), options)
        if options.min_p:
            block *= block >= options.min_p
    return weights


def _to_weights(logits: Array, largest: Array, options: SamplingOptions) -> None:
    """Turn logits (N, C) into exp((logit - largest) / temperature), in the same memory, given `largest` (N,)."""
    logits -= largest[:, None]
    if options.temperature != 1:
        logits /= options.temperature
    arrays_of(logits).exp(logits, out=logits)


def _keep_best(logits: Array, options: SamplingOptions) -> None:
    """Turn logits (N, V) into weights, in place; 0 for what `top_k`, `top_p`, `min_p`, in this order, do not keep."""
    arrays, (rows, size) = arrays_of(logits), logits.shape
    numbers = arrays.arange(rows)
    none, count = arrays.zeros((rows, 1), logits.dtype), min(options.top_k or NUCLEUS, size)
    values, tokens = arrays.top_candidates(logits, none, numbers, count, Bans(()), None, True)
    total = None
    if not options.top_k:
        weights = arrays.copy(logits)
        _to_weights(weights, values[:, 0], options)
        total = arrays.astype(arrays.sums(weights.reshape((rows, -1, CHUNK))), arrays.widest).sum(1)
    kept, complete = _cut(values, total, options)
    others = arrays.nonzero(~complete)[0]
    flat = logits[others]
    logits[:] = 0.0
    row, position = arrays.nonzero(kept)
    logits[row, tokens[row, position]] = kept[row, position]
    if len(others):
        values, tokens = _sorted_tokens(flat)
        logits[others[:, None], tokens] = _cut(values, None, options)[0]


def _cut(values: Array, total: Array | None, options: SamplingOptions) -> tuple[Array, Array]:
    """Return the weights of logits `values` (N, C), largest first, with 0 for those cut off; and whether C candidates
    are enough, (N,).

    `total` (N,) is the weight of all tokens before `top_p`; None: the weight of these C.
    """
    arrays = arrays_of(values)
    weights = arrays.copy(values)
    _to_weights(weights, values[:, 0], options)
    cumulative = arrays.astype(weights, arrays.widest).cumsum(1)
    needed = options.top_p * (cumulative[:, -1] if total is None else total)
    kept = (cumulative < needed[:, None]).sum(1) + 1  # up to the candidate that reaches p
    complete = cumulative[:, -1] >= needed
    if options.min_p:
        likely = (weights >= options.min_p).sum(1)
        kept, complete = arrays.minimum(kept, likely), complete | (likely < weights.shape[1])
    return weights * (arrays.arange(weights.shape[1]) < kept[:, None]), complete


def _sorted_tokens(logits: Array) -> tuple[Array, Array]:
    """Return logits (N, V) sorted, largest first, and their tokens. Equal logits are ordered by token.

    The sort gets integers: the logit in the upper bits, the token in the lower ones. NumPy sorts them several times as
    fast as values and indices.
    """
    arrays = arrays_of(logits)
    bits = (logits + 0.0).view(arrays.int32)  # -0 becomes 0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the values
    in_order = arrays.sort((arrays.astype(~ordered, arrays.int64) << 32) | arrays.arange(logits.shape[1]))
    ordered = ~arrays.astype(in_order >> 32, arrays.int32)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(arrays.float32), in_order & 0xFFFFFFFF
