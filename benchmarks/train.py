"""Target tokens per second of training, beside torch's own nn.Transformer, or beside eole and JoeyNMT.

    python benchmarks/train.py --data-dir MULTI30K            base: 6 + 6 layers, d_model 512, 8,000 subwords, 2,048-token updates
    python benchmarks/train.py --data-dir MULTI30K --small    4 + 4 layers, d_model 128, d_ff 256, 10,000 subwords, 4,096-token updates

    … --peers FOLDER --rounds 5       beside eole 0.6.4 and JoeyNMT 2.3.0; FOLDER holds their environments, or gets them

Without --data-dir the embedded corpus is used. The plain sides are nn.Transformer, F.cross_entropy with label smoothing and
torch.optim.Adam, in fp32 and under bf16 autocast, on the same batches as ours.

With --peers each side is its own training command, started afresh in each round, for 24 updates, with the same number of
threads. Equal are the text, cut into our subwords beforehand; the vocabulary; the model's sizes, biases and tied embeddings;
label smoothing, Adam, tokens per update. What differs:

    update      ours holds up to `batch_tokens` source and as many target tokens, padding counted, in buckets of like
                length. eole has the same bound on the longer side of pairs sorted by length, and leaves out equal sources
                in one batch. JoeyNMT takes pairs as they come. Of Multi30k an update of 2,048 has on average 1,858 target
                tokens (1,865 with padding), 1,785 (1,917) and 988 (2,069).
    dropout     eole and JoeyNMT also drop inside the feed-forward layer, JoeyNMT attention weights too.
    norm        eole is pre-norm only; the others are what the recipe says.
    precision   eole's bf16 is autocast. JoeyNMT has fp16 alone, which it turns off on a CPU.

All logs give real target tokens per second of wall time since the line before: end symbols count, begin symbols and padding
do not, and the time includes the making of batches. The first intervals of a run do not count.
"""

from __future__ import annotations

import argparse
import copy
import math
import re
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import harmonic_mean
from string import Template

import torch
from common import NMT, checked, medians, ratios, records, sets, settings, setup, shards
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli import __version__
from nmt_cli.data.batches import Batch
from nmt_cli.data.shards import Corpus, Split
from nmt_cli.data.tokenizer import SPECIALS, Vocabulary
from nmt_cli.device.hardware import Hardware
from nmt_cli.device.memory import keep_freed_memory
from nmt_cli.model.positions import sinusoids
from nmt_cli.recipe import Recipe
from nmt_cli.training.loader import rank_batches
from nmt_cli.training.process_group import ProcessGroup
from nmt_cli.training.trainer import Trainer

UPDATES, LOG_EVERY, SKIPPED = 24, 4, 2
"""Updates of a command in one round, those of an interval of its log, and the first intervals, which do not count."""
STEPS_SKIPPED = 2
"""Updates of a side in this process that do not count."""
NEVER = 1_000_000


# --- training commands ---


@dataclass(frozen=True)
class Task:
    """What every side trains: `recipe`, which is its name and `settings`, on the pairs of `shards`."""

    recipe: Recipe
    settings: Sequence[str]
    shards: Path


class Side(ABC):
    """A toolkit's training command."""

    name: str
    version: str

    @abstractmethod
    def prepare(self, work: Path, task: Task) -> None:
        """Write into `work` what the command reads."""

    @abstractmethod
    def command(self, run: Path, threads: int) -> list[str]:
        """Return the command that trains for UPDATES updates and writes into `run`."""

    @abstractmethod
    def rates(self, log: str, run: Path) -> list[float]:
        """Return the target tokens per second of each interval."""

    def rate(self, threads: int) -> float:
        """Run the command. Return its target tokens per second; intervals have like numbers of tokens."""
        with tempfile.TemporaryDirectory(prefix="nmt-bench-") as folder:
            run = Path(folder) / "run"
            rates = self.rates(checked(self.command(run, threads), threads), run)
        if len(rates) != UPDATES // LOG_EVERY:
            raise SystemExit(f"{self.name}: {len(rates)} intervals in its log, expected {UPDATES // LOG_EVERY}")
        return harmonic_mean(rates[SKIPPED:])


class Nmt(Side):
    """nmt train, from this environment."""

    def __init__(self, precision: str) -> None:
        self.name, self.precision = f"nmt train, {precision}", precision
        self.version = f"{__version__} · torch {torch.__version__}"

    def prepare(self, work: Path, task: Task) -> None:
        self.task = task

    def command(self, run: Path, threads: int) -> list[str]:
        measured = [
            *(f"train.updates={UPDATES}", "train.decay_updates=0", f"train.log_every={LOG_EVERY}"),
            *(f"train.valid_every={NEVER}", "train.checkpoint_every=0", "train.valid_bleu_sentences=0"),
            *("train.valid_samples=0", "train.best_metric=nll"),
        ]
        options = ["--device=cpu", f"--precision={self.precision}", f"--threads={threads}"]
        paths = ["--run", str(run), "--data", str(self.task.shards)]
        return [*NMT, "train", self.task.recipe.name, *paths, *options, *sets([*self.task.settings, *measured])]

    def rates(self, log: str, run: Path) -> list[float]:
        return [record["tokens_per_second"] for record in records(run, "train")]


@dataclass(frozen=True)
class Toolkit:
    """A peer. `template` is the file of its configuration here."""

    package: str
    version: str
    requirements: str
    """What it needs besides torch. Its own list is not followed: it would fetch another torch, and parts that are not used."""
    program: tuple[str, ...]
    template: str
    rate: str
    """A pattern for the target tokens per second in its log."""
    flags: tuple[str, ...] = ()
    specials: tuple[str, ...] = ()
    """What its vocabulary file begins with."""


EOLE = Toolkit(
    "eole",
    "0.6.4",
    "configargparse pyyaml rich sacrebleu safetensors sentencepiece<=0.2.2 pyonmttok pyahocorasick rapidfuzz pandas tokenizers "
    "subword-nmt tensorboard pydantic torch-optimi six ctranslate2 huggingface_hub fastapi aiohttp uvicorn waitress requests datasets",
    ("-m", "eole.bin.main", "train", "--config"),
    "eole.yaml",
    r"/ *(\d+) tok/s",
)
JOEYNMT = Toolkit(
    "joeynmt",
    "2.3.0",
    "future pillow numpy setuptools<80 tensorboard sacrebleu sacremoses sentencepiece subword-nmt matplotlib seaborn pyyaml six wrapt "
    "datasets packaging plotly pandas importlib_metadata",
    ("-m", "joeynmt", "train"),
    "joeynmt.yaml",
    r"Tokens per Sec: *(\d+)",
    ("--skip-test",),
    ("<unk>", "<pad>", "<s>", "</s>"),
)
SPLITS: tuple[Split, ...] = ("train", "valid")


class Peer(Side):
    """A toolkit in a virtual environment of its own, with the torch of this one."""

    def __init__(self, toolkit: Toolkit, precision: str, environments: Path) -> None:
        self.toolkit, self.precision = toolkit, precision
        self.name, self.version = f"{toolkit.package}, {precision}", toolkit.version
        self.environment = environments / toolkit.package
        self.python = str(self.environment / "bin" / "python")

    def install(self) -> None:
        """Make the environment, unless a complete one is there."""
        complete = self.environment / ".complete"
        if complete.exists():
            return
        checked([sys.executable, "-m", "venv", str(self.environment)])
        pip = [self.python, "-m", "pip", "install", "--quiet"]
        constraint = self.environment / "constraint.txt"
        constraint.write_text(f"torch=={torch.__version__}\n", encoding="utf-8")
        checked([*pip, "--constraint", str(constraint), "torch", *self.toolkit.requirements.split()])
        checked([*pip, "--no-deps", f"{self.toolkit.package}=={self.toolkit.version}"])
        complete.touch()

    def prepare(self, work: Path, task: Task) -> None:
        from sentencepiece import SentencePieceProcessor

        work.mkdir(parents=True)
        self.data, self.task = work, task
        processor = SentencePieceProcessor(model_proto=Vocabulary.load(task.shards).source.model)
        pieces: list[str] = processor.id_to_piece(list(range(processor.get_piece_size())))
        write_lines(work / "vocabulary", [*self.toolkit.specials, *pieces[len(SPECIALS) :]])
        for split in SPLITS:
            corpus = Corpus(task.shards, split)
            for number, side in enumerate(("source", "target")):
                pairs = (corpus.pair(index)[number] for index in range(len(corpus)))
                write_lines(work / f"{split}.{side}", (" ".join(pieces[i] for i in ids) for ids in pairs))

    def command(self, run: Path, threads: int) -> list[str]:
        run.mkdir()
        file, template = run / "configuration.yaml", Path(__file__).with_name(self.toolkit.template)
        recipe = self.task.recipe
        paths = {"run": run, "data": self.data, "vocabulary": self.data / "vocabulary"}
        values = {
            **dict(recipe.model),
            **dict(recipe.train),
            **{**paths, "updates": UPDATES, "log_every": LOG_EVERY, "never": NEVER, "precision": self.precision},
            **{"max_length": recipe.data.max_length, "pairs": len(Corpus(self.task.shards, "train"))},
        }
        file.write_text(Template(template.read_text(encoding="utf-8")).substitute(values), encoding="utf-8")
        return [self.python, *self.toolkit.program, str(file), *self.toolkit.flags]

    def rates(self, log: str, run: Path) -> list[float]:
        return [float(rate) for rate in re.findall(self.toolkit.rate, log)]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def beside_peers(environments: Path, task: Task, rounds: int) -> None:
    """Print the rates of our command and those of the peers, alternated."""
    mine = [Nmt("bf16"), Nmt("fp32")]
    peers = [Peer(EOLE, "fp32", environments), Peer(EOLE, "bf16", environments), Peer(JOEYNMT, "fp32", environments)]
    for peer in peers:
        peer.install()
    sides: dict[str, Side] = {side.name: side for side in [*mine, *peers]}
    print("".join(f"  {name}: {side.version}\n" for name, side in sides.items()), end="", flush=True)
    with tempfile.TemporaryDirectory(prefix="nmt-bench-") as folder:
        for number, side in enumerate(sides.values()):
            side.prepare(Path(folder) / str(number), task)
        threads = torch.get_num_threads()
        rates = medians({name: partial(side.rate, threads) for name, side in sides.items()}, rounds)
    ratios(rates, [side.name for side in mine], "target tok/s")


# --- updates in this process ---


class Plain(nn.Module):
    """nn.Transformer with tied embeddings, as the tutorials have it."""

    def __init__(self, recipe: Recipe, vocabulary: int) -> None:
        super().__init__()
        m = recipe.model
        self.scale = math.sqrt(m.d_model)
        self.embedding = nn.Embedding(vocabulary, m.d_model)
        self.transformer = nn.Transformer(
            m.d_model, m.num_heads, m.encoder_layers, m.decoder_layers, m.d_ff, m.dropout, batch_first=True
        )
        self.dropout = nn.Dropout(m.dropout)
        self.register_buffer("table", sinusoids(m.max_positions, m.d_model))

    def embed(self, ids: Tensor) -> Tensor:
        x: Tensor = self.dropout(self.embedding(ids) * self.scale + self.table[: ids.size(1)])  # type: ignore[index]
        return x

    def forward(self, batch: Batch) -> Tensor:
        padding = (batch.src == 0).float() * -1e9
        masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        past = nn.Transformer.generate_square_subsequent_mask(batch.tgt_in.size(1))
        source, target = self.embed(batch.src), self.embed(batch.tgt_in)
        hidden = self.transformer(source, target, tgt_mask=past, tgt_is_causal=True, **masks)
        logits = F.linear(hidden, self.embedding.weight).float().flatten(0, 1)
        return F.cross_entropy(logits, batch.tgt_out.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum")


class PlainTrainer:
    """Trains a `Plain`; `autocast` in bf16."""

    def __init__(self, plain: Plain, autocast: bool) -> None:
        self.model, self.autocast = plain.train(), autocast
        self.adam = torch.optim.Adam(plain.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def __call__(self, micro_batches: Sequence[Batch], target_tokens: int) -> None:
        self.adam.zero_grad()
        for batch in micro_batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                loss = self.model(batch)
            (loss / target_tokens).backward()
        self.adam.step()


def steps(recipe: Recipe, folder: Path, rounds: int) -> dict[str, Callable[[], float]]:
    """Return for each side a function that trains its next batch and returns the target tokens per second."""
    work = Path(tempfile.mkdtemp(prefix="nmt-bench-"))
    trainers = dict[str, Trainer]()
    for name in ("bf16", "fp32"):
        trainers[name] = Trainer(recipe, folder, work / name, Hardware.find("cpu", name), ProcessGroup())
    first = trainers["bf16"]
    stream = rank_batches(first.text, 0, 0, first.progress.micro_batch_tokens, ProcessGroup(), first.hardware)
    batches = [next(stream) for _ in range(rounds)]
    padded = [[micro_batch.padded() for micro_batch in batch.micro_batches] for batch in batches]
    plain = Plain(recipe, first.vocabulary.target_size)

    def timed(update: Callable[[int], object]) -> Callable[[], float]:
        numbers = iter(range(rounds))

        def rate() -> float:
            number, began = next(numbers), time.perf_counter()
            update(number)
            return batches[number].target_tokens / (time.perf_counter() - began)

        return rate

    def ours(trainer: Trainer) -> Callable[[], float]:
        return timed(lambda number: trainer.updater(batches[number], number + 1))

    def theirs(side: PlainTrainer) -> Callable[[], float]:
        return timed(lambda number: side(padded[number], batches[number].target_tokens))

    return {f"nmt train, {precision}": ours(trainer) for precision, trainer in trainers.items()} | {
        "nn.Transformer, bf16 autocast": theirs(PlainTrainer(copy.deepcopy(plain), True)),
        "nn.Transformer, fp32": theirs(PlainTrainer(plain, False)),
    }


def beside_torch(recipe: Recipe, folder: Path, rounds: int) -> None:
    """Print the rates of our updates and those of nn.Transformer, alternated."""
    sides = steps(recipe, folder, rounds + STEPS_SKIPPED)
    for _ in range(STEPS_SKIPPED):
        for step in sides.values():
            step()
    ratios(medians(sides, rounds), ["nmt train, bf16", "nmt train, fp32"], "target tok/s")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder of Multi30k's raw text")
    parser.add_argument("--small", action="store_true", help="the small model instead of base")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="beside eole and JoeyNMT")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    setup(options.threads)
    keep_freed_memory()
    changes = settings(options.data_dir, options.small)
    recipe, folder = shards(options.data_dir, changes)
    model = recipe.model
    sizes = f"{model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}"
    update = f"{recipe.train.batch_tokens:,}-token updates"
    print(f"{sizes}, {recipe.data.vocab_size:,} subwords, {update}; median of {options.rounds}")
    if options.peers:
        beside_peers(options.peers.resolve(), Task(recipe, changes, folder), options.rounds)
    else:
        beside_torch(recipe, folder, options.rounds)


if __name__ == "__main__":
    main()
