"""Counts documents that come back whole.

    python benchmarks/documents.py FOLDER … [--model DIR]

Without a model: pages that a translator which copies does not give back. With one: tags of 1,000 marked sentences of the pages after
their translation.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import nmt_cli as nmt
from nmt_cli.documents import Document, read_document
from nmt_cli.errors import DocumentError

FORMATS = {".html": "html", ".htm": "html", ".xml": "xml", ".txt": "text"}
TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)[^>]*>")


def pages(folders: Sequence[str]) -> Iterator[tuple[Path, str, Document | None]]:
    """Yield the path and text of each page, and the page as a document, None if that is refused."""
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*") if path.suffix in FORMATS):
        text = path.read_bytes().decode(errors="replace")
        try:
            yield path, text, read_document(text, FORMATS[path.suffix], "en")
        except DocumentError:
            yield path, text, None


def identity(folders: Sequence[str]) -> Counter[str]:
    """Print the pages that do not come back byte for byte, and return the counts."""
    counts: Counter[str] = Counter()
    for path, text, document in pages(folders):
        counts[path.suffix if document else "refused"] += 1
        output = document.write([*map(copy, document.lines)]).text if document else text
        counts.update(sentences=len(document.lines) if document else 0, changed=output != text)
        print(f"{path}\n" * (output != text), end="")
    return counts


def copy(line: str) -> nmt.Translation:
    tokens = tuple("\u2581" + word for word in line.split(" "))
    pairs = tuple((at, at) for at in range(len(tokens)))
    return nmt.Translation(line, 0.0, 0.0, tokens, source_tokens=tokens, alignment=pairs)


def tags(model: Path, folders: Sequence[str]) -> Counter[str]:
    """Print 60 sentences and their translations; return how many tags come back once, and how many sentences nest."""
    parts = (part for *_, page in pages(folders) for part in (page.segments if page else ()) if part.markup)
    found = dict.fromkeys("".join(part.spelled).strip() for part in parts)
    sentences = list(filter(nested, found))
    sentences = sentences[:: max(len(sentences) // 1000, 1)][:1000]
    with nmt.load(model) as translator:
        output = translator.translate_document("<hr>".join(sentences), "html", split_sentences="0").split("<hr>")
    counts: Counter[str] = Counter()
    for number, (source, target) in enumerate(zip(sentences, output, strict=True)):
        before, after = (Counter(match[0] for match in TAG.finditer(text)) for text in (source, target))
        lost, doubled = (before - after).total(), (after - before).total()
        counts.update(sentences=1, tags=before.total(), lost=lost, doubled=doubled, nested=nested(target))
        print(f"{source}\n{target}\n" * (number % (len(sentences) // 60 + 1) == 0), end="")
    return counts


def nested(text: str) -> bool:
    """Return whether each start tag has its end tag, and elements are nested."""
    opened: list[str] = []
    for slash, name in TAG.findall(text):
        if slash and (not opened or opened.pop() != name):
            return False
        opened += [name] * (not slash and name not in ("br", "img", "wbr"))
    return not opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    print(dict(tags(options.model, options.folders) if options.model else identity(options.folders)))


if __name__ == "__main__":
    main()
