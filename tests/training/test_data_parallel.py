"""Gradients of three real processes: the same as one process's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from replicas import CASES

pytestmark = pytest.mark.slow

RANKS = 3
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


@pytest.mark.parametrize(("precision", "passes"), CASES)
def test_ranks_train_as_one_process_and_resume_with_the_same_bits(found: Findings, precision: str, passes: int) -> None:
    """A sum, not a mean, with a matrix that is used three times (the tied embeddings), in fp32 and in several buckets,
    and each number once an update, whatever the number of micro-batches. Frozen parameters are not in it."""
    tolerance = 1e-6 if precision == "fp32" else 5e-3  # other micro-batches round otherwise
    ranks = [rank[f"{precision} {passes}"] for rank in found]
    for rank in ranks:
        for one in (rank, rank["frozen"]):
            assert one["gradient"] <= tolerance
            assert one["sums"] <= tolerance
            assert {dtype for dtype, _ in one["reduced"]} == {"torch.float32"}
            assert sum(size for _, size in one["reduced"]) == one["numbers"]
        assert rank["micro-batches"] >= 3
        assert len(rank["reduced"]) >= 3
        assert rank["resumed"]
        assert {name.split(".")[0] for name in rank["frozen"]["kept"]} == {"embeddings", "encoder"}
    assert len({rank["weights"] for rank in ranks}) == len({rank["frozen"]["weights"] for rank in ranks}) == 1
