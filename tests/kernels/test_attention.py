"""Attention over packed rows against equation (1) written out, sentence by sentence: values, gradients and masks."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from engines import every_engine
from philox import factors
from small_models import needs_engine
from torch import Tensor

from nmt_cli.engine import library
from nmt_cli.errors import ModelError
from nmt_cli.kernels.cpu_training import attention as kernel
from nmt_cli.kernels.cpu_training.attention import AttentionForm, attention, rotation
from nmt_cli.kernels.cpu_training.calls import CDropout, Dropout, Rows, pointer
from nmt_cli.model.attention import attend, attention_weights
from nmt_cli.model.packing import Packing
from nmt_cli.model.positions import rotated

pytestmark = needs_engine
LONGEST = 70
TARGETS, SOURCES = Packing(torch.tensor([5, 1, 17, 33, 16, LONGEST])), Packing(torch.tensor([3, 20, 1, 40, 32, 9]))
PAIRS, POSITIONS = torch.arange(TARGETS.size, dtype=torch.int32) // 10, TARGETS.positions.int()
DROPOUT = Dropout(123, 45, 6, 0.3, Rows(PAIRS, POSITIONS))
NOTHING = CDropout(0, 0, 0, 1, None, None)
FORMS = {
    "self": AttentionForm(2, (32, 32)),
    "causal": AttentionForm(3, (5, 7), causal=True),
    "rotary": AttentionForm(2, (6, 20), causal=True, rotation=rotation(LONGEST, 6)),
    "rotary-wide": AttentionForm(1, (130, 64), rotation=rotation(LONGEST, 130)),
    "cross": AttentionForm(2, (64, 48)),
}


class Case(NamedTuple):
    """An attention, its inputs (query, bias, and memory with its bias), and a gradient of its result."""

    form: AttentionForm
    inputs: list[Tensor]
    direction: Tensor
    keys: Packing


def case(name: str, dtype: torch.dtype = torch.float32) -> Case:
    form, generator = FORMS[name], torch.Generator().manual_seed(1)
    keys, values = form.heads * form.sizes[0], form.heads * form.sizes[1]
    packing, shapes = TARGETS, [(TARGETS.size, 2 * keys + values), (2 * keys + values,)]
    if name == "cross":
        packing = SOURCES
        shapes = [(TARGETS.size, keys), (keys,), (packing.size, 3 * (keys + values)), (keys + values,)]
    *inputs, direction = (torch.randn(s, generator=generator).to(dtype) for s in (*shapes, (TARGETS.size, values)))
    return Case(form, inputs, direction, packing)


def middle(memory: Tensor) -> Tensor:
    """The memory: some columns of a wider tensor."""
    return memory.view(len(memory), 3, -1)[:, 1]


def engine(case: Case, inputs: list[Tensor], dropout: Dropout | None = None) -> Tensor:
    query, bias, *rest = inputs
    memory, memory_bias = (middle(rest[0]), rest[1]) if rest else (None, None)
    return attention(case.form, query, bias, memory, memory_bias, TARGETS, case.keys, dropout)


def plain(case: Case, inputs: list[Tensor], dropout: Dropout | None = None) -> Tensor:
    """Equation (1) by torch."""
    form, (query, bias, *rest) = case.form, inputs
    sizes = [form.heads * form.sizes[0], form.heads * form.sizes[1]]
    memory = [] if not rest else torch.split(middle(rest[0]) + rest[1], sizes, -1)
    parts = [query + bias, *memory] if rest else torch.split(query + bias, [sizes[0], *sizes], -1)
    out = query.new_zeros(case.direction.shape)
    for b in range(TARGETS.sentences):
        rows, *_ = slices = [slice(*packing.starts[b : b + 2].tolist()) for packing in (TARGETS, case.keys, case.keys)]
        heads = [
            x[part].view(-1, form.heads, x.size(1) // form.heads).transpose(0, 1)
            for x, part in zip(parts, slices, strict=True)
        ]
        if form.rotation is not None:
            heads[:2] = (rotated(x, torch.arange(x.size(1))) for x in heads[:2])
        q, k, v = (x[None] for x in heads)
        if dropout is None:
            mixed = attend(q, k, v, None, form.causal)
        else:
            each = range(0, 8192 * form.heads, 8192)
            of = dropout.seed, dropout.place, dropout.update, PAIRS[rows], POSITIONS[rows], k.size(2), dropout.rate
            kept = np.stack([factors(*of, first_block) for first_block in each])
            mixed = attention_weights(q, k, None, form.causal) * torch.from_numpy(kept) @ v
        out[rows] = mixed[0].transpose(0, 1).flatten(1)
    return out


def gradients(function: Any, case: Case, dtype: torch.dtype, dropout: Dropout | None = None) -> list[Tensor]:
    """The result and the gradients of the inputs."""
    inputs = [x.detach().to(dtype).requires_grad_() for x in case.inputs]
    out = function(case, inputs, dropout)
    return [out.detach(), *torch.autograd.grad(out, inputs, case.direction.to(dtype))]


def error(x: Tensor, exact: Tensor) -> float:
    return float((x.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("dropout", [None, DROPOUT], ids=["", "dropout"])
@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients_are_those_of_equation_1(name: str, dropout: Dropout | None) -> None:
    this = case(name)
    found, exact = gradients(engine, this, torch.float32, dropout), gradients(plain, this, torch.float64, dropout)
    assert max(map(error, found, exact)) < 2e-6
    assert not torch.cat([x[TARGETS.tokens :] for x in found[:2]], 1).any()


@pytest.mark.parametrize("name", FORMS)
def test_bf16_is_as_exact_as_torch(name: str) -> None:
    this, half = case(name, torch.bfloat16), torch.bfloat16
    exact = gradients(plain, this, torch.float64)
    for found, torchs, best in zip(gradients(engine, this, half), gradients(plain, this, half), exact, strict=True):
        assert error(found.to(half), best) <= 1.1 * error(torchs, best)


def test_no_biases_and_frozen_ones() -> None:
    this = case("cross")
    query, bias, memory, memory_bias = this.inputs
    rows = [query.requires_grad_(), memory.requires_grad_()]
    frozen = engine(this, [query, 0 * bias, memory, 0 * memory_bias])
    none = attention(this.form, query, None, middle(memory), None, TARGETS, SOURCES)
    grads = [torch.autograd.grad(out, rows, this.direction) for out in (frozen, none)]
    assert all(map(torch.equal, (frozen, *grads[0]), (none, *grads[1])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["rotary", "cross"])
def test_bits_depend_on_neither_threads_nor_processor(name: str, dtype: torch.dtype) -> None:
    this = case(name, dtype)
    first, *others = [gradients(engine, this, dtype, DROPOUT) for _ in every_engine(kernel)]
    assert all(torch.equal(*pair) for other in others for pair in zip(first, other, strict=True))


REFUSED: dict[str, dict[str, Any]] = {
    "rows have the dtype 7": {"dtype": 7},
    "the number of heads 0, expected 1 to 65536": {"heads": 0},
    "the key size 513": {"key": 513},
    "rows are less than its heads apart": {"q_stride": 5},
    "less than its heads apart": {"grad_stride": 5},
    "the number of rows is 4294967297": {"rows": 2**32 + 1},
    "needs starts": {"starts": None},
    "needs out": {"out": None},
    "or end after the last row": {"rows": 100},
    "sentence 0 has 5 queries and 3 keys": {"causal": 1},
    "40 positions, expected up to 30": {"rotation": torch.zeros(30, 32, 2).data_ptr(), "positions": 30},
    "dropout has no pairs or no positions of rows": {"dropout": pointer(NOTHING)},
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    this = case("cross")
    query, bias, memory, memory_bias = this.inputs
    inputs = query, bias, middle(memory), memory_bias
    call = kernel._call(inputs, torch.empty(TARGETS.size, 2), this.form, TARGETS, SOURCES, None, this.direction)
    for name, value in REFUSED[message].items():
        setattr(call, name, value)
    with pytest.raises(ModelError, match=message):
        library.library().nmt_attention_forward(pointer(call))
