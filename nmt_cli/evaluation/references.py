"""Several references of a line, some of them missing; and remarks about texts that seldom are what a user wants.

A blank line is no reference where another reference has text. So sacrebleu treats None: it leaves the reference out,
and the signature says `nrefs:var`. Where all references of a line are blank, the reference is empty text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

Stream = Sequence[str]
"""The lines of one text."""
NAMED_FROM = 0.01
"""Share of lines in different normal forms from which on they are remarked on."""
TO_NFC = (
    "uconv -x any-nfc < OLD > NEW, or python3 -c "
    "\"import sys, unicodedata as u; sys.stdout.write(u.normalize('NFC', sys.stdin.read()))\" < OLD > NEW"
)

IN_SUBWORDS = 0.1
"""Share of lines with subwords from which on they are remarked on."""
SUBWORDS = {
    "BPE's subwords (@@)": (re.compile(r"\S@@( |$)"), "sed -E 's/@@( |$)//g' < OLD > NEW"),
    "SentencePiece's subwords (▁)": (re.compile("(^| )▁"), "sed 's/ //g; s/▁/ /g; s/^ //' < OLD > NEW"),
}
"""Name → what a line of them contains, and the command that joins them."""


def missing(references: Sequence[Stream]) -> list[int]:
    """Return for each stream the number of lines that are blank where another stream has text."""
    counts = [0] * len(references)
    for lines in zip(*references, strict=True):
        blank = [not line.strip() for line in lines]
        if not all(blank):
            counts = [count + is_blank for count, is_blank in zip(counts, blank, strict=True)]
    return counts


def present_first(references: Sequence[Stream]) -> Sequence[Stream]:
    """Return the same references, with missing ones last in their line: the first stream has text wherever one has."""
    if not any(missing(references)):
        return references
    lines = (sorted(lines, key=lambda line: not line.strip()) for lines in zip(*references, strict=True))
    return [list(stream) for stream in zip(*lines, strict=True)]


def without_missing(references: Sequence[Stream]) -> list[list[str | None]]:
    """Return the streams of `present_first` with None in place of a missing line."""
    return [
        [
            line if not number or line.strip() or not first.strip() else None
            for line, first in zip(stream, references[0], strict=True)
        ]
        for number, stream in enumerate(references)
    ]


def remarks(
    name: str, hypotheses: Stream, references: Sequence[Stream], reference_names: Sequence[str]
) -> Iterator[str]:
    """Yield what the user should know of the lines beside the references: missing ones, normal forms, subwords."""
    total = len(hypotheses)
    for reference, count in zip(reference_names, missing(references), strict=True):
        if count:
            yield (
                f"{reference}: {count:,} of {total:,} lines are blank where another reference has text. They count "
                "as missing references (nrefs:var)."
            )
    blank = sum(
        bool(line.strip()) and not any(map(str.strip, of_line))
        for line, *of_line in zip(hypotheses, *references, strict=True)
    )
    if blank:
        which = "the reference is" if len(references) == 1 else "all references are"
        yield (
            f"{name}: {blank:,} of {total:,} lines have text where {which} blank. BLEU and TER count this text "
            "as wrong; chrF leaves it out."
        )
    texts = {name: hypotheses, **dict(zip(reference_names, references, strict=True))}
    decomposed = {
        text: sum(not unicodedata.is_normalized("NFC", line) for line in lines) for text, lines in texts.items()
    }
    for text, count in decomposed.items():
        if count - min(decomposed.values()) >= NAMED_FROM * total:
            yield (
                f"{text}: {count:,} of {total:,} lines are not in Unicode's normal form NFC, unlike those of another "
                f"text. A letter such as é is then written in two ways, and counts as wrong. Convert {text}: {TO_NFC}."
            )
    for text, lines in texts.items():
        for kind, (pattern, command) in SUBWORDS.items():
            count = sum(bool(pattern.search(line)) for line in lines)
            if count and count >= IN_SUBWORDS * total:
                yield (
                    f"{text}: {count:,} of {total:,} lines are in {kind}, and the metrics expect plain text. "
                    f"Join them: {command}."
                )
