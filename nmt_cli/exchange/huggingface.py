"""Export to Hugging Face transformers. Residual and positions decide which of its model classes is used.

    post-norm, sinusoids     MarianMTModel
    pre-norm,  sinusoids     PegasusForConditionalGeneration
    pre-norm,  learned       BlenderbotForConditionalGeneration
    post-norm, learned       none: all such classes normalise their embeddings too

Marian and Pegasus compute their sinusoids themselves, all sines before all cosines; ours alternate. So the features of
d_model are reordered in every matrix that reads or writes them. The results stay the same.

    features 0 1 2 3 4 5 …  ──▶  0 2 4 … 1 3 5 …

In transformers, a head has d_model / num_heads features; smaller heads are padded with zeros. Pegasus and Blenderbot
have one vocabulary size for both sides: the smaller side gets extra rows that no text uses, and -1e9 is added to their
logits. The tokenizer is MarianTokenizer over our SentencePiece files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ..data.tokenizer import BOS, EOS, PAD, UNK
from ..errors import ModelError, extra_module
from .exporter import BANNED, Exporter, SourceModel, check_form
from .huggingface_reader import HuggingFaceReader, feature_order, quiet
from .importer import Array
from .layout import SIZES, projections, reordered

FAMILIES = {
    ("post", "sinusoidal"): ("Marian", "MarianMTModel"),
    ("pre", "sinusoidal"): ("Pegasus", "PegasusForConditionalGeneration"),
    ("pre", "learned"): ("Blenderbot", "BlenderbotForConditionalGeneration"),
}
"""Residual and positions -> family and class."""
SYMBOLS = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": EOS,
}
EPSILON = 1e-5
"""What LayerNorm adds to the variance there."""
ABSENT = -1e9
"""Added to the logits of ids that the target vocabulary does not have."""

README = """\
# A translation model for Hugging Face transformers

Written by `nmt export` and verified: it computes the same as the model that it comes from.

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForSeq2SeqLM.from_pretrained(".")

lines = ["A line to translate.", "Another one."]  # blank lines: leave them out
inputs = tokenizer(lines, return_tensors="pt", padding=True)
outputs = model.generate(**inputs, max_new_tokens=inputs.input_ids.shape[1] + {extra})
print(*tokenizer.batch_decode(outputs, skip_special_tokens=True), sep="\\n")
```

{notes}
- A line that begins with `>>` and has `<<` further on: MarianTokenizer takes what is between them for a language code.
- It is a {architecture}; its loss does not smooth labels. Its tokenizer recommends sacremoses, without using it.
"""


def check(source_model: SourceModel) -> None:
    """Raise ModelError if transformers cannot express the model, UsageError if it is not installed."""
    extra_module("transformers", "huggingface", "--to huggingface")
    config, instead = source_model.recipe.model, "Export it with --to ctranslate2, which can express it."
    activations = ("relu", "gelu", "silu")
    check_form(config, "transformers", instead, norm=("layer",), activation=activations, norm_epsilon=(EPSILON,))
    if (config.residual, config.positions) not in FAMILIES:
        raise ModelError(
            f"transformers has no model with model.residual = {config.residual!r} and model.positions = "
            f"{config.positions!r} "
            f"(those with learned positions are pre-norm, or normalise their embeddings as well). {instead}"
        )
    if config.d_model % config.num_heads:
        raise ModelError(
            f"transformers has no model whose d_model = {config.d_model} is not a multiple of num_heads = "
            f"{config.num_heads}. {instead}"
        )
    head_size = config.d_model // config.num_heads
    for name, size in (("d_k", config.key_size), ("d_v", config.value_size)):
        if size > head_size:
            raise ModelError(
                f"model.{name} = {size} exceeds d_model / num_heads = {head_size}: transformers has no such "
                f"heads. {instead}"
            )


def write(source_model: SourceModel, folder: Path) -> None:
    """Write the model, its configuration, its tokenizer and a README. Raises OSError."""
    transformers = extra_module("transformers", "huggingface", "--to huggingface")
    recipe = source_model.recipe
    family, architecture = FAMILIES[recipe.model.residual, recipe.model.positions]
    with quiet(transformers):
        save_file(_weights(source_model), folder / "model.safetensors", metadata={"format": "pt"})
        getattr(transformers, f"{family}Config")(
            architectures=[architecture], **_configuration(source_model)
        ).save_pretrained(folder)
        transformers.GenerationConfig(**_generation(source_model)).save_pretrained(folder)
        _write_tokenizer(transformers, source_model, folder)
    text = README.format(
        extra=recipe.decode.max_extra,
        architecture=architecture,
        notes=source_model.notes("transformers", "num_beams=1", "max_new_tokens", "min_new_tokens"),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    # safetensors makes it readable for its owner only
    (folder / "model.safetensors").chmod((folder / "README.md").stat().st_mode)


def _configuration(source_model: SourceModel) -> dict[str, Any]:
    config, vocabulary = source_model.recipe.model, source_model.vocabulary
    values: dict[str, Any] = {
        **{theirs: getattr(config, ours) for ours, names in SIZES.items() for theirs in names.transformers},
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": config.max_positions,
        "scale_embedding": True,
        "tie_word_embeddings": config.tie_embeddings,
        **SYMBOLS,
        "dtype": "float32",
    }
    if config.residual == "post":
        vocab_sizes = {"vocab_size": vocabulary.source_size, "decoder_vocab_size": vocabulary.target_size}
        return {**values, **vocab_sizes, "share_encoder_decoder_embeddings": config.tie_embeddings}
    vocab_size = {"vocab_size": max(vocabulary.source_size, vocabulary.target_size)}
    return {**values, **vocab_size, **({"encoder_no_repeat_ngram_size": 0} if config.positions == "learned" else {})}


def _generation(source_model: SourceModel) -> dict[str, Any]:
    """Return the settings of `generate` nearest to our beam search. Its maximum length counts the end symbol."""
    recipe = source_model.recipe
    longest = min(recipe.data.max_length + recipe.decode.max_extra + 1, recipe.model.max_positions)
    return {
        "num_beams": recipe.decode.beam,
        # transformers refuses it with greedy search
        **({"length_penalty": source_model.length_penalty} if recipe.decode.beam > 1 else {}),
        "max_new_tokens": longest,
        "min_new_tokens": min(recipe.decode.min_length, longest - 1),
        "suppress_tokens": list(BANNED),
        **SYMBOLS,
    }


def _write_tokenizer(transformers: Any, source_model: SourceModel, folder: Path) -> None:
    """Write MarianTokenizer: SentencePiece splits the text, and the ids are ours."""
    vocabulary, data = source_model.vocabulary, source_model.recipe.data
    files = {"source_spm": folder / "source.spm", "target_spm": folder / "target.spm", "vocab": folder / "vocab.json"}
    files["source_spm"].write_bytes(vocabulary.source.model)
    files["target_spm"].write_bytes(vocabulary.target.model)
    _write_ids(files["vocab"], vocabulary.source.table)
    if not vocabulary.joint:
        files["target_vocab_file"] = folder / "target_vocab.json"
        _write_ids(files["target_vocab_file"], vocabulary.target.table)
    table = vocabulary.source.table
    transformers.MarianTokenizer(
        **{name: str(path) for name, path in files.items()},
        separate_vocabs=not vocabulary.joint,
        source_lang=data.source_language,
        target_lang=data.target_language,
        model_max_length=source_model.recipe.model.max_positions,
        unk_token=table[UNK],
        bos_token=table[BOS],
        eos_token=table[EOS],
        pad_token=table[PAD],
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def _write_ids(path: Path, table: list[str]) -> None:
    path.write_text(
        json.dumps({piece: index for index, piece in enumerate(table)}, ensure_ascii=False, indent=0) + "\n",
        encoding="utf-8",
    )


def _weights(source_model: SourceModel) -> dict[str, Array]:
    """Return every tensor of the model class, by its name in transformers."""
    model, config = source_model.model, source_model.recipe.model
    order, tensors = feature_order(config).numpy(), _embeddings(source_model)
    weights = {name: reordered(name, array, order) for name, array in source_model.weights.items()}
    if config.residual == "pre":  # Marian never stores its positions
        for side, positions in (("encoder", model.source_positions), ("decoder", model.target_positions)):
            rows = positions(config.max_positions).detach().numpy()
            tensors[f"model.{side}.embed_positions.weight"] = rows[:, order]
            for kind in ("weight", "bias"):
                tensors[f"model.{side}.layer_norm.{kind}"] = weights[f"{side}_norm.{kind}"]
    size = config.d_model // config.num_heads
    scale = np.float32((size / config.key_size) ** 0.5)  # transformers divides queries by sqrt(size)
    for place, parts in projections(weights, source_model.parameters, config.num_heads, size):
        for theirs, part in zip(place.transformers, parts, strict=True):
            tensors[f"model.{theirs}"] = part * scale if ".q_proj." in theirs else part
    return {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def _embeddings(source_model: SourceModel) -> dict[str, Array]:
    model, config, order = source_model.model, source_model.recipe.model, feature_order(source_model.recipe.model)
    source, target, output = (model.matrix(use).detach().numpy()[:, order] for use in ("source", "target", "output"))
    bias = np.zeros(len(output), np.float32) if model.output_bias is None else model.output_bias.detach().numpy()
    if config.tie_embeddings:
        return {"model.shared.weight": source, "final_logits_bias": bias[None]}
    shared = {}
    if config.residual == "pre":
        rows = max(len(source), len(target))
        source, target, output = (np.pad(one, ((0, rows - len(one)), (0, 0))) for one in (source, target, output))
        bias = np.pad(bias, (0, rows - len(bias)), constant_values=ABSENT)
        shared = {"model.shared.weight": source}  # it must exist, although nothing reads it
    names = {"model.encoder.embed_tokens": source, "model.decoder.embed_tokens": target, "lm_head": output}
    return {**{f"{name}.weight": array for name, array in names.items()}, **shared, "final_logits_bias": bias[None]}


EXPORTER = Exporter(check, write, HuggingFaceReader)
