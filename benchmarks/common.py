"""What the benchmarks share: texts, commands of nmt, memory, medians of alternated rounds, tables."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from nmt_cli import __version__
from nmt_cli.data.prepare import prepare
from nmt_cli.device.hardware import fast_precision
from nmt_cli.device.processor import cores
from nmt_cli.recipe import Recipe, load_recipe
from nmt_cli.text.lines import read_parallel

T = TypeVar("T")
NMT = (sys.executable, "-m", "nmt_cli")
BASE = [
    *("model.encoder_layers=6", "model.decoder_layers=6", "model.d_model=512", "model.d_ff=2048"),
    *("model.num_heads=8", "model.dropout=0.1", "train.batch_tokens=2048", "data.vocab_size=8000"),
]
SMALL = ["model.d_ff=256", "model.dropout=0.3", "data.vocab_size=10000", "train.batch_tokens=4096"]
"""Of the recipe multi30k_en_de: 4 + 4 layers, d_model 128; here d_ff 256."""
TEST_SETS = ("test_2016_flickr.{}.gz", "test.{}")
"""Names of the test sets of Multi30k and of Tatoeba, for a language."""


# --- the machine ---


def setup(threads: int) -> None:
    """Take as many threads as `nmt train` does, 0: all cores. Print what the figures belong to."""
    import torch

    torch.set_num_threads(threads or cores())
    versions = f"nmt {__version__} · torch {torch.__version__} · Python {platform.python_version()}"
    cpu = f"{processor()}, {torch.get_num_threads()} threads · fast: {fast_precision('cpu')}"
    print(f"{date.today()} · {versions} · {cpu}")


def processor() -> str:
    """Return the processor's name, as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# --- texts ---


def settings(data_dir: Path | None, small: bool) -> list[str]:
    """Return the settings that make the recipe of `shards` the base model or the small one."""
    if data_dir:
        return SMALL if small else BASE
    return [] if small else BASE[:-1]  # the embedded corpus has fewer subwords


def shards(data_dir: Path | None, settings: Sequence[str]) -> tuple[Recipe, Path]:
    """Return Multi30k's recipe and shards if its text is given, else those of the embedded corpus."""
    recipe = load_recipe("multi30k_en_de" if data_dir else "demo", settings)
    folder = Path(tempfile.mkdtemp(prefix="nmt-bench-")) / "shards"
    prepare(recipe, [data_dir] if data_dir else [], folder)
    return recipe, folder


def parallel_lines(source: Path, reference: Path) -> tuple[list[str], list[str]]:
    """Return the lines of a source file and of its references. Raises DataError."""
    pairs = list(read_parallel([source], [reference]))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def spread_over(lines: Sequence[T], count: int) -> list[T]:
    """Return so many lines, 0: all, at equal distances: a test set may be sorted by length."""
    count = min(count or len(lines), len(lines))
    return [lines[index * len(lines) // count] for index in range(count)]


def test_set(data_dirs: Sequence[Path], recipe: Recipe, count: int) -> tuple[list[str], list[str]]:
    """Return so many sentences of the test set, 0: all, and their references.

    The test set is in the folder that has the recipe's validation text. Raises SystemExit if there is none.
    """
    languages = (recipe.data.source_language, recipe.data.target_language)
    for folder in data_dirs:
        for name in TEST_SETS:
            source, reference = (folder / name.format(language) for language in languages)
            if all(path.exists() for path in (source, *(folder / valid for valid in recipe.data.valid_source[:1]))):
                sources, references = parallel_lines(source, reference)
                return spread_over(sources, count), spread_over(references, count)
    names = " or ".join(name.format(languages[0]) for name in TEST_SETS)
    needed = " and ".join([*recipe.data.valid_source[:1], names])
    raise SystemExit(f"--data-dir {' '.join(map(str, data_dirs))}: expected a folder with {needed}")


# --- commands ---


def nmt(log: Path, *arguments: str | Path, cwd: Path | None = None) -> str:
    """Run a command of nmt and return its stdout; its messages are appended to the log. Raises SystemExit if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [*NMT, *map(str, arguments)]
    with log.open("a", encoding="utf-8") as messages:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=messages, text=True, check=False, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"nmt {' '.join(map(str, arguments))}: exit status {done.returncode}; see {log}")
    return done.stdout


def checked(command: Sequence[str], threads: int = 0) -> str:
    """Return what a command prints, both streams. Raises SystemExit with the end of that if it fails."""
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {}), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nfailed with status {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def sets(settings: Sequence[str]) -> list[str]:
    """Return settings as options of a command."""
    return [f"--set={setting}" for setting in settings]


def records(run: Path, kind: str = "") -> list[dict[str, Any]]:
    """Return the records of a run: all, or those of a kind."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [record for record in found if kind in ("", record["type"])]


# --- memory ---


class Memory:
    """The peak memory of a process and all below it, looked at ten times per second."""

    def __init__(self, root: int) -> None:
        self.root, self.peak, self.anonymous, self._end = root, 0.0, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            peak, anonymous = memory(self.root)
            self.peak, self.anonymous = max(self.peak, peak), max(self.anonymous, anonymous)

    def stop(self) -> tuple[float, float]:
        """Return the peaks in MiB: of all pages, and of those that are not a file's map."""
        self._end.set()
        self._thread.join()
        return self.peak, self.anonymous


def memory(root: int) -> tuple[float, float]:
    """Return the MiB of a process and its descendants, of all pages and of those that are not a file's map.

    Proportional set size: a page that several processes share counts once.
    """
    pss, anonymous = 0, 0
    for pid in _tree(root):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        fields = {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
        pss += fields.get("Pss", 0)
        anonymous += fields.get("Pss_Anon", fields.get("Anonymous", 0))
    return pss / 1024, anonymous / 1024


def _tree(root: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield root
    try:
        tasks = os.listdir(f"/proc/{root}/task")
        children = [Path(f"/proc/{root}/task/{task}/children").read_text(encoding="ascii").split() for task in tasks]
    except OSError:
        return
    for child in (child for of_task in children for child in of_task):
        yield from _tree(int(child))


# --- figures ---


def medians(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Ask each side in turn for a rate, and print it on stderr. Return the median of each side."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, run in sides.items():
            rates[name].append(run())
            print(f"round {number + 1}: {name:<28} {rates[name][-1]:>10,.0f}", file=sys.stderr, flush=True)
    return {name: statistics.median(values) for name, values in rates.items()}


def ratios(rates: Mapping[str, float], ours: Sequence[str], unit: str) -> None:
    """Print the rate of each side, and how many times as fast each of `ours` is."""
    rows = [["", unit, *(f"{name} ÷ it" for name in ours)]]
    rows += [[name, f"{rate:,.0f}", *(f"{rates[one] / rate:.2f}" for one in ours)] for name, rate in rates.items()]
    print_rows(rows)


def print_rows(rows: Sequence[Sequence[str]], markdown: bool = False) -> None:
    """Print rows of cells, the heads of the columns first: as a Markdown table, or in aligned columns."""
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        print("\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]), flush=True)
        return
    first_width, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths, strict=True)]
        print("  ".join([f"{first:<{first_width}}", *cells]).rstrip(), flush=True)
