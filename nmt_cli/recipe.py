"""The typed, strict recipe: one experiment, without settings of the machine.

    TOML text ──▶ load_recipe ──▶ Recipe(data, model, train, decode) ──▶ every command
                  keys of the recipe that it `extends` are added, --set section.key=value is applied, then all is checked

A recipe is data. The whole recipe is checked before any work starts: unknown keys, wrong types and contradictions are
reported together, each with the nearest correct name. Every number has bounds, far beyond any model that was ever trained,
and so has the number of parameters (`MOST_PARAMETERS`). So a value that must be a mistake is refused before memory is allocated.
The recipe is stored in shards, runs and model folders (`Recipe.to_dict`), and every later command reads it from there
(`Recipe.from_dict`). The model's width and the vocabulary's size are keys of the recipe. Values that depend on the machine
(devices, micro-batches, precision) are derived elsewhere.

Sources of the defaults: "Attention Is All You Need", sections 3 and 5, table 3 (base).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from .bounds import MOST_BEAM
from .errors import RecipeError, did_you_mean, shown
from .recipe_errors import describe
from .recipe_history import with_present_names, without_retired
from .registry import ACTIVATIONS, CONSTRAINTS, LENGTH_PENALTIES, NORMS, POSITIONS, RESIDUALS, SEARCHES

SectionT = TypeVar("SectionT", bound="Section")


class Section(BaseModel):
    """A frozen part of a recipe. It refuses unknown keys and values of a wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _checked(section: SectionT, errors: list[str]) -> SectionT:
    if errors:
        raise ValueError("\n".join(errors))
    return section


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
            raise PydanticCustomError(
                "listed",
                "{expected}",
                {"expected": f"expected {' or '.join(registry)}.{did_you_mean(name, list(registry))}"},
            )
        return name

    return AfterValidator(check)


class DataSection(Section):
    """[data]: the text, the subword vocabulary, and the conditions for keeping a pair."""

    source_language: FileName = "en"
    target_language: FileName = "de"
    generator: Literal["", "teaching"] = ""
    """`teaching`: the package generates the corpus itself; no --data-dir is needed."""
    train_source: list[FileName] = []
    """Files below --data-dir: plain, .gz, .xz, .bz2 or .zst. They are parallel to `train_target`, line by line."""
    train_target: list[FileName] = []
    valid_source: list[FileName] = []
    valid_target: list[FileName] = []
    tokenizer: FileName = ""
    """An existing SentencePiece model to use instead of learning one: a path, or a path below --data-dir."""
    vocab_size: int = Field(default=37_000, ge=8, le=10_000_000)
    """Most pieces of the vocabulary: a small text may have fewer."""
    joint_vocab: bool = True
    """One BPE and one embedding matrix for both languages (section 5.1); false: one for each language."""
    target_vocab_size: int = Field(default=0, ge=0, le=10_000_000)
    """Size of the target's own vocabulary, with joint_vocab = false; 0: `vocab_size`."""
    target_tokenization: Literal["bpe", "words"] = "bpe"
    """`words`: each word between spaces is one token of the target vocabulary, unchanged. This is for targets of symbols, such as
    linearised trees. The vocabulary holds the most frequent words, or all if there are fewer. It needs joint_vocab = false."""
    terminals: Literal["", "xx", "tags", "words", "both"] = ""
    """For a parser: the form of a word in the target, a linearised tree, as in `nmt data trees --terminals`. "": not a parser.
    With `words` and `both`, the target may share the source's subwords; even then, each bracket and tag is one token."""
    normalization: Literal["nfc", "identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"] = "nfc"
    """`nfc` keeps the text (`data.normalization`); the others are SentencePiece's rules. The SentencePiece model stores the rule, so
    training, translation and exports apply the same one. Earlier versions used `nmt_nfkc`; their shards keep it."""
    character_coverage: float = Field(default=1.0, ge=0.98, le=1.0)
    """The vocabulary has the most frequent characters, up to this share of the text. SentencePiece takes no less than 0.98."""
    target_character_coverage: float = Field(default=0.0, ge=0.0, le=1.0)
    """The same for the target's own vocabulary, with joint_vocab = false; 0: `character_coverage`."""
    byte_fallback: bool = True
    """Characters that are not in the vocabulary become bytes instead of <unk>, so that they can be copied."""
    min_length: int = Field(default=1, ge=1, le=1_000_000)
    """Fewest tokens per side, end symbol not counted; shorter pairs are dropped as empty."""
    max_length: int = Field(default=256, ge=1, le=1_000_000)
    """Most tokens per side, end symbol not counted; longer pairs are dropped and counted."""
    max_ratio: float = Field(default=9.0, gt=1.0, le=1e6)
    """Largest ratio (longer side + 1) / (shorter side + 1), in tokens; the + 1 makes it less strict for short lines."""
    shard_pairs: int = Field(default=1_000_000, ge=1, le=MANY)

    @property
    def target_size(self) -> int:
        """The largest size of the target's vocabulary."""
        return self.target_vocab_size or self.vocab_size

    @model_validator(mode="after")
    def _consistent(self) -> DataSection:
        errors = []
        for split in ("train", "valid"):
            source, target = getattr(self, f"{split}_source"), getattr(self, f"{split}_target")
            if len(source) != len(target):
                errors.append(
                    f"{split}_source names {len(source)} file(s), {split}_target {len(target)}: they are read in pairs"
                )
        if self.generator and (self.train_source or self.valid_source):
            errors.append(f"generator = {self.generator!r} makes its own text: leave train_source and valid_source out")
        if not self.generator and not self.train_source:
            errors.append("train_source and train_target are needed (files below --data-dir)")
        if self.target_vocab_size and self.joint_vocab:
            errors.append(
                f"target_vocab_size = {self.target_vocab_size} needs joint_vocab = false: a joint vocabulary has vocab_size = {self.vocab_size} pieces"
            )
        if self.target_character_coverage and self.joint_vocab:
            errors.append(
                f"target_character_coverage = {self.target_character_coverage} needs joint_vocab = false: "
                f"a joint vocabulary has character_coverage = {self.character_coverage}"
            )
        if 0 < self.target_character_coverage < 0.98:
            errors.append(
                f"target_character_coverage = {self.target_character_coverage}: expected 0.98 or more, or 0 for the source's"
            )
        if 0 < self.target_vocab_size < 8:
            errors.append(
                f"target_vocab_size = {self.target_vocab_size}: expected 8 or more, or 0 for vocab_size = {self.vocab_size}"
            )
        if self.target_tokenization == "words" and self.joint_vocab:
            errors.append(
                'target_tokenization = "words" needs joint_vocab = false: the source is learned as BPE, by itself'
            )
        if self.terminals in ("xx", "tags") and self.target_tokenization != "words":
            errors.append(
                f'terminals = "{self.terminals}" needs target_tokenization = "words": each symbol of a tree is one token'
            )
        if self.min_length > self.max_length:
            errors.append(f"min_length = {self.min_length} exceeds max_length = {self.max_length}")
        return _checked(self, errors)


class ModelSection(Section):
    """[model]: the columns of the paper's table 3, and choices in which other models differ from the paper."""

    encoder_layers: int = Field(default=6, ge=1, le=1000)
    decoder_layers: int = Field(default=6, ge=1, le=1000)
    d_model: int = Field(default=512, ge=2, le=65_536)
    d_ff: int = Field(default=2048, ge=1, le=1_048_576)
    num_heads: int = Field(default=8, ge=1, le=4096)
    d_k: int = Field(default=0, ge=0, le=65_536)
    """Size of a head's queries and keys; 0: d_model / num_heads."""
    d_v: int = Field(default=0, ge=0, le=65_536)
    """Size of a head's values; 0: d_model / num_heads."""
    dropout: float = Field(default=0.1, ge=0.0, le=0.95)
    """On each sub-layer's output and on embedding + position sums (section 5.4)."""
    attention_dropout: float = Field(default=0.0, ge=0.0, le=0.95)
    """On attention weights; the paper has none."""
    activation_dropout: float = Field(default=0.0, ge=0.0, le=0.95)
    """Inside the feed-forward network, after the activation; the paper has none."""
    residual: Annotated[str, _listed_in(RESIDUALS)] = "post"
    """`post`: Norm(x + Sublayer(x)), the paper's; `pre`: x + Sublayer(Norm(x)) and one last Norm per stack."""
    norm: Annotated[str, _listed_in(NORMS)] = "layer"
    """`layer`: LayerNorm, the paper's; `rms`: RMSNorm."""
    activation: Annotated[str, _listed_in(ACTIVATIONS)] = "relu"
    """Activation of the feed-forward network. `relu`: max(0, x), the paper's (equation 2); `gelu`; `silu`; `swiglu`: a gate, with three matrices of d_model × d_ff instead of two."""
    positions: Annotated[str, _listed_in(POSITIONS)] = "sinusoidal"
    """`sinusoidal`: the paper's (section 3.5); `learned`: a trained vector per position (table 3, row E); `rotary`: self-attention rotates queries and keys."""
    max_positions: int = Field(default=1024, ge=2, le=1_048_576)
    """The longest sequence, and the number of rows of learned positions. Longer lines are split before translation."""
    tie_embeddings: bool = True
    """One matrix for both embeddings and the output projection (section 3.4)."""
    monotonic_attention: bool = False
    """For a parser: the decoder also reads the encoder's state of the next word (hard monotonic attention, Aharoni and Goldberg 2017)."""

    @property
    def key_size(self) -> int:
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_size(self) -> int:
        return self.d_v or self.d_model // self.num_heads

    @model_validator(mode="after")
    def _consistent(self) -> ModelSection:
        errors = []
        if not (self.d_k and self.d_v) and self.d_model % self.num_heads:
            errors.append(
                f"d_model = {self.d_model} is not a multiple of num_heads = {self.num_heads}: give d_k and d_v"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            errors.append(f"d_model = {self.d_model} is odd: sinusoids come in pairs of sine and cosine")
        if self.positions == "rotary" and self.key_size % 2:
            errors.append(
                f"heads of {self.key_size} numbers are odd: rotary positions rotate pairs of them. Change num_heads or d_k"
            )
        if self.max_positions * self.d_model > MOST_POSITIONS:
            errors.append(
                f"max_positions = {self.max_positions} times d_model = {self.d_model} are {self.max_positions * self.d_model:,} numbers for positions: expected at most {MOST_POSITIONS:,}"
            )
        return _checked(self, errors)

    def parameters(self, source_vocab: int, target_vocab: int) -> int:
        """Return the number of trained parameters for vocabularies of these sizes, without building the model.

        The number is exact for the norms and activations of this package. Another norm counts as a layer norm, another activation as relu.
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
        return encoder + decoder + embeddings + positions + (2 * norm if self.residual == "pre" else 0)


class TrainSection(Section):
    """[train]: the paper's sections 5.1 to 5.4, and how the run is validated, logged and saved."""

    batch_tokens: int = Field(default=25_000, ge=1, le=100_000_000)
    """Tokens per update on each side (source, target), over all ranks and micro-batches."""
    micro_batch_tokens: int = Field(default=0, ge=0, le=100_000_000)
    """Tokens per side in one forward and backward pass of a rank; 0: chosen from the hardware's memory."""
    updates: int = Field(default=100_000, ge=1, le=MANY)
    warmup: int = Field(default=4000, ge=1, le=MANY)
    lr_factor: float = Field(default=1.0, gt=0.0, le=1e6)
    """Multiplies the paper's schedule (equation 3)."""
    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    adam_beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    adam_epsilon: float = Field(default=1e-9, ge=1e-16, le=1.0)
    decay_updates: int = Field(default=0, ge=0, le=MANY)
    """Number of last updates in which the learning rate of equation 3 is multiplied by a factor that falls linearly to zero; 0: none."""
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    r_drop: float = Field(default=0.0, ge=0.0, le=1000.0)
    """Weight of the divergence between two passes of each pair with different dropout (R-Drop); 0: one pass."""
    bpe_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Probability that BPE leaves out a merge, so that words are split differently in each epoch; 0: never."""
    both_directions: bool = False
    """In each epoch, source and target are swapped in a new random half of the pairs: the model learns to translate in both directions."""
    init: FileName = ""
    """Folder of a model or run with the same sizes and vocabulary: training starts from its weights. "": random weights."""
    clip_norm: float = Field(default=0.0, ge=0.0, le=1e9)
    """Largest gradient norm; 0: no clipping (the paper has none)."""
    skip_nonfinite: int = Field(default=0, ge=0, le=MANY)
    """Number of updates in a row that may be skipped because their gradient is not finite; 0: the first one stops training."""
    precision: TrainingPrecision = "auto"
    """Precision of matrix products; `auto`: the precision that is fast on the hardware. In `fp16` the loss is scaled."""
    seed: int = Field(default=1, ge=0, lt=2**32)
    log_every: int = Field(default=50, ge=1, le=MANY)
    valid_every: int = Field(default=1000, ge=1, le=MANY)
    valid_bleu_sentences: int = Field(default=2000, ge=0, le=MANY)
    """Most validation sentences that are translated for BLEU. If there are more, so many are drawn at even distances; 0: none."""
    valid_bleu_tokenizer: BleuTokenizer = ""
    """BLEU's tokenizer in validation, one of sacrebleu's. "": by language and script: zh for Chinese, char for other languages
    without spaces between words, 13a for all others."""
    valid_beam: int = Field(default=1, ge=1, le=MOST_BEAM)
    """Beam size for these translations, whatever `decode.search` is; 1 is greedy and fast."""
    valid_samples: int = Field(default=3, ge=0, le=100_000)
    patience: int = Field(default=0, ge=0, le=MANY)
    """Training stops after this number of validations in a row without an improvement; 0: never."""
    best_metric: Literal["bleu", "nll"] = "nll"
    checkpoint_every: int = Field(default=1000, ge=0, le=MANY)
    """Updates between checkpoints; 0: only `checkpoint_minutes` counts."""
    checkpoint_minutes: float = Field(default=10.0, ge=0.0, le=1e9)
    """Minutes between checkpoints; 0: only `checkpoint_every` counts."""
    keep: int = Field(default=5, ge=1, le=1_000_000)
    """Number of latest checkpoints to keep."""
    keep_best: int = Field(default=1, ge=1, le=1_000_000)
    """Number of best checkpoints to keep in addition."""
    average: int = Field(default=5, ge=1, le=1_000_000)
    """Number of checkpoints that `nmt average` averages by default."""

    @property
    def passes(self) -> int:
        """Number of times that each pair of an update goes through the model."""
        return 2 if self.r_drop else 1

    @model_validator(mode="after")
    def _consistent(self) -> TrainSection:
        errors = []
        if self.micro_batch_tokens > self.batch_tokens:
            errors.append(f"micro_batch_tokens = {self.micro_batch_tokens} exceeds batch_tokens = {self.batch_tokens}")
        if not self.checkpoint_every and not self.checkpoint_minutes:
            errors.append("checkpoint_every = 0 and checkpoint_minutes = 0: nothing would ever be saved")
        if self.decay_updates > self.updates:
            errors.append(
                f"decay_updates = {self.decay_updates} exceeds updates = {self.updates}: the learning rate falls over the last updates"
            )
        if self.average > self.keep:
            errors.append(
                f"average = {self.average} exceeds keep = {self.keep}: averaging would miss pruned checkpoints"
            )
        if self.best_metric == "bleu" and not self.valid_bleu_sentences:
            errors.append('best_metric = "bleu" needs valid_bleu_sentences > 0')
        return _checked(self, errors)


class DecodeSection(Section):
    """[decode]: the paper's section 6.1, and further options of search."""

    search: Annotated[str, _listed_in(SEARCHES)] = "beam"
    beam: int = Field(default=4, ge=1, le=MOST_BEAM)
    length_penalty: Annotated[str, _listed_in(LENGTH_PENALTIES)] = "gnmt"
    """The divisor of log P(Y): `gnmt`: ((5 + |Y|) / 6) ** alpha; `average`: |Y|; `none`: 1."""
    alpha: float = Field(default=0.6, ge=0.0, le=5.0)
    """Exponent of the length penalty `gnmt`. Up to 5, the penalty of the longest output is a number in fp32."""
    coverage_penalty: float = Field(default=0.0, ge=0.0, le=1000.0)
    """Beta of the coverage penalty, which lowers the scores of outputs that leave parts of the source untranslated; 0: none."""
    max_extra: int = Field(default=50, ge=1, le=1_000_000)
    """The longest output, in tokens, is max_len_ratio × input length + max_extra, for each sentence."""
    max_len_ratio: float = Field(default=1.0, ge=0.0, le=1000.0)
    """See `max_extra`."""
    min_length: int = Field(default=1, ge=0, le=1_000_000)
    """The shortest output, in tokens that contain text: the end symbol and white space do not count. 0: the output may be empty."""
    lookahead: int = Field(default=12, ge=0, le=1_000_000)
    """Search drops a hypothesis that cannot reach the n best within this number of further tokens, end symbol counted, even if their log-probabilities were 0.
    0: no limit, so that the best hypothesis is never lost."""
    diverse_groups: int = Field(default=4, ge=1, le=MOST_BEAM)
    """For the search `diverse`: number of groups of equal size into which the beam is divided."""
    diversity_penalty: float = Field(default=0.5, ge=0.0, le=1000.0)
    """For the search `diverse`: log P of a token falls by this value for each hypothesis of an earlier group that gets the same token in the same step."""
    no_repeat_ngram: int = Field(default=0, ge=0, le=1_000_000)
    """No n-gram of this number of tokens occurs twice in an output; 0: no rule."""
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=1000.0)
    """Above 1, tokens that are already in the output become less probable; 1: no penalty."""
    constraints: list[str] = []
    """Names of constraints that need no value."""
    batch_tokens: int = Field(default=4096, ge=1, le=100_000_000)
    """Number of source tokens that are translated together."""

    @property
    def constraint_options(self) -> dict[str, Any]:
        """The keys that are names of constraints, with their values, where these are not the defaults."""
        fields = type(self).model_fields
        return {
            name: getattr(self, name)
            for name, field in fields.items()
            if name in CONSTRAINTS and getattr(self, name) != field.default
        }

    @model_validator(mode="after")
    def _consistent(self) -> DecodeSection:
        errors = [
            f"constraints = {name!r}: expected {', '.join(CONSTRAINTS)}"
            for name in self.constraints
            if name not in CONSTRAINTS
        ]
        if self.search == "diverse" and self.beam % self.diverse_groups:
            errors.append(
                f'beam = {self.beam} is not a multiple of diverse_groups = {self.diverse_groups}: search = "diverse" divides the beam into groups of equal size'
            )
        return _checked(self, errors)


class Recipe(Section):
    """The whole experiment."""

    name: str = Field(default="", exclude=True)
    """The name of the recipe's file without .toml; not a key of the file."""
    data: DataSection
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    decode: DecodeSection = DecodeSection()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        errors = []
        if self.model.tie_embeddings and not self.data.joint_vocab:
            errors.append(
                "model.tie_embeddings = true needs data.joint_vocab = true: two vocabularies cannot share one matrix"
            )
        if self.train.both_directions and not self.data.joint_vocab:
            errors.append("train.both_directions = true needs data.joint_vocab = true: source and target change places")
        if self.model.monotonic_attention and (
            not self.data.terminals or (self.data.terminals, self.data.target_tokenization) == ("words", "bpe")
        ):
            errors.append(
                f'model.monotonic_attention = true with data.terminals = "{self.data.terminals}" and data.target_tokenization = "{self.data.target_tokenization}": '
                "it is for parsers, and which words a tree has must follow from its tokens: both, tags, xx, or words that are one token each"
            )
        if self.data.max_length >= self.model.max_positions:
            errors.append(
                f"data.max_length = {self.data.max_length} must be below model.max_positions = {self.model.max_positions}: "
                "a sentence and its end symbol would not fit"
            )
        if self.data.max_length >= self.train.batch_tokens:
            errors.append(
                f"data.max_length = {self.data.max_length} must be below train.batch_tokens = {self.train.batch_tokens}"
            )
        parameters = self.model.parameters(self.data.vocab_size, self.data.target_size)
        if parameters > MOST_PARAMETERS:
            errors.append(
                f"the model has {parameters:,} parameters, which take {parameters * BYTES_PER_PARAMETER / 2**40:,.1f} TiB to train: expected at most {MOST_PARAMETERS:,}. "
                "Reduce model.d_model, model.d_ff, the layers or data.vocab_size"
            )
        return _checked(self, errors)

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
                f"the recipe's name {shown(self.name)} cannot name a folder in {parent}/: {why}. Rename the recipe's file, or give {option} DIR."
            )
        return Path(parent) / self.name

    @property
    def constraint_values(self) -> dict[str, str]:
        """Values for the constraints in `decode.constraints` that come from other sections of the recipe."""
        return {"tree": self.data.terminals}

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dictionary for JSON; `from_dict` reads it back."""
        return {"name": self.name, **self.model_dump()}

    @staticmethod
    def from_dict(values: dict[str, Any], where: str) -> Recipe:
        """Check a plain dictionary and return its recipe. `where` names the dictionary in error messages. Old names of keys are read; retired keys are ignored.

        Raises RecipeError.
        """
        if _depth(values) > DEEPEST:
            raise RecipeError(
                f"{where} is nested too deeply: expected sections of keys, whose values are numbers, texts, true, false or lists of texts."
            )
        if isinstance(values, dict):
            values = without_retired(with_present_names(values, where), where)
        try:
            return Recipe.model_validate(values)
        except ValidationError as error:
            description = describe(error, values, Recipe)
        raise RecipeError(f"{where} {description}")


def _depth(values: Any) -> int:
    """Return the depth of nested dictionaries and lists; counting stops at DEEPEST + 1."""
    level, depth = [values], 0
    while depth <= DEEPEST and (level := [inner for value in level for inner in _inside(value)]):
        depth += 1
    return depth


def _inside(value: Any) -> Sequence[Any]:
    """Return the values in a dictionary or list; an empty list for any other value."""
    return [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []


SECTIONS: dict[str, type[Section]] = {
    "data": DataSection,
    "model": ModelSection,
    "train": TrainSection,
    "decode": DecodeSection,
}
