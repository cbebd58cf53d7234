"""Gradients of three real processes: the same as one process's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

RANKS = 3
PRECISIONS = ["fp32", "bf16", "fp16"]
Findings = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """What each rank of `support/replicas.py` found."""
    folder, script = tmp_path_factory.mktemp("ranks"), Path(__file__).parents[1] / "support" / "replicas.py"
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(folder), str(RANKS)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_gradient_is_that_of_one_process(found: Findings, precision: str, passes: int) -> None:
    """Of the whole update: a sum, not a mean, with a matrix that is used three times (the tied embeddings)."""
    tolerance = 1e-6 if precision == "fp32" else 5e-3  # other micro-batches round otherwise
    for rank in found:
        assert rank[f"gradient {precision} {passes}"] <= tolerance
        assert rank[f"sums {precision} {passes}"] <= tolerance


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_is_summed_in_fp32_and_each_number_is_reduced_once_per_update(found: Findings, precision: str) -> None:
    """Against the sum of the ranks' own gradients in fp32; a sum in bf16 would be wrong in the third digit. Whatever the
    number of micro-batches, and in several buckets."""
    for rank in found:
        assert rank[f"exact sum {precision} 1"] <= 1e-6
        assert {dtype for dtype, _ in rank[f"reductions {precision} 1"]} == {"torch.float32"}
        sizes = [size for _, size in rank[f"reductions {precision} 1"]]
        assert rank["micro-batches 1"] >= 3
        assert len(sizes) >= 3
        assert sum(sizes) == 44_672


@pytest.mark.parametrize("precision", PRECISIONS)
def test_all_ranks_make_the_same_step_and_a_resumed_run_has_the_same_bits(found: Findings, precision: str) -> None:
    for passes in (1, 2):
        assert len({rank[f"weights {precision} {passes}"] for rank in found}) == 1
    assert all(rank[f"resumed {precision}"] for rank in found)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_frozen_parameters_are_neither_reduced_nor_changed(found: Findings, precision: str) -> None:
    totals = set()
    for rank in found:
        kept, difference, total, more_reduced = rank[f"frozen {precision}"]
        assert kept
        assert {name.split(".")[0] for name in kept} == {"embeddings", "encoder"}
        assert difference <= (1e-6 if precision == "fp32" else 5e-3)
        assert more_reduced == 0
        totals.add(total)
    assert len(totals) == 1
