"""Trainings of recipes by the commands of the README: shards, model, average, translations, scores.

    nmt(…) ──▶ one command          score(…) ──▶ translate, once ──▶ hypotheses ──▶ score
    Job    ──▶ preprocess ──▶ train ──▶ averaged ──▶ score: one recipe with settings and a seed

Everything is kept in one folder. A command whose result is there already does not run again; a training that was stopped
goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.lines import read_parallel
from nmt_cli.recipe import Recipe, load_recipe

OUTPUT_ERRORS = ("empty", "loops", "copies")


def nmt(log: Path, *arguments: str | Path, cwd: Path | None = None) -> str:
    """Run a command of nmt and return its stdout; its messages are appended to the log. Raises SystemExit when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as messages:
        done = subprocess.run(
            [sys.executable, "-m", "nmt_cli", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            check=False,
            cwd=cwd,
        )
    if done.returncode:
        raise SystemExit(f"nmt {' '.join(map(str, arguments))}: exit status {done.returncode}; see {log}")
    return done.stdout


def training_figures(run: Path) -> dict[str, Any]:
    """Return the updates, minutes and NLL of a run's last validation."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [record for record in records if record["type"] == "valid"][-1]
    return {"nll": last["nll"], "updates": last["update"], "minutes": last["seconds"] / 60}


def score(
    log: Path, model: Path, stem: Path, source: Sequence[Path], reference: Sequence[Path], options: Sequence[str]
) -> dict[str, Any]:
    """Translate a text, if that was not done before, and score it with the options of nmt score. Return BLEU, chrF and the number of each output error.

    The text, its references and the translations are kept in STEM.source, STEM.reference and STEM.hyp.
    """
    paths = {side: stem.with_name(f"{stem.name}.{side}") for side in ("source", "reference", "hyp")}
    for side, lines in zip(("source", "reference"), zip(*read_parallel(source, reference), strict=True), strict=True):
        paths[side].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if not paths["hyp"].exists():
        nmt(log, "translate", "--model", model, "--input", paths["source"], "--output", paths["hyp"])
    report = json.loads(
        nmt(
            log,
            "score",
            paths["hyp"],
            "--ref",
            paths["reference"],
            "--src",
            paths["source"],
            "--metric",
            "bleu",
            "--metric",
            "chrf",
            "--json",
            *options,
        )
    )
    return {
        **{metric: report["scores"][metric]["score"] for metric in ("bleu", "chrf")},
        "signature": report["scores"]["bleu"]["signature"],
        **{error: report["outputs"][error] for error in OUTPUT_ERRORS},
    }


@dataclass(frozen=True)
class Job:
    """One training."""

    name: str
    recipe: str
    settings: tuple[str, ...]
    seed: int
    data_dir: Path
    out: Path
    threads: int

    @property
    def loaded(self) -> Recipe:
        return load_recipe(self.recipe, [*self.settings, f"train.seed={self.seed}"])

    @property
    def shards(self) -> Path:
        """The folder of the shards, the same for all jobs of this [data]."""
        return self.out / "data" / hashlib.sha256(self.loaded.data.model_dump_json().encode()).hexdigest()[:12]

    @property
    def run(self) -> Path:
        return self.out / "runs" / f"{re.sub(r'[^0-9A-Za-z.]+', '_', self.name).strip('_')}-{self.seed}"

    @property
    def log(self) -> Path:
        return self.out / "logs" / f"{self.run.name}.log"

    @property
    def sets(self) -> list[str]:
        return [part for setting in (*self.settings, f"train.seed={self.seed}") for part in ("--set", setting)]

    def nmt(self, *arguments: str | Path) -> str:
        """Run a command of nmt and return its stdout."""
        return nmt(self.log, *arguments)

    def preprocess(self) -> None:
        """Write the shards."""
        self.nmt("preprocess", self.recipe, "--data-dir", self.data_dir, "--out", self.shards, *self.sets)

    def train(self) -> dict[str, Any]:
        """Train and average, if that was not done before. Return the updates, minutes and NLL of the last validation.

        A run of another recipe is refused by nmt train.
        """
        self.nmt(
            "train", self.recipe, "--data", self.shards, "--run", self.run, "--threads", str(self.threads), *self.sets
        )
        if not (self.run / "averaged").exists():
            self.nmt("average", self.run, "--out", self.run / "averaged")
        return training_figures(self.run)

    def score(
        self, name: str, source: Sequence[Path], reference: Sequence[Path], options: Sequence[str]
    ) -> dict[str, Any]:
        """Translate the text `name` once, and score it with the options of nmt score."""
        return score(self.log, self.run / "averaged", self.run / name, source, reference, options)


def arguments(description: str, what: str) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the options of a command that trains the entries of a table, `what` they are called, and the table.

    `only` is a list of names or empty, `seeds` a list of numbers.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, metavar="TABLE.toml")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help=f"of the {what}, repeatable; default: all"
    )
    parser.add_argument(
        "--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1], metavar="N,N"
    )
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side; default: %(default)s")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args()
    return options, tomllib.loads(options.table.read_text(encoding="utf-8"))


def chosen(only: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the names that were asked for, all if none were. Raises SystemExit for an unknown one."""
    available = list(names)
    if unknown := [name for name in only if name not in available]:
        raise SystemExit(f"--only {','.join(unknown)}: expected {', '.join(available)}")
    return list(only) or available


def mean(values: Iterable[float]) -> float:
    """Return the mean."""
    numbers = list(values)
    return sum(numbers) / len(numbers)


def spread(values: Sequence[float]) -> str:
    """Return the mean of scores; of several also the lowest and the highest."""
    return f"{mean(values):.2f}" + (f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else "")
