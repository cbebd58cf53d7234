"""The file of a SentencePiece model, a protocol buffer message (sentencepiece_model.proto): its training settings, and
the same model with its pieces in another order.

    with_pieces(model, table) ──▶ the same subwords of every text, with the ids of `table`

SentencePiece's Python interface does not report these settings. Its own module for them, sentencepiece_model_pb2, needs
a `protobuf` at least as new as the one that generated it, and of the same major version; other packages often require
an older one. The few fields that are needed are therefore read here.

What nmt adds to a model is in the field EXTENSION, which SentencePiece ignores: see `Extension`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

PIECES, PIECE_BEGINS = 1, 1 << 3 | 2
"""Field number of the pieces in ModelProto, and the byte before the length of each."""
TRAINER_SPEC, NORMALIZER_SPEC = 2, 3
"""Field numbers in ModelProto."""
MODEL_TYPE, SPLIT_BY_WHITESPACE, TREAT_WHITESPACE_AS_SUFFIX = 3, 22, 24
"""Field numbers in TrainerSpec; defaults: 1 (unigram), true, false."""
CHARACTER_MAP, ADD_DUMMY_PREFIX, REMOVE_EXTRA_WHITESPACES, ESCAPE_WHITESPACES = 2, 3, 4, 5
"""Field numbers in NormalizerSpec. The first field is empty if nothing is normalised; the others are true by default.
"""
BPE, WORD = 2, 3
"""Values of MODEL_TYPE."""
PIECE, SCORE, TYPE = 1, 2, 3
"""Field numbers in SentencePiece; a type is NORMAL if it is not given."""
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
"""Values of TYPE. A text is never divided into control and unused pieces."""
SPECIAL_PIECES = {40: None, 41: None, 42: None, 43: None, 45: "<unk>", 46: "<s>", 47: "</s>", 48: "<pad>"}
"""Fields of TrainerSpec: ids of <unk>, <s>, </s> and <pad>, which are not used, and their strings."""
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
"""The first pieces of every table, as in tokenizer.py."""
TAG = re.compile(r">>([\w.+-]{1,40})<<")
"""A control token that names a target language, as in OPUS-MT's models; see `tags`."""
RAW = 0x10DC00
"""The private character RAW + n stands for the byte n of a token that cannot be a piece as it is; see `token_of`."""
NOT_A_PIECE = re.compile(f"[\\0\udc80-\udcff{chr(RAW)}-{chr(RAW + 255)}]")
RAW_BYTES = re.compile(f"[{chr(RAW)}-{chr(RAW + 255)}]")
EXTENSION = 200
"""Field number in ModelProto of what nmt adds. The numbers from 200 on are for other programs."""
VARINT, FIXED64, FIXED32 = 0, 1, 5
"""Wire types: how a field's value is encoded. Values of any other type in the file begin with their length."""
LONGEST_VARINT = 10
"""Largest number of bytes of a varint, which has 64 bits."""
LONGEST_REPLACEMENT = 32
"""Characters, at most, that replace one: a line grows no longer than so many times."""


@dataclass(frozen=True)
class Extension:
    """What nmt adds to a model that others trained."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    known: Annotated[int, Field(ge=0)] = 0
    """Number of tokens that the vocabulary has, if it is not that of the model's own pieces. Then a piece is looked up
    by its string: one from there on, or of unknown characters, may be a token of the vocabulary, or else is <unk>."""
    replacements: dict[
        Annotated[str, Field(pattern="(?s)^. ?$")], Annotated[str, Field(max_length=LONGEST_REPLACEMENT)]
    ] = field(default_factory=dict)
    """What is replaced in a text before it is normalised: a character, or (with a space) all spaces after it too."""
    controls: bool = False
    """Whether control and format characters (Unicode's category C) become spaces then."""


@dataclass(frozen=True)
class Settings:
    """What a tokenizer reads of a model file beside its pieces."""

    of_words: bool
    """Whether the tokens are whole words, spelled as in the text."""
    stays_in_words: bool
    """Whether it is BPE that was trained within words, with the usual treatment of spaces."""
    extension: Extension


def settings_of(model: bytes) -> Settings:
    """Return the settings of a model, which it has after its pieces. Raises ValueError if they cannot be read."""
    position, end = 0, len(model) - 1
    while position < end and model[position] == PIECE_BEGINS and (size := model[position + 1]) < 128:
        position += 2 + size  # without an object for each piece: that takes as long as SentencePiece itself
    parts = read_fields(model, position)
    trainer, normalizer = (parts.get(part, b"") for part in (TRAINER_SPEC, NORMALIZER_SPEC))
    if not (isinstance(trainer, bytes) and isinstance(normalizer, bytes)):
        raise ValueError("the settings are not messages")
    trainer, normalizer = read_fields(trainer), read_fields(normalizer)
    kind = trainer.get(MODEL_TYPE, 1)
    within_words = trainer.get(SPLIT_BY_WHITESPACE, 1) and not trainer.get(TREAT_WHITESPACE_AS_SUFFIX, 0)
    usual_spaces = all(
        normalizer.get(field, 1) for field in (ADD_DUMMY_PREFIX, REMOVE_EXTRA_WHITESPACES, ESCAPE_WHITESPACES)
    )
    return Settings(
        of_words=kind == WORD and not normalizer.get(CHARACTER_MAP, b""),
        stays_in_words=bool(kind == BPE and within_words and usual_spaces),
        extension=TypeAdapter(Extension).validate_json(parts[EXTENSION]) if EXTENSION in parts else Extension(),
    )


def read_fields(message: bytes, position: int = 0) -> dict[int, Any]:
    """Return the last value of each field by its number: an int for a varint, bytes for everything else.

    Fields before `position` are not read. Raises ValueError for a cut message.
    """
    return {number: value for number, _, value in _fields(message, position)}


def _fields(message: bytes, position: int = 0) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field. Raises ValueError for a cut message."""
    while position < len(message):
        key, position = _varint(message, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, position = _varint(message, position)
            yield number, wire_type, value
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire_type)
        if size is None:
            size, position = _varint(message, position)
        yield number, wire_type, message[position : position + size]
        position += size
    if position > len(message):
        raise ValueError("a field is longer than its message")


def pieces_of(model: bytes) -> dict[str, tuple[bytes, int]]:
    """Return the score, as it is stored, and the type of each piece of a model. Raises ValueError."""
    found: dict[str, tuple[bytes, int]] = {}
    for number, _, value in _fields(model):
        if number == PIECES:
            one = read_fields(value)
            found[one[PIECE].decode()] = one.get(SCORE, bytes(4)), one.get(TYPE, NORMAL)
    return found


def with_pieces(model: bytes, table: Sequence[str], extension: Mapping[str, Any]) -> bytes:
    """Return a model that divides every text as `model` does, whose tokens have their ids in `table`.

    `table` begins with SPECIALS. Its pieces that `model` does not have are unused, and those that look like `>>CODE<<`
    are control pieces: no text is divided into them. Pieces of `model` that are not in `table` follow it.
    `extension`: values of `Extension` but `known`. Raises ValueError if `model` cannot be read.
    """
    own = pieces_of(model)
    if not own:
        raise ValueError("it has no pieces")
    of_text = {piece: kept for piece, kept in own.items() if kept[1] not in (UNKNOWN, CONTROL)}
    entries = []
    for number, piece in enumerate(dict.fromkeys([*table, *of_text])):
        score, kind = of_text.get(
            piece, (bytes(4), CONTROL if bytes_of(piece).decode("utf-8", "replace") in own else UNUSED)
        )
        if number < len(SPECIALS) or is_tag(piece):
            score, kind = bytes(4), UNKNOWN if piece == "<unk>" else CONTROL
        entries.append(
            _field(
                PIECES, 2, _field(PIECE, 2, piece.encode()) + _field(SCORE, FIXED32, score) + _field(TYPE, VARINT, kind)
            )
        )
    rest = b"".join(
        _field(number, kind, _with_specials(value) if number == TRAINER_SPEC else value)
        for number, kind, value in _fields(model)
        if number not in (PIECES, EXTENSION)
    )
    more = json.dumps(asdict(Extension(known=len(table), **extension)), ensure_ascii=False).encode()
    return b"".join(entries) + rest + _field(EXTENSION, 2, more)


def token_of(spelled: bytes, again: bool = False) -> str:
    """Return the string of a token of another vocabulary, which may be spelled by any bytes, other ones for each.

    It is the spelling, but for bytes that are not UTF-8, and for <pad> and <s>: those of others are not ours. `again`:
    the vocabulary has the spelling already, so a special token of its own is not ours either.
    """
    text = spelled.decode("utf-8", "surrogateescape")
    if text in (SPECIALS if again else ("<pad>", "<s>")):
        return chr(RAW + ord(text[0])) + text[1:]
    return NOT_A_PIECE.sub(
        lambda found: "".join(chr(RAW + byte) for byte in found[0].encode("utf-8", "surrogateescape")), text
    )


def bytes_of(token: str) -> bytes:
    """Return the spelling of a token, or of several: the inverse of `token_of`."""
    if not RAW_BYTES.search(token):
        return token.encode()
    return b"".join(bytes([ord(one) - RAW]) if RAW_BYTES.match(one) else one.encode() for one in token)


def is_tag(piece: str) -> bool:
    """Return whether a piece is the tag of a target language, such as >>deu<<."""
    return TAG.fullmatch(piece) is not None


def _with_specials(trainer: bytes) -> bytes:
    """Return a TrainerSpec with the strings of our special tokens."""
    kept = b"".join(_field(*item) for item in _fields(trainer) if item[0] not in SPECIAL_PIECES)
    return kept + b"".join(_field(number, 2, text.encode()) for number, text in SPECIAL_PIECES.items() if text)


def _field(number: int, kind: int, value: Any) -> bytes:
    """Return a field of a message."""
    key = _as_varint(number << 3 | kind)
    if kind == VARINT:
        return key + _as_varint(value)
    content: bytes = value if kind in (FIXED64, FIXED32) else _as_varint(len(value)) + value
    return key + content


def _as_varint(value: int) -> bytes:
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, of seven bits per byte, and the position after it."""
    value = shift = 0
    for byte in message[position : position + LONGEST_VARINT]:
        value, shift, position = value | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return value, position
    raise ValueError("a number has no end")
