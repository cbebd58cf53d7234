"""The demo corpus: English-German sentence pairs in two files, which tools/demo_corpus generates.

    demo_corpus.en.xz, demo_corpus.de.xz    lines of train, an empty line, those of valid, an empty line, those of test

A small grammar wrote the text. So scores on it show that training and decoding work. They show nothing about the
translation of real text. No sentence of training has a combination of words, or a number, that is held out: every
sentence of valid and test has one.
"""

from __future__ import annotations

from pathlib import Path

from ..text.lines import open_binary

LANGUAGES = ("en", "de")
SPLITS = ("train", "valid", "test")


def pairs(train: int = 30_000, valid: int = 500, test: int = 1_000) -> dict[str, list[tuple[str, str]]]:
    """Return the first pairs (English, German) of each split: as many as asked for, or as there are."""
    sides = []
    for language in LANGUAGES:
        with open_binary(Path(__file__).with_name(f"demo_corpus.{language}.xz")) as stream:
            sides.append([part.splitlines() for part in stream.read().decode("utf-8").split("\n\n")])
    counts = zip(SPLITS, (train, valid, test), *sides, strict=True)
    return {name: list(zip(english, german, strict=True))[:count] for name, count, english, german in counts}


def write_corpus(folder: Path) -> None:
    """Write train, valid and test as NAME.en and NAME.de, in UTF-8, one sentence per line. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in pairs().items():
        for side, language in enumerate(LANGUAGES):
            text = "".join(f"{pair[side]}\n" for pair in split)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8", newline="\n")
