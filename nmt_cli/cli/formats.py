"""Output formats of `nmt translate`: the translation, with its score, the n best, or JSON.

`index` is the line, from 0.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..translation.translation import Translation


def plain(index: int, translation: Translation) -> str:
    """Return the translation."""
    return translation.text


def scored(index: int, translation: Translation) -> str:
    """Return SCORE, a tab, the translation."""
    return f"{translation.score:.6f}\t{translation.text}"


def moses(index: int, translation: Translation) -> str:
    """Return one line per candidate, in the format of Moses: INDEX ||| TRANSLATION ||| SCORE."""
    return "\n".join(f"{index} ||| {candidate.text} ||| {candidate.score:.6f}" for candidate in translation.nbest)


def json_object(index: int, translation: Translation) -> str:
    """Return a JSON object.

    Tokens are subwords. A pair of the alignment has two indices, into source_tokens and into tokens.
    """
    return json.dumps(translation.as_dict(), ensure_ascii=False)
