"""What `nmt translate` prints for a line: the translation, with scores, the n best, or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..decoding.translator import Candidate, Result


def plain(index: int, result: Result) -> str:
    return result.translation


def scored(index: int, result: Result) -> str:
    return f"{result.best.score:.6f}\t{result.translation}"


def moses(index: int, result: Result) -> str:
    return "\n".join(f"{index} ||| {candidate.text} ||| {candidate.score:.6f}" for candidate in result.candidates)


def json_object(index: int, result: Result) -> str:
    """Tokens are subwords; the alignment's pairs are places in source_tokens and tokens."""
    import json

    values: dict[str, Any] = {"source": result.source, **_fields(result.best)}
    if result.alignment is not None:
        values |= {"source_tokens": result.source_pieces, "alignment": result.alignment}
    return json.dumps({**values, "nbest": [_fields(candidate) for candidate in result.candidates]}, ensure_ascii=False)


def _fields(candidate: Candidate) -> dict[str, Any]:
    return {"translation": candidate.text, "score": candidate.score, "log_prob": candidate.log_prob, "tokens": candidate.pieces}
