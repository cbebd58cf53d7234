"""A device that computes on the CPU and behaves like an accelerator: it refuses tensors of the host, and counts what waits for it.

    with SimulatedDevice() as device:
        model.to(DEVICE) … x.to("cpu")
    device.waits     the operations that needed a number of the device on the host, by name

Tensors on it are `DeviceTensor`s, which hold a tensor of the CPU. torch must know the name of the device and must have nothing
for it; "fpga" is such a name.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

DEVICE = "fpga:0"
aten = torch.ops.aten
WAITS = {
    aten._local_scalar_dense.default,
    aten.item.default,
    aten.is_nonzero.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.repeat_interleave.Tensor,
    aten.equal.default,
}
"""Operations whose result, or its size, the host has to know."""
HOST_INDICES = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
"""Operations that take indices of the host too."""


class DeviceTensor(Tensor):
    """A tensor on the device; `held` has its numbers."""

    held: Tensor
    device = torch.device(DEVICE)  # what Python code sees; to torch's own it is "meta", a device that it knows

    @staticmethod
    def __new__(cls, held: Tensor) -> DeviceTensor:
        with torch.inference_mode(False):  # views of what was made outside of it
            tensor = Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=torch.device("meta"),
            )
        tensor.held = held
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise RuntimeError(f"{func} was called outside `with SimulatedDevice()`")

    def tolist(self) -> Any:
        return self.to("cpu").tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.held})"


class SimulatedDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """See the module."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits, self.operations, self.tensors = Counter[str](), 0, _Tensors()

    def __enter__(self) -> SimulatedDevice:
        self.tensors.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.tensors.__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        on_device = [x for x in tensors if isinstance(x, DeviceTensor)]
        wanted = kwargs.pop("device", None)
        if wanted is None and not on_device:
            return func(*args, **kwargs)
        into_host = func is aten.copy_.default and not isinstance(args[0], DeviceTensor)
        to_device = bool(on_device) and not into_host if wanted is None else torch.device(wanted).type != "cpu"
        copies = func is aten.copy_.default or wanted is not None
        if on_device and not copies:
            self._check(func, tensors)
        booleans = func in HOST_INDICES and on_device and any(x.dtype == torch.bool for x in args[1] if x is not None)
        if func in WAITS or booleans or (on_device and not to_device):
            self.waits[str(func).removeprefix("aten.").partition(".")[0]] += 1
        result = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        self.operations += to_device
        written = {id(x.held): x for x in on_device}

        def wrapped(x: Any) -> Any:
            return (
                (written[id(x)] if id(x) in written else DeviceTensor(x)) if to_device and isinstance(x, Tensor) else x
            )

        return tree_map(wrapped, result)

    def _check(self, func: Any, tensors: list[Tensor]) -> None:
        """Raise RuntimeError for tensors of the host beside those of the device, as a GPU does; numbers may be of the host."""
        host = [x for x in tensors if not isinstance(x, DeviceTensor) and x.dim()]
        if host and func not in HOST_INDICES:
            raise RuntimeError(f"{func} got tensors of the device and of the host")


class _Tensors(TorchFunctionMode):
    """`torch.tensor` makes its tensor where no mode of dispatch sees it: it is moved to the device after that."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.tensor and (kwargs or {}).get("device") is not None:
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        return func(*args, **(kwargs or {}))


def _held(x: Any) -> Any:
    return x.held if isinstance(x, DeviceTensor) else x
