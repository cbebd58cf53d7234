"""The learning rate of section 5.3: linear warmup, then decay with the inverse square root of the step.

The learning rate may also fall to zero at the end (`decay`). The last steps then average out the noise of the gradients,
as the averaging of checkpoints does (Hägele et al. 2024, arXiv 2405.18392).
"""

from __future__ import annotations


def learning_rate(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """Return factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (equation 3). `step` counts from 1."""
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))


def decay(step: int, last: int, steps: int) -> float:
    """Return the factor of the learning rate at `step`. It falls from 1 to nearly 0 in the `steps` steps that end with step `last`; 1 if `steps` is 0."""
    return min(1.0, (last + 1 - step) / steps) if steps else 1.0
