"""How sure a translation is: the probability of each word, and a calibrated estimate of the quality of a line.

    Candidate with token_log_probs ──▶ words ──▶ (word, probability) of each word
                                   ──▶ features ──▶ Calibration.estimate ──▶ quality in 0..1

The probability of a word is the product of the probabilities of its subwords, each given the source and all subwords
before it. The quality is an estimate of sentence chrF / 100: a regression with a logistic link (Papke and Wooldridge
1996) from a few features of the search, which come from the model's own probabilities alone. `Calibration.fit` learns
it from translated lines with references. `nmt translate --confidence` and `nmt calibrate` use this file. It needs no
torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, field_validator

from ..data.normalization import META_SPACE
from ..data.tokenizer import BYTE
from ..errors import DataError, UsageError
from ..storage.sealed_json import Record, parse_json, read_record
from ..text.lines import well_formed
from .line import Candidate, WordProbability
from .split import gap

FEATURES = {
    "token": "mean log-probability per token, end symbols counted",
    "word": "mean log-probability per word",
    "worst_word": "smallest log-probability of a word",
    "length_ratio": "log of the tokens of the translation per token of the source, end symbols counted",
    "length": "log of the number of tokens of the translation, end symbols counted",
}
"""The features from which the quality is estimated. Logarithms are natural."""

RIDGE = 1.0
"""Ridge penalty: weight of half the squared coefficient of a standardised feature, in the sum of the cross-entropies of
all lines."""
LINES = 50
"""Smallest number of lines for a fit."""
NEAREST = 1e-3
"""Smallest distance of the targets from 0 and 1, which a logistic curve never reaches."""
REMEDY = "Write it again with nmt calibrate."


class Word(NamedTuple):
    """A word of a translation with its log-probability."""

    text: str
    log_prob: float


def words(pieces: Sequence[str], token_log_probs: Sequence[float], part_lengths: Sequence[int]) -> list[Word]:
    """Return the words of a translation with their log-probabilities; the arguments are those of a `Candidate`.

    The words, joined by spaces, are the translation. A word begins with a piece that begins with ▁. A piece of white
    space alone belongs to the next word, or to the last word if no word follows, and remains in the text of this word.
    Without a space between two parts (Chinese, Japanese), the last word of the one and the first word of the other are
    one word. The end symbol of a part is no word.
    """
    words_of_parts: list[Word] = []
    for index, (start, end) in enumerate(pairwise([0, *accumulate(part_lengths)])):
        part = _words_of_part(pieces[start:end], token_log_probs[start + index : end + index])
        if words_of_parts and part and not gap(words_of_parts[-1].text):
            last, first = words_of_parts.pop(), part.pop(0)
            part.insert(0, Word(last.text + first.text, last.log_prob + first.log_prob))
        words_of_parts += part
    return words_of_parts


def _words_of_part(pieces: Sequence[str], log_probs: Sequence[float]) -> list[Word]:
    groups: list[Word] = []
    for (text, begins), log_prob in zip(_surfaces(pieces), log_probs, strict=True):
        if groups and not (begins and groups[-1].text.strip(" ")):
            groups[-1] = Word(groups[-1].text + text, groups[-1].log_prob + log_prob)
        else:
            groups.append(Word(text[1:] if groups else text, log_prob))
    if len(groups) > 1 and not groups[-1].text.strip(" "):
        last = groups.pop()
        groups[-1] = Word(f"{groups[-1].text} {last.text}", groups[-1].log_prob + last.log_prob)
    return [group for group in groups if group.text]


UNKNOWN, UNKNOWN_TEXT = "<unk>", " \u2047 "
"""The unknown token, and its text as SentencePiece writes it."""


def _surfaces(pieces: Sequence[str]) -> list[tuple[str, bool]]:
    r"""Return the text of each piece, and whether it begins with a space that separates words.

    The decoding is SentencePiece's: one ▁ is dropped from each piece as long as there is no text. The bytes of a
    character become that character, an invalid one U+FFFD; its text belongs to the last of these pieces. A `\n` becomes
    a space, as in `Tokenizer.decode`.
    """
    surfaces: list[tuple[str, bool]] = []
    empty = True
    for are_bytes, run in groupby(pieces, lambda piece: BYTE.fullmatch(piece) is not None):
        if are_bytes:
            data = bytes(int(piece[3:5], 16) for piece in run)
            for character in data.decode("utf-8", "surrogateescape"):  # an invalid byte is a character by itself
                size = len(character.encode("utf-8", "surrogateescape"))
                surfaces += [("", False)] * (size - 1) + [(well_formed(character).replace("\n", " "), False)]
            empty = False
            continue
        for piece in run:
            shown = UNKNOWN_TEXT if piece == UNKNOWN else piece.removeprefix(META_SPACE) if empty else piece
            text = shown.replace(META_SPACE, " ")
            surfaces.append((text, text.startswith(" ")))
            empty = empty and not text
    return surfaces


def with_confidence(candidate: Candidate, source_tokens: int, calibration: Calibration) -> Candidate:
    """Return a candidate with the probabilities of its words and its quality.

    Raises UsageError if it lacks log-probabilities of tokens.
    """
    if not candidate.token_log_probs:
        raise UsageError(
            "--confidence needs a search that keeps the probabilities of single tokens, such as beam search."
        )
    found = words(candidate.tokens, candidate.token_log_probs, candidate.part_lengths)
    probabilities = tuple(WordProbability(word.text, min(math.exp(word.log_prob), 1.0)) for word in found)
    return replace(candidate, words=probabilities, quality=calibration.estimate(features(source_tokens, candidate)))


def features(source_tokens: int, candidate: Candidate) -> dict[str, float]:
    """Return the features of a translation by name, see FEATURES.

    `source_tokens`: tokens of the source without end symbols. For a translation without words, the log P per token
    replaces the log-probabilities of words.
    """
    numbers = candidate.token_log_probs
    parts = len(numbers) - len(candidate.tokens)
    per_token = math.fsum(numbers) / len(numbers)
    per_word = [word.log_prob for word in words(candidate.tokens, numbers, candidate.part_lengths)] or [per_token]
    return {
        "token": per_token,
        "word": math.fsum(per_word) / len(per_word),
        "worst_word": min(per_word),
        "length_ratio": math.log(len(numbers) / (source_tokens + parts)),
        "length": math.log(len(numbers)),
    }


class Calibration(Record):
    """A regression from features to the expected chrF / 100: 1 / (1 + exp(-(intercept + Σ coefficient · feature))).

    Its file is a `records.Record`: JSON with the hash of its content.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal["nmt calibration"] = "nmt calibration"
    lines: int = Field(ge=1)
    """Number of lines on which it was fitted."""
    intercept: float
    coefficients: dict[str, float] = Field(min_length=1)
    """The coefficient of each feature, by its name."""

    @field_validator("coefficients")
    @classmethod
    def _known(cls, value: dict[str, float]) -> dict[str, float]:
        unknown = [name for name in value if name not in FEATURES]
        if unknown:
            raise ValueError(f"unknown feature {unknown[0]!r}, expected {', '.join(FEATURES)}")
        return value

    @classmethod
    def fit(cls, rows: Sequence[Mapping[str, float]], chrf: Sequence[float]) -> Calibration:
        """Return the regression from the features of translated lines to their sentence chrF, 0 to 100.

        All `rows` have the same features. Raises DataError if there are fewer than LINES.
        """
        import numpy as np

        if len(rows) < LINES:
            raise DataError(
                f"a calibration needs {LINES} lines or more that are not blank, here are {len(rows):,}. Give "
                "more lines."
            )
        names = list(rows[0])
        x = np.array([[row[name] for name in names] for row in rows])  # (lines, features)
        mean, scale = x.mean(0), x.std(0)
        scale[scale < 1e-9] = 1.0  # a feature that never varies gets the coefficient 0
        w = _logistic_regression((x - mean) / scale, np.clip(np.array(chrf) / 100, NEAREST, 1 - NEAREST))
        slopes = w[1:] / scale
        return cls(
            format_version=cls.newest,
            lines=len(rows),
            intercept=float(w[0] - slopes @ mean),
            coefficients=dict(zip(names, slopes.tolist(), strict=True)),
        )

    def estimate(self, values: Mapping[str, float]) -> float:
        """Return the quality that these features promise, 0 to 1."""
        logit = self.intercept + math.fsum(weight * values[name] for name, weight in self.coefficients.items())
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, logit))))


def _logistic_regression(x: Any, y: Any) -> Any:
    """Return the intercept and the coefficients (1 + F,) for standardised features (N, F) and targets (N,) in 0..1.

    Newton's method (iteratively reweighted least squares) on the cross-entropy with a ridge penalty; a step that
    increases the loss is halved.
    """
    import numpy as np

    x = np.concatenate([np.ones((len(x), 1)), x], axis=1)  # (N, 1 + F)
    ridge = RIDGE * np.diag([0.0, *[1.0] * (x.shape[1] - 1)])

    def loss(w: Any) -> float:
        logits = x @ w
        return float((np.logaddexp(0, logits) - y * logits).sum() + w @ ridge @ w / 2)

    w = np.zeros(x.shape[1])
    for _ in range(100):
        p = 1 / (1 + np.exp(-x @ w))
        step = np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + ridge, x.T @ (y - p) - ridge @ w)
        while (worse := loss(w + step) > loss(w)) and np.abs(step).max() > 1e-9:
            step /= 2
        if worse:
            break
        w = w + step
        if np.abs(step).max() < 1e-9:
            break
    return w


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation.

    Equal values get their mean rank. The result is nan if all values of one side are equal.
    """
    import numpy as np

    def ranks(values: Sequence[float]) -> Any:
        _, inverse, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    with np.errstate(invalid="ignore"):
        return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def read_calibration(path: Path) -> Calibration:
    """Return the calibration in a file that `nmt calibrate` wrote.

    Raises DataError, with the file, the cause and the remedy.
    """
    try:
        return read_record(path, Calibration, DataError, REMEDY)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"there is no calibration at {str(path)!r}: expected a file of nmt calibrate.") from None


def not_a_calibration(path: Path) -> str:
    """Return the reason why a file is not an unchanged output of `nmt calibrate`; "" if it is one."""
    try:
        values = parse_json(path.read_bytes(), path, DataError, "")
    except DataError:
        values = {}
    if values.get("kind") != "nmt calibration":
        return "nmt calibrate did not write it"
    try:
        read_calibration(path)
    except DataError:
        return "it was changed after nmt calibrate had written it"
    return ""


DEFAULT = Calibration(
    format_version=Calibration.newest,
    lines=2028,
    intercept=1.052924,
    coefficients={
        "token": 1.768833,
        "word": 0.074085,
        "worst_word": -0.002825,
        "length_ratio": 0.345233,
        "length": 0.119274,
    },
)
"""The calibration of `nmt translate --confidence` without --calibration. It was fitted on a small model, trained with
the recipe multi30k_en_de: by `nmt calibrate --precision fp32` on the 1,014 validation lines of Multi30k, and the first
507 lines each of newstest2008 and newstest2009, whose translations by this model are bad."""
