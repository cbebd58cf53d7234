"""The residual connection around a sub-layer, with its norm and dropout. Registered in registry.RESIDUALS.

A residual is built from the config and called with x and the sub-layer, a function (…, D) → (…, D). `final_norm` is
true if each stack of layers needs one more norm at its end.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ..recipe import ModelSection
from ..registry import NORMS, load

Sublayer = Callable[[Tensor], Tensor]


def build_norm(config: ModelSection) -> nn.Module:
    """Return a new norm of the kind that model.norm names."""
    norm: nn.Module = load(NORMS, config.norm, "model.norm")(config)
    return norm


class DropoutAdd(nn.Module):
    """x + Dropout(y): adds a sub-layer's output y to the residual stream x (section 5.4)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(p)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + Dropout(y), (…, D), for x and y (…, D)."""
        return x + self.dropout(y)  # type: ignore[no-any-return]


class _Residual(nn.Module):
    """The norm and the dropout of a residual connection."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()
        self.norm = build_norm(config)
        self.add = DropoutAdd(config.dropout)


class PostNorm(_Residual):
    """Norm(x + Dropout(Sublayer(x))): the paper's residual (section 3.1)."""

    final_norm = False

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Map x (…, D) to (…, D)."""
        return self.norm(self.add(x, sublayer(x)))  # type: ignore[no-any-return]


class PreNorm(_Residual):
    """x + Dropout(Sublayer(Norm(x))): deep models train more stably with it (Xiong et al. 2020)."""

    final_norm = True

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Map x (…, D) to (…, D)."""
        return self.add(x, sublayer(self.norm(x)))  # type: ignore[no-any-return]
