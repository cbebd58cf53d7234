"""The nonlinearity of a feed-forward network: config → module (…, d_ff) → (…, d_ff).

Registered in registry.ACTIVATIONS.

A module with `inputs` = n is a gate: (…, n * d_ff) → (…, d_ff).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection


def relu(config: ModelSection) -> nn.Module:
    """Return max(0, x), the paper's activation (equation 2)."""
    return nn.ReLU(inplace=True)  # the input is the inner linear map's output, which nothing else reads


def gelu(config: ModelSection) -> nn.Module:
    """Return x Φ(x), with the exact normal distribution function Φ (Hendrycks and Gimpel 2016)."""
    return nn.GELU()


def silu(config: ModelSection) -> nn.Module:
    """Return x σ(x), also called Swish (Ramachandran et al. 2017)."""
    return nn.SiLU()


class SwiGLU(nn.Module):
    """SiLU(g) u for an input that has g before u (Shazeer 2020): with the linear maps around it, (SiLU(xW) ⊗ xV) W2."""

    inputs = 2

    def __init__(self, config: ModelSection) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Map x (…, 2 * d_ff) to (…, d_ff)."""
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up
