"""The sections of a recipe: every key with its type, bounds, default and rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal, Self, TypedDict, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ..errors import expected, shown
from ..options import MOST_BEAM, Option
from ..registry import (
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
                yield f"{split}_source names {len(source)} file(s), {split}_target {len(target)}: expected pairs"
        if self.generator and (self.train_source or self.valid_source):
            yield f"generator = {self.generator!r} makes its own text: leave train_source and valid_source out"
        if not self.generator and not self.train_source:
            yield "train_source and train_target are needed (files below --data-dir)"
        if self.separate_tokenizers and not (self.joint_vocab and self.tokenizer):
            yield (
                "separate_tokenizers = true needs joint_vocab = true and a tokenizer, the folder of the model that has "
                "them: they cannot be learned"
            )
        for key, least in (("vocab_size", 8), ("character_coverage", 0.98)):
            value, own = getattr(self, key), getattr(self, f"target_{key}")
            if own and self.joint_vocab:
                yield f"target_{key} = {own} needs joint_vocab = false: a joint vocabulary has {key} = {value}"
            if 0 < own < least:
                yield f"target_{key} = {own}: expected {least} or more, or 0 for {key} = {value}"
        if self.target_tokenization != "bpe" and self.joint_vocab:
            yield f'target_tokenization = "{self.target_tokenization}" needs joint_vocab = false: the source is BPE'
        if self.terminals in ("xx", "tags") and self.target_tokenization != "words":
            yield f'terminals = "{self.terminals}" needs target_tokenization = "words": a symbol of a tree is one token'
        if self.min_length > self.max_length:
            yield f"min_length = {self.min_length} exceeds max_length = {self.max_length}"


class ModelSection(Section):
    """[model]: the columns of the paper's table 3, and choices in which other models differ from the paper."""

    encoder_layers: int = number(6, 1, 1000)
    """Number of encoder layers, the paper's N."""
    decoder_layers: int = number(6, 1, 1000)
    """Number of decoder layers, the paper's N."""
    decoder: Literal["self_attention", "ssru"] = "self_attention"
    """What a decoder layer reads the words before with. `self_attention`: the paper's; `ssru`: a simple recurrent unit
    (Kim et al. 2019), whose steps cost the same however long the output is, in small models for fast translation."""
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
    source_end: bool = True
    """The encoder reads an end symbol after each source text. Models of OpenNMT-py do not; they are imported, and
    translate only."""
    guided_alignment_layer: int = number(0, 0, 1000)
    """The decoder layer, counted from 1, whose first attention head was trained to align words (guided alignment, as in
    Marian and in Firefox's models). Alignments are that head's. 0: none was, and they are read from all heads."""
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
            yield f"d_model = {self.d_model} is not a multiple of num_heads = {self.num_heads}: give d_k and d_v"
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield f"d_model = {self.d_model} is odd: sinusoids come in pairs of sine and cosine"
        if self.positions == "marian" and (self.d_model % 2 or self.d_model < 4):
            yield f"d_model = {self.d_model}: Marian's positions need an even number from 4 on"
        if self.guided_alignment_layer > self.decoder_layers:
            layers = f"decoder_layers = {self.decoder_layers}"
            yield f"guided_alignment_layer = {self.guided_alignment_layer} exceeds {layers}"
        if self.zero_start and not self.output_bias:
            yield "zero_start = true needs output_bias = true: else the zero vector is trained as an output"
        if self.positions == "rotary" and self.key_size % 2:
            yield f"heads of {self.key_size} numbers are odd: rotary positions rotate pairs. Change num_heads or d_k"
        if self.max_positions * self.d_model > MOST_POSITIONS:
            yield (
                f"max_positions = {self.max_positions} times d_model = {self.d_model} are "
                f"{self.max_positions * self.d_model:,} numbers for positions: expected at most {MOST_POSITIONS:,}"
            )

    def parameters(self, source_vocab: int, target_vocab: int) -> int:
        """Return the number of parameters of all matrices, for vocabularies of these sizes: that of a model without its
        biases, norms and learned positions.
        """
        attention = 2 * self.num_heads * (self.key_size + self.value_size)
        feed_forward = self.d_ff * (3 if self.activation == "swiglu" else 2)
        encoder = self.encoder_layers * (attention + feed_forward)
        own = 2 * self.d_model if self.decoder == "ssru" else attention
        decoder = self.decoder_layers * (own + attention + feed_forward)
        embeddings = source_vocab if self.tie_embeddings else source_vocab + 2 * target_vocab
        return self.d_model * (encoder + decoder + embeddings)


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
            yield f"decay_updates = {self.decay_updates} exceeds updates = {self.updates}: they are the last ones"
        if self.average > self.keep:
            yield f"average = {self.average} exceeds keep = {self.keep}: averaging would miss pruned checkpoints"
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
    """The divisor of log P(Y): `gnmt`: ((5 + |Y|) / 6) ** alpha; `average`: |Y|; `power`: |Y| ** alpha; `none`: 1."""
    alpha: Annotated[float, _search("Exponent of the length penalties gnmt and power; 0: no penalty.", "A")] = number(
        0.6, 0.0, 5.0
    )
    """Up to 5, the penalty of the longest output is a number in fp32."""
    word_penalty: Annotated[
        float, _search("Subtracted from log P for each token; below 0, longer outputs are better.", "P")
    ] = number(0.0, -1000.0, 1000.0)
    """The score of an output Y is (log P(Y) - word_penalty |Y|) / its length penalty, as Marian's."""
    max_extra: Annotated[
        int, _search("Longest output: tokens of the line, and of its prefix and terms, plus N.", "N")
    ] = number(50, 1, 1_000_000)
    max_len_ratio: Annotated[
        float, _search("Longest output: R times the tokens of the line, instead of once, plus --max-extra.", "R")
    ] = number(1.0, 0.0, 1000.0)
    min_length: Annotated[
        int, _search("Shortest output: N tokens that are not white space; 0 allows an empty output.", "N")
    ] = number(1, 0, 1_000_000)
    second_choice: int = number(0, 0, 1_000_000)
    """A line of at most this number of tokens whose translation has a plain fault, such as a doubled word or a changed
    number, gets the best of four that has none, if there is one. 0: never. For small models that fail on single words
    and headings (`translation.second_choice`)."""
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
    placeholders: bool = True
    """Whether the placeholders of a line, and the characters that the model lacks, come back as they are: the model
    reads numbers in their place, or nothing. False for exact comparisons with other programs."""
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
    word_penalty: float | None
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


LANGUAGE_CODE = re.compile(r"(?=.{1,35}\Z)[A-Za-z0-9]+([-_][A-Za-z0-9]+)*", re.ASCII)
"""Pattern of the codes of languages, as BCP 47 writes them: en, pt-BR, zh-Hant."""


def no_language(code: str) -> str:
    """Return why `code` is not the code of a language, or "" if it is one."""
    if LANGUAGE_CODE.fullmatch(code):
        return ""
    return (
        f"{shown(code)}: expected the code of a language, such as en or pt-BR: letters, digits and "
        "hyphens, at most 35 characters."
    )
