"""The options of `nmt translate` for search, sampling, constraints and hardware: name, type and --help text of each option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..bounds import NUMBERS
from ..errors import DataError
from ..registry import FORMATS, LENGTH_PENALTIES, SEARCHES, UTILITIES
from .arguments import SEARCH

FORMAT, SAMPLING, CONSTRAINTS = "Output format", "Sampling and minimum Bayes risk", "Constraints"
"""Headings in --help, besides SEARCH."""

DocumentFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        rich_help_panel=FORMAT,
        help=f"{', '.join(FORMATS)}: translate the whole input as one document of this format, instead of line by line.",
        show_default=False,
    ),
]
SplitSentences = Annotated[
    str | None,
    typer.Option(
        "--split-sentences",
        metavar="HOW",
        rich_help_panel=FORMAT,
        help="With --format: a sentence ends at punctuation and line ends (1), at punctuation (nonewlines), or where the paragraph does (0).  [default: 1 for text, else nonewlines]",
        show_default=False,
    ),
]

SearchName = Annotated[
    str | None,
    typer.Option(
        "--search",
        metavar="NAME",
        rich_help_panel=SEARCH,
        help=f"{', '.join(SEARCHES)}: beam search, random samples, minimum Bayes risk, diverse beam search.  [default: the recipe's, beam]",
        show_default=False,
    ),
]
LengthPenalty = Annotated[
    str | None,
    typer.Option(
        "--length-penalty",
        metavar="NAME",
        rich_help_panel=SEARCH,
        help=f"What log P is divided by: {', '.join(LENGTH_PENALTIES)}.  [default: the recipe's, gnmt]",
        show_default=False,
    ),
]
MaxLenRatio = Annotated[
    float | None,
    typer.Option(
        "--max-len-ratio",
        metavar="R",
        rich_help_panel=SEARCH,
        help="Longest output: R times the tokens of the line, instead of once, plus --max-extra.  [default: the recipe's, 1]",
        show_default=False,
    ),
]
CoveragePenalty = Annotated[
    float | None,
    typer.Option(
        "--coverage-penalty",
        metavar="B",
        rich_help_panel=SEARCH,
        help="Prefer outputs that attend to every source token, by B times GNMT's coverage penalty; 0: none.  [default: the recipe's, 0]",
        show_default=False,
    ),
]
DiverseGroups = Annotated[
    int | None,
    typer.Option(
        "--diverse-groups",
        metavar="G",
        rich_help_panel=SEARCH,
        help="With --search diverse: groups that the beam is divided into.  [default: the recipe's, 4]",
        show_default=False,
    ),
]
DiversityPenalty = Annotated[
    float | None,
    typer.Option(
        "--diversity-penalty",
        metavar="L",
        rich_help_panel=SEARCH,
        help="With --search diverse: penalty for a token that an earlier group chose in the same step.  [default: the recipe's, 0.5]",
        show_default=False,
    ),
]

Sample = Annotated[
    bool,
    typer.Option(
        "--sample",
        rich_help_panel=SAMPLING,
        help="Sample outputs at random, each token by its probability, instead of beam search: --search sample.",
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        "--top-k",
        metavar="K",
        min=NUMBERS["top_k"].least,
        max=NUMBERS["top_k"].most,
        rich_help_panel=SAMPLING,
        help="Sample from the K most probable tokens; 0: from all.  [default: 0]",
        show_default=False,
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="P",
        rich_help_panel=SAMPLING,
        help="Sample from the fewest tokens with a total probability of P.  [default: 1]",
        show_default=False,
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        metavar="P",
        rich_help_panel=SAMPLING,
        help="Sample from the tokens that have at least P times the largest probability.  [default: 0; with --search mbr 0.02]",
        show_default=False,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="T",
        rich_help_panel=SAMPLING,
        help="Divides the logits. Below 1 probable tokens become more probable, above 1 less.  [default: 1]",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=NUMBERS["seed"].least,
        max=NUMBERS["seed"].most,
        rich_help_panel=SAMPLING,
        help="Random seed of sampling.  [default: 1]",
        show_default=False,
    ),
]
MbrSamples = Annotated[
    int | None,
    typer.Option(
        "--mbr-samples",
        metavar="N",
        min=NUMBERS["mbr_samples"].least,
        max=NUMBERS["mbr_samples"].most,
        rich_help_panel=SAMPLING,
        help="With --search mbr: hypotheses per line, samples or a beam.  [default: 100]",
        show_default=False,
    ),
]
MbrUtility = Annotated[
    str | None,
    typer.Option(
        "--mbr-utility",
        metavar="NAME",
        rich_help_panel=SAMPLING,
        help=f"With --search mbr: the metric that compares the hypotheses: {', '.join(UTILITIES)}.  [default: chrf]",
        show_default=False,
    ),
]
MbrCandidates = Annotated[
    str | None,
    typer.Option(
        "--mbr-candidates",
        metavar="NAME",
        rich_help_panel=SAMPLING,
        help="With --search mbr: where the hypotheses come from: sample, or beam for the n-best list of beam search.  [default: sample]",
        show_default=False,
    ),
]

PrefixColumn = Annotated[
    bool,
    typer.Option(
        "--prefix-column",
        rich_help_panel=CONSTRAINTS,
        help="Each input line is SOURCE, a tab, PREFIX: the translation begins with PREFIX. A line without a tab or PREFIX has no constraint.",
    ),
]
PrefixFile = Annotated[
    Path | None,
    typer.Option(
        "--prefix-file",
        metavar="FILE",
        rich_help_panel=CONSTRAINTS,
        help="Prefixes that the translations begin with, line by line parallel to the input; an empty line is no constraint.",
        show_default=False,
    ),
]
Terms = Annotated[
    Path | None,
    typer.Option(
        "--terms",
        metavar="FILE",
        rich_help_panel=CONSTRAINTS,
        help="Words and phrases that the translations must contain, line by line parallel to the input, separated by tabs. A|B: one of several; A*: the word may go on.",
        show_default=False,
    ),
]
TermsColumns = Annotated[
    bool,
    typer.Option(
        "--terms-columns",
        rich_help_panel=CONSTRAINTS,
        help="Each input line is SOURCE, a tab, terms as in FILE of --terms; with --prefix-column, SOURCE, PREFIX, terms.",
    ),
]
BannedWords = Annotated[
    Path | None,
    typer.Option(
        "--banned-words",
        metavar="FILE",
        rich_help_panel=CONSTRAINTS,
        help="Words and phrases, one per line, that no translation may contain.",
        show_default=False,
    ),
]
Outputs = Annotated[
    Path | None,
    typer.Option(
        "--outputs",
        metavar="FILE",
        rich_help_panel=CONSTRAINTS,
        help="All translations that are allowed, one per line: the best of them is printed.",
        show_default=False,
    ),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option(
        "--no-repeat-ngram",
        metavar="N",
        rich_help_panel=CONSTRAINTS,
        help="No sequence of N tokens occurs twice in a translation; 0: any may.  [default: the recipe's, 0]",
        show_default=False,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        "--repetition-penalty",
        metavar="P",
        rich_help_panel=CONSTRAINTS,
        help="Above 1, tokens that the translation already has become less probable.  [default: the recipe's, 1]",
        show_default=False,
    ),
]

BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        metavar="N",
        help="Source tokens that one worker translates together; changes only speed and memory.  [default: the recipe's, 4096]",
        show_default=False,
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        metavar="N",
        min=1,
        max=1024,
        help="Number of workers: CPU cores or GPUs.  [default: all cores that the process may use; 1 GPU]",
        show_default=False,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="P",
        help="fp32, bf16, fp16, int8 or auto (the fastest on this hardware). fp32 is exact; the others differ from it by rounding.",
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
