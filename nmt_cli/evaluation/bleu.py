"""BLEU (Papineni et al., 2002) by sacrebleu, with one of its tokenizers or by a protocol of `protocols`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .metric import Metric, MetricOptions, MetricSpec
from .tokenizers import unspaced

BY_SPACES = ("13a", "intl")
"""Tokenizers that separate words only at spaces and punctuation."""


def build(options: MetricOptions) -> Metric:
    """Return BLEU.

    Raises UsageError for an unknown protocol, DataError for a tokenizer that lacks a package or its model.
    """
    if options.protocol:
        from . import protocols

        return protocols.build(options.protocol, lowercase=options.lowercase)
    from sacrebleu.metrics.bleu import BLEU

    from .sacrebleu_interface import SacrebleuMetric

    class Bleu(SacrebleuMetric):
        def remarks(
            self, rows: Sequence[Sequence[float]], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
        ) -> Iterable[str]:
            return unspaced(options.tokenize, references) if options.tokenize in BY_SPACES else ()

    try:
        # `force` turns off sacrebleu's notice about text that looks tokenised; `nmt score` prints one that names the
        # file.
        bleu = BLEU(lowercase=options.lowercase, tokenize=options.tokenize, force=True)
    except (Exception, SystemExit) as error:  # from MeCab, SentencePiece, urllib, portalocker, or sacrebleu itself
        from .tokenizer_errors import tokenizer_error

        raise tokenizer_error(options.tokenize, error) from error
    return Bleu(bleu)


SPEC = MetricSpec(build)
