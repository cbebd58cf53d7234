"""The settings of a training that `nmt init` writes, by rule: from the text, and from the tokens that the time allows.

    pairs ──▶ sizes_for ──▶ the largest size that has time enough (`has_time`) ──▶ settings
        ──▶ recipe_text: a commented recipe

More tokens, counted with each pass over the text, allow a larger model, a larger update and a larger vocabulary. More
passes over the same text need more dropout. docs/presets.md has the rule in words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..recipe import Recipe, toml_comment, toml_value
from .schedule import learning_rate
from .times import Intervals, Speed

SMALLEST_UPDATE = 2048
"""Fewest tokens of an update. With a smaller one, a CPU spends its time on Adam."""
TOKENS_PER_PARAMETER = 2.0
"""A model learns little from fewer target tokens, counted in every pass, than this number for each of its parameters.
"""
UPDATES = 2500
"""An update has so many tokens that there is time for this number of updates."""
TOKENS_PER_PIECE = 1000
"""The vocabulary has one piece for this number of target tokens, counted in every pass."""
PAIRS_PER_PIECE = 3
"""And one for this number of pairs: a rarer piece is not learned."""
FEWEST_PIECES = 1000
BYTES_AND_SPECIALS = 260
"""Pieces of every vocabulary: 256 bytes, and padding, unknown, begin and end."""
USUAL_PAIRS, USUAL_PASSES = 30_000, 80
"""Without a limit, a text of USUAL_PAIRS is read USUAL_PASSES times, a larger one less often: by the fourth root of its
size."""
DROPOUT = ((12, 0.1), (45, 0.2), (100, 0.3))
"""Dropout up to a number of passes over a text of USUAL_PAIRS; 0.4 above. A smaller text needs as much after fewer
passes."""


@dataclass(frozen=True)
class Size:
    """The size of a model, and the sizes that depend on it."""

    name: str
    """"" for a trained model that is adapted."""
    layers: int
    """The number of layers in the encoder, and also in the decoder."""
    d_model: int
    d_ff: int
    num_heads: int
    peak: float
    """The highest learning rate."""
    batch_tokens: int
    """Most tokens of an update."""
    vocab_size: int
    """Most pieces of a vocabulary."""
    pairs: int
    """A text with fewer pairs gets a smaller model."""
    fewest_tokens: int = SMALLEST_UPDATE
    """Fewest tokens of an update."""

    @property
    def described(self) -> str:
        return (
            f"{self.layers} + {self.layers} layers, d_model {self.d_model}" if self.name else "the sizes of the model"
        )

    def parameters(self, vocab_size: int) -> int:
        """Return the number of parameters with one vocabulary for both languages, without biases and norms."""
        return self.layers * (12 * self.d_model**2 + 4 * self.d_model * self.d_ff) + vocab_size * self.d_model


SIZES = (
    Size("tiny", 3, 128, 512, 4, 5e-3, 4096, 4000, 0),
    Size("small", 4, 128, 512, 4, 5e-3, 8192, 10_000, 17_000),
    Size("medium", 4, 256, 1024, 4, 2e-3, 8192, 10_000, 55_000),
    Size("base", 6, 512, 2048, 8, 7e-4, 25_000, 32_000, 320_000),
)
"""The last one is the paper's base model."""


@dataclass(frozen=True)
class Preset:
    """A training: what `settings` chooses."""

    size: Size
    vocab_size: int
    """Most pieces, from the number of tokens. A text with many characters gets more (`vocabulary`)."""
    dropout: float
    batch_tokens: int
    updates: int
    passes: float
    """How often the text is read."""
    every: Intervals

    def reading(self, total: float, tokens: int) -> Preset:
        """Return the settings with as many updates as read `total` tokens of a text with `tokens` tokens."""
        return replace(self, updates=max(1, _round(total / self.batch_tokens)), passes=total / tokens)

    def at(self, speed: Speed, most_kept: float) -> Preset:
        """Return the settings with the intervals for a training of this speed that keeps so many checkpoints."""
        return replace(self, every=speed.intervals(self.updates, most_kept))


def sizes_for(pairs: int) -> Iterator[Size]:
    """Yield the sizes for a text of `pairs` pairs, the largest first."""
    return (size for size in reversed(SIZES) if pairs >= size.pairs)


def usual_tokens(pairs: int, tokens: int) -> int:
    """Return the target tokens of an unlimited training, for a text of `pairs` pairs with `tokens` target tokens."""
    return round(USUAL_PASSES * min(1.0, _smaller_by(pairs)) * tokens)


def has_time(size: Size, total: float) -> bool:
    """Return whether `total` target tokens, counted in every pass, are enough for a model of this size."""
    return total >= TOKENS_PER_PARAMETER * size.parameters(_vocabulary(size, total))


def settings(size: Size, pairs: int, tokens: int, total: float) -> Preset:
    """Return the settings for a text of `pairs` pairs with `tokens` target tokens, of which training reads `total`,
    counted in every pass.
    """
    passes = total / tokens
    dropout = next((dropout for most, dropout in DROPOUT if passes * _smaller_by(pairs) <= most), 0.4)
    nearest = 1 << round(math.log2(max(1.0, total / UPDATES)))  # the nearest power of two, by ratio
    batch = min(size.batch_tokens, max(size.fewest_tokens, nearest))
    vocabulary = max(FEWEST_PIECES, min(_vocabulary(size, total), pairs // PAIRS_PER_PIECE // 100 * 100))
    updates = max(1, _round(total / batch))
    return Preset(size, vocabulary, dropout, batch, updates, passes, Speed(1.0, 1.0).intervals(updates))


def _smaller_by(pairs: int) -> float:
    return math.sqrt(math.sqrt(USUAL_PAIRS / pairs))


def _vocabulary(size: Size, total: float) -> int:
    return min(size.vocab_size, max(FEWEST_PIECES, _round(total / TOKENS_PER_PIECE)))


def _round(number: float) -> int:
    """Return a number rounded down to two significant digits."""
    unit = int(10 ** max(0, len(f"{int(number)}") - 2))
    return int(number) // unit * unit


def vocabulary(characters: Counter[str], pieces: int) -> tuple[int, float]:
    """Return the size and the character coverage of a vocabulary of about `pieces` pieces, for a text with these
    characters.

    At least half of the pieces are longer than a character. For this, characters that occur less than 5 times are
    spelled in bytes.
    """
    total = characters.total()
    if len(characters) + BYTES_AND_SPECIALS <= pieces / 2:
        return pieces, 1.0
    for least in range(5, 0, -1):
        kept = [count for count in characters.values() if count >= least]
        coverage = sum(kept) / total
        if coverage >= 0.98:  # SentencePiece's smallest
            break
    return max(pieces, 2 * (len(kept) + BYTES_AND_SPECIALS)), math.floor(coverage * 1e6) / 1e6


ADAPTING_PASSES = 10
"""How often the text of an adaptation is read, without a limit."""
IMPORTED_PEAK, HIGHEST_PEAK = 2e-4, 2e-3
"""The highest learning rate of the adaptation of an imported model with d_model = 512, and of any. The rate with which
it was trained is not known."""
ANEW = {
    *("generator", "shard_pairs", "vocab_size", "target_vocab_size", "character_coverage", "target_character_coverage"),
    *("batch_tokens", "micro_batch_tokens", "log_every", "checkpoint_minutes", "patience", "keep_best", "freeze"),
}
"""Keys that a recipe for an adaptation does not have from the model's recipe."""
COMMENTS = {
    "tokenizer": "the model's vocabulary",
    "joint_vocab": "true: both languages share one vocabulary",
    "separate_tokenizers": "each language has a tokenizer over it",
    "vocab_size": "subwords, at most",
    "target_vocab_size": "subwords, at most",
    "character_coverage": "rarer characters are spelled in bytes",
    "target_character_coverage": "rarer characters are spelled in bytes",
    "dropout": "more of it for more passes over the text",
    "residual": 'the paper\'s, "post", needs more updates and more text',
    "tie_embeddings": "needs one vocabulary",
    "init": "the weights to start from",
    "batch_tokens": "of one update, on every machine",
    "decay_updates": "the last ones, in which the learning rate falls to zero",
    "warmup": "the first ones, in which it rises",
    "lr_factor": "of the paper's equation 3: the highest rate is {peak:.1e}",
    "average": "nmt average takes the last ones",
    "length_penalty": "with alpha 1, log P of a token; the paper's gnmt 0.6 is for large models",
    "alpha": "lower: shorter translations",
}
"""The comments of keys in a recipe."""

Section = dict[str, object]
"""The keys of a section of a recipe."""


def sections(chosen: Preset, data: Mapping[str, object], sides: Sequence[Counter[str]]) -> dict[str, Section]:
    """Return the recipe of a new model.

    `data`: more keys of [data]. `sides`: the characters for each vocabulary, one or two.
    """
    size, joint = chosen.size, len(sides) == 1
    vocabularies = Section()
    for prefix, characters in zip(("", "target_"), sides, strict=False):
        pieces, coverage = vocabulary(characters, chosen.vocab_size)
        vocabularies[f"{prefix}vocab_size"] = pieces
        if coverage < 1 or "character_coverage" in vocabularies:
            vocabularies[f"{prefix}character_coverage"] = coverage
    return {
        "data": {**data, "joint_vocab": joint, **vocabularies},
        "model": {
            "encoder_layers": size.layers,
            "decoder_layers": size.layers,
            "d_model": size.d_model,
            "d_ff": size.d_ff,
            "num_heads": size.num_heads,
            "dropout": chosen.dropout,
            "residual": "pre",
            "tie_embeddings": joint,
        },
        "train": {"batch_tokens": chosen.batch_tokens, **schedule(chosen, size.d_model)},
        "decode": {"beam": 5, "length_penalty": "power", "alpha": 1.0},
    }


def schedule(chosen: Preset, d_model: int, warmup: float = 1 / 6, decay: float = 0.4) -> Section:
    """Return the keys of [train] for a number of updates.

    `warmup`, `decay`: the shares of the updates in which the learning rate rises, and falls to zero.
    """
    updates, every = chosen.updates, chosen.every
    steps = max(1, min(4000, round(warmup * updates)))  # at most the paper's (section 5.3)
    return {
        "updates": updates,
        "decay_updates": round(decay * updates),
        "warmup": steps,
        "lr_factor": float(f"{chosen.size.peak * math.sqrt(d_model * steps):.4g}"),
        "valid_every": every.valid_every,
        "checkpoint_every": every.checkpoint_every,
        "keep": every.average,
        "average": every.average,
    }


def adapted(recipe: Recipe, model: Path, chosen: Preset, data: Mapping[str, object]) -> dict[str, Section]:
    """Return the recipe that continues the training of a model, in the folder `model`, on another text.

    `recipe`: the model's. `data`: the keys of [data] for the new text. All keys of the old text, and of the schedule,
    are new.
    """
    new: dict[str, Section] = {
        "data": {**data, "tokenizer": str(model)},
        "model": {"dropout": chosen.dropout},
        "train": {
            "init": str(model),
            "batch_tokens": min(chosen.batch_tokens, recipe.train.batch_tokens),
            **schedule(chosen, recipe.model.d_model, 0.1, 0.9),
        },
    }
    for section, keys in recipe.model_dump(exclude_defaults=True).items():
        chosen_keys = new.setdefault(section, {})
        chosen_keys |= {key: value for key, value in keys.items() if key not in ANEW and key not in chosen_keys}
    return new


def size_of(recipe: Recipe, imported: bool = False) -> Size:
    """Return the size of a trained model. The highest learning rate is that of its adaptation: half of its own.

    An `imported` model has no schedule of its own: IMPORTED_PEAK, and more for smaller models, as in SIZES.
    """
    model, train = recipe.model, recipe.train
    layers, shape = model.encoder_layers, (model.d_model, model.d_ff, model.num_heads)
    longest = max(SMALLEST_UPDATE, recipe.data.max_length + 1)
    rate = min(HIGHEST_PEAK, IMPORTED_PEAK * (512 / model.d_model) ** 1.5) if imported else 0.5 * peak(recipe)
    return Size("", layers, *shape, rate, train.batch_tokens, recipe.data.vocab_size, 0, longest)


def peak(recipe: Recipe) -> float:
    """Return the highest learning rate of a recipe."""
    train = recipe.train.model_copy(update={"decay_updates": 0})
    return learning_rate(train.warmup, recipe.model.d_model, train)


def recipe_text(head: Sequence[str], sections: Mapping[str, Section], peak: float) -> str:
    """Return a recipe in TOML, with the comment lines `head`. `peak`: its highest learning rate."""
    lines = [toml_comment(line).rstrip() for line in head]
    for section, keys in sections.items():
        lines += ["", f"[{section}]"]
        for key, value in keys.items():
            comment = toml_comment(COMMENTS[key].format(peak=peak)) if key in COMMENTS else ""
            lines.append(f"{f'{key} = {toml_value(value)}':<25} {comment}".rstrip())
    return "\n".join(lines) + "\n"
