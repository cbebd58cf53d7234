"""A GPU's training and decoding: one command, under 25 minutes, no downloads.

    python benchmarks/gpu.py --data-dir DIR --out FOLDER [--only matmul,train,quality,decode] [--peers ENVIRONMENTS] [--markdown]

DIR holds the folders tatoeba-en-de, wmt-newstest and multi30k, each with the files of that data set. What is measured:

* matmul   the rate of one large matrix product in each precision: what the GPU can do.
* train    base and big at the paper's update of 25,000 tokens per side: target tokens per second, peak memory, and the share of
           the matmul rate that the products of the model reach (6 operations per weight and token, attention not counted). Base
           also compiled (`nmt train --compile`), and with --peers beside eole's own training command (peers.py).
* quality  base trained to its end on Tatoeba, newstest 2008 to 2012 and Multi30k: minutes, and BLEU on newstest2013.
* decode   that model on newstest2013, beam 4: target tokens per second in each precision and for growing batches; beside it
           CTranslate2 with the same weights, where it is installed.

`--device cpu --tiny` runs the same code on a CPU in minutes, with small models: its figures mean nothing. Each part prints its
rows as soon as it has them; FOLDER keeps shards and runs, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from common import parallel_lines, print_rows, setup, timed
from peers import Eole
from sides import LOG_EVERY, Task
from trainings import nmt

from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.device import peak_memory, release_cached_memory, reset_peak_memory, start_training, synchronize
from nmt_cli.hardware import Hardware
from nmt_cli.model.folder import load_model
from nmt_cli.recipe import Recipe, load_recipe
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.trainer import Trainer
from nmt_cli.translation.line_translator import LineTranslator

SIDE = 8192
"""Rows and columns of the matrices of `matmul`."""
TINY_SIDE = 64
"""The same with --tiny: a CPU without fp16 products takes minutes for larger ones."""
RECIPES = ("wmt14_en_de_base", "wmt14_en_de_big")
WARMUP, MEASURED = 40, 80
"""Updates of `train`."""
QUIET = [
    "train.valid_every=1000000",
    "train.checkpoint_every=1000000",
    "train.checkpoint_minutes=0",
    "train.valid_bleu_sentences=0",
    "train.best_metric=nll",
]
TINY = [
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=64",
    "model.d_ff=128",
    "model.num_heads=4",
    "train.batch_tokens=2048",
    "data.vocab_size=2000",
]
NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
BATCHES = (4096, 16_384, 65_536)
"""Source tokens translated together."""

Part = Callable[["Options"], list[list[str]]]


class Options(argparse.Namespace):
    """The command line."""

    data_dir: Path
    out: Path
    only: str
    device: str
    tiny: bool
    markdown: bool
    peers: Path | None

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return not self.device.startswith("cpu")

    @property
    def settings(self) -> list[str]:
        """What makes the models of the recipes tiny, if asked for."""
        return TINY if self.tiny else []


def text(data_dir: Path) -> list[str]:
    """Return settings of the recipe: training text of all three data sets, newstest2013 to validate."""
    pairs = [
        ("tatoeba-en-de/train", ".gz"),
        *((f"wmt-newstest/newstest{year}", ".gz") for year in range(2008, 2013)),
        ("multi30k/train", ".gz"),
    ]
    sides = {side: [str(data_dir / f"{stem}.{side}{suffix}") for stem, suffix in pairs] for side in ("en", "de")}
    valid = {side: [str(data_dir / f"wmt-newstest/newstest2013.{side}")] for side in ("en", "de")}
    keys = {
        "train_source": sides["en"],
        "train_target": sides["de"],
        "valid_source": valid["en"],
        "valid_target": valid["de"],
    }
    return [f"data.{key}={json.dumps(files)}" for key, files in keys.items()]


def shards(options: Options) -> Path:
    """Make the shards, if that was not done before."""
    folder = options.out / "shards"
    if not folder.exists():
        settings = [*text(options.data_dir), *options.settings]
        nmt(
            options.out / "log",
            "preprocess",
            "wmt14_en_de_base",
            "--data-dir",
            options.data_dir,
            "--out",
            folder,
            *sets(settings),
        )
    return folder


def sets(settings: Sequence[str]) -> list[str]:
    """Return the settings as options of a command."""
    return [f"--set={setting}" for setting in settings]


def multiply(device: str, dtype: torch.dtype, side: int) -> float:
    """Return the operations per second of a matrix product."""
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    seconds = []
    for _ in range(12):
        synchronize(device)
        began = time.perf_counter()
        for _ in range(4):
            a @ b
        synchronize(device)
        seconds.append((time.perf_counter() - began) / 4)
    return 2 * side**3 / statistics.median(seconds[2:])


def matmul(options: Options) -> list[list[str]]:
    """The rate of a matrix product in each precision."""
    side = TINY_SIDE if options.tiny else SIDE
    rates = {name: multiply(options.device, getattr(torch, dtype), side) for dtype, name in NAMES.items()}
    return [["precision", "TFLOP/s"], *([name, f"{rate / 1e12:,.1f}"] for name, rate in rates.items())]


def operations(recipe: Recipe, source_tokens: int, target_tokens: int, vocabulary: int) -> float:
    """Return the operations of a forward and backward pass in products with weights."""
    m = recipe.model
    attention, feed_forward = 4 * m.d_model**2, 2 * m.d_model * m.d_ff
    encoder = m.encoder_layers * (attention + feed_forward) * source_tokens
    decoder = m.decoder_layers * ((1.5 * attention + feed_forward) * target_tokens + 0.5 * attention * source_tokens)
    return 6.0 * (encoder + decoder + m.d_model * vocabulary * target_tokens)


def speed(options: Options, name: str, precision: str, backend: str = "") -> list[str]:
    """Train a few updates of the recipe `name`, and return a row of the table. `backend` is that of torch.compile."""
    run = options.out / "speed" / f"{name}-{precision}-{time.time_ns()}"
    recipe = load_recipe(
        name,
        [
            *text(options.data_dir),
            *options.settings,
            *QUIET,
            f"train.updates={WARMUP + MEASURED}",
            f"train.log_every={WARMUP // 4}",
        ],
    )
    hardware = Hardware.find(options.device, precision)
    trainer = Trainer(recipe, shards(options), run, hardware, ProcessGroup(), (), backend)
    reset_peak_memory(hardware.device)
    trainer.train_updates()
    records = [json.loads(line) for line in trainer.run.metrics.read_text(encoding="utf-8").splitlines()]
    rate = statistics.median(
        record["tokens_per_second"] for record in records if record["type"] == "train" and record["update"] > WARMUP
    )
    pairs = next(trainer.plan.updates(0))
    source, target = (int(lengths.sum()) for lengths in trainer.plan.lengths(pairs))
    share = operations(recipe, source, target, trainer.vocabulary.target_size) / target * rate
    share /= multiply(hardware.device, hardware.dtype, TINY_SIDE if options.tiny else SIDE)
    return [
        recipe.name,
        precision + ", compiled" * bool(backend),
        f"{rate:,.0f}",
        f"{target / rate * 1000:,.0f}",
        f"{trainer.micro_batch_tokens:,}",
        f"{peak_memory(hardware.device) / 2**30:.1f}",
        f"{share:.0%}",
    ]


def train(options: Options) -> list[list[str]]:
    """Base and big, at the paper's update."""
    start_training(Hardware.find(options.device).device)
    rows = [["recipe", "precision", "target tok/s", "ms per update", "micro-batch", "peak GiB", "share of matmul"]]
    compiled = "inductor" if options.on_gpu else "eager"
    for name, precision, backend in [
        *((name, precision, "") for name in RECIPES for precision in ("bf16", "fp32")),
        (RECIPES[0], "bf16", compiled),
    ]:
        rows.append(speed(options, name, precision, backend))
        gc.collect()
        release_cached_memory(Hardware.find(options.device).device)
    if options.peers:
        rows.append(eole(options, options.peers))
    return rows


def eole(options: Options, environments: Path) -> list[str]:
    """Train base for as many updates by eole's command, and return a row of the table."""
    settings = [*text(options.data_dir), *options.settings]
    side = Eole(environments, "bf16", gpu=options.on_gpu)
    side.install()
    side.prepare(
        options.out / f"eole-{time.time_ns()}", Task(load_recipe(RECIPES[0], settings), settings, shards(options))
    )
    rate = statistics.median(side.train(WARMUP + MEASURED, threads=0)[WARMUP // LOG_EVERY :])
    return [side.name, "bf16", f"{rate:,.0f}", "", "", "", ""]


def quality(options: Options) -> list[list[str]]:
    """Base trained to its end."""
    run, began = options.out / "runs" / "quality", time.perf_counter()
    updates = 60 if options.tiny else 6000
    settings = [
        *text(options.data_dir),
        f"train.updates={updates}",
        f"train.decay_updates={updates * 2 // 5}",
        f"train.warmup={updates // 4}",
        "train.lr_factor=0.7",
        "model.dropout=0.2",
        "model.residual=pre",
        "train.checkpoint_minutes=0",
        "train.checkpoint_every=500",
        f"train.valid_every={updates // 3}",
        "train.valid_bleu_sentences=300",
        *options.settings,
    ]
    nmt(
        options.out / "log",
        "train",
        "wmt14_en_de_base",
        "--data",
        shards(options),
        "--run",
        run,
        "--device",
        options.device,
        *sets(settings),
    )
    minutes = (time.perf_counter() - began) / 60
    hypothesis = options.out / "newstest2013.hyp"
    source, reference = (options.data_dir / f"wmt-newstest/newstest2013.{side}" for side in ("en", "de"))
    nmt(
        options.out / "log",
        "translate",
        "--model",
        run / "last",
        "--input",
        source,
        "--output",
        hypothesis,
        "--device",
        options.device,
    )
    scores = json.loads(nmt(options.out / "log", "score", hypothesis, "--ref", reference, "--json"))["scores"]
    return [
        ["updates", "minutes", "BLEU newstest2013", "signature"],
        [f"{updates:,}", f"{minutes:.1f}", f"{scores['bleu']['score']:.2f}", scores["bleu"]["signature"]],
    ]


def decode(options: Options) -> list[list[str]]:
    """Beam 4 over newstest2013, with the model of `quality`."""
    folder = options.out / "runs" / "quality" / "last"
    newstest = options.data_dir / "wmt-newstest"
    source, _ = parallel_lines(newstest / "newstest2013.en", newstest / "newstest2013.de", 40 if options.tiny else 0)
    loaded, vocabulary, device = load_model(folder), Vocabulary.load(folder), Hardware.find(options.device).device
    rows = [["side", "batch", "target tok/s", "peak GiB"]]
    for precision in ("bf16", "fp16", "fp32"):
        for batch in BATCHES[: 1 if options.tiny else None]:
            settings = loaded.recipe.decode.model_copy(update={"batch_tokens": batch})
            translator = LineTranslator(
                loaded.model.to(device),
                vocabulary.source,
                vocabulary.target,
                settings,
                longest=loaded.recipe.data.max_length,
                precision=precision,
            )
            timed(translator, source[:200])
            reset_peak_memory(device)
            results, seconds = timed(translator, source)
            rows.append(
                [
                    f"nmt {precision}",
                    f"{batch:,}",
                    f"{sum(result.length for result in results) / seconds:,.0f}",
                    f"{peak_memory(device) / 2**30:.1f}",
                ]
            )
    if importlib.util.find_spec("ctranslate2"):
        rows += ctranslate2(options, folder, source, vocabulary)
    return rows


def ctranslate2(options: Options, model: Path, source: list[str], vocabulary: Vocabulary) -> list[list[str]]:
    """CTranslate2 in fp16 with batches of several sizes."""
    import ctranslate2
    from decode_sides import tokenizers
    from sentencepiece import SentencePieceProcessor

    folder, kind = options.out / "ctranslate2", options.device.partition(":")[0]
    if not folder.exists():
        nmt(options.out / "log", "export", model, "--to", "ctranslate2", "--out", folder)
    processor = SentencePieceProcessor(model_file=str(tokenizers(str(folder))[0]))
    translator = ctranslate2.Translator(
        str(folder), device=kind, compute_type="float32" if kind == "cpu" else "float16"
    )
    pieces = processor.encode(source, out_type=str)
    rows = []
    for batch in (64, 256, 1024):
        translator.translate_batch(pieces[:200], max_batch_size=batch, beam_size=4, max_input_length=0)
        began = time.perf_counter()
        results = translator.translate_batch(pieces, max_batch_size=batch, beam_size=4, max_input_length=0)
        seconds = time.perf_counter() - began
        rows.append(
            [
                f"CTranslate2 {translator.compute_type}",
                f"{batch:,} sentences",
                f"{sum(len(result.hypotheses[0]) + 1 for result in results) / seconds:,.0f}",
                "",
            ]
        )
    return rows


PARTS: dict[str, Part] = {"matmul": matmul, "train": train, "quality": quality, "decode": decode}


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", default=",".join(PARTS), help="%(default)s")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script")
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="ENVIRONMENTS",
        help="also train with eole; the folder holds its environment, or gets it",
    )
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args(namespace=Options())
    options.data_dir, options.out, options.peers = (
        options.data_dir.resolve(),
        options.out.resolve(),
        options.peers and options.peers.resolve(),
    )
    setup(0)
    if options.device.startswith("cuda"):
        print(torch.cuda.get_device_name())
    for name in options.only.split(","):
        began = time.perf_counter()
        rows = PARTS[name](options)
        print(f"\n{name}: {time.perf_counter() - began:.0f} s")
        print_rows(rows, options.markdown)


if __name__ == "__main__":
    main()
