"""The parameters in training: three flat tensors of P numbers. The parameters of two models are views of them.

    main_params     (P,) fp32               updated by Adam, saved in checkpoints         model          has views of it
    compute_params  (P,) fp32, bf16, fp16   read by forward and backward passes           compute_model  has views of it
    main_grads      (P,) fp32               sums over micro-batches, then over ranks (gradients.py, data_parallel.py)

In bf16 and fp16, `compute_params` are rounded from `main_params` once per update, not once per pass. In fp32 both are
one tensor.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

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
        for name, parameter in model.named_parameters():
            self._spans[name] = size, parameter.shape
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.main_params = nn.Parameter(torch.zeros(size, device=device))
        self.compute_params = (
            self.main_params.data if dtype == torch.float32 else torch.zeros(size, dtype=dtype, device=device)
        )
        self.main_grads = torch.zeros(size, device=device)
        self.main_params.grad = self.main_grads
        for name, parameter in model.named_parameters():
            view = self.view(self.main_params.data, name)
            view.copy_(parameter.data)
            parameter.data = view
        for name, parameter in self.compute_model.named_parameters():
            parameter.data = self.view(self.compute_params, name)
        self.refresh_compute_params()

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
