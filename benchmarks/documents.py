"""Documents: whether markup survives, where tags go, and how sentence splitters compare.

    python benchmarks/documents.py markup --documents 10000                        translations with random alignments
    python benchmarks/documents.py markup --documents 500 --model DIR --text FILE  those of a model
    python benchmarks/documents.py words --model DIR --text FILE --lines 1000
    python benchmarks/documents.py sentences --language de --text FILE

markup: the share of random documents whose translation has the same multiset of tags and is as well-formed. HTML is as well-formed
as before if the same tags are without partner, by number and name; XML if expat accepts it.

words: English captions to German. Each word of LEXICON, the translation of which is known, gets a tag if it occurs once in the line
and its translation once in the model's output. Counted: the tag encloses the translation; it encloses nothing else.

sentences: a file with one sentence per line. Two to eight lines are joined into a paragraph, and the boundaries that each splitter
finds in it are compared with the line ends. Needs the packages of the other splitters: pysbd, syntok, sentence-splitter.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.sax import parseString
from xml.sax.handler import ContentHandler

from random_documents import html_document, scrambled, xml_document

from nmt_cli.documents import read_document
from nmt_cli.documents.html_tokens import tokens
from nmt_cli.documents.items import Kind, Markup, matched
from nmt_cli.documents.tokens import Token, Type
from nmt_cli.documents.xml import tokens as xml_tokens
from nmt_cli.interface.translator import load

LEXICON = {
    "red": "rot",
    "blue": "blau",
    "green": "grün",
    "black": "schwarz",
    "white": "weiß",
    "yellow": "gelb",
    "orange": "orange",
    "brown": "braun",
    "gray": "grau",
    "two": "zwei",
    "three": "drei",
    "four": "vier",
    "five": "fünf",
    "dog": "hund",
    "dogs": "hunde",
    "man": "mann",
    "men": "männer",
    "woman": "frau",
    "women": "frauen",
    "boy": "junge",
    "boys": "jungen",
    "girl": "mädchen",
    "girls": "mädchen",
    "child": "kind",
    "children": "kinder",
    "snow": "schnee",
    "water": "wasser",
    "street": "straße",
    "bench": "bank",
    "beach": "strand",
    "horse": "pferd",
    "ball": "ball",
    "grass": "gras",
    "guitar": "gitarre",
    "shirt": "hemd",
    "dress": "kleid",
    "baby": "baby",
    "and": "und",
    "with": "mit",
    "under": "unter",
    "between": "zwischen",
    "tree": "baum",
    "car": "auto",
    "bus": "bus",
    "bicycle": "fahrrad",
    "house": "haus",
    "table": "tisch",
    "window": "fenster",
    "book": "buch",
}
"""English word → how its German translation begins, in lower case."""
SENTENCES = (
    "A man in a blue shirt is standing on a ladder.",
    "Two dogs run in the snow!",
    "She said: It is 3.5 km, isn't it?",
    "Mr. Smith has the red ball and the red hat.",
    "Yes",
    "A small, old house & a tree",
)


def lines_of(path: Path | None, count: int) -> list[str]:
    """Lines of a file (plain or .gz) without those that are blank."""
    if path is None:
        return list(SENTENCES)
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
        return [line.strip() for line in stream if line.strip()][:count]


# --- markup ---


def tags(text: str, format: str) -> Counter[str]:
    """Everything that is not text, byte for byte."""
    return Counter(
        token.raw for token in (xml_tokens if format == "xml" else tokens)(text) if token.type is not Type.TEXT
    )


def html_errors(text: str) -> tuple[int, list[str]]:
    """How malformed HTML is: the number of tags without partner, and their names."""
    tag_tokens = [token for token in tokens(text) if token.type in (Type.OPEN, Type.CLOSE)]
    partners = matched([_markup(token) for token in tag_tokens])
    return sum(partner is None for partner in partners), sorted(
        token.name for token, partner in zip(tag_tokens, partners, strict=True) if partner is None
    )


def _markup(token: Token) -> Markup:
    return Markup(token.raw, Kind.OPEN if token.type is Type.OPEN else Kind.CLOSE, token.name)


def xml_errors(text: str) -> int:
    """0: raises SAXParseException for XML that is not well-formed."""
    parseString(text.encode("utf-8"), ContentHandler())
    return 0


def markup(options: argparse.Namespace) -> None:
    """Print the share of documents whose markup survives."""
    sentences = lines_of(options.text, 1000)
    translator = load(options.model) if options.model else None
    kinds: dict[str, tuple[str, Callable[[random.Random], str], Callable[[str], Any]]] = {
        "well-formed HTML": ("html", lambda rng: html_document(rng, sentences), html_errors),
        "malformed HTML": ("html", lambda rng: html_document(rng, sentences, malformed=True), html_errors),
        "XML": ("xml", lambda rng: xml_document(rng, sentences), xml_errors),
    }
    count = options.documents // len(kinds) + 1
    for name, (format, generate, errors_of) in kinds.items():
        same, formed, size, lines = 0, 0, 0, 0
        start = time.perf_counter()
        for seed in range(count):
            rng = random.Random(seed)
            text = generate(rng)
            document = read_document(text, format, "en")
            translations: Sequence[Any] = (
                translator.translate(document.lines, alignment=True)
                if translator
                else [scrambled(rng, line) for line in document.lines]
            )
            output = document.write(translations)
            right = tags(output, format) == tags(text, format), errors_of(output) == errors_of(text)
            if not all(right) and options.show:
                print(f"--- seed {seed}: {right}\n{text}\n+++\n{output}")
            same, formed, size, lines = (
                same + right[0],
                formed + right[1],
                size + len(text),
                lines + len(document.lines),
            )
        seconds = time.perf_counter() - start
        print(
            f"{name:<18} {count:>6,} documents, {lines:>7,} sentences: tags the same {same / count:.2%}, as well-formed {formed / count:.2%}   ({size / seconds / 1e6:.2f} MB/s with these checks)",
            flush=True,
        )


# --- words ---


def words(options: argparse.Namespace) -> None:
    """Print how often a tag encloses the translation of its word."""
    lines = lines_of(options.text, options.lines)
    with load(options.model) as translator:
        translations = translator.translate(lines, alignment=True)
    total = inside = alone = 0
    wrong: Counter[str] = Counter()
    for line, translation in zip(lines, translations, strict=True):
        for match in re.finditer(r"\w+", line):
            prefix = LEXICON.get(match[0].lower())
            if (
                not prefix
                or len(re.findall(rf"\b{match[0]}\b", line, re.IGNORECASE)) > 1
                or len(re.findall(rf"\b{prefix}", translation.text.lower())) != 1
            ):
                continue
            text = f"{line[: match.start()]}<b>{match[0]}</b>{line[match.end() :]}"
            document = read_document(text, "html", "en", split_sentences="0")
            enclosed = re.findall(r"<b>(.*?)</b>", document.write([translation]), re.DOTALL)[0].lower()
            good = bool(re.search(rf"\b{prefix}", enclosed))
            total, inside, alone = total + 1, inside + good, alone + (good and len(enclosed.split()) == 1)
            if not good:
                wrong[match[0].lower()] += 1
                if options.show:
                    print(f"{text}\n  {document.write([translation])}")
    shares = [f"{count / max(total, 1):.1%}" for count in (inside, alone)]
    print(
        f"{total:,} words in {len(lines):,} lines: the tag encloses the translation {shares[0]}, "
        f"and nothing else {shares[1]}. Misses: {wrong.most_common(8)}"
    )


# --- sentences ---


def splitters(language: str) -> dict[str, Callable[[str], list[str]]]:
    """Splitters by name; all keep every character of the text but white space."""
    import pysbd
    from sentence_splitter import SentenceSplitter
    from syntok import segmenter

    from nmt_cli.documents.sentences import splitter

    spans_of = splitter(language, "nonewlines")
    import sentencex

    return {
        "sentencex, as used": lambda text: [text[start:end] for start, end in spans_of(text)],
        "sentencex": lambda text: list(sentencex.segment(language, text)),
        "pysbd": pysbd.Segmenter(language=language, clean=False).segment,
        "syntok": lambda text: [
            "".join(token.spacing + token.value for token in sentence)
            for paragraph in segmenter.analyze(text)
            for sentence in paragraph
        ],
        "sentence-splitter": SentenceSplitter(language=language).split,
    }


def boundaries(sentences: Sequence[str]) -> set[int]:
    """Characters before each boundary between sentences, without white space."""
    positions, done = set(), 0
    for sentence in sentences:
        positions.add(done)
        done += len("".join(sentence.split()))
    return positions - {0, done}


def sentences(options: argparse.Namespace) -> None:
    """Print precision, recall and speed of each splitter."""
    rng = random.Random(1)
    lines = [" ".join(line.split()) for line in lines_of(options.text, options.lines)]
    paragraphs = []
    while lines:
        size = rng.randint(2, 8)
        paragraphs.append(lines[:size])
        del lines[:size]
    for name, split in splitters(options.language).items():
        right = predicted = expected = size = 0
        seconds = 0.0
        for paragraph in paragraphs:
            text = " ".join(paragraph)
            start = time.perf_counter()
            result = split(text)
            seconds += time.perf_counter() - start
            got, want = boundaries(result), boundaries(paragraph)
            right, size = right + len(got & want), size + len(text)
            predicted, expected = predicted + len(got), expected + len(want)
        precision, recall = right / predicted, right / expected
        print(
            f"{options.language}  {name:<20} precision {precision:6.2%}  recall {recall:6.2%}  F1 {2 * precision * recall / (precision + recall):6.2%}  {size / seconds / 1e6:6.2f} MB/s",
            flush=True,
        )


def main() -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("markup", "words", "sentences"))
    parser.add_argument("--model", type=Path, help="model or run folder")
    parser.add_argument("--text", type=Path, help="a file with one sentence per line, plain or .gz")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--language", default="en")
    parser.add_argument("--show", action="store_true", help="print what is wrong")
    options = parser.parse_args()
    {"markup": markup, "words": words, "sentences": sentences}[options.what](options)


if __name__ == "__main__":
    main()
