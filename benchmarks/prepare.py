"""`nmt preprocess` on a corpus of millions of pairs, beside SentencePiece alone, and a training that starts on the shards.

    python benchmarks/prepare.py --work FOLDER [--pairs 10000000] [--vocab 37000]

The text is generated: no real language, but word frequencies after Zipf, forms of stems and endings, sentence lengths as
news text has them. `nmt preprocess` does all of its work, and the memory of all its processes is watched. SentencePiece
alone encodes lists of lines in memory with the same model, in a process for each core, right before and right after. Then a
small training starts on the shards, and on those of a tenth of the text: seconds to the first update, and memory. FOLDER is
kept; the same command takes the text that is there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from common import NMT, Memory, print_rows, setup

from nmt_cli.data.tokenizer import Tokenizer
from nmt_cli.device.processor import cores

LANGUAGES = ("en", "de")
TYPES = 1_000_000
"""Word forms of a language."""
ONSETS = "b bl br d dr f fl g gr h k kl kr l m n p pr r s sch sp st t tr v w z"
BLOCK = 100_000
"""Pairs made at once."""
RECIPE = """\
data.train_source = ["train.en"]
data.train_target = ["train.de"]
data.valid_source = ["valid.en"]
data.valid_target = ["valid.de"]
data.vocab_size = {vocab}
data.character_coverage = 0.9999
model = {{ encoder_layers = 2, decoder_layers = 2, d_model = 128, d_ff = 256, num_heads = 4 }}
train = {{ batch_tokens = 25_000, updates = 20, log_every = 1, valid_every = 1000, checkpoint_every = 1000, checkpoint_minutes = 0.0 }}
"""


# --- the text ---


def words(language: int) -> list[str]:
    """TYPES word forms, the frequent ones short: stems of syllables, and endings."""
    random = np.random.default_rng(language)
    onsets = ONSETS.split()
    vowels = ("a e i o u ea ou ai" if language == 0 else "a e i o u ei ie au ä ö ü").split()
    codas = ["", "", "", "n", "r", "l", "s", "t", "nd", "st", "ng", "ck", "m"]
    endings = [",,s,ed,ing,ly,er,ness", ",,e,en,er,es,ung,lich,te"][language].split(",")
    unique_forms: dict[str, None] = {}
    while len(unique_forms) < TYPES:
        syllables = 1 + int(np.log10(len(unique_forms) + 1) / 2.6 + random.random() * 0.9)
        picks = random.integers(0, 1 << 30, (syllables, 3))
        syllable = (
            onsets[a % len(onsets)] + vowels[b % len(vowels)] + codas[c % len(codas)] for a, b, c in picks.tolist()
        )
        unique_forms.setdefault("".join(syllable) + endings[int(random.integers(len(endings)))])
    forms = list(unique_forms)
    return [form.capitalize() if random.random() < (0.3 if language else 0.1) else form for form in forms]


def random_text(language: int, vocabulary: list[str], seed: int, lines: int) -> str:
    """So many lines of made-up text."""
    random = np.random.default_rng((seed, 7))  # both sides share the lengths' draw
    lengths = np.clip(random.lognormal(3.05, 0.6, lines) * (1 + 0.1 * language), 1, 120).astype(np.int64)
    random = np.random.default_rng((seed, language))
    ranks = np.minimum(random.pareto(0.65, int(lengths.sum())) * 4, len(vocabulary) - 1).astype(np.int64)
    tokens = [vocabulary[i] for i in ranks.tolist()]
    out, position = [], 0
    for number, length in enumerate(lengths.tolist()):
        sentence = tokens[position : position + length]
        position += length
        if number % 7 == 0:
            sentence[0] += ","
        end = " ?" if number % 23 == 0 else "." if number % 5 else f" {seed * lines + number}."
        out.append(" ".join(sentence) + end)
    return "\n".join(out) + "\n"


def make_side(task: tuple[str, int, int]) -> None:
    """Write train and valid of one language."""
    folder, language, pairs = task
    vocabulary = words(language)
    name = LANGUAGES[language]
    Path(folder, f"valid.{name}").write_text(random_text(language, vocabulary, 1_000_000, 1000), encoding="utf-8")
    partial = Path(folder, f".train.{name}")
    with partial.open("w", encoding="utf-8") as file:
        for seed, first in enumerate(range(0, pairs, BLOCK)):
            file.write(random_text(language, vocabulary, seed, min(BLOCK, pairs - first)))
    partial.rename(Path(folder, f"train.{name}"))


# --- the runs ---


def preprocess(folder: Path, name: str, vocab: int, text: Path) -> tuple[float, float]:
    """Run `nmt preprocess`. Return its seconds, and the peak MiB of all its processes."""
    recipe = folder / f"{name}.toml"
    recipe.write_text(RECIPE.format(vocab=vocab), encoding="utf-8")
    shutil.rmtree(folder / name, ignore_errors=True)
    began = time.perf_counter()
    command = [*NMT, "preprocess", str(recipe), "--data-dir", str(text), "--out", str(folder / name)]
    process = subprocess.Popen(command)
    memory = Memory(process.pid)
    if process.wait():
        sys.exit(process.returncode)
    return time.perf_counter() - began, memory.stop()[0]


def train(folder: Path, name: str, updates: int = 6) -> tuple[float, float, float]:
    """Train a small model for some updates.

    Return the seconds from the command to the start of training, and to the end of the first update, and the peak MiB
    without file maps.
    """
    run = folder / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    began = time.perf_counter()
    command = [*NMT, "train", str(folder / f"{name}.toml"), "--data", str(folder / name), "--run", str(run)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    memory, started, first = Memory(process.pid), 0.0, 0.0
    assert process.stderr is not None
    for line in process.stderr:
        started = started or time.perf_counter() - began
        if match := re.match(r"update (\d+)/", line):
            first = first or time.perf_counter() - began
            if int(match[1]) >= updates:
                break
    peak = memory.stop()[1]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if not first:
        sys.exit(f"the training on {name} ended before its first update")
    return started, first, peak


def encode_slice(task: tuple[str, str, int, int]) -> float:
    """Return the lines per second of SentencePiece on so many lines of a file from one on."""
    model, path, first, count = task
    tokenizer = Tokenizer.load(model)
    with open(path, encoding="utf-8", newline="\n") as file:
        lines = [line.rstrip("\n") for line in islice(file, first, first + count)]
    began = time.perf_counter()
    for start in range(0, len(lines), 8000):
        tokenizer.encode(lines[start : start + 8000])
    return len(lines) / (time.perf_counter() - began)


def sentencepiece_alone(shards: Path, text: Path, pairs: int) -> float:
    """Return the lines per second of a process for each core, both languages, from the middle of the text."""
    model, count = str(shards / "tokenizer.model"), min(100_000, pairs // 2)
    paths = [str(text / f"train.{LANGUAGES[number % 2]}") for number in range(max(2, cores()))]
    with get_context("spawn").Pool(len(paths)) as pool:
        return sum(pool.map(encode_slice, [(model, path, pairs // 3, count) for path in paths], 1))


def generate(folder: Path, pairs: int) -> Path:
    """Write the text into a folder, if that was not done before. Return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [number for number, name in enumerate(LANGUAGES) if not (folder / f"train.{name}").exists()]
    with get_context("spawn").Pool(2) as pool:
        pool.map(make_side, [(str(folder), number, pairs) for number in missing])
    return folder


def main() -> None:
    """Generate the text, prepare it and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--vocab", type=int, default=37_000)
    options = parser.parse_args()
    setup(0)
    work, lines = options.work, 2 * options.pairs
    text, tenth = generate(work / "text", options.pairs), generate(work / "text-tenth", options.pairs // 10)
    size = sum((text / f"train.{name}").stat().st_size for name in LANGUAGES)
    print(f"{options.pairs:,} pairs, {size / 2**30:.2f} GiB of text")
    preprocess(work, "tenth", options.vocab, tenth)  # and with it a model for SentencePiece before the whole
    before = sentencepiece_alone(work / "tenth", text, options.pairs)
    seconds, peak = preprocess(work, "whole", options.vocab, text)
    after = sentencepiece_alone(work / "whole", text, options.pairs)
    rate = (before + after) / 2
    rows = [
        ["", "seconds", "lines per second", "peak GiB"],
        ["nmt preprocess", f"{seconds:.1f}", f"{lines / seconds:,.0f}", f"{peak / 1024:.2f}"],
        ["SentencePiece, encoding alone", f"{lines / rate:.1f}", f"{rate:,.0f}", ""],
    ]
    print_rows(rows)
    around = f"before: {before:,.0f} lines per second, after: {after:,.0f}"
    print(f"nmt ÷ SentencePiece: {lines / seconds / rate:.2f} ({around})")
    rows = [["training on", "starts after, s", "first update after, s", "peak GiB without file maps"]]
    for name in ("tenth", "whole"):
        started, first, peak = train(work, name)
        rows.append([name, f"{started:.1f}", f"{first:.1f}", f"{peak / 1024:.2f}"])
    print_rows(rows)


if __name__ == "__main__":
    main()
