"""The request of one `nmt score` command, and the check that its options fit together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .arguments import STDIN, STDIN_TWICE

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
MODEL_OPTIONS = ("batch_tokens", "device", "precision")


@dataclass(frozen=True)
class ScoreRequest:
    """The options of `nmt score`. None or False means not given. `score_options` describes each option."""

    hypotheses: list[Path]
    references: list[Path]
    metrics: list[str] | None
    lowercase: bool
    tokenize: str | None
    ter_asian: bool
    comet_model: Path | None
    evalb_repair: bool
    protocol: str | None
    language: str | None
    no_compounds: bool
    tokenized_ref: bool
    significance: str | None
    confidence: bool
    samples: int | None
    seed: int | None
    by_length: bool
    lengths: str | None
    model: Path | None
    source: Path | None
    worst: int | None
    batch_tokens: int | None
    device: str | None
    precision: str | None
    as_json: bool
    width: int | None

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
