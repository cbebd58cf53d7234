"""What the machine has, and what a device is called and can do."""

import os
import re
import subprocess
import sys
import time

import pytest
import torch

from nmt_cli.device import processor
from nmt_cli.device.hardware import Hardware, device_named, fast_precision
from nmt_cli.device.processor import cores
from nmt_cli.device.torch_device import communication, widest_float
from nmt_cli.errors import UsageError


def test_openmps_limit_of_threads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_THREAD_LIMIT", raising=False)
    there = cores()
    assert 1 <= there <= (os.cpu_count() or 1)
    for limit, expected in (("1", 1), ("100000", there), ("0", there), ("", there), ("many", there)):
        monkeypatch.setenv("OMP_THREAD_LIMIT", limit)
        assert cores() == expected


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_each_rank_of_a_machine_has_a_gpu_of_its_own() -> None:
    for device, name in (("auto", "cuda:1"), ("cuda", "cuda:1"), ("cuda:0", "cuda:0"), ("cpu", "cpu")):
        assert device_named(device, 1) == name
    for device, rank in (("cuda", 2), ("cuda:7", 0)):
        with pytest.raises(UsageError, match="torch sees 2 CUDA devices here, counted from 0"):
            device_named(device, rank)


def test_an_unknown_device_is_refused() -> None:
    for device in ("tpu", "cuda:", "cuda:x", "mps:1", ""):
        with pytest.raises(UsageError, match="expected auto, cpu, cuda, cuda:N or mps"):
            device_named(device)


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has a GPU of Apple's")
def test_an_absent_gpu_of_apple_is_refused() -> None:
    with pytest.raises(UsageError, match="sees no GPU of Apple's here"):
        Hardware.find("mps")


def test_the_precision_is_what_the_gpu_computes_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """H100, T4, V100, P40."""
    for capability, expected in (((9, 0), "bf16"), ((7, 5), "fp16"), ((7, 0), "fp16"), ((6, 1), "fp32")):
        bf16 = expected == "bf16"
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, bf16=bf16: bf16)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, capability=capability: capability)
        assert fast_precision("cuda:0") == expected


def test_what_a_device_can_do() -> None:
    assert communication("cuda:1") == {"backend": "cpu:gloo,cuda:nccl", "device_id": torch.device("cuda:1")}
    assert communication("cpu") == {"backend": "gloo"}
    assert [widest_float(name) for name in ("mps:0", "cpu", "cuda:0")] == [torch.float32, torch.float64, torch.float64]


def test_a_machine_whose_threads_do_not_get_their_time_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work takes half of the time of every thread."""
    monkeypatch.setattr(time, "thread_time", lambda: time.monotonic() / 2)
    assert re.match(r"this machine is busy: 2 threads get the time of 1\.\d cores", processor.busy(2))
    assert re.match(r"this machine is busy: 1 thread gets the time of 0\.\d cores", processor.busy(1))
    monkeypatch.setattr(time, "thread_time", time.monotonic)
    assert processor.busy(2) == ""


MODE = """
import ctypes, pathlib
mode = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).mkl_serv_cbwr_get(-1)
print("strict" if mode & processor.STRICT else "not strict")
"""
MODEL = """
from nmt_cli.data.batches import EpochPlan
from nmt_cli.device.hardware import Hardware
from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import load_recipe
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.update import Updater
recipe = load_recipe("demo", ["train.precision=fp32"])
model = Transformer(recipe.model, 100, 100)
convert(model, "fp32")
Updater(model.train(), recipe, Hardware("cpu", "fp32", 2**30), ProcessGroup())
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch has no MKL")  # type: ignore[no-untyped-call]
@pytest.mark.parametrize(
    ("before", "mine", "mode", "warning"),
    [
        ("", None, "strict", ""),
        ("", "AVX2,STRICT", "strict", ""),
        ("", "AVX2", "not strict", "MKL_CBWR=AVX2 in the environment is not strict"),
        ("import torch; torch.ones(99).exp()", None, "not strict", "torch computed before nmt_cli was imported"),
    ],
)
def test_mkl_is_told_to_be_strict_before_it_computes(before: str, mine: str | None, mode: str, warning: str) -> None:
    """On Intel's processors. Building a model computes sinusoids, after which MKL takes no mode any more."""
    code = f"""{before}
import builtins, io
builtins.open = lambda file, *how, was=open, **more: (
    io.StringIO("GenuineIntel") if file == "/proc/cpuinfo" else was(file, *how, **more)
)
import torch, nmt_cli
from nmt_cli.device import processor
processor._cpuinfo = lambda: "GenuineIntel"
{MODEL}{MODE}"""
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    environment |= {"MKL_CBWR": mine} if mine else {}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == mode + "\n"
    assert (warning in done.stderr and done.stderr.count("warning") == 1) if warning else done.stderr == ""


def test_an_interrupt_while_torch_is_loaded_is_not_lost() -> None:
    """torch loads numpy, and goes on without it if that fails, whatever the reason. Elsewhere it aborts."""
    code = """
import os, signal, sys
from nmt_cli.device.hardware import loading_torch


class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Interrupting())
try:
    with loading_torch("it", shown=False):
        import torch
except KeyboardInterrupt:
    print("interrupted", bool(torch.zeros(1).numpy().size))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "interrupted True\n"
