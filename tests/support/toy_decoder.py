"""A toy decoder whose logits depend on the whole history, and every output that it can have: for tests of searches."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from run_search import ALPHA, beam_search, sample, search_options
from torch import Tensor

from nmt_cli.data.tokenizer import EOS
from nmt_cli.search.arrays import Arrays
from nmt_cli.search.constraint import Constraint
from nmt_cli.search.length_penalties import gnmt
from nmt_cli.search.search import SearchOptions
from nmt_cli.search.sentence import Hypothesis
from nmt_cli.search.torch_arrays import TorchArrays


def toy_log_probs(sentence: int, history: Sequence[int], size: int, known: Sequence[int]) -> Tensor:
    """Return log-probabilities (V,) that the numbers choose; tokens that are not `known`, nor the end symbol, have none."""
    generator = torch.Generator().manual_seed(hash((sentence, *history)) % 2**31)
    logits = torch.full((size,), -torch.inf)
    several = [*known, EOS]
    logits[several] = 2 * torch.randn(len(several), generator=generator)
    return logits.log_softmax(-1)


class Histories:
    """The part of a `Decoder` that follows hypotheses: sentences are numbers; histories are tuples of tokens."""

    arrays: Arrays = TorchArrays(torch.device("cpu"))

    def __init__(self, sentences: Sequence[int], beam: int) -> None:
        self.sentences, self.beam = list(sentences), beam
        self.histories: list[list[tuple[int, ...]]] = [[()] * beam for _ in sentences]

    def add(self, sentences: Sequence[Any]) -> None:
        """`sentences`: numbers, or lists that begin with one."""
        self.sentences = [*self.sentences, *(one if isinstance(one, int) else one[0] for one in sentences)]
        self.histories += [[()] * self.beam for _ in sentences]

    def extended(self, tokens: Tensor, rows: np.ndarray) -> list[tuple[int, tuple[int, ...]]]:
        """Append the tokens (B, W). Return sentence and history of the open hypotheses."""
        self.histories = [
            [(*h, t) for h, t in zip(row, new, strict=True)]
            for row, new in zip(self.histories, tokens.tolist(), strict=True)
        ]
        every = [(s, h) for s, row in zip(self.sentences, self.histories, strict=True) for h in row]
        return [every[row] for row in rows.tolist()]

    def reorder(self, parents: Tensor) -> None:
        self.histories = [[row[p] for p in ps] for row, ps in zip(self.histories, parents.tolist(), strict=True)]

    def keep(self, sentences: np.ndarray) -> None:
        self.sentences = [self.sentences[i] for i in sentences.tolist()]
        self.histories = [self.histories[i] for i in sentences.tolist()]


@cache
def toy_logits(sentence: int, history: tuple[int, ...], size: int, spread: float) -> Tensor:
    generator = torch.Generator().manual_seed(hash((sentence, *history)) % 2**31)
    return torch.randn(size, generator=generator) * spread


class Toy(Histories):
    """A model whose next logits are drawn from (sentence, history); `change` may change them."""

    def __init__(
        self,
        sentences: Sequence[int],
        beam: int,
        size: int,
        spread: float = 1.0,
        change: Callable[[Tensor], object] = lambda logits: None,
    ) -> None:
        super().__init__(sentences, beam)
        self.size, self.spread, self.change, self.steps, self.asked = size, spread, change, 0, 0

    def step(self, tokens: Tensor, rows: np.ndarray) -> Tensor:
        self.steps += 1
        self.asked += len(rows)
        logits = torch.stack([toy_logits(*pair, self.size, self.spread) for pair in self.extended(tokens, rows)])
        self.change(logits)
        return logits


class ToyDecoder(Histories):
    """Its probabilities are those of `toy_log_probs`."""

    def __init__(self, sentences: Sequence[int], beam: int, size: int, known: Sequence[int]) -> None:
        super().__init__(sentences, beam)
        self.size, self.known = size, known

    def step(self, tokens: Tensor, rows: np.ndarray) -> Tensor:
        return torch.stack(
            [toy_log_probs(sentence, h[1:], self.size, self.known) for sentence, h in self.extended(tokens, rows)]
        )


Score = Callable[[Sequence[int], list[float]], float]


def sum_of(tokens: Sequence[int], log_probs: list[float]) -> float:
    return sum(log_probs)


class ToySearch:
    """Searches over a vocabulary of `size`, of which `known` tokens have a probability."""

    def __init__(self, size: int, known: Sequence[int], constraints: Sequence[Constraint]) -> None:
        self.size, self.known, self.constraints = size, known, tuple(constraints)

    def options(self, beam: int, **more: Any) -> SearchOptions:
        return search_options(beam, **{"constraints": self.constraints, **more})

    def beam_search(
        self,
        sentences: Sequence[int],
        longest: int,
        beam: int,
        prefixes: Sequence[Sequence[int]] | None = None,
        **more: Any,
    ) -> list[list[Hypothesis]]:
        decoder = ToyDecoder(sentences, beam, self.size, self.known)
        return beam_search(decoder, [longest] * len(sentences), self.options(beam, **more), prefixes)

    def sample(self, sentences: Sequence[int], longest: int, beam: int, **more: Any) -> list[list[Hypothesis]]:
        decoder = ToyDecoder(sentences, beam, self.size, self.known)
        return sample(decoder, [longest] * len(sentences), self.options(beam, **more), [[s] for s in sentences])

    def log_probs(self, sentence: int, tokens: Sequence[int]) -> list[float]:
        """Return the log-probability of each token, end symbol included."""
        return [
            toy_log_probs(sentence, tokens[:i], self.size, self.known)[token].item()
            for i, token in enumerate([*tokens, EOS])
        ]

    def best(
        self, sentence: int, outputs: Iterable[tuple[int, ...]], score: Score = sum_of, alpha: float = ALPHA
    ) -> list[tuple[float, list[int]]]:
        """Return these outputs with their scores, best first; `score` is that before the length penalty."""
        scored = [
            (score(tokens, self.log_probs(sentence, tokens)) / gnmt(len(tokens) + 1, alpha), list(tokens))
            for tokens in outputs
        ]
        return sorted(scored, key=lambda pair: -pair[0])

    def check_brute_force(
        self,
        longest: int,
        allowed: Callable[[tuple[int, ...]], bool] = lambda tokens: True,
        score: Score = sum_of,
        alpha: float = ALPHA,
        **more: Any,
    ) -> None:
        """Of all outputs of known tokens that are allowed, a beam that has room for all finds the best; log P is the model's."""
        every = [tokens for n in range(longest + 1) for tokens in itertools.product(self.known, repeat=n)]
        for sentence in range(5):
            expected = self.best(sentence, filter(allowed, every), score, alpha)[:9]
            beam = (len(self.known) + 1) ** longest
            [found] = self.beam_search([sentence], longest, beam, nbest=len(expected), alpha=alpha, **more)
            assert [h.tokens for h in found] == [tokens for _, tokens in expected]
            for h, (value, tokens) in zip(found, expected, strict=True):
                log_prob = sum(self.log_probs(sentence, tokens))
                assert math.isclose(h.score, value, abs_tol=1e-5)
                assert math.isclose(h.log_prob, log_prob, abs_tol=1e-4)
