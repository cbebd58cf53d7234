"""TER (Snover et al., 2006) by sacrebleu: edits per word of the reference. It ignores case; lower is better."""

from __future__ import annotations

from .metric import Metric, MetricOptions, MetricSpec


def build(options: MetricOptions) -> Metric:
    """Return sacrebleu's TER."""
    from sacrebleu.metrics.ter import TER

    from .sacrebleu_interface import SacrebleuMetric

    return SacrebleuMetric(TER())


SPEC = MetricSpec(build, higher_is_better=False)
