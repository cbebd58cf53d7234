"""The nonlinearity of a feed-forward network: config → module (…, d_ff) → (…, d_ff). Registered in registry.ACTIVATIONS."""

from __future__ import annotations

from torch import nn

from ..recipe import ModelSection


def relu(config: ModelSection) -> nn.Module:
    """Return max(0, x), the paper's (equation 2)."""
    return nn.ReLU(inplace=True)  # the input is the inner linear map's output, which nothing else reads


def gelu(config: ModelSection) -> nn.Module:
    """Return x Φ(x), with the exact normal distribution function Φ (Hendrycks and Gimpel 2016)."""
    return nn.GELU()
