"""Exceptions inside a collective are classified; those of gloo come from real processes. All ranks learn why one of them failed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nmt_cli.errors import Stopped, TrainingError
from nmt_cli.training.process_group import PeerLost, ProcessGroup, meaning, summary
from nmt_cli.training.rendezvous import report_end

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/"
ASSERTION = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
ERRORS: dict[type[BaseException], dict[str, list[str]]] = {
    RuntimeError: {
        "peer": [
            f"{GLOO}pair.cc:553] Connection closed by peer [127.0.0.1]:22446. This is typically caused by a remote worker crashing.",
            f"{GLOO}pair.cc:537] Read error [127.0.0.1]:161: Connection reset by peer. This is typically caused by a remote worker hanging.",
            f"{GLOO}unbound_buffer.cc:78] Timed out waiting 600000ms for recv operation to complete",
            f"{GLOO}pair.cc:599] writev [10.0.0.2]:46471: Broken pipe",
            f"Gloo connectFullMesh failed with {GLOO}pair.cc:144] no error",
        ],
        "": [
            "[enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 800 vs 8. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?",
            "ProcessGroupGloo::allgather: invalid tensor size at index 0 (expected (2), got (3))",
            "ProcessGroupGloo::allgather: invalid output tensor list at index 0 (expected length 2, got 1)",
            "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0",
            "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
            "the connection to the vocabulary timed out",
        ],
        "device": [ASSERTION, "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"],
    },
    dist.DistBackendError: {
        "peer": [
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgressOpt: Call to recv from 172.16.0.1<33759> failed : Connection reset by peer",
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, internal error, NCCL version 2.21.5\nncclInternalError: Internal check failed.\nLast error:\nNet : Connection closed by remote peer node2<50260>",
            "NCCL communicator was aborted on rank 2.  Original reason for failure was: [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1805457 milliseconds before timing out.",
        ],
        "device": [
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'device-side assert triggered'",
            f"[PG 1 Rank 1] Process group watchdog thread terminated with exception: {ASSERTION}",
        ],
        "memory": [
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled cuda error, NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'"
        ],
        "": [
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, invalid usage, NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"
        ],
    },
    dist.DistNetworkError: {
        "peer": ["The client socket has timed out after 600000ms while trying to connect to (node0, 29500)."]
    },
    dist.DistStoreError: {"peer": ["wait timeout after 3000ms, keys: /0//cpu//0/2"]},
    torch.AcceleratorError: {
        "device": [ASSERTION, "CUDA error: an illegal memory access was encountered\n"],
        "memory": ["CUDA error: out of memory\n"],
    },
    torch.OutOfMemoryError: {"memory": ["CUDA out of memory. Tried to allocate 2.00 GiB."]},
    MemoryError: {"memory": [""]},
    ValueError: {"": ["Connection closed by peer"]},
}
"""What users of gloo (torch 2.13), NCCL, the store and torch report, by what it means."""
CASES = [(what, kind(text)) for kind, texts in ERRORS.items() for what, some in texts.items() for text in some]


@pytest.mark.parametrize(
    ("what", "error"), CASES, ids=lambda value: value if isinstance(value, str) else str(value)[:40]
)
def test_what_an_exception_in_a_collective_means(what: str, error: BaseException) -> None:
    assert meaning(error) == what


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (CASES[0][1], "Connection closed by peer [127.0.0.1]:22446"),
        (
            dist.DistBackendError(ERRORS[dist.DistBackendError]["peer"][1]),
            "Net : Connection closed by remote peer node2<50260>",
        ),
        (torch.AcceleratorError(ASSERTION), "CUDA error: device-side assert triggered"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_summary(error: BaseException, text: str) -> None:
    assert summary(error) == text


# --- real processes over gloo ---

PROCESSES = """
import os, signal, sys
from datetime import timedelta
import torch, torch.distributed as dist
from nmt_cli.training.process_group import meaning, summary

def gather(size=4, *expected):
    dist.all_gather([torch.ones(*(expected or (size,))) for _ in range(2)], torch.ones(size))

def rank_of(case, port, rank):
    store = dist.TCPStore("localhost", int(port), is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=180))
    gather()
    if case == "hangs": dist.distributed_c10d._set_pg_timeout(timedelta(seconds=5))
    try:
        if rank:
            if case == "killed": os.kill(os.getpid(), 9)
            if case == "leaves": os._exit(0)
            if case == "hangs": signal.pause()
            if case == "shapes": gather(4, 5)
        gather()
    except RuntimeError as error:
        line = "|".join((case, str(rank), meaning(error) or "other", summary(error))) + "\\n"
        os.write(1, line.encode())  # in one piece: the processes share the pipe

hanging = 0
for argument in sys.argv[1:]:
    for rank in range(2):
        child = os.fork()
        if not child:
            rank_of(*argument.split("="), rank)
            os._exit(0)
        if argument.startswith("hangs") and rank: hanging = child
for _ in range(2 * len(sys.argv[1:]) - 1):
    os.wait()
os.kill(hanging, 9)
"""


@pytest.fixture(scope="module")
def heard() -> dict[tuple[str, str], tuple[str, str]]:
    """What the exception meant, and its summary, by case and rank: in each case rank 1 does something to rank 0."""
    stores = {
        case: dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        for case in ("killed", "leaves", "hangs", "shapes")
    }
    cases = [f"{case}={store.port}" for case, store in stores.items()]
    done = subprocess.run(
        [sys.executable, "-c", PROCESSES, *cases],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return {(case, rank): (what, text) for case, rank, what, text in rows}


@pytest.mark.slow
def test_gloo_between_real_processes(heard: dict[tuple[str, str], tuple[str, str]]) -> None:
    assert {case: heard[case, "0"][0] for case in ("killed", "leaves", "hangs", "shapes")} == dict.fromkeys(
        ("killed", "leaves", "hangs", "shapes"), "peer"
    )
    assert heard["shapes", "1"] == (
        "other",
        "ProcessGroupGloo::allgather: invalid tensor size at index 0 (expected (4), got (5))",
    )
    assert heard["hangs", "0"][1].startswith("Timed out waiting 5000ms for ")
    assert not [text for _, text in heard.values() if "gloo/" in text]


# --- the report of a rank that ends ---


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return dist.FileStore(str(tmp_path / "store"), 4)  # type: ignore[attr-defined]


def of(rank: int, local: int = 0) -> ProcessGroup:
    return ProcessGroup(rank, local, 4, 2)


def test_an_error_is_reported_by_the_rank_that_had_it_first(store: Any) -> None:
    assert report_end(TrainingError("the disk is full"), store, of(0)) is None
    instead = report_end(PeerLost("rank 1 no longer hears"), store, of(1, 1))
    assert instead
    assert (instead.reported, instead.exit_code) == (True, 1)
    assert "rank 0" in str(instead)
    assert "the disk is full" in str(instead)
    again = report_end(TrainingError("the disk is full"), store, of(2))
    assert again
    assert again.reported
    assert report_end(TrainingError("another error"), store, of(3, 1)) is None


def test_the_others_end_with_its_status(store: Any) -> None:
    assert report_end(Stopped(15, "stopped at update 3", reported=True), store, of(1, 1)) is None
    instead = report_end(PeerLost("rank 0 no longer hears"), store, of(0))
    assert instead
    assert instead.exit_code == 143


def test_on_another_machine_it_is_reported_once_more(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP_RANK", "0")
    assert report_end(IndexError("list index out of range"), store, of(1, 1)) is None
    monkeypatch.setenv("GROUP_RANK", "1")
    assert (
        str(report_end(PeerLost(""), store, of(2, 0))) == "rank 1 of 4 has failed: IndexError: list index out of range"
    )
    second = report_end(PeerLost(""), store, of(3, 1))
    assert second
    assert second.reported


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
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))  # holds the group
    ddp.cycle = [ddp]
    del ddp
print(*sorted(open(f"/proc/self/task/{thread}/comm").read().strip() for thread in os.listdir("/proc/self/task")))
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    rank |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **rank}, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "python" in run.stdout
    assert "gloo" not in run.stdout
