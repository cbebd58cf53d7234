"""What every benchmark needs: the text, the machine's name, medians of alternated runs."""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

import torch

from nmt_cli import __version__
from nmt_cli.data.prepare import prepare
from nmt_cli.hardware import cores, has_fast_bf16
from nmt_cli.recipe import Recipe, load_recipe

BASE = ["model.encoder_layers=6", "model.decoder_layers=6", "model.d_model=512", "model.d_ff=2048", "model.num_heads=8", "model.dropout=0.1"]


def setup(threads: int) -> None:
    """Threads as `nmt train` takes them; prints what the figures belong to."""
    torch.set_num_threads(threads or cores())
    print(f"{date.today()} · nmt {__version__} · torch {torch.__version__} · Python {platform.python_version()} · {processor()}, {torch.get_num_threads()} threads · fast bf16: {has_fast_bf16('cpu')}")


def processor() -> str:
    """The processor's name, as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def shards(data_dir: Path | None, settings: Sequence[str]) -> tuple[Recipe, Path]:
    """Multi30k's recipe and shards where its text is at hand, else those of the embedded corpus."""
    recipe = load_recipe("multi30k_en_de" if data_dir else "demo", settings)
    folder = Path(tempfile.mkdtemp(prefix="nmt-bench-")) / "shards"
    prepare(recipe, data_dir, folder)
    return recipe, folder


def alternate(sides: Mapping[str, Callable[[int], int]], rounds: int, warmup: int) -> dict[str, float]:
    """Run each side's round in turn; a round returns its tokens. Median tokens a second of each side."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(warmup + rounds):
        for name, run in sides.items():
            began = time.perf_counter()
            tokens = run(number)
            if number >= warmup:
                rates[name].append(tokens / (time.perf_counter() - began))
    return {name: statistics.median(values) for name, values in rates.items()}


def table(rates: dict[str, float], unit: str) -> None:
    """A line a side, and its ratio to the last."""
    *_, last = rates
    for name, rate in rates.items():
        print(f"  {name:<44} {rate:>10,.0f} {unit}   {rate / rates[last]:>6.2f} ×")
