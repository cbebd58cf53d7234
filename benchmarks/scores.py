"""The scores of the recipes that are published in the README: several seeds of each, and each test set read once per seed.

    python benchmarks/scores.py TABLE.toml --data-dir DIR --out FOLDER [--only RECIPE …] [--seeds 1,2,3] [--jobs 2] [--markdown]

TABLE.toml names for each recipe the commands that train it, as the README has them, and its test sets. DIR stands for the
folder of the data set. `compare` are the options of nmt score with which BLEU is that of the published figures, if they differ
from `score`. For each recipe and seed these commands run, in the folder FOLDER/RECIPE-SEED; `nmt train` also gets
the seed and the threads. Then `nmt translate` translates each test set, and `nmt score` scores it and checks the outputs.
`--jobs` trains so many side by side, each with its share of the cores. Everything is kept; the same command goes on where an
earlier one was stopped, and never translates a test set twice. The figures are also in FOLDER/RECIPE-SEED/scores.json.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from common import print_rows, processor
from trainings import OUTPUT_ERRORS, arguments, chosen, mean, nmt, score, spread, training_figures

from nmt_cli import __version__
from nmt_cli.hardware import cores

DIR = "DIR"
"""In the commands of the table: the folder of the data set."""


def train(folder: Path, commands: Sequence[str], data_dir: Path, seed: int, threads: int) -> float:
    """Run the commands in a folder, those that an earlier call finished excepted. Return the minutes of training of all runs."""
    done_file = folder / "done.json"
    done: list[str] = json.loads(done_file.read_text(encoding="utf-8")) if done_file.exists() else []
    if done != commands[: len(done)]:
        raise SystemExit(f"{folder} was begun with other commands; give another --out")
    for command in commands[len(done) :]:
        words = [
            str(data_dir / word.removeprefix(DIR).lstrip("/")) if word.split("/")[0] == DIR else word
            for word in shlex.split(command)[1:]
        ]
        train_options = ["--set", f"train.seed={seed}", "--threads", str(threads)] if words[0] == "train" else []
        nmt(folder / "log", *words, *train_options, cwd=folder)
        done.append(command)
        done_file.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    return float(sum(training_figures(run)["minutes"] for run in (folder / "runs").iterdir() if not run.is_symlink()))


def result(recipe: str, entry: dict[str, Any], data_dir: Path, out: Path, seed: int, threads: int) -> dict[str, Any]:
    """Train, and score every test set. Return the figures of the training and those of each test set, by name."""
    folder = out / f"{recipe}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    minutes = train(folder, entry["commands"], data_dir, seed, threads)
    run = folder / "runs" / recipe
    trained = {
        **training_figures(run),
        "minutes": minutes,
        "date": str(date.today()),
        "version": __version__,
        "machine": processor(),
        "threads": threads,
    }
    tests = {
        name: score(
            folder / "log", run, folder / name, [data_dir / source], [data_dir / reference], entry.get("score", [])
        )
        for name, (source, reference) in entry["tests"].items()
    }
    for name, test in tests.items():
        test["compared"] = test["bleu"]
        if "compare" in entry:
            report = json.loads(
                nmt(
                    folder / "log",
                    "score",
                    folder / f"{name}.hyp",
                    "--ref",
                    folder / f"{name}.reference",
                    "--json",
                    *entry["compare"],
                )
            )["scores"]["bleu"]
            test |= {"compared": report["score"], "compared_signature": report["signature"]}
    figures = {**trained, "tests": tests}
    (folder / "scores.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(
        f"{recipe}, seed {seed}: {minutes:.0f} min, "
        + ", ".join(f"{name} {test['bleu']:.2f}" for name, test in tests.items()),
        file=sys.stderr,
        flush=True,
    )
    return figures


def rows(recipe: str, entry: dict[str, Any], figures: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each test set: BLEU, BLEU as it was published and the published figure, chrF, output errors, minutes; means of all seeds."""
    minutes = f"{mean(run['minutes'] for run in figures):.0f}"
    return [
        [
            recipe,
            name,
            spread([run["tests"][name]["bleu"] for run in figures]),
            spread([run["tests"][name]["compared"] for run in figures]) if "published" in entry else "",
            str(entry.get("published", {}).get(name, "")),
            f"{mean(run['tests'][name]['chrf'] for run in figures):.2f}",
            " / ".join(f"{mean(run['tests'][name][error] for run in figures):g}" for error in OUTPUT_ERRORS),
            minutes,
        ]
        for name in entry["tests"]
    ]


def main() -> None:
    """Train the recipes and print the table."""
    options, table = arguments(__doc__, "recipes")
    names, threads = chosen(options.only, table), max(1, cores() // options.jobs)
    data_dir, out = options.data_dir.resolve(), options.out.resolve()
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {
            name: [pool.submit(result, name, table[name], data_dir, out, seed, threads) for seed in options.seeds]
            for name in names
        }
        done = [
            row
            for name, futures in running.items()
            for row in rows(name, table[name], [future.result() for future in futures])
        ]
    print_rows(
        [
            ["recipe", "test set", "BLEU", "as published", "published", "chrF", " / ".join(OUTPUT_ERRORS), "minutes"],
            *done,
        ],
        options.markdown,
    )


if __name__ == "__main__":
    main()
