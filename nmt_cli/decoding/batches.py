"""Batches of sources of like length."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def token_batches(
    order: Sequence[int], lengths: Sequence[int], batch_tokens: int, max_sentences: int = sys.maxsize
) -> list[list[int]]:
    """Cut the indices `order` into batches whose sentences, padded to the first one's length, have at most `batch_tokens`.

    `lengths[i]` is the length of sentence i; in `order` long ones come first. A batch has at least one sentence and at
    most `max_sentences`.
    """
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        size = max(1, min(batch_tokens // lengths[order[start]], max_sentences))
        batches.append(list(order[start : start + size]))
        start += size
    return batches
