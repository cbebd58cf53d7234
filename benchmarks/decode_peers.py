"""The jobs of decode.py's sides: ours in each precision, and the peers' at their best settings.

    model folder ──▶ `nmt export`'s own conversion, proven equal ──▶ CTranslate2: a sweep of settings, on few sentences
                                                                 └─▶ Hugging Face: as it is

Of CTranslate2 each compute type that it has for this CPU is tried: first the libraries and instructions that its
environment variables choose, then workers x threads, then the size of a batch; what was fastest stays for the next.
Hugging Face is slow: its sides are given `HF_SENTENCES` alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from decode_sides import Job, Process

from nmt_cli.errors import NmtError
from nmt_cli.exchange.convert import export
from nmt_cli.hardware import cpu_flags

COMPUTE_TYPES = ("int8", "int8_bfloat16", "bfloat16", "float32")
BATCHES = (32, 64)
HF_SENTENCES, HF_BATCH = 100, 32
SWEEP_ROUNDS, WARMUP = 2, 32
"""Runs of a setting, of which the faster counts; sentences that warm a side up."""

Count = Callable[[Sequence[str]], int]
"""Target tokens of translations."""


def ours(model: Path, threads: int) -> list[Job]:
    """The precisions of the engine, a worker for each core."""
    return [
        Job(name=f"nmt, {precision}", kind="nmt", folder=str(model), precision=precision, workers=threads, threads=1)
        for precision in ("int8", "fp32")
    ]


def exported(model: Path, kind: str, work: Path, threads: int) -> Job | None:
    """The model in the library `kind`, all threads in one worker; None and a remark where it cannot be had."""
    library = {"huggingface": "transformers"}.get(kind, kind)
    if importlib.util.find_spec(library) is None:
        print(f"{kind}: {library} is not installed; left out", flush=True)
        return None
    try:
        trained = export(model, kind, work / kind).source_model
    except NmtError as error:
        print(f"{kind}: left out: {error}", flush=True)
        return None
    decode = trained.recipe.decode
    return Job(
        name=kind,
        kind=kind,
        folder=str(work / kind),
        precision="float32",
        workers=1,
        threads=threads,
        batch=BATCHES[0],
        beam=decode.beam,
        length_penalty=trained.length_penalty,
        max_extra=decode.max_extra,
        min_length=decode.min_length,
    )


def ctranslate2_jobs(model: Path, work: Path, threads: int, lines: list[str], count: Count) -> list[Job]:
    """The best int8 side and the best float32 side; the sweep over `lines` is printed."""
    job = exported(model, "ctranslate2", work, threads)
    if job is None:
        return []
    supported: set[str] = importlib.import_module("ctranslate2").get_supported_compute_types("cpu")
    missing = [kind for kind in COMPUTE_TYPES if kind not in supported]
    print(
        f"CTranslate2's settings, {len(lines)} sentences, the faster of {SWEEP_ROUNDS} runs, target tok/s"
        + (f"; not for this CPU: {', '.join(missing)}" if missing else "")
    )
    best = {
        kind: _swept(replace(job, precision=kind), threads, lines, count) for kind in COMPUTE_TYPES if kind in supported
    }
    fastest = [
        max(
            ((rate, job) for kind, (job, rate) in best.items() if kind.startswith("int8") == eighth),
            key=lambda pair: pair[0],
        )
        for eighth in (True, False)
    ]
    return [replace(job, name=f"CTranslate2, {job.precision}") for _, job in fastest]


def _swept(job: Job, threads: int, lines: list[str], count: Count) -> tuple[Job, float]:
    """The fastest of the settings of one compute type, and its target tokens a second."""
    steps: list[list[dict[str, Any]]] = [
        [{"environment": environment, "workers": threads, "threads": 1} for environment in _environments()],
        [{"workers": 1, "threads": threads}] if threads > 1 else [],
        [{"batch": batch} for batch in BATCHES[1:]],
    ]
    best, rate = job, 0.0
    for step in steps:
        candidates = [replace(best, **setting) for setting in step]
        for candidate in candidates:
            candidate_rate = _rate(candidate, lines, count)
            print(f"  {candidate_rate:>8,.0f}  {candidate.precision}, {described(candidate)}", flush=True)
            best, rate = (candidate, candidate_rate) if candidate_rate > rate else (best, rate)
    print(f"  best of {best.precision}: {described(best)}", flush=True)
    return best, rate


def _environments() -> list[dict[str, str]]:
    """Its own choice is among them."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return [{}]
    isas: list[dict[str, str]] = [{}, {"CT2_FORCE_CPU_ISA": "AVX512"}] if "avx512f" in cpu_flags() else [{}]
    return [{"CT2_USE_MKL": mkl, **isa} for mkl in "01" for isa in isas]


def _rate(job: Job, lines: list[str], count: Count) -> float:
    """Target tokens a second of a fresh process, warmed up."""
    with Process(job) as side:
        side([lines[:WARMUP]])
        answers = [side([lines]) for _ in range(SWEEP_ROUNDS)]
    return count(answers[0].texts) / min(answer.seconds[0] for answer in answers)


def described(job: Job) -> str:
    """Its settings in words."""
    threads = f"{job.workers} worker{'s' * (job.workers > 1)} x {job.threads} thread{'s' * (job.threads > 1)}"
    variables = [f"{name}={value}" for name, value in job.environment.items()]
    return ", ".join([threads, *([f"batches of {job.batch}"] if job.batch else []), *variables])


def huggingface_jobs(model: Path, work: Path, threads: int) -> list[Job]:
    """bf16 and fp32."""
    job = exported(model, "huggingface", work, threads)
    if job is None:
        return []
    job = replace(job, batch=HF_BATCH, sentences=HF_SENTENCES)
    return [
        replace(job, name=f"Hugging Face, {name}", precision=precision)
        for name, precision in (("bf16", "bfloat16"), ("fp32", "float32"))
    ]
