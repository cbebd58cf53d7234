"""The scores of the recipes that the README states: several seeds of each, and each test set read once per seed.

    python benchmarks/scores.py TABLE.toml --data-dir DIR --out FOLDER [--only RECIPE …] [--seeds 1,2,3] [--jobs 2] [--markdown]

TABLE.toml names for each recipe the commands that train it, as the README has them, and its test sets. DIR in the commands
is the folder of the data set. `score` are options of nmt score. `compare` are those with which BLEU is that of the published
figures, if they differ. For each recipe and seed the commands run in the folder FOLDER/RECIPE-SEED; `nmt train` also gets the
seed and the threads. Then `nmt translate` translates each test set, and `nmt score` scores it and checks the outputs. `--jobs`
trains so many side by side, each with its share of the cores. Everything is kept: the same command resumes where an earlier
one was stopped, and never translates a test set twice. The figures are also in FOLDER/RECIPE-SEED/scores.json.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from statistics import fmean
from typing import Any

from common import nmt, parallel_lines, print_rows, processor, records

from nmt_cli import __version__
from nmt_cli.device.processor import cores

DIR = "DIR"
"""In the commands of the table: the folder of the data set."""
OUTPUT_ERRORS = ("empty", "loops", "copies")


def train(folder: Path, commands: Sequence[str], data_dir: Path, seed: int, threads: int) -> float:
    """Run the commands in a folder, except those that an earlier call finished. Return the minutes of training of all runs."""
    done_file = folder / "done.json"
    done: list[str] = json.loads(done_file.read_text(encoding="utf-8")) if done_file.exists() else []
    if done != commands[: len(done)]:
        raise SystemExit(f"{folder} was begun with other commands; give another --out")
    for command in commands[len(done) :]:
        words = [str(data_dir) if word == DIR else word for word in shlex.split(command)[1:]]
        train_options = ["--set", f"train.seed={seed}", "--threads", str(threads)] if words[0] == "train" else []
        nmt(folder / "log", *words, *train_options, cwd=folder)
        done.append(command)
        done_file.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    runs = [run for run in (folder / "runs").iterdir() if not run.is_symlink()]
    return fmean(last_validation(run)["seconds"] for run in runs) * len(runs) / 60


def last_validation(run: Path) -> dict[str, Any]:
    """Return the record of a run's last validation."""
    return records(run, "valid")[-1]


def score(folder: Path, run: Path, name: str, files: Sequence[Path], entry: dict[str, Any]) -> dict[str, Any]:
    """Translate a test set, if that was not done before. Return its scores and the number of each output error.

    The text, its references and the translations are kept in NAME.source, NAME.reference and NAME.hyp.
    """
    source, reference, hyp = (folder / f"{name}.{side}" for side in ("source", "reference", "hyp"))
    for path, lines in zip((source, reference), parallel_lines(*files), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if not hyp.exists():
        nmt(folder / "log", "translate", "--model", run, "--input", source, "--output", hyp)

    def report(*options: str | Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(nmt(folder / "log", "score", hyp, "--ref", reference, "--json", *options))
        return found

    whole = report("--src", source, "--metric", "bleu", "--metric", "chrf", *entry.get("score", []))
    bleu = compared = whole["scores"]["bleu"]
    if "compare" in entry:
        compared = report(*entry["compare"])["scores"]["bleu"]
    return {
        **{"bleu": bleu["score"], "signature": bleu["signature"], "chrf": whole["scores"]["chrf"]["score"]},
        **{"compared": compared["score"], "compared_signature": compared["signature"]},
        **{error: whole["outputs"][error] for error in OUTPUT_ERRORS},
    }


def result(recipe: str, entry: dict[str, Any], data_dir: Path, out: Path, seed: int, threads: int) -> dict[str, Any]:
    """Train, and score every test set. Return the figures of the training and those of each test set, by name."""
    folder = out / f"{recipe}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    minutes = train(folder, entry["commands"], data_dir, seed, threads)
    run = folder / "runs" / recipe
    sets = {name: [data_dir / file for file in files] for name, files in entry["tests"].items()}
    tests = {name: score(folder, run, name, files, entry) for name, files in sets.items()}
    last = last_validation(run)
    figures = {
        **{"nll": last["nll"], "updates": last["update"], "minutes": minutes, "threads": threads, "tests": tests},
        **{"date": str(date.today()), "version": __version__, "machine": processor()},
    }
    (folder / "scores.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    scores = ", ".join(f"{name} {test['bleu']:.2f}" for name, test in tests.items())
    print(f"{recipe}, seed {seed}: {minutes:.0f} min, {scores}", file=sys.stderr, flush=True)
    return figures


def spread(values: Sequence[float]) -> str:
    """Return the mean of scores; of several also the lowest and the highest."""
    return f"{fmean(values):.2f}" + (f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else "")


def rows(recipe: str, entry: dict[str, Any], figures: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each test set, with means of all seeds."""

    def row(name: str) -> list[str]:
        tests = [run["tests"][name] for run in figures]
        bleu, compared = (spread([test[key] for test in tests]) for key in ("bleu", "compared"))
        published = [compared if "published" in entry else "", str(entry.get("published", {}).get(name, ""))]
        chrf, minutes = fmean(test["chrf"] for test in tests), fmean(run["minutes"] for run in figures)
        errors = " / ".join(f"{fmean(test[error] for test in tests):g}" for error in OUTPUT_ERRORS)
        return [recipe, name, bleu, *published, f"{chrf:.2f}", errors, f"{minutes:.0f}"]

    return [row(name) for name in entry["tests"]]


def main() -> None:
    """Train the recipes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, metavar="TABLE.toml")
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", action="append", default=[], metavar="RECIPE", help="repeatable; default: all")
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1])
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side; default: %(default)s")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args()
    table = tomllib.loads(options.table.read_text(encoding="utf-8"))
    if unknown := [name for name in options.only if name not in table]:
        parser.error(f"--only {','.join(unknown)}: expected {', '.join(table)}")
    data_dir, out, threads = options.data_dir.resolve(), options.out.resolve(), max(1, cores() // options.jobs)
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {
            name: [pool.submit(result, name, table[name], data_dir, out, seed, threads) for seed in options.seeds]
            for name in options.only or table
        }
        done = [rows(name, table[name], [one.result() for one in futures]) for name, futures in running.items()]
    head = ["recipe", "test set", "BLEU", "as published", "published", "chrF", " / ".join(OUTPUT_ERRORS), "minutes"]
    print_rows([head, *(row for of_recipe in done for row in of_recipe)], options.markdown)


if __name__ == "__main__":
    main()
