"""The typed, strict recipe: one experiment, machine left out.

    TOML text ──▶ load_recipe ──▶ Recipe(data, model, train, decode) ──▶ every command
                  what it `extends` is laid under it, --set section.key=value over it, before checking

A recipe is data. It is checked whole before any work starts: unknown keys, wrong types and contradictions are
reported together, each with the nearest right name. Every number has bounds, far beyond any model that was ever trained,
and so has their product (`MOST_PARAMETERS`): what cannot be meant is refused before memory is taken. It is stored inside shards, runs and model folders
(`Recipe.to_dict`) and read back from there (`Recipe.from_dict`) by every later command. The model's width and the
vocabulary's size stand here; what depends on the machine (devices, micro-batches, precision) is derived elsewhere.

Sources of the defaults: "Attention Is All You Need", sections 3 and 5, table 3 (base).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from .errors import RecipeError, did_you_mean, shown
from .recipe_errors import describe
from .recipe_history import with_present_names, without_retired
from .registry import ACTIVATIONS, CONSTRAINTS, LENGTH_PENALTIES, NORMS, POSITIONS, RESIDUALS, SEARCHES

SectionT = TypeVar("SectionT", bound="Section")


class Section(BaseModel):
    """A frozen part of a recipe that refuses keys it does not know and values of a wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _checked(section: SectionT, errors: list[str]) -> SectionT:
    if errors:
        raise ValueError("\n".join(errors))
    return section


TrainingPrecision = Literal["auto", "bf16", "fp16", "fp32"]
TRAINING_PRECISIONS: tuple[str, ...] = get_args(TrainingPrecision)
MANY = 10**12
"""The bound of what is counted and takes no memory: updates, pairs of a shard, …"""
MOST_PARAMETERS = 10**12
BYTES_PER_PARAMETER = 16
"""In training: weight, gradient and Adam's two moments in fp32."""
MOST_BEAM = 4096
MOST_POSITIONS = 2**28
"""Numbers in a table of positions, max_positions × d_model."""
LATEST = "latest"
"""The link beside runs that leads to the latest one."""
DEEPEST = 16
"""How deep dictionaries and lists of a recipe may be nested."""


def _file_name(name: str) -> str:
    if "\0" in name:
        raise ValueError(f"{shown(name)} holds a NUL character: no file name has one")
    if not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"{shown(name)} is not UTF-8")
    return name


FileName = Annotated[str, AfterValidator(_file_name)]


def _listed_in(registry: Mapping[str, str]) -> AfterValidator:
    """Return a check that a value is a name in `registry`, as the registry is at the time of the check."""

    def check(name: str) -> str:
        if name not in registry:
            raise PydanticCustomError("listed", "{expected}", {"expected": f"expected {' or '.join(registry)}.{did_you_mean(name, list(registry))}"})
        return name

    return AfterValidator(check)


class DataSection(Section):
    """[data]: which text, which subword vocabulary, which pairs are kept."""

    source_language: FileName = "en"
    target_language: FileName = "de"
    generator: Literal["", "teaching"] = ""
    """`teaching`: the corpus is made by the package itself and needs no --data-dir."""
    train_source: list[FileName] = []
    """Files below --data-dir; plain, .gz, .xz or .bz2; with `train_target` line by line parallel."""
    train_target: list[FileName] = []
    valid_source: list[FileName] = []
    valid_target: list[FileName] = []
    tokenizer: FileName = ""
    """An existing SentencePiece model to use instead of learning one (a path, or one below --data-dir)."""
    vocab_size: int = Field(default=37_000, ge=8, le=10_000_000)
    joint_vocab: bool = True
    """One BPE and one embedding matrix for both languages (section 5.1); false: one for each language."""
    target_vocab_size: int = Field(default=0, ge=0, le=10_000_000)
    """Of the target's own vocabulary, with joint_vocab = false; 0: `vocab_size`."""
    target_tokenization: Literal["bpe", "words"] = "bpe"
    """`words`: each word between spaces is one token of the target vocabulary, unchanged: for symbols, such as
    linearised trees. The vocabulary holds the most frequent ones, or all if there are fewer. Needs two vocabularies."""
    terminals: Literal["", "xx", "tags", "words", "both"] = ""
    """Of a parser: what a word is in the target, a linearised tree, as in `nmt data trees --terminals`. "": not a parser.
    `words` and `both` may share the source's subwords; each bracket and tag is one token all the same."""
    normalization: Literal["identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"] = "nmt_nfkc"
    """SentencePiece's rule, stored in its model: applied alike in training and in translation."""
    character_coverage: float = Field(default=1.0, gt=0.9, le=1.0)
    byte_fallback: bool = True
    """Characters unseen in training become bytes instead of <unk>, so that they can be copied."""
    min_length: int = Field(default=1, ge=1, le=1_000_000)
    """Tokens per side, end symbol not counted; shorter pairs are dropped as empty."""
    max_length: int = Field(default=256, ge=1, le=1_000_000)
    """Tokens per side, end symbol not counted; longer pairs are dropped and counted."""
    max_ratio: float = Field(default=9.0, gt=1.0, le=1e6)
    """Longer side over shorter side, in tokens (both counted one longer, to be lenient on short lines)."""
    shard_pairs: int = Field(default=1_000_000, ge=1, le=MANY)

    @property
    def target_size(self) -> int:
        """Return the largest size of the target's vocabulary."""
        return self.target_vocab_size or self.vocab_size

    @model_validator(mode="after")
    def _consistent(self) -> DataSection:
        errors = []
        for split in ("train", "valid"):
            source, target = getattr(self, f"{split}_source"), getattr(self, f"{split}_target")
            if len(source) != len(target):
                errors.append(f"{split}_source names {len(source)} file(s), {split}_target {len(target)}: they are read in pairs")
        if self.generator and (self.train_source or self.valid_source):
            errors.append(f"generator = {self.generator!r} makes its own text: leave train_source and valid_source out")
        if not self.generator and not self.train_source:
            errors.append("train_source and train_target are needed (files below --data-dir)")
        if self.target_vocab_size and self.joint_vocab:
            errors.append(f"target_vocab_size = {self.target_vocab_size} needs joint_vocab = false: a joint vocabulary has vocab_size = {self.vocab_size} pieces")
        if 0 < self.target_vocab_size < 8:
            errors.append(f"target_vocab_size = {self.target_vocab_size}: expected 8 or more, or 0 for vocab_size = {self.vocab_size}")
        if self.target_tokenization == "words" and self.joint_vocab:
            errors.append('target_tokenization = "words" needs joint_vocab = false: the source is learned as BPE, by itself')
        if self.terminals in ("xx", "tags") and self.target_tokenization != "words":
            errors.append(f'terminals = "{self.terminals}" needs target_tokenization = "words": each symbol of a tree is one token')
        if self.min_length > self.max_length:
            errors.append(f"min_length = {self.min_length} exceeds max_length = {self.max_length}")
        return _checked(self, errors)


class ModelSection(Section):
    """[model]: table 3's columns and the two choices that others make differently."""

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
    """Of the feed-forward network. `relu`: max(0, x), the paper's (equation 2); `gelu`; `silu`; `swiglu`: a gate, with three matrices of d_model × d_ff instead of two."""
    positions: Annotated[str, _listed_in(POSITIONS)] = "sinusoidal"
    """`sinusoidal`: the paper's (section 3.5); `learned`: a trained vector per position (table 3, row E); `rotary`: self-attention rotates queries and keys."""
    max_positions: int = Field(default=1024, ge=2, le=1_048_576)
    """The longest sequence: learned positions have so many rows; longer lines are split before translation."""
    tie_embeddings: bool = True
    """One matrix for both embeddings and the output projection (section 3.4)."""
    monotonic_attention: bool = False
    """Of a parser: the decoder also reads the encoder's state of the next word (hard monotonic attention, Aharoni and Goldberg 2017)."""

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
            errors.append(f"d_model = {self.d_model} is not a multiple of num_heads = {self.num_heads}: give d_k and d_v")
        if self.positions == "sinusoidal" and self.d_model % 2:
            errors.append(f"d_model = {self.d_model} is odd: sinusoids come in pairs of sine and cosine")
        if self.positions == "rotary" and self.key_size % 2:
            errors.append(f"heads of {self.key_size} numbers are odd: rotary positions rotate pairs of them. Change num_heads or d_k")
        if self.max_positions * self.d_model > MOST_POSITIONS:
            errors.append(f"max_positions = {self.max_positions} times d_model = {self.d_model} are {self.max_positions * self.d_model:,} numbers for positions: expected at most {MOST_POSITIONS:,}")
        return _checked(self, errors)

    def parameters(self, source_vocab: int, target_vocab: int) -> int:
        """Return the number of trained parameters over vocabularies of these sizes, without building the model.

        Exact for the norms and activations that ship; another norm counts as a layer norm, another activation as relu.
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
    """[train]: sections 5.1 to 5.4, and how the run is validated, logged and saved."""

    batch_tokens: int = Field(default=25_000, ge=1, le=100_000_000)
    """Tokens of one update, source and target each, over all ranks and micro-batches."""
    micro_batch_tokens: int = Field(default=0, ge=0, le=100_000_000)
    """Tokens that one rank takes through the model at once; 0: chosen from the hardware's memory."""
    updates: int = Field(default=100_000, ge=1, le=MANY)
    warmup: int = Field(default=4000, ge=1, le=MANY)
    lr_factor: float = Field(default=1.0, gt=0.0, le=1e6)
    """Multiplies the paper's schedule (equation 3)."""
    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    adam_beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    adam_epsilon: float = Field(default=1e-9, gt=0.0, le=1.0)
    decay_updates: int = Field(default=0, ge=0, le=MANY)
    """In so many last updates the learning rate of equation 3 is multiplied by a factor that falls linearly to zero; 0: none."""
    label_smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    r_drop: float = Field(default=0.0, ge=0.0, le=1000.0)
    """Weight of the divergence between two passes of each pair with different dropout (R-Drop); 0: one pass."""
    bpe_dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Probability with which BPE leaves out a merge, so that words are cut differently in each epoch; 0: never."""
    both_directions: bool = False
    """In each epoch half of the pairs, drawn anew, are read from target to source: the model learns to translate both ways."""
    init: FileName = ""
    """A model of the same sizes and vocabulary whose weights training starts from: the folder of a model or run; "": random weights."""
    clip_norm: float = Field(default=0.0, ge=0.0, le=1e9)
    """Largest gradient norm; 0: no clipping (the paper has none)."""
    skip_nonfinite: int = Field(default=0, ge=0, le=MANY)
    """Updates in a row that may pass without a step because their gradient is not finite; 0: the first one stops training."""
    precision: TrainingPrecision = "auto"
    """Of matrix products; `auto`: what the hardware computes fast. In `fp16` the loss is scaled."""
    seed: int = Field(default=1, ge=0, lt=2**32)
    log_every: int = Field(default=50, ge=1, le=MANY)
    valid_every: int = Field(default=1000, ge=1, le=MANY)
    valid_bleu_sentences: int = Field(default=500, ge=0, le=MANY)
    """Number of validation sentences, from the first on, that are translated for BLEU; 0: none."""
    valid_beam: int = Field(default=1, ge=1, le=MOST_BEAM)
    """Beam of these translations, whatever `decode.search` is; 1 is greedy and quick."""
    valid_samples: int = Field(default=3, ge=0, le=100_000)
    patience: int = Field(default=0, ge=0, le=MANY)
    """Stop after so many validations without a better one; 0: never."""
    best_metric: Literal["bleu", "nll"] = "nll"
    checkpoint_every: int = Field(default=1000, ge=0, le=MANY)
    """Updates between checkpoints; 0: by minutes alone."""
    checkpoint_minutes: float = Field(default=10.0, ge=0.0, le=1e9)
    """Minutes between checkpoints; 0: by updates alone."""
    keep: int = Field(default=5, ge=1, le=1_000_000)
    """Latest checkpoints kept."""
    keep_best: int = Field(default=1, ge=1, le=1_000_000)
    """Best checkpoints kept besides."""
    average: int = Field(default=5, ge=1, le=1_000_000)
    """Checkpoints that `nmt average` averages by default."""

    @property
    def passes(self) -> int:
        """Return how often each pair of an update goes through the model."""
        return 2 if self.r_drop else 1

    @model_validator(mode="after")
    def _consistent(self) -> TrainSection:
        errors = []
        if self.micro_batch_tokens > self.batch_tokens:
            errors.append(f"micro_batch_tokens = {self.micro_batch_tokens} exceeds batch_tokens = {self.batch_tokens}")
        if not self.checkpoint_every and not self.checkpoint_minutes:
            errors.append("checkpoint_every = 0 and checkpoint_minutes = 0: nothing would ever be saved")
        if self.decay_updates > self.updates:
            errors.append(f"decay_updates = {self.decay_updates} exceeds updates = {self.updates}: the learning rate falls over the last updates")
        if self.average > self.keep:
            errors.append(f"average = {self.average} exceeds keep = {self.keep}: averaging would miss pruned checkpoints")
        if self.best_metric == "bleu" and not self.valid_bleu_sentences:
            errors.append('best_metric = "bleu" needs valid_bleu_sentences > 0')
        return _checked(self, errors)


class DecodeSection(Section):
    """[decode]: section 6.1."""

    search: Annotated[str, _listed_in(SEARCHES)] = "beam"
    beam: int = Field(default=4, ge=1, le=MOST_BEAM)
    length_penalty: Annotated[str, _listed_in(LENGTH_PENALTIES)] = "gnmt"
    """What log P(Y) is divided by: `gnmt`: ((5 + |Y|) / 6) ** alpha; `average`: |Y|; `none`: 1."""
    alpha: float = Field(default=0.6, ge=0.0, le=50.0)
    """Of the length penalty `gnmt`."""
    coverage_penalty: float = Field(default=0.0, ge=0.0, le=1000.0)
    """Beta of the coverage penalty, which lowers the scores of outputs that leave parts of the source untranslated; 0: none."""
    max_extra: int = Field(default=50, ge=1, le=1_000_000)
    """The longest output: each sentence's own input length (times max_len_ratio) plus this, in tokens."""
    max_len_ratio: float = Field(default=1.0, ge=0.0, le=1000.0)
    """The longest output: this times the sentence's own input length, plus max_extra, in tokens."""
    min_length: int = Field(default=1, ge=0, le=1_000_000)
    """The shortest output, in tokens that carry text: end symbol and white space do not count; 0: it may be empty."""
    lookahead: int = Field(default=12, ge=0, le=1_000_000)
    """A hypothesis is given up when it would not win if so many tokens more, its end among them, cost nothing; 0: any number, so that the best one is never lost."""
    diverse_groups: int = Field(default=4, ge=1, le=MOST_BEAM)
    """Of the search `diverse`: groups of equal size into which the beam is divided."""
    diversity_penalty: float = Field(default=0.5, ge=0.0, le=1000.0)
    """Of the search `diverse`: what a token costs for each hypothesis of an earlier group that has just got it."""
    no_repeat_ngram: int = Field(default=0, ge=0, le=1_000_000)
    """No n-gram of this many tokens occurs twice in an output; 0: any may."""
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=1000.0)
    """Above 1, tokens that the output already has become less probable; 1: none."""
    constraints: list[str] = []
    """Names of constraints that need no value."""
    batch_tokens: int = Field(default=4096, ge=1, le=100_000_000)
    """Source tokens translated together."""

    @model_validator(mode="after")
    def _consistent(self) -> DecodeSection:
        errors = [f"constraints = {name!r}: expected {', '.join(CONSTRAINTS)}" for name in self.constraints if name not in CONSTRAINTS]
        if self.search == "diverse" and self.beam % self.diverse_groups:
            errors.append(f'beam = {self.beam} is not a multiple of diverse_groups = {self.diverse_groups}: search = "diverse" divides the beam into groups of equal size')
        return _checked(self, errors)


class Recipe(Section):
    """The whole experiment."""

    name: str = Field(default="", exclude=True)
    """The file's stem; not a key of the file."""
    data: DataSection
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    decode: DecodeSection = DecodeSection()

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        errors = []
        if self.model.tie_embeddings and not self.data.joint_vocab:
            errors.append("model.tie_embeddings = true needs data.joint_vocab = true: two vocabularies cannot share one matrix")
        if self.train.both_directions and not self.data.joint_vocab:
            errors.append("train.both_directions = true needs data.joint_vocab = true: source and target change places")
        if self.model.monotonic_attention and (not self.data.terminals or (self.data.terminals, self.data.target_tokenization) == ("words", "bpe")):
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
            errors.append(f"data.max_length = {self.data.max_length} must be below train.batch_tokens = {self.train.batch_tokens}")
        parameters = self.model.parameters(self.data.vocab_size, self.data.target_size)
        if parameters > MOST_PARAMETERS:
            errors.append(
                f"the model has {parameters:,} parameters, which take {parameters * BYTES_PER_PARAMETER / 2**40:,.1f} TiB to train: expected at most {MOST_PARAMETERS:,}. "
                "Reduce model.d_model, model.d_ff, the layers or data.vocab_size"
            )
        return _checked(self, errors)

    def folder(self, parent: str, option: str) -> Path:
        """Return PARENT/NAME, where a command works unless `option` names another folder. Raises RecipeError for a name that no folder there can have."""
        if self.name in ("", LATEST) or self.name.startswith(".") or not self.name.isprintable() or "/" in self.name:
            why = f"{parent}/{LATEST} is kept for the link to the latest run" if self.name == LATEST else "expected a name that can be printed and does not begin with a dot"
            raise RecipeError(f"the recipe's name {shown(self.name)} cannot name a folder in {parent}/: {why}. Rename the recipe's file, or give {option} DIR.")
        return Path(parent) / self.name

    @property
    def constraint_values(self) -> dict[str, str]:
        """Return the values of constraints that `decode.constraints` names, where other sections of the recipe have them."""
        return {"tree": self.data.terminals}

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionary for JSON; `from_dict` reads it back."""
        return {"name": self.name, **self.model_dump()}

    @staticmethod
    def from_dict(values: dict[str, Any], where: str) -> Recipe:
        """Check a plain dictionary; `where` names its place in error messages. Old names of keys are understood; retired keys are ignored."""
        if _depth(values) > DEEPEST:
            raise RecipeError(f"{where} is nested too deeply: expected sections of keys, whose values are numbers, texts, true, false or lists of texts.")
        if isinstance(values, dict):
            values = without_retired(with_present_names(values, where), where)
        try:
            return Recipe.model_validate(values)
        except ValidationError as error:
            description = describe(error, values, Recipe)
        raise RecipeError(f"{where} {description}")


def _depth(values: Any) -> int:
    """How deep dictionaries and lists are nested in each other; no deeper than DEEPEST + 1 is looked at."""
    level, depth = [values], 0
    while depth <= DEEPEST and (level := [inner for value in level for inner in _inside(value)]):
        depth += 1
    return depth


def _inside(value: Any) -> Sequence[Any]:
    """What a dictionary or list holds, if it holds anything; nothing of any other value."""
    return [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []


SECTIONS: dict[str, type[Section]] = {"data": DataSection, "model": ModelSection, "train": TrainSection, "decode": DecodeSection}
