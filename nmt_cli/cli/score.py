"""`nmt score`: score translations against references by BLEU, chrF, TER and others, or with --model by a model's own
probability.

Scores go to stdout, remarks to stderr. `score_request` has the options and checks that they fit together,
`metric_scoring` scores by metrics, `output_checks` prints errors of outputs, `forced_scoring` scores by a model's
probability.
"""

from __future__ import annotations

from dataclasses import replace

from .score_request import ScoreRequest, check
from .typed_options import options_of


@options_of(ScoreRequest)
def score(options: ScoreRequest) -> None:
    """Score translations against references, or by a model.

    Give detokenised, true-case text. Several HYP are compared with the first. docs/scoring.md describes the output.
    """
    if options.metrics:
        options = replace(options, metrics=list(dict.fromkeys(name.lower() for name in options.metrics)))
    check(options)
    if options.model:
        from .forced_scoring import score_by_model

        score_by_model(options)
    else:
        from .metric_scoring import score_by_metrics

        score_by_metrics(options)
