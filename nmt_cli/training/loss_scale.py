"""The loss scale of fp16 (Micikevicius et al. 2018, section 3.2). Without it, small gradients would be zero in fp16.

    loss * scale ──backward──▶ main_grads ──/ scale──▶ the gradient, in fp32

When a gradient overflows, the update takes no step and the scale is halved. After `GROW_AFTER` updates without
overflow, the scale is doubled. All of this is computed on the device, so the CPU does not wait for it. The scale is
saved with the optimizer state.
"""

from __future__ import annotations

import torch
from torch import Tensor

FIRST = 2.0**16
LARGEST = 2.0**24
GROW_AFTER = 2000
"""The number of updates without overflow after which the scale is doubled."""
OVERFLOWS = 30
"""How many updates in a row may overflow. They reduce FIRST to less than 1 / 10,000, and LARGEST to 1 / 64."""


class LossScale:
    """The scale, and the number of updates since its last change."""

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
        self.state = torch.stack(
            ((scale * (1.0 - 0.5 * overflow) * (1.0 + grows)).clamp(max=LARGEST), updates * (1.0 - grows))
        )
