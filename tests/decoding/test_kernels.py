"""The compiled passes against torch's operators, one by one; and what happens where there are none."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nmt_cli.decoding import kernels as module
from nmt_cli.decoding import native
from nmt_cli.decoding.continuations import best_continuations
from nmt_cli.decoding.fast import FastStepper
from nmt_cli.decoding.kernels import KINDS, kernels
from nmt_cli.decoding.native import Layers, NativeStepper
from nmt_cli.decoding.precision import in_steps_plain, prepared
from nmt_cli.decoding.search import SearchOptions
from nmt_cli.decoding.workers import Batch, Worker
from nmt_cli.model.attention import attend_plain
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection

needed = pytest.mark.skipif(kernels() is None, reason="there is no C++ compiler here")


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(ours: Tensor, theirs: Tensor, step: float) -> None:
    """`theirs` is fp32; in bf16 and int8 a last step may fall to the other side."""
    if ours.dtype == torch.int8:
        assert (ours.int() - in_steps_plain(theirs, step).int()).abs().max() <= 1
    else:
        torch.testing.assert_close(ours.float(), theirs, atol=2e-6 if ours.dtype == torch.float32 else 0.01, rtol=1e-6 if ours.dtype == torch.float32 else 0.01)


@needed
@pytest.mark.parametrize("size", [1, 24, 64, 100, 512])
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("given", [None, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("post", [False, True])
def test_norm(size: int, kind: torch.dtype, given: torch.dtype | None, post: bool) -> None:
    x, weight, bias, step = 3 * drawn(7, size), drawn(size, seed=2), drawn(size, seed=3), 0.02
    before, add = x.clone(), drawn(7, size, seed=4).to(given) if given else None
    out = torch.empty(7, size, dtype=kind)
    module.kernels().nmt_norm(  # type: ignore[union-attr]
        7, size, x.data_ptr(), add.data_ptr() if add is not None else None, KINDS[given] if given else 0, weight.data_ptr(), bias.data_ptr(), 1e-5, post, out.data_ptr(), KINDS[kind], step,
    )  # fmt: skip
    total = before + add.float() if add is not None else before
    normed = F.layer_norm(total, (size,), weight, bias)
    same(out, normed, step)
    torch.testing.assert_close(x, normed if post else total, atol=2e-6, rtol=1e-6)


@needed
@pytest.mark.parametrize("kind", list(KINDS))
def test_without_a_norm_rows_are_converted(kind: torch.dtype) -> None:
    x, out = 3 * drawn(5, 40), torch.empty(5, 40, dtype=kind)
    module.kernels().nmt_norm(5, 40, x.data_ptr(), None, 0, None, None, 0.0, 1, out.data_ptr(), KINDS[kind], 0.02)  # type: ignore[union-attr]
    assert torch.equal(out, in_steps_plain(x, 0.02) if kind == torch.int8 else x.to(kind))
    assert kind != torch.int8 or out.min() == -128 or out.max() == 127  # some lie beyond the steps


@needed
@pytest.mark.parametrize(("key", "value"), [(64, 64), (32, 32), (128, 128), (8, 24), (5, 5)])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", list(KINDS))
def test_attention_over_ranges(key: int, value: int, given: torch.dtype, kind: torch.dtype) -> None:
    """Each row over the rows of its own sentence, of 1 to 40; a row of no sentence gets zeros."""
    lengths, heads, step = [1, 2, 40, 17, 5], 3, 0.02
    tokens, width = sum(lengths), heads * (2 * key + value)
    rows = drawn(tokens + 1, width).to(given)
    first = torch.tensor([sum(lengths[:i]) for i, n in enumerate(lengths) for _ in range(n)] + [0])
    count = torch.tensor([n for n in lengths for _ in range(n)] + [0])
    out, size = torch.full((tokens + 1, heads * value), 9.0).to(kind), rows.element_size()
    module.kernels().nmt_attend_range(  # type: ignore[union-attr]
        tokens + 1, heads, key, value, key**-0.5, rows.data_ptr(), rows.data_ptr() + heads * key * size, rows.data_ptr() + 2 * heads * key * size, KINDS[given], width, width,
        first.data_ptr(), count.data_ptr(), out.data_ptr(), KINDS[kind], step,
    )  # fmt: skip
    parts = [part.view(tokens + 1, heads, -1).transpose(0, 1)[None] for part in rows.float().split([heads * key, heads * key, heads * value], 1)]
    begin = 0
    for n in lengths:
        q, k, v = (part[:, :, begin : begin + n] for part in parts)
        same(out[begin : begin + n], attend_plain(q, k, v)[0].transpose(0, 1).flatten(1), step)
        begin += n
    assert not out[tokens].float().any()


def continuations(
    kind: object, logits: Tensor, so_far: Tensor, rows: Tensor, count: int, only: Tensor | None = None, banned: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Finite ones alone."""
    values, flat = kind(logits.clone(), so_far, rows, count, (0, 1, 2) if banned is None else (0, 1, 2, 3, 5, 6), only, banned)  # type: ignore[operator]
    size = min(count, values.size(1))
    return values[:, :size], flat[:, :size].masked_fill(values[:, :size].isneginf(), 0)


@needed
@pytest.mark.parametrize("size", [7, 64, 100, 1000])
@pytest.mark.parametrize(("beam", "count"), [(1, 1), (4, 8), (5, 10)])
@pytest.mark.parametrize("ties", [False, True])
def test_best_continuations(size: int, beam: int, count: int, ties: bool) -> None:
    """Open hypotheses here and there, one token alone for some, more banned for some, equals among them: values to 1e-5, the same tokens."""
    batch = 6
    so_far = drawn(batch, beam, seed=2).sort(1, descending=True).values.masked_fill(torch.rand(batch, beam, generator=torch.Generator().manual_seed(3)) < 0.3, float("-inf"))
    so_far[:, 0] = 0.0
    so_far[2] = float("-inf")
    rows = so_far.flatten().isfinite().nonzero().flatten()
    logits = drawn(len(rows), size)
    if ties:
        logits, so_far = logits.round(), so_far.clamp(-1e9, 0).masked_fill(so_far.isfinite(), 0.0).masked_fill(so_far.isneginf(), float("-inf"))
        logits[:] = logits[:1]  # all rows are equal, and so are many tokens
    only = torch.full((len(rows),), -1)
    only[::3] = 4
    some_more = torch.tensor([3, 6, 4])[torch.arange(len(rows)) % 3]
    for bound, banned in itertools.product((None, only), (None, some_more)):
        values, flat = continuations(module.best_continuations, logits, so_far, rows, count, bound, banned)
        plain_values, plain_flat = continuations(best_continuations, logits, so_far, rows, count, bound, banned)
        values, flat = values[:, : plain_values.size(1)], flat[:, : plain_values.size(1)]
        torch.testing.assert_close(values, plain_values, atol=1e-5, rtol=1e-6)
        assert torch.equal(flat, plain_flat)
        assert values[2].isneginf().all()


@needed
def test_the_forced_token_may_be_one_that_is_never_generated() -> None:
    logits, so_far, rows = drawn(1, 50), torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64)
    for kind in (module.best_continuations, best_continuations):
        values, flat = kind(logits.clone(), so_far, rows, 1, (0, 1, 2), torch.tensor([1]))
        assert flat.tolist() == [[1]]
        torch.testing.assert_close(values[0], logits.log_softmax(1)[0, 1:2])


@needed
def test_what_is_banned_keeps_its_share_of_the_probability() -> None:
    """The first ids of `never`, as many as each row says; the others' log-probabilities stay what they were."""
    logits, so_far, rows = drawn(3, 9), torch.zeros(3, 1), torch.arange(3)
    whole, never = logits.log_softmax(1), (0, 1, 8, 4)
    for kind in (module.best_continuations, best_continuations):
        values, flat = kind(logits.clone(), so_far, rows, 9, never, None, torch.tensor([0, 3, 4]))
        for row, count in enumerate((0, 3, 4)):
            left = sorted(set(range(9)) - set(never[:count]), key=lambda token: -float(whole[row, token]))
            assert flat[row, : 9 - count].tolist() == left
            torch.testing.assert_close(values[row, : 9 - count], whole[row, left])
            assert values[row, 9 - count :].isneginf().all()


@needed
def test_what_is_not_a_number_comes_first() -> None:
    logits, so_far = drawn(4, 50), torch.zeros(2, 2)
    logits[1, 20] = float("nan")
    values, _ = module.best_continuations(logits, so_far, torch.arange(4), 4, (0,), None)
    assert values[0, 0].isnan()
    assert values[1].isfinite().all()


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The cache's folder, empty; kernels are looked for again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("NMT_KERNELS", raising=False)
    kernels.cache_clear()
    yield tmp_path / "nmt"
    kernels.cache_clear()


def worker() -> Worker:
    torch.manual_seed(0)
    model = Transformer(ModelSection(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, num_heads=2, max_positions=64), 60, 60).eval()
    return Worker([prepared(model)], SearchOptions(beam=3, alpha=0.6, bos=2, eos=3, never=(0, 1, 2)), 1000, None, False)


def searched() -> tuple[type, list[list[int]]]:
    """The stepper that a worker takes, and what it finds."""
    some, batch = worker(), Batch([[5, 6, 7], [8]], [[], []], [4, 4])
    kind = type(some._stepper(batch))
    some.all(batch)
    return kind, [found.hypotheses[0].tokens for found in batch.done.result()]


@pytest.fixture(scope="module")
def expected() -> tuple[type, list[list[int]]]:
    found = searched()
    assert found[0] is (NativeStepper if kernels() else FastStepper)
    return found


@needed
def test_they_are_compiled_once_and_kept_and_made_anew_when_damaged(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels() is not None
    [file] = anew.iterdir()
    assert anew.stat().st_mode & 0o077 == 0
    kernels.cache_clear()
    monkeypatch.setattr(module, "compile_to", lambda *_: pytest.fail("compiled again"))
    assert kernels() is not None
    assert list(anew.iterdir()) == [file]
    file.unlink()  # this process goes on with the old one
    file.write_bytes(b"cut off")
    command = [sys.executable, "-c", "from nmt_cli.decoding.kernels import kernels; print(kernels() is not None)"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(anew.parent)}
    assert subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout == "True\n"
    assert list(anew.iterdir()) == [file]


@pytest.mark.parametrize("fault", ["off", "no compiler", "no such compiler", "a compiler that fails", "no room", "no home"])
def test_without_them_the_same_is_found(fault: str, expected: tuple[type, list[list[int]]], anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "off":
        monkeypatch.setenv("NMT_KERNELS", "off")
    elif fault == "no compiler":
        monkeypatch.setattr(module, "COMPILERS", ("no-such-compiler",))
        monkeypatch.delenv("CXX", raising=False)
    elif fault == "no such compiler":
        monkeypatch.setenv("CXX", "no-such-compiler")
    elif fault == "a compiler that fails":
        monkeypatch.setenv("CXX", "false")
    elif fault == "no room":
        anew.write_text("a file where the folder would be")
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr(Path, "home", staticmethod(lambda: (_ for _ in ()).throw(RuntimeError("no home"))))
    assert kernels() is None
    assert Layers.of(worker().models[0]) is None
    assert searched() == (FastStepper, expected[1])


@needed
def test_other_models_and_devices_are_not_for_them() -> None:
    model = Transformer(ModelSection(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, num_heads=2), 60, 60)
    assert Layers.of(model) is None  # its linear maps have not been laid out
    assert native.Layers.of(prepared(model)) is not None
