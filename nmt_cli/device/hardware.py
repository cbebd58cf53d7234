"""The hardware of this machine: a device, and the precision in which it multiplies matrices fast.

A recipe does not depend on the hardware. `Hardware.find` detects it, and command-line options can override it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import console
from ..errors import NeedsTorch, UsageError
from .memory import accelerator_memory, free_memory
from .processor import cpu_flags
from .signals import ENDING, blocked

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")
"""Files of Linux, one of which exists where torch can see a CUDA device: of Nvidia's driver, of Windows' subsystem, of
AMD's driver."""


@contextmanager
def loading_torch(what: str, shown: bool = True) -> Iterator[None]:
    """Let the block import torch, and show that meanwhile.

    Raises NeedsTorch with `what` needs it, if torch is not installed.
    """
    try:
        with console.status("loading torch", shown=shown), blocked(ENDING):  # torch drops an interrupt, or aborts
            yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise NeedsTorch(what) from None


@dataclass(frozen=True)
class Hardware:
    """The device of one rank: its torch name, the precision of its products, and the bytes that the rank may use."""

    device: str
    precision: str
    memory: int

    @staticmethod
    def find(device: str = "auto", precision: str = "auto", local_rank: int = 0, limit: int = 0) -> Hardware:
        """Return the best device (CUDA, then CPU), or the named one, with its free memory or `limit` in bytes.

        Raises UsageError for a device that does not exist.
        """
        device = device_named(device, local_rank)
        if device.startswith("cuda"):
            import torch

            # it compiles attention for each new shape, and almost every batch has one
            torch.backends.cuda.enable_cudnn_sdp(False)
            memory = torch.cuda.mem_get_info(device)[0]
        else:
            memory = free_memory() if device == "cpu" else accelerator_memory(device)
        if precision == "auto":
            precision = fast_precision(device)
        return Hardware(device, precision, min(memory, limit) if limit else memory)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of matrix products. Sums, norms and weights are in fp32."""
        import torch

        return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[self.precision]


def device_named(device: str = "auto", local_rank: int = 0) -> str:
    """Return torch's name of the device that `--device` names; "cuda" means GPU number `local_rank`.

    Raises UsageError if it does not exist, NeedsTorch.
    """
    if device == "cpu" or (device == "auto" and not torch_build()):
        return "cpu"
    with loading_torch(f"--device {device}"):
        import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        device = f"cuda:{local_rank}"
    if re.fullmatch(r"cuda:\d+", device):
        if not torch.cuda.is_available():
            raise UsageError(
                f"--device {device!r}: torch {torch.__version__} sees no CUDA device here. Use --device cpu."
            )
        if int(device[5:]) >= torch.cuda.device_count():
            raise UsageError(
                f"--device {device!r}: torch sees {torch.cuda.device_count()} CUDA devices here, counted from 0."
            )
    elif device in ("mps", "mps:0"):
        device = "mps:0"
        if not torch.backends.mps.is_available():
            raise UsageError(f"--device mps: torch {torch.__version__} sees no GPU of Apple's here. Use --device cpu.")
    elif device != "cpu":
        raise UsageError(f"--device {device!r}: expected auto, cpu, cuda, cuda:N or mps.")
    return device


def torch_build() -> str:
    """Return torch's own file about its version and its libraries, without loading torch; "" if there is none."""
    found = importlib.util.find_spec("torch")
    for folder in (found.submodule_search_locations or ()) if found else ():
        with suppress(OSError):
            return (Path(folder) / "version.py").read_text(encoding="utf-8")
    return ""


def surely_cpu(device: str) -> bool:
    """Return whether `--device` surely means the CPU.

    This does not load torch: for "auto", torch is built without GPUs or is not installed, or Linux has no device of a
    GPU.
    """
    if device != "auto":
        return device == "cpu"
    build = torch_build()
    if not build:
        return True
    if re.search(r"^cuda\b.*= None$", build, re.MULTILINE) and re.search(r"^hip\b.*= None$", build, re.MULTILINE):
        return True
    return sys.platform == "linux" and not any(Path(path).exists() for path in GPU_DEVICES)


def fast_precision(device: str) -> str:
    """Return in which precision a device multiplies fast: bf16, else fp16 on GPUs with tensor cores for it, or fp32."""
    if device == "cpu":
        return "bf16" if cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"} else "fp32"
    if not device.startswith("cuda"):
        return "fp32"
    import torch

    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "fp16" if torch.cuda.get_device_capability(device) >= (7, 0) else "fp32"
