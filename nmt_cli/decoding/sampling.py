"""Sampling: random outputs instead of the best ones; each token is drawn from the model's distribution.

    B sentences   W samples per sentence   N open samples   V vocabulary   L longest output

The temperature divides the logits. Then `top_k` keeps the k most probable tokens, and `top_p` the fewest tokens whose
probabilities reach p (nucleus sampling, Holtzman et al. 2020). The random numbers of a sentence come from the seed and
the sentence's own tokens: the same line gives the same samples, whatever its line number and its neighbours. The W
samples are independent. log P is the model's own, as in beam search: temperature, cuts and bans do not change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import UsageError
from ..kernels.protocols import Decoder
from .candidates import ban, log_softmax_
from .constraint import Constraints, Sentence, States, Step
from .min_length import Bans, MinLength
from .search import (
    FinishedSentences,
    Hypothesis,
    SamplingOptions,
    SearchOptions,
    check_numbers,
    plain_sentences,
    run_to_end,
)
from .search_state import Rows, Sentences, split_off_finished


def sample(
    decoder: Decoder, max_lengths: Tensor, options: SearchOptions, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]] | None = None
) -> list[list[Hypothesis]]:
    """Return `options.beam` samples of each sentence that `decoder` holds, the best `options.nbest` of them; see `Search.add`."""
    return run_to_end(SamplingSearch(decoder, options), plain_sentences(max_lengths, prefixes, sources), max_lengths.device)


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
    uniform: Tensor  # (B, W, L + 1) random numbers in [0, 1), one per token

    def hypotheses(self, options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the samples of each sentence, by score. Raises ModelError, see `check_numbers`."""
        columns = (self.tokens, self.lengths, self.log_probs)
        return [self._ranked(t, n, p, options) for t, n, p in zip(*(column.tolist() for column in columns), strict=True)]

    @staticmethod
    def _ranked(tokens: list[list[int]], lengths: list[int], log_probs: list[float], options: SearchOptions) -> list[Hypothesis]:
        samples = [  # scored one by one: a power's last bit depends on its position in a vector
            Hypothesis(t[: n - 1], p, options.score(p, n)) for t, n, p in zip(tokens, lengths, log_probs, strict=True)
        ]
        return check_numbers(sorted(samples, key=lambda h: -h.score)[: options.nbest])


class SamplingSearch:
    """See `Search`."""

    def __init__(self, decoder: Decoder, options: SearchOptions) -> None:
        self.decoder, self.options = decoder, options
        self.min_length, self.constraints = MinLength(options), Constraints(options.constraints)
        if self.constraints.progresses:
            raise UsageError("sampling cannot follow constraints that demand something of the output, as --terms does: they need beam search.")
        self.samples: Samples | None = None
        self.rows = torch.empty(0, dtype=torch.long)  # (N,) the open samples, b * W + w

    @property
    def busy(self) -> bool:
        """See `Search`."""
        return self.samples is not None

    @property
    def open_hypotheses(self) -> int:
        """See `Search`."""
        return len(self.rows)

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence], device: torch.device) -> None:
        """See `Search`; the tokens of the sentences choose the random numbers."""
        max_lengths = torch.tensor([sentence.max_length for sentence in sentences], device=device)
        shape, longest = (len(sentences), self.options.beam), int(max_lengths.max()) + 1
        numbers = np.stack([_uniform(self.options.sampling.seed, sentence.tokens, shape[1], longest) for sentence in sentences])
        new = Samples(
            Sentences.start(sentence_ids, max_lengths),
            self.constraints.start(sentences, shape[1], device),
            open=torch.ones(shape, dtype=torch.bool, device=device),
            tokens=torch.zeros(*shape, longest, dtype=torch.long, device=device),
            newest=torch.full(shape, self.options.bos, dtype=torch.long, device=device),
            lengths=torch.zeros(shape, dtype=torch.long, device=device),
            log_probs=torch.zeros(shape, device=device),
            missing=self.min_length.missing(max_lengths)[:, None].repeat(1, shape[1]),
            uniform=torch.from_numpy(numbers).to(device),
        )
        self.samples = self.samples.concat(new) if self.samples else new
        self.rows = self.samples.open.flatten().nonzero().flatten()

    @torch.inference_mode()
    def step(self) -> FinishedSentences:
        """See `Search`."""
        samples = self.samples
        if samples is None:
            return []
        logits = self.decoder.step(samples.newest, self.rows).float()
        step = Step(self.rows, samples.tokens, samples.sentences.lengths - 1, samples.sentences.remaining)
        required = samples.sentences.required_tokens(self.constraints.required(samples.constraints, step), step.sentences, self.options.eos)
        own = self._edited(samples, step, logits, required)
        bans = self.min_length.bans(step.of_rows(samples.missing), step.remaining[step.sentences], logits.size(1))
        tokens = self._draw(samples, step, logits, bans, required)
        self._append(samples, tokens, own.gather(1, tokens[:, None])[:, 0] - (0.0 if self.constraints.edits else logits.logsumexp(-1)))
        if bans.counts is not None:
            missing = samples.missing.view(-1)
            missing[self.rows] = self.min_length.missing_after(missing[self.rows], tokens)
        return self._leave(samples)

    def _edited(self, samples: Samples, step: Step, logits: Tensor, required: Tensor | None) -> Tensor:
        """Let the constraints edit the logits (N, V), which become log-probabilities. Return the model's own ones."""
        if not self.constraints.edits:
            return logits
        log_softmax_(logits)
        own = logits.clone()
        self.constraints.edit(samples.constraints, step, logits, required, self.options.eos)
        return own

    def _draw(self, samples: Samples, step: Step, logits: Tensor, bans: Bans, required: Tensor | None) -> Tensor:
        """Return the next token of each open sample, (N,); where one is required, (N,), that one."""
        uniform = samples.uniform.flatten(0, 1)[self.rows, step.lengths[step.sentences]]
        if self.constraints.edits:
            bans = self.min_length.give_way(bans, logits)
        tokens = draw(logits, uniform, bans, self.options.sampling)
        return tokens if required is None else torch.where(required >= 0, required, tokens)

    def _append(self, samples: Samples, tokens: Tensor, log_probs: Tensor) -> None:
        """Append to each open sample its token (N,) with its log-probability (N,)."""
        lengths = samples.sentences.lengths[self.rows // self.options.beam]
        samples.tokens.view(-1, samples.tokens.size(2))[self.rows, lengths - 1] = tokens
        samples.log_probs.view(-1)[self.rows] += log_probs
        samples.newest.view(-1)[self.rows] = tokens
        samples.lengths.view(-1)[self.rows] = lengths
        samples.open.view(-1)[self.rows] = tokens != self.options.eos
        samples.sentences.lengths = samples.sentences.lengths + 1
        samples.constraints = self.constraints.advance(samples.constraints, samples.newest)

    def _leave(self, samples: Samples) -> FinishedSentences:
        """Return the finished sentences and drop them, if enough have finished."""
        finished: FinishedSentences = []
        if split := split_off_finished(samples.open.any(1)):
            stay, leave = split
            leaving = samples.select(leave)
            finished = list(zip(leaving.sentences.ids.tolist(), leaving.hypotheses(self.options), strict=True))
            samples = samples.select(stay)
            self.decoder.keep(stay)
        self.samples = samples if len(samples.sentences.ids) else None
        self.rows = samples.open.flatten().nonzero().flatten()
        return finished


def _uniform(seed: int, source: Sequence[int], width: int, length: int) -> np.ndarray:
    """Return (W, L) numbers in [0, 1) of one sentence. Sample w of a line has the same numbers whatever W and L are."""
    streams = np.random.SeedSequence([seed, *source]).spawn(width)
    return np.stack([np.random.Generator(np.random.PCG64(stream)).random(length) for stream in streams])


def draw(logits: Tensor, uniform: Tensor, bans: Bans, options: SamplingOptions) -> Tensor:
    """Return a token for each row of logits (N, V), given uniform (N,) in [0, 1). The logits are left unchanged."""
    logits = logits.clone()
    ban(logits, bans.tokens, bans.counts)
    if 0 < options.top_k < logits.size(1):
        values, ids = logits.topk(options.top_k, dim=1)
    else:
        values, ids = logits.sort(dim=1, descending=True, stable=True)
    scaled = (values - values[:, :1]).double() / options.temperature  # at most 0, so any temperature is possible
    cumulative = scaled.softmax(1).cumsum(1)  # (N, candidates)
    last = (cumulative < options.top_p).sum(1).clamp_max(cumulative.size(1) - 1)  # (N,) the last candidate that top_p keeps
    mass = cumulative.gather(1, last[:, None])
    positions = torch.searchsorted(cumulative, uniform[:, None] * mass, right=True)[:, 0]
    return ids.gather(1, torch.minimum(positions, last)[:, None])[:, 0]
