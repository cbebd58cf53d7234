"""The options of `nmt score`: name, type and --help text of each option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..registry import METRICS
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
    typer.Option(
        "--ref",
        metavar="REF",
        help="Reference, line by line parallel to HYP. Repeat it for several references.",
        show_default=False,
    ),
]
Hypotheses = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="HYP",
        help="Translations, one per line; - is stdin. Plain, .gz, .xz, .bz2 or .zst. None with --model.",
        show_default=False,
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="METRIC",
        help=f"One of {', '.join(METRICS)}; evalb is for parses. Repeat it for several.  [default: bleu, chrf and ter]",
        show_default=False,
    ),
]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Ignore case in BLEU and chrF (TER always does).")]
Tokenize = Annotated[
    str | None,
    typer.Option(
        "--tokenize",
        metavar="T",
        help="BLEU's tokenizer: 13a, intl, char, zh (for Chinese), ja-mecab, …; none for text that is tokenised already.  [default: 13a]",
        show_default=False,
    ),
]
TerAsian = Annotated[
    bool,
    typer.Option(
        "--ter-asian",
        help="TER of Chinese and Japanese: each character of Chinese, and each kanji, is a word. "
        "It is sacrebleu's --ter-normalized with --ter-asian-support.",
    ),
]
CometModel = Annotated[
    Path | None,
    typer.Option(
        "--comet-model",
        metavar="PATH",
        help="With --metric comet: folder or .ckpt file of a COMET model on this disk. Nothing is downloaded. It is a pickle, and only its tensors and plain values are read: use one that you trust.",
        show_default=False,
    ),
]
EvalbRepair = Annotated[
    bool,
    typer.Option(
        "--evalb-repair",
        help="With --metric evalb: take words and parts of speech from REF, leave out roots, and repair HYP to cover these words, for HYP in brackets too. Linearised HYP are always compared in this way.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Width = Annotated[
    int | None,
    typer.Option(
        "--width",
        metavar="N",
        min=1,
        max=12,
        help="Decimals in the text output.  [default: 2; COMET 4; with --model 6]",
        show_default=False,
    ),
]

ProtocolName = Annotated[
    str | None,
    typer.Option(
        "--protocol",
        metavar="NAME",
        rich_help_panel=BLEU,
        help="paper: replace Unicode punctuation, tokenise with Moses, split compounds, count with multi-bleu. Needs the package sacremoses.",
        show_default=False,
    ),
]
Language = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="L",
        rich_help_panel=BLEU,
        help="With --protocol: language of HYP and REF, as a code such as de, en or fr.  [default: de]",
        show_default=False,
    ),
]
NoCompounds = Annotated[
    bool,
    typer.Option(
        "--no-compounds",
        rich_help_panel=BLEU,
        help="With --protocol: do not split compounds, as is usual for English to French.",
    ),
]
TokenizedRef = Annotated[
    bool,
    typer.Option(
        "--tokenized-ref",
        rich_help_panel=BLEU,
        help="With --protocol: REF is tokenised already; only split its compounds.",
    ),
]

Significance = Annotated[
    str | None,
    typer.Option(
        "--significance",
        metavar="TEST",
        rich_help_panel=COMPARISON,
        help="With several HYP: bootstrap (paired bootstrap resampling) or randomisation (approximate randomisation).  [default: bootstrap]",
        show_default=False,
    ),
]
Confidence = Annotated[
    bool,
    typer.Option(
        "--confidence",
        rich_help_panel=COMPARISON,
        help="With one HYP: also print mean and 95 % confidence interval, by bootstrap resampling. With several HYP they are always printed.",
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        "--samples",
        metavar="N",
        min=1,
        max=1_000_000,
        rich_help_panel=COMPARISON,
        help="Number of resampled test sets, or of trials of randomisation.  [default: 1000; 10000]",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=1,
        max=2**32 - 1,
        rich_help_panel=COMPARISON,
        help="Random seed for resampling.  [default: 12345]",
        show_default=False,
    ),
]

ByLength = Annotated[
    bool,
    typer.Option(
        "--by-length",
        rich_help_panel=LENGTHS,
        help="Also print a table by the number of words in REF: lines, length ratio and scores for 1-10 words, 11-20, …, 51 and more.",
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option(
        "--lengths",
        metavar="N,N,…",
        rich_help_panel=LENGTHS,
        help="Print the table by length with these upper bounds.  [default: 10,20,30,40,50]",
        show_default=False,
    ),
]

Source = Annotated[
    Path | None,
    typer.Option(
        "--src",
        metavar="SRC",
        rich_help_panel=OUTPUTS,
        help="Source text, line by line: also count empty, invented, looping and copied HYP lines, lines of unusual length, and lines that lack numbers or placeholders. --model and --metric comet need it.",
        show_default=False,
    ),
]
Worst = Annotated[
    int | None,
    typer.Option(
        "--worst",
        metavar="N",
        min=0,
        max=1_000_000,
        rich_help_panel=OUTPUTS,
        help="With HYP and --src: show the N worst lines of each HYP, those with faults first; 0: none.  [default: 5]",
        show_default=False,
    ),
]

Model = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        metavar="DIR",
        autocompletion=runs,
        rich_help_panel=MODEL,
        help="Model or run folder: score REF, given SRC, by the model's probability.",
        show_default=False,
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        "--batch-tokens",
        metavar="N",
        min=1,
        max=100_000_000,
        rich_help_panel=MODEL,
        help="With --model: tokens per side scored together; changes only the speed.  [default: the recipe's, 4096]",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        rich_help_panel=MODEL,
        help="With --model: auto, cpu, cuda, cuda:N or mps.  [default: auto]",
        show_default=False,
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="P",
        rich_help_panel=MODEL,
        help="With --model: fp32, bf16, fp16, int8 or auto (fp32 on a CPU, elsewhere what the hardware computes fast).  [default: fp32; int8 for a model in int8]",
        show_default=False,
    ),
]
