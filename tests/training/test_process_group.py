"""Errors of a collective are explained, and all ranks learn why one of them failed. cli/test_endings.py has real processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nmt_cli.errors import Stopped, TrainingError
from nmt_cli.training.process_group import RESUME, PeerLost, ProcessGroup
from nmt_cli.training.rendezvous import report_end

ASSERTION = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API call.\n"
STORE = "wait timeout after 3000ms, keys: /0//cpu//0/2\nException raised from doWait at TCPStore.cpp:1 (most recent call first):\nframe #0: c10::Error"


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (RuntimeError("pair.cc:553] Connection closed by peer"), PeerLost, "exchange data with the others (pair."),
        (dist.DistStoreError(STORE), PeerLost, "keys: /0//cpu//0/2)."),
        (RuntimeError(), PeerLost, "(RuntimeError)"),
        (torch.AcceleratorError(ASSERTION), TrainingError, "its GPU reports an error, in the update or before: CUDA"),
        (torch.OutOfMemoryError("CUDA out of memory."), TrainingError, "rank 1 of 4 runs out of memory (CUDA out"),
    ],
)
def test_an_error_of_a_collective_is_explained(error: RuntimeError, kind: type[TrainingError], text: str) -> None:
    with pytest.raises(TrainingError, match=RESUME) as raised, of(1).collective():
        raise error
    assert (type(raised.value), text in str(raised.value)) == (kind, True)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("error", [RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("closed")])
def test_an_error_of_a_pass_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), of(1).collective(lambda: False):
        raise error


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return dist.FileStore(str(tmp_path / "store"), 4)  # type: ignore[attr-defined]


def of(rank: int, local: int = 0) -> ProcessGroup:
    return ProcessGroup(rank, local, 4, 2)


def reported(error: BaseException, store: Any, group: ProcessGroup) -> TrainingError:
    """What a rank ends with that another one has told it."""
    instead = report_end(error, store, group)
    assert isinstance(instead, TrainingError)
    return instead


def test_an_error_is_reported_by_the_rank_that_had_it_first(store: Any) -> None:
    assert report_end(TrainingError("the disk is full"), store, of(0)) is None
    instead = reported(PeerLost("rank 1 no longer hears"), store, of(1, 1))
    assert (instead.reported, instead.exit_code) == (True, 1)
    assert "rank 0" in str(instead)
    assert "the disk is full" in str(instead)
    assert reported(TrainingError("the disk is full"), store, of(2)).reported
    assert report_end(TrainingError("another error"), store, of(3, 1)) is None


def test_the_others_end_with_its_status(store: Any) -> None:
    assert report_end(Stopped(15, "stopped at update 3", reported=True), store, of(1, 1)) is None
    assert reported(PeerLost("rank 0 no longer hears"), store, of(0)).exit_code == 143


def test_on_another_machine_it_is_reported_once_more(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP_RANK", "0")
    assert report_end(IndexError("list index out of range"), store, of(1, 1)) is None
    monkeypatch.setenv("GROUP_RANK", "1")
    said = str(reported(PeerLost(""), store, of(2, 0)))
    assert said == "rank 1 of 4 has failed: IndexError: list index out of range"
    assert reported(PeerLost(""), store, of(3, 1)).reported


def test_one_process_runs_its_work_and_no_lost_store_hides_an_error() -> None:
    value = object()
    assert ProcessGroup().run_on_main(lambda: value) is value
    server = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    client = dist.TCPStore("localhost", server.port, is_master=False)  # type: ignore[attr-defined]
    del server
    assert report_end(PeerLost("rank 1 no longer hears"), client, of(1)) is None


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for threads in /proc")
def test_no_thread_of_the_group_outlives_it() -> None:
    """A thread that frees a tensor while Python shuts down would abort the process."""
    code = """
import os, torch
from nmt_cli.training.rendezvous import joined
with joined("cpu") as group:
    group.all_gather([1.0])
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # imports much of torch
    cycle = [torch.distributed.all_reduce(torch.ones(1), async_op=True)]  # holds the group
    cycle.append(cycle)
    del cycle
print(*sorted(open(f"/proc/self/task/{thread}/comm").read().strip() for thread in os.listdir("/proc/self/task")))
"""
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    rank |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **rank}, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "python" in run.stdout
    assert "gloo" not in run.stdout
