"""Language detection by py3langid, a classifier of byte sequences for 140 languages.

The result is a probability for each served language.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from ..languages import base

ENOUGH = 2000
"""Number of characters that are examined."""
_lock = threading.Lock()


@cache
def _identifier() -> Any:
    """Return the classifier, whose scores are probabilities."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect(texts: Sequence[str], languages: Sequence[str]) -> list[tuple[str, float]]:
    """Return the languages with their probabilities, 0 to 1, the most probable first. The texts are in one language."""
    text = "\n".join(texts)[:ENOUGH]
    with _lock:  # the classifier is not thread-safe
        ranked = {str(code): float(probability) for code, probability in _identifier().rank(text)}
    candidates = [(language, ranked.get(base(language), 0.0)) for language in languages]
    return sorted(candidates, key=lambda candidate: -candidate[1])


def warm_up() -> None:
    """Load the classifier, which takes most of a second."""
    detect(["."], [])
