"""A search that a test holds. Its output is its source; no model computes.

A sentence of more than SHORT tokens stays in the search until the file of `held_until` exists. Processes that cannot be
patched import this module: the name of the file is in their environment.

    gate = held_until(monkeypatch, tmp_path)     in this process and those that it forks, "beam" is this search
    gate.begun()                                 wait until it has a long sentence
    gate.open()
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from nmt_cli.registry import SEARCHES
from nmt_cli.search.sentence import Hypothesis, Sentence
from nmt_cli.translation import models

SHORT = 12
NAME = "NMT_TEST_HELD"
PRELUDE = """
import held_search
from nmt_cli.translation import models
from nmt_cli.registry import SEARCHES
SEARCHES["beam"], models.EngineSearch = "held_search:HeldSearch", held_search.HeldSearch
"""
"""For a Python program of its own, with `Gate.environment`."""


class HeldSearch:
    """See above; it is a `Search`."""

    def __init__(self, decoder: Any, options: Any) -> None:
        self.sentences: dict[int, Sentence] = {}

    @property
    def busy(self) -> bool:
        return bool(self.sentences)

    @property
    def open_hypotheses(self) -> int:
        return len(self.sentences)

    def add(self, sentence_ids: Sequence[int], sentences: Sequence[Sentence]) -> None:
        self.sentences.update(zip(sentence_ids, sentences, strict=True))

    def drop(self, sentence_ids: Sequence[int]) -> None:
        for number in sentence_ids:
            self.sentences.pop(number, None)

    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        gate = Path(os.environ[NAME])
        held = not gate.exists()
        leaving = [number for number, one in self.sentences.items() if not held or len(one.tokens) <= SHORT]
        if len(leaving) < len(self.sentences):
            gate.with_suffix(".begun").write_text(str(os.getpid()), encoding="ascii")
            time.sleep(0.01)
        return [(number, [Hypothesis(list(self.sentences.pop(number).tokens), -1.0, -1.0)]) for number in leaving]


class Gate:
    """What the test sees of the searches that it holds."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "gate"
        self.environment = {
            NAME: str(self.file),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        }

    def begun(self) -> int:
        """Wait until a search has a sentence that it holds. Return its process."""
        file = self.file.with_suffix(".begun")
        return int(wait_until(lambda: file.exists() and file.read_text(encoding="ascii")))

    def open(self) -> None:
        """Let all sentences go, from now on."""
        self.file.touch()


def held_until(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str = "beam") -> Gate:
    """Register the search under this name, in this process and those that it forks. Return the gate."""
    gate = Gate(folder)
    monkeypatch.setitem(SEARCHES, name, "held_search:HeldSearch")
    if name == "beam":
        monkeypatch.setattr(models, "EngineSearch", HeldSearch)
    monkeypatch.setenv(NAME, str(gate.file))
    return gate
