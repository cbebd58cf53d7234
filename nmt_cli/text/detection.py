"""The language of a text, by py3langid, a classifier of byte sequences for 140 languages.

    detect(text) ──▶ a probability for each language of NAMES, for the server's interfaces
    language_of(lines) ──▶ the language in which pieces of a sample agree, for `sides`

The library is loaded at the first call, which takes half a second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from .languages import NAMES, base

ENOUGH = 2000
"""Number of characters that are examined at once."""
PIECES, AGREE = 10, 7
"""A sample is cut into PIECES; at least AGREE of them must be in the same language."""
ALIKE = {"nb": "no", "bs": "hr"}
"""Languages whose texts the classifier does not tell from those of another one."""
CYRILLIC = re.compile("[\u0400-\u04ff]")


@cache
def _identifier() -> Any:
    """Return the classifier, whose scores are probabilities."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _languages() -> dict[str, str]:
    """Return the classifier's codes that are in NAMES, each in the form of `plain`."""
    return {code: plain(code) for code in _identifier().labels if code in NAMES}


def detect(text: str) -> dict[str, float]:
    """Return the languages of NAMES in which a text may be with their probabilities, the most probable first; none
    without letters. Bosnian, and Serbian in Latin letters, count as Croatian: see `probability_of`.
    """
    if not any(map(str.isalpha, text[:ENOUGH])):
        return {}
    found: dict[str, float] = {}
    latin, languages = not CYRILLIC.search(text[:ENOUGH]), _languages()
    for code, probability in _ranked(text):
        if language := languages.get(code):
            found.setdefault("hr" if latin and language == "sr" else language, probability)
    whole = sum(found.values())
    return {code: probability / whole for code, probability in found.items()}


def probability_of(code: str, found: Mapping[str, float]) -> float:
    """Return the probability of the language of a code in an answer of `detect`."""
    language = plain(code)
    return found.get("hr" if language == "sr" and language not in found else language, 0.0)


def _ranked(text: str) -> list[tuple[str, float]]:
    """Return all languages of the classifier with their probabilities, the most probable first."""
    return [(str(code), float(probability)) for code, probability in _identifier().rank(text[:ENOUGH])]


def warm_up() -> None:
    """Load the classifier."""
    detect("a")


def plain(code: str) -> str:
    """Return the language of a code in the form of `language_of`, such as "pt" for "pt-BR" and "hr" for "bs"."""
    return ALIKE.get(base(code), base(code))


def recognised(code: str) -> bool:
    """Return whether `detect` and `language_of` can find the language of a code."""
    return base(code) in NAMES and plain(code) in _languages()


def language_of(lines: Iterable[str]) -> str:
    """Return the language of many lines, or "" if the pieces of the text do not agree. Equal lines count once."""
    distinct = list(dict.fromkeys(lines))
    size = len(distinct) // PIECES
    if not size:
        return ""
    pieces = (" ".join(distinct[start : start + size]) for start in range(0, PIECES * size, size))
    [(language, votes)] = Counter(_ranked(piece)[0][0] for piece in pieces).most_common(1)
    return plain(language) if votes >= AGREE and language in NAMES else ""
