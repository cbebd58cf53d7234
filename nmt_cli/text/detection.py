"""The language of a text, by py3langid, a classifier of byte sequences for 140 languages.

    detect(texts, languages) ──▶ a probability for each language, for the server's interfaces
    language_of(lines) ──▶ the language in which pieces of a sample agree, for `sides`

The library is loaded at the first call, which takes half a second.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from .languages import NAMES, base

ENOUGH = 2000
"""Number of characters that are examined at once."""
PIECES, AGREE = 10, 7
"""A sample is cut into PIECES; at least AGREE of them must be in the same language."""
ALIKE = {"nb": "no", "bs": "hr"}
"""Languages whose texts the classifier does not tell from those of another one."""
_lock = threading.Lock()


@cache
def _identifier() -> Any:
    """Return the classifier, whose scores are probabilities."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect(texts: Sequence[str], languages: Sequence[str]) -> list[tuple[str, float]]:
    """Return the languages with their probabilities, 0 to 1, the most probable first. The texts are in one language."""
    ranked = dict(_ranked("\n".join(texts)))
    candidates = [(language, ranked.get(base(language), 0.0)) for language in languages]
    return sorted(candidates, key=lambda candidate: -candidate[1])


def _ranked(text: str) -> list[tuple[str, float]]:
    """Return all languages of the classifier with their probabilities, the most probable first."""
    with _lock:  # the classifier is not thread-safe
        return [(str(code), float(probability)) for code, probability in _identifier().rank(text[:ENOUGH])]


def warm_up() -> None:
    """Load the classifier."""
    detect(["."], [])


def plain(code: str) -> str:
    """Return the language of a code in the form of `language_of`, such as "pt" for "pt-BR" and "no" for "nb"."""
    return ALIKE.get(base(code), base(code))


def recognised(code: str) -> bool:
    """Return whether `language_of` can find the language of a code."""
    return base(code) in NAMES and plain(code) in {language for language, _ in _ranked(".")}


def language_of(lines: Iterable[str]) -> str:
    """Return the language of many lines, or "" if the pieces of the text do not agree. Equal lines count once."""
    distinct = list(dict.fromkeys(lines))
    size = len(distinct) // PIECES
    if not size:
        return ""
    pieces = (" ".join(distinct[start : start + size]) for start in range(0, PIECES * size, size))
    [(language, votes)] = Counter(_ranked(piece)[0][0] for piece in pieces).most_common(1)
    return plain(language) if votes >= AGREE and language in NAMES else ""
