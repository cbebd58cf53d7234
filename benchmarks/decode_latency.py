"""How long one line takes: in a fresh process, and line after line. Used by decode.py.

    cold   the wall time from a command's start to the first line that it prints; files are in the page cache
    warm   the median of lines that are given one by one: within a process, and through the pipes of `nmt translate`

Beside ours stand `import torch`, below which nothing built on it can start, and CTranslate2 as its users would write it.
All have all threads for the one line; in the warm part CTranslate2 has one or all, whichever is faster.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from decode_sides import Job, Process, pipes, started, tokenizers

WARMUP = 5
"""Lines that do not count."""
CTRANSLATE2 = """\
import sys, ctranslate2, sentencepiece
source, target = (sentencepiece.SentencePieceProcessor(model_file=file) for file in {files!r})
translator = ctranslate2.Translator({folder!r}, device="cpu", compute_type={precision!r}, inter_threads=1, intra_threads={threads})
pieces = source.encode([line.rstrip("\\n") for line in sys.stdin], out_type=str)
longest = max(map(len, pieces)) + {max_extra}
results = translator.translate_batch(pieces, beam_size={beam}, length_penalty={length_penalty}, max_decoding_length=longest, min_decoding_length={min_length}, max_input_length=0)
print(*(target.decode(result.hypotheses[0]) for result in results), sep="\\n")
"""


def latencies(ours: Sequence[Job], peers: Sequence[Job], threads: int, lines: list[str], rounds: int) -> None:
    """Print both; `ours` and `peers` (CTranslate2's) say folder and precision, and `lines` are given in the warm part."""
    alone = [replace(job, workers=1, threads=threads) for job in (*ours, *peers)]
    model = ours[0].folder
    translate = [
        sys.executable,
        "-m",
        "nmt_cli",
        "translate",
        "--model",
        model,
        "--devices",
        str(threads),
        "--precision",
    ]
    commands = {
        f"nmt translate --precision {precision}": [*translate, precision]
        for precision in ("auto", *(job.precision for job in ours))
    }
    cold: dict[str, tuple[list[str], Mapping[str, str]]] = {name: (command, {}) for name, command in commands.items()}
    cold |= {
        job.name: (
            [sys.executable, "-c", CTRANSLATE2.format(**vars(job) | {"files": tokenizers(job.folder)})],
            job.environment,
        )
        for job in alone
        if job.kind != "nmt"
    }
    cold["import torch"] = ([sys.executable, "-c", "import torch; print(torch.__version__)"], {})
    seconds: dict[str, list[float]] = {name: [] for name in cold}
    for _ in range(rounds):
        for name, (command, environment) in cold.items():
            seconds[name].append(first_line(command, threads, environment, lines[0]))
    print(f"\nfirst line of a fresh process, median of {rounds}")
    for name, times in seconds.items():
        _print_row(name, statistics.median(times), "s")
    print(f"\nline after line, {len(lines)} lines, median of a line")
    for job in alone:
        choices = {1, threads} if job.kind != "nmt" else {threads}
        medians = {count: warm(replace(job, threads=count), lines) for count in sorted(choices)}
        best = min(medians, key=medians.__getitem__)
        chosen = f", threads: {best}" if len(medians) > 1 else ""
        _print_row(f"{job.name}, within a process{chosen}", medians[best] * 1e3, "ms")
    for name, command in commands.items():
        _print_row(f"{name}, on a pipe", piped(command, threads, lines) * 1e3, "ms")


def warm(job: Job, lines: Sequence[str]) -> float:
    """Median seconds of a line within a process."""
    with Process(job) as side:
        return statistics.median(side([[line] for line in lines]).seconds[WARMUP:])


def first_line(command: Sequence[str], threads: int, environment: Mapping[str, str], text: str) -> float:
    """Seconds from the command's start to the first line that it prints; nan where it prints none."""
    began = time.perf_counter()
    with started(command, threads, environment, subprocess.DEVNULL) as process:
        stdin, stdout = pipes(process)
        stdin.write(text + "\n")
        stdin.close()
        line = stdout.readline()
        return time.perf_counter() - began if line else math.nan


def piped(command: Sequence[str], threads: int, lines: Sequence[str]) -> float:
    """Median seconds from a line given to the command until its translation is there; nan where it ends before."""
    seconds = []
    with started(command, threads, {}, subprocess.DEVNULL) as process:
        stdin, stdout = pipes(process)
        for line in lines:
            began = time.perf_counter()
            stdin.write(line + "\n")
            stdin.flush()
            if not stdout.readline():
                return math.nan
            seconds.append(time.perf_counter() - began)
        stdin.close()
    return statistics.median(seconds[WARMUP:])


def _print_row(name: str, value: float, unit: str) -> None:
    print(f"  {name:<44} " + (f"{value:>10,.2f} {unit}" if math.isfinite(value) else f"{'–':>10}"), flush=True)
