"""Which model translates a text: by the languages that its client names, or by the language that the text shows.

    source, target ──▶ named ──▶ Route ◀── Detector ◀── target, text

The detected language is one of all that there are, served or not. A text that is surely in none of the languages that
the server translates into the target comes back as it is: in the target language, or, if it surely is not, in one that
the answer names. Any other text is translated from the most probable of these languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text import detection
from ..text.languages import find
from .models import Pairs, Served

SURE = 0.97
"""Share of the more probable of two languages from which on the other is not meant: see benchmarks/RESULTS.md."""
MANY = "mul"
"""The source language of a model that translates from several languages."""


@dataclass(frozen=True)
class Route:
    """What becomes of a text."""

    language: str
    """The code of its language; that of the server, if it has the language."""
    confidence: float = 1.0
    """Probability that it is in this language, among all languages; 1 if the client says so."""
    model: Served | None = None
    """The model that translates it; None: it comes back as it is."""
    refused: bool = False
    """Whether it comes back as it is because no model translates its language."""


def named(pairs: Pairs, source: str, target: str) -> Route:
    """Return the route of texts in the language that a client names by the code `source`."""
    model, language = pairs.find(source, target), find(source, pairs.languages)
    refused = not model and (language is None or language != find(target, pairs.languages))
    return Route(language or source, 1.0, model, refused)


class Detector:
    """Returns the route of each text of a request into one language."""

    def __init__(self, pairs: Pairs, target: str) -> None:
        self.pairs, self.target, self.models = pairs, target, pairs.into(target)
        self.unknown = [source for source in self.models if not detection.recognised(source)]
        """Source languages that the classifier does not know: a text may be in one of them, whatever it looks like."""

    def __call__(self, lines: Sequence[str]) -> Route:
        found = detection.detect("\n".join(lines))
        top, most = next(iter(found.items()), ("", 0.0))
        own = detection.probability_of(self.target, found)
        source = max(self.models, key=lambda source: detection.probability_of(source, found), default="")
        share = detection.probability_of(source, found)
        if self.unknown and share < most:
            source, share = self.unknown[0], 1 - most
        if not self.models or (share < most and _surely(most, share) and (own == most or not self.unknown)):
            refused = bool(top) and _surely(most, own)
            language = find(top if refused else self.target, self.pairs.languages)
            return Route(language or top, most if refused else own, refused=refused)
        if source == MANY:
            return Route(top or MANY, most, self.models[source])
        return Route(source, 0.0 if source in self.unknown else share, self.models[source])


def _surely(probability: float, other: float) -> bool:
    """Return whether a text is so much more probably in one language than in another that the other is not meant."""
    return probability >= SURE * (probability + other)
