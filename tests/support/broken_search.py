"""A search that fails, for processes that cannot be patched: they import this module."""

from __future__ import annotations

from typing import Any


class BrokenSearch:
    """It raises at its first step."""

    busy, open_hypotheses = True, 1

    def __init__(self, decoder: Any, options: Any) -> None:
        pass

    def add(self, *_: Any) -> None:
        pass

    def step(self) -> Any:
        raise ValueError("cut")
