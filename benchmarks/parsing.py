"""Parsers of a table, trained and scored on the development trees: F1, precision, recall, tagging accuracy.

    python benchmarks/parsing.py TABLE.toml --data-dir TREES --out FOLDER [--only NAME …] [--seeds 1,2] [--jobs 2] [--markdown]

TREES is a folder with train.trees.gz and dev.trees.gz. TABLE.toml names a recipe, settings of all variants, and the
variants, each with settings of its own; `data.terminals` among them says how the trees are written:

    recipe = "gum_parsing"
    set = ["train.updates=6000"]

    [variants]
    tags = ["data.terminals=tags"]

For each variant and seed the commands of docs/parsing.md run: `nmt data trees`, `nmt preprocess`, `nmt train` with one
thread, `nmt average`, and `nmt parse` and `nmt score` twice: with the constraint that makes every output a tree of its
sentence, and without it. Figures are those of all sentences (`--evalb-repair`); EVALB leaves out the sentences in which a
part of speech decides otherwise than the reference's which words count, the last column. Test trees are never read.

    curve = [1000, 2000, 4000]      # also the F1 of these checkpoints (train.keep must keep them),
    curve_sentences = 400           # on so many of the development sentences

Everything is kept in FOLDER; the same command goes on where an earlier one was stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import print_rows
from trainings import Job, arguments, chosen, mean, nmt, spread

SEARCHES = {"constrained": '["tree"]', "free": "[]"}
"""By name, decode.constraints."""


def texts(trees: Path, out: Path, terminals: str) -> Path:
    """Write the sentences and linearised trees with this kind of terminals, if that was not done before. Return their folder."""
    folder = out / "text" / terminals
    if not (folder / "dev.ptb").exists():
        nmt(
            out / "logs" / f"trees-{terminals}.log",
            "data",
            "trees",
            trees / "train.trees.gz",
            trees / "dev.trees.gz",
            "--out",
            folder,
            "--terminals",
            terminals,
        )
    return folder


def parsed(job: Job, search: str, model: str = "averaged", sentences: int | None = None) -> dict[str, Any]:
    """Parse the first development sentences, None: all, if that was not done before.

    Return the figures of all of them, how many trees were repaired, and how many EVALB leaves out.
    """
    stem = job.run / (f"dev.{search}" if model == "averaged" else f"dev.{search}.{Path(model).name}.{sentences}")
    trees, log, words, reference = (Path(f"{stem}.{kind}") for kind in ("trees", "log", "words", "ptb"))
    for part in (words, reference):
        lines = (job.data_dir / f"dev{part.suffix}").read_text(encoding="utf-8").split("\n")[:-1]
        part.write_text("".join(f"{line}\n" for line in lines[:sentences]), encoding="utf-8")
    if not trees.exists():
        log.unlink(missing_ok=True)
        nmt(
            log,
            "parse",
            "--model",
            job.run / model,
            "--tokenized",
            "--input",
            words,
            "--output",
            trees,
            "--set",
            f"decode.constraints={SEARCHES[search]}",
        )

    def score(*options: str) -> dict[str, Any]:
        scores: dict[str, Any] = json.loads(
            job.nmt("score", trees, "--ref", reference, "--metric", "evalb", "--json", *options)
        )["scores"]["evalb"]
        return scores

    all_sentences, strict = score("--evalb-repair"), score()["counts"]
    repaired = re.search(r"([\d,]+) of [\d,]+ trees were repaired", log.read_text(encoding="utf-8"))
    left_out = strict["errors"] + strict["skipped"]
    return {
        **all_sentences["counts"],
        "f1": all_sentences["score"],
        "repaired": int(repaired[1].replace(",", "")) if repaired else 0,
        "left_out": left_out,
    }


def result(job: Job, curve: Sequence[int], sentences: int) -> dict[str, dict[str, Any]]:
    """Train and parse. Return the figures of each search, with those of the training, and F1 after the updates of the curve."""
    training = job.train()
    figures = {search: {**training, **parsed(job, search)} for search in SEARCHES}
    for search, of_search in figures.items():
        of_search["curve"] = {
            update: parsed(job, search, f"checkpoints/step-{update:08}", sentences)["f1"] for update in curve
        }
    return figures


def row(variant: str, search: str, settings: Sequence[str], figures: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row of the table; of several seeds, the means, and the lowest and highest F1."""

    def share(part: str, whole: str) -> str:
        return f"{100 * mean(run[part] / run[whole] for run in figures):.1f}" if part in figures[0] else ""

    average = {key: mean(run[key] for run in figures) for key in ("updates", "minutes", "nll", "repaired", "left_out")}
    return [
        variant,
        search,
        " ".join(settings),
        f"{average['updates']:,.0f}",
        f"{average['minutes']:.0f}",
        f"{average['nll']:.3f}",
        spread([run["f1"] for run in figures]),
        share("matched", "test"),
        share("matched", "gold"),
        share("correct_tags", "words"),
        f"{average['repaired']:g}",
        f"{average['left_out']:g}",
    ]


def main() -> None:
    """Train the variants and print the table."""
    options, table = arguments(__doc__, "variants")
    variants: dict[str, list[str]] = table["variants"]
    jobs: dict[str, list[Job]] = {}
    for name in chosen(options.only, variants):
        settings = (*table.get("set", []), *variants[name])
        job = Job(name, table["recipe"], settings, 0, options.data_dir, options.out, threads=1)
        folder = texts(options.data_dir, options.out, job.loaded.data.terminals or "xx")
        jobs[name] = [replace(job, seed=seed, data_dir=folder) for seed in options.seeds]
    for job in {job.shards: job for of_variant in jobs.values() for job in of_variant}.values():
        job.preprocess()
    with ThreadPoolExecutor(options.jobs) as pool:
        curve, sentences = table.get("curve", []), table.get("curve_sentences", 400)
        running = {
            name: [pool.submit(result, job, curve, sentences) for job in of_variant]
            for name, of_variant in jobs.items()
        }
        results = {name: [future.result() for future in futures] for name, futures in running.items()}
    rows = [
        row(name, search, variants[name], [figures[search] for figures in results[name]])
        for name in results
        for search in SEARCHES
    ]
    print_rows(
        [
            [
                "variant",
                "search",
                "settings",
                "updates",
                "minutes",
                "NLL",
                "F1",
                "P",
                "R",
                "tags",
                "repaired",
                "left out by EVALB",
            ],
            *rows,
        ],
        options.markdown,
    )
    if curve:
        print()
        points = [
            [
                name,
                search,
                *(spread([figures[search]["curve"][update] for figures in results[name]]) for update in curve),
            ]
            for name in results
            for search in SEARCHES
        ]
        print_rows([["variant", "search", *(f"{update:,} updates" for update in curve)], *points], options.markdown)


if __name__ == "__main__":
    main()
