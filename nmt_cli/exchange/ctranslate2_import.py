"""Import of a folder of CTranslate2: the Transformer of its converters, in each of its types of numbers.

    model.bin ──▶ `variables_in` ──▶ arrays in fp32 by CTranslate2's names ──▶ parameters of a model folder
    vocabularies ──▶ `Symbols`: our special tokens first        config.json ──▶ which of theirs are special

Integers become fp32: the number that CTranslate2 itself computes with in float32. Their rows reach 127, so `nmt
quantize` finds the same integers again. Positions that are neither the paper's nor Marian's become a table of learned
positions.

    V vocabulary   D d_model
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ..data.sentencepiece_model import SPECIALS, with_pieces
from ..data.tokenizer import BOS, PAD, Tokenizer, files_of
from ..errors import DataError, ModelError, extra_module, shown, shown_name
from ..model.parameters import parameters
from ..model.positions import marian_sinusoids, sinusoids
from ..model.transformer import NO_PROBABILITY
from ..recipe import ModelSection, Recipe
from ..storage.sealed_json import parse_json
from .ctranslate2 import NORM, CTranslate2Reader
from .importer import Array, ForeignModel, Importer, ImportOptions, LazyArray, SourceFiles, languages, rows
from .layout import PARTS, place_of
from .marian import LONGEST, data_of, finite, license_in, tags_in, with_rows

WEIGHTS, CONFIG = "model.bin", "config.json"
VOCABULARIES = ("shared_vocabulary", "source_vocabulary", "target_vocabulary")
DTYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "bfloat16")
"""The types of numbers, by their ids."""
SPECIFICATIONS = ("TransformerSpec", "TransformerBase", "TransformerBig")
VERSIONS = range(4, 7)
"""Versions of the binary format that are read; earlier ones are of 2019 and before."""
MOST_VARIABLES, MOST_DIMENSIONS = 50_000, 4
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
NAMES = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
"""The keys of config.json that name special tokens, and what they are where it does not say so."""
PADDINGS = ("<blank>", "<pad>")
TOKENIZERS = ("tokenizer.{}.model", "{}.spm", "tokenizer.model", "sentencepiece.model", "sentencepiece.bpe.model")
NEUTRAL = {
    "embeddings_merge": 0,
    "alibi": 0,
    "multi_query_attention": 0,
    "with_relative_position": 0,
    "rotary_scaling_type": -1,
    "scale_embeddings": 1,
    "with_source_bos": 0,
    "with_target_bos": 1,
    "user_decoder_start_tokens": 0,
    "rotary_interleave": 1,
    "rotary_base": 10_000,
}
"""Settings of model.bin that other values would change into a model that nmt does not have."""
READ = ("num_heads", "pre_norm", "activation", "start_from_zero_embedding", "rotary_dim")
WRONG = (IndexError, KeyError, TypeError, ValueError, OverflowError, RuntimeError)
"""What a value of another type or size raises."""
EQUAL = 1e-6
"""Largest difference of positions from a formula that counts as rounding."""
UNUSED = ("alignment_heads", "alignment_layer", "alibi_use_positive_positions", "scale_alibi", "with_source_eos")


def recognizes(files: SourceFiles) -> bool:
    """Return whether the files are a model of CTranslate2."""
    return WEIGHTS in files.names and any(name.startswith(VOCABULARIES) for name in files.names)


def read(files: SourceFiles, options: ImportOptions) -> ForeignModel:
    """Return the model of a folder of CTranslate2. Raises ModelError, UsageError."""
    return read_model(files, options, files.languages, {"beam": 4, "length_penalty": "average"}, "CTranslate2")


def read_model(
    files: SourceFiles, options: ImportOptions, found: tuple[str, str], decode: Mapping[str, Any], toolkit: str
) -> ForeignModel:
    """Return the model of the files. `found`: its languages, "" where they are not known. Raises ModelError."""
    extra_module("ctranslate2", "ctranslate2", "nmt import from CTranslate2")
    try:
        return _converted(files, options, found, decode, toolkit)
    except WRONG as error:
        raise ModelError(f"{str(files.path)!r} is a damaged model of CTranslate2 ({shown_name(str(error))}).") from None


def _converted(
    files: SourceFiles, options: ImportOptions, found: tuple[str, str], decode: Mapping[str, Any], toolkit: str
) -> ForeignModel:
    path = files.unpacked(WEIGHTS)
    variables = variables_in(path)
    settings = parse_json((files.text(CONFIG) or "{}").encode(), Path(CONFIG), ModelError, "Take the original file.")
    sides = [_pieces(files, side) for side in ("source", "target")]
    if settings.get("add_source_bos"):
        raise ModelError(f"{CONFIG} has add_source_bos = true, which nmt does not have.")
    symbols = [Symbols.of(pieces, settings) for pieces in sides]
    source_side, target_side = map(partial(Segmenter.of, files), ("source", "target"), symbols)
    source = CTranslate2Model(variables, settings, symbols)
    section = source.section()
    tokenizers = files_of(source_side.written, target_side.written)
    origin, same = files.path.name, symbols[0].table == symbols[1].table
    sizes = (len(symbols[0].table), len(symbols[1].table))
    tags = tags_in([{piece: number for number, piece in enumerate(sides[0])}])
    codes = languages(options, found, tags)
    data = data_of(origin, codes, sizes, same, same and len(tokenizers) > 1, section["max_positions"])
    recipe = {"data": data, "model": section, "decode": dict(decode)}
    model = Recipe.from_dict(recipe, f"the configuration of {shown_name(origin)}").model
    for name in files.ending(CONFIG, *(f"{one}.{kind}" for one in VOCABULARIES for kind in ("json", "txt"))):
        files.unpacked(name)  # beside the weights, where CTranslate2 finds them
    return ForeignModel(
        toolkit=toolkit,
        recipe=recipe,
        weights=source.weights(model, sizes),
        vocabularies=sizes,
        tokenizers=tokenizers,
        reader=CTranslate2Reader(
            path.parent,
            source_side.encode,
            target_side.decode,
            [one.pieces for one in symbols],
            symbols[1].order.tolist(),
            *source.source_end,
        ),
        tags=tags,
        license=license_in(files.about("LICENSE"), files.about("README.md")),
    )


# model.bin


def variables_in(path: Path) -> dict[str, LazyArray]:
    """Return the variables of a model.bin, those of integers divided by their scales. Raises ModelError."""
    try:
        with path.open("rb") as file:
            stored, aliases = _stored(file, path)
    except (OSError, ValueError, struct.error) as error:
        reason = shown_name(str(error))
        raise ModelError(f"{WEIGHTS} is not a model of CTranslate2, or a damaged one: {reason}.") from None
    for name in [name for name in stored if name.endswith("weight_scale")]:
        if (of := name.removesuffix("_scale")) in stored:
            scale, matrix = stored.pop(name), stored[of]
            if scale.shape not in ((), matrix.shape[:1]):
                raise ModelError(f"{WEIGHTS} has {shown_name(name)} with the shape {scale.shape}.")
            stored[of] = matrix.then(partial(_divided, scale=scale))
    return stored | {name: stored[other] for name, other in aliases.items() if other in stored}


def _divided(integers: Array, scale: LazyArray) -> Array:
    factor = np.asarray(scale, np.float32)
    return integers / (factor[:, None] if factor.ndim else factor)


def _stored(file: IO[bytes], path: Path) -> tuple[dict[str, LazyArray], dict[str, str]]:
    """Return the variables of a file as they are stored, and the names of those that are others' copies.

    Raises ValueError and struct.error.
    """
    end = path.stat().st_size

    def number(form: str) -> int:
        return int(struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0])

    def text() -> str:
        return file.read(number("H"))[:-1].decode()

    if (version := number("I")) not in VERSIONS:
        raise ValueError(f"it has the format version {version}, expected {VERSIONS[0]} to {VERSIONS[-1]}")
    if (name := text()) not in SPECIFICATIONS:
        raise ValueError(f"it holds a {name!r}, and nmt knows {SPECIFICATIONS[0]}")
    number("I")  # the specification's revision
    if (count := number("I")) > MOST_VARIABLES:
        raise ValueError(f"it has {count:,} variables, expected at most {MOST_VARIABLES:,}")
    stored: dict[str, LazyArray] = {}
    for _ in range(count):
        name, dimensions = text(), number("B")
        if dimensions > MOST_DIMENSIONS:
            raise ValueError(f"{name} has {dimensions} dimensions")
        shape = tuple(number("I") for _ in range(dimensions))
        kind, size, at = number("B"), number("I"), file.tell()
        if kind >= len(DTYPES):
            raise ValueError(f"{name} has numbers of the type {kind}")
        bits = DTYPES[kind] == "bfloat16"
        dtype = np.dtype("<u2" if bits else DTYPES[kind])
        if not size or math.prod(shape) * dtype.itemsize != size or at + size > end:
            raise ValueError(f"it is cut: {name} has other bytes than its shape {shape} needs")
        stored[name] = LazyArray(shape, partial(_fp32, path, dtype, at, shape, bits))
        file.seek(at + size)
    return stored, {text(): text() for _ in range(number("I"))}


def _fp32(path: Path, dtype: np.dtype[Any], at: int, shape: tuple[int, ...], bits: bool) -> Array:
    """Return the numbers at a byte of a file; `bits`: they are the upper ones of fp32, as bf16 has them."""
    array = np.memmap(path, dtype, "r", at, shape or (1,))
    return np.asarray((array.astype("<u4") << 16).view("<f4") if bits else array, np.float32).reshape(shape)


# Vocabularies and tokenizers


@dataclass(frozen=True)
class Symbols:
    """A vocabulary in our order: padding, <unk>, begin and end symbol first, then the others."""

    table: list[str]
    order: Array
    """(V,): CTranslate2's id of each token; -1: it has none."""
    pieces: list[str]
    """CTranslate2's token at each of our ids; "" where it has none."""

    @classmethod
    def of(cls, pieces: Sequence[str], settings: Mapping[str, Any]) -> Symbols:
        """`settings`: those of config.json. Raises ModelError."""
        ids = {piece: number for number, piece in enumerate(pieces)}
        unknown, begin, end = (settings.get(key) or name for key, name in NAMES.items())
        special = [next((name for name in PADDINGS if name in ids), ""), unknown, begin if begin in ids else "", end]
        for name in (unknown, end):
            if name not in ids:
                raise ModelError(f"the vocabulary has no {shown(name)}, which a model of nmt needs.")
        others = [piece for piece in pieces if piece not in special]
        if wrong := [piece for piece, count in Counter(others).items() if count > 1 or piece in ("", *SPECIALS)]:
            raise ModelError(
                f"the vocabulary has the token {shown(wrong[0])}: expected each once, with a text, and of "
                f"{', '.join(SPECIALS)} only those that config.json names."
            )
        order = np.array([ids.get(piece, -1) for piece in (*special, *others)])
        return cls([*SPECIALS, *others], order, [*special, *others])


def _pieces(files: SourceFiles, side: str) -> list[str]:
    """Return the tokens of a side, by id. Raises ModelError."""
    names = [f"{which}_vocabulary.{kind}" for which in (side, "shared") for kind in ("json", "txt")]
    name = next((name for name in names if name in files.names), "")
    if not name:
        raise ModelError(f"{str(files.path)!r} has no vocabulary of the {side}: expected {' or '.join(names)}.")
    content = files.read(name)
    if name.endswith(".txt"):
        return content.decode("utf-8", "replace").removesuffix("\n").split("\n")
    pieces = parse_json(b'{"tokens": ' + content + b"}", Path(name), ModelError, "Take the original file.")["tokens"]
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ModelError(f"{shown_name(name)} is not a vocabulary: expected a list of tokens.")
    return pieces


class Segmenter(NamedTuple):
    """The SentencePiece model of a side."""

    written: bytes
    """That of the model folder: the file itself if its tokens are those of nmt already."""
    encode: Callable[[str], list[str]]
    decode: Callable[[list[str]], str]
    """Pieces that SentencePiece does not know keep their ▁; Argos Translate joins both sides with one model."""

    @classmethod
    def of(cls, files: SourceFiles, side: str, symbols: Symbols) -> Segmenter:
        """Raises ModelError."""
        import sentencepiece

        names = [name.format(side) for name in TOKENIZERS]
        name = next((name for name in names if name in files.names), "")
        if not name:
            raise ModelError(
                f"{str(files.path)!r} has no SentencePiece model of the {side}: expected {', '.join(names)}. "
                "CTranslate2's converters do not copy it: put the one with which the model was trained into the folder."
            )
        model = files.read(name)
        try:
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)

            def decode(pieces: list[str]) -> str:
                return str(processor.decode_pieces(pieces)).replace("▁", " ")

            with suppress(DataError):
                own = Tokenizer(model)
                if own.table == symbols.table and (name.startswith("tokenizer.") or not own.extension.known):
                    return cls(model, own.pieces, decode)
            written = with_pieces(model, symbols.table, {})
        except (ValueError, KeyError, AttributeError, TypeError, RuntimeError) as error:
            raise ModelError(f"{shown_name(name)} is not a SentencePiece model, or a damaged one ({error}).") from None
        return cls(written, partial(processor.encode, out_type=str), decode)


# The parameters


@dataclass(frozen=True)
class CTranslate2Model:
    """The variables of a model, the settings of its config.json, and the vocabularies of both sides."""

    variables: Mapping[str, LazyArray]
    settings: Mapping[str, Any]
    symbols: Sequence[Symbols]

    @cached_property
    def scalars(self) -> dict[str, float]:
        """The settings in model.bin."""
        return {name: float(np.asarray(one)) for name, one in self.variables.items() if one.shape == ()}

    @property
    def zero_start(self) -> bool:
        """Whether the decoder's first input is a zero vector."""
        return bool(self.scalars.get("decoder/start_from_zero_embedding"))

    @property
    def start(self) -> int:
        """CTranslate2's id of the decoder's first input; -1: a zero vector. Raises ModelError."""
        name = self.settings.get("decoder_start_token") or NAMES["bos_token"]
        pieces = self.symbols[1].pieces
        if not self.zero_start and name not in pieces:
            raise ModelError(f"config.json has decoder_start_token = {shown(name)}, which the target vocabulary lacks.")
        return -1 if self.zero_start else int(self.symbols[1].order[pieces.index(name)])

    @property
    def source_end(self) -> tuple[bool, bool]:
        """Whether the encoder reads the end symbol after a text, and whether CTranslate2 adds it itself."""
        added = bool(self.settings.get("add_source_eos", self.scalars.get("with_source_eos")))
        return added or self.zero_start, added  # a model of Marian's reads it always

    def embedding(self, use: str) -> LazyArray:
        """Return the matrix for "source", "target" or "output". Raises ModelError."""
        names = {"source": "encoder/embeddings_0", "target": "decoder/embeddings", "output": "decoder/projection"}
        name = f"{names[use]}/weight"
        return self.variable(name if name in self.variables else name.replace("embeddings_0", "embeddings"))

    def variable(self, name: str) -> LazyArray:
        """Return a variable. Raises ModelError if there is none; reading raises it for numbers that are not finite."""
        if name not in self.variables:
            raise ModelError(f"{WEIGHTS} lacks {shown_name(name)}.")
        return self.variables[name].then(partial(finite, name))

    def setting(self, key: str, default: int) -> int:
        """Return a setting that encoder and decoder share. Raises ModelError if they do not."""
        values = {self.scalars.get(f"{side}/{key}", default) for side in ("encoder", "decoder")}
        if len(values) > 1:
            raise ModelError(f"{WEIGHTS} has other values of {key} in encoder and decoder, which nmt does not have.")
        return int(values.pop())

    def section(self) -> dict[str, Any]:
        """Return the keys of [model]. Raises ModelError for a setting that nmt does not have."""
        size, first = self.embedding("source").shape[-1], "encoder/layer_0"
        for name, value in self.scalars.items():
            key = name.rpartition("/")[2]
            scale = key == "scale_embeddings" and abs(value - size**0.5) < 1e-3
            if key not in (*READ, *UNUSED) and NEUTRAL.get(key) != value and not scale:
                raise ModelError(f"{WEIGHTS} has {shown_name(name)} = {value:g}, which nmt does not have.")
        heads, activation = self.setting("num_heads", 8), self.setting("activation", 0)
        gated = f"{first}/ffn/linear_0_noact/weight" in self.variables
        if activation not in ACTIVATIONS or (gated and activation != 2):
            raise ModelError(f"{WEIGHTS} has the activation {activation}, which nmt does not have.")
        rows, inner = (
            self.variable(f"{first}/{name}/weight").shape[0] for name in ("self_attention/linear_0", "ffn/linear_0")
        )
        head_size = rows // 3 // max(1, heads)
        lacks = bool(self.symbols[1].order[[PAD, BOS]].min() < 0)
        return {
            **{f"{side}_layers": self._layers(side) for side in ("encoder", "decoder")},
            "d_model": size,
            "d_ff": inner,
            "num_heads": heads,
            **({} if head_size * heads == size else {"d_k": head_size, "d_v": head_size}),
            "residual": "pre" if self.setting("pre_norm", 1) else "post",
            "norm": "layer" if f"{first}/self_attention/layer_norm/beta" in self.variables else "rms",
            "norm_epsilon": float(self.settings.get("layer_norm_epsilon") or 0),
            "activation": "swiglu" if gated else ACTIVATIONS[activation],
            **self._positions(size),
            "tie_embeddings": self._is_tied(),
            "output_bias": self.zero_start or "decoder/projection/bias" in self.variables or lacks,
            "zero_start": self.zero_start,
            "source_end": self.source_end[0],
        }

    def _layers(self, side: str) -> int:
        return sum(bool(re.fullmatch(rf"{side}/layer_\d+/ffn/linear_1/weight", name)) for name in self.variables)

    def _positions(self, size: int) -> dict[str, Any]:
        """Return the kind of positions and their number. Raises ModelError for tables of two lengths."""
        if "encoder/layer_0/self_attention/rotary_dim" in self.scalars:
            return {"positions": "rotary", "max_positions": 2 * LONGEST}
        tables = [self.positions(side, size) for side in ("encoder", "decoder")]
        shapes, count = [table.shape for table in tables], len(tables[0])
        if shapes != [(count, size)] * 2:
            raise ModelError(f"{WEIGHTS} has positions of {shapes[0]} and {shapes[1]}: expected two tables alike.")
        for kind, formula in (("sinusoidal", sinusoids), ("marian", marian_sinusoids)):
            if all(np.abs(table - formula(count, size).numpy()).max(initial=0) < EQUAL for table in tables):
                return {"positions": kind, "max_positions": count}
        return {"positions": "learned", "max_positions": count}

    def positions(self, side: str, size: int) -> Array:
        """Return the table of positions (n, D); without one CTranslate2 computes Marian's, from 1 on."""
        name = f"{side}/position_encodings/encodings"
        if name in self.variables:
            return np.asarray(self.variable(name), np.float32)
        return marian_sinusoids(2 * LONGEST + 1, size)[1:].numpy()

    def _is_tied(self) -> bool:
        """Whether one matrix serves both embeddings and the output, with the begin symbol's row too."""
        one, other = self.symbols
        if one.pieces != other.pieces or not np.array_equal(one.order, other.order) or self.start != other.order[BOS]:
            return False
        source, *others = (self.embedding(use) for use in ("source", "target", "output"))
        return all(source.shape == matrix.shape and np.array_equal(source, matrix) for matrix in others)

    def weights(self, model: ModelSection, sizes: tuple[int, int]) -> dict[str, LazyArray]:
        """Return a model folder's parameters. Raises ModelError for a variable missing, misshapen, or not used."""
        result, used = {}, set(self.scalars) | {name for name in self.variables if "/position_encodings/" in name}
        for name, parameter in parameters(model, sizes).items():
            if name.startswith("embeddings."):
                result[name] = self._rows(name.removeprefix("embeddings."))
            elif name == "output_bias":
                result[name] = self._bias(sizes[1])
            elif name.endswith("_positions.weight"):
                side = "encoder" if name.startswith("source") else "decoder"
                table = partial(self.positions, side, model.d_model)
                result[name] = LazyArray(parameter.shape, table)
            else:
                names = theirs(name, model.activation == "swiglu")
                used.update(names)
                result[name] = self._joined(names, parameter.shape)
        used |= {name for name in self.variables if re.search(r"/(embeddings(_0)?|projection)/(weight|bias)$", name)}
        if left := sorted(self.variables.keys() - used):
            raise ModelError(
                f"{WEIGHTS} has {len(left)} variables that nmt does not know, the first is {shown(left[0])}."
            )
        return result

    def _joined(self, names: Sequence[str], shape: tuple[int, ...]) -> LazyArray:
        if names[0].endswith("/bias") and names[0] not in self.variables:  # a linear map may have none
            return LazyArray(shape, partial(np.zeros, shape, np.float32))
        parts = [self.variable(name) for name in names]
        found = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        if found != shape:
            raise ModelError(f"{WEIGHTS} has {shown_name(names[0])} with the shape {found}, expected {shape}.")
        return LazyArray(shape, lambda: np.concatenate([np.asarray(part, np.float32) for part in parts]))

    def _rows(self, use: str) -> LazyArray:
        """Return an embedding matrix in our order; the begin symbol of the target has the row of the first input."""
        symbols = self.symbols[0 if use == "source" else 1]
        matrix = self.embedding("source" if use == "shared" else use)
        if matrix.shape[0] != (count := int(symbols.order.max()) + 1):
            raise ModelError(f"{WEIGHTS} has a {use} embedding of {matrix.shape}, and the vocabulary {count:,} tokens.")
        order = symbols.order.copy()
        if use == "target":
            order[BOS] = self.start
        return matrix.then(partial(rows, order=order), (len(order), matrix.shape[1]))

    def _bias(self, size: int) -> LazyArray:
        """Return the bias of the output; tokens that CTranslate2 does not have get no probability."""
        name, order = "decoder/projection/bias", self.symbols[1].order
        none = LazyArray((size,), partial(np.zeros, size, np.float32))
        bias = (self.variable(name) if name in self.variables else none).then(partial(rows, order=order), (size,))
        return bias.then(partial(with_rows, numbers=np.flatnonzero(order < 0).tolist(), values=NO_PROBABILITY))


def theirs(name: str, gated: bool) -> list[str]:
    """Return CTranslate2's names of a parameter that is in a layer, or in the norm after the last one."""
    place = place_of(name)
    if not place:  # encoder_norm.weight
        side, _, kind = name.partition("_norm.")
        return [f"{side}/layer_norm/{NORM[kind]}"]
    part = re.sub(r"\.(\d)", r"_\1", PARTS[place.part].ctranslate2).replace(".", "/")
    kind = NORM[place.kind] if place.part.endswith(".norm") else place.kind
    parts = [part, f"{part}_noact"] if gated and place.part == "feed_forward.inner" else [part]
    return [f"{place.side}/layer_{place.layer}/{one}/{kind}" for one in parts]


IMPORTER = Importer(recognizes, read)
