"""Firefox's models: nmt after `nmt import`, beside the engines that were made for them.

    python benchmarks/students.py --model DIR --files FOLDER --source FILE [--bergamot PYTHON] [--fxtranslate PYTHON] [--rounds 3]

FOLDER holds the maker's files (model.*.bin, vocab.*.spm, lex.*.bin), DIR is what `nmt import` made of them. Greedy, one core: every
side is a whole process, from its start to its last line, and they take turns. "words/CPU s" are source words a second of processor
time; "start" is the time of a process that translates one line; "line" is the time of a line alone, in a process that stays; "MiB" is
the largest memory. The peers use their shortlist (bergamot 0.4.5, for Python 3.10; fxtranslate 0.5.0); nmt and "no list" the whole
vocabulary. PYTHON are interpreters that have the packages (pip install --no-deps); what is not given is left out.

With --reference TSV (a column of translations, --column counts from 0) it also prints chrF against it and how many lines are equal.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import NMT, Memory, print_rows, setup

from nmt_cli.evaluation.metrics import compute
from nmt_cli.text.lines import open_binary

LATENCY_LINES, LATENCY_WARMUP = 60, 10
"""Lines that are given one by one, and the first of them, which do not count."""
PEERS = ("bergamot", "fxtranslate", "fxtranslate, no list")
SIDE = r"""
import importlib.util, pathlib, sys, types
kind, folder, stream = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3] == "stream"
(model,), (vocabulary,), (shortlist,) = (sorted(folder.glob(p)) for p in ("model.*.bin", "vocab.*.spm", "lex.*.bin"))
if kind == "bergamot":
    package = types.ModuleType("bergamot")  # its own start downloads
    package.__path__ = list(importlib.util.find_spec("bergamot").submodule_search_locations)
    sys.modules["bergamot"] = package
    from bergamot import _bergamot as engine
    service = engine.Service(engine.ServiceConfig(numWorkers=1, cacheSize=0, logLevel="off"))
    loaded = service.modelFromConfig(
        f"models: [{model}]\nvocabs: [{vocabulary}, {vocabulary}]\nshortlist: [{shortlist}, false]\nbeam-size: 1\nnormalize: 1.0\n"
        "word-penalty: 0\nmax-length-break: 256\nmini-batch-words: 1024\nworkspace: 128\nmax-length-factor: 2.5\nskip-cost: true\n"
        "cpu-threads: 0\nquiet: true\nquiet-translation: true\ngemm-precision: int8shiftAlphaAll\nalignment: soft\n")
    options = engine.ResponseOptions(alignment=False, qualityScores=False, HTML=False)
    translate = lambda lines: [r.target.text for r in service.translate(loaded, engine.VectorString(lines), options)]
else:
    from fxtranslate import Translator
    pieces = vocabulary.read_bytes()
    one = Translator(model.read_bytes(), pieces, pieces, None if "no list" in kind else shortlist.read_bytes())
    translate = lambda lines: [one.translate(line) for line in lines]
for lines in ([line] for line in sys.stdin) if stream else [sys.stdin.readlines()]:
    for text in translate([line.rstrip("\n") for line in lines]):
        print(text.replace("\n", " "), flush=stream)
"""
"""A peer's program, as its users would write it."""


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file, plain or compressed."""
    with open_binary(path) as file:
        return file.read().decode("utf-8").removesuffix("\n").split("\n")


def whole(command: Sequence[str], source: Path, out: Path) -> tuple[float, float, float]:
    """Run a process over a file. Return its processor time, its time, both in seconds, and its largest memory in MiB."""
    begin = time.perf_counter()
    with source.open("rb") as lines, out.open("wb") as texts:
        process = subprocess.Popen(command, stdin=lines, stdout=texts, stderr=subprocess.DEVNULL)
        memory = Memory(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)[:300]}\nfailed with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - begin, memory.stop()[0]


def line_alone(command: Sequence[str], lines: Sequence[str]) -> float:
    """Return the median time of a line in a process that stays, in milliseconds."""
    times = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin
        assert process.stdout
        for line in lines:
            begin = time.perf_counter()
            print(line, file=process.stdin, flush=True)
            process.stdout.readline()
            times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times[LATENCY_WARMUP:])


def commands(options: argparse.Namespace) -> dict[str, tuple[list[str], list[str]]]:
    """Return for each side the command for a whole file, and that for line after line."""
    one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
    model = ["--model", str(options.model), "--device", "cpu", "--devices", "1", "--beam", "1"]
    ours = [*one_core, *NMT, "translate", *model, "--precision", "int8", "--set", "decode.placeholders=false"]
    sides = {"nmt": (ours, ours)}
    for peer in PEERS:
        if python := getattr(options, peer.partition(",")[0]):
            command = [*one_core, python, "-c", SIDE, peer, str(options.files)]
            sides[peer] = [*command, "whole"], [*command, "stream"]
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--files", type=Path, default=Path())
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=0, help="the first N lines; 0: all")
    parser.add_argument("--bergamot", default="")
    parser.add_argument("--fxtranslate", default="")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--column", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    setup(1)
    lines = [line for line in lines_of(options.source) if line.strip()][: options.lines or None]
    words = sum(len(line.split()) for line in lines)
    with tempfile.TemporaryDirectory(prefix="nmt-bench-") as scratch:
        folder, found = Path(scratch), dict[str, list[tuple[float, float, float, float, float]]]()
        (folder / "lines").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        (folder / "line").write_text("Hello.\n", encoding="utf-8")
        sides = commands(options)
        for number in range(options.rounds):
            for name, (command, stream) in sides.items():
                start = whole(command, folder / "line", folder / "first")[1]
                cpu, wall, peak = whole(command, folder / "lines", folder / name)
                alone = line_alone(stream, lines[:LATENCY_LINES])
                found.setdefault(name, []).append((words / cpu, words / wall, start, alone, peak))
                print(f"round {number + 1}: {name:<22} {words / cpu:>9,.0f}", file=sys.stderr, flush=True)
        rows = [["", "words/CPU s", "words/s", "start, s", "line, ms", "MiB", "nmt ÷ it", "chrF", "equal"]]
        columns = {name: zip(*rounds, strict=True) for name, rounds in found.items()}
        middle = {name: list(map(statistics.median, of_side)) for name, of_side in columns.items()}
        for name, (rate, speed, start, alone, peak) in middle.items():
            cells = [f"{rate:,.0f}", f"{speed:,.0f}", f"{start:.2f}", f"{alone:.1f}", f"{peak:.0f}"]
            cells.append(f"{middle['nmt'][0] / rate:.2f}")
            rows.append([name, *cells, *_beside(options, lines_of(folder / name), len(lines))])
        print_rows(rows)


def _beside(options: argparse.Namespace, texts: Sequence[str], count: int) -> list[str]:
    """Return chrF of the texts against the reference, and how many lines are equal; "" without one."""
    if not options.reference:
        return ["", ""]
    expected = [line.split("\t")[options.column] for line in lines_of(options.reference)][:count]
    score = compute("chrf", texts, [expected]).value
    return [f"{score:.1f}", str(sum(map(str.__eq__, texts, expected)))]


if __name__ == "__main__":
    main()
