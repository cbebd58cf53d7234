"""The options of `nmt translate` for search, sampling, constraints and hardware: name, type and --help text of each option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..bounds import NUMBERS
from ..errors import DataError
from ..registry import FORMATS, LENGTH_PENALTIES, SEARCHES, UTILITIES
from .arguments import SEARCH, option

FORMAT, SAMPLING, CONSTRAINTS = "Output format", "Sampling and minimum Bayes risk", "Constraints"
"""Headings in --help, besides SEARCH."""

DocumentFormat = Annotated[
    str | None,
    option(
        f"{', '.join(FORMATS)}: translate the whole input as one document of this format, instead of line by line.",
        "NAME",
        FORMAT,
        names=("--format",),
    ),
]
SplitSentences = Annotated[
    str | None,
    option(
        "With --format: a sentence ends at punctuation and line ends (1), at punctuation (nonewlines), "
        "or where the paragraph does (0).  [default: 1 for text, else nonewlines]",
        "HOW",
        FORMAT,
    ),
]

SearchName = Annotated[
    str | None,
    option(
        f"{', '.join(SEARCHES)}: beam search, random samples, minimum Bayes risk, diverse beam search.  "
        "[default: the recipe's, beam]",
        "NAME",
        SEARCH,
    ),
]
LengthPenalty = Annotated[
    str | None,
    option(f"What log P is divided by: {', '.join(LENGTH_PENALTIES)}.  [default: the recipe's, gnmt]", "NAME", SEARCH),
]
MaxLenRatio = Annotated[
    float | None,
    option(
        "Longest output: R times the tokens of the line, instead of once, plus --max-extra.  [default: "
        "the recipe's, 1]",
        "R",
        SEARCH,
    ),
]
CoveragePenalty = Annotated[
    float | None,
    option(
        "Prefer outputs that attend to every source token, by B times GNMT's coverage penalty; 0: none.  "
        "[default: the recipe's, 0]",
        "B",
        SEARCH,
    ),
]
DiverseGroups = Annotated[
    int | None,
    option("With --search diverse: groups that the beam is divided into.  [default: the recipe's, 4]", "G", SEARCH),
]
DiversityPenalty = Annotated[
    float | None,
    option(
        "With --search diverse: penalty for a token that an earlier group chose in the same step.  "
        "[default: the recipe's, 0.5]",
        "L",
        SEARCH,
    ),
]

Sample = Annotated[
    bool,
    option(
        "Sample outputs at random, each token by its probability, instead of beam search: --search sample.",
        heading=SAMPLING,
        names=("--sample",),
    ),
]
TopK = Annotated[
    int | None,
    option(
        "Sample from the K most probable tokens; 0: from all.  [default: 0]",
        "K",
        SAMPLING,
        min=NUMBERS["top_k"].least,
        max=NUMBERS["top_k"].most,
    ),
]
TopP = Annotated[
    float | None,
    option("Sample from the fewest tokens with a total probability of P.  [default: 1]", "P", SAMPLING),
]
MinP = Annotated[
    float | None,
    option(
        "Sample from the tokens that have at least P times the largest probability.  [default: 0; with "
        "--search mbr 0.02]",
        "P",
        SAMPLING,
    ),
]
Temperature = Annotated[
    float | None,
    option(
        "Divides the logits. Below 1 probable tokens become more probable, above 1 less.  [default: 1]", "T", SAMPLING
    ),
]
Seed = Annotated[
    int | None,
    option(
        "Random seed of sampling.  [default: 1]", "N", SAMPLING, min=NUMBERS["seed"].least, max=NUMBERS["seed"].most
    ),
]
MbrSamples = Annotated[
    int | None,
    option(
        "With --search mbr: hypotheses per line, samples or a beam.  [default: 100]",
        "N",
        SAMPLING,
        min=NUMBERS["mbr_samples"].least,
        max=NUMBERS["mbr_samples"].most,
    ),
]
MbrUtility = Annotated[
    str | None,
    option(
        f"With --search mbr: the metric that compares the hypotheses: {', '.join(UTILITIES)}.  [default: chrf]",
        "NAME",
        SAMPLING,
    ),
]
MbrCandidates = Annotated[
    str | None,
    option(
        "With --search mbr: where the hypotheses come from: sample, or beam for the n-best list of beam "
        "search.  [default: sample]",
        "NAME",
        SAMPLING,
    ),
]

PrefixColumn = Annotated[
    bool,
    option(
        "Each input line is SOURCE, a tab, PREFIX: the translation begins with PREFIX. A line without a "
        "tab or PREFIX has no constraint.",
        heading=CONSTRAINTS,
        names=("--prefix-column",),
    ),
]
PrefixFile = Annotated[
    Path | None,
    option(
        "Prefixes that the translations begin with, line by line parallel to the input; an empty line is "
        "no constraint.",
        "FILE",
        CONSTRAINTS,
    ),
]
Terms = Annotated[
    Path | None,
    option(
        "Words and phrases that the translations must contain, line by line parallel to the input, "
        "separated by tabs. A|B: one of several; A*: the word may go on.",
        "FILE",
        CONSTRAINTS,
    ),
]
TermsColumns = Annotated[
    bool,
    option(
        "Each input line is SOURCE, a tab, terms as in FILE of --terms; with --prefix-column, SOURCE, PREFIX, terms.",
        heading=CONSTRAINTS,
        names=("--terms-columns",),
    ),
]
BannedWords = Annotated[
    Path | None,
    option("Words and phrases, one per line, that no translation may contain.", "FILE", CONSTRAINTS),
]
Outputs = Annotated[
    Path | None,
    option("All translations that are allowed, one per line: the best of them is printed.", "FILE", CONSTRAINTS),
]
NoRepeatNgram = Annotated[
    int | None,
    option(
        "No sequence of N tokens occurs twice in a translation; 0: any may.  [default: the recipe's, 0]",
        "N",
        CONSTRAINTS,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    option(
        "Above 1, tokens that the translation already has become less probable.  [default: the recipe's, 1]",
        "P",
        CONSTRAINTS,
    ),
]

BatchTokens = Annotated[
    int | None,
    option(
        "Source tokens that one worker translates together; changes only speed and memory.  [default: "
        "the recipe's, 4096]",
        "N",
    ),
]
Devices = Annotated[
    int | None,
    option(
        "Number of workers: CPU cores or GPUs.  [default: all cores that the process may use; 1 GPU]",
        "N",
        min=1,
        max=1024,
    ),
]
Precision = Annotated[
    str,
    option(
        "fp32, bf16, fp16, int8 or auto (the fastest on this hardware). fp32 is exact; the others differ "
        "from it by rounding.",
        "P",
    ),
]


def entries(path: Path | None, what: str) -> list[str] | None:
    """Return the lines of a file that are not blank; None without a file. Raises DataError if all lines are blank, for invalid UTF-8, and for tabs."""
    if path is None:
        return None
    from ..lines import decode_line, iter_lines, open_binary

    with open_binary(path) as stream:
        decoded = list(map(decode_line, iter_lines(stream)))
    damaged = next((number for number, (_, replaced) in enumerate(decoded, 1) if replaced), None)
    if damaged:
        raise DataError(
            f"{str(path)!r}, line {damaged:,}: {decoded[damaged - 1][0][:60]!r} is not UTF-8. Convert the file to UTF-8, or delete the line."
        )
    tabbed = next((number for number, (line, _) in enumerate(decoded, 1) if "\t" in line.strip()), None)
    if tabbed:
        raise DataError(
            f"{str(path)!r}, line {tabbed:,}: {decoded[tabbed - 1][0][:60]!r} has a tab: expected {what}, one per line. Give one column."
        )
    lines = [line for line, _ in decoded if line.strip()]
    if not lines:
        raise DataError(f"{str(path)!r} has no text: expected {what}, one per line.")
    return lines
