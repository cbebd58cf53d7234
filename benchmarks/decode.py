"""Target tokens per second of beam search over real sentences, and what one line takes, beside CTranslate2 on the same weights.

    python benchmarks/decode.py --data-dir DATA --model DIR [--beam 4] [--alpha 0.6] [--peers ctranslate2] [--rounds 3]

The weights are exported by `nmt export`. Every side translates the test set (Multi30k's of 2016, or Tatoeba's) as a whole job,
text in and text out, in a process of its own (decode_side.py); the sides alternate, and figures are medians. CTranslate2 runs
at its best settings for int8 and for float32: of each compute type that it has for this CPU, first the libraries and instructions
that its environment variables choose, then workers x threads, then the size of a batch. If it is not installed, nmt runs alone.

The tokens of a side are those of its own translations in our tokenizer, end symbols counted. "length" is the words of the
translations beside those of the references. "peak" is the largest memory of the side's own process, loading included; "all" is
that of the process and its workers while they translate, where a page that several processes share counts once.

Then one line: in a fresh process (the wall time from the command's start to its first line of output; files are in the page cache),
and line after line within a process, where CTranslate2 has one thread or all, whichever is faster.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from common import NMT, Memory, medians, print_rows, setup, spread_over, test_set
from decode_side import Answer, Job, Process, pipes, started, tokenizers

from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.device.processor import cpu_flags
from nmt_cli.errors import NmtError
from nmt_cli.evaluation.metrics import compute
from nmt_cli.exchange.convert import export
from nmt_cli.model.folder_files import CONFIG, find_model, read_config
from nmt_cli.recipe import Recipe
from nmt_cli.storage.sealed_json import to_json

COMPUTE_TYPES = ("int8", "int8_bfloat16", "bfloat16", "float32")
BATCHES = (32, 64)
SWEEP_ROUNDS, WARMUP = 2, 32
"""Runs of a setting, of which the faster counts; sentences that warm a side up."""
LATENCY_LINES, LATENCY_WARMUP = 40, 5
"""Lines that are given one by one, and the first of them, which do not count."""
ONE_LINE = """\
import sys, ctranslate2, sentencepiece
source, target = (sentencepiece.SentencePieceProcessor(model_file=file) for file in {files!r})
translator = ctranslate2.Translator({folder!r}, device="cpu", compute_type={precision!r}, inter_threads=1, intra_threads={threads})
pieces = source.encode([line.rstrip("\\n") for line in sys.stdin], out_type=str)
longest = max(map(len, pieces)) + {max_extra}
results = translator.translate_batch(pieces, beam_size={beam}, length_penalty={length_penalty}, max_decoding_length=longest, min_decoding_length={min_length}, max_input_length=0)
print(*(target.decode(result.hypotheses[0]) for result in results), sep="\\n")
"""
"""CTranslate2 as its users would write it."""

Count = Callable[[Sequence[str]], int]
"""Target tokens of translations."""


# --- the jobs ---


def nmt_jobs(model: Path, threads: int) -> list[Job]:
    """Return the precisions of the engine, with a worker for each core."""
    return [
        Job(name=f"nmt, {precision}", kind="nmt", folder=str(model), precision=precision, workers=threads, threads=1)
        for precision in ("int8", "fp32")
    ]


def ctranslate2_jobs(model: Path, work: Path, threads: int, lines: list[str], count: Count) -> list[Job]:
    """Return the best int8 side and the best float32 side; the sweep over `lines` is printed."""
    if importlib.util.find_spec("ctranslate2") is None:
        print("ctranslate2 is not installed; left out", flush=True)
        return []
    try:
        trained = export(model, "ctranslate2", work).source_model
    except NmtError as error:
        print(f"ctranslate2: left out: {error}", flush=True)
        return []
    decode = trained.recipe.decode
    shape: dict[str, Any] = {"kind": "ctranslate2", "workers": 1, "threads": threads, "batch": BATCHES[0]}
    shape |= {"beam": decode.beam, "length_penalty": trained.length_penalty}
    shape |= {"max_extra": decode.max_extra, "min_length": decode.min_length}
    job = Job(name="CTranslate2", folder=str(work), precision="float32", **shape)
    supported: set[str] = importlib.import_module("ctranslate2").get_supported_compute_types("cpu")
    missing = [kind for kind in COMPUTE_TYPES if kind not in supported]
    lacking = f"; not for this CPU: {', '.join(missing)}" if missing else ""
    runs = f"{len(lines)} sentences, the faster of {SWEEP_ROUNDS} runs, target tok/s{lacking}"
    print(f"CTranslate2 {version('ctranslate2')}, {runs}")
    found = [_swept(replace(job, precision=kind), threads, lines, count) for kind in COMPUTE_TYPES if kind in supported]
    kinds = ([one for one in found if one[1].precision.startswith("int8") == is_int8] for is_int8 in (True, False))
    fastest = (max(kind, key=lambda one: one[0])[1] for kind in kinds)
    return [replace(job, name=f"CTranslate2, {job.precision}") for job in fastest]


def _swept(job: Job, threads: int, lines: list[str], count: Count) -> tuple[float, Job]:
    """Return the target tokens per second of the fastest of the settings of one compute type, and its job."""
    steps: list[list[dict[str, Any]]] = [
        [{"environment": environment, "workers": threads, "threads": 1} for environment in _environments()],
        [{"workers": 1, "threads": threads}] if threads > 1 else [],
        [{"batch": batch} for batch in BATCHES[1:]],
    ]
    best = 0.0, job
    for step in steps:
        for candidate in [replace(best[1], **setting) for setting in step]:
            rate = _rate(candidate, lines, count)
            print(f"  {rate:>8,.0f}  {candidate.precision}, {candidate.settings}", flush=True)
            best = max(best, (rate, candidate), key=lambda one: one[0])
    return best


def _environments() -> list[dict[str, str]]:
    """Return values of CTranslate2's variables; what it chooses itself is among them."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return [{}]
    isas: list[dict[str, str]] = [{}, {"CT2_FORCE_CPU_ISA": "AVX512"}] if "avx512f" in cpu_flags() else [{}]
    return [{"CT2_USE_MKL": mkl, **isa} for mkl in "01" for isa in isas]


def _rate(job: Job, lines: list[str], count: Count) -> float:
    """Return the target tokens per second of a fresh process, warmed up."""
    with Process(job) as side:
        side([lines[:WARMUP]])
        answers = [side([lines]) for _ in range(SWEEP_ROUNDS)]
    return count(answers[0].texts) / min(answer.seconds[0] for answer in answers)


# --- whole jobs ---


class Sides:
    """Processes that take turns; keeps what each answered last, and the MiB of each with the processes that it starts."""

    def __init__(self, lines: list[str], count: Count) -> None:
        self.lines, self.count, self.answers, self.memory = lines, count, dict[str, Answer](), dict[str, float]()

    def run(self, side: Process) -> float:
        """Return the target tokens per second of one run."""
        answer = self.answers[side.job.name] = side([self.lines])
        return self.count(answer.texts) / answer.seconds[0]

    def rates(self, jobs: Sequence[Job], rounds: int) -> dict[str, float]:
        """Return the median target tokens per second of each."""
        with ExitStack() as stack:
            sides = [stack.enter_context(Process(job)) for job in jobs]
            for side in sides:
                side([self.lines[:WARMUP]])
            rates = medians({side.job.name: partial(self.run, side) for side in sides}, rounds)
            for side in sides:  # after the rounds: looking takes time
                memory = Memory(side.process.pid)
                self.run(side)
                self.memory[side.job.name] = memory.stop()[0]
        return rates


def compare(
    model: Path, data_dirs: Sequence[Path], peers: Sequence[str], sentences: int, swept: int, rounds: int
) -> None:
    """Print the table of whole jobs, and that of single lines."""
    recipe, vocabulary = Recipe.from_dict(read_config(model).recipe, str(model)), Vocabulary.load(model)
    source, reference = test_set(data_dirs, recipe, sentences)
    threads, shape = torch.get_num_threads(), recipe.model

    def count(texts: Sequence[str]) -> int:
        return sum(len(ids) + 1 for ids in vocabulary.target.encode(texts))

    sizes = f"{shape.encoder_layers} + {shape.decoder_layers} layers, d_model {shape.d_model}"
    text = f"{vocabulary.target_size:,} subwords, {len(source)} sentences"
    print(f"beam {recipe.decode.beam}: {sizes}, {text}; median of {rounds}", flush=True)
    with tempfile.TemporaryDirectory(prefix="nmt-bench-") as work:
        jobs = nmt_jobs(model, threads)
        if "ctranslate2" in peers:
            jobs += ctranslate2_jobs(model, Path(work) / "ctranslate2", threads, spread_over(source, swept), count)
        sides = Sides(source, count)
        rates = sides.rates(jobs, rounds)
        _print_whole_jobs(jobs, sides, rates, reference)
        latencies(jobs, threads, spread_over(source, LATENCY_LINES), rounds)


def _print_whole_jobs(jobs: Sequence[Job], sides: Sides, rates: Mapping[str, float], reference: Sequence[str]) -> None:
    """Print a row for each side. A ratio is that to CTranslate2 in the same precision."""
    peers = {job.precision.startswith("int8"): rates[job.name] for job in jobs if job.kind != "nmt"}
    exact = sides.answers["nmt, fp32"].texts
    rows = [["", "target tok/s", "÷ CTranslate2", "BLEU", "length", "empty", "as nmt fp32", "peak MiB", "all MiB", ""]]
    words = sum(len(text.split()) for text in reference)
    for job in jobs:
        answer, rate, peer = sides.answers[job.name], rates[job.name], peers.get(job.precision.startswith("int8"))
        bleu, length = compute("bleu", answer.texts, [reference]).value, sum(len(text.split()) for text in answer.texts)
        empty = sum(not text.strip() for text in answer.texts)
        equal = sum(a.strip() == b.strip() for a, b in zip(answer.texts, exact, strict=True)) / len(exact)
        row = [job.name, f"{rate:,.0f}", f"{rate / peer:.2f}" if peer else "–", f"{bleu:.2f}", f"{length / words:.3f}"]
        memory = [f"{answer.peak / 2**20:,.0f}", f"{sides.memory[job.name]:,.0f}"]
        rows.append([*row, str(empty), f"{equal:.1%}", *memory, job.settings])
    print()
    print_rows(rows)


# --- one line ---


def latencies(jobs: Sequence[Job], threads: int, lines: list[str], rounds: int) -> None:
    """Print the seconds of a first line, and those of each line that is given alone."""
    alone = [replace(job, workers=1, threads=threads) for job in jobs]
    commands = {job.name: (_one_line(job), job.environment) for job in alone}
    commands["import torch"] = ([sys.executable, "-c", "import torch; print(torch.__version__)"], {})
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, (command, environment) in commands.items():
            seconds[name].append(first_line(command, threads, environment, lines[0]))
    rows = [["", "first line, s", "line after line, ms", ""]]
    for job in alone:
        choices = sorted({threads} if job.kind == "nmt" else {1, threads})
        taken = {count: warm(replace(job, threads=count), lines) for count in choices}
        best = min(taken, key=taken.__getitem__)
        first = f"{statistics.median(seconds[job.name]):.2f}"
        rows.append([job.name, first, f"{taken[best] * 1e3:.1f}", f"threads: {best}" * (len(taken) > 1)])
    rows.append(["import torch", f"{statistics.median(seconds['import torch']):.2f}", "", ""])
    print(f"\none line; medians of {rounds} processes, and of {len(lines)} lines")
    print_rows(rows)


def _one_line(job: Job) -> list[str]:
    """Return the command that translates a line."""
    if job.kind != "nmt":
        return [sys.executable, "-c", ONE_LINE.format(**vars(job) | {"files": tokenizers(job.folder)})]
    options = f"--set decode.placeholders=false --devices {job.threads} --precision {job.precision}".split()
    return [*NMT, "translate", "--model", job.folder, *options]


def warm(job: Job, lines: Sequence[str]) -> float:
    """Return the median seconds of a line within a process."""
    with Process(job) as side:
        return statistics.median(side([[line] for line in lines]).seconds[LATENCY_WARMUP:])


def first_line(command: Sequence[str], threads: int, environment: Mapping[str, str], text: str) -> float:
    """Return the seconds from the command's start to the first line that it prints; nan if it prints none."""
    began = time.perf_counter()
    with started(command, threads, environment, subprocess.DEVNULL) as process:
        stdin, stdout = pipes(process)
        stdin.write(text + "\n")
        stdin.close()
        line = stdout.readline()
        return time.perf_counter() - began if line else math.nan


def with_search(model: Path, work: Path, search: dict[str, float]) -> Path:
    """Return the model folder with these values in [decode] of its recipe: a copy in `work`, or itself if there are none."""
    if not search:
        return model
    config = read_config(model)
    shutil.copytree(model, work)
    changed = config.model_copy(update={"recipe": config.recipe | {"decode": config.recipe["decode"] | search}})
    (work / CONFIG).write_bytes(to_json(changed))
    return work


def main() -> None:
    """Read the options and measure each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, action="append", required=True, help="of each corpus; repeatable")
    parser.add_argument("--model", type=Path, action="append", required=True, help="a trained model; repeatable")
    parser.add_argument("--beam", type=int, help="default: the recipe's")
    parser.add_argument("--alpha", type=float, help="default: the recipe's")
    parser.add_argument("--peers", default="ctranslate2", help="%(default)s, or nothing")
    parser.add_argument("--sentences", type=int, default=0, help="default: all of the test set")
    parser.add_argument("--sweep", type=int, default=200, help="sentences on which CTranslate2's settings are chosen")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    setup(options.threads)
    search = {name: getattr(options, name) for name in ("beam", "alpha") if getattr(options, name) is not None}
    for model in options.model:
        print(f"\n{model.name}: ", end="")
        with tempfile.TemporaryDirectory(prefix="nmt-bench-") as work:
            chosen = with_search(find_model(model).resolve(), Path(work) / "model", search)
            peers = options.peers.split(",")
            compare(chosen, options.data_dir, peers, options.sentences, options.sweep, options.rounds)


if __name__ == "__main__":
    main()
