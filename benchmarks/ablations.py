"""What each setting of a recipe is worth: one training per variant, scored on validation text.

    python benchmarks/ablations.py TABLE.toml --data-dir DIR --out FOLDER [--only NAME …] [--seeds 1,2] [--jobs 2] [--markdown]

TABLE.toml names a recipe, settings of all variants, and the variants, each with settings of its own:

    recipe = "multi30k_en_de_tok"
    set = ["train.updates=6000"]
    score = ["--tokenize", "none"]   # options of nmt score

    [variants]
    baseline = []
    "R-Drop 3" = ["train.r_drop=3"]

For each variant and seed the commands of the README run: `nmt preprocess`, `nmt train` with one thread, `nmt average`,
`nmt translate` on the recipe's validation text, and `nmt score` with its checks of outputs. Variants of the same [data]
share their shards. Test text is never read. `--jobs` trains so many variants side by side, one core each. Everything is
kept in FOLDER; the same command goes on where an earlier one was stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from common import print_rows
from trainings import OUTPUT_ERRORS, Job, arguments, chosen, mean, spread


def result(job: Job, score: Sequence[str]) -> dict[str, Any]:
    """Train, and score the recipe's validation text. Return the figures."""
    data = job.loaded.data
    source, target = ([job.data_dir / name for name in names] for names in (data.valid_source, data.valid_target))
    return {**job.train(), **job.score("valid", source, target, score)}


def row(variant: str, settings: Sequence[str], figures: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row of the table; of several seeds, the mean, and the lowest and highest BLEU."""
    average = {key: mean(run[key] for run in figures) for key in ("chrf", "nll", "updates", "minutes", *OUTPUT_ERRORS)}
    errors = " / ".join(f"{average[error]:g}" for error in OUTPUT_ERRORS)
    return [
        variant,
        " ".join(settings),
        f"{average['updates']:,.0f}",
        f"{average['minutes']:.0f}",
        f"{average['nll']:.3f}",
        spread([run["bleu"] for run in figures]),
        f"{average['chrf']:.2f}",
        errors,
    ]


def main() -> None:
    """Train the variants and print the table."""
    options, table = arguments(__doc__, "variants")
    variants: dict[str, list[str]] = table["variants"]
    names = chosen(options.only, variants)
    jobs = {
        name: [
            Job(
                name,
                table["recipe"],
                (*table.get("set", []), *variants[name]),
                seed,
                options.data_dir,
                options.out,
                threads=1,
            )
            for seed in options.seeds
        ]
        for name in names
    }
    for job in {job.shards: job for of_variant in jobs.values() for job in of_variant}.values():
        job.preprocess()
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {
            name: [pool.submit(result, job, table.get("score", [])) for job in of_variant]
            for name, of_variant in jobs.items()
        }
        rows = [row(name, variants[name], [future.result() for future in futures]) for name, futures in running.items()]
    print_rows(
        [["variant", "settings", "updates", "minutes", "NLL", "BLEU", "chrF", " / ".join(OUTPUT_ERRORS)], *rows],
        options.markdown,
    )


if __name__ == "__main__":
    main()
