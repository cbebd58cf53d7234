"""Speed of a model of OPUS-MT's size: nmt after `nmt import`, beside Marian, CTranslate2 and transformers.

    python benchmarks/imported.py [--marian-python FILE] [--folder DIR] [--lines 64] [--tokens 25] [--rounds 3] [--threads 2]

6 + 6 layers, d 512, 58,000 pieces, beam 4, no shortlist. The weights are random, the same for all but transformers, which has its
own. The end symbol never comes: every side writes as many tokens as the source has, its end symbol counted, and the table says how
many it wrote. The sides take turns, each time in a fresh process; figures are medians. "start" is the time until a first line,
alone, is translated, "MiB" the largest memory of the process and its workers. A side that is not installed is left out; Marian runs
in the Python that is given (`pip install pymarian`). The folder keeps the models: a second run finds them there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import imported_side
import numpy as np
import yaml
from common import NMT, Memory, checked, print_rows, setup
from decode_side import SETTLE, Answer, Job, Process
from imported_side import HEADS, HIDDEN, KINDS, LAYERS, NEVER, VOCABULARY, WIDTH, piece
from sentencepiece import SentencePieceTrainer

WORDS, BEAM, BATCH = 1000, 4, 32
"""WORDS: pieces that are read and written. BATCH: lines of a batch, but for nmt, which chooses its own."""
FORM = {
    **{"type": "transformer", "version": "v1.12.0", "enc-depth": LAYERS, "dec-depth": LAYERS, "dim-emb": WIDTH},
    **{"tied-embeddings-all": True, "transformer-heads": HEADS, "transformer-dim-ffn": HIDDEN},
    **{"transformer-ffn-depth": 2, "transformer-ffn-activation": "swish", "dim-vocabs": [VOCABULARY, VOCABULARY]},
    **{"transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d"},
    **{"transformer-decoder-autoreg": "self-attention", "transformer-guided-alignment-layer": "last"},
    "transformer-no-projection": False,
}


def shapes() -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the name and the shape of each array of Marian's; those of one row are vectors."""
    yield from (("Wemb", (VOCABULARY, WIDTH)), ("decoder_ff_logit_out_b", (1, VOCABULARY)))
    for side, attentions in (("encoder", ["self"]), ("decoder", ["self", "context"])):
        for layer in (f"{side}_l{number + 1}_" for number in range(LAYERS)):
            maps = {f"{name}_%s{part}": (WIDTH, WIDTH) for name in attentions for part in "qkvo"}
            for name, shape in (maps | {"ffn_%s1": (WIDTH, HIDDEN), "ffn_%s2": (HIDDEN, WIDTH)}).items():
                yield from ((layer + name % "W", shape), (layer + name % "b", (1, shape[1])))
            for norm in [*(f"{name}_Wo" for name in attentions), "ffn_ffn"]:
                yield from ((f"{layer}{norm}_ln_{part}", (1, WIDTH)) for part in ("scale", "bias"))


def write_marian(folder: Path) -> None:
    """Write the model as OPUS-MT publishes one."""
    numbers = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for name, shape in shapes():
        bound = WIDTH**-0.5 if name == "Wemb" else (6 / sum(shape)) ** 0.5
        drawn = numbers.uniform(-bound, bound, shape) if shape[0] > 1 else np.full(shape, name.endswith("scale"))
        arrays[name] = drawn.astype(np.float32)
    arrays["decoder_ff_logit_out_b"][0, [0, 1, *range(WORDS + 2, VOCABULARY)]] = NEVER
    arrays["special:model.yml"] = np.frombuffer(yaml.safe_dump(FORM).encode() + b"\0", np.int8)
    folder.mkdir(parents=True)
    table = ["</s>", "<unk>", *map(piece, range(VOCABULARY - 2))]
    (folder / "vocab.yml").write_text("".join(f"{text}: {i}\n" for i, text in enumerate(table)), encoding="utf-8")
    options: dict[str, Any] = {"model_type": "word", "vocab_size": WORDS + 3, "minloglevel": 2}
    for side in ("source", "target"):
        text = iter([piece(number)[1:] for number in range(WORDS)])
        SentencePieceTrainer.train(sentence_iterator=text, model_prefix=str(folder / side), **options)
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
    decoding = {"models": ["model.npz"], "vocabs": ["vocab.yml"] * 2, "beam-size": BEAM, "normalize": 0}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoding), encoding="utf-8")
    np.savez(folder / "model.npz", **arrays)


def sides(folder: Path, marian_python: str, threads: int) -> list[Job]:
    """Write the models that are missing, and return the sides that are installed."""
    original, ours, theirs = folder / "marian", folder / "nmt", folder / "ctranslate2"
    if not (original / "model.npz").exists():
        write_marian(original)
    if not ours.exists():
        checked([*NMT, "import", str(original), "--out", str(ours), "--source-language=xx", "--target-language=yy"])
    found = [("nmt", ours, precision) for precision in ("fp32", "int8")]
    if marian_python:
        arguments = ["convert", "-f", f"{original}/model.npz", "-t", f"{original}/model.bin", "--gemm-type", "intgemm8"]
        if not (original / "model.bin").exists():
            checked([marian_python, "-c", f"from pymarian import _pymarian; _pymarian.main({arguments})"])
        found += [("marian", original, precision) for precision in ("fp32", "int8")]
    if importlib.util.find_spec("ctranslate2"):
        if not theirs.exists():
            converters = importlib.import_module("ctranslate2.converters")
            converters.MarianConverter(f"{original}/model.npz", [f"{original}/vocab.yml"] * 2).convert(str(theirs))
        found += [("ctranslate2", theirs, precision) for precision in ("float32", "int8")]
    if importlib.util.find_spec("transformers"):
        found.append(("transformers", folder, "fp32"))
    own: dict[str, Any] = {kind: {"workers": threads, "threads": 1, "batch": BATCH} for kind in KINDS}
    own["nmt"]["batch"] = 0
    own["transformers"] |= {"workers": 1, "threads": threads}
    shared: dict[str, Any] = {"beam": BEAM, "max_extra": 1}
    paths = ((kind, how, {"folder": str(where), **shared, **own[kind]}) for kind, where, how in found)
    return [Job(name=f"{kind}, {how}", kind=kind, precision=how, **others) for kind, how, others in paths]


def measure(job: Job, marian_python: str, lines: list[str], watched: bool) -> tuple[float, float, Answer]:
    """Return seconds until the first line is translated, MiB, and the answer to all lines."""
    began = time.perf_counter()
    with Process(job, imported_side.__file__, marian_python if job.kind == "marian" else sys.executable) as side:
        side([lines[:1]])
        start = time.perf_counter() - began - SETTLE
        memory = Memory(side.process.pid) if watched else None
        answer = side([lines])
        return start, max(answer.peak / 2**20, memory.stop()[0] if memory else 0), answer


def compare(jobs: Sequence[Job], marian_python: str, lines: list[str], rounds: int) -> None:
    """Print a row for each side. Memory is looked at in a round of its own: looking takes time."""
    results: dict[str, list[tuple[float, float, Answer]]] = {job.name: [] for job in jobs}
    for number in range(rounds + 1):
        for job in jobs:
            results[job.name].append(measure(job, marian_python, lines, number == rounds))
            seconds = results[job.name][-1][2].seconds[0]
            print(f"round {number + 1}: {job.name:<22} {seconds:8.2f} s", file=sys.stderr, flush=True)
    rows = [["", "tokens", "target tok/s", "start, s", "MiB", ""]]
    for job in jobs:
        *timed, (_, mib, answer) = results[job.name]
        tokens = sum(len(text.split()) for text in answer.texts)
        start, seconds = map(statistics.median, zip(*((s, a.seconds[0]) for s, _, a in timed), strict=True))
        rows.append([job.name, f"{tokens:,}", f"{tokens / seconds:,.0f}", f"{start:.2f}", f"{mib:,.0f}", job.settings])
    print_rows(rows)


def main() -> None:
    """Read the options, write the models, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marian-python", default="", help="a Python that has pymarian")
    parser.add_argument("--folder", type=Path, help="where the models are kept; default: nowhere")
    for name, default in (("lines", 64), ("tokens", 25), ("rounds", 3), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    setup(options.threads)
    draw = random.Random(1)
    lines = [" ".join(piece(draw.randrange(WORDS)) for _ in range(options.tokens - 1)) for _ in range(options.lines)]
    with tempfile.TemporaryDirectory(prefix="nmt-bench-") as work:
        found = sides(options.folder or Path(work), options.marian_python, options.threads)
        compare(found, options.marian_python, lines, options.rounds)


if __name__ == "__main__":
    main()
