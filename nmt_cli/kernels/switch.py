"""The user's switch for all kernels: NMT_KERNELS in the environment."""

from __future__ import annotations

import os


def switched_off() -> bool:
    """Return whether the environment forbids all kernels: NMT_KERNELS=off."""
    return os.environ.get("NMT_KERNELS", "").lower() in ("off", "0", "no")
