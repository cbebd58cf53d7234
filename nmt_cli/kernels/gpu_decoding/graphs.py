"""CUDA graphs: the operations of a function, recorded once for each of its arguments and then started by one call.

To start an operation takes the host some microseconds, and a decoding step has hundreds of short ones. A graph of them is
started at once. It reads and writes the same memory each time. So the function must get its inputs from tensors that stay
where they are, and its shapes from its arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WARMUP = 2
"""Calls before the recording, in which libraries allocate what they need."""
MOST_GRAPHS = 64
"""That are kept; the oldest is dropped first."""


class Graphs:
    """A function of whole numbers, which computes on `device`; called twice in a row it must return the same.

    On a device without such graphs it is simply called.
    """

    def __init__(self, function: Callable[..., Tensor], device: torch.device) -> None:
        self.function, self.device = function, device
        self.recorded: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.pool: Any = None  # of memory, which all graphs share: they run one after another

    def __call__(self, *sizes: int) -> Tensor:
        """Return the function's result, which the next call may overwrite."""
        if self.device.type != "cuda":
            return self.function(*sizes)
        if sizes not in self.recorded:
            if len(self.recorded) >= MOST_GRAPHS:
                del self.recorded[next(iter(self.recorded))]
            self.recorded[sizes] = self._record(sizes)
        graph, result = self.recorded[sizes]
        graph.replay()
        return result

    def _record(self, sizes: tuple[int, ...]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        stream, graph = torch.cuda.Stream(self.device), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARMUP):
                self.function(*sizes)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"):  # other threads may use the device
            result = self.function(*sizes)
        self.pool = graph.pool()
        return graph, result
