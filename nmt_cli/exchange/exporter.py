"""The interface of an exporter, and functions that exporters share.

    model folder ──▶ SourceModel ──▶ check ──▶ write(folder) ──▶ read(folder) ──▶ Reader ──▶ verify

An exporter is one file with an `Exporter`, and one line in `registry.EXPORTERS`. It imports its library inside its
functions. Shared by exporters: the check of a model's form, and the nearest length penalty.

    D d_model   S source length   T target length   V target vocabulary
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..data.tokenizer import BOS, PAD, UNK, Vocabulary
from ..errors import ModelError, shown
from ..model.folder import load_model, weights_of
from ..model.folder_files import card_of, length_limits
from ..model.parameters import Parameter, foreign_part, parameters
from ..model.transformer import Transformer
from ..recipe import ModelSection, Recipe
from ..registry import LENGTH_PENALTIES, load

BANNED = (PAD, UNK, BOS)
"""Ids that search never generates."""
LENGTHS = range(10, 61)
"""Output lengths, in tokens, over which the other library's length penalty is fitted."""


@dataclass(frozen=True)
class SourceModel:
    """The model to export, on the CPU in evaluation mode, with its recipe and vocabulary."""

    model: Transformer
    recipe: Recipe
    vocabulary: Vocabulary
    safe_length: int
    """The length, in source tokens, up to which nmt translates a line whole."""
    card: str = ""
    """The card of a model that was imported, or made from such a model."""

    @classmethod
    def load(cls, folder: Path) -> SourceModel:
        """Load a model folder. Raises ModelError, DataError."""
        loaded = load_model(folder)
        safe_length, _ = length_limits(loaded.recipe.data, [loaded.config.safe_length])
        vocabulary = Vocabulary.load(folder, loaded.config.vocabularies, loaded.config.tokenizers)
        card = card_of(loaded.folder).decode("utf-8", "replace")
        return cls(loaded.model, loaded.recipe, vocabulary, safe_length, card)

    @property
    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        """The model's parameters, by the names of a model folder."""
        return {name: tensor.numpy() for name, tensor in weights_of(self.model).items()}

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The table of the model's parameters."""
        return parameters(self.recipe.model, (self.vocabulary.source_size, self.vocabulary.target_size))

    @property
    def length_penalty(self) -> float:
        """The length penalty nearest to the recipe's, for libraries that divide by |Y| ** length_penalty."""
        decode = self.recipe.decode
        return nearest_length_penalty(decode.alpha, load(LENGTH_PENALTIES, decode.length_penalty, "length penalty"))

    @property
    def divisor(self) -> str:
        """The formula by which nmt divides log P(Y), as text for people."""
        decode = self.recipe.decode
        return {
            "gnmt": f"((5 + |Y|) / 6)^{decode.alpha}",
            "average": "|Y|",
            "power": f"|Y|^{decode.alpha}",
            "none": "1",
        }.get(decode.length_penalty, f"{decode.length_penalty}(|Y|)")

    @property
    def longest(self) -> str:
        """The largest number of tokens of an output, as text for people."""
        decode = self.recipe.decode
        times = f"{decode.max_len_ratio:g} × " * (decode.max_len_ratio != 1)
        return f"{times}each line's length + {decode.max_extra}"

    def notes(self, library: str, greedy: str, most: str, least: str) -> str:
        """Return what the README says of the other library's search; the last three are its options."""
        first, last = LENGTHS[0], LENGTHS[-1]
        words = self.recipe.decode.word_penalty
        missing = f"\n- nmt's word penalty, {words:g} for each token, has no option in {library}." if words else ""
        return f"""\
- Lines of more than {self.safe_length} tokens are longer than most lines of its training: split them into sentences.
- `length_penalty`: nmt ranks by log P(Y) / {self.divisor}, {library} by log P(Y) / |Y|^length_penalty.
  {self.length_penalty} comes nearest for outputs of {first} to {last} tokens. Beams may therefore end in other \
translations; greedy
  search (`{greedy}`) gives the same, up to the longest output.
- `{most}` is one number for the whole batch; nmt takes {self.longest}.
- `{least}` counts every token; nmt's `min_length` counts those that are not white space.{missing}"""


@dataclass(frozen=True)
class Output:
    """The output of a model for one sentence."""

    tokens: list[int]
    """Tokens of greedy search, with the end symbol if it was reached."""
    logits: Tensor
    """(T, V), a row for each step of greedy search; the columns of BANNED mean nothing."""
    log_probs: Tensor
    """(T,), of the tokens of the target and its end symbol."""
    states: Tensor | None = None
    """(S, D), the encoder's output, if the library returns it."""


class Reader(Protocol):
    """An exported folder, loaded with its library in fp32 on the CPU."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of the folder's own tokenizer, with the end symbol."""
        ...

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of target ids."""
        ...

    def run(self, sources: Sequence[list[int]], targets: Sequence[list[int]], limit: int) -> Iterable[Output]:
        """Run one batch: greedy search up to `limit` tokens, and the log-probabilities of `targets`.

        Both sides end in EOS; an output may be EOS alone.
        """
        ...


@dataclass(frozen=True)
class Exporter:
    """An entry of `registry.EXPORTERS`: the three functions that export to a library."""

    check: Callable[[SourceModel], None]
    """Raises ModelError if the library cannot express the model, before anything is written, and UsageError if it is
    not installed."""
    write: Callable[[SourceModel, Path], None]
    """Fills the folder. Raises OSError."""
    read: Callable[[Path], Reader]
    """Loads the folder as its users do."""


def check_form(config: ModelSection, library_name: str, remedy: str = "", **known: Sequence[object]) -> None:
    """Raise ModelError if the model has a form that this export does not know: a part of another package, hard
    monotonic attention, or another value of a key of [model] than those of `known`.
    """
    if foreign := foreign_part(config):
        raise ModelError(f"the model has {foreign} of another package, which the export to {library_name} cannot know.")
    if config.monotonic_attention:
        raise ModelError(
            f"the model has hard monotonic attention (model.monotonic_attention), which {library_name} does not have."
        )
    for key, values in {"source_end": (True,), "decoder": ("self_attention",), **known}.items():
        value = config.epsilon if key == "norm_epsilon" else getattr(config, key)
        if value not in values:
            raise ModelError(
                f"the model has model.{key} = {shown(value)}, and models of {library_name} have "
                f"{' or '.join(map(shown, values))}. {remedy}".strip()
            )


def padded_rows(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return rows of ids as one tensor (B, longest), with PAD, which is 0, at their ends."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def nearest_length_penalty(alpha: float, penalty: Callable[[int, float], float]) -> float:
    """Return the beta for which |Y| ** beta is nearest to `penalty`(|Y|, alpha), to two decimals.

    A constant factor changes no ranking, so beta is the slope of log(penalty) against log(n), by least squares.
    """
    slope, _ = np.polyfit(np.log(LENGTHS), np.log([penalty(n, alpha) for n in LENGTHS]), 1)
    return round(float(slope), 2) + 0.0  # not -0.0
