"""The Transformer (figure 1): embeddings, the two stacks, the output projection.

    src (B, S) ──▶ encode ──▶ memory (B, S, D) ──▶ project_memory ──▶ keys and values, a pair per decoder layer
    tgt_in (B, T) ────────────────▶ decode ──▶ hidden (B, T, D) ──▶ logits (B, T, V)

`forward` ends at `hidden`: the loss applies the output projection itself, in chunks, so the whole (B, T, V) is never in
memory. Training calls `forward_packed`, the same for packed batches without padding. Fast search calls `encode_packed`
once per sentence and then the decoder layers one by one (translation/cached_decoder.py). Masks are boolean, True = may
attend. Padding is at the end of a row: causal self-attention never sees it, so the target needs no mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..recipe import ModelSection
from ..registry import POSITIONS, RESIDUALS, load
from .attention import Cache
from .embeddings import Embedding, Int8Embedding
from .layers import DecoderLayer, EncoderLayer
from .monotonic import NextWord
from .packing import PADDED, Layout, Packing
from .parameters import count_numbers
from .residuals import build_norm

PAD, BOS = 0, 2
"""Ids of the padding and the begin symbol, as in every vocabulary (data/tokenizer.py)."""
ABSENT = (PAD, BOS)
"""Tokens without probability in a model with an output bias. Their bias is NO_PROBABILITY, in training too."""
NO_PROBABILITY = -1e9
KeysValues = tuple[Tensor, Tensor]


def attention_mask(lengths: Tensor, size: int) -> Tensor | None:
    """Return (B, 1, 1, size) for lengths (B,), True where there is a token; None if every row is full."""
    if int(lengths.min()) == size:
        return None
    return (torch.arange(size, device=lengths.device) < lengths[:, None])[:, None, None, :]


class Transformer(nn.Module):
    """Encoder and decoder of `config`, over vocabularies of the given sizes.

    Embeddings are initialised from N(0, 1 / d_model) and multiplied by sqrt(d_model) at the input (section 3.4); with
    `tie_embeddings` one matrix serves source, target and output. With `zero_start` the begin symbol's row is zero, and
    gets no gradient. Hard monotonic attention (`monotonic`) adds the encoder's state of the next word to the decoder's
    embeddings. Raises UsageError for a norm, residual, activation or positional encoding that is not registered.
    """

    def __init__(self, config: ModelSection, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        sizes = {"source": source_vocab, "target": target_vocab, "output": target_vocab}
        if config.tie_embeddings:
            sizes = {"shared": source_vocab}
        self.embeddings = nn.ParameterDict({name: self._embedding(size) for name, size in sizes.items()})
        positions = load(POSITIONS, config.positions, "model.positions")
        self.source_positions: nn.Module = positions(config)
        self.target_positions: nn.Module = positions(config)
        self.dropout = nn.Dropout(config.dropout)  # of embeddings and positions
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        final = load(RESIDUALS, config.residual, "model.residual").final_norm
        self.encoder_norm = build_norm(config) if final else nn.Identity()
        self.decoder_norm = build_norm(config) if final else nn.Identity()
        self.next_word = NextWord(source_vocab, target_vocab) if config.monotonic_attention else None
        self.output_bias = self._output_bias(target_vocab) if config.output_bias else None
        self.output_projection: nn.Module | None = None  # replaces `output_weight` in a converted model (`precision`)

    def _embedding(self, size: int) -> nn.Parameter:
        weight = torch.empty(size, self.config.d_model)
        if (
            not weight.is_meta
        ):  # a meta tensor has no values; torch.randn on meta would load torch's compiler, which takes a second
            weight = torch.randn(size, self.config.d_model) * self.config.d_model**-0.5
            if self.config.zero_start:
                weight[BOS] = 0
        return nn.Parameter(weight)

    def _output_bias(self, size: int) -> nn.Parameter:
        bias = torch.zeros(size)
        if not bias.is_meta:
            bias[list(ABSENT)] = NO_PROBABILITY
        return nn.Parameter(bias)

    def embedding(self, use: str) -> Embedding:
        """Return what `embeddings` holds for "source", "target" or "output". Tied embeddings have one entry for all."""
        return self.embeddings["shared" if self.config.tie_embeddings else use]  # type: ignore[no-any-return]

    def matrix(self, use: str) -> Tensor:
        """Return the embedding matrix for "source", "target" or "output", (V, D), fp32.

        Of a model in int8 it is computed here.
        """
        embedding = self.embedding(use)
        return embedding.matrix() if isinstance(embedding, Int8Embedding) else embedding

    @property
    def output_weight(self) -> Tensor:
        """The weight of the output projection, (V, D)."""
        return self.matrix("output")

    @property
    def target_vocab(self) -> int:
        """The size of the target vocabulary, V."""
        return _values(self.embedding("target")).size(0)

    @property
    def device(self) -> torch.device:
        """The device of the embeddings. All other parameters are on the same device."""
        return _values(self.embedding("target")).device

    def embed(self, ids: Tensor, use: str, positions: Tensor) -> Tensor:
        """Return Dropout(embedding * sqrt(d_model) + positions), (…, D), for a side's ids (…,) and positions (…, D)."""
        return self.dropout(self.without_dropout(ids, use, positions))  # type: ignore[no-any-return]

    def without_dropout(self, ids: Tensor, use: str, positions: Tensor) -> Tensor:
        """Return the same as `embed` without its dropout."""
        embedding = self.embedding(use)
        unchanged = BOS if self.config.zero_start else None
        rows = embedding(ids) if isinstance(embedding, Int8Embedding) else F.embedding(ids, embedding, unchanged)
        return rows * math.sqrt(self.config.d_model) + positions

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """Encode src (B, S), ids, with src_mask from `attention_mask`. Return memory (B, S, D)."""
        x = self.embed(src, "source", self.source_positions(src.size(1)))
        return self._encoder_stack(x, src_mask, PADDED)

    def encode_packed(self, src: Tensor, source: Packing) -> Tensor:
        """Encode a packed batch: src (N,), ids. Return memory (N, D)."""
        x = self.embed(src, "source", self.source_positions.at(source.positions))  # type: ignore[operator]
        return self._encoder_stack(x, source.mask, source)

    def _encoder_stack(self, x: Tensor, mask: Tensor | None, layout: Layout) -> Tensor:
        for layer in self.encoder:
            x = layer(x, mask, layout)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def project_memory(self, memory: Tensor) -> list[KeysValues]:
        """Return the keys (B, H, S, K) and values (B, H, S, W) of memory (B, S, D) for each decoder layer."""
        return [layer.cross_attention.project(memory) for layer in self.decoder]  # type: ignore[operator, union-attr]

    def decode(
        self,
        tgt_in: Tensor,
        memory: Sequence[KeysValues],
        memory_mask: Tensor | None,
        caches: Sequence[Cache] | None = None,
        start: int = 0,
        read: Tensor | None = None,
    ) -> Tensor:
        """Decode tgt_in (B, T), ids.

        Return hidden (B, T, D). For hard monotonic attention, `read` (B, T, D) are the states from `read_next`.

        With `caches` (one per layer), tgt_in is (B, 1), the token at position `start`. The caches hold the keys and
        values of all earlier positions.
        """
        positions = self.target_positions(tgt_in.size(1), start)
        x = self.embed(tgt_in, "target", positions if read is None else positions + read)
        for index, layer in enumerate(self.decoder):
            x = layer(x, memory[index], memory_mask, caches[index] if caches is not None else None, start=start)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores before the softmax, (…, V), for hidden (…, D)."""
        if self.output_projection is not None:
            return self.output_projection(hidden).float()  # type: ignore[no-any-return]
        return F.linear(hidden, self.output_weight, self.output_bias)

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Encode src (B, S) with its mask, and decode tgt_in (B, T).

        Return hidden (B, T, D), the input of the loss or of `logits`.
        """
        memory = self.encode(src, src_mask)
        return self.decode(
            tgt_in, self.project_memory(memory), src_mask, read=self.read_next(src, src_mask, memory, tgt_in)
        )

    def read_next(self, src: Tensor, src_mask: Tensor | None, memory: Tensor, tgt_in: Tensor) -> Tensor | None:
        """Return the states (B, T, D) of memory (B, S, D) that hard monotonic attention reads; None without it."""
        if self.next_word is None:
            return None
        lengths = torch.full_like(src[:, 0], src.size(1)) if src_mask is None else src_mask[:, 0, 0].sum(-1)
        at = self.next_word.padded(src, lengths, tgt_in)
        return memory.gather(1, at[:, :, None].expand(-1, -1, memory.size(2)))

    def forward_packed(self, src: Tensor, source: Packing, tgt_in: Tensor, target: Packing) -> Tensor:
        """Run `forward` for a packed batch of src (N,) and tgt_in (N',), ids. Return hidden (N', D).

        Only the first `target.tokens` rows belong to tokens.
        """
        memory = self.encode_packed(src, source)
        positions = self.target_positions.at(target.positions)  # type: ignore[operator]
        if self.next_word is not None:
            positions = positions + memory.index_select(0, self.next_word.packed(src, source, tgt_in, target))
        x = self.embed(tgt_in, "target", positions)
        for layer in self.decoder:
            projected = layer.cross_attention.project(memory, source)  # type: ignore[operator, union-attr]
            x = layer(x, projected, source.mask, None, target, source)
        return self.decoder_norm(x)  # type: ignore[no-any-return]


def _values(embedding: Embedding) -> Tensor:
    """Return the stored numbers of an embedding, (V, D), fp32 or int8."""
    return embedding.weight if isinstance(embedding, Int8Embedding) else embedding


def count_parameters(model: Transformer) -> dict[str, int]:
    """Return the number of trained parameters by part, and in total; a shared matrix counts once."""
    return count_numbers((name, parameter.shape) for name, parameter in model.named_parameters())
