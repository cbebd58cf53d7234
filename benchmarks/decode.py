"""Target tokens a second of beam search over real sentences, beside CTranslate2 and Hugging Face on the same weights.

    python benchmarks/decode.py --data-dir DATA --model DIR         ours and the peers', alternated, and what one line takes
    python benchmarks/decode.py [--data-dir MULTI30K]               ours alone, base with random weights

With --model the weights are exported by our own `nmt export` and every side translates the test set (Multi30k's of 2016, or
Tatoeba's) as a whole job, text in and text out, in a process of its own (decode_sides.py); peers run at their best settings
(decode_peers.py). --model may be given several times, and --data-dir for each corpus; decode_models.py trains such models.
The tokens of a side are those of its own translations in our tokenizer, end symbols counted; "length" are its words beside
those of the references. "peak" is the largest memory of the side's own process, loading included; "all" is that of the process
and its workers while they translate, where a page that several processes share is counted once. Peers that are not installed are
left out. Hugging Face is given the first sentences only, as it is slow.

Random weights never choose to end, so every sentence runs to a limit: its own length plus 5 tokens here, near to what a
trained model writes; the work of a step is the same.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from common import alternate, medians, settings, setup, shards, spread_over, table, test_set
from decode_latency import latencies
from decode_peers import WARMUP, Count, ctranslate2_jobs, described, huggingface_jobs, ours
from decode_sides import Answer, Job, Process
from prepare import Memory

from nmt_cli.data.shards import valid_text
from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.evaluation.metrics import compute
from nmt_cli.model.contents import CONFIG, find_model, read_config
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import Recipe
from nmt_cli.records import to_json
from nmt_cli.translation.line_translator import LineTranslator

PEERS = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}
"""Names and packages."""
LATENCY_LINES = 40


class Sides:
    """Processes that take turns; keeps what each answered last, and the MiB of each with the processes that it starts."""

    def __init__(self, lines: list[str], count: Count) -> None:
        self.lines, self.count, self.answers, self.memory = lines, count, dict[str, Answer](), dict[str, float]()

    def lines_for(self, job: Job) -> list[str]:
        return self.lines[: job.sentences or None]

    def run(self, side: Process) -> float:
        """Target tokens a second of one run."""
        answer = self.answers[side.job.name] = side([self.lines_for(side.job)])
        return self.count(answer.texts) / answer.seconds[0]

    def rates(self, jobs: Sequence[Job], rounds: int) -> dict[str, float]:
        """The median target tokens a second of each."""
        with ExitStack() as stack:
            sides = [stack.enter_context(Process(job)) for job in jobs]
            for side in sides:
                side([self.lines[:WARMUP]])
            rates = medians({side.job.name: partial(self.run, side) for side in sides}, rounds)
            for side in sides:  # after the rounds: looking takes time
                memory = Memory(side.process.pid)
                self.run(side)
                self.memory[side.job.name] = 1024 * memory.stop()[0]
        return rates


def with_search(model: Path, work: Path, search: dict[str, float]) -> Path:
    """The model folder whose recipe has these values in [decode]: a copy in `work`, or itself if there are none."""
    if not search:
        return model
    config = read_config(model)
    shutil.copytree(model, work)
    changed = config.model_copy(update={"recipe": config.recipe | {"decode": config.recipe["decode"] | search}})
    (work / CONFIG).write_bytes(to_json(changed))
    return work


def beside(
    model: Path, data_dirs: Sequence[Path], peers: Sequence[str], sentences: int, swept: int, rounds: int
) -> None:
    """Ours and the peers'."""
    recipe, vocabulary = Recipe.from_dict(read_config(model).recipe, str(model)), Vocabulary.load(model)
    source, reference = test_set(data_dirs, recipe, sentences)
    threads = torch.get_num_threads()

    def count(texts: Sequence[str]) -> int:
        return sum(len(ids) + 1 for ids in vocabulary.target.encode(texts))

    print(f"{_shape(recipe, vocabulary)}, {len(source)} sentences; median of {rounds}", flush=True)
    with tempfile.TemporaryDirectory(prefix="nmt-bench-") as work:
        mine = ours(model, threads)
        engine = (
            ctranslate2_jobs(model, Path(work), threads, spread_over(source, swept), count)
            if "ctranslate2" in peers
            else []
        )
        jobs = [*mine, *engine, *(huggingface_jobs(model, Path(work), threads) if "huggingface" in peers else [])]
        sides = Sides(source, count)
        rates = sides.rates(jobs, rounds)
        fastest = max((rates[job.name] for job in engine), default=0.0)
        exact = sides.answers["nmt, fp32"].texts
        print(
            f"\n  {'':<24} {'target tok/s':>12} {'sentences/s':>12} {'÷ CTranslate2':>14} {'BLEU':>7} {'length':>7} {'empty':>6} {'as our fp32':>12} {'peak MiB':>9} {'all MiB':>9} {'sentences':>10}   settings"
        )
        for job in jobs:
            answer, rate = sides.answers[job.name], rates[job.name]
            number, tokens = len(answer.texts), count(answer.texts)
            same = sum(a.strip() == b.strip() for a, b in zip(answer.texts, exact, strict=False)) / number
            bleu = compute("bleu", answer.texts, [reference[:number]])
            length = sum(len(text.split()) for text in answer.texts) / sum(
                len(text.split()) for text in reference[:number]
            )
            empty = sum(not text.strip() for text in answer.texts)
            beside_it = f"{rate / fastest:.2f} ×" if fastest else "–"
            print(
                f"  {job.name:<24} {rate:>12,.0f} {rate * number / tokens:>12,.1f} {beside_it:>14} {bleu.value:>7.2f} {length:>7.3f} {empty:>6} {same:>12.1%} {answer.peak / 2**20:>9,.0f} {sides.memory[job.name]:>9,.0f} {number:>10}   {described(job)}"
            )
        print(f"  BLEU: {bleu.signature}")
        latencies(mine, engine, threads, spread_over(source, LATENCY_LINES), rounds)


def random_weights(data_dir: Path | None, sentences: int, rounds: int) -> None:
    """Ours alone, in this process."""
    recipe, folder = shards(data_dir, settings(data_dir, small=False))
    lines, vocabulary = valid_text(folder)[0][:sentences], Vocabulary.load(folder)
    torch.manual_seed(1)
    model = Transformer(recipe.model, vocabulary.source_size, vocabulary.target_size).eval()
    decode, workers = recipe.decode.model_copy(update={"max_extra": 5}), torch.get_num_threads()

    def side(precision: str, batches: Sequence[list[str]]) -> Callable[[int], int]:
        translator = LineTranslator(
            model, vocabulary.source, vocabulary.target, decode, precision=precision, workers=workers
        )
        return lambda _: sum(result.length for batch in batches for result in translator.translate(batch))

    sides = {precision: side(precision, [lines]) for precision in ("int8", "fp32")}
    sides["fp32, one line at a time"] = side("fp32", [[line] for line in lines[:16]])
    print(f"{_shape(recipe, vocabulary)}, random weights, {len(lines)} sentences; median of {rounds}", flush=True)
    table(alternate(sides, rounds, 1), "target tok/s")


def _shape(recipe: Recipe, vocabulary: Vocabulary) -> str:
    shape = recipe.model
    return f"beam {recipe.decode.beam}: {shape.encoder_layers} + {shape.decoder_layers} layers, d_model {shape.d_model}, {vocabulary.target_size:,} pieces"


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data-dir",
        type=Path,
        action="append",
        default=[],
        help="folder of Multi30k's raw text, or of Tatoeba's; repeatable",
    )
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        help="a trained model instead of random weights; repeatable; needs --data-dir",
    )
    parser.add_argument("--beam", type=int, help="beside --model; default: its recipe's")
    parser.add_argument("--alpha", type=float, help="beside --model; default: its recipe's")
    parser.add_argument(
        "--lookahead",
        type=int,
        help="beside --model; default: its recipe's; 0: no hypothesis is given up that could still win",
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="beside --model: %(default)s, one of them, or nothing")
    parser.add_argument(
        "--sentences", type=int, default=0, help="default: all of the test set, 128 with random weights"
    )
    parser.add_argument("--sweep", type=int, default=200, help="sentences on which CTranslate2's settings are chosen")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    peers = [name for name in options.peers.split(",") if name]
    if unknown := [name for name in peers if name not in PEERS]:
        parser.error(f"--peers {','.join(unknown)!r}: expected {' or '.join(PEERS)}")
    if options.model and not options.data_dir:
        parser.error("--model needs --data-dir")
    setup(options.threads)
    if not options.model:
        return random_weights(
            options.data_dir[0] if options.data_dir else None, options.sentences or 128, options.rounds
        )
    print(" · ".join(_version(package) for package in ("sentencepiece", *(PEERS[name] for name in peers))))
    search = {
        name: value
        for name, value in (("beam", options.beam), ("alpha", options.alpha), ("lookahead", options.lookahead))
        if value is not None
    }
    for model in options.model:
        print(f"\n{model.name}: ", end="")
        with tempfile.TemporaryDirectory(prefix="nmt-bench-") as work:
            beside(
                with_search(find_model(model).resolve(), Path(work) / "model", search),
                options.data_dir,
                peers,
                options.sentences,
                options.sweep,
                options.rounds,
            )


if __name__ == "__main__":
    main()
