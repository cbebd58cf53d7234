"""Random outputs instead of the best ones: each token is drawn from what the model gives.

    decoder, limits ──▶ sample(…, sampling, keys) ──▶ W hypotheses a sentence, drawn independently

The temperature divides the logits; `top_k` keeps the k most probable tokens, `top_p` the fewest whose probabilities
reach p (Holtzman et al. 2020, nucleus sampling), both after the temperature. The random numbers of a sentence come from
the seed and the sentence's own tokens (`keys`): the same line gives the same samples, wherever it stands and
whatever stands beside it. log P is the model's own, as in search: neither temperature nor cuts nor bans change it. What
`min_length` bans is that of search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import min_length as shortest
from .candidates import ban
from .search import Decoder, Hypothesis, SearchOptions, check_numbers, length_penalty, padded_prefixes


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """`top_k` 0 and `top_p` 1: nothing is cut off."""

    top_k: int = 0
    top_p: float = 1.0
    temperature: float = 1.0
    seed: int = 1


@torch.inference_mode()
def sample(
    decoder: Decoder, limits: Tensor, options: SearchOptions, sampling: Sampling, keys: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """`options.beam` samples of each of B sentences, the best of them (by score) first, `options.nbest` at most.

    Other arguments as in `beam_search`; `keys` are the sentences' tokens. Raises ModelError if the model's output is
    not a number.
    """
    batch, width, device = len(limits), options.beam, limits.device
    longest = int(limits.max())
    chances = torch.from_numpy(np.stack([_uniform(sampling.seed, key, width, longest + 1) for key in keys])).to(device)  # (B, W, L + 1)
    forced = padded_prefixes(prefixes or [[]] * batch, device)
    tokens = torch.zeros(batch, width, longest + 1, dtype=torch.long, device=device)
    log_probs = torch.zeros(batch * width, device=device)
    lengths = torch.zeros(batch * width, dtype=torch.long, device=device)
    newest = torch.full((batch, width), options.bos, dtype=torch.long, device=device)
    rows = torch.arange(batch * width, device=device)
    missing = shortest.missing(limits, options).repeat_interleave(width)
    for length in range(1, longest + 2):
        logits = decoder.step(newest, rows).float()
        total = logits.logsumexp(-1)
        sentences = rows // width
        banned = shortest.banned(missing[rows], limits[sentences] + 1 - length, options, logits.size(1))
        drawn = _drawn(logits, chances.flatten(0, 1)[rows, length - 1], banned, options, sampling)
        drawn = torch.where(limits[sentences] < length, options.eos, drawn)
        if length <= forced.size(1):
            wanted = forced[sentences, length - 1]
            drawn = torch.where(wanted >= 0, wanted, drawn)
        log_probs[rows] += logits.gather(1, drawn[:, None])[:, 0] - total
        newest.view(-1)[rows] = drawn
        if banned is not None:
            missing[rows] = shortest.missing_after(missing[rows], drawn, options)
        tokens.view(-1, longest + 1)[rows, length - 1] = drawn
        lengths[rows] = length
        rows = rows[drawn != options.eos]
        if not len(rows):
            break
    found = [  # scored one by one: a power's last bit depends on its place among others
        Hypothesis(t[: n - 1], p, p / float(length_penalty(n, options.alpha)))
        for t, n, p in zip(tokens.flatten(0, 1).tolist(), lengths.tolist(), log_probs.tolist(), strict=True)
    ]
    samples = [sorted(found[i : i + width], key=lambda h: -h.score)[: options.nbest] for i in range(0, len(found), width)]
    for several in samples:
        check_numbers(several)
    return samples


def _uniform(seed: int, key: Sequence[int], width: int, length: int) -> np.ndarray:
    """(W, L) numbers in [0, 1), of this sentence alone; sample w of a line is the same whatever W and L are."""
    streams = np.random.SeedSequence([seed, *key]).spawn(width)
    return np.stack([np.random.Generator(np.random.PCG64(stream)).random(length) for stream in streams])


def _drawn(logits: Tensor, chances: Tensor, banned: Tensor | None, options: SearchOptions, sampling: Sampling) -> Tensor:
    """A token for each row: logits (N, V), chances (N,) in [0, 1) -> (N,). The logits stay as they are."""
    logits = logits.clone()
    ban(logits, options.never if banned is None else shortest.bannable(options), banned)
    if 0 < sampling.top_k < logits.size(1):
        values, ids = logits.topk(sampling.top_k, dim=1)
    else:
        values, ids = logits.sort(dim=1, descending=True, stable=True)
    warmed = (values - values[:, :1]).double() / sampling.temperature  # 0 and less: no temperature is too low
    reached = warmed.softmax(1).cumsum(1)  # (N, candidates)
    kept = (reached < sampling.top_p).sum(1).clamp_max(reached.size(1) - 1)  # the last that is kept
    mass = reached.gather(1, kept[:, None])
    places = torch.searchsorted(reached, chances[:, None] * mass, right=True)[:, 0]
    return ids.gather(1, torch.minimum(places, kept)[:, None])[:, 0]
