"""TER (Snover et al., 2006) by sacrebleu: edits per word of the reference. It ignores case; lower is better."""

from __future__ import annotations

from .metric import Metric, MetricOptions, MetricSpec

REMEDY = "Give --ter-asian for Chinese and Japanese, or leave TER out with --metric."


def build(options: MetricOptions) -> Metric:
    """Return sacrebleu's TER, with `ter_asian` over the characters of Chinese and the kanji of Japanese."""
    from sacrebleu.metrics.ter import TER

    from .sacrebleu_interface import SacrebleuMetric

    by_spaces = "" if options.ter_asian or options.tokenize == "none" else "TER"
    return SacrebleuMetric(TER(normalized=options.ter_asian, asian_support=options.ter_asian), by_spaces, REMEDY)


SPEC = MetricSpec(build, higher_is_better=False)
