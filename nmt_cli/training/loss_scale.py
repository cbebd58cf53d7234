"""The loss scale of fp16 (Micikevicius et al. 2018, section 3.2): small gradients would be zero in fp16.

    loss * scale ──backward──▶ main_grads ──/ scale──▶ the gradient, in fp32

Where a gradient overflows, the update takes no step and the scale is halved. After `GROW_AFTER` updates without overflow
it is doubled. The device does this alone: nothing waits for it. The state is saved with the optimizer's.
"""

from __future__ import annotations

import torch
from torch import Tensor

FIRST = 2.0**16
LARGEST = 2.0**24
GROW_AFTER = 2000
"""Updates."""
OVERFLOWS = 30
"""Updates in a row that may overflow: then even a scale of 1 / 100 is too large."""


class LossScale:
    """The scale, and the updates since it changed."""

    def __init__(self, device: str) -> None:
        self.state = torch.tensor([FIRST, 0.0], device=device)

    @property
    def scale(self) -> Tensor:
        """The factor of the loss, a scalar on the device."""
        return self.state[0]

    def unscale(self, gradient: Tensor) -> None:
        """Divide the gradient by the scale, in place."""
        gradient.mul_(1.0 / self.scale)

    def update(self, overflow: Tensor) -> None:
        """Adapt the scale after an update; `overflow` is 1.0 if its gradient was not finite, else 0.0."""
        scale, updates = self.state
        updates = (updates + 1.0) * (1.0 - overflow)
        grows = (updates == GROW_AFTER).float()
        self.state = torch.stack(((scale * (1.0 - 0.5 * overflow) * (1.0 + grows)).clamp(max=LARGEST), updates * (1.0 - grows)))
