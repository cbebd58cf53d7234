"""Placeholders of real messages: how many a translation has, with decode.placeholders and without.

    python benchmarks/placeholders.py MODEL FILE …

FILE has a message a line, as catalogues spell it. The translate-toolkit says what a placeholder is, not nmt (pip install
translate-toolkit): conversions of printf, Python and Java, Qt's %1, URLs, e-mail addresses, tags, entities. Lines that have one are
taken at even distances. A placeholder is kept if the translation has it, at most as often as the source; doubled: more often.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from common import print_rows

from nmt_cli import Translator, load

LINES = 2100
KINDS = ("PythonFormatting", "Formatting", "JavaMessageFormat", "QtFormatting", "Url", "Email", "XMLTag", "XMLEntity")


def placeables(text: str) -> Counter[tuple[str, str]]:
    """Return the placeholders of a text, with their kinds."""
    from translate.storage.placeables import general, parse

    parsers = [parser for parser in general.parsers if parser.__self__.__name__.removesuffix("Placeable") in KINDS]
    found = [element for element in parse(text, parsers).depth_first() if type(element).__name__ != "StringElem"]
    return Counter((type(element).__name__.removesuffix("Placeable"), str(element)) for element in found)


def counted(translator: Translator, lines: Sequence[str], keeps: bool) -> tuple[dict[str, Counter[str]], list[str]]:
    """Return the counts of each kind, and the lines that lack or double a placeholder, with their translations."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in (*KINDS, "all")}
    results = translator.translate(lines, overrides=[f"decode.placeholders={str(keeps).lower()}"])
    wrong = dict[str, str]()
    for line, result in zip(lines, results, strict=True):
        for (kind, part), count in placeables(line).items():
            found = result.text.count(part) - (line.count(part) - count)  # it may be a part of another one
            for of in (kind, "all"):
                counts[of].update(there=count, kept=min(max(found, 0), count), doubled=max(found - count, 0))
            wrong |= {line: result.text} if found != count else {}
    counts["all"]["put back"] = sum(result.restored for result in results)
    return counts, [f"{line}\n  {text}" for line, text in wrong.items()]


def main() -> None:
    """Count both, and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model")
    options.add_argument("files", nargs="+", type=Path)
    asked = options.parse_args()
    every = [line for file in asked.files for line in file.read_text("utf-8").split("\n") if placeables(line)]
    lines = every[:: -(-len(every) // LINES)]
    with load(asked.model, device="cpu") as translator:
        (on, wrong), (off, others) = (counted(translator, lines, keeps) for keeps in (True, False))
    columns = [(on, "there"), (on, "kept"), (on, "doubled"), (off, "kept"), (off, "doubled")]
    rows = [[kind, *(f"{counts[kind][name]:,}" for counts, name in columns)] for kind in on if on[kind]]
    print_rows([["kind", "there", "kept", "doubled", "kept, off", "doubled, off"], *rows], markdown=True)
    print(f"{len(lines):,} lines; with a fault {len(wrong):,}, off {len(others):,}; put back {on['all']['put back']:,}")
    print(*wrong, sep="\n")


if __name__ == "__main__":
    main()
