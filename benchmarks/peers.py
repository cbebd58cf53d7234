"""Other toolkits, trained by their own commands on our data: eole 0.6.4 and JoeyNMT 2.3.0.

    python benchmarks/peers.py FOLDER       a virtual environment for each, with the torch of this one

then `benchmarks/train.py --peers FOLDER` lets them run beside `nmt train`, which is a side like them:

    Task (recipe + shards) ──▶ Side.prepare: the side's data and configuration ──▶ Side.train: its command, its log ──▶ tok/s

The sides have everything alike that can be: the text, cut into our tokenizer's pieces beforehand, and its vocabulary;
the model's sizes, biases and tied embeddings; label smoothing, Adam, batch tokens, threads. What is left is their own:

    update      ours holds up to `batch_tokens` source and as many target tokens, padding counted, in cells of like
                length (4,096 as two of 2,048). eole has the same bound, begin symbols counted, on the longer side of
                pairs sorted by source, then target length, and leaves out equal sources in one batch. JoeyNMT takes
                pairs as they come, not by length, up to one sentence above the bound. Of Multi30k an update of 2,048
                has on average 1,858 target tokens (1,865 with padding), 1,785 (1,917) and 988 (2,069).
    dropout     eole and JoeyNMT also drop inside the feed-forward layer, JoeyNMT attention weights too.
    norm        eole is pre-norm only; the others what the recipe says.
    precision   eole's bf16 is autocast. JoeyNMT has fp16 alone, which it turns off on a CPU: there is no such side.
    statistics  eole's attention entropy is turned off, in its favour. On a CPU its attention is never a fused kernel.

All logs give real target tokens a second of the wall time since the line before: end symbols counted, begin symbols
and padding not, and the making of batches in the time. eole's `a/b tok/s` are source and target. The peers' figures
were checked against counts and clocks of our own inside their training steps. The first intervals of a run, in which
kernels and memory are warmed up, do not count.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from sides import LOG_EVERY, NEVER, Side, Task, checked

from nmt_cli.data.shards import Corpus, Split
from nmt_cli.data.tokenizer import SPECIALS, Vocabulary
from nmt_cli.training.loader import WORKERS

SPLITS: tuple[Split, ...] = ("train", "valid")


class Peer(Side):
    """A toolkit in a virtual environment of its own, `environments`/`package`."""

    package: str
    pinned: str
    requirements: str
    """What it needs besides torch. Its own list is not followed: it would fetch another torch, and parts that are not used."""
    program: tuple[str, ...]
    flags: tuple[str, ...] = ()
    """Of Python, before and after the configuration's name."""
    rate: str
    """A pattern for the target tokens a second in its log."""
    specials: tuple[str, ...] = ()
    """What its vocabulary file begins with."""

    def __init__(self, environments: Path) -> None:
        self.environment = environments / self.package
        self.python = str(self.environment / "bin" / "python")

    def install(self) -> None:
        """Make the environment, unless a complete one is there."""
        wanted, mark = (
            f"{self.package}=={self.pinned} torch=={torch.__version__} {self.requirements}",
            self.environment / ".complete",
        )
        if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
            return
        checked([sys.executable, "-m", "venv", str(self.environment)])
        constraint = self.environment / "constraint.txt"
        constraint.write_text(f"torch=={torch.__version__}\n", encoding="utf-8")
        pip = [self.python, "-m", "pip", "install", "--quiet"]
        checked([*pip, "--constraint", str(constraint), "torch", *self.requirements.split()])
        checked([*pip, "--no-deps", f"{self.package}=={self.pinned}"])
        mark.write_text(wanted, encoding="utf-8")

    @property
    def version(self) -> str:
        return checked(
            [
                self.python,
                "-c",
                f"from importlib.metadata import version as v; print(v({self.package!r}), '· torch', v('torch'))",
            ]
        ).strip()

    def prepare(self, work: Path, task: Task) -> None:
        work.mkdir(parents=True)
        self.data, self.task = work, task
        pieces = pieces_of(task.shards)
        write_lines(work / "vocabulary", [*self.specials, *pieces[len(SPECIALS) :]])
        for split in SPLITS:
            corpus = Corpus.open(task.shards, split)
            for number, side in enumerate(("source", "target")):
                write_lines(
                    work / f"{split}.{side}",
                    (" ".join(pieces[i] for i in corpus.pair(n)[number]) for n in range(len(corpus))),
                )

    def command(self, run: Path, updates: int, threads: int) -> list[str]:
        run.mkdir()
        file = run / "configuration.yaml"  # JSON is YAML
        file.write_text(json.dumps(self.configuration(run, updates), indent=1), encoding="utf-8")
        return [self.python, *self.program, str(file), *self.flags]

    @abstractmethod
    def configuration(self, run: Path, updates: int) -> dict[str, Any]:
        """Of one run, on what `prepare` wrote."""

    def rates(self, log: str, run: Path) -> list[float]:
        return [float(rate) for rate in re.findall(self.rate, log)]


class Eole(Peer):
    """eole, in fp32 or with bf16 autocast; with `gpu` on the first GPU, where processes prepare its batches as ours."""

    package, pinned = "eole", "0.6.4"
    requirements = (
        "configargparse pyyaml rich sacrebleu safetensors sentencepiece<=0.2.2 pyonmttok pyahocorasick rapidfuzz pandas tokenizers subword-nmt tensorboard pydantic "
        "torch-optimi six ctranslate2 huggingface_hub fastapi aiohttp uvicorn waitress requests datasets"
    )
    program = ("-m", "eole.bin.main", "train", "--config")
    rate = r"/ *(\d+) tok/s"

    def __init__(self, environments: Path, precision: str, gpu: bool = False) -> None:
        super().__init__(environments)
        self.name, self.precision, self.gpu = f"eole, {precision}", precision, gpu

    def configuration(self, run: Path, updates: int) -> dict[str, Any]:
        model, train, vocabulary = self.task.recipe.model, self.task.recipe.train, str(self.data / "vocabulary")
        return {
            "seed": 1,
            "src_vocab": vocabulary,
            "tgt_vocab": vocabulary,
            "share_vocab": True,
            "save_data": str(run / "data"),
            "overwrite": True,
            "report_every": LOG_EVERY,
            "data": {
                "corpus": {
                    "path_src": str(self.data / "train.source"),
                    "path_tgt": str(self.data / "train.target"),
                    "transforms": [],
                }
            },
            "training": {
                "batch_type": "tokens",
                "batch_size": train.batch_tokens,
                "accum_count": [1],
                "bucket_size": len(Corpus.open(self.task.shards, "train")),
                "num_workers": WORKERS if self.gpu else 0,
                "normalization": "tokens",
                "train_steps": updates,
                "valid_steps": NEVER,
                "save_checkpoint_steps": NEVER,
                "model_path": str(run / "model"),
                "optim": "adam",
                "adam_beta2": train.adam_beta2,
                "learning_rate": train.lr_factor,
                "decay_method": "noam",
                "warmup_steps": train.warmup,
                "max_grad_norm": train.clip_norm,
                "label_smoothing": train.label_smoothing,
                "dropout": [model.dropout],
                "attention_dropout": [0.0],
                "world_size": 1,
                "gpu_ranks": [0] if self.gpu else [],
                "compute_dtype": self.precision,
                "log_attention_entropy": False,  # a statistic that costs time
            },
            "model": {
                "architecture": "transformer",
                "encoder": {"layers": model.encoder_layers},
                "decoder": {"layers": model.decoder_layers},
                "hidden_size": model.d_model,
                "transformer_ff": model.d_ff,
                "heads": model.num_heads,
                "add_qkvbias": True,
                "add_final_linear_bias": True,
                "add_ffnbias": True,
                "embeddings": {"word_vec_size": model.d_model, "position_encoding_type": "SinusoidalInterleaved"},
                "share_embeddings": True,
                "share_decoder_embeddings": True,
            },
        }


class JoeyNMT(Peer):
    """JoeyNMT, in fp32."""

    name = "JoeyNMT, fp32"
    package, pinned = "joeynmt", "2.3.0"
    requirements = (
        "future pillow numpy setuptools<80 tensorboard sacrebleu sacremoses sentencepiece subword-nmt matplotlib seaborn pyyaml six wrapt datasets packaging plotly "
        "pandas importlib_metadata"
    )
    program, flags = ("-m", "joeynmt", "train"), ("--skip-test",)
    rate = r"Tokens per Sec: *(\d+)"
    specials = ("<unk>", "<pad>", "<s>", "</s>")

    def configuration(self, run: Path, updates: int) -> dict[str, Any]:
        train, limit = self.task.recipe.train, self.task.recipe.data.max_length
        side = {"max_length": limit, "level": "word", "voc_file": str(self.data / "vocabulary")}
        return {
            "name": "benchmark",
            "joeynmt_version": self.pinned,
            "model_dir": str(run / "model"),
            "use_cuda": False,
            "fp16": False,
            "random_seed": 42,
            "data": {
                "train": str(self.data / "train"),
                "dev": str(self.data / "valid"),
                "dataset_type": "plain",
                "src": {"lang": "source", **side},
                "trg": {"lang": "target", **side},
            },
            "testing": {"beam_size": 1, "batch_type": "sentence", "max_output_length": limit},
            "training": {
                "batch_type": "token",
                "batch_size": train.batch_tokens,
                "normalization": "tokens",
                "shuffle": True,
                "epochs": NEVER,
                "updates": updates,
                "logging_freq": LOG_EVERY,
                "validation_freq": NEVER,
                "overwrite": True,
                "optimizer": "adam",
                "adam_betas": [train.adam_beta1, train.adam_beta2],
                "scheduling": "warmupinversesquareroot",
                "learning_rate": 0.0005,
                "learning_rate_warmup": train.warmup,
                "loss": "crossentropy",
                "label_smoothing": train.label_smoothing,
                "early_stopping_metric": "loss",
            },
            "model": {
                "initializer": "xavier_uniform",
                "embed_initializer": "xavier_uniform",
                "tied_embeddings": True,
                "tied_softmax": True,
                "encoder": self._half(self.task.recipe.model.encoder_layers),
                "decoder": self._half(self.task.recipe.model.decoder_layers),
            },
        }

    def _half(self, layers: int) -> dict[str, Any]:
        """Encoder or decoder."""
        model = self.task.recipe.model
        return {
            "type": "transformer",
            "num_layers": layers,
            "hidden_size": model.d_model,
            "ff_size": model.d_ff,
            "num_heads": model.num_heads,
            "dropout": model.dropout,
            "layer_norm": model.residual,
            "embeddings": {"embedding_dim": model.d_model, "scale": True, "dropout": model.dropout},
        }


def peers(environments: Path) -> list[Peer]:
    """Every side that is not ours, its environment ready."""
    sides: list[Peer] = [Eole(environments, "fp32"), Eole(environments, "bf16"), JoeyNMT(environments)]
    for side in sides:
        side.install()
    return sides


def pieces_of(shards: Path) -> list[str]:
    """The pieces of the joint vocabulary, by id."""
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_proto=Vocabulary.load(shards).source.model)
    pieces: list[str] = processor.id_to_piece(list(range(processor.get_piece_size())))
    return pieces


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the virtual environments are, or go")
    for side in peers(parser.parse_args().folder.resolve()):
        print(f"{side.name}: {side.version}")


if __name__ == "__main__":
    main()
