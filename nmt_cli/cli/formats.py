"""Output formats of `nmt translate`: the translation, with its score, the n best, or JSON. `index` is the line, from 0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def json_object(index: int, result: Result) -> str:
    """A JSON object. Tokens are subwords; a pair of the alignment is two indices, into source_tokens and tokens."""
    values: dict[str, Any] = {"source": result.source, **_fields(result.best)}
    if result.alignment is not None:
        values |= {"source_tokens": result.source_pieces, "alignment": result.alignment}
    return json.dumps({**values, "nbest": [_fields(candidate) for candidate in result.candidates]}, ensure_ascii=False)


def _fields(candidate: Candidate) -> dict[str, Any]:
    return {"translation": candidate.text, "score": candidate.score, "log_prob": candidate.log_prob, "tokens": candidate.pieces}
