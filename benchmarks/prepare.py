"""`nmt preprocess` on a corpus of millions of pairs, beside SentencePiece alone, and a training that starts on the shards.

    python benchmarks/prepare.py --work FOLDER [--pairs 10000000] [--vocab 37000]

makes the text (`random_text`: no real language, but word frequencies after Zipf, forms of stems and endings, sentence lengths
as news text has them), runs `nmt preprocess` on it, all of it, and watches the memory of all its processes. SentencePiece
alone: its `encode` on lists of lines that lie in memory, with the same model, in as many processes as there are cores,
right before and right after; it has nothing to read, to learn, to filter or to write. Then a small training starts on the
shards, and on the shards of the first tenth of the text: the time to the first update, and memory. FOLDER is kept; run
again it takes the text that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from common import setup

from nmt_cli.data.tokenizer import Tokenizer
from nmt_cli.hardware import cores

LANGUAGES = ("en", "de")
TYPES = 1_000_000
"""Word forms of a language."""
BLOCK = 100_000
"""Pairs made at once."""
RECIPE = """\
[data]
train_source = ["train.en"]
train_target = ["train.de"]
valid_source = ["valid.en"]
valid_target = ["valid.de"]
vocab_size = {vocab}
character_coverage = 0.9999
tokenizer = "{tokenizer}"

[model]
encoder_layers = 2
decoder_layers = 2
d_model = 128
d_ff = 256
num_heads = 4

[train]
batch_tokens = 25_000
updates = 20
log_every = 1
valid_every = 1000
checkpoint_every = 1000
checkpoint_minutes = 0.0
"""


# --- the text ---


def words(language: int) -> list[str]:
    """TYPES word forms, the frequent ones short: stems of syllables, and endings."""
    random = np.random.default_rng(language)
    onsets = [
        "b",
        "bl",
        "br",
        "d",
        "dr",
        "f",
        "fl",
        "g",
        "gr",
        "h",
        "k",
        "kl",
        "kr",
        "l",
        "m",
        "n",
        "p",
        "pr",
        "r",
        "s",
        "sch",
        "sp",
        "st",
        "t",
        "tr",
        "v",
        "w",
        "z",
    ]
    vowels = ("a e i o u ea ou ai" if language == 0 else "a e i o u ei ie au ä ö ü").split()
    codas = ["", "", "", "n", "r", "l", "s", "t", "nd", "st", "ng", "ck", "m"]
    endings = (
        ["", "", "s", "ed", "ing", "ly", "er", "ness"]
        if language == 0
        else ["", "", "e", "en", "er", "es", "ung", "lich", "te"]
    )
    unique_forms: dict[str, None] = {}
    while len(unique_forms) < TYPES:
        syllables = 1 + int(np.log10(len(unique_forms) + 1) / 2.6 + random.random() * 0.9)
        picks = random.integers(0, 1 << 30, (syllables, 3))
        stem = "".join(
            onsets[a % len(onsets)] + vowels[b % len(vowels)] + codas[c % len(codas)] for a, b, c in picks.tolist()
        )
        unique_forms.setdefault(stem + endings[int(random.integers(len(endings)))])
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
        out.append(
            " ".join(sentence) + (" ?" if number % 23 == 0 else "." if number % 5 else f" {seed * lines + number}.")
        )
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


# --- memory ---


class Memory:
    """The memory of a process and all below it, looked at ten times a second: proportional set size, shared pages shared out."""

    def __init__(self, root: int) -> None:
        self.root, self.peak, self.anonymous, self._end = root, 0, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            pss, anonymous = 0, 0
            for pid in tree(self.root):
                try:
                    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
                except OSError:
                    continue
                fields = {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
                pss += fields.get("Pss", 0)
                anonymous += fields.get("Pss_Anon", fields.get("Anonymous", 0))
            self.peak, self.anonymous = max(self.peak, pss), max(self.anonymous, anonymous)

    def stop(self) -> tuple[float, float]:
        """Peaks in GiB: of all, and of what is not a file's map."""
        self._end.set()
        self._thread.join()
        return self.peak / 2**20, self.anonymous / 2**20


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    pids, queue = [], [root]
    while queue:
        pid = queue.pop()
        pids.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                queue += [
                    int(child)
                    for child in Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split()
                ]
        except OSError:
            continue
    return pids


# --- the runs ---

NMT = [sys.executable, "-m", "nmt_cli"]


def preprocess(
    folder: Path, name: str, vocab: int, text: Path, tokenizer: str = ""
) -> tuple[float, float, float, dict[str, object]]:
    """Seconds, peak GiB of all processes and without file maps, and the command's own summary."""
    recipe = folder / f"{name}.toml"
    recipe.write_text(RECIPE.format(vocab=vocab, tokenizer=tokenizer), encoding="utf-8")
    shutil.rmtree(folder / name, ignore_errors=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [*NMT, "preprocess", str(recipe), "--data-dir", str(text), "--out", str(folder / name), "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    memory = Memory(process.pid)
    out, _ = process.communicate()
    seconds = time.perf_counter() - began
    if process.returncode:
        sys.exit(process.returncode)
    return seconds, *memory.stop(), json.loads(out)


def train(folder: Path, name: str, updates: int = 6) -> tuple[float, float, float, float]:
    """Seconds from the command to the start of training and to the end of the first update; peaks of memory in GiB after `updates`."""
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
    peaks = memory.stop()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    if not first:
        sys.exit(f"the training on {name} ended before its first update")
    return started, first, *peaks


def encode_slice(task: tuple[str, str, int, int]) -> tuple[int, float]:
    """SentencePiece on so many lines of a file from one on: lines and seconds."""
    model, path, first, count = task
    tokenizer = Tokenizer.load(model)
    with open(path, encoding="utf-8", newline="\n") as file:
        lines = [line.rstrip("\n") for line in islice(file, first, first + count)]
    began = time.perf_counter()
    for start in range(0, len(lines), 8000):
        tokenizer.encode(lines[start : start + 8000])
    return len(lines), time.perf_counter() - began


def sentencepiece_alone(model: Path, text: Path, pairs: int, lines: int = 100_000) -> float:
    """Lines a second of a process a core, both languages, from the middle of the text."""
    count = min(lines, pairs // 2)
    tasks = [
        (str(model), str(text / f"train.{LANGUAGES[number % 2]}"), pairs // 3, count)
        for number in range(max(2, cores()))
    ]
    with get_context("spawn").Pool(len(tasks)) as pool:
        return sum(done / seconds for done, seconds in pool.map(encode_slice, tasks, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--vocab", type=int, default=37_000)
    options = parser.parse_args()
    setup(0)
    work: Path = options.work
    texts = {"whole": work / "text", "tenth": work / "text-tenth"}
    for name, pairs in (("whole", options.pairs), ("tenth", options.pairs // 10)):
        texts[name].mkdir(parents=True, exist_ok=True)
        with get_context("spawn").Pool(2) as pool:
            pool.map(
                make_side,
                [
                    (str(texts[name]), number, pairs)
                    for number in range(2)
                    if not (texts[name] / f"train.{LANGUAGES[number]}").exists()
                ],
            )
    size = sum((texts["whole"] / f"train.{name}").stat().st_size for name in LANGUAGES)
    print(f"{options.pairs:,} pairs, {size / 2**30:.2f} GiB of text")
    preprocess(work, "tenth", options.vocab, texts["tenth"])  # and with it a model for SentencePiece before the whole
    before = sentencepiece_alone(work / "tenth" / "tokenizer.model", texts["whole"], options.pairs)
    seconds, peak, anonymous, summary = preprocess(work, "whole", options.vocab, texts["whole"])
    after = sentencepiece_alone(work / "whole" / "tokenizer.model", texts["whole"], options.pairs)
    alone = 2 * options.pairs / ((before + after) / 2)
    print(
        f"nmt preprocess, all of it          {seconds:8.1f} s   {2 * options.pairs / seconds:10,.0f} lines/s   peak {peak:.2f} GiB ({anonymous:.2f} without file maps)"
    )
    print(
        f"SentencePiece alone, encoding only {alone:8.1f} s   {before:10,.0f} and {after:,.0f} lines/s before and after"
    )
    print(
        f"nmt preprocess reaches {alone / seconds:.2f} × of SentencePiece alone; for 36 million pairs: {seconds * 36e6 / options.pairs / 60:.0f} minutes"
    )
    print("splits:", json.dumps(summary["splits"])[:300])
    for name in ("tenth", "whole"):
        started, first, peak, anonymous = train(work, name)
        print(
            f"training on the {name}: starts after {started:.1f} s, first update after {first:.1f} s; peak {peak:.2f} GiB ({anonymous:.2f} without file maps)"
        )


if __name__ == "__main__":
    main()
