"""Marian's transformer, as OPUS-MT publishes it: import into a model folder, and export back.

    arrays by Marian's names ◀── `marian_names` ──▶ arrays by the names of a model folder

Marian multiplies x W, torch x W^T: matrices are transposed. Projections that read the same input are one matrix here.
The output projection has a bias. The decoder's first input is a zero vector. Positions are [sines | cosines] with
frequencies 10000^(-i / (d / 2 - 1)). LayerNorm adds 1e-6. So a model has the recipe's values `positions = "marian"`,
`output_bias`, `zero_start` and `norm_epsilon`.

Marian's vocabulary has </s> and <unk>, and no padding or begin symbol: these get rows of zeros, and no probability.

    V vocabulary   D d_model
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..data.sentencepiece_model import SPECIALS, is_tag, with_pieces
from ..data.tokenizer import BOS, EOS, PAD, UNK, files_of
from ..errors import ModelError, UsageError, shown, shown_name
from ..model.parameters import SCALES, Parameter, parameters
from ..model.transformer import NO_PROBABILITY
from ..recipe import ModelSection, Recipe
from . import firefox
from .exporter import Exporter, Reader, SourceModel, check_form
from .importer import (
    FP32,
    Array,
    ForeignModel,
    Importer,
    ImportOptions,
    LazyArray,
    SourceFiles,
    known_section,
    languages,
    rows,
)
from .layout import SIZES, place_of
from .marian_files import CONFIG, decoding, vocabulary_in, weights_in
from .marian_reference import MarianReader
from .marian_yaml import settings, vocabulary_text
from .preprocess import LARGEST_SCRIPT, Step, preprocess_script, replacements_in, steps_in

LONGEST = 512
"""Tokens of a line that an imported model reads at once; Marian itself has no limit."""
INT8 = np.dtype(np.int8)
LONGEST_PIECE = 256
"""Characters of the longest token; SentencePiece's have 16 by default."""
EPSILON = 1e-6
BIAS, OUTPUT, EARLIER_OUTPUT = "decoder_ff_logit_out_b", "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"
ACTIVATIONS = {"relu": "relu", "swish": "silu", "gelu": "gelu"}
"""Marian's names of our activations."""
ACTIVATION, GUIDED = "transformer-ffn-activation", "transformer-guided-alignment-layer"
TIES = ("tied-embeddings", "tied-embeddings-all", "tied-embeddings-src")
CHECKPOINT = re.compile(r"\.(best-[^.]+|iter\d+)\.npz$|(?<=model)\.iter\d+(?=\.npz)")
"""The end of the name of a model that a training keeps beside its last one."""
OFF = (
    *("transformer-train-position-embeddings", "transformer-disable-position-embeddings", "transformer-no-affine"),
    *("transformer-no-bias", "transformer-no-projection", "transformer-pool", "transformer-rnn-projection"),
    *("transformer-alibi-trainable", "output-omit-bias", "right-left", "ulr", "embedding-normalization"),
)
"""Options that are false."""
EXPECTED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-preprocess": ("",),  # not "n": Marian trains pre-norm models as one function and decodes another
    "transformer-postprocess": ("dan",),
    "transformer-postprocess-top": ("",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-ffn-depth": ("2",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-attention-mask": ("default",),
    "input-types": ([], ["sequence", "sequence"]),
    "lemma-dim-emb": ("0",),
    "factors-dim-emb": ("0",),
    **dict.fromkeys(OFF, ("false",)),
}
"""Options that other values would change into a model that nmt does not have."""
UNUSED = re.compile(
    r"(bert|char|dec-cell|enc-cell|lemma-dependency|separator-symbol|transformer-aan|ulr|factors-combine|transformer-alibi)"
    r".*|enc-type|dim-rnn|layer-normalization|skip|transformer-dim-aan|transformer-guided-alignment-layer|version"
    r"|tied-embeddings(-all|-src)?|dim-vocabs|transformer-tied-layers|transformer-depth-scaling"
)
"""Options without effect on a transformer with the EXPECTED ones, and (the last ones) those that are read elsewhere."""


def marian_names(
    table: Mapping[str, Parameter], ties: Mapping[str, bool], output: str = OUTPUT
) -> dict[str, list[str]]:
    """Return for each parameter of a model folder the arrays of Marian's that are in it. `output`: the name of an
    output matrix of its own; in earlier versions of Marian it ends in _W, and is transposed.
    """
    shared = ties["tied-embeddings-all"] or ties["tied-embeddings-src"]
    source, target = ("Wemb", "Wemb") if shared else ("encoder_Wemb", "decoder_Wemb")
    tied_output = ties["tied-embeddings"] or ties["tied-embeddings-all"]
    whole = {
        "embeddings.shared": target,
        "embeddings.source": source,
        "embeddings.target": target,
        "embeddings.output": target if tied_output else output,
        "output_bias": BIAS,
    }
    is_ssru = any(".ssru." in name for name in table)

    def names(ours: str) -> list[str]:
        theirs = place.marian if (place := place_of(ours)) else [whole[ours]]
        return [re.sub("(decoder_l.*)_self_Wo", r"\1_rnn_ffn", one) if is_ssru else one for one in theirs]

    return {ours: names(ours) for ours in table}


def section_of(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
    """Return the keys of [model] for Marian's options, and which embeddings are tied. Raises ModelError."""
    is_ssru = config.get("transformer-decoder-autoreg") == "rnn" and config.get("dec-cell") == "ssru"
    expected = {
        **EXPECTED,
        "transformer-decoder-autoreg": ("rnn" if is_ssru else "self-attention",),
        "transformer-decoder-dim-ffn": ("0", config.get(SIZES["d_ff"].marian)),
    }
    sizes = {ours: theirs.marian for ours, theirs in SIZES.items()}
    known = known_section("the model", config, sizes, ACTIVATION, ACTIVATIONS, expected, UNUSED)
    ties = {key: config.get(key, "false") == "true" for key in TIES}
    section = {
        **known,
        "decoder": "ssru" if is_ssru else "self_attention",
        "residual": "post",
        "norm_epsilon": EPSILON,
        "positions": "marian",
        "output_bias": True,
        "zero_start": True,
        "tie_embeddings": ties["tied-embeddings-all"] or (ties["tied-embeddings"] and ties["tied-embeddings-src"]),
    }
    return section, ties


@dataclass(frozen=True)
class Ids:
    """A vocabulary of Marian's in our order: padding and begin symbol first, then <unk> and </s>, then the others."""

    table: list[str]
    order: Array
    """(V,): Marian's id of each token; -1: it has none."""
    size: int
    """Number of rows of a matrix with a row for each of Marian's ids."""

    @classmethod
    def of(cls, ids: Mapping[str, int], unused: int = 0) -> Ids:
        """`unused`: number of Marian's ids that no piece has."""
        others = [piece for piece in sorted(ids, key=lambda piece: ids[piece]) if piece not in SPECIALS]
        table = [*SPECIALS, *others]
        order = np.array([ids[piece] if number not in (PAD, BOS) else -1 for number, piece in enumerate(table)])
        if "" in ids:
            raise ModelError("the vocabulary has a token without a text, which SentencePiece does not allow.")
        if len(longest := max(others, key=len, default="")) > LONGEST_PIECE:
            raise ModelError(
                f"the vocabulary has the token {shown(longest)} of {len(longest):,} characters, expected at most "
                f"{LONGEST_PIECE}."
            )
        return cls(table, order, len(ids) + unused)


def converted(
    arrays: Mapping[str, LazyArray],
    config: ModelSection,
    ties: Mapping[str, bool],
    ids: Mapping[str, Ids],
    called: Callable[[str], str] = str,
) -> dict[str, LazyArray]:
    """Return the arrays of a model folder. `ids` are those of "source" and "target". `called` returns the name of an
    array in the user's files.

    Raises ModelError for an array that is missing, has a wrong shape, or is not used; reading raises it for numbers
    that are not finite.
    """
    taken, result = set(), {}
    table = parameters(config, (len(ids["source"].table), len(ids["target"].table)))
    output = EARLIER_OUTPUT if EARLIER_OUTPUT in arrays else OUTPUT
    for ours, theirs in marian_names(table, ties, output).items():
        parameter, parts = table[ours], []
        for name in theirs:
            if name not in arrays:
                raise ModelError(f"the weights lack {called(name)}.")
            taken.add(name)
            side = ids.get(parameter.vocabulary)
            part = _part(arrays[name], name, parameter, len(theirs), side.size if side else 0, called)
            part = part.then(partial(finite, called(name)))
            parts.append(part.then(partial(rows, order=side.order)) if side else part)
        dtype = INT8 if all(part.dtype == INT8 for part in parts) else FP32
        result[ours] = LazyArray(parameter.shape, partial(_joined, parts, dtype), dtype)
    result["output_bias"] = result["output_bias"].then(partial(with_rows, numbers=[PAD, BOS], values=NO_PROBABILITY))
    if left := sorted(arrays.keys() - taken):
        raise ModelError(
            f"the weights have {len(left)} arrays that nmt does not know, the first is {shown(called(left[0]))}."
        )
    return result


def _joined(parts: Sequence[LazyArray], dtype: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(np.concatenate([part.read() for part in parts]), dtype)


def integers_in(
    arrays: Mapping[str, LazyArray], convert: Callable[[Mapping[str, LazyArray]], dict[str, LazyArray]]
) -> dict[str, LazyArray]:
    """Return the integers and scales of an int8 folder that are the file's own; {} if it has none, or wider ones.

    `convert` is `converted`. It moves rows and columns, so it also moves those of integers, and of their scales.
    """
    stored = {name: array.integers for name, array in arrays.items() if array.integers}
    if not stored or any(one.array.dtype != INT8 for one in stored.values()):
        return {}
    integers = convert({**arrays, **{name: one.array for name, one in stored.items()}})
    of_each = {
        name: LazyArray(one.array.shape, partial(np.broadcast_to, one.scale, one.array.shape))
        for name, one in stored.items()
    }
    scales = convert({**arrays, **of_each})
    kept = {name: array for name, array in integers.items() if array.dtype == INT8}
    return kept | {
        name.removesuffix(".weight") + SCALES: scales[name].then(lambda rows: rows[:, 0], array.shape[:1])
        for name, array in kept.items()
    }


def finite(name: str, array: Array) -> Array:
    """Return the array. Raises ModelError for a number that is not finite."""
    if not np.isfinite(array).all():
        raise ModelError(f"{shown_name(name)} has numbers that are not finite.")
    return array


def with_rows(array: Array, numbers: Sequence[int], values: Any) -> Array:
    """Return an array, which changes, with `values` in the rows `numbers`."""
    array[numbers] = values
    return array


def _part(
    array: LazyArray, name: str, parameter: Parameter, parts: int, tokens: int, called: Callable[[str], str]
) -> LazyArray:
    """Return an array of Marian's in our layout, one of the `parts` of a parameter. Raises ModelError."""
    own = (tokens or parameter.shape[0] // parts, *parameter.shape[1:])
    turned = len(own) == 2 and (not parameter.vocabulary or name == EARLIER_OUTPUT)
    expected = own[::-1] if turned else own if len(own) == 2 else (1, *own)
    if tokens and len(array.shape) == 2 and (found := array.shape[expected.index(tokens)]) != tokens:
        raise ModelError(
            f"{called(name)} has {found:,} tokens, and the {parameter.vocabulary} vocabulary {tokens:,}: take the "
            "vocabulary with which the weights were trained."
        )
    if array.shape not in (expected, *([own] if len(own) == 1 else [])):
        raise ModelError(f"{called(name)} has the shape {array.shape}, expected {expected}.")
    return array.T if turned else array.then(partial(np.reshape, shape=own), own)


def recognizes(files: SourceFiles) -> bool:
    """Return whether the files have models of Marian's."""
    return bool(_weights(files) or _model_name(files))


def _weights(files: SourceFiles) -> list[str]:
    """Return the names of the models, without the optimizer's numbers that a training leaves."""
    trained = [name for name in files.ending(".npz") if not name.endswith(".optimizer.npz")]
    return trained or firefox.models(files)


def _model_name(files: SourceFiles) -> str:
    """Return the name of the model, "" if none or several could be meant.

    Of a training's, it is the last one, not a checkpoint or the best one so far.
    """
    if _is_model(files.given):
        return files.given
    listed = _names(_settings(files, "decoder.yml"), "models")
    if listed and listed[0] in files.names:
        return listed[0]
    found = _weights(files)
    last = [name for name in found if not CHECKPOINT.search(name)]
    return found[0] if len(found) == 1 else last[0] if len(last) == 1 else ""


def _is_model(name: str) -> bool:
    """Return whether this is the name of a file as Marian saves models."""
    return name.endswith((".npz", ".bin")) and name != "pytorch_model.bin"


def _members(files: SourceFiles) -> list[str]:
    """Return the names of the models of decoder.yml if they are an ensemble, see `Importer`. Raises ModelError."""
    decoder = {} if _is_model(files.given) else _settings(files, "decoder.yml")
    names, weights = _names(decoder, "models"), _names(decoder, "weights")
    if len(names) < 2:
        return []
    where, penalty = f"decoder.yml names {len(names)} models, an ensemble,", decoder.get("word-penalty", "0")
    if len({*filter(_is_model, names)} & {*files.names}) < len(names):
        raise ModelError(
            f"{where} and not all are .npz or .bin files beside it: import each by its path, "
            f"{shown(decoder['models'][:6])}, and give nmt translate a --model for each."
        )
    if len({*weights}) > 1:
        raise ModelError(f"{where} with the weights {shown(weights[:6])}: nmt has ensembles of equal weights.")
    if penalty not in ("0", "0.0"):
        raise ModelError(
            f"{where} and word-penalty = {shown(penalty)}, which counts beside the sum of their log-probabilities: set "
            "it to 0, and give nmt translate --word-penalty, divided by their number."
        )
    return names


def _settings(files: SourceFiles, name: str) -> dict[str, Any]:
    """Return the values of a .yml, which may be missing. Raises ModelError."""
    return settings(files.text(name), name)


def _names(decoder: Mapping[str, Any], key: str) -> list[str]:
    """Return the names of the files under a key of decoder.yml, without folders."""
    names = decoder.get(key) or []
    names = [names] if isinstance(names, str) else names
    return [re.split(r"[/\\]", name)[-1] for name in names]


def _vocabularies(files: SourceFiles, name: str, decoder: Mapping[str, Any]) -> list[str]:
    """Return the names of the vocabularies of source and target: those of decoder.yml, of the training's settings, or
    with a usual name. Raises ModelError if there is none.
    """
    training = _settings(files, f"{CHECKPOINT.sub('', name)}.yml")
    usual = files.ending("vocab.yml", "vocab.json", ".vocab") or files.ending("vocab.spm")
    listed = _names(decoder, "vocabs") or _names(training, "vocabs") or usual or firefox.vocabularies(files)
    if not listed:
        raise ModelError(
            f"{str(files.path)!r} has no vocabulary: expected decoder.yml, which names it, or *.vocab.yml, *.vocab or "
            "*vocab.spm, or Firefox's vocab.*.spm."
        )
    return [listed[0], listed[-1]]


def read(files: SourceFiles, options: ImportOptions) -> ForeignModel:
    """Return the model of an OPUS-MT zip or folder, or of the folder of a training. Raises ModelError, UsageError."""
    if options.positions == "huggingface":
        raise UsageError("--positions huggingface is for models of Hugging Face: those of Marian have its positions.")
    name, found = _model_name(files), _weights(files)
    if not name:
        raise ModelError(
            f"{str(files.path)!r} has several models: give the path of one of them, such as {shown(found[0])}; of an "
            "archive, unpack it first."
            if found
            else f"{str(files.path)!r} has no model of Marian's: expected *.npz."
        )
    usual = (f"{name}.decoder.yml", "decoder.yml", firefox.one_like(files, firefox.DECODER))
    decoder = next(filter(None, (_settings(files, one) for one in usual)), {})
    arrays, config = weights_in(files, name)
    section, ties = section_of(config)
    arrays = untied(arrays, config.get("transformer-tied-layers") or [], section)
    names = _vocabularies(files, name, decoder)
    own = [one if one.endswith(".spm") else "" for one in names]
    if files.ending(".bpe", "bpecodes") and not own[0] and "source.spm" not in files.names:
        raise ModelError(
            "the model reads BPE codes of subword-nmt, which nmt does not have: take a model with SentencePiece."
        )
    most = max((size for array in arrays.values() for size in array.shape), default=0)
    by_name = {name: vocabulary_in(files, name, most) for name in {*names}}
    sides = [by_name[one] for one in names]
    if sides[0] != sides[1] and section["tie_embeddings"]:
        raise ModelError("the embeddings are tied, and source and target have two vocabularies.")
    steps, left_out = steps_in(files.text("preprocess.sh", LARGEST_SCRIPT), options.skip_step)
    is_firefox = firefox.recognizes(files, name)
    decode = decoding(decoder, ("beam-size", 1 if is_firefox else 12), ("normalize", 0), ("word-penalty", 0))
    if is_firefox or firefox.LENGTH in decoder:
        decode |= firefox.limit(decoder)
    if is_firefox:
        decode |= firefox.DECODE
    training = _settings(files, f"{CHECKPOINT.sub('', name)}.yml")
    is_guided = is_firefox or training.get("guided-alignment", "none") != "none"
    section |= {"guided_alignment_layer": guided_layer(config, section["decoder_layers"], is_guided)}
    named = (_languages_in(files.about("README.md")), firefox.languages_of(files, name), files.languages)
    source, target = (next(filter(None, codes), "") for codes in zip(*named, strict=True))
    codes = languages(options, (source, target), tags_in(sides))
    foreign = assembled(files, codes, arrays, section, ties, sides, steps, decode, own=own)
    remarks = [f"it was trained on text after {one}, a step of preprocess.sh that is left out" for one in left_out]
    if len(found) > 1 and not files.given:
        remarks.append(f"it is {name}, one of {len(found)} models that lie there")
    return replace(foreign, remarks=[*remarks, *firefox.remarks(files), *foreign.remarks])


def guided_layer(config: Mapping[str, Any], layers: int, is_guided: bool) -> int:
    """Return the decoder layer whose first head was trained to align words; 0 if there was no such training.

    `is_guided`: whether there was, if Marian's option has its usual value. Raises ModelError.
    """
    named = config.get(GUIDED, "last")
    if named == "last":
        return layers if is_guided else 0
    if not re.fullmatch(r"0*\d{1,4}", str(named)) or not 1 <= int(named) <= layers:
        raise ModelError(f"the model has {GUIDED} = {shown(named)}, expected last or a layer from 1 to {layers}.")
    return int(named)


def untied(arrays: Mapping[str, LazyArray], tied: Sequence[str], section: Mapping[str, Any]) -> dict[str, LazyArray]:
    """Return the arrays with those of every layer of the decoder. `tied`: the layer that each one has its arrays from,
    if it is not empty. Raises ModelError.
    """
    if not tied:
        return dict(arrays)
    if len(tied) != section["decoder_layers"]:
        raise ModelError(f"the model has transformer-tied-layers = {shown(tied)}, expected one for each layer.")
    of_layer = re.compile(r"decoder_l(\d+)(_.*)")
    found = {name: of_layer.fullmatch(name) for name in arrays}
    layers = {name: array for name, array in arrays.items() if not found[name]}
    for name, place in found.items():
        for layer in [number for number, one in enumerate(tied, 1) if place and one == place[1]]:
            layers[f"decoder_l{layer}{place[2] if place else ''}"] = arrays[name]
    return layers


def tags_in(sides: Sequence[Mapping[str, int]]) -> list[str]:
    """Return the codes of the target languages that have a tag in the source's vocabulary."""
    return [piece[2:-2] for piece in sorted(sides[0], key=lambda piece: sides[0][piece]) if is_tag(piece)]


def data_of(
    origin: str, codes: Sequence[str], sizes: tuple[int, int], joint: bool, separate: bool, positions: int
) -> dict[str, Any]:
    """Return the keys of [data] of an imported model.

    `separate`: whether each side has a tokenizer of its own, over one vocabulary.
    """
    return {
        "source_language": codes[0],
        "target_language": codes[1],
        "train_source": [origin],
        "train_target": [origin],
        "tokenizer": origin,
        "joint_vocab": joint,
        "separate_tokenizers": separate,
        "vocab_size": sizes[0],
        "max_length": min(LONGEST, positions - 1),
        **({} if joint else {"target_vocab_size": sizes[1]}),
    }


def assembled(
    files: SourceFiles,
    codes: tuple[str, str],
    arrays: Mapping[str, LazyArray],
    section: Mapping[str, Any],
    ties: Mapping[str, bool],
    sides: Sequence[Mapping[str, int]],
    steps: Sequence[Step],
    decode: Mapping[str, Any],
    unused: int = 0,
    called: Callable[[str], str] = str,
    own: Sequence[str] = ("", ""),
) -> ForeignModel:
    """Return the model of Marian's arrays and options. `unused`: see `Ids.of`; `called`: see `converted`; `own`: the
    names of the SentencePiece models of source and target, if their own ids are Marian's.

    `sides`: piece → id, of source and target; `codes`: of their languages. Raises ModelError.
    """
    ids = {side: Ids.of(of_side, unused) for side, of_side in zip(("source", "target"), sides, strict=True)}
    joint, origin = sides[0] == sides[1], files.path.name
    sizes = len(ids["source"].table), len(ids["target"].table)
    models = [files.read(name or f"{side}.spm") for side, name in zip(ids, own, strict=True)]
    tokenizers = tokenizers_of(models, ids, steps)
    separate = joint and len(tokenizers) > 1
    data = data_of(origin, codes, sizes, joint, separate, section.get("max_positions", 2 * LONGEST))
    recipe = {"data": data, "model": dict(section), "decode": dict(decode)}
    model = Recipe.from_dict(recipe, f"the configuration of {shown_name(origin)}").model
    convert = partial(converted, config=model, ties=ties, ids=ids, called=called)
    orders = {side: one.order for side, one in ids.items()}
    integers = integers_in(arrays, convert)
    others = [name for name, one in parameters(model, sizes).items() if one.in_int8 and name not in integers]
    rounded = f"{others[0]}, which the file has in fp32, is rounded to int8" if integers and others else ""
    return ForeignModel(
        toolkit="Marian",
        recipe=recipe,
        weights=convert(arrays),
        integers=integers,
        remarks=[rounded] * bool(rounded),
        vocabularies=sizes,
        tokenizers=tokenizers,
        reader=MarianReader(arrays, section, ties, orders, models, sides, steps, [*map(bool, own)]),
        tags=tags_in(sides),
        license=license_in(files.about("LICENSE"), files.about("README.md")),
    )


def tokenizers_of(models: Sequence[bytes], ids: Mapping[str, Ids], steps: Sequence[Step]) -> dict[str, bytes]:
    """Return the tokenizer files of a model folder. `models`: SentencePiece's of both sides. Raises ModelError."""
    import sentencepiece

    replacements, controls = replacements_in(steps)
    extensions: list[dict[str, Any]] = [{"replacements": replacements, "controls": controls}, {}]
    written = []
    for side, model, extension in zip(ids, models, extensions, strict=True):
        try:
            sentencepiece.SentencePieceProcessor(model_proto=model)
            written.append(with_pieces(model, ids[side].table, extension))
        except (ValueError, KeyError, AttributeError, TypeError, RuntimeError) as error:
            raise ModelError(f"{side}.spm is not a SentencePiece model, or a damaged one ({error}).") from None
    return files_of(*written)


def _languages_in(about: str) -> tuple[str, str]:
    """Return the languages that OPUS-MT's README names, "" where it names none or several."""
    codes = []
    for side in ("source", "target"):
        found = re.search(rf"^\* {side} language(?:\(s\)|s)?: (.*)$", about, re.MULTILINE)
        named = re.split(r"[\s,]+", found[1].strip()) if found else []
        codes.append(named[0] if len(named) == 1 else "mul" if named else "")
    return codes[0], codes[1]


def license_in(text: str, about: str) -> str:
    """Return the licence that the files name, without its middle if it is long."""
    named = re.search(r"^license: *(\S.*)$", about, re.MULTILINE)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return shown_name(named[1].strip() if named else first)


IMPORTER = Importer(recognizes, read, _members)


# Export


def check(source_model: SourceModel) -> None:
    """Raise ModelError if Marian cannot express the model."""
    config = source_model.recipe.model
    trained = "Export imported models, and those trained from them or with these values."
    check_form(
        config,
        "Marian",
        trained,
        positions=["marian"],
        output_bias=[True],
        zero_start=[True],
        norm=["layer"],
        residual=["post"],
        norm_epsilon=[EPSILON],
        activation=[*ACTIVATIONS.values()],
        decoder=["self_attention", "ssru"],
    )
    if {config.key_size, config.value_size} != {config.d_model // config.num_heads}:
        raise ModelError(
            f"the heads have {config.key_size} and {config.value_size} numbers: Marian's have d_model / num_heads."
        )
    preprocess_script(source_model.vocabulary.source.extension)


def write(source_model: SourceModel, folder: Path) -> None:
    """Write model.npz, the vocabularies, the SentencePiece models, decoder.yml and a README. Raises OSError."""
    config, vocabulary = source_model.recipe.model, source_model.vocabulary
    tables = {"source": vocabulary.source.table, "target": vocabulary.target.table}
    ties = ties_of(config, source_model.weights)
    arrays = marian_layout(source_model, ties, tables)
    options = marian_options(config, [len(table) - 2 for table in tables.values()], ties)
    text = "".join(f"{key}: {value}\n" for key, value in options.items())
    arrays[CONFIG] = np.frombuffer(text.encode() + b"\0", np.int8)
    with (folder / "model.npz").open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    joint = tables["source"] == tables["target"]
    names = dict.fromkeys(tables, "vocab.yml") if joint else {side: f"{side}.vocab.yml" for side in tables}
    for side, name in names.items():
        (folder / name).write_bytes(vocabulary_text([tables[side][number] for number in marian_rows(tables[side])]))
    for side, tokenizer in (("source", vocabulary.source), ("target", vocabulary.target)):
        (folder / f"{side}.spm").write_bytes(tokenizer.model)
    if vocabulary.source.extension.replacements or vocabulary.source.extension.controls:
        (folder / "preprocess.sh").write_text(preprocess_script(vocabulary.source.extension), encoding="utf-8")
    decode = source_model.recipe.decode
    (folder / "decoder.yml").write_text(
        "relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n"
        + "".join(f"  - {name}\n" for name in names.values())
        + f"beam-size: {decode.beam}\nnormalize: {source_model.length_penalty:g}\n"
        f"word-penalty: {decode.word_penalty}\n"
        + (f"{firefox.LENGTH}: {decode.max_len_ratio:g}\n" if decode.max_len_ratio > 1 else ""),
        encoding="utf-8",
    )
    (folder / "README.md").write_text(README.format(vocab=" ".join(names.values())), encoding="utf-8")


README = """\
# A translation model for Marian

Written by `nmt export` and verified: it computes the same as the model that it comes from.

    spm_encode --model source.spm < input | marian-decoder -c decoder.yml | spm_decode --model target.spm

If there is a preprocess.sh, it comes before spm_encode. The vocabularies are {vocab}.
"""


def marian_layout(
    source_model: SourceModel, ties: Mapping[str, bool], tables: Mapping[str, Sequence[str]]
) -> dict[str, Array]:
    """Return the parameters under Marian's names and in its layout: the inverse of `converted`."""
    arrays: dict[str, Array] = {}
    table, weights = source_model.parameters, source_model.weights
    for ours, theirs in marian_names(table, ties).items():
        array, side = weights[ours], table[ours].vocabulary
        if side:
            array = array[marian_rows(tables[side])]
        for name, part in zip(theirs, np.split(array, len(theirs)), strict=True):
            arrays[name] = np.ascontiguousarray(part[None] if part.ndim == 1 else part if side else part.T)
    return arrays


def marian_rows(table: Sequence[str]) -> Array:
    """Return our id of each token of Marian's vocabulary: </s> and <unk> first, then ours in their order."""
    return np.array([EOS, UNK, *range(len(SPECIALS), len(table))])


def ties_of(config: ModelSection, weights: Mapping[str, Array]) -> dict[str, bool]:
    """Return which embeddings are tied in Marian's terms."""
    untied = not config.tie_embeddings and not np.array_equal(
        weights["embeddings.target"], weights["embeddings.output"]
    )
    return {
        "tied-embeddings": not config.tie_embeddings and not untied,
        "tied-embeddings-all": config.tie_embeddings,
        "tied-embeddings-src": False,
    }


def marian_options(config: ModelSection, sizes: Sequence[int], ties: Mapping[str, bool]) -> dict[str, Any]:
    """Return Marian's options for a [model]: the inverse of `section_of`. `sizes`: tokens of both vocabularies."""
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    return {
        "version": f"nmt {__version__}",
        "dim-vocabs": list(sizes),
        ACTIVATION: activation,
        **{theirs.marian: getattr(config, ours) for ours, theirs in SIZES.items()},
        **{key: values[0] or json.dumps(values[0]) for key, values in EXPECTED.items()},
        **({"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"} if config.decoder == "ssru" else {}),
        "transformer-decoder-dim-ffn": 0,
        GUIDED: config.guided_alignment_layer or "last",
        "transformer-tied-layers": "[]",
        "factors-combine": "sum",
        **{key: str(tied).lower() for key, tied in ties.items()},
    }


def load_exported(folder: Path) -> Reader:
    """Import the folder: Marian itself is no package that every machine has."""
    return read(SourceFiles(folder), ImportOptions("en", "de")).reader


EXPORTER = Exporter(check, write, load_exported)
