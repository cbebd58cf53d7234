"""Hidden states, a vocabulary's matrix and targets, for tests of the loss and its kernel."""

import torch
from torch import Tensor

SHAPES = [(1, 4, 2), (7, 8, 13), (40, 16, 101), (33, 5, 257)]  # N, D, V


def case(tokens: int, d_model: int, vocabulary: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    hidden = (scale * torch.randn(tokens, d_model, generator=generator)).requires_grad_()
    weight = torch.randn(vocabulary, d_model, generator=generator).requires_grad_()
    return hidden, weight, torch.randint(vocabulary, (tokens,), generator=generator)


def gradients(value: Tensor, hidden: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(value, (hidden, weight))


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    assert (ours - theirs).abs().max() <= tolerance * max(1.0, theirs.abs().max().item())
