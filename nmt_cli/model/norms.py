"""Normalization over the last dimension: config → module (…, D) → (…, D). Registered in registry.NORMS."""

from __future__ import annotations

from torch import nn

from ..recipe import ModelSection


def layer_norm(config: ModelSection) -> nn.Module:
    """Return LayerNorm (Ba et al. 2016), the paper's: subtract mean, divide by standard deviation, scale, shift."""
    return nn.LayerNorm(config.d_model, eps=config.epsilon)


def rms_norm(config: ModelSection) -> nn.Module:
    """Return RMSNorm (Zhang and Sennrich 2019): divide by the root mean square, scale. It has no mean and no bias."""
    return nn.RMSNorm(config.d_model, eps=config.epsilon)
