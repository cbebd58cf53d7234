"""The two kinds of arrays of searches, for tests that run over both."""

import pytest
import torch
from small_models import needs_engine

from nmt_cli.search.arrays import NUMPY
from nmt_cli.search.torch_arrays import TorchArrays

TORCH = TorchArrays(torch.device("cpu"))
over_both_arrays = pytest.mark.parametrize(
    "arrays", [pytest.param(NUMPY, marks=needs_engine, id="numpy"), pytest.param(TORCH, id="torch")]
)
