"""Residual sums with dropout and their norms in the engine: gradients beside torch's, masks beside NumPy's, same bits."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from engine_libraries import RUNNING
from philox import factors, philox
from small_models import needs_engine
from torch import Tensor, nn

from nmt_cli.engine import library as engine
from nmt_cli.errors import ModelError
from nmt_cli.kernels.cpu_training import calls, residual

pytestmark = needs_engine

FORMS = {
    "post-norm": ("x y bias out", nn.LayerNorm, 0.1),
    "root mean square": ("x y bias out", nn.RMSNorm, 0.3),
    "both results": ("x y bias sum out", nn.LayerNorm, 0.1),
    "both results without dropout": ("x y bias sum out", nn.RMSNorm, 0.0),
    "sum alone is used": ("x y bias sum", nn.LayerNorm, 0.1),
    "add": ("x y bias sum", None, 0.1),
    "add without dropout": ("x y bias sum", None, 0.0),
    "dropout": ("y sum", None, 0.5),
    "norm of dropout": ("y bias out", nn.LayerNorm, 0.5),
    "norm": ("x out", nn.LayerNorm, 0.0),
    "norm and its input": ("x sum out", nn.RMSNorm, 0.0),
}
RESULTS = {"sum": None, "out": None}


def tensors(form: str, rows: int, size: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Random inputs, parameters of the norm, and gradients of the results that are used, named sum and out."""
    torch.manual_seed(1)
    parts, norm, _ = FORMS[form]
    names = [*parts.split(), *(("weight", "shift") if norm is nn.LayerNorm else ("weight",) if norm else ())]
    shapes = {**dict.fromkeys(names, (size,)), **dict.fromkeys(("x", "y", *RESULTS), (rows, size))}
    return {name: (torch.randn(shapes[name]) + 0.3).to(dtype) for name in names}


def results(form: str, given: dict[str, Tensor], function: Any, frozen: str = "") -> dict[str, Tensor]:
    """What a function such as `residual` returns, and the gradients."""
    _, norm, rate = FORMS[form]
    inputs = {name: nn.Parameter(given[name].clone(), name != frozen) for name in given if name not in RESULTS}
    rows, size = next(iter(inputs.values())).shape
    module = norm(size, eps=1e-5) if norm else None
    for name in inputs.keys() & {"weight", "shift"}:
        setattr(module, "bias" if name == "shift" else name, inputs[name])
    numbers = torch.arange(rows, dtype=torch.int32)
    dropout = calls.Dropout(2**40 + 5, 3, 2, rate, calls.Rows(numbers // 7, numbers % 7)) if rate else None
    found = dict(zip(RESULTS, function(*map(inputs.get, ("x", "y", "bias")), module, dropout), strict=True))
    sum((found[name] * given[name]).sum() for name in RESULTS if name in given).backward()
    grads = {f"grad of {name}": part.grad for name, part in inputs.items() if part.grad is not None}
    return {name: part.detach() for name, part in {**found, **grads}.items()}


def plain(x: Any, y: Any, bias: Any, norm: Any, dropout: calls.Dropout | None) -> tuple[Tensor, Tensor]:
    total = y if bias is None else y + bias
    if dropout:
        place = dropout.seed, dropout.place, dropout.update, dropout.rows.pairs, dropout.rows.positions
        total = total * torch.from_numpy(factors(*place, y.size(1), dropout.rate)).to(y.dtype)
    total = x if total is None else total if x is None else x + total
    return total, norm(total) if norm else total


@pytest.mark.parametrize("dtype", calls.DTYPES)
@pytest.mark.parametrize("size", [5, 100, 128, 300])
@pytest.mark.parametrize("form", FORMS)
def test_results_and_gradients_are_as_exact_as_those_of_torch(form: str, size: int, dtype: torch.dtype) -> None:
    given = tensors(form, 200, size, dtype)
    found, other = results(form, given, residual.residual), results(form, given, plain)
    exact = results(form, {name: part.double() for name, part in given.items()}, plain)
    assert {name: part.dtype for name, part in found.items()} == dict.fromkeys(exact, dtype)
    for name, best in exact.items():
        far, usual = (float((each[name].double() - best).norm() / best.norm()) for each in (found, other))
        assert far <= (1e-5 if dtype == torch.float32 else 1.1 * usual), name


@pytest.mark.parametrize("form", ["both results", "both results without dropout", "add", "add without dropout"])
def test_frozen_inputs_get_no_gradients(form: str) -> None:
    given = tensors(form, 70, 100)
    for frozen in given.keys() - RESULTS:
        expected, found = (results(form, given, residual.residual, name) for name in ("", frozen))
        expected.pop(f"grad of {frozen}", None)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_rows_need_not_be_contiguous_nor_parameters_of_their_dtype() -> None:
    x, y, norm = torch.randn(9, 40)[:, ::2].requires_grad_(), torch.randn(20, 9).bfloat16().T, nn.LayerNorm(20)
    total, out = residual.residual(x, y, y[0], norm.bfloat16(), None)
    torch.testing.assert_close((total, out), plain(x, y.float(), y[0].float(), norm.float(), None))
    out.sum().backward()  # type: ignore[no-untyped-call]  # an expanded gradient
    assert float(torch.as_tensor(x.grad).abs().max()) < 1e-5


def test_masks_are_those_of_the_published_philox() -> None:
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox([2**32 - 1] * 4, [2**32 - 1] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pairs, positions = (torch.tensor(numbers, dtype=torch.int32) for numbers in ((0, 5, 2**31 - 1, -1), (0, 9, -1, 3)))
    numbers = (0, 2**32 + 7), (1, 2**31), (1, 70), (0.1, 0.5, 1 - 1e-9), (1, 127, 128, 1000)
    for seed, update, place, rate, size in itertools.product(*numbers):
        dropout = calls.Dropout(seed, update, place, rate, calls.Rows(pairs, positions))
        mask = residual.residual(None, torch.ones(4, size), None, None, dropout)[0]
        np.testing.assert_array_equal(mask, np.float32(factors(seed, place, update, pairs, positions, size, rate)))


def test_bits_are_the_same_with_every_library_and_number_of_threads(monkeypatch: Any) -> None:
    kinds = (100, torch.bfloat16), (300, torch.float32)
    cases = [(form, tensors(form, 200, *kind)) for form in FORMS for kind in kinds]
    expected: list[Tensor] = []
    for name, threads in [(RUNNING[0], 1), (RUNNING[0], 2), *((name, 3) for name in RUNNING)]:
        loaded = engine._loaded(engine.path_of(name))[0]
        for module in (residual, calls):
            monkeypatch.setattr(module, "library", lambda loaded=loaded: loaded)
        calls.use_threads(threads)
        found = [part for case in cases for part in results(*case, residual.residual).values()]
        assert all(map(torch.equal, found, expected or found)), f"{name} with {threads} threads"
        expected = found


def test_wrong_forms_are_refused() -> None:
    whole = dict.fromkeys(("y", "bias", "weight", "shift", "sum", "out", "moments"), 64)  # addresses that nobody reads
    wrong = [("dtype", 2, "dtype 2"), ("rows", -1, "rows is -1"), ("size", 0, "0 numbers"), ("epsilon", 2, "is 2")]
    for name, value, message in [*wrong, *((each, None, f"no {each}") for each in ("y", "weight", "sum", "out"))]:
        form = residual.CResidual(**{"rows": 1, "size": 1, **whole, name: value})
        with pytest.raises(ModelError, match=message):
            engine.library().nmt_residual_forward(calls.pointer(form))


@pytest.mark.parametrize("norm", [nn.LayerNorm((2, 4)), nn.LayerNorm(4, bias=False), nn.RMSNorm(4), nn.Identity()])
def test_norms_that_have_no_kernel_are_declined(norm: nn.Module) -> None:
    assert [residual.supports(each) for each in (nn.LayerNorm(4), nn.RMSNorm(4, 1e-6), norm)] == [True, True, False]
