"""The forward pass of a packed batch by the engine's operations, for training on a CPU.

    embeddings ──residual──▶ x ──▶ around each sub-layer:
        post-norm   y = sublayer(x)   x = Norm(x + Dropout(y + bias))                              one operation
        pre-norm    y = sublayer(h)   x = x + Dropout(y + bias), h = the next sub-layer's Norm(x)   one operation

    sub-layer          product ──▶ attention, or activation with dropout ──▶ product; its bias is left to the residual

Products are torch's. An operation adds the bias of the product before it, applies dropout by counter, and stores rows
in the weights' dtype; its backward pass has the bias's gradient. Keys and values of all decoder layers are one product.
A norm, an activation or a residual that no operation knows stays plain torch, and so does an SSRU's recurrence.

`Transformer.forward_packed` is the reference.

    N, N' source and target rows   D d_model
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...model.attention import CrossAttention, SelfAttention
from ...model.layers import FeedForward
from ...model.packing import Packing
from ...model.residuals import PostNorm, PreNorm
from ...model.ssru import SSRU
from ...model.transformer import Transformer
from .activation import activation, kind_of
from .attention import AttentionForm, attention, rotation
from .calls import Counter, Dropout, Rows, use_threads
from .residual import residual, supports

Product = tuple[Tensor, Tensor | None]
"""Rows (N, D), and the bias (D,) that is not in them yet."""
Sublayer = Callable[[Tensor], Product]


class FusedTransformer(Transformer):
    """A model for training with the settings and the parameters of `plain`."""

    def __init__(self, plain: Transformer, counter: Counter) -> None:
        nn.Module.__init__(self)
        vars(self).update(vars(plain))
        self.counter = counter
        config = plain.config
        rotates = any(layer.self_attention.rotates for layer in plain.encoder)  # type: ignore[union-attr]
        self._rotation = rotation(config.max_positions, config.key_size) if rotates else None

    def forward_packed(self, src: Tensor, source: Packing, tgt_in: Tensor, target: Packing) -> Tensor:
        """Return the same as `Transformer.forward_packed`, (N', D)."""
        use_threads(torch.get_num_threads())
        self.counter.place = 0
        rows = rows_of(source)
        x = self._embed(src, "source", self.source_positions.at(source.positions), rows)  # type: ignore[operator]
        memory = self._stack(x, list(self._encoder_sublayers(source, rows)), self.encoder_norm, rows)
        rows = rows_of(target)
        positions = self.target_positions.at(target.positions)  # type: ignore[operator]
        if self.next_word is not None:
            positions = positions + memory.index_select(0, self.next_word.packed(src, source, tgt_in, target))
        x = self._embed(tgt_in, "target", positions, rows)
        sublayers = list(self._decoder_sublayers(memory, source, target, rows))
        return self._stack(x, sublayers, self.decoder_norm, rows)

    def _dropout(self, rate: float, rows: Rows) -> Dropout | None:
        """Return the pass's next dropout."""
        return self.counter.dropout(rate if self.training else 0.0, rows)

    def _embed(self, ids: Tensor, use: str, positions: Tensor, rows: Rows) -> Tensor:
        """Return the same as `embed`, (N, D)."""
        x = self.without_dropout(ids, use, positions)
        return residual(None, x, None, None, self._dropout(self.config.dropout, rows))[0]

    def _encoder_sublayers(self, source: Packing, rows: Rows) -> Iterator[tuple[Any, Sublayer]]:
        """Yield the residual and the function of each sub-layer of the encoder."""
        layers: list[Any] = list(self.encoder)
        for layer in layers:
            yield layer.around_self_attention, self._self_attention(layer.self_attention, source, rows, False)
            yield layer.around_feed_forward, self._feed_forward(layer.feed_forward, rows)

    def _decoder_sublayers(
        self, memory: Tensor, source: Packing, target: Packing, rows: Rows
    ) -> Iterator[tuple[Any, Sublayer]]:
        """Yield the residual and the function of each sub-layer of the decoder."""
        layers: list[Any] = list(self.decoder)
        weights = [layer.cross_attention.key_value.weight for layer in layers]
        projected = F.linear(memory, torch.cat(weights)).chunk(len(layers), 1)
        for layer, keys_values in zip(layers, projected, strict=True):
            unit = getattr(layer, "ssru", None)
            own = _ssru(unit, target) if unit else self._self_attention(layer.self_attention, target, rows, True)
            yield layer.around_self_attention, own
            yield (
                layer.around_cross_attention,
                self._cross_attention(layer.cross_attention, keys_values, source, target, rows),
            )
            yield layer.around_feed_forward, self._feed_forward(layer.feed_forward, rows)

    def _stack(self, x: Tensor, sublayers: Sequence[tuple[Any, Sublayer]], final: nn.Module, rows: Rows) -> Tensor:
        """Return x (N, D) after the sub-layers of an encoder or a decoder, and after its final norm."""
        first = sublayers[0][0]
        if type(first) is PreNorm:
            norms = [around.norm for around, _ in sublayers[1:]] + [final]
            h = self._add(None, x, None, first.norm, 0.0, rows)[1]
            for (around, sublayer), norm in zip(sublayers, norms, strict=True):
                x, h = self._add(x, *sublayer(h), norm, around.add.dropout.p, rows)
            return h
        for around, sublayer in sublayers:
            if type(around) is PostNorm:
                x = self._add(x, *sublayer(x), around.norm, around.add.dropout.p, rows)[1]
            else:
                x = around(x, _with_bias(sublayer))
        return final(x)  # type: ignore[no-any-return]

    def _add(
        self, x: Tensor | None, y: Tensor, bias: Tensor | None, norm: nn.Module, rate: float, rows: Rows
    ) -> tuple[Tensor, Tensor]:
        """Return x + Dropout(y + bias) and its norm, (N, D) each. Without x, y is the sum."""
        dropout = self._dropout(rate, rows)
        x, given = (x, y) if x is not None else (y, None)
        if supports(norm):
            return residual(x, given, bias, norm, dropout)
        if given is not None:
            x = residual(x, given, bias, None, dropout)[0]
        return x, norm(x)

    def _self_attention(self, module: SelfAttention, packing: Packing, rows: Rows, causal: bool) -> Sublayer:
        form = self._form(causal, self._rotation)

        def sublayer(x: Tensor) -> Product:
            together = F.linear(x, module.query_key_value.weight)
            dropout = self._dropout(module.dropout, rows)
            mixed = attention(form, together, module.query_key_value.bias, None, None, packing, packing, dropout)
            return F.linear(mixed, module.output.weight), module.output.bias

        return sublayer

    def _cross_attention(
        self, module: CrossAttention, keys_values: Tensor, source: Packing, target: Packing, rows: Rows
    ) -> Sublayer:
        form = self._form(False, None)

        def sublayer(x: Tensor) -> Product:
            query, dropout = F.linear(x, module.query.weight), self._dropout(module.dropout, rows)
            biases = module.query.bias, module.key_value.bias
            mixed = attention(form, query, biases[0], keys_values, biases[1], target, source, dropout)
            return F.linear(mixed, module.output.weight), module.output.bias

        return sublayer

    def _form(self, causal: bool, rotation: Tensor | None) -> AttentionForm:
        config = self.config
        return AttentionForm(config.num_heads, (config.key_size, config.value_size), causal, rotation)

    def _feed_forward(self, module: FeedForward, rows: Rows) -> Sublayer:
        kind, rate = kind_of(module.activation), getattr(module.dropout, "p", 0.0)

        def sublayer(x: Tensor) -> Product:
            inner = F.linear(x, module.inner.weight)
            dropout = self._dropout(rate, rows)
            if kind:
                inner = activation(kind, inner, module.inner.bias, dropout)
            else:
                inner = residual(None, module.activation(inner + module.inner.bias), None, None, dropout)[0]
            return F.linear(inner, module.outer.weight), module.outer.bias

        return sublayer


def plain_parts(model: Transformer) -> list[str]:
    """Return which parts of a model no operation knows, in words."""
    layer: Any = model.decoder[0]
    activation = layer.feed_forward.activation
    around = layer.around_feed_forward
    norm = getattr(around, "norm", None)
    reasons = {
        "residual": around if type(around) not in (PostNorm, PreNorm) else None,
        "norm": norm if norm and not supports(norm) else None,
        "activation": activation if not kind_of(activation) else None,
        "decoder": getattr(layer, "ssru", None),
    }
    return [f"{part} {type(module).__name__!r} has no kernel" for part, module in reasons.items() if module]


def rows_of(packing: Packing) -> Rows:
    """Return the pair and the position of each row of a packing."""
    pairs = packing.slots // packing.longest
    return Rows((pairs if packing.numbers is None else packing.numbers[pairs]).int(), packing.positions.int())


def _ssru(unit: SSRU, target: Packing) -> Sublayer:
    return lambda x: (unit(x, None, target), None)


def _with_bias(sublayer: Sublayer) -> Callable[[Tensor], Tensor]:
    """Return the sub-layer as a residual of another package calls it."""

    def whole(x: Tensor) -> Tensor:
        y, bias = sublayer(x)
        return y if bias is None else y + bias

    return whole
