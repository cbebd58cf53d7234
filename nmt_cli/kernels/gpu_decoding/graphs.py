"""CUDA graphs: the operations of a function, recorded once for each of its arguments and then started by one call.

The host needs some microseconds to start an operation, and a decoding step has hundreds of short operations. A graph of
them is started by one call. It reads and writes the same memory each time. So the function must read its inputs from
tensors that keep their addresses, and its shapes may depend on its arguments only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WARMUP = 2
"""Calls before the recording, in which libraries allocate what they need."""
MOST_GRAPHS = 64
"""Maximum number of graphs that are kept; the oldest is dropped first."""


class Graphs:
    """A function of integers that computes on `device`. Two calls in a row must return the same.

    On a device without CUDA graphs, the function is called directly.
    """

    def __init__(self, function: Callable[..., Tensor], device: torch.device) -> None:
        self.function, self.device = function, device
        self.recorded: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self.pool: Any = None  # memory that all graphs share: they run one after another

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
        with torch.cuda.graph(
            graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"
        ):  # other threads may use the device
            result = self.function(*sizes)
        self.pool = graph.pool()
        return graph, result
