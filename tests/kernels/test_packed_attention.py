"""Attention over packed sentences against the modules that it replaces. FlashAttention's own part needs a GPU: elsewhere,
each sentence is computed by itself in plain torch, so these tests hold the layout, and the last one FlashAttention."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from small_models import VOCABULARY, packed_gradients
from torch import Tensor, nn

from nmt_cli.data.batches import collate
from nmt_cli.kernels import choice
from nmt_cli.kernels.chunked_loss import chunked_loss
from nmt_cli.kernels.gpu_training.attention import (
    PackedCrossAttention,
    PackedSelfAttention,
    attend_packed,
    supports,
    works,
)
from nmt_cli.model.attention import CrossAttention, SelfAttention, attend_plain
from nmt_cli.model.packing import Packing
from nmt_cli.model.precision import replace_modules
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection
from nmt_cli.training.gradients import FlatGradients
from nmt_cli.training.loader import PackedBatch
from nmt_cli.training.parameters import Weights
from nmt_cli.training.update import LossModel

CUDA = torch.device("cuda:0")
CONFIG = ModelSection(
    encoder_layers=2, decoder_layers=2, d_model=32, d_ff=48, num_heads=4, dropout=0.0, residual="pre", max_positions=16
)


def attend_each(query: Tensor, key: Tensor, value: Tensor, queries: Packing, keys: Packing, causal: bool) -> Tensor:
    """The same as `attend_packed`, one sentence after another in plain torch."""
    results = []
    for (q_start, q_end), (k_start, k_end) in zip(
        pairwise(queries.starts.tolist()), pairwise(keys.starts.tolist()), strict=True
    ):
        q, k, v = (x.transpose(0, 1)[None] for x in (query[q_start:q_end], key[k_start:k_end], value[k_start:k_end]))
        results.append(attend_plain(q, k, v, None, causal)[0].transpose(0, 1))
    return torch.cat(results)


def packed(module: nn.Module, name: str) -> nn.Module | None:
    if isinstance(module, SelfAttention):
        return PackedSelfAttention(module, attend_each)
    return PackedCrossAttention(module, attend_each) if isinstance(module, CrossAttention) else None


def test_values_and_gradients_are_those_of_the_plain_modules() -> None:
    plain = Transformer(CONFIG, VOCABULARY, VOCABULARY)
    kernel = replace_modules(plain, packed)
    assert [*map(id, kernel.parameters())] == [*map(id, plain.parameters())]
    (ours, our_gradients), (theirs, their_gradients) = packed_gradients(kernel), packed_gradients(plain)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
    for own, other in zip(our_gradients, their_gradients, strict=True):
        torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-4)


def test_spare_rows_change_nothing_and_a_padded_batch_goes_to_the_plain_modules() -> None:
    kernel = replace_modules(Transformer(CONFIG, VOCABULARY, VOCABULARY), packed)
    (ours, _), (theirs, _) = packed_gradients(kernel), packed_gradients(kernel, spare=7)
    assert torch.equal(ours, theirs)
    plain = Transformer(CONFIG, VOCABULARY, VOCABULARY)
    src, tgt = torch.randint(4, VOCABULARY, (3, 6)), torch.randint(4, VOCABULARY, (3, 5))
    torch.testing.assert_close(replace_modules(plain, packed)(src, None, tgt), plain(src, None, tgt))


def test_it_declines_what_flash_attention_does_not_compute() -> None:
    class Windowed(SelfAttention):
        pass

    assert supports(SelfAttention(CONFIG)) == "attention in float32 on a GPU has no kernel"
    assert supports(Windowed(CONFIG).bfloat16()) == "attention 'Windowed' has no kernel"
    for kind, sizes, said in (
        (SelfAttention, {"d_v": 16}, "attention with d_k other than d_v has no kernel"),
        (SelfAttention, {"attention_dropout": 0.1}, "dropout on attention weights has no kernel"),
        (SelfAttention, {"d_k": 4, "d_v": 4}, "d_k = 4 "),
        (CrossAttention, {"d_k": 264, "d_v": 264}, "d_k = 264 "),
        (CrossAttention, {}, "this torch has no variable-length attention"),  # on a CPU
    ):
        assert said in supports(kind(CONFIG.model_copy(update=sizes)).bfloat16())


@pytest.mark.parametrize(
    ("changes", "alone"),
    [
        ({}, True),
        ({"decoder": "ssru"}, True),
        ({"attention_dropout": 0.1}, False),
        ({"monotonic_attention": True}, True),
    ],
)
def test_an_update_is_one_pass_where_nothing_pads_and_reads_no_number_back(
    changes: dict[str, Any], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On torch's meta device, whose tensors have no numbers: whatever waited for one would fail."""
    monkeypatch.setattr("nmt_cli.kernels.gpu_training.attention.works", lambda *_: True)
    form = CONFIG.model_copy(update={**changes, "dropout": 0.1})
    weights = Weights(Transformer(form, VOCABULARY, VOCABULARY).to("meta").train(), torch.bfloat16)
    kernels = choice._on_gpu(weights.compute_model)
    assert kernels.pads_nothing is alone
    weights.compute_model = kernels.model
    gradients = FlatGradients(weights, LossModel(kernels.model, 0.1))
    monkeypatch.setattr("nmt_cli.training.update.loss_function", lambda _: chunked_loss)
    rows = PackedBatch.of(collate([(np.full(size, 7), np.full(size + 2, 7)) for size in (3, 9, 1)]))
    with gradients.accumulating(first=True, last=True):
        loss, _ = gradients.losses(rows.with_tensors([tensor.to("meta") for tensor in rows.tensors]))
        loss.backward()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_flash_attention_works_on_this_gpu() -> None:
    assert works(CUDA, torch.bfloat16)
    assert supports(SelfAttention(CONFIG).to(CUDA, torch.bfloat16)) == ""
    packing = Packing(torch.tensor([5, 3])).to("cuda:0")
    inputs = [torch.randn(packing.size, 2, 16, device=CUDA) for _ in range(4)]
    real = packing.tokens
    for causal in (False, True):
        results = []
        for function, kind in ((attend_packed, torch.bfloat16), (attend_each, torch.float32)):
            query, key, value = parts = [x.detach().to(kind).requires_grad_() for x in inputs[:3]]
            out = function(query, key, value, packing, packing, causal)
            results.append([out, *torch.autograd.grad((out.float() * inputs[3])[:real].sum(), parts)])
        for fast, plain in zip(*results, strict=True):
            assert (fast.float() - plain)[:real].norm() <= 0.03 * plain[:real].norm()
