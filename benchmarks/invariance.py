"""A translation depends on its line alone: not on batch, order, neighbours, the number of workers or the processor.

    python benchmarks/invariance.py --model DIR --data-dir DATA

The test set (Multi30k's of 2016, or Tatoeba's) is translated at once, then each line alone, in batches of 8, 64 and 256 sentences, in
another order, as a stream, by another number of workers, and by the engine's library for each instruction set that this processor has.
The table has the number of sentences whose texts, scores and log-probabilities are all the same to the bit; if one is not, the exit
status is 1. The last column compares the texts of the first sentences with those of the reference: torch in the same precision, whose
sums have another order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import torch
from common import setup, test_set

from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.device.processor import cpu_flags
from nmt_cli.engine.library import NEEDS, VARIABLE, path_of
from nmt_cli.model.folder import load_model
from nmt_cli.model.folder_files import find_model, length_limits, read_config
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import Recipe
from nmt_cli.translation.line import Candidate
from nmt_cli.translation.models import TorchModels, models_of
from nmt_cli.translation.options import TranslationOptions
from nmt_cli.translation.translator import LineTranslator

SIZES = (8, 64, 256)


@dataclass(frozen=True)
class Subject:
    """A model and what it translates."""

    folder: Path
    model: Transformer
    recipe: Recipe
    vocabulary: Vocabulary
    lines: list[str]

    def translator(self, precision: str, workers: int, batch: int = 0, reference: bool = False) -> LineTranslator:
        decode = self.recipe.decode.model_copy(update={"batch_tokens": batch or self.recipe.decode.batch_tokens})
        models = (TorchModels if reference else models_of)([self.model], precision, workers, workers)
        safe, longest = length_limits(self.recipe.data, [read_config(self.folder).safe_length])
        options = TranslationOptions(decode=decode, longest=longest, safe_length=safe)
        return LineTranslator(models, self.vocabulary, options)


def translated(translator: LineTranslator, lines: Iterable[str], batch: int = 0) -> list[Candidate]:
    """The best candidate of each line, at most `batch` sentences at once; 0: as many as it takes itself."""
    rows = batch * translator.options.decode.beam
    with patch.object(translator.models, "rows", rows or translator.models.rows):
        return [replace(result.nbest[0], part_lengths=()) for result in translator.translate(lines)]


def by_library(subject: Subject, precision: str, name: str) -> list[Candidate]:
    """The translations by `nmt translate` with this library of the engine."""
    command = [sys.executable, "-m", "nmt_cli", "translate", "--device=cpu", "--json"]
    done = subprocess.run(
        [*command, f"--model={subject.folder}", f"--precision={precision}"],
        env={**os.environ, VARIABLE: name},
        input="".join(f"{line}\n" for line in subject.lines),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    found = map(json.loads, done.stdout.splitlines())
    return [Candidate(one["translation"], one["score"], one["log_prob"], tuple(one["tokens"])) for one in found]


def variants(subject: Subject, precision: str) -> dict[str, list[Candidate]]:
    """The translations of all lines at once, and those of every other way."""
    cores, lines = torch.get_num_threads(), subject.lines
    usual, wide = subject.translator(precision, cores), subject.translator(precision, cores, batch=sys.maxsize)
    outputs = {"at once": translated(usual, lines)}
    outputs |= {"alone": [translated(usual, [line])[0] for line in lines]}
    outputs |= {f"batches of {size}": translated(wide, lines, size) for size in SIZES}
    order = random.Random(1).sample(range(len(lines)), len(lines))
    shuffled = dict(zip(order, translated(usual, [lines[i] for i in order]), strict=True))
    outputs["shuffled"] = [shuffled[i] for i in range(len(lines))]
    outputs["streamed"] = translated(usual, iter(lines))
    workers = 1 if cores > 1 else 2
    outputs[f"{workers} worker{'s' * (workers > 1)}"] = translated(subject.translator(precision, workers), lines)
    runnable = [name for name, flags in NEEDS.items() if path_of(name).is_file() and flags <= cpu_flags()]
    return outputs | {name: by_library(subject, precision, name) for name in runnable}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a trained model")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the text that the model learnt from")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--reference", type=int, default=100, help="sentences for the reference")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    setup(options.threads)
    folder = find_model(options.model)
    loaded = load_model(folder)
    lines = test_set([options.data_dir], loaded.recipe, options.sentences)[0]
    subject = Subject(folder, loaded.model, loaded.recipe, Vocabulary.load(folder), lines)
    some = lines[: options.reference]
    what = f"how many are the same, texts and scores; beside the reference, the texts of {len(some)}"
    print(f"{len(lines)} sentences, {torch.get_num_threads()} workers: {what}")
    broken = False
    for precision in ("fp32", "int8"):
        began = time.perf_counter()
        outputs = variants(subject, precision)
        first = outputs["at once"]
        same = {name: sum(a == b for a, b in zip(first, several, strict=True)) for name, several in outputs.items()}
        slow = translated(subject.translator(precision, torch.get_num_threads(), reference=True), some)
        alike = sum(a.text == b.text for a, b in zip(first, slow, strict=False))
        if precision == "fp32":
            _row("", [*same, "reference", "seconds"])
        _row(precision, [*same.values(), alike, round(time.perf_counter() - began)])
        broken |= min(same.values()) < len(first)
    print("different where nothing may differ" if broken else "nothing differs in fp32 and int8")
    sys.exit(1 if broken else 0)


def _row(name: str, values: Sequence[str | int]) -> None:
    print(f"  {name:<12}" + "".join(f" {value:>14}" for value in values), flush=True)


if __name__ == "__main__":
    main()
