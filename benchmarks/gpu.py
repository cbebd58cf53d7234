"""A GPU's training and decoding: one command, under 25 minutes, no downloads.

    python benchmarks/gpu.py --data-dir DIR --out FOLDER [--only train,quality,decode] [--markdown]

DIR holds the folders tatoeba-en-de, wmt-newstest and multi30k, each with the files of that data set. What is measured:

* train    base and big at the paper's update of 25,000 tokens per side: target tokens per second, peak memory, and the share of
           the rate of one large matrix product that the products of the model reach (6 operations per weight and token,
           attention not counted). Base also compiled (`nmt train --compile`).
* quality  base trained to its end on Tatoeba, newstest 2008 to 2012 and Multi30k: minutes, and BLEU on newstest2013.
* decode   that model on newstest2013, beam 4: target tokens per second in each precision and for growing batches; beside it
           CTranslate2 with the same weights, if it is installed.

`--device cpu --tiny` runs the same code on a CPU in minutes, with small models: its figures mean nothing. Each part prints its
rows as soon as it has them; FOLDER keeps shards and runs, and the same command resumes from there.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from common import nmt, parallel_lines, print_rows, sets, setup
from decode_side import tokenizers

from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.device.hardware import Hardware
from nmt_cli.device.memory import peak_memory, release_cached_memory, reset_peak_memory
from nmt_cli.device.torch_device import start_training, synchronize
from nmt_cli.model.folder import load_model
from nmt_cli.recipe import Recipe, load_recipe
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.trainer import Trainer
from nmt_cli.translation.models import models_of
from nmt_cli.translation.options import TranslationOptions
from nmt_cli.translation.translator import LineTranslator

SIDE, TINY_SIDE = 8192, 64
"""Rows and columns of the matrices whose product is timed; with --tiny."""
BASE, BIG = "wmt14_en_de_base", "wmt14_en_de_big"
WARMUP, MEASURED = 40, 80
"""Updates of `train`."""
QUIET = [
    *("train.valid_every=1000000", "train.checkpoint_every=1000000", "train.checkpoint_minutes=0"),
    *("train.valid_bleu_sentences=0", "train.best_metric=nll"),
    *(f"train.updates={WARMUP + MEASURED}", f"train.log_every={WARMUP // 4}"),
]
TINY = [
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.d_model=64", "model.d_ff=128", "model.num_heads=4"),
    *("train.batch_tokens=512", "data.vocab_size=500"),
]
BATCHES = (4096, 16_384, 65_536)
"""Source tokens translated together."""
PEER_BATCHES = (64, 256, 1024)
"""Sentences translated together by CTranslate2."""

Rows = list[list[str]]


def text(options: argparse.Namespace) -> list[str]:
    """Return settings of the recipe: training text of all three data sets, newstest2013 to validate; sizes with --tiny."""
    folder = options.data_dir
    stems = ["tatoeba-en-de/train", *(f"wmt-newstest/newstest{year}" for year in range(2008, 2013)), "multi30k/train"]
    files = {}
    for name, language in (("source", "en"), ("target", "de")):
        files[f"train_{name}"] = [str(folder / f"{stem}.{language}.gz") for stem in stems]
        files[f"valid_{name}"] = [str(folder / f"wmt-newstest/newstest2013.{language}")]
    return [*(f"data.{key}={json.dumps(paths)}" for key, paths in files.items()), *(TINY if options.tiny else [])]


def shards(options: argparse.Namespace) -> Path:
    """Make the shards, if that was not done before. Return their folder."""
    folder: Path = options.out / "shards"
    if not folder.exists():
        where = ["--data-dir", options.data_dir, "--out", folder]
        nmt(options.out / "log", "preprocess", BASE, *where, *sets(text(options)))
    return folder


# --- train ---


def product_rate(device: str, dtype: torch.dtype, side: int) -> float:
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


def operations(recipe: Recipe, source_tokens: int, target_tokens: int, vocabulary: int) -> float:
    """Return the operations of a forward and backward pass in products with weights."""
    m = recipe.model
    attention, feed_forward = 4 * m.d_model**2, 2 * m.d_model * m.d_ff
    encoder = m.encoder_layers * (attention + feed_forward) * source_tokens
    decoder = m.decoder_layers * ((1.5 * attention + feed_forward) * target_tokens + 0.5 * attention * source_tokens)
    return 6.0 * (encoder + decoder + m.d_model * vocabulary * target_tokens)


def speed(options: argparse.Namespace, name: str, precision: str, backend: str = "") -> list[str]:
    """Train a few updates of the recipe `name`, and return a row of the table. `backend` is that of torch.compile."""
    run = options.out / "speed" / f"{name}-{precision}-{time.time_ns()}"
    recipe, hardware = load_recipe(name, [*text(options), *QUIET]), Hardware.find(options.device, precision)
    trainer = Trainer(recipe, shards(options), run, hardware, ProcessGroup(), (), backend)
    reset_peak_memory(hardware.device)
    trainer.train_updates()
    records = [json.loads(line) for line in trainer.run.metrics.read_text(encoding="utf-8").splitlines()]
    measured = [record for record in records if record["type"] == "train" and record["update"] > WARMUP]
    rate = statistics.median(record["tokens_per_second"] for record in measured)
    source, target = (int(lengths.sum()) for lengths in trainer.plan.lengths(next(trainer.plan.updates(0))))
    share = operations(recipe, source, target, trainer.vocabulary.target_size) / target * rate
    share /= product_rate(hardware.device, hardware.dtype, TINY_SIDE if options.tiny else SIDE)
    return [
        recipe.name,
        precision + ", compiled" * bool(backend),
        f"{rate:,.0f}",
        f"{target / rate * 1000:,.0f}",
        f"{trainer.progress.micro_batch_tokens:,}",
        f"{peak_memory(hardware.device) / 2**30:.1f}",
        f"{share:.0%}",
    ]


def train(options: argparse.Namespace) -> Rows:
    """Return the rows of base and big, at the paper's update."""
    device = Hardware.find(options.device).device
    start_training(device)
    rows = [["recipe", "precision", "target tok/s", "ms per update", "micro-batch", "peak GiB", "share of matmul"]]
    compiled = "eager" if options.device.startswith("cpu") else "inductor"
    jobs = [(name, precision, "") for name in (BASE, BIG) for precision in ("bf16", "fp32")]
    for job in [*jobs, (BASE, "bf16", compiled)]:
        rows.append(speed(options, *job))
        gc.collect()
        release_cached_memory(device)
    return rows


# --- quality ---


def quality(options: argparse.Namespace) -> Rows:
    """Train base to its end. Return the row with its BLEU."""
    log, run, began = options.out / "log", options.out / "runs" / "quality", time.perf_counter()
    updates = 60 if options.tiny else 6000
    settings = [
        *(f"train.updates={updates}", f"train.decay_updates={updates * 2 // 5}", f"train.warmup={updates // 4}"),
        *("train.lr_factor=0.7", "model.dropout=0.2", "model.residual=pre", "train.checkpoint_minutes=0"),
        *("train.checkpoint_every=500", f"train.valid_every={updates // 3}", "train.valid_bleu_sentences=300"),
        *text(options),
    ]
    device = ["--device", options.device]
    nmt(log, "train", BASE, "--data", shards(options), "--run", run, *device, *sets(settings))
    minutes = (time.perf_counter() - began) / 60
    hypothesis = options.out / "newstest2013.hyp"
    source, reference = (options.data_dir / f"wmt-newstest/newstest2013.{side}" for side in ("en", "de"))
    nmt(log, "translate", "--model", run / "last", "--input", source, "--output", hypothesis, *device)
    bleu = json.loads(nmt(log, "score", hypothesis, "--ref", reference, "--json"))["scores"]["bleu"]
    row = [f"{updates:,}", f"{minutes:.1f}", f"{bleu['score']:.2f}", bleu["signature"]]
    return [["updates", "minutes", "BLEU newstest2013", "signature"], row]


# --- decode ---


def decode(options: argparse.Namespace) -> Rows:
    """Return the rows of newstest2013, beam 4, with the model of `quality`."""
    folder, newstest = options.out / "runs" / "quality" / "last", options.data_dir / "wmt-newstest"
    source = parallel_lines(newstest / "newstest2013.en", newstest / "newstest2013.de")[0]
    source, batches = (source[:40], BATCHES[:1]) if options.tiny else (source, BATCHES)
    loaded, vocabulary, device = load_model(folder), Vocabulary.load(folder), Hardware.find(options.device).device
    rows = [["side", "batch", "target tok/s", "peak GiB"]]
    for precision in ("bf16", "fp16", "fp32"):
        for batch in batches:
            models = models_of([loaded.model.to(device)], precision, workers=1, cores=torch.get_num_threads())
            section = loaded.recipe.decode.model_copy(update={"batch_tokens": batch})
            options_of_lines = TranslationOptions(decode=section, longest=loaded.recipe.data.max_length)
            translator = LineTranslator(models, vocabulary, options_of_lines)
            list(translator.translate(source[:200]))
            reset_peak_memory(device)
            began = time.perf_counter()
            tokens = sum(result.length for result in translator.translate(source))
            rate, peak = tokens / (time.perf_counter() - began), peak_memory(device) / 2**30
            rows.append([f"nmt {precision}", f"{batch:,}", f"{rate:,.0f}", f"{peak:.1f}"])
    if importlib.util.find_spec("ctranslate2"):
        rows += ctranslate2(options, folder, source)
    return rows


def ctranslate2(options: argparse.Namespace, model: Path, source: list[str]) -> Rows:
    """Return the rows of CTranslate2 in fp16, with batches of several sizes."""
    import ctranslate2
    from sentencepiece import SentencePieceProcessor

    folder, device = options.out / "ctranslate2", options.device.partition(":")[0]
    if not folder.exists():
        nmt(options.out / "log", "export", model, "--to", "ctranslate2", "--out", folder)
    pieces = SentencePieceProcessor(model_file=tokenizers(str(folder))[0]).encode(source, out_type=str)
    precision = "float32" if device == "cpu" else "float16"
    translator = ctranslate2.Translator(str(folder), device=device, compute_type=precision)
    rows = []
    for batch in PEER_BATCHES:
        translator.translate_batch(pieces[:200], max_batch_size=batch, beam_size=4, max_input_length=0)
        began = time.perf_counter()
        results = translator.translate_batch(pieces, max_batch_size=batch, beam_size=4, max_input_length=0)
        rate = sum(len(result.hypotheses[0]) + 1 for result in results) / (time.perf_counter() - began)
        rows.append([f"CTranslate2 {precision}", f"{batch:,} sentences", f"{rate:,.0f}", ""])
    return rows


PARTS: dict[str, Callable[[argparse.Namespace], Rows]] = {"train": train, "quality": quality, "decode": decode}


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", default=",".join(PARTS), help="%(default)s")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    options.data_dir, options.out = options.data_dir.resolve(), options.out.resolve()
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
