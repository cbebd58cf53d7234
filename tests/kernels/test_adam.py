"""The engine's step of Adam is that of torch's fused one, and its norm is exact."""

import pytest
import torch
from engines import every_engine
from small_models import needs_engine

from nmt_cli.engine.library import library
from nmt_cli.errors import ModelError
from nmt_cli.kernels.cpu_training import adam as kernel
from nmt_cli.kernels.cpu_training.adam import adam_step, norm
from nmt_cli.kernels.cpu_training.calls import pointer

pytestmark = needs_engine
RATE, BETAS, EPSILON, SCALE = 3e-3, (0.9, 0.98), 1e-9, 0.25


def gradient(size: int, step: int) -> torch.Tensor:
    """Random numbers; the last is 0, as in a gap between parameters."""
    numbers = torch.randn(2, size, generator=torch.Generator().manual_seed(step))
    return torch.where(torch.arange(size) == size - 1, 0.0, numbers[0] * numbers[1].exp())


def after_six_steps(size: int) -> list[torch.Tensor]:
    """The parameters, their moments and the rounded parameters."""
    params, first, second = gradient(size, 0), torch.zeros(size), torch.zeros(size)
    rounded = torch.empty(size, dtype=torch.bfloat16)
    for step in range(1, 7):
        arrays = params, gradient(size, step), first, second, (rounded if step == 6 else None)
        adam_step(*arrays, step, RATE, *BETAS, EPSILON, SCALE)
    return [params, first, second, rounded]


@pytest.mark.parametrize("size", [1, 31, 100_003])
def test_steps_are_torchs(size: int) -> None:
    params = gradient(size, 0).requires_grad_()
    adam = torch.optim.Adam([params], lr=RATE, betas=BETAS, eps=EPSILON, fused=True)
    for step in range(1, 7):
        params.grad = gradient(size, step) * SCALE
        adam.step()
    found, *others = (after_six_steps(size) for _ in every_engine(kernel))
    assert all(torch.equal(one, two) for other in others for one, two in zip(found, other, strict=True))
    torch.testing.assert_close(found[0], params.detach(), rtol=1e-6, atol=1e-5 * RATE)
    for own, name in zip(found[1:3], ("exp_avg", "exp_avg_sq"), strict=True):
        torch.testing.assert_close(own, adam.state[params][name], rtol=1e-6, atol=1e-6)
    assert torch.equal(found[3], found[0].bfloat16())


@pytest.mark.parametrize("size", [0, 1, 31, 100_003])
def test_the_norm_is_exact(size: int) -> None:
    x = 1e30 * gradient(size, 1)
    [found] = {norm(x) for _ in every_engine(kernel)}
    assert found == pytest.approx(x.double().norm().item(), rel=1e-13)
    assert not size or not norm(x + float("nan")) < float("inf")


def test_wrong_arguments_are_refused() -> None:
    for form in (kernel._Form(-1, 1), kernel._Form(4, 0), kernel._Form(4, 1)):
        with pytest.raises(ModelError, match=r"parameters is -1|step is 0|NULL"):
            library().nmt_adam_step(pointer(form))
