"""Marian's transformer, as OPUS-MT publishes it: import into a model folder, and export back.

    arrays by Marian's names ◀── `matches` ──▶ arrays by the names of a model folder

Marian multiplies x W, torch x W^T: matrices are transposed. Projections that read the same input are one matrix here.
The output projection has a bias. The decoder's first input is a zero vector. Positions are [sines | cosines] with
frequencies 10000^(-i / (d / 2 - 1)). LayerNorm adds 1e-6. So a model has the recipe's values `positions = "marian"`,
`output_bias`, `zero_start` and `norm_epsilon`.

Marian's vocabulary has </s> and <unk>, and no padding or begin symbol: these get rows of zeros, and no probability.

    V vocabulary   D d_model
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.sentencepiece_model import SPECIALS, with_pieces
from ..data.tokenizer import BOS, PAD, SOURCE_FILE, TARGET_FILE
from ..errors import ModelError, shown, shown_name
from ..model.transformer import NO_PROBABILITY
from ..recipe import ModelSection
from .importer import Array, ForeignModel, Importer, ImportOptions, SourceFiles, languages, rows, tags_of
from .marian_files import decoding_in, replacements_in, vocabulary_in, weights_in, yaml_values
from .marian_reference import MarianReader

LONGEST = 512
"""Tokens of a line that an imported model reads at once; Marian itself has no limit."""
EPSILON = 1e-6
EARLIER_OUTPUT = "decoder_ff_logit_out_W"
ACTIVATIONS = {"relu": "relu", "swish": "silu"}
"""Marian's names of our activations. Its gelu is another function."""
RESIDUALS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}
"""transformer-preprocess, -postprocess and -postprocess-top → model.residual."""
SIZES = ("dim-emb", "dim-vocabs", "enc-depth", "dec-depth", "transformer-heads", "transformer-dim-ffn")
FORM = (
    "transformer-ffn-activation",
    "transformer-preprocess",
    "transformer-postprocess",
    "transformer-postprocess-top",
)
TIES = ("tied-embeddings", "tied-embeddings-all", "tied-embeddings-src")
EXPECTED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-ffn-depth": ("2",),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-tied-layers": ([],),
    "transformer-attention-mask": ("default",),
    "input-types": ([], ["sequence", "sequence"]),
    "lemma-dim-emb": ("0",),
    "factors-dim-emb": ("0",),
    **dict.fromkeys(
        ("transformer-train-position-embeddings", "transformer-disable-position-embeddings", "transformer-no-affine")
        + ("transformer-no-bias", "transformer-no-projection", "transformer-pool", "transformer-rnn-projection")
        + ("transformer-alibi-trainable", "output-omit-bias", "right-left", "ulr", "embedding-normalization"),
        ("false",),
    ),
}
"""Options that other values would change into a model that nmt does not have."""
UNUSED = re.compile(
    r"(bert|char|dec-cell|enc-cell|lemma-dependency|separator-symbol|transformer-aan|ulr|factors-combine|transformer-alibi)"
    r".*|enc-type|dim-rnn|layer-normalization|skip|transformer-dim-aan|transformer-guided-alignment-layer|version"
)
"""Options without effect on a transformer with the EXPECTED ones."""


@dataclass(frozen=True)
class Match:
    """An array of a model folder, and the arrays of Marian's that are in it."""

    ours: str
    theirs: tuple[str, ...]
    side: str = ""
    """"source" or "target" for an array with a row per token; other matrices are transposed."""


def matches(config: ModelSection, ties: Mapping[str, bool], output: str = "decoder_ff_logit_out_Wt") -> Iterator[Match]:
    """Yield a match for each array of a model folder. `output`: the name of an output matrix of its own; in earlier
    versions of Marian it ends in _W, and is transposed.
    """
    table = {
        use: "Wemb" if ties["tied-embeddings-all"] or ties["tied-embeddings-src"] else f"{side}_Wemb"
        for use, side in (("source", "encoder"), ("target", "decoder"))
    }
    tied_output = ties["tied-embeddings"] or ties["tied-embeddings-all"]
    if config.tie_embeddings:
        yield Match("embeddings.shared", (table["target"],), "target")
    else:
        yield Match("embeddings.source", (table["source"],), "source")
        yield Match("embeddings.target", (table["target"],), "target")
        yield Match("embeddings.output", (table["target"] if tied_output else output,), "target")
    yield Match("output_bias", ("decoder_ff_logit_out_b",), "target")
    ending = "_pre" if config.residual == "pre" else ""
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            ours, theirs = f"{side}.{layer}.", f"{side}_l{layer + 1}_"
            maps = {
                "self_attention.query_key_value": ["self_%sq", "self_%sk", "self_%sv"],
                "self_attention.output": ["self_%so"],
            }
            norms = {"self_attention": "self_Wo"}
            if side == "decoder":
                maps |= {
                    "cross_attention.query": ["context_%sq"],
                    "cross_attention.key_value": ["context_%sk", "context_%sv"],
                }
                maps |= {"cross_attention.output": ["context_%so"]}
                norms |= {"cross_attention": "context_Wo"}
            maps |= {"feed_forward.inner": ["ffn_%s1"], "feed_forward.outer": ["ffn_%s2"]}
            norms |= {"feed_forward": "ffn_ffn"}
            for name, parts in maps.items():
                for ending_of, letter in (("weight", "W"), ("bias", "b")):
                    yield Match(f"{ours}{name}.{ending_of}", tuple(theirs + part % letter for part in parts))
            for name, norm in norms.items():
                for ending_of, letter in (("weight", "scale"), ("bias", "bias")):
                    yield Match(f"{ours}around_{name}.norm.{ending_of}", (f"{theirs}{norm}_ln_{letter}{ending}",))
        if config.residual == "pre":
            for ending_of, letter in (("weight", "scale"), ("bias", "bias")):
                yield Match(f"{side}_norm.{ending_of}", (f"{side}_top_ln_{letter}",))


def section_of(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
    """Return the keys of [model] for Marian's options, and which embeddings are tied. Raises ModelError."""
    for key, value in config.items():
        allowed = EXPECTED.get(key)
        if allowed is not None and value not in allowed and not UNUSED.fullmatch(key):
            what = (
                "an SSRU decoder"
                if "ssru" in str(config.get("dec-cell")) and value == "rnn"
                else f"{key} = {shown(value)}"
            )
            raise ModelError(f"the model has {what}, which nmt does not have: it has {key} = {shown(allowed[0])}.")
        known = key in SIZES or key in FORM or key in TIES or key in EXPECTED or key == "transformer-decoder-dim-ffn"
        if not known and not UNUSED.fullmatch(key):
            raise ModelError(f"the model has an option that nmt does not know: {shown_name(key)} = {shown(value)}.")
    try:
        width, encoder, decoder, heads, hidden = (int(config[key]) for key in SIZES if key != "dim-vocabs")
        decoder_hidden = int(config.get("transformer-decoder-dim-ffn", 0)) or hidden
        activation, *form = (config[key] if key in config else "" for key in FORM)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"the model's configuration lacks a number, or has a wrong one: {shown_name(str(error))}."
        ) from None
    if decoder_hidden != hidden:
        raise ModelError(
            f"transformer-decoder-dim-ffn = {decoder_hidden} differs from transformer-dim-ffn = {hidden}: nmt has one size."
        )
    if activation not in ACTIVATIONS:
        raise ModelError(
            f"transformer-ffn-activation = {shown(activation)}: nmt has {' and '.join(ACTIVATIONS)} of Marian's."
        )
    if tuple(form) not in RESIDUALS:
        raise ModelError(
            f"transformer-preprocess, -postprocess and -postprocess-top are {form}: nmt has {' and '.join(map(str, RESIDUALS))}."
        )
    ties = {key: config.get(key, "false") == "true" for key in TIES}
    section = {
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "d_model": width,
        "d_ff": hidden,
        "num_heads": heads,
        "activation": ACTIVATIONS[activation],
        "residual": RESIDUALS[tuple(form)],
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

    @classmethod
    def of(cls, ids: Mapping[str, int]) -> Ids:
        others = [piece for piece in sorted(ids, key=lambda piece: ids[piece]) if piece not in SPECIALS]
        table = [*SPECIALS, *others]
        order = np.array([ids[piece] if number not in (PAD, BOS) else -1 for number, piece in enumerate(table)])
        if len(table) - 2 != len(ids):
            raise ModelError("the vocabulary has <pad> or <s> among its tokens, which models of Marian do not have.")
        return cls(table, order)


def converted(
    arrays: Mapping[str, Array], config: ModelSection, ties: Mapping[str, bool], orders: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the arrays of a model folder. `orders`: `Ids.order` of source and target.

    Raises ModelError for an array that is missing, has a wrong shape, or is not used.
    """
    taken, result = set(), {}
    earlier = {"output": EARLIER_OUTPUT} if EARLIER_OUTPUT in arrays else {}
    for match in matches(config, ties, **earlier):
        parts = []
        for name in match.theirs:
            if name not in arrays:
                raise ModelError(f"the weights lack {name}.")
            taken.add(name)
            part = arrays[name]
            if part.ndim == 2 and part.shape[0] == 1:
                part = part[0]
            elif not match.side or name == EARLIER_OUTPUT:
                part = part.T
            if match.side:
                size = int(orders[match.side].max()) + 1
                if len(part) != size:
                    raise ModelError(f"{name} has {len(part):,} tokens, and the {match.side} vocabulary {size:,}.")
                part = rows(part, orders[match.side])
            parts.append(part)
        result[match.ours] = np.ascontiguousarray(np.concatenate(parts), np.float32)
    result["output_bias"][[PAD, BOS]] = NO_PROBABILITY
    if left := sorted(arrays.keys() - taken):
        raise ModelError(f"the weights have {len(left)} arrays that nmt does not know, the first is {shown(left[0])}.")
    return result


def recognizes(files: SourceFiles) -> bool:
    """Return whether the files have a model of Marian's."""
    return bool(_model_name(files))


def _model_name(files: SourceFiles) -> str:
    if files.given.endswith((".npz", ".bin")):
        return files.given
    if "decoder.yml" in files.names:
        names = yaml_values(files.text("decoder.yml"), "decoder.yml")
        listed = [Path(name).name for name in names.get("models", [])] if isinstance(names, dict) else []
        if len(listed) > 1:
            raise ModelError(
                f"decoder.yml names {len(listed)} models, an ensemble: name one of them, such as {shown(listed[0])}."
            )
        if listed and listed[0] in files.names:
            return listed[0]
    found = files.ending(".npz")
    return found[0] if len(found) == 1 else ""


def read(files: SourceFiles, options: ImportOptions) -> ForeignModel:
    """Return the model of an OPUS-MT zip or folder. Raises ModelError."""
    name = _model_name(files)
    decoder = yaml_values(files.text("decoder.yml"), "decoder.yml") or {}
    listed = [Path(str(one)).name for one in decoder.get("vocabs", [])] or files.ending("vocab.yml", ".vocab")
    if not listed:
        raise ModelError(f"{str(files.path)!r} has no vocabulary: expected *.vocab.yml.")
    if files.ending(".bpe", "bpecodes") and "source.spm" not in files.names:
        raise ModelError(
            "the model reads BPE codes of subword-nmt, which nmt does not have: take a model with SentencePiece."
        )
    arrays, config = weights_in(files, name)
    section, ties = section_of(config)
    sides = [vocabulary_in(files, one) for one in (listed[0], listed[-1])]
    joint = sides[0] == sides[1]
    if not joint and section["tie_embeddings"]:
        raise ModelError("the embeddings are tied, and source and target have two vocabularies.")
    ids = {side: Ids.of(of_side) for side, of_side in zip(("source", "target"), sides, strict=True)}
    replaced, controls = replacements_in(files.text("preprocess.sh"))
    models = [files.read(one) for one in ("source.spm", "target.spm")]
    tags = tags_of(ids["source"].table)
    about = files.text("README.md")
    source, target = languages(options, _languages_in(about), tags)
    recipe = recipe_of(files.path.name, (source, target), section, decoding_in(decoder), ids, joint)
    model = ModelSection.model_validate(recipe["model"])
    tokenizers = tokenizers_of(models, ids, replaced, controls)
    reader = MarianReader(
        arrays,
        section,
        ties,
        {side: one.order for side, one in ids.items()},
        models,
        sides,
        files.text("preprocess.sh"),
    )
    return ForeignModel(
        toolkit="Marian",
        recipe=recipe,
        weights=converted(arrays, model, ties, {side: one.order for side, one in ids.items()}),
        vocabularies=(len(ids["source"].table), len(ids["target"].table)),
        tokenizers=tokenizers,
        reader=reader,
        tags=tags,
        license=license_in(files.text("LICENSE"), about),
    )


def tokenizers_of(
    models: Sequence[bytes], ids: Mapping[str, Ids], replaced: Mapping[str, str], controls: bool
) -> dict[str, bytes]:
    """Return the two tokenizers of a model folder. `models`: SentencePiece's, of source and target. Raises ModelError."""
    extensions: list[dict[str, Any]] = [{"replacements": dict(replaced), "controls": controls}, {}]
    written = {}
    for name, side, model, extension in zip(
        (SOURCE_FILE, TARGET_FILE), ("source", "target"), models, extensions, strict=True
    ):
        try:
            written[name] = with_pieces(model, ids[side].table, extension)
        except (ValueError, KeyError, UnicodeDecodeError) as error:
            raise ModelError(f"{side}.spm is not a SentencePiece model, or a damaged one ({error}).") from None
    return written


def recipe_of(
    origin: str,
    codes: tuple[str, str],
    section: Mapping[str, Any],
    decode: Mapping[str, Any],
    ids: Mapping[str, Ids],
    joint: bool,
) -> dict[str, dict[str, Any]]:
    """Return the recipe of an imported model. `origin` names where it comes from."""
    data = {
        "source_language": codes[0],
        "target_language": codes[1],
        "train_source": [origin],
        "train_target": [origin],
        "tokenizer": origin,
        "joint_vocab": joint,
        "separate_tokenizers": joint,
        "vocab_size": len(ids["source"].table),
        "max_length": LONGEST,
    }
    if not joint:
        data["target_vocab_size"] = len(ids["target"].table)
    return {"data": data, "model": dict(section), "decode": dict(decode)}


def _languages_in(about: str) -> tuple[str, str]:
    """Return the languages that OPUS-MT's README names, "" where it names none or several."""
    codes = []
    for side in ("source", "target"):
        found = re.search(rf"^\* {side} language(?:\(s\)|s)?: (.*)$", about, re.MULTILINE)
        named = re.split(r"[\s,]+", found[1].strip()) if found else []
        codes.append(named[0] if len(named) == 1 else "mul" if named else "")
    return codes[0], codes[1]


def license_in(text: str, about: str) -> str:
    """Return the licence that the files name."""
    named = re.search(r"^license: *(\S.*)$", about, re.MULTILINE)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return named[1].strip() if named else first


IMPORTER = Importer(recognizes, read)
