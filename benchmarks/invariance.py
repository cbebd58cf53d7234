"""A translation depends on its line alone: not on batch, order, neighbours or the number of workers.

    python benchmarks/invariance.py --model DIR --data-dir DATA

The test set (Multi30k's of 2016, or Tatoeba's) is translated at once, then each line alone, in batches of 8, 64 and 256 sentences, in
another order, as a stream, and by another number of workers. The table has the number of sentences whose texts, scores and
log-probabilities are all the same to the bit. In fp32 and int8 they must all be the same, else the exit status is 1; for bf16 the
table also has the number of equal texts. "ready" is int8 without torch, as `nmt translate` does it from the second use of a model on: all its columns are compared with int8's. The last column compares the first sentences with the reference implementation of the
search: the plain model in fp32, without caches, computed anew in each step.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
from common import setup, test_set
from decode import use_once
from decode_sides import Job

from nmt_cli.data.tokenizer import EOS, Vocabulary
from nmt_cli.decoding import workers as module
from nmt_cli.decoding.beam_search import beam_search
from nmt_cli.decoding.decoders import ReferenceDecoder
from nmt_cli.decoding.ready import ready_model
from nmt_cli.decoding.translator import Candidate, Translator
from nmt_cli.hardware import has_fast_bf16
from nmt_cli.kernels.choice import has_int8
from nmt_cli.model.contents import ModelConfig, find_model, read_config
from nmt_cli.model.folder import LoadedModel, load_model

SIZES = (8, 64, 256)
EXACT = ("fp32", "int8", "ready")
"""Precisions in which nothing may differ."""
REFERENCE_BATCH = 10


@dataclass(frozen=True)
class Subject:
    """A model and what it translates."""

    loaded: LoadedModel
    vocabulary: Vocabulary
    lines: list[str]
    config: ModelConfig

    def translator(self, precision: str, workers: int, batch_tokens: int = 0) -> Translator:
        recipe = self.loaded.recipe
        decode = recipe.decode.model_copy(update={"batch_tokens": batch_tokens or recipe.decode.batch_tokens})
        ready = ready_model(self.config, "int8", workers) if precision == "ready" else None
        return Translator(
            ready or self.loaded.model,
            self.vocabulary.source,
            self.vocabulary.target,
            decode,
            longest=recipe.data.max_length,
            precision="int8" if precision == "ready" else precision,
            devices=["cpu"] * workers,
        )


def translated(translator: Translator, lines: Iterable[str], batch: int = 0) -> list[Candidate]:
    """The best candidate of each line, in batches of `batch` sentences; 0: as many as it takes itself."""
    rows = 2 * batch * translator.decode.beam  # two batches fill a step
    with patch.object(module, "CPU_ROWS", rows or module.CPU_ROWS):
        return [result.best for result in translator.translate(lines)]


def reference(subject: Subject, translator: Translator, lines: list[str]) -> list[str]:
    """What the slow search finds; `translator` says options and limits alone. Lines in parts are not for it."""
    texts: list[str] = []
    for start in range(0, len(lines), REFERENCE_BATCH):
        sources = [[*ids, EOS] for ids in subject.vocabulary.source.encode(lines[start : start + REFERENCE_BATCH])]
        limits = torch.tensor(
            [min(len(ids) - 1 + translator.decode.max_extra, translator.longest_output) for ids in sources]
        )
        with torch.inference_mode():
            results = beam_search(
                ReferenceDecoder(subject.loaded.model, sources, translator.decode.beam), limits, translator.options
            )
        texts += subject.vocabulary.target.decode([hypotheses[0].tokens for hypotheses in results])
    return texts


def variants(subject: Subject, precision: str) -> tuple[list[Candidate], dict[str, list[Candidate]]]:
    """The translations of all lines at once, and those of every other way."""
    cores, lines = torch.get_num_threads(), subject.lines
    usual, wide = subject.translator(precision, cores), subject.translator(precision, cores, batch_tokens=sys.maxsize)
    first = translated(usual, lines)
    outputs = {"alone": [translated(usual, [line])[0] for line in lines]}
    outputs |= {f"batches of {size}": translated(wide, lines, size) for size in SIZES}
    order = random.Random(1).sample(range(len(lines)), len(lines))
    shuffled = dict(zip(order, translated(usual, [lines[i] for i in order]), strict=True))
    outputs["shuffled"] = [shuffled[i] for i in range(len(lines))]
    outputs["streamed"] = translated(usual, iter(lines))
    workers = 1 if cores > 1 else 2
    outputs[f"{workers} worker{'s' * (workers > 1)}"] = translated(subject.translator(precision, workers), lines)
    return first, outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a trained model")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the text that the model learnt from")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--reference", type=int, default=100, help="sentences for the reference search")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    setup(options.threads)
    folder = find_model(options.model)
    loaded = load_model(folder)
    subject = Subject(
        loaded,
        Vocabulary.load(folder),
        test_set([options.data_dir], loaded.recipe, options.sentences)[0],
        read_config(folder),
    )
    use_once(Job(name="", kind="nmt", folder=str(folder), precision="int8", workers=1, threads=1))
    slow = reference(subject, subject.translator("fp32", 1), subject.lines[: options.reference])
    print(
        f"{len(subject.lines)} sentences, {torch.get_num_threads()} workers: how many are the same, texts and scores; beside the reference search, the texts of {len(slow)}"
    )
    broken, head, first = False, True, list[Candidate]()
    has_ready = ready_model(subject.config, "int8", 1) is not None
    here = {"fp32": True, "int8": has_int8(), "ready": has_ready, "bf16": has_fast_bf16("cpu")}
    for precision in (precision for precision, is_here in here.items() if is_here):
        began = time.perf_counter()
        usual, outputs = variants(subject, precision)
        first = first if precision == "ready" else usual
        outputs |= {"at once": usual}
        same = {name: sum(a == b for a, b in zip(first, several, strict=True)) for name, several in outputs.items()}
        if head:
            _row("", [*same, "reference", "seconds"])
        head = False
        alike = sum(a.text == b for a, b in zip(first, slow, strict=False))
        _row(precision, [*same.values(), alike, round(time.perf_counter() - began)])
        if precision in EXACT:
            broken |= min(same.values()) < len(first)
        else:
            _row(
                f"{precision}, texts",
                [sum(a.text == b.text for a, b in zip(first, several, strict=True)) for several in outputs.values()],
            )
    print("different where nothing may differ" if broken else f"nothing differs in {' and '.join(EXACT)}")
    sys.exit(1 if broken else 0)


def _row(name: str, values: Sequence[str | int]) -> None:
    print(f"  {name:<12}" + "".join(f" {value:>14}" for value in values), flush=True)


if __name__ == "__main__":
    main()
