"""The models that decode.py times, trained once and kept: base, base with 32,000 pieces, 12 + 1 layers.

    python benchmarks/decode_models.py benchmarks/decode.toml --data-dir TATOEBA --out FOLDER [--only NAME …] [--jobs 2] [--markdown]

Models of one vocabulary have one shallow model in common, which is trained first, in stages; each goes on from it with all of its layers (deepen.py).
For each training the commands of the README run: `nmt preprocess`, `nmt train` with its share of the cores, `nmt average`; then
`nmt translate` and `nmt score` on the validation text. The models are FOLDER/runs/NAME-1/averaged. The column "length" is the
words of the translations beside those of the references. Everything is kept; the same command goes on where it was stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from common import print_rows
from deepen import deepen
from trainings import OUTPUT_ERRORS, Job, arguments, chosen

from nmt_cli.hardware import cores


def shallow(stages: Sequence[Job]) -> Job:
    """Train a shallow model, each stage from the one before, if that was not done before. Return the last job."""
    job = stages[0]
    job.train()
    for after in stages[1:]:
        job = replace(after, settings=(*after.settings, f"train.init={job.run / 'averaged'}"))
        job.train()
    return job


def deep(job: Job, begun: Future[Job]) -> dict[str, Any]:
    """Train a model on from the shallow one. Return the figures of `result`."""
    start = job.run.with_name(f"{job.run.name}-start")
    if not start.exists():
        deepen(begun.result().run / "averaged", job.loaded, start)
    return result(replace(job, settings=(*job.settings, f"train.init={start}")))


def result(job: Job) -> dict[str, Any]:
    """Train, and score the validation text. Return the figures of both."""
    training, data = job.train(), job.loaded.data
    source, reference = ([job.data_dir / name for name in names] for names in (data.valid_source, data.valid_target))
    figures = job.score("valid", source, reference, [])
    words = [len((job.run / f"valid.{side}").read_text(encoding="utf-8").split()) for side in ("hyp", "reference")]
    return {**training, **figures, "length": words[0] / words[1]}


def row(name: str, settings: list[str], figures: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    return [
        name,
        " ".join(settings),
        f"{figures['updates']:,}",
        f"{figures['minutes']:.0f}",
        f"{figures['nll']:.3f}",
        f"{figures['bleu']:.2f}",
        f"{figures['length']:.3f}",
        " / ".join(str(figures[error]) for error in OUTPUT_ERRORS),
    ]


def main() -> None:
    """Train the models and print the table."""
    options, table = arguments(__doc__, "variants")
    variants: dict[str, list[str]] = table["variants"]
    threads = max(1, cores() // options.jobs)

    def job(name: str, settings: list[str]) -> Job:
        return Job(name, table["recipe"], tuple(settings), 1, options.data_dir, options.out, threads)

    jobs = {
        name: job(name, table["set"] + table["deep_set"] + variants[name]) for name in chosen(options.only, variants)
    }
    needed = {deeper.shards for deeper in jobs.values()}
    all_stages = [
        [
            job(name if not number else f"{name}, stage {number + 1}", table["set"] + table["shallow_set"] + settings)
            for number, settings in enumerate(stages)
        ]
        for name, stages in table["shallow"].items()
    ]
    first = {stages[0].shards: stages for stages in all_stages if stages[0].shards in needed}
    for stages in first.values():
        stages[0].preprocess()
    with ThreadPoolExecutor(options.jobs) as pool:
        begun = {shards: pool.submit(shallow, stages) for shards, stages in first.items()}
        running = {name: pool.submit(deep, each, begun[each.shards]) for name, each in jobs.items()}
        rows = [row(name, variants[name], future.result()) for name, future in running.items()]
    print_rows(
        [["model", "settings", "updates", "minutes", "NLL", "BLEU", "length", " / ".join(OUTPUT_ERRORS)], *rows],
        options.markdown,
    )


if __name__ == "__main__":
    main()
