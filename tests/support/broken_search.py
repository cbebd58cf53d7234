"""Searches that fail, for processes that cannot be patched: they import this module."""

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


class Unsendable(Exception):
    """An error that a pipe cannot carry: it is made from two values."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class UnsendableSearch(BrokenSearch):
    """It raises another error."""

    def step(self) -> Any:
        raise Unsendable(1, 2)


class EndingSearch(BrokenSearch):
    """It raises what is no Exception."""

    def step(self) -> Any:
        raise SystemExit("ended")
