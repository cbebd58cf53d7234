"""The scores of the recipes that are published in the README: several seeds of each, and each test set read once per seed.

    python benchmarks/scores.py benchmarks/scores.toml --data-dir DIR --out FOLDER [--only RECIPE,RECIPE] [--seeds 1,2,3] [--jobs 2] [--markdown]

For each recipe of the table, and each seed, the commands of the README run: `nmt preprocess`, `nmt train`, `nmt average`,
`nmt translate` on each test set, and `nmt score` with its checks of outputs. `--jobs` trains so many side by side, each
with its share of the cores. Everything is kept in FOLDER; the same command goes on where an earlier one was stopped, and
never translates a test set twice. The figures of each training are also in FOLDER/RECIPE-SEED.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any

from common import print_rows, processor
from trainings import FAULTS, Job, arguments, chosen, mean, spread

from nmt_cli import __version__
from nmt_cli.hardware import cores


def result(job: Job, entry: dict[str, Any]) -> dict[str, Any]:
    """Train, and score every test set. Return the figures of the training and those of each test set, by name."""
    trained = {**job.train(), "date": str(date.today()), "version": __version__, "machine": processor(), "threads": job.threads}
    tests = {name: job.score(name, [job.data_dir / source], [job.data_dir / reference], entry.get("score", [])) for name, (source, reference) in entry["tests"].items()}
    figures = {**trained, "tests": tests}
    (job.out / f"{job.run.name}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(f"{job.run.name}: {trained['minutes']:.0f} min, " + ", ".join(f"{name} {test['bleu']:.2f}" for name, test in tests.items()), file=sys.stderr, flush=True)
    return figures


def rows(recipe: str, entry: dict[str, Any], figures: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each test set: BLEU, its published figure, chrF, faults, minutes; means of all seeds."""
    minutes = f"{mean(one['minutes'] for one in figures):.0f}"
    return [
        [
            recipe,
            name,
            spread([one["tests"][name]["bleu"] for one in figures]),
            str(entry.get("published", {}).get(name, "")),
            f"{mean(one['tests'][name]['chrf'] for one in figures):.2f}",
            " / ".join(f"{mean(one['tests'][name][fault] for one in figures):g}" for fault in FAULTS),
            minutes,
        ]
        for name in entry["tests"]
    ]


def main() -> None:
    """Train the recipes and print the table."""
    options, table = arguments(__doc__, "recipes")
    names, threads = chosen(options.only, table), max(1, cores() // options.jobs)
    jobs = {name: [Job(name, name, (), seed, options.data_dir, options.out, threads) for seed in options.seeds] for name in names}
    for of_recipe in jobs.values():
        of_recipe[0].preprocess()
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {name: [pool.submit(result, job, table[name]) for job in of_recipe] for name, of_recipe in jobs.items()}
        done = [row for name, futures in running.items() for row in rows(name, table[name], [future.result() for future in futures])]
    print_rows([["recipe", "test set", "BLEU", "published", "chrF", " / ".join(FAULTS), "minutes"], *done], options.markdown)


if __name__ == "__main__":
    main()
