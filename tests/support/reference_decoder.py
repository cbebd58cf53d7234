"""The reference decoder for search, and KINDS: the decoders that must compute the same.

The reference has no caches: each step decodes every hypothesis from its beginning.

    B sentences   W beam   N open hypotheses   S source length   T tokens generated   D d_model   V vocabulary
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest
import torch
from small_models import needs_engine
from torch import Tensor, nn

from nmt_cli.engine.model import EngineModel
from nmt_cli.model.folder import weights_of
from nmt_cli.model.precision import Int8Linear, in_int8
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.engine import EngineDecoder
from nmt_cli.search.torch_arrays import TorchArrays
from nmt_cli.translation.cached_decoder import CachedDecoder
from nmt_cli.translation.models import engine_model

PAD = 0
"""The id that pads rows. Padding is masked, so the meaning of the id does not matter."""


class ReferenceDecoder:
    """A `Decoder` without caches. `sources` are the ids of B sentences, end symbols included."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]], beam: int) -> None:
        device, size = model.device, max(len(source) for source in sources)
        src = torch.tensor([[*source, *[PAD] * (size - len(source))] for source in sources], device=device)
        lengths = torch.tensor([len(source) for source in sources], device=device)
        mask = (torch.arange(size, device=device) < lengths[:, None])[:, None, None, :]
        memory = model.encode(src, mask).repeat_interleave(beam, 0)  # (B * W, S, D)
        self.model, self.beam, self.arrays = model, beam, TorchArrays(device)
        self.memory, self.mask = model.project_memory(memory), mask.repeat_interleave(beam, 0)
        self.src, self.states = src.repeat_interleave(beam, 0), memory
        self.tokens = src.new_empty(src.size(0), beam, 0)  # (B, W, T)

    @torch.no_grad()
    def step(self, tokens: Tensor, rows: np.ndarray) -> Tensor:
        """See `Decoder`."""
        self.tokens = torch.cat([self.tokens, tokens[:, :, None]], dim=2)
        tokens = self.tokens.flatten(0, 1)
        read = self.model.read_next(self.src, self.mask, self.states, tokens)
        hidden = self.model.decode(tokens, self.memory, self.mask, read=read)  # (B * W, T, D)
        return self.model.logits(hidden[rows, -1])

    def reorder(self, parents: Tensor) -> None:
        """See `Decoder`."""
        self.tokens = self.tokens.gather(1, parents[:, :, None].expand_as(self.tokens))

    def keep(self, sentences: np.ndarray) -> None:
        """See `Decoder`."""
        rows = (sentences[:, None] * self.beam + np.arange(self.beam)).flatten()
        self.tokens, self.mask = self.tokens[sentences], self.mask[rows]
        self.src, self.states = self.src[rows], self.states[rows]
        self.memory = [(keys[rows], values[rows]) for keys, values in self.memory]


def of_engine(model: Transformer, sources: Sequence[Sequence[int]], beam: int) -> EngineDecoder:
    """Return a decoder of the engine that holds these sentences, end symbols included."""
    decoder = EngineDecoder(_stored_in_int8(model) if in_int8(model) else engine_model(model, "fp32"), beam)
    if sources:
        decoder.add(sources)
    return decoder


def _stored_in_int8(model: Transformer) -> EngineModel:
    """Return the engine's model of one in int8: the arrays that its folder would have."""
    maps: dict[str, nn.Module] = {key: one for key, one in model.named_modules() if isinstance(one, Int8Linear)}
    output = maps.pop("output_projection")
    tables: dict[str, nn.Module] = {f"embeddings.{key}": table for key, table in model.embeddings.items()}
    if not model.config.tie_embeddings:
        tables["embeddings.output"] = output
    arrays = weights_of(model)
    for name, module in [*maps.items(), *tables.items()]:
        arrays[name if name in tables else f"{name}.weight"] = cast(Tensor, module.weight)
        arrays[f"{name}.scales"] = cast(Tensor, module.scales)
        if name in maps and module.bias is not None:
            arrays[f"{name}.bias"] = cast(Tensor, module.bias)
    sizes = model.matrix("source").size(0), model.target_vocab
    return EngineModel(model.config, sizes, {name: tensor.numpy() for name, tensor in arrays.items()}, "int8")


KINDS = [CachedDecoder, pytest.param(of_engine, marks=needs_engine)]
"""They take a model in fp32 or int8, sources and a beam."""
