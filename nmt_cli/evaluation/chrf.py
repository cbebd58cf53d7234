"""chrF (Popović, 2015) by sacrebleu: F-score of character n-grams."""

from __future__ import annotations

from .metric import Metric, MetricOptions, MetricSpec


def build(options: MetricOptions) -> Metric:
    """Return sacrebleu's chrF2."""
    from sacrebleu.metrics.chrf import CHRF

    from .sacrebleu_interface import SacrebleuMetric

    return SacrebleuMetric(CHRF(lowercase=options.lowercase))


SPEC = MetricSpec(build)
