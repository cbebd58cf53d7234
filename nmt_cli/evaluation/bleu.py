"""BLEU (Papineni et al., 2002) by sacrebleu, with one of its tokenizers or by a protocol of `protocols`."""

from __future__ import annotations

from ..errors import DataError, system_reason
from .metric import Metric, MetricOptions, MetricSpec

BY_SPACES = ("13a", "intl")
"""Tokenizers that separate words only at spaces and punctuation."""


def build(options: MetricOptions) -> Metric:
    """Return BLEU.

    Raises UsageError for an unknown protocol, DataError for a tokenizer that lacks a package or its model.
    """
    if options.protocol:
        from .protocols import ProtocolBleu

        return ProtocolBleu(options.protocol, options.lowercase)
    from sacrebleu.metrics.bleu import BLEU

    from .sacrebleu_interface import SacrebleuMetric

    try:
        # `force` turns off sacrebleu's notice about text that looks tokenised; `nmt score` prints one that names the
        # file.
        bleu = BLEU(lowercase=options.lowercase, tokenize=options.tokenize, force=True)
    except (Exception, SystemExit) as error:  # from MeCab, SentencePiece, urllib, portalocker, or sacrebleu itself
        reason = system_reason(error) if isinstance(error, OSError) else " ".join(str(error).split())
        raise DataError(
            f"BLEU's tokenizer {options.tokenize!r} cannot be used: {reason or type(error).__name__}. docs/scoring.md "
            "says what it needs. Or choose another tokenizer: --tokenize, or in a recipe train.valid_bleu_tokenizer."
        ) from error
    return SacrebleuMetric(bleu, f"BLEU by {options.tokenize}" if options.tokenize in BY_SPACES else "")


SPEC = MetricSpec(build)
