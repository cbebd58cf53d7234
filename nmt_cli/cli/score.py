"""`nmt score`: score translations against references by BLEU, chrF, TER and others, or with --model by a model's own
probability.

Scores go to stdout, remarks to stderr. `interface.evaluation_options` has the options of metrics, `metric_scoring`
scores by metrics, `output_checks` prints errors of outputs, `forced_scoring` scores by a model's probability and has
the options for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..errors import UsageError
from ..interface.evaluation_options import EvaluationOptions
from ..options import flags
from .arguments import argument, option
from .forced_scoring import WIDTH, ModelOptions, score_by_model
from .typed_options import options_of


@options_of(EvaluationOptions)
@options_of(ModelOptions, into="by_model")
def score(
    *,
    references: Annotated[
        list[Path],
        option("Reference, line by line parallel to HYP. Repeat it for several references.", "REF", names=("--ref",)),
    ],
    hypotheses: Annotated[
        list[Path] | None,
        argument("Translations, one per line; - is stdin. Plain, .gz, .xz, .bz2 or .zst. None with --model.", "HYP"),
    ] = None,
    options: EvaluationOptions,
    as_json: Annotated[bool, option("Print JSON instead of text.", names=("--json",))] = False,
    width: Annotated[
        int | None, option("Decimals in the text output.  [default: 2; COMET 4; with --model 6]", "N", min=1, max=12)
    ] = None,
    by_model: ModelOptions,
) -> None:
    """Score translations against references, or by a model.

    Give detokenised, true-case text. Several HYP are compared with the first. docs/scoring.md describes the output.
    """
    source = options.source if isinstance(options.source, Path) else None
    if by_model.model:
        if hypotheses:
            raise UsageError(
                f"HYP ({str(hypotheses[0])!r}) and --model were both given: a model scores REF. Give "
                "--model DIR --src SRC --ref REF, or HYP --ref REF."
            )
        if given := flags(options, *(name for name in vars(options) if name != "source")):
            raise UsageError(f"{given}: not with --model DIR, which scores REF by a model's probability.")
        score_by_model(references, source, by_model, as_json, width or WIDTH)
        return
    if given := flags(by_model):
        raise UsageError(f"{given}: only with --model DIR, which scores REF by a model's probability.")
    if not hypotheses:
        raise UsageError(
            "nothing to score: give HYP, the translations; or --model DIR --src SRC, to score REF by a model's "
            "probability."
        )
    from .metric_scoring import score_by_metrics

    score_by_metrics(hypotheses, references, source, options, as_json, width)
