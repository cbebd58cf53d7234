"""The share of lines that come back unchanged from a vocabulary, by rule of normalisation.

training text of a language ──▶ vocabulary with `nmt_nfkc`, with `nfc` ──▶ held-out lines: encode, decode, compare

    python benchmarks/catalogues.py CORPORA --languages zh_CN,ja,th,fa
    python benchmarks/normalization.py CORPORA

CORPORA has a folder for each language, with train.LANG and test.LANG. A run of spaces counts as one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from nmt_cli.data.tokenizer import Tokenizer, learn_from_words
from nmt_cli.data.words import count_words
from nmt_cli.errors import DataError
from nmt_cli.recipe import DataSection

LINES = 20_000
"""Lines from which a vocabulary is learned."""
SIZES = (8000, 4000, 2000, 1000, 500)
"""Sizes of the vocabulary: the first one that the text supports."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    print("language  lines  nmt_nfkc    nfc")
    for folder in sorted(parser.parse_args().corpora.iterdir()):
        if not (folder / f"test.{folder.name}").is_file():
            continue
        train, test = (lines(folder / f"{part}.{folder.name}") for part in ("train", "test"))
        shares = [unchanged(vocabulary(train[:LINES], rule), test) for rule in ("nmt_nfkc", "nfc")]
        print(f"{folder.name:<8} {len(test):>6} {shares[0]:>9.1%} {shares[1]:>6.1%}", flush=True)


def lines(path: Path) -> list[str]:
    """Return the lines of a file that are not blank, with one space for each run of spaces."""
    text = (" ".join(filter(None, line.split(" "))) for line in path.read_text(encoding="utf-8").split("\n"))
    return [line for line in text if line]


def vocabulary(text: list[str], rule: str) -> Tokenizer:
    """Return the largest vocabulary of SIZES that the text supports, with this rule."""
    words = list(count_words(text).items())
    for size in SIZES:
        values = {"train_source": ["-"], "train_target": ["-"], "vocab_size": size, "normalization": rule}
        try:
            return learn_from_words(words, DataSection.model_validate(values))
        except DataError as error:
            refused = error
    raise refused


def unchanged(tokenizer: Tokenizer, text: list[str]) -> float:
    """Return the share of lines that decode to themselves."""
    return sum(map(str.__eq__, tokenizer.decode(tokenizer.encode(text)), text)) / len(text)


if __name__ == "__main__":
    main()
