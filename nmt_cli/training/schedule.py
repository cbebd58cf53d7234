"""The learning rate of section 5.3: linear warmup, then decay with the inverse square root of the step."""

from __future__ import annotations


def learning_rate(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """Return factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (equation 3). `step` counts from 1."""
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
