"""What every benchmark needs: the text, the machine's name, medians of alternated runs."""

from __future__ import annotations

import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch

from nmt_cli import __version__
from nmt_cli.data.prepare import prepare
from nmt_cli.hardware import cores, has_fast_bf16, reproducible_products
from nmt_cli.lines import read_parallel
from nmt_cli.recipe import Recipe, load_recipe
from nmt_cli.translation.line_translator import LineTranslator, Request
from nmt_cli.translation.translation import Translation

BASE = [
    "model.encoder_layers=6",
    "model.decoder_layers=6",
    "model.d_model=512",
    "model.d_ff=2048",
    "model.num_heads=8",
    "model.dropout=0.1",
    "train.batch_tokens=2048",
    "data.vocab_size=8000",
]
SMALL = ["model.d_ff=256", "model.dropout=0.3", "data.vocab_size=10000", "train.batch_tokens=4096"]
"""Of the recipe multi30k_en_de: 4 + 4 layers, d_model 128; here d_ff 256."""


def setup(threads: int) -> None:
    """Threads as `nmt train` takes them; prints what the figures belong to."""
    reproducible_products()
    torch.set_num_threads(threads or cores())
    print(
        f"{date.today()} · nmt {__version__} · torch {torch.__version__} · Python {platform.python_version()} · {processor()}, {torch.get_num_threads()} threads · fast bf16: {has_fast_bf16('cpu')}"
    )


def processor() -> str:
    """The processor's name, as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def settings(data_dir: Path | None, small: bool) -> list[str]:
    """What makes the recipe of `shards` the base model or the small one; the embedded corpus has fewer pieces."""
    if data_dir:
        return SMALL if small else BASE
    return [] if small else BASE[:-1]


def shards(data_dir: Path | None, settings: Sequence[str]) -> tuple[Recipe, Path]:
    """Multi30k's recipe and shards where its text is at hand, else those of the embedded corpus."""
    recipe = load_recipe("multi30k_en_de" if data_dir else "demo", settings)
    folder = Path(tempfile.mkdtemp(prefix="nmt-bench-")) / "shards"
    prepare(recipe, [data_dir] if data_dir else [], folder)
    return recipe, folder


T = TypeVar("T")
TEST_SETS = ("test_2016_flickr.{}.gz", "test.{}")
"""Names of test sets, of Multi30k and of Tatoeba, for a language."""


def spread_over(lines: Sequence[T], count: int) -> list[T]:
    """So many lines, 0: all, at equal distances: a test set may be sorted by length."""
    count = min(count or len(lines), len(lines))
    return [lines[index * len(lines) // count] for index in range(count)]


def test_set(data_dirs: Sequence[Path], recipe: Recipe, count: int) -> tuple[list[str], list[str]]:
    """So many sentences of the test set, 0: all, and their references. It lies in the folder where the recipe's validation text does. Raises SystemExit where there is none."""
    languages = (recipe.data.source_language, recipe.data.target_language)
    for folder in data_dirs:
        for name in TEST_SETS:
            source, reference = (folder / name.format(language) for language in languages)
            if all(path.exists() for path in (source, *(folder / valid for valid in recipe.data.valid_source[:1]))):
                sources, references = parallel_lines(source, reference, 0)
                return spread_over(sources, count), spread_over(references, count)
    names = " or ".join(name.format(languages[0]) for name in TEST_SETS)
    needed = " and ".join([*recipe.data.valid_source[:1], names])
    raise SystemExit(f"--data-dir {' '.join(map(str, data_dirs))}: expected a folder with {needed}")


def parallel_lines(source: Path, reference: Path, count: int) -> tuple[list[str], list[str]]:
    """Return the first `count` lines (0: all) of a source file and of its references. Raises DataError."""
    pairs = list(islice(read_parallel([source], [reference]), count or None))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def timed(translator: LineTranslator, lines: Sequence[str | Request]) -> tuple[list[Translation], float]:
    """Return the translations of these lines, and the seconds that they took."""
    began = time.perf_counter()
    results = list(translator.translate(lines))
    return results, time.perf_counter() - began


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


def medians(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Ask each side in turn for a rate that it measures itself, and print it on stderr. Return the median of each side."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, run in sides.items():
            rates[name].append(run())
            print(f"round {number + 1}: {name:<28} {rates[name][-1]:>10,.0f}", file=sys.stderr, flush=True)
    return {name: statistics.median(values) for name, values in rates.items()}


def table(rates: dict[str, float], unit: str) -> None:
    """A line a side, and its ratio to the last."""
    *_, last = rates
    for name, rate in rates.items():
        print(f"  {name:<44} {rate:>10,.0f} {unit}   {rate / rates[last]:>6.2f} ×")


def ratios(rates: dict[str, float], ours: Sequence[str], unit: str) -> None:
    """A line a side, and how many times as fast each of `ours` is."""
    print(f"  {'':<28} {unit:>14}" + "".join(f"   {name + ' ÷ it':>22}" for name in ours))
    for name, rate in rates.items():
        print(f"  {name:<28} {rate:>14,.0f}" + "".join(f"   {rates[our_name] / rate:>22.2f}" for our_name in ours))


def print_rows(rows: Sequence[Sequence[str]], markdown: bool) -> None:
    """Print rows of cells, the heads of the columns first: as a Markdown table, or in aligned columns."""
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        print("\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]))
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        print(
            f"{first:<{widths[0]}}"
            + "".join(f"  {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        )
