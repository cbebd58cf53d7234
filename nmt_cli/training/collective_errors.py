"""The meaning of an exception inside a collective, by the exception's class and message.

    "peer"    another rank does not answer: its process is gone, its machine or the network failed, or it hangs
    "memory"  this rank has no memory left
    "device"  this rank's GPU reports an error, such as a failed assertion or an illegal address
    ""        anything else: an error in the program, such as tensors of different shapes

torch raises most of these exceptions as RuntimeError. gloo's messages begin with a path of gloo's source code. NCCL's
messages contain the name of a result code and, after "Last error:", the more precise cause.
"""

from __future__ import annotations

import re
from typing import Literal

import torch
import torch.distributed as dist

from ..hardware import out_of_memory

Meaning = Literal["peer", "memory", "device", ""]

DEVICE = re.compile(
    r"CUDA error|Cuda failure|device-side assert|illegal memory "
    r"access|CUBLAS_STATUS_|CUDNN_STATUS_|cuDNN error|HIP error"
)
LIBRARY = re.compile(r"/gloo/|\bgloo\b|\bNCCL\b|\bnccl[A-Z]", re.IGNORECASE)
NETWORK = re.compile(
    r"connection (closed|reset|refused)|closed by (remote )?peer|broken pipe|socket closed|pair closure|"
    r"timed out|timing out|timeout|no route to host|network is unreachable|"
    r"ncclRemoteError|remote process exited|communicator was aborted|connectFullMesh failed",
    re.IGNORECASE,
)
MISUSE = re.compile(r"enforce fail|ncclInvalid(Usage|Argument)", re.IGNORECASE)


def meaning(error: BaseException) -> Meaning:
    """Return the meaning of `error`, which a collective of torch.distributed raised."""
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
    """Return the first sentence of the message, without the path of gloo's source code.

    For NCCL, return the cause after "Last error:".
    """
    text = re.sub(r"\[\S*\.cc:\d+\] ", "", str(error))
    if last := re.search(r"Last error:\s*(.+)", text):  # NCCL
        return last[1].strip()
    return (text.splitlines() or [type(error).__name__])[0].partition(". ")[0]
