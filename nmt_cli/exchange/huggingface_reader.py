"""The `Reader` of a folder that `huggingface` exported. It loads the folder as users do.

S source length   T target length   V target vocabulary   D d_model
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.tokenizer import BOS, EOS
from ..errors import extra_module
from ..recipe import ModelSection
from .exporter import Output, padded_rows


def feature_order(config: ModelSection) -> Tensor:
    """Return the index of our feature for each feature of transformers: all sines, then all cosines.

    With learned positions the order is the same.
    """
    features = torch.arange(config.d_model)
    return torch.cat([features[0::2], features[1::2]]) if config.positions == "sinusoidal" else features


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Suppress progress bars and messages; MarianTokenizer recommends a package that it does not use."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Recommended: pip install sacremoses", UserWarning)
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


class HuggingFaceReader:
    """The exported folder in transformers, fp32 on the CPU."""

    def __init__(self, folder: Path) -> None:
        self.library = extra_module("transformers", "huggingface", "--to huggingface")
        with quiet(self.library):
            self.tokenizer = self.library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self.model = self.library.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
        config = self.model.config
        learned = config.model_type == "blenderbot"
        order = feature_order(
            ModelSection(d_model=config.d_model, num_heads=1, positions="learned" if learned else "sinusoidal")
        )
        self.positions = torch.argsort(order)  # for each of our features, its index in transformers

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows: list[list[int]] = self.tokenizer(list(texts)).input_ids if texts else []
        return rows

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        texts: list[str] = self.tokenizer.batch_decode([list(row) for row in rows], skip_special_tokens=True)
        return texts

    def run(self, sources: Sequence[list[int]], targets: Sequence[list[int]], limit: int) -> list[Output]:
        """See `Reader`. The logits come from one pass over the target."""
        src, mask = padded_rows(sources), padded_rows([[1] * len(row) for row in sources])
        tgt_in = padded_rows([[BOS, *row[:-1]] for row in targets])
        with torch.inference_mode(), quiet(self.library):
            out = self.model(input_ids=src, attention_mask=mask, decoder_input_ids=tgt_in)
            steps = limit + 1  # the last token is forced to be EOS
            generated = self.model.generate(
                input_ids=src,
                attention_mask=mask,
                num_beams=1,
                do_sample=False,
                length_penalty=1.0,
                max_new_tokens=steps,
                min_new_tokens=0,
            )
        states, outputs = out.encoder_last_hidden_state[..., self.positions], []
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            logits = out.logits[row, : len(target)].float()
            log_probs = logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None])[:, 0]
            outputs.append(
                Output(_ended(generated[row, 1 : limit + 1].tolist()), logits, log_probs, states[row, : len(source)])
            )
        return outputs


def _ended(tokens: list[int]) -> list[int]:
    """Return the tokens up to the end symbol."""
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
