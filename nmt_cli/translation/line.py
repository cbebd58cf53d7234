"""A line, and its translation: the text, its probability, the n best, and what else was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Line:
    """A line to translate, with an optional prefix and terms: its translation must begin with the prefix and contain
    the terms.
    """

    text: str
    prefix: str | None = None
    terms: Sequence[str] = ()
    """Words and phrases. `A|B`: A or B; `A*`: a word that begins with A."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """What other constraints read for this line, by name of the constraint; see `Constraint.encode`."""

    aligned: bool = False
    """Whether its translation has an alignment; with the option `alignment`, all have one."""

    @property
    def inputs(self) -> dict[str, Any]:
        """What constraints read for this line, by name of the constraint."""
        own = {"prefix": self.prefix, "terms": list(self.terms) or None}
        return {**{name: value for name, value in own.items() if value is not None}, **self.others}

    def __len__(self) -> int:
        """Return the number of characters."""
        return len(self.text) + sum(len(str(value)) for value in self.inputs.values())


class WordProbability(NamedTuple):
    """A word of a translation and its probability, given the source and the words before it."""

    word: str
    probability: float


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. For a line in parts the texts are joined, log P is summed and scored as one output."""

    text: str
    score: float
    """The score by which the search ranks; `nmt translate --help` has the formula. Nearer to 0 is better."""
    log_prob: float
    """Natural logarithm of the probability of the translation given the source."""
    tokens: tuple[str, ...] = ()
    """The subwords of the translation as SentencePiece writes them (▁ marks the beginning of a word)."""
    words: tuple[WordProbability, ...] | None = None
    """With `confidence`: each word's probability."""
    quality: float | None = None
    """With `confidence`: an estimate of sentence chrF / 100, 0 to 1; None for a blank line."""
    token_log_probs: tuple[float, ...] = ()
    """If asked for: log P of each token. After the tokens of each part of the line comes log P of its end symbol."""
    part_lengths: tuple[int, ...] = ()
    """The number of `tokens` of each part of the line."""

    @property
    def length(self) -> int:
        """The number of tokens, end symbols counted; 0: the line was blank, or too long."""
        return sum(self.part_lengths) + len(self.part_lengths)

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON: `translation`, `score`, `log_prob`, `tokens`, with confidence also `words` and
        `quality`.
        """
        values = {"translation": self.text, "score": self.score, "log_prob": self.log_prob, "tokens": self.tokens}
        if self.words is None:
            return values
        return values | {"words": [word._asdict() for word in self.words], "quality": self.quality}


@dataclass(frozen=True)
class Translation(Candidate):
    """The best translation of a line, and the n best."""

    source: str = ""
    nbest: tuple[Candidate, ...] = ()
    """All translations of the line, the best first, at least one."""
    source_tokens: tuple[str, ...] = ()
    """The subwords of the source; the tag of a target language is none of them."""
    target_language: str = ""
    """The code of the tag that the model has read; "" if it has none, and for a blank line."""
    alignment: tuple[tuple[int, int], ...] | None = None
    """With `alignment`: pairs (index of a source token, index of the token that is aligned to it); see `alignment`."""
    restored: int = 0
    """Number of placeholders, and of characters without pieces, that the model did not copy and that were put back."""
    too_long: bool = False
    """Whether the line is too long for the model and must not be split (`Constraint.reads_source`). Its translation is
    then empty."""

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, as `nmt translate --json` prints it."""
        values = {"source": self.source, **super().as_dict()}
        if self.alignment is not None:
            values |= {"source_tokens": self.source_tokens, "alignment": self.alignment}
        if self.target_language:
            values["target_language"] = self.target_language
        return {**values, "nbest": [candidate.as_dict() for candidate in self.nbest]}
