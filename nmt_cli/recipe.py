"""The typed, strict recipe: one experiment, without settings of the machine.

    TOML text ──▶ load_recipe ──▶ Recipe(data, model, train, decode) ──▶ every command
                  keys of the recipe that it `extends` are added, --set section.key=value is applied, then all is
                  checked

A recipe is data. The whole recipe is checked before any work starts: unknown keys, wrong types and contradictions are
reported together, each with the nearest correct name. Every number has bounds, far beyond any model that was ever
trained, and so has the number of parameters (`MOST_PARAMETERS`). So a value that must be a mistake is refused before
memory is allocated. The recipe is stored in shards, runs and model folders (`Recipe.to_dict`), and every later command
reads it from there (`Recipe.from_dict`). The model's width and the vocabulary's size are keys of the recipe. Values
that depend on the machine (devices, micro-batches, precision) are derived elsewhere.

Sources of the defaults: "Attention Is All You Need", sections 3 and 5, table 3 (base).
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypedDict, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from .console import warn_once
from .encodings import refused, wide_encoding
from .errors import RecipeError, did_you_mean, expected, shown, shown_name
from .options import MOST_BEAM, Option
from .registry import (
    ACTIVATIONS,
    CONSTRAINTS,
    LENGTH_PENALTIES,
    NORMS,
    POSITIONS,
    RESIDUALS,
    SCHEDULES,
    SEARCHES,
    TOKENIZERS,
    UTILITIES,
)

# Keys of earlier versions


RETIRED = {
    "decode.prune": (0.0, "nmt 0.1.0 retired this key. decode.lookahead says when search gives up a hypothesis.")
}
"""A key that is read and ignored → the value that had no effect, and the text of the warning about any other value."""
RENAMED: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "model.norm": ("residual", ("post", "pre")),  # `norm` is now the kind of norm
    "data.target_pieces": ("target_tokenization", None),
}
"""The old name of a key → its new name, and the values with which the old name is still read; None: any value."""


def with_present_names(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `values` with the keys in RENAMED under their present names. Raises RecipeError for a key given twice."""
    for old, (now, old_values) in RENAMED.items():
        section, key = old.split(".")
        table = values.get(section)
        if not isinstance(table, dict) or key not in table or (old_values and table[key] not in old_values):
            continue
        if now in table and table[now] != table[key]:
            raise RecipeError(
                f"{where}: {old} = {shown(table[key])} is the old name of {section}.{now}, which is "
                f"{shown(table[now])} here. Remove one of the two."
            )
        values = {**values, section: {now if name == key else name: value for name, value in table.items()}}
    return values


def without_retired(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return `values` without the keys in RETIRED; warn about keys that had an effect."""
    for retired, (neutral, why) in RETIRED.items():
        section, key = retired.split(".")
        table = values.get(section)
        if isinstance(table, dict) and key in table:
            values = {**values, section: {name: value for name, value in table.items() if name != key}}
            if table[key] != neutral:
                warn_once(f"{retired} = {table[key]!r} is ignored: {why}", where)
    return values


# Errors, all at once

MOST = 30
"""Largest number of errors that are listed for one dictionary."""
LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "less_than_equal": ("at most", "le"),
    "greater_than": ("more than", "gt"),
    "less_than": ("less than", "lt"),
}
"""pydantic's names of bounds → the words in messages, and the key under which pydantic stores the bound."""


def describe(error: ValidationError, values: dict[str, Any]) -> str:
    """Return "has N errors:" and a line for each error of a recipe's `values`."""
    lines, count = _lines(error), error.error_count()
    if count > MOST:
        lines.append(f"… and {count - MOST:,} more")
    else:
        lines += [line for line in _contradictions_besides(error, values) if line not in lines]
        count = len(lines)
    return f"has {count:,} error{'s' * (count != 1)}:\n" + "\n".join(f"  - {line}" for line in lines)


def _lines(error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors()[:MOST]:
        path = shown_name(".".join(str(part) for part in item["loc"]))
        section, _, key = path.partition(".")
        if item["type"] == "extra_forbidden":
            homes = [name for name, kind in SECTIONS.items() if key in kind.model_fields and name != section]
            inside = SECTIONS[section].model_fields if key and section in SECTIONS else SECTIONS
            hint = f" It belongs in [{homes[0]}]." if homes else did_you_mean(key or section, list(inside))
            lines.append(f"{path}: unknown {'key' if key else 'section'}.{hint}")
        elif item["type"] == "value_error":
            lines += [f"{path + ': ' if path else ''}{line}" for line in str(item["ctx"]["error"]).splitlines()]
        elif item["type"] == "missing":
            lines.append(f"{path}: this section is missing")
        elif item["type"] in LIMITS:
            words, bound = LIMITS[item["type"]]
            lines.append(f"{path} = {shown(item['input'])}: expected {words} {item['ctx'][bound]:,}")
        else:
            lines.append(f"{path or 'the recipe'} = {shown(item['input'])}: {item['msg'][:1].lower()}{item['msg'][1:]}")
    return lines


def _contradictions_besides(error: ValidationError, values: dict[str, Any]) -> list[str]:
    """Check `values` again without the wrong keys, and return the contradictions that remain, except those that mention
    a wrong key.
    """
    left_out, remaining = set(), copy.deepcopy(values)
    for item in error.errors():
        if item["type"] == "value_error" or not item["loc"]:
            continue
        *path, key = [part for part in item["loc"] if isinstance(part, str)]
        table = remaining
        for part in path:
            table = table.get(part, {})
        left_out.add(key)
        table.pop(key, None)
    try:
        Recipe.model_validate(remaining)
    except ValidationError as more:
        return [line for line in _lines(more) if not any(key in line for key in left_out)]
    return []


# The sections


class Section(BaseModel):
    """A frozen part of a recipe. It refuses unknown keys and values of a wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def contradictions(self) -> Iterator[str]:
        """Yield an error for each set of values that do not fit together."""
        return iter(())

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if errors := list(self.contradictions()):
            raise ValueError("\n".join(errors))
        return self


TrainingPrecision = Literal["auto", "bf16", "fp16", "fp32"]
BleuTokenizer = Literal[
    "", "13a", "zh", "char", "intl", "none", "ja-mecab", "ko-mecab", "flores101", "flores200", "spBLEU-1K"
]
TRAINING_PRECISIONS: tuple[str, ...] = get_args(TrainingPrecision)
MANY = 10**12
"""Upper bound of counts that take no memory: updates, pairs of a shard, …"""
MOST_PARAMETERS = 10**12
BYTES_PER_PARAMETER = 16
"""Bytes per parameter in training: weight, gradient and Adam's two moments in fp32."""
MOST_POSITIONS = 2**28
"""Largest size of a table of positions, max_positions × d_model."""
LATEST = "latest"
"""Name of the link to the latest run, in the folder of runs."""
DEEPEST = 16
"""Largest depth of nested dictionaries and lists in a recipe."""


def _file_name(name: str) -> str:
    if "\0" in name:
        raise ValueError(f"{shown(name)} holds a NUL character: no file name has one")
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"{shown(name)} is not UTF-8")
    return name


FileName = Annotated[str, AfterValidator(_file_name)]


def _listed_in(registry: Mapping[str, str]) -> AfterValidator:
    """Return a check that a value is a name in `registry`. The names are read at the time of the check."""

    def check(name: str) -> str:
        if name not in registry:
            raise PydanticCustomError("listed", "{expected}", {"expected": expected(name, registry)})
        return name

    return AfterValidator(check)


def number(default: float, least: float, most: float) -> Any:
    """Return a key for numbers from `least` to `most`."""
    return Field(default=default, ge=least, le=most)


class DataSection(Section):
    """[data]: the text, the subword vocabulary, and the conditions for keeping a pair."""

    source_language: FileName = "en"
    """Code of the language that is translated from, such as `en`. `nmt serve` offers the model for it."""
    target_language: FileName = "de"
    """Code of the language that is translated into. It also decides the tokenizer of BLEU in validation."""
    generator: Literal["", "teaching"] = ""
    """`teaching`: the package generates the corpus itself; no --data-dir is needed."""
    train_source: list[FileName] = []
    """Files below --data-dir: plain, .gz, .xz, .bz2 or .zst. They are parallel to `train_target`, line by line."""
    train_target: list[FileName] = []
    """Translations of `train_source`: as many files, in the same order."""
    valid_source: list[FileName] = []
    """Held-out text for validation, as `train_source`."""
    valid_target: list[FileName] = []
    """Translations of `valid_source`: as many files, in the same order."""
    tokenizer: FileName = ""
    """An existing SentencePiece model to use instead of learning one: a path, or a path below --data-dir."""
    vocab_size: int = number(37_000, 8, 10_000_000)
    """Most pieces of the vocabulary: a small text may have fewer."""
    joint_vocab: bool = True
    """One BPE and one embedding matrix for both languages (section 5.1); false: one for each language."""
    target_vocab_size: int = number(0, 0, 10_000_000)
    """Size of the target's own vocabulary, with joint_vocab = false; 0: `vocab_size`."""
    target_tokenization: Annotated[str, _listed_in(TOKENIZERS)] = "bpe"
    """`words`: each word between spaces is one token of the target vocabulary, unchanged. This is for targets of
    symbols, such as linearised trees. The vocabulary holds the most frequent words, or all if there are fewer. It needs
    joint_vocab = false.
    """
    terminals: Literal["", "xx", "tags", "words", "both"] = ""
    """For a parser: the form of a word in the target, a linearised tree, as in `nmt data trees --terminals`. "": not a
    parser. With `words` and `both`, the target may share the source's subwords; even then, each bracket and tag is one
    token.
    """
    normalization: Literal["nfc", "identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"] = "nfc"
    """`nfc` keeps the text (`data.normalization`); the others are SentencePiece's rules. The SentencePiece model stores
    the rule, so training, translation and exports apply the same one. Earlier versions used `nmt_nfkc`; their shards
    keep it."""
    character_coverage: float = number(1.0, 0.98, 1.0)
    """The vocabulary has the most frequent characters, up to this share of the text. SentencePiece takes no less than
    0.98."""
    target_character_coverage: float = number(0.0, 0.0, 1.0)
    """The same for the target's own vocabulary, with joint_vocab = false; 0: `character_coverage`."""
    byte_fallback: bool = True
    """Characters that are not in the vocabulary become bytes instead of <unk>, so that they can be copied."""
    separate_tokenizers: bool = False
    """Each language has its own tokenizer over the one joint vocabulary, as in OPUS-MT models. They come with a model:
    `tokenizer` names its folder."""
    min_length: int = number(1, 1, 1_000_000)
    """Fewest tokens per side, end symbol not counted; shorter pairs are dropped as empty."""
    max_length: int = number(256, 1, 1_000_000)
    """Most tokens per side, end symbol not counted; longer pairs are dropped and counted."""
    max_ratio: float = Field(default=9.0, gt=1.0, le=1e6)
    """Largest ratio (longer side + 1) / (shorter side + 1), in tokens; the + 1 makes it less strict for short lines."""
    shard_pairs: int = number(1_000_000, 1, MANY)
    """Pairs per shard, the files that `nmt preprocess` writes. It changes only their number."""

    @property
    def target_size(self) -> int:
        """The largest size of the target's vocabulary."""
        return self.target_vocab_size or self.vocab_size

    def contradictions(self) -> Iterator[str]:
        for split in ("train", "valid"):
            source, target = getattr(self, f"{split}_source"), getattr(self, f"{split}_target")
            if len(source) != len(target):
                yield (
                    f"{split}_source names {len(source)} file(s), {split}_target {len(target)}: they are read in pairs"
                )
        if self.generator and (self.train_source or self.valid_source):
            yield f"generator = {self.generator!r} makes its own text: leave train_source and valid_source out"
        if not self.generator and not self.train_source:
            yield "train_source and train_target are needed (files below --data-dir)"
        if self.target_vocab_size and self.joint_vocab:
            yield (
                f"target_vocab_size = {self.target_vocab_size} needs joint_vocab = false: a joint vocabulary "
                f"has vocab_size = {self.vocab_size} pieces"
            )
        if self.separate_tokenizers and not (self.joint_vocab and self.tokenizer):
            yield (
                "separate_tokenizers = true needs joint_vocab = true and a tokenizer, the folder of the model that has "
                "them: they cannot be learned"
            )
        if self.target_character_coverage and self.joint_vocab:
            yield (
                f"target_character_coverage = {self.target_character_coverage} needs joint_vocab = false: "
                f"a joint vocabulary has character_coverage = {self.character_coverage}"
            )
        if 0 < self.target_character_coverage < 0.98:
            yield (
                f"target_character_coverage = {self.target_character_coverage}: expected 0.98 or more, or 0 "
                "for the source's"
            )
        if 0 < self.target_vocab_size < 8:
            yield (
                f"target_vocab_size = {self.target_vocab_size}: expected 8 or more, or 0 for vocab_size = "
                f"{self.vocab_size}"
            )
        if self.target_tokenization != "bpe" and self.joint_vocab:
            yield (
                f'target_tokenization = "{self.target_tokenization}" needs joint_vocab = false: the source is learned '
                "as BPE, by itself"
            )
        if self.terminals in ("xx", "tags") and self.target_tokenization != "words":
            yield (
                f'terminals = "{self.terminals}" needs target_tokenization = "words": each symbol of a tree is '
                "one token"
            )
        if self.min_length > self.max_length:
            yield f"min_length = {self.min_length} exceeds max_length = {self.max_length}"


class ModelSection(Section):
    """[model]: the columns of the paper's table 3, and choices in which other models differ from the paper."""

    encoder_layers: int = number(6, 1, 1000)
    """Number of encoder layers, the paper's N."""
    decoder_layers: int = number(6, 1, 1000)
    """Number of decoder layers, the paper's N."""
    d_model: int = number(512, 2, 65_536)
    """Size of the vector of a token, between all sub-layers."""
    d_ff: int = number(2048, 1, 1_048_576)
    """Size of the inner layer of the feed-forward networks."""
    num_heads: int = number(8, 1, 4096)
    """Number of attention heads per layer, the paper's h."""
    d_k: int = number(0, 0, 65_536)
    """Size of a head's queries and keys; 0: d_model / num_heads."""
    d_v: int = number(0, 0, 65_536)
    """Size of a head's values; 0: d_model / num_heads."""
    dropout: float = number(0.1, 0.0, 0.95)
    """On each sub-layer's output and on embedding + position sums (section 5.4)."""
    attention_dropout: float = number(0.0, 0.0, 0.95)
    """On attention weights; the paper has none."""
    activation_dropout: float = number(0.0, 0.0, 0.95)
    """Inside the feed-forward network, after the activation; the paper has none."""
    residual: Annotated[str, _listed_in(RESIDUALS)] = "post"
    """`post`: Norm(x + Sublayer(x)), the paper's; `pre`: x + Sublayer(Norm(x)) and one last Norm per stack."""
    norm: Annotated[str, _listed_in(NORMS)] = "layer"
    """`layer`: LayerNorm, the paper's; `rms`: RMSNorm."""
    norm_epsilon: float = number(0.0, 0.0, 1.0)
    """Added to the variance by LayerNorm, to the mean square by RMSNorm. 0: 1e-5 for `layer`, as in torch, and 1e-6 for
    `rms`, as in T5. Marian has 1e-6."""
    activation: Annotated[str, _listed_in(ACTIVATIONS)] = "relu"
    """Activation of the feed-forward network. `relu`: max(0, x), the paper's (equation 2); `gelu`; `silu`; `swiglu`: a
    gate, with three matrices of d_model × d_ff instead of two."""
    positions: Annotated[str, _listed_in(POSITIONS)] = "sinusoidal"
    """`sinusoidal`: the paper's (section 3.5); `learned`: a trained vector per position (table 3, row E); `rotary`:
    self-attention rotates queries and keys; `marian`: Marian's sinusoids, whose frequencies differ from the paper's."""
    max_positions: int = number(1024, 2, 1_048_576)
    """The longest sequence, and the number of rows of learned positions. Longer lines are split before translation."""
    tie_embeddings: bool = True
    """One matrix for both embeddings and the output projection (section 3.4)."""
    output_bias: bool = False
    """The output projection has a bias, and padding and the begin symbol have no probability, as in Marian. The paper
    has none."""
    zero_start: bool = False
    """The decoder's first input is a zero vector instead of a trained one, as in Marian. It needs `output_bias`."""
    monotonic_attention: bool = False
    """For a parser: the decoder also reads the encoder's state of the next word (hard monotonic attention, Aharoni and
    Goldberg 2017)."""

    @property
    def key_size(self) -> int:
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        return self.d_v or self.d_model // self.num_heads

    @property
    def epsilon(self) -> float:
        return self.norm_epsilon or (1e-6 if self.norm == "rms" else 1e-5)

    def contradictions(self) -> Iterator[str]:
        if not (self.d_k and self.d_v) and self.d_model % self.num_heads:
            yield (f"d_model = {self.d_model} is not a multiple of num_heads = {self.num_heads}: give d_k and d_v")
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield f"d_model = {self.d_model} is odd: sinusoids come in pairs of sine and cosine"
        if self.positions == "marian" and (self.d_model % 2 or self.d_model < 4):
            yield f"d_model = {self.d_model}: Marian's positions need an even number from 4 on"
        if self.zero_start and not self.output_bias:
            yield "zero_start = true needs output_bias = true: else the zero vector is trained as an output"
        if self.positions == "rotary" and self.key_size % 2:
            yield (
                f"heads of {self.key_size} numbers are odd: rotary positions rotate pairs of them. Change "
                "num_heads or d_k"
            )
        if self.max_positions * self.d_model > MOST_POSITIONS:
            yield (
                f"max_positions = {self.max_positions} times d_model = {self.d_model} are "
                f"{self.max_positions * self.d_model:,} numbers for positions: expected at most {MOST_POSITIONS:,}"
            )

    def parameters(self, source_vocab: int, target_vocab: int) -> int:
        """Return the number of trained parameters for vocabularies of these sizes, without building the model.

        The number is exact for the norms and activations of this package. Another norm counts as a layer norm, another
        activation as relu.
        """
        d = self.d_model
        queries, values = self.num_heads * self.key_size, self.num_heads * self.value_size
        attention = 2 * (d + 1) * queries + (d + 1) * values + (values + 1) * d
        gates = 2 if self.activation == "swiglu" else 1
        feed_forward = (d + 1) * gates * self.d_ff + (self.d_ff + 1) * d
        norm = d if self.norm == "rms" else 2 * d
        encoder = self.encoder_layers * (attention + feed_forward + 2 * norm)
        decoder = self.decoder_layers * (2 * attention + feed_forward + 3 * norm)
        embeddings = d * (source_vocab if self.tie_embeddings else source_vocab + 2 * target_vocab)
        positions = 2 * self.max_positions * d if self.positions == "learned" else 0
        bias = target_vocab if self.output_bias else 0
        return encoder + decoder + embeddings + bias + positions + (2 * norm if self.residual == "pre" else 0)


class TrainSection(Section):
    """[train]: the paper's sections 5.1 to 5.4, and how the run is validated, logged and saved."""

    batch_tokens: int = number(25_000, 1, 100_000_000)
    """Tokens per update on each side (source, target), over all ranks and micro-batches."""
    micro_batch_tokens: int = number(0, 0, 100_000_000)
    """Tokens per side in one forward and backward pass of a rank; 0: chosen from the hardware's memory."""
    updates: int = number(100_000, 1, MANY)
    """Number of updates of the weights; then training ends."""
    schedule: Annotated[str, _listed_in(SCHEDULES)] = "inverse_sqrt"
    """The learning rate after `warmup`: `inverse_sqrt`: it falls (equation 3); `constant`: it stays, until
    `decay_updates`."""
    warmup: int = number(4000, 1, MANY)
    """Number of first updates, in which the learning rate grows linearly."""
    lr_factor: float = Field(default=1.0, gt=0.0, le=1e6)
    """Multiplies the paper's schedule (equation 3)."""
    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Adam's decay of the mean of gradients, per update (section 5.3)."""
    adam_beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    """Adam's decay of the mean of squared gradients, per update (section 5.3)."""
    adam_epsilon: float = number(1e-9, 1e-16, 1.0)
    """Adam adds it to the root of that mean, so that nothing is divided by 0 (section 5.3)."""
    decay_updates: int = number(0, 0, MANY)
    """Number of last updates in which the learning rate is multiplied by a factor that falls linearly to
    zero; 0: none."""
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Share of the probability that the loss gives to wrong tokens, equally (section 5.4); 0: none."""
    r_drop: float = number(0.0, 0.0, 1000.0)
    """Weight of the divergence between two passes of each pair with different dropout (R-Drop); 0: one pass."""
    bpe_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Probability that BPE leaves out a merge, so that words are split differently in each epoch; 0: never."""
    both_directions: bool = False
    """In each epoch, source and target are swapped in a new random half of the pairs: the model learns to translate in
    both directions."""
    init: FileName = ""
    """Folder of a model or run with the same sizes and vocabulary: training starts from its weights. "": random
    weights."""
    freeze: list[str] = []
    """Parameters that stay as they are, by name: `embeddings`, `encoder` or `decoder.0` and all below it, or a pattern
    such as `encoder.*.self_attention.*`. It is for models that `init` names."""
    clip_norm: float = number(0.0, 0.0, 1e9)
    """Largest gradient norm; 0: no clipping (the paper has none)."""
    skip_nonfinite: int = number(0, 0, MANY)
    """Number of updates in a row that may be skipped because their gradient is not finite; 0: the first one stops
    training."""
    precision: TrainingPrecision = "auto"
    """Precision of matrix products; `auto`: the precision that is fast on the hardware. In `fp16` the loss is scaled.
    """
    seed: int = Field(default=1, ge=0, lt=2**32)
    """Random seed of the weights, of dropout and of the order of the pairs."""
    log_every: int = number(50, 1, MANY)
    """Updates between two lines, and records, of progress."""
    valid_every: int = number(1000, 1, MANY)
    """Updates between two validations. The last update always has one."""
    valid_bleu_sentences: int = number(2000, 0, MANY)
    """Most validation sentences that are translated, for BLEU and chrF. If there are more, so many are drawn at even
    distances; 0: none."""
    valid_bleu_tokenizer: BleuTokenizer = ""
    """BLEU's tokenizer in validation, one of sacrebleu's. "": by language and script: zh for Chinese, char for other
    languages without spaces between words, 13a for all others."""
    valid_beam: int = number(1, 1, MOST_BEAM)
    """Beam size for these translations, whatever `decode.search` is; 1 is greedy and fast."""
    valid_samples: int = number(3, 0, 100_000)
    """Number of validation sentences that are shown with their translations; 0: none."""
    patience: int = number(0, 0, MANY)
    """Training stops after this number of validations in a row without an improvement; 0: never."""
    best_metric: Literal["auto", "bleu", "chrf", "nll"] = "auto"
    """The validation score by which the best checkpoint is chosen. `auto`: `chrf` if validation translates, else `nll`.
    """
    checkpoint_every: int = number(1000, 0, MANY)
    """Updates between checkpoints; 0: only `checkpoint_minutes` counts."""
    checkpoint_minutes: float = number(10.0, 0.0, 1e9)
    """Minutes between checkpoints; 0: only `checkpoint_every` counts."""
    keep: int = number(5, 1, 1_000_000)
    """Number of latest checkpoints to keep."""
    keep_best: int = number(1, 1, 1_000_000)
    """Number of best checkpoints to keep in addition."""
    average: int = number(5, 1, 1_000_000)
    """Number of checkpoints that `nmt average` averages by default."""

    @property
    def chosen_by(self) -> str:
        """The validation score by which the best checkpoint is chosen: "bleu", "chrf" or "nll"."""
        if self.best_metric != "auto":
            return self.best_metric
        return "chrf" if self.valid_bleu_sentences else "nll"

    @property
    def passes(self) -> int:
        """Number of times that each pair of an update goes through the model."""
        return 2 if self.r_drop else 1

    def contradictions(self) -> Iterator[str]:
        if self.micro_batch_tokens > self.batch_tokens:
            yield f"micro_batch_tokens = {self.micro_batch_tokens} exceeds batch_tokens = {self.batch_tokens}"
        if not self.checkpoint_every and not self.checkpoint_minutes:
            yield "checkpoint_every = 0 and checkpoint_minutes = 0: nothing would ever be saved"
        if self.decay_updates > self.updates:
            yield (
                f"decay_updates = {self.decay_updates} exceeds updates = {self.updates}: the learning rate "
                "falls over the last updates"
            )
        if self.average > self.keep:
            yield (f"average = {self.average} exceeds keep = {self.keep}: averaging would miss pruned checkpoints")
        if self.chosen_by in ("bleu", "chrf") and not self.valid_bleu_sentences:
            yield f'best_metric = "{self.best_metric}" needs valid_bleu_sentences > 0'


SEARCH, SAMPLING, RULES = "Search", "Sampling and minimum Bayes risk", "Constraints"
"""Headings of options in --help."""
_search = partial(Option, heading=SEARCH)


class DecodeSection(Section):
    """[decode]: the paper's section 6.1, and further options of search. Commands have the keys with an `Option` too."""

    search: Annotated[
        str,
        _listed_in(SEARCHES),
        _search(
            f"{', '.join(SEARCHES)}: beam search, random samples, minimum Bayes risk, diverse beam search.", "NAME"
        ),
    ] = "beam"
    beam: Annotated[int, _search("Beam size (1: greedy).", "W")] = number(4, 1, MOST_BEAM)
    length_penalty: Annotated[
        str, _listed_in(LENGTH_PENALTIES), _search(f"What log P is divided by: {', '.join(LENGTH_PENALTIES)}.", "NAME")
    ] = "gnmt"
    """The divisor of log P(Y): `gnmt`: ((5 + |Y|) / 6) ** alpha; `average`: |Y|; `power`: |Y| **
    alpha; `none`: 1."""
    alpha: Annotated[float, _search("Exponent of the length penalties gnmt and power; 0: no penalty.", "A")] = number(
        0.6, 0.0, 5.0
    )
    """Up to 5, the penalty of the longest output is a number in fp32."""
    coverage_penalty: Annotated[
        float,
        _search("Prefer outputs that attend to every source token, by B times GNMT's coverage penalty; 0: none.", "B"),
    ] = number(0.0, 0.0, 1000.0)
    max_extra: Annotated[
        int, _search("Longest output: tokens of the line, and of its prefix and terms, plus N.", "N")
    ] = number(50, 1, 1_000_000)
    max_len_ratio: Annotated[
        float, _search("Longest output: R times the tokens of the line, instead of once, plus --max-extra.", "R")
    ] = number(1.0, 0.0, 1000.0)
    min_length: Annotated[
        int, _search("Shortest output: N tokens that are not white space; 0 allows an empty output.", "N")
    ] = number(1, 0, 1_000_000)
    lookahead: int = number(12, 0, 1_000_000)
    """Search drops a hypothesis that cannot reach the n best within this number of further tokens, end symbol counted,
    even if their log-probabilities were 0. 0: no limit, so that the best hypothesis is never lost."""
    diverse_groups: Annotated[int, _search("With --search diverse: groups that the beam is divided into.", "G")] = (
        number(4, 1, MOST_BEAM)
    )
    diversity_penalty: Annotated[
        float, _search("With --search diverse: penalty for a token that an earlier group chose in the same step.", "L")
    ] = number(0.5, 0.0, 1000.0)
    """log P of a token falls by this value for each hypothesis of an earlier group that gets it in the same step."""
    no_repeat_ngram: Annotated[
        int, Option("No sequence of N tokens occurs twice in a translation; 0: any may.", "N", RULES)
    ] = number(0, 0, 1_000_000)
    repetition_penalty: Annotated[
        float, Option("Above 1, tokens that the translation already has become less probable.", "P", RULES)
    ] = Field(default=1.0, gt=0.0, le=1000.0)
    constraints: list[str] = []
    """Names of constraints that need no value."""
    batch_tokens: Annotated[
        int, Option("Source tokens that one worker translates together; changes only speed and memory.", "N")
    ] = number(4096, 1, 100_000_000)

    @property
    def constraint_options(self) -> dict[str, Any]:
        """The keys that are names of constraints, with their values, where these are not the defaults."""
        fields = type(self).model_fields
        return {
            name: getattr(self, name)
            for name, field in fields.items()
            if name in CONSTRAINTS and getattr(self, name) != field.default
        }

    def contradictions(self) -> Iterator[str]:
        for name in self.constraints:
            if name not in CONSTRAINTS:
                yield f"constraints = {name!r}: expected {', '.join(CONSTRAINTS)}"
        if self.search == "diverse" and self.beam % self.diverse_groups:
            yield (
                f"beam = {self.beam} is not a multiple of diverse_groups = {self.diverse_groups}: search = "
                '"diverse" divides the beam into groups of equal size'
            )


class DecodeOptions(TypedDict, total=False):
    """Options of decoding in Python, and in commands (`options`); None: the recipe's value."""

    target_language: Annotated[
        str | None,
        Option(
            "Language of the translations, for a model of several languages, whose codes nmt info shows. A line that "
            "begins with >>CODE<< names its own.  [default: the recipe's]",
            "CODE",
        ),
    ]
    search: str | None
    beam: int | None
    length_penalty: str | None
    alpha: float | None
    coverage_penalty: float | None
    max_extra: int | None
    max_len_ratio: float | None
    min_length: int | None
    diverse_groups: int | None
    diversity_penalty: float | None
    sample: Annotated[
        bool,
        Option(
            "Sample outputs at random, each token by its probability, instead of beam search: --search sample.",
            heading=SAMPLING,
        ),
    ]
    top_k: Annotated[
        int | None,
        Option("Sample from the K most probable tokens; 0: from all.  [default: 0]", "K", SAMPLING, 0, 10_000_000),
    ]
    top_p: Annotated[
        float | None,
        Option("Sample from the fewest tokens with a total probability of P.  [default: 1]", "P", SAMPLING, 1e-9, 1.0),
    ]
    min_p: Annotated[
        float | None,
        Option(
            "Sample from the tokens that have at least P times the largest probability.  "
            "[default: 0; with --search mbr 0.02]",
            "P",
            SAMPLING,
            0.0,
            1.0,
        ),
    ]
    temperature: Annotated[
        float | None,
        Option(
            "Divides the logits. Below 1 probable tokens become more probable, above 1 less.  [default: 1]",
            "T",
            SAMPLING,
            1e-30,
            1e30,
            instead=" For the most probable tokens alone: --top-k 1.",
        ),
    ]
    seed: Annotated[int | None, Option("Random seed of sampling.  [default: 1]", "N", SAMPLING, 0, 2**63 - 1)]
    mbr_samples: Annotated[
        int | None,
        Option(
            "With --search mbr: hypotheses per line, samples or a beam.  [default: 100]", "N", SAMPLING, 1, MOST_BEAM
        ),
    ]
    mbr_utility: Annotated[
        str | None,
        Option(
            f"With --search mbr: the metric that compares the hypotheses: {', '.join(UTILITIES)}.  [default: chrf]",
            "NAME",
            SAMPLING,
        ),
    ]
    mbr_candidates: Annotated[
        str | None,
        Option(
            "With --search mbr: where the hypotheses come from: sample, or beam for the n-best list of beam search.  "
            "[default: sample]",
            "NAME",
            SAMPLING,
        ),
    ]
    no_repeat_ngram: int | None
    repetition_penalty: float | None
    batch_tokens: int | None


class Recipe(Section):
    """The whole experiment."""

    name: str = Field(default="", exclude=True)
    """The name of the recipe's file without .toml; not a key of the file."""
    data: DataSection
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    decode: DecodeSection = DecodeSection()

    def contradictions(self) -> Iterator[str]:
        data, model, train = self.data, self.model, self.train
        if model.tie_embeddings and not data.joint_vocab:
            yield (
                "model.tie_embeddings = true needs data.joint_vocab = true: two vocabularies cannot share one matrix"
            )
        if train.both_directions and not data.joint_vocab:
            yield "train.both_directions = true needs data.joint_vocab = true: source and target change places"
        if model.monotonic_attention and (
            not data.terminals or (data.terminals, data.target_tokenization) == ("words", "bpe")
        ):
            yield (
                f'model.monotonic_attention = true with data.terminals = "{data.terminals}" and '
                f'data.target_tokenization = "{data.target_tokenization}": '
                "it is for parsers, and which words a tree has must follow from its tokens: both, tags, xx, or "
                "words that are one token each"
            )
        if data.max_length >= model.max_positions:
            yield (
                f"data.max_length = {data.max_length} must be below model.max_positions = "
                f"{model.max_positions}: a sentence and its end symbol would not fit"
            )
        if data.max_length >= train.batch_tokens:
            yield (f"data.max_length = {data.max_length} must be below train.batch_tokens = {train.batch_tokens}")
        parameters = model.parameters(data.vocab_size, data.target_size)
        if parameters > MOST_PARAMETERS:
            yield (
                f"the model has {parameters:,} parameters, which take {parameters * BYTES_PER_PARAMETER / 2**40:,.1f} "
                f"TiB to train: expected at most {MOST_PARAMETERS:,}. Reduce model.d_model, model.d_ff, the layers or "
                "data.vocab_size"
            )

    def folder(self, parent: str, option: str) -> Path:
        """Return PARENT/NAME, the default folder of a command. The user can choose another folder by `option`.

        Raises RecipeError if the recipe's name cannot be the name of a folder in PARENT.
        """
        if self.name in ("", LATEST) or self.name.startswith(".") or not self.name.isprintable() or "/" in self.name:
            why = (
                f"{parent}/{LATEST} is kept for the link to the latest run"
                if self.name == LATEST
                else "expected a name that can be printed and does not begin with a dot"
            )
            raise RecipeError(
                f"the recipe's name {shown(self.name)} cannot name a folder in {parent}/: {why}. Rename the "
                f"recipe's file, or give {option} DIR."
            )
        return Path(parent) / self.name

    @property
    def constraint_values(self) -> dict[str, str]:
        """Values of the constraints in `decode.constraints` that come from other sections of the recipe."""
        return {name: self.data.terminals for name in self.decode.constraints if name == "tree"}

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dictionary for JSON; `from_dict` reads it back."""
        return {"name": self.name, **self.model_dump()}

    @staticmethod
    def from_dict(values: dict[str, Any], where: str) -> Recipe:
        """Check a plain dictionary and return its recipe.

        `where` names the dictionary in error messages. Old names of keys are read; retired keys are ignored.

        Raises RecipeError.
        """
        if _is_deep(values):
            raise _too_deep(where)
        if isinstance(values, dict):
            values = without_retired(with_present_names(values, where), where)
        try:
            return Recipe.model_validate(values)
        except ValidationError as error:
            description = describe(error, values)
        raise RecipeError(f"{where} {description}")


def _is_deep(values: Any, deepest: int = DEEPEST) -> bool:
    """Return whether dictionaries and lists are nested more than `deepest` times."""
    inner = [*values.values()] if isinstance(values, dict) else values
    return isinstance(inner, list) and (not deepest or any(_is_deep(value, deepest - 1) for value in inner))


def _too_deep(where: str) -> RecipeError:
    return RecipeError(
        f"{where} is nested too deeply: expected sections of keys, whose values are numbers, texts, true, false or "
        "lists of texts."
    )


SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "model": ModelSection,
    "train": TrainSection,
    "decode": DecodeSection,
}


# Files

RECIPE_SUFFIX = ".toml"
LARGEST = 2**20
"""Largest size of a recipe's file, in bytes."""
LONGEST_CHAIN = 32
"""Largest number of recipes in a chain of `extends`."""
LANGUAGE_CODE = re.compile(r"(?=.{1,35}\Z)[A-Za-z0-9]+([-_][A-Za-z0-9]+)*", re.ASCII)
"""Pattern of the codes of languages, as BCP 47 writes them: en, pt-BR, zh-Hant."""


def recipe_folder() -> Any:
    """Return the folder of the recipes that ship with the package (in a checkout: `recipes/` at its top)."""
    packaged = resources.files("nmt_cli") / "recipes"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parent.parent / "recipes"


WHERE_RECIPES = (
    "Give the path of a .toml file (nmt init writes one for your text), or a name: `nmt info --recipes` lists them."
)
"""What errors say about an unknown recipe."""


def recipe_names() -> list[str]:
    """Return the names of the recipes that ship with the package."""
    return sorted(
        item.name.removesuffix(RECIPE_SUFFIX) for item in recipe_folder().iterdir() if item.name.endswith(RECIPE_SUFFIX)
    )


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe by name (`demo`) or path (`my/own.toml`) and apply `section.key=value` overrides to it.

    `extends = "other"` at a file's head names another recipe, or a path beside the file. The recipe inherits each key
    of the other recipe that the file does not set. Raises `RecipeError` for an unknown name and for TOML that does not
    parse; errors of keys and values are reported together.
    """
    values, name, where = _read(name_or_path, [])
    apply_overrides(values, overrides)
    recipe = Recipe.from_dict({"name": name, **values}, where)
    for key in ("source_language", "target_language"):
        if reason := no_language(getattr(recipe.data, key)):
            raise RecipeError(f"{where}: data.{key} = {reason}")
    return recipe


def no_language(code: str) -> str:
    """Return why `code` is not the code of a language, or "" if it is one."""
    if LANGUAGE_CODE.fullmatch(code):
        return ""
    return (
        f"{shown(code)}: expected the code of a language, such as en or pt-BR: letters, digits and "
        "hyphens, at most 35 characters."
    )


def toml_value(value: object) -> str:
    """Return a text, number, boolean or a list of these as TOML on one line.

    Raises RecipeError for text that UTF-8 cannot hold, such as the name of a file in another encoding, and TypeError
    for other types.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RecipeError(f"{shown(value)} is not UTF-8, and a recipe is UTF-8 text: rename it.") from None
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return repr(value)
    raise TypeError(f"{type(value).__name__} is not a type of TOML")


def toml_comment(text: str) -> str:
    """Return a comment of TOML: "# text". Characters that cannot be printed are escaped, so it is one line of UTF-8."""
    return "# " + "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def _read(name_or_path: str, children: Sequence[str]) -> tuple[dict[str, Any], str, str]:
    """Return a recipe's plain dictionary with the inherited keys, its name, and its location for messages.

    `children`: the locations of the recipes that extend it, the outermost first.
    """
    text, name, where = _find(name_or_path)
    if where in children:
        raise RecipeError(
            f"{children[0]} extends itself: {' → '.join([*children, where])}. Remove one of these `extends`."
        )
    if len(children) >= LONGEST_CHAIN:
        raise RecipeError(
            f"a chain of more than {LONGEST_CHAIN} recipes that extend each other: {children[0]} → "
            f"{children[1]} → … → {where}. Put their keys into fewer files."
        )
    try:
        values = with_present_names(_parsed(text, where), where)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{where} is not valid TOML: {error}") from None
    if "name" in values:
        raise RecipeError(f"{where}: name is not a key; a recipe is called after its file. Remove it.")
    parent = values.pop("extends", "")
    if not isinstance(parent, str):
        raise RecipeError(f"{where}: extends = {parent!r}: expected the name of a recipe, or the path of a .toml file")
    if not parent:
        return values, name, where
    beside = Path(name_or_path).parent / parent
    try:
        under, _, parent_location = _read(
            str(beside) if _is_path(name_or_path) and _is_path(parent) else parent, [*children, where]
        )
    except RecipeError as error:
        raise error if children else RecipeError(f"{where} extends {parent!r}: {error}") from None
    for section, keys in values.items():
        inherited = under.get(section)
        under[section] = {**inherited, **keys} if isinstance(inherited, dict) and isinstance(keys, dict) else keys
    return under, name, f"{where} (with {parent_location} under it)"


def _parsed(text: str, where: str) -> dict[str, Any]:
    """Return TOML as a dictionary. Raises TOMLDecodeError if it is not TOML, RecipeError if Python cannot read it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError:  # an integer with more digits than Python allows
        raise RecipeError(
            f"{where} holds a number of more than {sys.get_int_max_str_digits():,} digits: no key takes one."
        ) from None


def folder_beside(name_or_path: str) -> Path | None:
    """Return the folder of a recipe that is the user's own file; None for a recipe that ships with the package."""
    return Path(name_or_path).parent if _is_path(name_or_path) else None


def _is_path(name_or_path: str) -> bool:
    return name_or_path.endswith(RECIPE_SUFFIX) or "/" in name_or_path


def _find(name_or_path: str) -> tuple[str, str, str]:
    """Return the text, the name and the location of a recipe. Raises RecipeError if it cannot be read."""
    if not _is_path(name_or_path):
        names = recipe_names()
        if name_or_path in names:
            return (
                (recipe_folder() / f"{name_or_path}{RECIPE_SUFFIX}").read_text(encoding="utf-8"),
                name_or_path,
                f"recipe {name_or_path!r}",
            )
        beside = f"{name_or_path}{RECIPE_SUFFIX}"
        if os.path.isfile(beside):
            raise RecipeError(f"no recipe is called {shown(name_or_path)}. Did you mean the file {shown(beside)}?")
        raise RecipeError(
            f"no recipe is called {shown(name_or_path)}.{did_you_mean(name_or_path, names, most=3)} {WHERE_RECIPES}"
        )
    path = Path(name_or_path)
    where = f"recipe {shown(str(path))}"
    try:
        if not (stat.S_ISREG(kind := os.stat(path).st_mode) or stat.S_ISDIR(kind)):
            raise RecipeError(f"{where} is a device or a pipe: expected a plain file, which is read more than once.")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise RecipeError(f"{where} has more than {LARGEST:,} bytes: that is no recipe.")
        if encoding := wide_encoding(content):
            raise RecipeError(refused(where, encoding))
        return io.TextIOWrapper(io.BytesIO(content), "utf-8-sig").read(), path.stem, where
    except UnicodeDecodeError as error:
        raise RecipeError(f"{where} is not UTF-8 text: {error}") from None
    except (OSError, ValueError) as error:  # a ValueError: a NUL in the file name
        reason = error.strerror if isinstance(error, OSError) else "a file name holds no NUL character"
        near = ""
        if isinstance(error, FileNotFoundError):
            near = did_you_mean(path.name, sorted(file.name for file in path.parent.glob(f"*{RECIPE_SUFFIX}")))
        raise RecipeError(f"cannot read {where}: {reason}.{near} {WHERE_RECIPES}") from None


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set keys in a recipe's plain dictionary; each override is section.key=value.

    If a key is given twice, the last value counts, and a warning names both. Raises RecipeError for another form.
    """
    given: dict[str, str] = {}
    for override in overrides:
        key, separator, text = override.partition("=")
        section, dot, name = (key := key.strip()).partition(".")
        if (before := given.get(key, override)) != override:
            warn_once(f"--set {shown(before)} has no effect, because {shown(override)} comes after it")
        given[key] = override
        where = f"--set {shown(override)}"
        if not (separator and dot and section and name):
            raise RecipeError(f"{where}: expected section.key=value, for example --set train.updates=1000")
        try:
            value = _parsed(f"value = {text.strip()}", where)["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()  # a bare word is a string
        table = values.setdefault(section, {})
        if not isinstance(table, dict):
            raise RecipeError(f"{where}: {section!r} is not a section; sections are {', '.join(SECTIONS)}")
        [(section, keys)] = with_present_names({section: {name: value}}, where).items()
        table.update(keys)
