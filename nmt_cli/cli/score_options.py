"""The options of `nmt score`: name, type and --help text of each option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..registry import METRICS
from .arguments import argument, option
from .completion import runs

BLEU, COMPARISON, LENGTHS, MODEL = (
    "BLEU as in papers (--protocol)",
    "Comparison and confidence",
    "Scores by length",
    "Score by a model's probability",
)
OUTPUTS = "Faulty outputs (--src)"
"""Headings in --help."""

References = Annotated[
    list[Path],
    option("Reference, line by line parallel to HYP. Repeat it for several references.", "REF", names=("--ref",)),
]
Hypotheses = Annotated[
    list[Path] | None,
    argument("Translations, one per line; - is stdin. Plain, .gz, .xz, .bz2 or .zst. None with --model.", "HYP"),
]
Metrics = Annotated[
    list[str] | None,
    option(
        f"One of {', '.join(METRICS)}; evalb is for parses. Repeat it for several.  [default: bleu, chrf and ter]",
        "METRIC",
        names=("--metric",),
    ),
]
Lowercase = Annotated[bool, option("Ignore case in BLEU and chrF (TER always does).", names=("--lowercase",))]
Tokenize = Annotated[
    str | None,
    option(
        "BLEU's tokenizer: 13a, intl, char, zh (for Chinese), ja-mecab, …; none for text that is "
        "tokenised already.  [default: 13a]",
        "T",
    ),
]
TerAsian = Annotated[
    bool,
    option(
        "TER of Chinese and Japanese: each character of Chinese, and each kanji, is a word. "
        "It is sacrebleu's --ter-normalized with --ter-asian-support.",
        names=("--ter-asian",),
    ),
]
CometModel = Annotated[
    Path | None,
    option(
        "With --metric comet: folder or .ckpt file of a COMET model on this disk. Nothing is downloaded. "
        "It is a pickle, and only its tensors and plain values are read: use one that you trust.",
        "PATH",
    ),
]
EvalbRepair = Annotated[
    bool,
    option(
        "With --metric evalb: take words and parts of speech from REF, leave out roots, and repair HYP "
        "to cover these words, for HYP in brackets too. Linearised HYP are always compared in this way.",
        names=("--evalb-repair",),
    ),
]
AsJson = Annotated[bool, option("Print JSON instead of text.", names=("--json",))]
Width = Annotated[
    int | None, option("Decimals in the text output.  [default: 2; COMET 4; with --model 6]", "N", min=1, max=12)
]

ProtocolName = Annotated[
    str | None,
    option(
        "paper: replace Unicode punctuation, tokenise with Moses, split compounds, count with "
        "multi-bleu. Needs the package sacremoses.",
        "NAME",
        BLEU,
    ),
]
Language = Annotated[
    str | None,
    option("With --protocol: language of HYP and REF, as a code such as de, en or fr.  [default: de]", "L", BLEU),
]
NoCompounds = Annotated[
    bool,
    option(
        "With --protocol: do not split compounds, as is usual for English to French.",
        heading=BLEU,
        names=("--no-compounds",),
    ),
]
TokenizedRef = Annotated[
    bool,
    option(
        "With --protocol: REF is tokenised already; only split its compounds.", heading=BLEU, names=("--tokenized-ref",)
    ),
]

Significance = Annotated[
    str | None,
    option(
        "With several HYP: bootstrap (paired bootstrap resampling) or randomisation (approximate "
        "randomisation).  [default: bootstrap]",
        "TEST",
        COMPARISON,
    ),
]
Confidence = Annotated[
    bool,
    option(
        "With one HYP: also print mean and 95 % confidence interval, by bootstrap resampling. With "
        "several HYP they are always printed.",
        heading=COMPARISON,
        names=("--confidence",),
    ),
]
Samples = Annotated[
    int | None,
    option(
        "Number of resampled test sets, or of trials of randomisation.  [default: 1000; 10000]",
        "N",
        COMPARISON,
        min=1,
        max=1_000_000,
    ),
]
Seed = Annotated[
    int | None, option("Random seed for resampling.  [default: 12345]", "N", COMPARISON, min=1, max=2**32 - 1)
]

ByLength = Annotated[
    bool,
    option(
        "Also print a table by the number of words in REF: lines, length ratio and scores for 1-10 "
        "words, 11-20, …, 51 and more.",
        heading=LENGTHS,
        names=("--by-length",),
    ),
]
Lengths = Annotated[
    str | None,
    option("Print the table by length with these upper bounds.  [default: 10,20,30,40,50]", "N,N,…", LENGTHS),
]

Source = Annotated[
    Path | None,
    option(
        "Source text, line by line: also count empty, invented, looping and copied HYP lines, lines of "
        "unusual length, and lines that lack numbers or placeholders. --model and --metric comet need it.",
        "SRC",
        OUTPUTS,
        names=("--src",),
    ),
]
Worst = Annotated[
    int | None,
    option(
        "With HYP and --src: show the N worst lines of each HYP, those with faults first; 0: none.  [default: 5]",
        "N",
        OUTPUTS,
        min=0,
        max=1_000_000,
    ),
]

Model = Annotated[
    Path | None,
    option(
        "Model or run folder: score REF, given SRC, by the model's probability.",
        "DIR",
        MODEL,
        names=("--model", "-m"),
        autocompletion=runs,
    ),
]
BatchTokens = Annotated[
    int | None,
    option(
        "With --model: tokens per side scored together; changes only the speed.  [default: the recipe's, 4096]",
        "N",
        MODEL,
        min=1,
        max=100_000_000,
    ),
]
Device = Annotated[str | None, option("With --model: auto, cpu, cuda, cuda:N or mps.  [default: auto]", heading=MODEL)]
Precision = Annotated[
    str | None,
    option(
        "With --model: fp32, bf16, fp16, int8 or auto (fp32 on a CPU, elsewhere what the hardware "
        "computes fast).  [default: fp32; int8 for a model in int8]",
        "P",
        MODEL,
    ),
]
