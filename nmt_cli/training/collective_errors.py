"""What an exception inside a collective means, by the exception's class and message.

    "peer"    another rank does not answer: its process is gone, its machine or the network failed, or it hangs
    "memory"  this rank has no memory left
    "device"  this rank's GPU reports an error, such as a failed assertion or an illegal address
    ""        anything else: an error in the program, such as tensors of different shapes

torch raises most of them as RuntimeError. gloo's messages begin with a path of its source code. NCCL's contain the name
of its result code, and after "Last error:" the cause below it, which says more.
"""

from __future__ import annotations

import re
from typing import Literal

import torch
import torch.distributed as dist

from ..hardware import out_of_memory

Meaning = Literal["peer", "memory", "device", ""]

DEVICE = re.compile(r"CUDA error|Cuda failure|device-side assert|illegal memory access|CUBLAS_STATUS_|CUDNN_STATUS_|cuDNN error|HIP error")
LIBRARY = re.compile(r"/gloo/|\bgloo\b|\bNCCL\b|\bnccl[A-Z]", re.IGNORECASE)
NETWORK = re.compile(
    r"connection (closed|reset|refused)|closed by (remote )?peer|broken pipe|socket closed|pair closure|"
    r"timed out|timing out|timeout|no route to host|network is unreachable|"
    r"ncclRemoteError|remote process exited|communicator was aborted|connectFullMesh failed",
    re.IGNORECASE,
)
MISUSE = re.compile(r"enforce fail|ncclInvalid(Usage|Argument)", re.IGNORECASE)


def meaning(error: BaseException) -> Meaning:
    """Return what `error`, raised by a collective of torch.distributed, means."""
    text = str(error)
    if out_of_memory(error):
        return "memory"
    if isinstance(error, torch.AcceleratorError) or DEVICE.search(text):
        return "device"
    if isinstance(error, (dist.DistNetworkError, dist.DistStoreError)):
        return "peer"
    from_library = isinstance(error, dist.DistError) or LIBRARY.search(text)
    return "peer" if from_library and NETWORK.search(text) and not MISUSE.search(text) else ""


def summary(error: BaseException) -> str:
    """Return the first sentence of the message, without the path of gloo's source code at its start."""
    text = re.sub(r"\[\S*\.cc:\d+\] ", "", str(error))
    if last := re.search(r"Last error:\s*(.+)", text):  # NCCL
        return last[1].strip()
    return (text.splitlines() or [type(error).__name__])[0].partition(". ")[0]
