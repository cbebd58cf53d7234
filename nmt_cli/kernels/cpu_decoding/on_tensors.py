"""Compiled functions on torch's tensors that are not part of a decoder: the steps of a search.

top_candidates: `protocols.TopCandidates` in one pass       extend_beam: `protocols.ExtendBeam`       log_softmax_: `protocols.LogSoftmax`
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from ..protocols import BeamState
from .functions import BF16, FP32, INT8, UINT8, Beam, library

DTYPES = {torch.float32: FP32, torch.bfloat16: BF16, torch.int8: INT8}
"""The number of each dtype in the sources."""
INPUT_DTYPES = {**DTYPES, torch.uint8: UINT8}
"""The number of each dtype that matrix products read."""


def top_candidates(
    logits: Tensor,
    log_probs: Tensor,
    rows: Tensor,
    count: int,
    banned_tokens: Sequence[int],
    only: Tensor | None,
    banned_counts: Tensor | None = None,
    normalized: bool = False,
) -> tuple[Tensor, Tensor]:
    """See `protocols.TopCandidates`. The tensors are on the CPU, and `library()` is not None."""
    functions = library()
    assert functions is not None
    logits, log_probs, rows = logits.contiguous(), log_probs.contiguous(), rows.contiguous()
    batch, beam = log_probs.shape
    values, flat = torch.empty(batch, count), torch.empty(batch, count, dtype=torch.int64)
    ids = torch.tensor(banned_tokens, dtype=torch.int64)
    functions.nmt_top_candidates(
        batch,
        beam,
        len(rows),
        rows.data_ptr(),
        logits.size(1),
        logits.data_ptr(),
        normalized,
        log_probs.data_ptr(),
        len(ids),
        ids.data_ptr(),
        *(each.data_ptr() if each is not None else None for each in (banned_counts, only)),
        count,
        values.data_ptr(),
        flat.data_ptr(),
    )
    return values, flat


def extend_beam(state: BeamState, candidates: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """See `protocols.ExtendBeam`. The tensors are on the CPU, and `library()` is not None."""
    functions = library()
    assert functions is not None
    parents = torch.empty_like(state.open.newest)
    values, hypotheses, tokens = (tensor.contiguous() for tensor in candidates)
    beam = Beam.of(state, values.size(1))
    functions.nmt_extend_beam(
        ctypes.addressof(beam), values.data_ptr(), hypotheses.data_ptr(), tokens.data_ptr(), parents.data_ptr()
    )
    return parents


def log_softmax_(logits: Tensor) -> Tensor:
    """Return the same as `decoding.candidates.log_softmax_`. The tensor is on the CPU, and `library()` is not None."""
    functions = library()
    assert functions is not None
    logits = logits.contiguous()
    functions.nmt_log_softmax(*logits.shape, logits.data_ptr())
    return logits
