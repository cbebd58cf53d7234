"""Import of Hugging Face's MarianMT: models of Marian's that were converted for transformers.

    config.json, model.safetensors, vocab.json, *.spm ──▶ Marian's names and layout ──▶ marian.py

Marian trained these models with its own positions, LayerNorm's 1e-6 and normalised text. transformers computes them
with other frequencies, 10000^(-2i / d), with 1e-5, and gives padding a probability. `--positions marian`, the default,
is what Marian would compute; `--positions huggingface` is what transformers computes. Its positions are the paper's in
another order of the features, so the features are reordered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..data.sentencepiece_model import is_tag, token_of
from ..data.tokenizer import BOS, PAD
from ..errors import ModelError, shown, shown_name
from ..model.parameters import parameters
from ..model.weights import read_forms
from ..recipe import Recipe
from ..storage.sealed_json import parse_json
from .importer import (
    LARGEST,
    Array,
    ForeignModel,
    Importer,
    ImportOptions,
    LazyArray,
    SourceFiles,
    known_section,
    languages,
)
from .layout import SIZES, place_of, reordered
from .marian import BIAS, EPSILON, LONGEST, OUTPUT, assembled, tags_in, with_rows
from .marian_files import decoding
from .marian_reference import MarianReader
from .preprocess import steps_in

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
LENGTH = "max_position_embeddings"
LARGEST_CONFIG = 1 << 20
"""Bytes of the largest file of settings."""
DTYPES = ("F32", "F16", "BF16", "F64")
SEARCH = (("num_beams", 1), ("length_penalty", 1.0))
"""The keys of the search, and their values in transformers where there are none."""
ACTIVATIONS = {"relu": "relu", "swish": "silu", "silu": "silu", "gelu": "gelu"}
EXPECTED: dict[str, tuple[object, ...]] = {
    "model_type": ("marian",),
    "scale_embedding": (True,),
    "normalize_before": (False,),
    "normalize_embedding": (False,),
    "add_final_layer_norm": (False,),
    "add_bias_logits": (False,),
    "static_position_embeddings": (True,),
    "is_encoder_decoder": (True,),
    "force_bos_token_to_be_generated": (False,),
    "tie_encoder_decoder": (False,),
}
COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
PLAIN = ("<pad>", "<unk>", "</s>")
TIES = ("share_encoder_decoder_embeddings", "tie_word_embeddings")
UNUSED = re.compile(
    r"_.*|architectures|.*dropout|.*layerdrop|.*init_std|dtype|torch_dtype|transformers_version|use_cache|num_hidden_layers"
    r"|(bos|eos|forced_eos|forced_bos|sep|unk)_token_id|bad_words_ids|max_length|min_length|id2label|label2id|num_labels"
    r"|classif\w+|gradient_checkpointing|extra_pos_embeddings|save_step|task_specific_params|problem_type|finetuning_task"
    r"|output_\w+|return_dict\w*|pruned_heads|tokenizer_class|prefix|chunk_size_feed_forward|is_decoder|torchscript"
    r"|add_cross_attention|cross_attention_hidden_size|use_bfloat16|tf_legacy_loss|early_stopping|do_sample|temperature"
    r"|top_k|top_p|typical_p|repetition_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|diversity_penalty"
    r"|num_beam_groups|num_return_sequences|remove_invalid_values|exponential_decay_length_penalty|suppress_tokens"
    r"|begin_suppress_tokens|name_or_path|renormalize_logits|max_new_tokens|min_new_tokens"
    r"|num_beams|length_penalty|share_encoder_decoder_embeddings|tie_word_embeddings|vocab_size|decoder_vocab_size"
    r"|pad_token_id|decoder_start_token_id"
)
"""Keys without effect on what the model computes, or on the search of nmt; those of the last two lines are read
elsewhere.
"""
WHOLE = {
    "shared.weight": "Wemb",
    "encoder.embed_tokens.weight": "encoder_Wemb",
    "decoder.embed_tokens.weight": "decoder_Wemb",
    "final_logits_bias": BIAS,
    "lm_head.weight": OUTPUT,
}
"""Marian's names of transformers' tensors that belong to no layer."""


def recognizes(files: SourceFiles) -> bool:
    """Return whether the files are a MarianMT model of transformers in safetensors."""
    return bool({WEIGHTS, INDEX} & set(files.names)) and model_type(files) == "marian"


def model_type(files: SourceFiles) -> str:
    """Return the type of a model of transformers, "" if the files are none. Raises ModelError for damaged JSON."""
    return str(_json(files, CONFIG).get("model_type") or "")


def read(files: SourceFiles, options: ImportOptions) -> ForeignModel:
    """Return the model of a folder of Hugging Face. Raises ModelError."""
    files.read(CONFIG, LARGEST_CONFIG)  # it must be there
    config = _json(files, CONFIG)
    if method := config.get("quantization_config"):
        raise ModelError(f"config.json says that the weights are quantized ({shown(method)}): take the original model.")
    as_there = options.positions == "huggingface"
    section = section_of(config, as_there)
    marian_names = names_in(section)  # before anything of these sizes is read
    names = ("vocab.json", "target_vocab.json" if "target_vocab.json" in files.names else "vocab.json")
    sides = [_vocabulary(files, name, _added(files)) for name in names]
    pad = sides[1]["<pad>"]
    for key in ("pad_token_id", "decoder_start_token_id"):
        if (found := config.get(key, 58100)) != pad:
            raise ModelError(f"config.json has {key} = {shown(found)}, and <pad> of the vocabulary is {pad}.")
    arrays, ties = marian_arrays(_tensors(files), config, (len(sides[0]), section["d_model"]), marian_names)
    # rows without a token, which fill a block
    more = sum(arrays[BIAS].shape[-1:]) - len(sides[1]) if BIAS in arrays else 0
    sides = [
        {token_of(piece.encode("utf-8", "surrogatepass")): number for piece, number in side.items() if piece != "<pad>"}
        for side in sides
    ]
    given = {**config, **_json(files, "generation_config.json")}
    decode = decoding({key: value for key, value in given.items() if value is not None}, *SEARCH)
    steps, _ = steps_in("" if as_there else "replace-unicode-punctuation.perl | remove-non-printing-char.perl")
    codes = languages(options, _languages(files), tags_in(sides))
    called = {marian: theirs for theirs, marian in marian_names.items()}
    foreign = assembled(
        files, codes, arrays, section, ties, sides, steps, decode, 1 + max(0, more), lambda name: called.get(name, name)
    )

    weights, reader = dict(foreign.weights), cast(MarianReader, foreign.reader)
    first = arrays["Wemb" if "Wemb" in arrays else "decoder_Wemb"].read()[pad].copy()
    output = arrays[OUTPUT].read()[pad].copy() if OUTPUT in arrays else first
    reader.start, bias = first, float(arrays[BIAS].read()[0, pad])
    foreign.recipe["model"]["zero_start"] = not first.any()
    changes: list[tuple[str, int, Any]] = [(f"embeddings.{use}", BOS, first) for use in ("shared", "target")]
    if as_there:
        changes += [(f"embeddings.{use}", PAD, output) for use in ("shared", "output")]
        changes.append(("output_bias", PAD, bias))
    for name, number, values in changes:
        if name in weights:
            weights[name] = weights[name].then(partial(with_rows, numbers=[number], values=values))
    remarks = [f"the last {more:,} rows of the embeddings belong to no token, and are left out"] if more > 0 else []
    if as_there:
        order = np.arange(section["d_model"]).reshape(2, -1).T.ravel()
        weights = {name: array.then(partial(reordered, name, order=order)) for name, array in weights.items()}
        reader.exponents, reader.padding, reader.features = "huggingface", (output, bias), order
        remarks += ["with the positions of transformers the model computes something else than what Marian trained"]
    return replace(foreign, toolkit="Hugging Face (MarianMT)", weights=weights, remarks=remarks)


def _json(files: SourceFiles, name: str, most: int = LARGEST_CONFIG) -> dict[str, Any]:
    return parse_json((files.text(name, most) or "{}").encode(), Path(name), ModelError, "Take the original file.")


def _tensors(files: SourceFiles) -> dict[str, LazyArray]:
    """Return the tensors of the weights file, which are read as fp32. Raises ModelError."""
    tensors: dict[str, LazyArray] = {}
    listed = {"": WEIGHTS} if WEIGHTS in files.names else _json(files, INDEX, LARGEST).get("weight_map")
    if not isinstance(listed, dict):
        raise ModelError(f"{INDEX} has no weight_map: expected the names of tensors, with the file of each.")
    for file in sorted(set(map(str, listed.values()))):
        path = files.unpacked(file)
        try:
            forms = read_forms(path)
        except ModelError as error:
            raise ModelError(f"{str(files.path)!r} cannot be read: {error}") from None
        for name, (dtype, shape) in forms.items():
            if dtype not in DTYPES:
                raise ModelError(
                    f"the tensor {shown(name)} has the dtype {shown_name(dtype)}, expected {' or '.join(DTYPES)}."
                )
            tensors[name] = LazyArray(shape, partial(_tensor, path, name))
    return tensors


def _tensor(path: Path, name: str) -> Array:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        array: Array = file.get_tensor(name).float().numpy()
        return array


def section_of(config: Mapping[str, Any], as_there: bool) -> dict[str, Any]:
    """Return the keys of [model] for a config.json. Raises ModelError."""
    same = {
        other: (config.get(one),)
        for one, *others in map(attrgetter("transformers"), SIZES.values())
        for other in others
    }
    sizes = {ours: theirs.transformers[0] for ours, theirs in SIZES.items()} | {"max_positions": LENGTH}
    config = {"model_type": "", LENGTH: 1024, "scale_embedding": False, **config}  # what is left out has these values
    known = known_section(CONFIG, config, sizes, "activation_function", ACTIVATIONS, {**EXPECTED, **same}, UNUSED)
    return {
        **known,
        "residual": "post",
        "norm_epsilon": 0.0 if as_there else EPSILON,
        "positions": "sinusoidal" if as_there else "marian",
        "output_bias": True,
        "max_positions": known["max_positions"] if as_there else 2 * LONGEST,
        "tie_embeddings": all(bool(config.get(key, True)) for key in TIES),
    }


def names_in(section: Mapping[str, Any]) -> dict[str, str]:
    """Return Marian's names of all tensors by those of transformers. Raises RecipeError for sizes that are wrong."""
    model = Recipe.from_dict({"data": {"generator": "teaching"}, "model": section}, CONFIG).model
    places = filter(None, map(place_of, parameters(model, (1, 1))))
    layers = {theirs: marian for one in places for theirs, marian in zip(one.transformers, one.marian, strict=True)}
    return {**WHOLE, **layers}


def marian_arrays(
    tensors: Mapping[str, LazyArray], config: Mapping[str, Any], embedding: tuple[int, int], names: Mapping[str, str]
) -> tuple[dict[str, LazyArray], dict[str, bool]]:
    """Return tensors of transformers under Marian's names and in its layout, and which embeddings are tied.

    `embedding`: the shape (V, D) of the source's; others are not compared. `names`: Marian's by those of transformers.

    Raises ModelError for a tensor that is not known.
    """
    tensors = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    shared, tied = (bool(config.get(key, True)) for key in TIES)
    if shared and not tied:  # then transformers does not tie the copies of the shared matrix either
        whole = tensors.get("shared.weight")
        copies = [tensors.get(f"{side}.embed_tokens.weight", whole) for side in ("encoder", "decoder")]
        shapes = {None if one is None else one.shape for one in copies}
        shared = copies[0] is copies[1] or (shapes == {embedding} and np.array_equal(*copies))  # type: ignore[arg-type]
        if shared and copies[1] is not None:
            tensors["shared.weight"] = copies[1]
    tied_to = dict.fromkeys(COPIES, "shared.weight") if shared else {}
    tied_to |= {"lm_head.weight": "shared.weight" if shared else COPIES[1]} if tied else {}
    if shared and (kept := [name for name in ("shared.weight", *tied_to) if name in tensors]):
        tensors["shared.weight"] = tensors[kept[0]]
    arrays: dict[str, LazyArray] = {}
    for name, tensor in tensors.items():
        if name.endswith("coder.embed_positions.weight"):
            continue  # computed from the sizes
        if name in tied_to and (of := tensors.get(tied_to[name])):
            if of.shape != tensor.shape or not np.array_equal(of, tensor):
                raise ModelError(
                    f"config.json ties {name} to {tied_to[name]}, and the file has other numbers for each: set "
                    f"{' or '.join(TIES)} to false if they are meant to differ."
                )
            continue
        if name == "shared.weight" and not shared:
            continue
        if name not in names:
            raise ModelError(f"the weights have a tensor that nmt does not know: {shown(name)}.")
        if name not in WHOLE:
            matrix = len(tensor.shape) == 2
            tensor = tensor.T if matrix else tensor.then(np.atleast_2d, (1, *tensor.shape))
        arrays[names[name]] = tensor
    return arrays, {"tied-embeddings-all": shared and tied, "tied-embeddings-src": shared, "tied-embeddings": tied}


def _added(files: SourceFiles) -> dict[str, Any]:
    """Return the tokens that were added to the vocabulary, which must be tags of languages. Raises ModelError."""
    added = _json(files, "added_tokens.json", LARGEST)
    if wrong := [token for token in added if not is_tag(token) and token not in PLAIN]:
        raise ModelError(
            f"added_tokens.json has the token {shown(wrong[0])}, which transformers finds in a text before "
            "SentencePiece divides it, and nmt does not: expected only tags of languages, such as '>>deu<<'."
        )
    return added


def _vocabulary(files: SourceFiles, name: str, added: Mapping[str, Any]) -> dict[str, int]:
    files.read(name)  # it must be there
    ids = {**_json(files, name, LARGEST), **added}
    if not all(isinstance(number, int) for number in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise ModelError(
            f"{shown_name(name)} is not a vocabulary: expected pieces with the numbers from 0 on, each once."
        )
    if not {"<pad>", "</s>", "<unk>"} <= ids.keys():
        raise ModelError(f"{shown_name(name)} lacks <pad>, </s> or <unk>.")
    return ids


def _languages(files: SourceFiles) -> tuple[str, str]:
    """Return the languages in tokenizer_config.json or in the folder's name, such as opus-mt-en-de."""
    config = _json(files, "tokenizer_config.json")
    source, target = files.languages
    return str(config.get("source_lang") or source), str(config.get("target_lang") or target)


IMPORTER = Importer(recognizes, read)
