"""The parameters in training: three flat tensors of P numbers. The parameters of two models are views of them.

    main_params     (P,) fp32               updated by Adam, saved in checkpoints         model          has views of it
    compute_params  (P,) fp32, bf16, fp16   read by forward and backward passes           compute_model  has views of it
    main_grads      (P,) fp32               sums over micro-batches, then over ranks (gradients.py, data_parallel.py)

In bf16 and fp16, `compute_params` are rounded from `main_params` once per update, not once per pass. In fp32 both are
one tensor.

P counts the trained parameters. Frozen ones (`train.freeze`) stay outside the flat tensors: they have no gradient and
no optimizer state. They are rounded for the compute model once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from ..errors import TrainingError, did_you_mean, shown
from ..model.transformer import Transformer

ALIGNMENT = 64
"""Every parameter begins at a multiple of this many numbers, for vector instructions."""


class Weights:
    """The flat tensors, and the two models that have views of them.

    The parameters of `model` itself become views of `main_params`.
    """

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        """Move the parameters of `model` into flat tensors. `dtype` is the dtype of forward and backward passes."""
        self.model, self.compute_model = model, copy.deepcopy(model).to(dtype)
        device = next(model.parameters()).device
        self._spans: dict[str, tuple[int, torch.Size]] = {}
        size = 0
        for name, parameter in _trained(model):
            self._spans[name] = size, parameter.shape
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.main_params = nn.Parameter(torch.zeros(size, device=device))
        self.compute_params = (
            self.main_params.data if dtype == torch.float32 else torch.zeros(size, dtype=dtype, device=device)
        )
        self.main_grads = torch.zeros(size, device=device)
        self.main_params.grad = self.main_grads
        for name, parameter in _trained(model):
            view = self.view(self.main_params.data, name)
            view.copy_(parameter.data)
            parameter.data = view
        for name, parameter in _trained(self.compute_model):
            parameter.data = self.view(self.compute_params, name)
        self.refresh_compute_params()
        self._frozen = [
            (main, compute)
            for main, compute in zip(model.parameters(), self.compute_model.parameters(), strict=True)
            if not main.requires_grad
        ]
        self.refresh_frozen()

    def view(self, flat: Tensor, name: str) -> Tensor:
        """Return the part of a flat tensor that belongs to the parameter `name`, in its shape."""
        start, shape = self._spans[name]
        return flat[start : start + shape.numel()].view(shape)

    def by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the parts of a flat tensor by parameter name, in the parameters' shapes."""
        return {name: self.view(flat, name) for name in self._spans}

    def refresh_compute_params(self) -> None:
        """Round `main_params` to `compute_params`."""
        if self.compute_params.dtype != torch.float32:
            self.compute_params.copy_(self.main_params.data)

    def refresh_frozen(self) -> None:
        """Round the frozen parameters for the compute model; in fp32 both models share them."""
        for main, compute in self._frozen:
            if compute.dtype == torch.float32:
                compute.data = main.data
            else:
                compute.data.copy_(main.data)

    @property
    def frozen_numbers(self) -> int:
        """How many numbers the frozen parameters have."""
        return sum(main.numel() for main, _ in self._frozen)


def freeze(model: Transformer, patterns: Sequence[str]) -> None:
    """Let autograd compute no gradient for the parameters that `patterns` (`train.freeze`) match.

    Raises TrainingError for a pattern that matches nothing, and if nothing is left to train.
    """
    frozen = matching([name for name, _ in model.named_parameters()], patterns)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)


def matching(names: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """Return the names of parameters that patterns match. A pattern without wildcards also matches every name below it:
    "encoder" is "encoder.*".

    Raises TrainingError for a pattern that matches nothing, and if all names are matched.
    """
    names, matched = list(names), set[str]()
    for pattern in patterns:
        below = "" if set(pattern) & set("*?[") else f"{pattern}.*"
        found = {name for name in names if fnmatchcase(name, pattern) or (below and fnmatchcase(name, below))}
        if not found:
            every = [".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)]
            parts = [part for part in dict.fromkeys(every) if "." not in part]
            raise TrainingError(
                f"train.freeze: {shown(pattern)} matches no parameter of this model."
                f"{did_you_mean(pattern.removesuffix('.*'), dict.fromkeys(every))} Its parts are {', '.join(parts)}."
            )
        matched |= found
    if matched == set(names):
        raise TrainingError(f"train.freeze = {shown(list(patterns))} leaves no parameter to train: freeze fewer parts.")
    return matched


def _trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
