"""Presets: sizes of a model and its training for a number of pairs. `nmt init` writes a recipe from one of them.

    pairs, time ──▶ preset ──▶ recipe_text: a commented recipe (TOML)

A preset is an entry of PRESETS. Its `proven` describes the text it was trained on, and the result. The sizes of a preset
without `proven` are the paper's, or lie between those of its neighbours. docs/presets.md has the table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DECAY = 0.4
"""The share of the updates in which the learning rate falls to zero."""
AVERAGED = 10
"""The number of checkpoints that are averaged."""
VALIDATIONS = 20
LEAST = 0.5
"""A preset is worth choosing only if there is time for this share of its updates."""


@dataclass(frozen=True)
class Preset:
    """A model and its training, for a text of about `pairs` pairs."""

    pairs: int
    vocab_size: int
    layers: int
    """The number of layers in the encoder, and also in the decoder."""
    d_model: int
    d_ff: int
    num_heads: int
    dropout: float
    batch_tokens: int
    updates: int
    warmup: int
    peak: float
    """The highest learning rate."""
    proven: str = ""
    """The text it was trained on, the time it took, and its scores; "" if it was not trained."""

    @property
    def name(self) -> str:
        """The number of pairs in short form: 30k, 1M."""
        return f"{self.pairs // 1_000_000}M" if self.pairs >= 1_000_000 else f"{self.pairs // 1000}k"


PRESETS = (
    Preset(
        10_000,
        4000,
        3,
        128,
        512,
        4,
        0.4,
        4096,
        3000,
        800,
        5e-3,
        "10,000 image captions English-German (Multi30k): 31.2 BLEU and 55.9 chrF on test 2016, 42 minutes of two cores beside other work",
    ),
    Preset(
        30_000,
        10_000,
        4,
        128,
        512,
        4,
        0.3,
        8192,
        4000,
        1500,
        5e-3,
        "29,000 image captions English-German (Multi30k): 40.3 BLEU on test 2016, 94 minutes of one core",
    ),
    Preset(
        100_000,
        10_000,
        4,
        256,
        1024,
        4,
        0.2,
        4096,
        6000,
        1000,
        2e-3,
        "100,000 short sentences English-German (Tatoeba): 39.9 BLEU and 59.0 chrF on held-out pairs after 3,200 updates, 103 minutes of two cores",
    ),
    Preset(1_000_000, 32_000, 6, 512, 2048, 8, 0.2, 25_000, 40_000, 4000, 7e-4),
    Preset(
        10_000_000,
        37_000,
        6,
        512,
        2048,
        8,
        0.1,
        25_000,
        100_000,
        4000,
        7e-4,
        "the paper's base model: 4.5M pairs English-German, 27.3 BLEU on newstest2014, 12 hours of 8 GPUs",
    ),
)


def preset_for(pairs: int) -> Preset:
    """Return the preset whose number of pairs is nearest, by ratio."""
    return min(PRESETS, key=lambda preset: abs(math.log(preset.pairs / max(1, pairs))))


def smaller(preset: Preset) -> Preset | None:
    """Return the next smaller preset, if there is one."""
    index = PRESETS.index(preset)
    return PRESETS[index - 1] if index else None


def recipe_text(
    preset: Preset, head: Sequence[str], data: Mapping[str, object], updates: int, joint: bool, pairs: int
) -> str:
    """Return a recipe with the comment lines `head` and the [data] keys `data`. `joint`: one vocabulary for both languages.

    The vocabulary is smaller than the preset's if the text has few `pairs`.
    """
    warmup, interval = max(1, min(preset.warmup, updates // 4)), max(1, updates // (4 * VALIDATIONS))
    sections: dict[str, dict[str, tuple[object, str]]] = {
        "data": {
            **{key: (value, "") for key, value in data.items()},
            "vocab_size": (max(500, min(preset.vocab_size, pairs // 3 // 100 * 100)), "subwords"),
            "joint_vocab": (joint, "true: both languages share one vocabulary"),
        },
        "model": {
            "encoder_layers": (preset.layers, ""),
            "decoder_layers": (preset.layers, ""),
            "d_model": (preset.d_model, ""),
            "d_ff": (preset.d_ff, ""),
            "num_heads": (preset.num_heads, ""),
            "dropout": (preset.dropout, "more of it for less text"),
            "residual": ("pre", 'the paper\'s, "post", needs more updates and more text'),
            "tie_embeddings": (joint, "needs one vocabulary"),
        },
        "train": {
            "batch_tokens": (preset.batch_tokens, "of one update, on every machine"),
            "updates": (updates, ""),
            "decay_updates": (round(DECAY * updates), "the last ones, in which the learning rate falls to zero"),
            "warmup": (warmup, "the first ones, in which it rises"),
            "lr_factor": (
                float(f"{preset.peak * math.sqrt(preset.d_model * warmup):.4g}"),
                f"of the paper's equation 3: the highest rate is {preset.peak:.1e}",
            ),
            "valid_every": (4 * interval, ""),
            "checkpoint_every": (interval, ""),
            "keep": (AVERAGED, ""),
            "average": (AVERAGED, "nmt average takes the last ones"),
            "best_metric": ("nll", ""),
        },
        "decode": {"beam": (5, ""), "alpha": (1.0, "higher: longer translations; the paper has 0.6 for a large model")},
    }
    lines = [f"# {line}".rstrip() for line in head]
    for section, keys in sections.items():
        lines += ["", f"[{section}]"]
        lines += [
            f"{f'{key} = {_toml(value)}':<26}{f'# {comment}' if comment else ''}".rstrip()
            for key, (value, comment) in keys.items()
        ]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """Return a value in TOML: as in JSON, but large integers have underscores."""
    return f"{value:_}" if type(value) is int and value >= 10_000 else json.dumps(value, ensure_ascii=False)
