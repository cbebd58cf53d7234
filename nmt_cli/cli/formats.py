"""Output formats of `nmt translate`: the translation, with its score, the n best, or JSON. `index` is the line, from 0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..translation.confidence import Calibration
    from ..translation.translator import Result


def plain(index: int, result: Result) -> str:
    """Return the translation."""
    return result.translation


def scored(index: int, result: Result) -> str:
    """Return SCORE, a tab, the translation."""
    return f"{result.best.score:.6f}\t{result.translation}"


def moses(index: int, result: Result) -> str:
    """Return one line per candidate, in the format of Moses: INDEX ||| TRANSLATION ||| SCORE."""
    return "\n".join(f"{index} ||| {candidate.text} ||| {candidate.score:.6f}" for candidate in result.candidates)


def json_object(index: int, result: Result, calibration: Calibration | None = None) -> str:
    """Return a JSON object. Tokens are subwords. A pair of the alignment has two indices, into source_tokens and into tokens.

    With a calibration, the object also has the probabilities of the words and the estimated quality (null for a blank line).
    """
    from ..interface.translator import translation_of

    return json.dumps(translation_of(result, calibration).as_dict(), ensure_ascii=False)
