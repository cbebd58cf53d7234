"""What each setting of a recipe is worth: one training per variant, scored on validation text.

    python benchmarks/ablations.py TABLE.toml --data-dir DIR --out FOLDER [--only NAME,NAME] [--seeds 1,2] [--jobs 2] [--markdown]

TABLE.toml names a recipe, settings of all variants, and the variants, each with settings of its own:

    recipe = "multi30k_en_de_tok"
    set = ["train.updates=6000"]
    tokenize = "none"            # of BLEU, as for nmt score

    [variants]
    baseline = []
    "R-Drop 3" = ["train.r_drop=3"]

For each variant and seed the commands of the README run: `nmt preprocess`, `nmt train` with one thread, `nmt average`,
`nmt translate` on the recipe's validation text, and `nmt score` with its checks of outputs. Variants of the same [data]
share their shards. Test text is never read. `--jobs` trains so many variants side by side, one core each. Everything is
kept in FOLDER; the same command goes on where an earlier one was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import print_rows, processor

from nmt_cli.evaluation.outputs import check_outputs, count_faults
from nmt_cli.lines import read_parallel
from nmt_cli.recipe import Recipe
from nmt_cli.recipe_files import load_recipe

FAULTS = ("empty", "loops", "copies")


@dataclass(frozen=True)
class Job:
    """One training."""

    variant: str
    recipe: str
    settings: tuple[str, ...]
    seed: int
    data_dir: Path
    out: Path
    tokenize: str

    @property
    def loaded(self) -> Recipe:
        return load_recipe(self.recipe, [*self.settings, f"train.seed={self.seed}"])

    @property
    def shards(self) -> Path:
        """The folder of the shards, the same for all variants of this [data]."""
        return self.out / "data" / hashlib.sha256(self.loaded.data.model_dump_json().encode()).hexdigest()[:12]

    @property
    def run(self) -> Path:
        return self.out / "runs" / f"{re.sub(r'[^0-9A-Za-z.]+', '_', self.variant).strip('_')}-{self.seed}"

    @property
    def sets(self) -> list[str]:
        return [part for setting in (*self.settings, f"train.seed={self.seed}") for part in ("--set", setting)]


def nmt(*arguments: str | Path, log: Path) -> str:
    """Run a command of nmt and return its stdout; its messages are appended to `log`. Raises SystemExit when it fails."""
    with log.open("a", encoding="utf-8") as messages:
        done = subprocess.run([sys.executable, "-m", "nmt_cli", *map(str, arguments)], stdout=subprocess.PIPE, stderr=messages, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"nmt {' '.join(map(str, arguments))}: exit status {done.returncode}; see {log}")
    return done.stdout


def validation(job: Job) -> tuple[list[Path], list[Path]]:
    """Return the files of the recipe's validation text, source and target."""
    data = job.loaded.data
    source, target = ([job.data_dir / name for name in names] for names in (data.valid_source, data.valid_target))
    return source, target


def train(job: Job) -> dict[str, Any]:
    """Train, average, translate and score, as far as that was not done before. Return the figures."""
    result = job.run / "ablation.json"
    if result.exists():
        return dict(json.loads(result.read_text(encoding="utf-8")))
    (job.out / "logs").mkdir(parents=True, exist_ok=True)
    log = job.out / "logs" / f"{job.run.name}.log"
    nmt("train", job.recipe, "--data", job.shards, "--run", job.run, "--threads", "1", *job.sets, log=log)
    nmt("average", job.run, "--out", job.run / "averaged", log=log)
    source, target = validation(job)
    pairs = list(read_parallel(source, target))
    text = job.out / "logs" / f"{job.run.name}.source"
    text.write_text("".join(f"{line}\n" for line, _ in pairs), encoding="utf-8")
    hypotheses = nmt("translate", "--model", job.run / "averaged", "--input", text, log=log).splitlines()
    (job.run / "valid.hyp").write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
    references = [reference for _, reference in pairs]
    from sacrebleu import corpus_bleu, corpus_chrf

    records = [json.loads(line) for line in (job.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    valid = [record for record in records if record["type"] == "valid"][-1]
    figures = {
        "bleu": corpus_bleu(hypotheses, [references], tokenize=job.tokenize).score,
        "chrf": corpus_chrf(hypotheses, [references]).score,
        "nll": valid["nll"],
        "updates": valid["update"],
        "minutes": valid["seconds"] / 60,
        "machine": processor(),
        **{fault: count for fault, count in count_faults(check_outputs([line for line, _ in pairs], hypotheses, [references])).items() if fault in FAULTS},
    }
    result.write_text(json.dumps(figures), encoding="utf-8")
    print(f"{job.run.name}: BLEU {figures['bleu']:.2f}, {figures['minutes']:.0f} min", file=sys.stderr, flush=True)
    return figures


def row(variant: str, settings: Sequence[str], figures: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row of the table; of several seeds, the mean, and the lowest and highest BLEU."""
    mean = {key: sum(one[key] for one in figures) / len(figures) for key in ("bleu", "chrf", "nll", "updates", "minutes", *FAULTS)}
    scores = [one["bleu"] for one in figures]
    spread = f" ({min(scores):.2f} to {max(scores):.2f})" if len(scores) > 1 else ""
    faults = " / ".join(f"{mean[fault]:g}" for fault in FAULTS)
    return [variant, " ".join(settings), f"{mean['updates']:,.0f}", f"{mean['minutes']:.0f}", f"{mean['nll']:.3f}", f"{mean['bleu']:.2f}{spread}", f"{mean['chrf']:.2f}", faults]


def main() -> None:
    """Train the variants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, metavar="TABLE.toml")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", metavar="NAME,NAME", help="variants; default: all")
    parser.add_argument("--seeds", default="1", metavar="N,N")
    parser.add_argument("--jobs", type=int, default=1, help="trainings side by side; default: %(default)s")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args()
    table = tomllib.loads(options.table.read_text(encoding="utf-8"))
    variants: dict[str, list[str]] = table["variants"]
    names = options.only.split(",") if options.only else list(variants)
    if unknown := [name for name in names if name not in variants]:
        parser.error(f"--only {','.join(unknown)}: expected {', '.join(variants)}")
    seeds = [int(seed) for seed in options.seeds.split(",")]
    jobs = {
        name: [Job(name, table["recipe"], (*table.get("set", []), *variants[name]), seed, options.data_dir, options.out, table.get("tokenize", "13a")) for seed in seeds] for name in names
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for job in {job.shards: job for of_variant in jobs.values() for job in of_variant}.values():
        nmt("preprocess", job.recipe, "--data-dir", job.data_dir, "--out", job.shards, *job.sets, log=options.out / "preprocess.log")
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {name: [pool.submit(train, job) for job in of_variant] for name, of_variant in jobs.items()}
        rows = [row(name, variants[name], [future.result() for future in futures]) for name, futures in running.items()]
    print_rows([["variant", "settings", "updates", "minutes", "NLL", "BLEU", "chrF", " / ".join(FAULTS)], *rows], options.markdown)


if __name__ == "__main__":
    main()
