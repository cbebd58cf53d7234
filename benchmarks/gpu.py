"""One GPU: where the time of an update and of a step goes, how fast it trains and translates. Eight minutes, no downloads.

    python benchmarks/gpu.py [--only picture,decode] [--budget 480] [--out FOLDER]   (PYTHONPATH=. if nmt is not installed)

    text      lines as long as those of news, of sentences of the demo corpus with made-up names: 37,000 subwords
    model     `nmt train` as a command: seconds to its first update; a base model whose outputs end
    picture   an update of base and of big, a step of decoding, in bf16: the device's time by kind of operator (torch's profiler),
              the time in which it waits, launches, the time of the host for one, which an idle device gets, peak memory
    train     base and big, updates of 25,000 tokens per side: target tokens per second, and the share of the rate of one large
              matrix product that the model's products reach (6 operations per weight and token)
    decode    beam 4, by precision and batch (source tokens); beside it CTranslate2 (batches of lines), if it is installed
    two       two processes on the device, summed by gloo: the losses are those of one process

Parts bring text and model. A part whose seconds on an H100 do not fit into the budget is left out; one that fails does not stop the
others. Sides alternate; stderr has each round. FOLDER keeps text and model. `--device cpu --tiny` only tries the script.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import decode_side
import torch
from common import NMT, medians, nmt, print_rows, records, sets, setup
from decode_side import Job, Translate
from students import lines_of
from torch.autograd.profiler import record_function
from torch.multiprocessing.spawn import spawn

import nmt_cli
from nmt_cli.data.demo_corpus import LANGUAGES, pairs
from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.device.hardware import Hardware
from nmt_cli.device.memory import memory_in_use, peak_memory, release_cached_memory, reset_peak_memory
from nmt_cli.device.torch_device import start_process, start_training, synchronize
from nmt_cli.recipe import Recipe, load_recipe
from nmt_cli.search.running import RunningSearch
from nmt_cli.training.loader import rank_batches
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.trainer import Trainer

BASE, BIG = "wmt14_en_de_base", "wmt14_en_de_big"
SETTINGS = [
    *('data.train_source=["train.en"]', 'data.train_target=["train.de"]', "train.valid_every=1000000"),
    *('data.valid_source=["valid.en"]', 'data.valid_target=["valid.de"]', "train.checkpoint_every=1000000"),
    *("train.log_every=1000000", "train.checkpoint_minutes=0", "train.valid_bleu_sentences=0", "train.best_metric=nll"),
]
SMALL = ["model.encoder_layers=1", "model.decoder_layers=1", "model.d_model=64", "model.d_ff=128", "model.num_heads=4"]
TINY = [*SMALL, "train.batch_tokens=512", "data.vocab_size=1000"]
WARMUP, PICTURED, ROUNDS = 6, 4, 3
BATCHES = {"nmt": (4096, 16_384, 65_536), "ctranslate2": (64, 256, 1024)}
KINDS = {
    "attention": r"^(?!.*Loss).*(attn|attention|flash|fmha|bmm|aten::_?softmax\b)",
    "optimizer, clipping": "optimizer",
    "products": r"aten::(mm|addmm|matmul|linear)\b|gemm|nvjet",
    "loss, selection": "Loss|softmax|logsumexp|topk|sort",
    "norm, dropout, residual, ReLU": r"norm|dropout|relu|threshold|aten::add\b|AddBackward",
    "copies": "copy_|Memcpy|Memset|aten::(cat|to|index_select|index|gather|fill_|zero_)",
    "other": "",
}
"""The first pattern that is found in the names of an operator, of those that called it, or of its kernel, decides."""


def seconds_of(device: str, step: Callable[[], object], count: int) -> float:
    """Return the mean seconds of a step, all its work on the device done."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(device)
    return (time.perf_counter() - began) / count


def text(options: argparse.Namespace) -> None:
    """Write the text and the shards."""
    draw, syllables, corpus = random.Random(1), [a + b for a in "bdfgklmnprstvz" for b in "aeiou"], pairs()
    names = ["".join(draw.choices(syllables, k=draw.randint(2, 4))).capitalize() for _ in range(60_000)]
    for split, source, count in (("train", "train", 80_000), ("valid", "test", 3000)):
        lines: list[list[str]] = []
        for _ in range(count // (40 if options.tiny else 1)):
            sentences = draw.choices(corpus[source], k=draw.choices(range(1, 9), [40, 28, 15, 8, 4, 2, 2, 1])[0])
            spoken = [names[int(len(names) ** draw.random()) - 1] for _ in sentences]  # Zipf, as words are
            named = [[f"{name}: {part}" for part in pair] for name, pair in zip(spoken, sentences, strict=True)]
            lines.append([" ".join(side) for side in zip(*named, strict=True)])
        for language, side in zip(LANGUAGES, zip(*lines, strict=True), strict=True):
            (options.out / f"{split}.{language}").write_text("\n".join(side) + "\n", encoding="utf-8")
    where = ["--data-dir", options.out, "--out", options.out / "shards", "--json"]
    made = json.loads(nmt(options.out / "log", "preprocess", BASE, *where, *sets(options.settings)))
    counts = made["splits"]["train"]
    mean = counts["target_tokens"] / counts["pairs"]
    print(f"{counts['pairs']:,} pairs, {made['target_size']:,} subwords, {mean:.1f} target tokens per line")


def model(options: argparse.Namespace) -> None:
    """Train base by `nmt train`, and print how long that took."""
    run, updates, log = options.out / "model", 30 if options.tiny else 500, options.out / "log"
    changes = [f"train.updates={updates}", f"train.decay_updates={updates // 3}", f"train.warmup={updates // 4}"]
    changes += [*options.settings, "train.lr_factor=0.3", "model.residual=pre", "train.log_every=1"]
    where = ["--data", str(options.out / "shards"), "--run", str(run), "--device", options.device]
    began = time.perf_counter()
    with log.open("a") as to, subprocess.Popen([*NMT, "train", BASE, *where, *sets(changes)], stderr=to) as process:
        while not (run / "metrics.jsonl").exists() and process.poll() is None:
            time.sleep(0.02)
        first = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"nmt train: exit status {process.returncode}; see {log}")
    print(f"first update {first:.1f} s after the command, end after {time.perf_counter() - began:.1f} s")
    print(f"{updates} updates, loss {records(run, 'train')[-1]['loss']:.2f}")


class Training:
    """A recipe in training, some updates done. `first`: seconds to the first one; `peak`: GiB."""

    def __init__(self, options: argparse.Namespace, name: str, precision: str, backend: str = "") -> None:
        run, recipe = options.out / f"run-{time.time_ns()}", load_recipe(name, options.settings)
        hardware, began, self.tokens = Hardware.find(options.device, precision), time.perf_counter(), 0
        self.device, self.others = hardware.device, memory_in_use(hardware.device)
        self.trainer = Trainer(recipe, options.out / "shards", run, hardware, ProcessGroup(), (), backend)
        setattr(self.trainer.updater, "step", record_function("optimizer")(self.trainer.updater.step))  # noqa: B010
        size = self.trainer.progress.micro_batch_tokens
        self.batches = rank_batches(self.trainer.text, 0, 0, size, self.trainer.group, hardware)
        self.trainer.clock_started = time.perf_counter()
        reset_peak_memory(self.device)
        seconds_of(self.device, self.update, 1)
        self.first = time.perf_counter() - began
        seconds_of(self.device, self.update, WARMUP)
        self.peak = max(0, peak_memory(self.device) - self.others) / 2**30
        release_cached_memory(self.device)

    def update(self) -> None:
        """Do an update as the training loop does it."""
        batch = next(self.batches)
        self.tokens, self.passes = self.tokens + batch.target_tokens, len(batch.micro_batches)
        self.trainer.train_step(batch)
        self.trainer._after_step()

    def rate(self, updates: int) -> float:
        """Return target tokens per second."""
        seconds_of(self.device, self.update, WARMUP)
        before, seconds = self.tokens, updates * seconds_of(self.device, self.update, updates)
        return (self.tokens - before) / seconds


def picture(options: argparse.Namespace) -> None:
    """Print pictures of an update of base, of big, and of a step of decoding."""
    for name in (BASE, BIG):
        side = options.trainings[name, "bf16"] = Training(options, name, "bf16")
        draw(f"{name}, an update", side.device, side.update, side.others)
    others = memory_in_use(side.device)
    with nmt_cli.load(options.out / "model", device=options.device, precision="bf16") as loaded:
        translator = loaded.with_options({"beam": 4})
        sentences = sorted(
            translator.prepare(lines_of(options.out / "valid.en")[: 10 if options.tiny else None]).sentences,
            key=lambda one: -len(one.tokens),
        )
        chosen = sentences[: max(1, BATCHES["nmt"][1] // len(sentences[0].tokens))]
        search = RunningSearch[int](translator.models, translator.search, in_engine=False)
        search.add(range(len(chosen)), chosen)
        draw(f"a step of {len(chosen):,} sentences, beam 4", side.device, search.step, others)


def draw(title: str, device: str, step: Callable[[], object], others: int) -> None:
    """Print the table of a step: means of some. `others` are the bytes that others have on the device."""
    reset_peak_memory(device)
    seconds_of(device, step, WARMUP)
    wall, host = seconds_of(device, step, 2 * PICTURED) * 1e3, []
    for _ in range(PICTURED):
        began = time.perf_counter()
        step()
        host.append((time.perf_counter() - began) * 1e3)
        synchronize(device)
    with torch.profiler.profile() as profiler:
        seconds_of(device, step, PICTURED)
    kinds, events = defaultdict[str, Counter[str]](Counter), list(profiler.events() or [])
    for path, name, microseconds in operators(events, device):
        kind = next(kind for kind, pattern in KINDS.items() if re.search(pattern, path))
        kinds[kind][name] += microseconds / PICTURED / 1e3  # type: ignore[assignment]
    rows = [[title, "ms", "share", "most of it"]]
    for kind in KINDS:
        ms, most = sum(kinds[kind].values()), [f"{name} {ms:.2f}" for name, ms in kinds[kind].most_common(3)]
        rows.append([kind, f"{ms:.2f}", f"{ms / wall:.1%}", ", ".join(most)])
    waits = max(0.0, wall - sum(map(Counter.total, kinds.values())))
    peak = max(0, peak_memory(device) - others) / 2**30
    calls = [event for event in events if re.match("cu(da)?(Launch|GraphLaunch|Memcpy|Memset)", event.name)]
    rows.append(["the device waits", f"{waits:.2f}", f"{waits / wall:.1%}", ""])
    rows.append(["all", f"{wall:.2f}", "", f"{len(calls) / PICTURED:,.0f} launches, {peak:.1f} GiB"])
    rows.append(["the host alone", f"{statistics.median(host):.2f}", "", ""])
    print_rows(rows)


def operators(events: list[Any], device: str) -> Iterator[tuple[str, str, float]]:
    """Yield path, name and microseconds on the device of the operators, and of kernels that no operator launched."""
    rest: Counter[str] = Counter()
    for event in events:
        if "CPU" not in str(event.device_type):
            rest[event.name] += 0 if event.is_user_annotation else event.time_range.elapsed_us()
            continue
        names, parent = [event.name], event.cpu_parent
        while parent:
            names, parent = [*names, parent.name], parent.cpu_parent
        own = [("", event.self_cpu_time_total)] if device == "cpu" else []
        for kernel, microseconds in [*((kernel.name, kernel.duration) for kernel in event.kernels), *own]:
            rest[kernel] -= microseconds
            yield " ".join([*names, kernel]), event.name.removeprefix("aten::"), microseconds
    yield from ((name, name[:40], microseconds) for name, microseconds in rest.items() if microseconds > 1)


def operations(recipe: Recipe, source_tokens: int, target_tokens: int, vocabulary: int) -> float:
    """Return the operations of a forward and backward pass in products with weights."""
    m = recipe.model
    attention, feed_forward = 4 * m.d_model**2, 2 * m.d_model * m.d_ff
    encoder = m.encoder_layers * (attention + feed_forward) * source_tokens
    decoder = m.decoder_layers * ((1.5 * attention + feed_forward) * target_tokens + 0.5 * attention * source_tokens)
    return 6.0 * (encoder + decoder + m.d_model * vocabulary * target_tokens)


def train(options: argparse.Namespace) -> None:
    """Print the rows of base and big."""
    jobs: list[tuple[str, ...]] = [(name, precision) for name in (BASE, BIG) for precision in ("bf16", "fp32")]
    jobs.append((BASE, "bf16", "eager" if options.device == "cpu" else "inductor"))
    sides = {" ".join((job[0][12:], *job[1:])): options.trainings.get(job) or Training(options, *job) for job in jobs}
    size, updates = (64, 4) if options.tiny else (8192, 20)
    rates = medians({name: partial(side.rate, updates) for name, side in sides.items()}, ROUNDS)
    rows = [["", "target tok/s", "ms per update", "passes", "peak GiB", "share of matmul", "first update, s"]]
    for name, side in sides.items():
        trainer, rate = side.trainer, rates[name]
        a = torch.randn(size, size, device=side.device).to(trainer.hardware.dtype)
        product = statistics.median([seconds_of(side.device, lambda a=a: a @ a, 4) for _ in range(12)][2:])  # type: ignore[misc]
        source, target = (int(lengths.sum()) for lengths in trainer.plan.lengths(next(trainer.plan.updates(0))))
        share = operations(trainer.recipe, source, target, trainer.vocabulary.target_size) / target * rate
        cells = [f"{rate:,.0f}", f"{target / rate * 1e3:,.1f}", f"{side.passes}"]
        share *= product / (2 * size**3)
        rows.append([name, *cells, f"{side.peak:.1f}", f"{share:.0%}", f"{side.first:.1f}"])
    print_rows(rows)


def decode(options: argparse.Namespace) -> None:
    """Print the rows of each side, precision and batch."""
    device, lines, vocabulary = (
        Hardware.find(options.device).device,
        lines_of(options.out / "valid.en")[: 10 if options.tiny else None],
        options.out / "model" / "last",
    )
    count, half = Vocabulary.load(vocabulary).target.encode, "float32" if device == "cpu" else "float16"
    alone: dict[str, Any] = {"workers": 1, "threads": 1, "device": device.partition(":")[0]}
    options.trainings.clear()
    gc.collect()
    release_cached_memory(device)
    folders, sides = {"nmt": vocabulary}, dict[str, Translate]()
    if importlib.util.find_spec("ctranslate2"):
        folders["ctranslate2"] = options.out / f"ctranslate2-{time.time_ns()}"
        nmt(options.out / "log", "export", vocabulary, "--to", "ctranslate2", "--out", folders["ctranslate2"])
    for kind, precision in (("nmt", "bf16"), ("nmt", "fp16"), ("ctranslate2", half)):
        for batch in BATCHES[kind] if kind in folders else ():
            name, folder = f"{kind} {precision}, {batch:,}", str(folders[kind])
            job = Job(name=name, kind=kind, folder=folder, precision=precision, batch=batch, **alone)
            sides[job.name] = decode_side.KINDS[kind](job)
            sides[job.name](lines[:200])
    found = dict[str, list[str]]()

    def rate(name: str) -> float:
        reset_peak_memory(device)
        began = time.perf_counter()
        texts = sides[name](lines)
        seconds, peak = time.perf_counter() - began, peak_memory(device) / 2**30
        tokens = sum(len(ids) + 1 for ids in count(texts))
        found[name] = [f"{tokens / len(lines):.1f}", f"{peak:.1f}" if name.startswith("nmt") else ""]
        return tokens / seconds

    rates = medians({name: partial(rate, name) for name in sides}, ROUNDS - 1)
    rows = [[name, f"{rates[name]:,.0f}", *found[name]] for name in sides]
    print_rows([["", "target tok/s", "tokens per line", "peak GiB"], *rows])


def two(options: argparse.Namespace) -> None:
    """Train a small model in one process and in two, and compare their losses."""
    rows, found = [["processes", "first loss", "last loss", "largest relative difference"]], list[list[float]]()
    for processes in (1, 2):
        run = options.out / f"two-{time.time_ns()}"
        spawn(one_rank, (processes, run, options.out, options.device, options.settings), processes)  # type: ignore[no-untyped-call]
        found.append([record["loss"] for record in records(run, "train")])
        apart = max(abs(a / b - 1) for a, b in zip(found[-1], found[0], strict=True))
        rows.append([str(processes), f"{found[-1][0]:.5f}", f"{found[-1][-1]:.5f}", f"{apart:.1e}"])
    print_rows(rows)
    if apart > 1e-4:
        raise SystemExit("expected a difference of at most 1e-04 in fp32")


def one_rank(rank: int, processes: int, run: Path, out: Path, device: str, settings: list[str]) -> None:
    """Train the small model as one of the processes."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", f"file://{run}.store", rank=rank, world_size=processes)
    hardware = Hardware.find(device, "fp32")
    start_process(hardware.device)
    changes = [*SMALL, "model.dropout=0", "train.updates=20", "train.warmup=5", "train.log_every=1"]
    changes += ["train.batch_tokens=2048", "train.micro_batch_tokens=1024"]
    group = ProcessGroup(rank, rank, processes, processes)
    Trainer(load_recipe(BASE, [*settings, *changes]), out / "shards", run, hardware, group).train_updates()
    torch.distributed.destroy_process_group()


PARTS: dict[str, tuple[Callable[[argparse.Namespace], None], int]] = {
    **{"text": (text, 25), "model": (model, 80), "picture": (picture, 60)},
    **{"train": (train, 190), "decode": (decode, 90), "two": (two, 35)},
}
"""What prints a part, and the seconds that it takes on an H100."""


def run_parts(options: argparse.Namespace, began: float) -> list[str]:
    """Run the parts that were chosen, and before them text and model, unless they are there. Return those that are missing."""
    chosen, missing = {"text", *options.only.split(",")}, list[str]()
    chosen |= {"model"} if chosen & {"picture", "decode"} else set()
    made = {name for name, file in (("text", "shards"), ("model", "model/last")) if (options.out / file).exists()}
    for name in [name for name in PARTS if name in chosen - made]:
        (part, seconds), started = PARTS[name], time.perf_counter()
        left = options.budget - (started - began)
        print(f"\n{name}: about {seconds} s on an H100, {left:.0f} s are left", flush=True)
        try:
            if seconds > left:
                raise TimeoutError(f"{name} is left out: --budget {options.budget:.0f}")
            part(options)
            print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
        except (Exception, SystemExit) as error:
            traceback.print_exception(error)
            missing.append(name)
    return missing


def main() -> None:
    """Run the parts."""
    began = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: a temporary folder")
    parser.add_argument("--only", default=",".join(PARTS), help="%(default)s")
    parser.add_argument("--budget", type=float, default=480, metavar="SECONDS", help="%(default)s")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script")
    options = parser.parse_args()
    setup(int(options.tiny))
    if options.device == "cpu":
        os.environ["NMT_ENGINE"] = "off"  # torch computes, as on a GPU
    else:
        driver = subprocess.getoutput("nvidia-smi --query-gpu=driver_version,memory.total --format=csv,noheader")
        print(f"{torch.cuda.get_device_name()} · CUDA {torch.version.cuda} · driver {driver}", flush=True)
    start_training(Hardware.find(options.device).device)
    options.settings, options.trainings = [*SETTINGS, *(TINY if options.tiny else [])], {}
    with tempfile.TemporaryDirectory(prefix="nmt-gpu-") as scratch:
        options.out = (options.out or Path(scratch)).resolve()
        options.out.mkdir(parents=True, exist_ok=True)
        if missing := run_parts(options, began):
            raise SystemExit(f"without {', '.join(missing)}")


if __name__ == "__main__":
    main()
