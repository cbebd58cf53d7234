"""TER (Snover et al., 2006) by sacrebleu: edits per word of the reference. It ignores case; lower is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .metric import Metric, MetricOptions, MetricSpec
from .tokenizers import unspaced

REMEDY = "Give --ter-asian for Chinese and Japanese, or leave TER out with --metric."


def build(options: MetricOptions) -> Metric:
    """Return sacrebleu's TER, with `ter_asian` over the characters of Chinese and the kanji of Japanese."""
    from sacrebleu.metrics.ter import TER

    from .sacrebleu_interface import SacrebleuMetric

    class Ter(SacrebleuMetric):
        def remarks(
            self, rows: Sequence[Sequence[float]], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
        ) -> Iterable[str]:
            if options.ter_asian or options.tokenize == "none":
                return ()
            return unspaced(references, "TER", REMEDY)

    return Ter(TER(normalized=options.ter_asian, asian_support=options.ter_asian))


SPEC = MetricSpec(build, higher_is_better=False)
