"""The options of `nmt score`, and the check that they fit together."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from ..errors import UsageError
from ..registry import METRICS
from .arguments import STDIN, STDIN_TWICE, argument, option
from .completion import runs

OPTION_NAMES = {"metrics": "--metric", "source": "--src"}
"""Fields whose option has another name → the option. For other fields, the option is --NAME."""
PROTOCOL_OPTIONS = ("language", "no_compounds", "tokenized_ref")
METRIC_OPTIONS = (
    "metrics",
    "lowercase",
    "tokenize",
    "ter_asian",
    "protocol",
    *PROTOCOL_OPTIONS,
    "significance",
    "confidence",
    "samples",
    "seed",
    "by_length",
    "lengths",
    "comet_model",
    "evalb_repair",
    "worst",
)
MODEL_OPTIONS = ("target_language", "batch_tokens", "device", "precision")


BLEU, COMPARISON, LENGTHS, MODEL = (
    "BLEU as in papers (--protocol)",
    "Comparison and confidence",
    "Scores by length",
    "Score by a model's probability",
)
OUTPUTS = "Faulty outputs (--src)"
"""Headings in --help."""


@dataclass(frozen=True)
class ScoreRequest:
    """The options of `nmt score`. None or False means not given."""

    references: Annotated[
        list[Path],
        option("Reference, line by line parallel to HYP. Repeat it for several references.", "REF", names=("--ref",)),
    ]
    hypotheses: Annotated[
        list[Path],
        argument("Translations, one per line; - is stdin. Plain, .gz, .xz, .bz2 or .zst. None with --model.", "HYP"),
    ] = field(default_factory=list)
    metrics: Annotated[
        list[str] | None,
        option(
            f"One of {', '.join(METRICS)}; evalb is for parses. Repeat it for several.  [default: bleu, chrf and ter]",
            "METRIC",
            names=("--metric",),
        ),
    ] = None
    lowercase: Annotated[bool, option("Ignore case in BLEU and chrF (TER always does).", names=("--lowercase",))] = (
        False
    )
    tokenize: Annotated[
        str | None,
        option(
            "BLEU's tokenizer: 13a, intl, char, zh (for Chinese), ja-mecab, …; none for text that is "
            "tokenised already.  [default: 13a]",
            "T",
        ),
    ] = None
    ter_asian: Annotated[
        bool,
        option(
            "TER of Chinese and Japanese: each character of Chinese, and each kanji, is a word. "
            "In sacrebleu it is --ter-normalized with --ter-asian-support.",
            names=("--ter-asian",),
        ),
    ] = False
    comet_model: Annotated[
        Path | None,
        option(
            "With --metric comet: folder or .ckpt file of a COMET model on this disk. Nothing is downloaded. "
            "It is a pickle, and only its tensors and plain values are read: use one that you trust.",
            "PATH",
        ),
    ] = None
    evalb_repair: Annotated[
        bool,
        option(
            "With --metric evalb: take words and parts of speech from REF, leave out roots, and repair HYP "
            "to cover these words, for HYP in brackets too. Linearised HYP are always compared in this way.",
            names=("--evalb-repair",),
        ),
    ] = False
    as_json: Annotated[bool, option("Print JSON instead of text.", names=("--json",))] = False
    width: Annotated[
        int | None, option("Decimals in the text output.  [default: 2; COMET 4; with --model 6]", "N", min=1, max=12)
    ] = None
    protocol: Annotated[
        str | None,
        option(
            "paper: replace Unicode punctuation, tokenise with Moses, split compounds, count with "
            "multi-bleu. Needs the package sacremoses.",
            "NAME",
            BLEU,
        ),
    ] = None
    language: Annotated[
        str | None,
        option("With --protocol: language of HYP and REF, as a code such as de, en or fr.  [default: de]", "L", BLEU),
    ] = None
    no_compounds: Annotated[
        bool,
        option(
            "With --protocol: do not split compounds, as is usual for English to French.",
            heading=BLEU,
            names=("--no-compounds",),
        ),
    ] = False
    tokenized_ref: Annotated[
        bool,
        option(
            "With --protocol: REF is tokenised already; only split its compounds.",
            heading=BLEU,
            names=("--tokenized-ref",),
        ),
    ] = False
    significance: Annotated[
        str | None,
        option(
            "With several HYP: bootstrap (paired bootstrap resampling) or randomisation (approximate "
            "randomisation).  [default: bootstrap]",
            "TEST",
            COMPARISON,
        ),
    ] = None
    confidence: Annotated[
        bool,
        option(
            "With one HYP: also print mean and 95 % confidence interval, by bootstrap resampling. With "
            "several HYP they are always printed.",
            heading=COMPARISON,
            names=("--confidence",),
        ),
    ] = False
    samples: Annotated[
        int | None,
        option(
            "Number of resampled test sets, or of trials of randomisation.  [default: 1000; 10000]",
            "N",
            COMPARISON,
            min=1,
            max=1_000_000,
        ),
    ] = None
    seed: Annotated[
        int | None, option("Random seed for resampling.  [default: 12345]", "N", COMPARISON, min=1, max=2**32 - 1)
    ] = None
    by_length: Annotated[
        bool,
        option(
            "Also print a table by the number of words in REF: lines, length ratio and scores for 1-10 "
            "words, 11-20, …, 51 and more.",
            heading=LENGTHS,
            names=("--by-length",),
        ),
    ] = False
    lengths: Annotated[
        str | None,
        option("Print the table by length with these upper bounds.  [default: 10,20,30,40,50]", "N,N,…", LENGTHS),
    ] = None
    source: Annotated[
        Path | None,
        option(
            "Source text, line by line: also count empty, invented, looping and copied HYP lines, lines of "
            "unusual length, and lines that lack numbers or placeholders. --model and --metric comet need it.",
            "SRC",
            OUTPUTS,
            names=("--src",),
        ),
    ] = None
    worst: Annotated[
        int | None,
        option(
            "With HYP and --src: show the N worst lines of each HYP, those with faults first; 0: none.  [default: 5]",
            "N",
            OUTPUTS,
            min=0,
            max=1_000_000,
        ),
    ] = None
    model: Annotated[
        Path | None,
        option(
            "Model or run folder: score REF, given SRC, by the model's probability.",
            "DIR",
            MODEL,
            names=("--model", "-m"),
            autocompletion=runs,
        ),
    ] = None
    target_language: Annotated[
        str | None,
        option(
            "With --model: language of REF, for a model of several languages, whose codes nmt info shows. A line of "
            "SRC that begins with >>CODE<< names its own.  [default: the recipe's]",
            "CODE",
            MODEL,
        ),
    ] = None
    batch_tokens: Annotated[
        int | None,
        option(
            "With --model: tokens per side scored together; changes only the speed.  [default: the recipe's, 4096]",
            "N",
            MODEL,
            min=1,
            max=100_000_000,
        ),
    ] = None
    device: Annotated[
        str | None, option("With --model: auto, cpu, cuda, cuda:N or mps.  [default: auto]", "D", MODEL)
    ] = None
    precision: Annotated[
        str | None,
        option(
            "With --model: fp32, bf16, fp16, int8 or auto (fp32 on a CPU, elsewhere what the hardware "
            "computes fast).  [default: fp32; int8 for a model in int8]",
            "P",
            MODEL,
        ),
    ] = None

    def explicit_options(self, fields: tuple[str, ...]) -> list[str]:
        """Return the names of those options in `fields` that were given."""
        values: list[tuple[str, Any]] = [(field, getattr(self, field)) for field in fields]
        return [
            OPTION_NAMES.get(field, "--" + field.replace("_", "-"))
            for field, value in values
            if value is not None and value is not False
        ]


def check(request: ScoreRequest) -> None:
    """Raise UsageError if options exclude each other, or if an option is missing."""
    if request.model:
        _check_model(request)
    else:
        _check_no_model(request)
        _check_protocol(request)
        _check_resampling(request)
        _check_metrics(request)


def _check_model(request: ScoreRequest) -> None:
    if request.hypotheses:
        raise UsageError(
            f"HYP ({str(request.hypotheses[0])!r}) and --model were both given: a model scores REF. Give "
            "--model DIR --src SRC --ref REF, or HYP --ref REF."
        )
    if request.source is None:
        raise UsageError("--model needs --src SRC, the text that REF translates.")
    if len(request.references) != 1:
        raise UsageError(
            f"--ref was given {len(request.references)} times: a model scores one text at a time. Give it once."
        )
    if options := request.explicit_options(METRIC_OPTIONS):
        raise UsageError(f"{', '.join(options)}: not with --model DIR, which scores REF by a model's probability.")
    if [request.source, *request.references].count(STDIN) > 1:
        raise UsageError(STDIN_TWICE)


def _check_no_model(request: ScoreRequest) -> None:
    if options := request.explicit_options(MODEL_OPTIONS):
        raise UsageError(f"{', '.join(options)}: only with --model DIR, which scores REF by a model's probability.")
    if not request.hypotheses:
        raise UsageError(
            "nothing to score: give HYP, the translations; or --model DIR --src SRC, to score REF by a model's "
            "probability."
        )


def _check_protocol(request: ScoreRequest) -> None:
    protocol, options = request.protocol, request.explicit_options(PROTOCOL_OPTIONS)
    if protocol is None and options:
        raise UsageError(f"{', '.join(options)}: only with --protocol, whose steps it changes. Give --protocol paper.")
    if protocol is not None and request.tokenize is not None:
        raise UsageError(
            f"--tokenize {request.tokenize} and --protocol {protocol} were both given: a protocol has its own "
            "tokenizer. Give one of them."
        )
    if protocol is not None and request.metrics and "bleu" not in request.metrics:
        raise UsageError(
            f"--protocol {protocol} says how BLEU is computed, and BLEU is not asked for. Give --metric bleu "
            "too, or no --metric."
        )


def _check_resampling(request: ScoreRequest) -> None:
    systems, resampling = len(request.hypotheses), request.explicit_options(("samples", "seed"))
    if request.significance is not None and systems < 2:
        raise UsageError(
            f"--significance {request.significance} needs several HYP: it tests them against the first. Give "
            "two or more; for one, --confidence."
        )
    if resampling and systems < 2 and not request.confidence:
        raise UsageError(
            f"{', '.join(resampling)}: nothing is resampled for one HYP. Give --confidence, or several HYP."
        )


def _check_metrics(request: ScoreRequest) -> None:
    metrics = request.metrics or []
    if request.comet_model is not None and "comet" not in metrics:
        raise UsageError("--comet-model: only with --metric comet.")
    if request.ter_asian and "ter" not in (request.metrics or ["ter"] * (request.protocol is None)):
        raise UsageError("--ter-asian: only with the metric ter.")
    if request.evalb_repair and "evalb" not in metrics:
        raise UsageError("--evalb-repair: only with --metric evalb.")
    if "comet" in metrics and request.source is None:
        raise UsageError("--metric comet needs --src SRC, the text that HYP translates.")
    if "evalb" in metrics and "comet" not in metrics and request.source is not None:
        raise UsageError(
            "--src: not with --metric evalb, which scores parses. With --src the outputs are checked as translations."
        )
    if request.worst is not None and request.source is None:
        raise UsageError(
            f"--worst {request.worst} needs --src SRC, the text that HYP translates: its lines are chosen by "
            "checks against SRC."
        )
