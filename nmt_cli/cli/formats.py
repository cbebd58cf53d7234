"""Output formats of `nmt translate`: the translation, with its score, the n best, or JSON. `index` is the line, from 0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..decoding.confidence import Calibration
    from ..decoding.translator import Candidate, Result


def plain(index: int, result: Result) -> str:
    """The translation."""
    return result.translation


def scored(index: int, result: Result) -> str:
    """SCORE, a tab, the translation."""
    return f"{result.best.score:.6f}\t{result.translation}"


def moses(index: int, result: Result) -> str:
    """One line per candidate, in the format of Moses: INDEX ||| TRANSLATION ||| SCORE."""
    return "\n".join(f"{index} ||| {candidate.text} ||| {candidate.score:.6f}" for candidate in result.candidates)


def json_object(index: int, result: Result, calibration: Calibration | None = None) -> str:
    """A JSON object. Tokens are subwords; a pair of the alignment is two indices, into source_tokens and tokens.

    With a calibration also the probabilities of the words, and the estimated quality: null for a blank line.
    """
    nbest = [{**_fields(candidate), **(_confidence(candidate, len(result.source_pieces), calibration) if calibration else {})} for candidate in result.candidates]
    values: dict[str, Any] = {"source": result.source, **nbest[0]}
    if result.alignment is not None:
        values |= {"source_tokens": result.source_pieces, "alignment": result.alignment}
    return json.dumps({**values, "nbest": nbest}, ensure_ascii=False)


def _fields(candidate: Candidate) -> dict[str, Any]:
    return {"translation": candidate.text, "score": candidate.score, "log_prob": candidate.log_prob, "tokens": candidate.pieces}


def _confidence(candidate: Candidate, source_tokens: int, calibration: Calibration) -> dict[str, Any]:
    """Return the words with their probabilities, and the quality. Raises UsageError if the search has no log P of single tokens."""
    from ..decoding.confidence import features, word_probabilities

    if not source_tokens:
        return {"words": [], "quality": None}
    if not candidate.token_log_probs:
        raise UsageError("--confidence needs a search that keeps the probabilities of single tokens, such as beam search.")
    pairs = word_probabilities(candidate.pieces, candidate.token_log_probs, candidate.part_lengths)
    quality = calibration.estimate(features(source_tokens, candidate))
    return {"words": [{"word": word, "probability": probability} for word, probability in pairs], "quality": quality}
