"""Forced passes by a model of torch, see `forced.ForcedModel`.

    pairs ──▶ batches of one padded shape ──▶ model ──▶ hidden (B, T, D)
          ──▶ R rows at a time: logits (R, V) ──▶ log P of each token

The numbers of a pair do not depend, in fp32 on a CPU, on the other pairs of its batch: both sides are padded to
multiples of 4, only pairs of equal padded lengths share a batch, and no matrix product has fewer than 16 rows,
because small batches are padded with copies (`cached_decoder` gives the reason).

    B pairs   S source length   T target length   D d_model   V vocabulary   R rows
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import cast

import numpy as np
import torch
from torch import Tensor

from ..data.tokenizer import PAD
from ..device.torch_device import is_host
from ..model.attention import CrossAttention, SelfAttention, record_attention
from ..model.layers import DecoderLayer, EncoderLayer
from ..model.transformer import Transformer
from .forced import Array

ROW_MULTIPLE, FEWEST_ROWS = 4, 16
"""Padded lengths are multiples of ROW_MULTIPLE; a matrix product has at least FEWEST_ROWS rows."""
LOGITS_ON_HOST, LOGITS_ON_ACCELERATOR = 1 << 23, 1 << 26
"""Largest number of logits (R x V) at once: 32 and 256 MiB. R is at least 2 * FEWEST_ROWS."""

Ids = Sequence[int]


_recording = threading.Lock()
"""Only one thread records at a time: workers share their models, and recording changes how a module attends."""
if hasattr(os, "register_at_fork"):  # the thread that has the lock may not exist in the child
    os.register_at_fork(after_in_child=_recording._at_fork_reinit)  # type: ignore[attr-defined]


class TorchForced:
    """A model that `precision.convert` returned, for forced passes. The model is read, never changed.

    `batch_tokens` is the largest number of tokens on the longer side of a batch, padding counted; it changes only the
    speed.
    """

    def __init__(self, model: Transformer, batch_tokens: int = 4096) -> None:
        self.model, self.batch_tokens, self.config = model, batch_tokens, model.config
        self.device = model.device
        logits = LOGITS_ON_HOST if is_host(self.device) else LOGITS_ON_ACCELERATOR
        self.rows = max(2 * FEWEST_ROWS, logits // model.target_vocab)  # R

    @torch.inference_mode()
    def forced(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        following: Sequence[Ids] = (),
        *,
        attention: Sequence[str] = (),
    ) -> tuple[list[Array], dict[str, Array]]:
        if attention:
            [source], [target] = sources, targets
            hidden, weights = self._recorded(source, target, attention)
            expected = [torch.tensor(ids, device=self.device) for ids in following]
            return [self._token_log_probs(hidden, ids).cpu().numpy() for ids in expected], weights
        by_shape: dict[tuple[int, int], list[int]] = {}
        for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
            by_shape.setdefault((self._padded(len(source)), self._padded(len(target))), []).append(index)
        log_probs = [np.empty(0, np.float32)] * len(sources)
        for shape, indices in by_shape.items():
            size = max(1, self.batch_tokens // max(shape))
            for batch in (indices[start : start + size] for start in range(0, len(indices), size)):
                of_batch, reads, outputs = ([side[i] for i in batch] for side in (sources, targets, following))
                values_of = self._batch(of_batch, reads, outputs, shape)
                for index, values in zip(batch, values_of, strict=False):
                    log_probs[index] = values[: len(targets[index])]
        return log_probs, {}

    def _padded(self, length: int) -> int:
        return min(-(-length // ROW_MULTIPLE) * ROW_MULTIPLE, self.config.max_positions)

    def _batch(self, sources: list[Ids], targets: list[Ids], following: list[Ids], shape: tuple[int, int]) -> Array:
        """Return log P of the tokens of `following`, (B or more, T); `shape` are the padded lengths."""
        copies = max(0, -(-FEWEST_ROWS // min(shape)) - len(sources))
        sources, targets, following = (side + side[-1:] * copies for side in (sources, targets, following))
        lengths = torch.tensor([len(source) for source in sources], device=self.device)
        # (B, 1, 1, S), even if all values are True
        mask = (torch.arange(shape[0], device=self.device) < lengths[:, None])[:, None, None, :]
        src, tgt_in, tgt_out = map(self._tensor, (sources, targets, following), (shape[0], shape[1], shape[1]))
        rows = self._token_log_probs(self.model(src, mask, tgt_in).flatten(0, 1), tgt_out.flatten())  # (B * T,)
        return rows.view(len(targets), -1).cpu().numpy()

    def _tensor(self, rows: list[Ids], size: int) -> Tensor:
        return torch.tensor([[*row, *[PAD] * (size - len(row))] for row in rows]).to(self.device)

    def _token_log_probs(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return log P of each token of `targets` (N,) given `hidden` (N, D), in fp32.

        All chunks of a batch have at least FEWEST_ROWS rows.
        """
        chunks = -(-len(targets) // self.rows)
        log_probs = []
        for h, target in zip(hidden.tensor_split(chunks), targets.tensor_split(chunks), strict=True):
            logits = self.model.logits(h).float()  # (R, V)
            log_probs.append(logits.gather(1, target[:, None]).squeeze(1) - logits.logsumexp(1))
        return torch.cat(log_probs)

    def _recorded(self, source: Ids, target: Ids, kinds: Sequence[str]) -> tuple[Tensor, dict[str, Array]]:
        """Return the decoder's output (T, D), and the weights of these kinds of attention."""
        modules = {kind: _modules(self.model, kind) for kind in kinds}
        with ExitStack() as stack:
            stack.enter_context(_recording)
            records = {
                kind: [stack.enter_context(record_attention(module)) for module in several]
                for kind, several in modules.items()
            }
            ids = (torch.tensor([list(side)], device=self.device) for side in (source, target))
            src, tgt_in = ids
            hidden = self.model(src, None, tgt_in)
        return hidden[0], {
            kind: torch.stack([weights[0] for [weights] in several]).float().cpu().numpy()
            for kind, several in records.items()
        }


def _modules(model: Transformer, kind: str) -> list[SelfAttention | CrossAttention]:
    """Return the modules of a kind of attention, one per layer."""
    if kind == "cross":
        return [cast(DecoderLayer, layer).cross_attention for layer in model.decoder]
    layers = model.encoder if kind == "encoder" else model.decoder
    return [cast(EncoderLayer, layer).self_attention for layer in layers]
