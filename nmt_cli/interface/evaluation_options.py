"""The options of `evaluate` and `nmt score`, and the rules that join them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..errors import UsageError, check_choice
from ..evaluation.lengths import BOUNDS, parse_bounds
from ..evaluation.metric import DEFAULT_TOKENIZER, MetricOptions, Protocol
from ..evaluation.metrics import DEFAULT_METRICS, build
from ..evaluation.significance import BOOTSTRAP, TESTS
from ..options import Option, flags
from ..registry import METRICS
from ..text.languages import base

Text = Path | Sequence[str]
"""A file, plain or compressed, or its lines."""
BLEU, COMPARISON = "BLEU as in papers (--protocol)", "Comparison and confidence"
LENGTHS, OUTPUTS = "Scores by length", "Faulty outputs (--src)"
"""Headings in --help."""


@dataclass(frozen=True)
class EvaluationOptions:
    """What is computed. None or False means not given."""

    metrics: Annotated[
        Sequence[str] | None,
        Option(
            f"One of {', '.join(METRICS)}; evalb is for parses. Repeat it for several.  [default: bleu, chrf and ter]",
            "METRIC",
            names=("--metric",),
        ),
    ] = None
    lowercase: Annotated[bool, Option("Ignore case in BLEU and chrF (TER always does).")] = False
    tokenize: Annotated[
        str | None,
        Option(
            "BLEU's tokenizer: 13a, intl, char, zh (for Chinese), ja-mecab, …; none for text that is "
            "tokenised already.  [default: 13a]",
            "T",
        ),
    ] = None
    ter_asian: Annotated[
        bool,
        Option(
            "TER of Chinese and Japanese: each character of Chinese, and each kanji, is a word. "
            "In sacrebleu it is --ter-normalized with --ter-asian-support."
        ),
    ] = False
    comet_model: Annotated[
        str | Path | None,
        Option(
            "With --metric comet: folder or .ckpt file of a COMET model on this disk. Nothing is downloaded. "
            "It is a pickle, and only its tensors and plain values are read: use one that you trust.",
            "PATH",
        ),
    ] = None
    evalb_repair: Annotated[
        bool,
        Option(
            "With --metric evalb: take words and parts of speech from REF, leave out roots, and repair HYP "
            "to cover these words."
        ),
    ] = False
    protocol: Annotated[
        str | None,
        Option(
            "paper: replace Unicode punctuation, tokenise with Moses, split compounds, count with "
            "multi-bleu. Needs the package sacremoses.",
            "NAME",
            BLEU,
        ),
    ] = None
    language: Annotated[
        str | None,
        Option("With --protocol: language of HYP and REF, as a code such as de, en or fr.  [default: de]", "L", BLEU),
    ] = None
    no_compounds: Annotated[
        bool, Option("With --protocol: do not split compounds, as is usual for English to French.", None, BLEU)
    ] = False
    tokenized_ref: Annotated[
        bool, Option("With --protocol: REF is tokenised already; only split its compounds.", None, BLEU)
    ] = False
    significance: Annotated[
        str | None,
        Option(
            "With several HYP: bootstrap (paired bootstrap resampling) or randomisation (approximate "
            "randomisation).  [default: bootstrap]",
            "TEST",
            COMPARISON,
        ),
    ] = None
    confidence: Annotated[
        bool,
        Option(
            "With one HYP: also print mean and 95 % confidence interval, by bootstrap resampling. With "
            "several HYP they are always printed.",
            None,
            COMPARISON,
        ),
    ] = False
    samples: Annotated[
        int | None,
        Option(
            "Number of resampled test sets, or of trials of randomisation.  [default: 1000; 10000]",
            "N",
            COMPARISON,
            1,
            1_000_000,
        ),
    ] = None
    seed: Annotated[
        int | None, Option("Random seed for resampling.  [default: 12345]", "N", COMPARISON, 1, 2**32 - 1)
    ] = None
    by_length: Annotated[
        bool,
        Option(
            "Also print a table by the number of words in REF: lines, length ratio and scores for 1-10 "
            "words, 11-20, …, 51 and more.",
            None,
            LENGTHS,
        ),
    ] = False
    lengths: Annotated[
        str | None,
        Option("Print the table by length with these upper bounds.  [default: 10,20,30,40,50]", "N,N,…", LENGTHS),
    ] = None
    source: Annotated[
        Text | None,
        Option(
            "Source text, line by line: also count empty, invented, looping and copied HYP lines, lines of "
            "unusual length, and lines that lack numbers or placeholders. --model and --metric comet need it.",
            "SRC",
            OUTPUTS,
            names=("--src",),
        ),
    ] = None
    worst: Annotated[
        int | None,
        Option(
            "With HYP and --src: show the N worst lines of each HYP, those with faults first; 0: none.  [default: 5]",
            "N",
            OUTPUTS,
            0,
            1_000_000,
        ),
    ] = None

    def check(self, systems: int) -> None:
        """Raise UsageError for options that exclude each other, that another one needs, or that are unknown.

        `systems`: how many are scored. No file is read yet.
        """
        self._check_protocol()
        self._check_resampling(systems)
        self._check_metrics()
        check_choice("test of significance", self.significance or BOOTSTRAP, TESTS)
        for name in self.names:
            build(name, self.metric_options)
        _ = self.bounds

    def _check_protocol(self) -> None:
        protocol, options = self.protocol, flags(self, "language", "no_compounds", "tokenized_ref")
        if protocol is None and options:
            raise UsageError(f"{options}: only with --protocol, whose steps it changes. Give --protocol paper.")
        if protocol is not None and self.tokenize is not None:
            raise UsageError(
                f"--tokenize {self.tokenize} and --protocol {protocol} were both given: a protocol has its own "
                "tokenizer. Give one of them."
            )
        if protocol is not None and "bleu" not in self.names:
            raise UsageError(
                f"--protocol {protocol} says how BLEU is computed, and BLEU is not asked for. Give --metric bleu "
                "too, or no --metric."
            )

    def _check_resampling(self, systems: int) -> None:
        if self.significance is not None and systems < 2:
            raise UsageError(
                f"--significance {self.significance} needs several HYP: it tests them against the first. Give "
                "two or more; for one, --confidence."
            )
        if systems < 2 and not self.confidence and (options := flags(self, "samples", "seed")):
            raise UsageError(f"{options}: nothing is resampled for one HYP. Give --confidence, or several HYP.")

    def _check_metrics(self) -> None:
        for option, metric, how in (
            ("comet_model", "comet", "--metric comet"),
            ("ter_asian", "ter", "the metric ter"),
            ("evalb_repair", "evalb", "--metric evalb"),
        ):
            if metric not in self.names and (given := flags(self, option)):
                raise UsageError(f"{given}: only with {how}.")
        if "comet" in self.names and self.source is None:
            raise UsageError("--metric comet needs --src SRC, the text that HYP translates.")
        if "evalb" in self.names and "comet" not in self.names and self.source is not None:
            raise UsageError(
                "--src: not with --metric evalb, which scores parses. With --src the outputs are checked as "
                "translations."
            )
        if self.worst is not None and self.source is None:
            raise UsageError(
                f"--worst {self.worst} needs --src SRC, the text that HYP translates: its lines are chosen by "
                "checks against SRC."
            )

    @property
    def names(self) -> list[str]:
        """The names of the metrics to compute, once each: those that were given, else the defaults."""
        defaults = DEFAULT_METRICS if self.protocol is None else ["bleu"]
        return list(dict.fromkeys(name.lower() for name in self.metrics or defaults))

    @property
    def metric_options(self) -> MetricOptions:
        """The options of the metrics."""
        protocol = None
        if self.protocol is not None:
            language = {"language": base(self.language)} if self.language else {}
            protocol = Protocol(
                self.protocol, compounds=not self.no_compounds, tokenized_references=self.tokenized_ref, **language
            )
        return MetricOptions(
            lowercase=self.lowercase,
            tokenize=self.tokenize or DEFAULT_TOKENIZER,
            ter_asian=self.ter_asian,
            protocol=protocol,
            comet_model=Path(self.comet_model) if self.comet_model else None,
            evalb_repair=self.evalb_repair,
        )

    @property
    def bounds(self) -> Sequence[int]:
        """The upper bounds of the lengths; empty if scores by length are not asked for. Raises UsageError."""
        return parse_bounds(self.lengths) if self.lengths is not None else BOUNDS if self.by_length else ()
