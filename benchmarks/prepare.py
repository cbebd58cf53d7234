"""`nmt preprocess` on a corpus of millions of pairs, beside SentencePiece alone.

    python benchmarks/prepare.py --pairs 10000000 --work FOLDER [--vocab 37000] [--slices 20]

makes the text (`made_up`: no real language, but word frequencies after Zipf, word forms of stems and endings, sentence
lengths as news text has them), runs the command on it, watches the memory of all its processes, and says what share of
SentencePiece's own speed the encoding reaches: the same text and model, as many processes as cores, each of which calls
`encode` on lists of lines that lie in its memory, alternated with slices of `nmt`'s own stage. Then it starts a training
on the shards and measures the time to its first update, and its memory. FOLDER is kept; run again it takes the text
that is there.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import numpy as np

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

[model]
encoder_layers = 2
decoder_layers = 2
d_model = 128
d_ff = 256
num_heads = 4

[train]
batch_tokens = 25_000
updates = {updates}
log_every = 1
valid_every = 1000000
checkpoint_every = 1000000
checkpoint_minutes = 0
"""


# --- the text ---


def words(language: int) -> list[str]:
    """TYPES word forms, the frequent ones short: stems of syllables, and endings."""
    random = np.random.default_rng(language)
    onsets = ["b", "bl", "br", "d", "dr", "f", "fl", "g", "gr", "h", "k", "kl", "kr", "l", "m", "n", "p", "pr", "r", "s", "sch", "sp", "st", "t", "tr", "v", "w", "z"]
    vowels = ("a e i o u ea ou ai" if language == 0 else "a e i o u ei ie au ä ö ü").split()
    codas = ["", "", "", "n", "r", "l", "s", "t", "nd", "st", "ng", "ck", "m"]
    endings = ["", "", "s", "ed", "ing", "ly", "er", "ness"] if language == 0 else ["", "", "e", "en", "er", "es", "ung", "lich", "te"]
    made: dict[str, None] = {}
    while len(made) < TYPES:
        syllables = 1 + int(np.log10(len(made) + 1) / 2.6 + random.random() * 0.9)
        picks = random.integers(0, 1 << 30, (syllables, 3))
        stem = "".join(onsets[a % len(onsets)] + vowels[b % len(vowels)] + codas[c % len(codas)] for a, b, c in picks.tolist())
        made.setdefault(stem + endings[int(random.integers(len(endings)))])
    forms = list(made)
    return [form.capitalize() if random.random() < (0.3 if language else 0.1) else form for form in forms]


def made_up(language: int, vocabulary: list[str], seed: int, lines: int) -> str:
    """So many lines of made-up text."""
    random = np.random.default_rng((seed, 7))  # both sides share the lengths' draw
    lengths = np.clip(random.lognormal(3.05, 0.6, lines) * (1 + 0.1 * language), 1, 120).astype(np.int64)
    random = np.random.default_rng((seed, language))
    ranks = np.minimum(random.pareto(0.65, int(lengths.sum())) * 4, len(vocabulary) - 1).astype(np.int64)
    tokens = [vocabulary[i] for i in ranks.tolist()]
    out, place = [], 0
    for number, length in enumerate(lengths.tolist()):
        sentence = tokens[place : place + length]
        place += length
        if number % 7 == 0:
            sentence[0] += ","
        out.append(" ".join(sentence) + (" ?" if number % 23 == 0 else "." if number % 5 else f" {seed * lines + number}."))
    return "\n".join(out) + "\n"


def make_side(task: tuple[str, int, int]) -> None:
    """Write train and valid of one language."""
    folder, language, pairs = task
    vocabulary = words(language)
    name = LANGUAGES[language]
    Path(folder, f"valid.{name}").write_text(made_up(language, vocabulary, 1_000_000, 1000), encoding="utf-8")
    partial = Path(folder, f".train.{name}")
    with partial.open("w", encoding="utf-8") as file:
        for seed, first in enumerate(range(0, pairs, BLOCK)):
            file.write(made_up(language, vocabulary, seed, min(BLOCK, pairs - first)))
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
                found = {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
                pss += found.get("Pss", 0)
                anonymous += found.get("Pss_Anon", found.get("Anonymous", 0))
            self.peak, self.anonymous = max(self.peak, pss), max(self.anonymous, anonymous)

    def stop(self) -> tuple[float, float]:
        """Peaks in GiB: of all, and of what is not a file's."""
        self._end.set()
        self._thread.join()
        return self.peak / 2**20, self.anonymous / 2**20


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                queue += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split()]
        except OSError:
            continue
    return found
