"""The training settings of a SentencePiece model, read from its file: a protocol buffer message
(sentencepiece_model.proto).

SentencePiece's Python interface does not report these settings. Its own module for them, sentencepiece_model_pb2, needs
a `protobuf` at least as new as the one that generated it, and of the same major version; other packages often require
an older one. The few fields that are needed are therefore read here.
"""

from __future__ import annotations

from typing import Any

TRAINER_SPEC, NORMALIZER_SPEC = 2, 3
"""Field numbers in ModelProto."""
MODEL_TYPE, SPLIT_BY_WHITESPACE, TREAT_WHITESPACE_AS_SUFFIX = 3, 22, 24
"""Field numbers in TrainerSpec; defaults: 1 (unigram), true, false."""
CHARACTER_MAP, ADD_DUMMY_PREFIX, REMOVE_EXTRA_WHITESPACES, ESCAPE_WHITESPACES = 2, 3, 4, 5
"""Field numbers in NormalizerSpec. The first field is empty if nothing is normalised; the others are true by default.
"""
BPE, WORD = 2, 3
"""Values of MODEL_TYPE."""
VARINT, FIXED64, FIXED32 = 0, 1, 5
"""Wire types: how a field's value is encoded. Values of any other type in the file begin with their length."""
LONGEST_VARINT = 10
"""Largest number of bytes of a varint, which has 64 bits."""


def stays_in_words(model: bytes) -> bool:
    """Return whether a model is BPE that was trained within words, with the usual treatment of spaces."""
    trainer, normalizer = _settings(model)
    within_words = trainer.get(SPLIT_BY_WHITESPACE, 1) and not trainer.get(TREAT_WHITESPACE_AS_SUFFIX, 0)
    usual_spaces = all(
        normalizer.get(field, 1) for field in (ADD_DUMMY_PREFIX, REMOVE_EXTRA_WHITESPACES, ESCAPE_WHITESPACES)
    )
    return bool(trainer.get(MODEL_TYPE, 1) == BPE and within_words and usual_spaces)


def is_word_list(model: bytes) -> bool:
    """Return whether a model's tokens are whole words, spelled as in the text."""
    trainer, normalizer = _settings(model)
    return bool(trainer.get(MODEL_TYPE, 1) == WORD and not normalizer.get(CHARACTER_MAP, b""))


def _settings(model: bytes) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the fields of TrainerSpec and NormalizerSpec. Raises ValueError if they cannot be read."""
    parts = read_fields(model)
    trainer, normalizer = (parts.get(part, b"") for part in (TRAINER_SPEC, NORMALIZER_SPEC))
    if not (isinstance(trainer, bytes) and isinstance(normalizer, bytes)):
        raise ValueError("the settings are not messages")
    return read_fields(trainer), read_fields(normalizer)


def read_fields(message: bytes) -> dict[int, Any]:
    """Return the last value of each field by its number: an int for a varint, bytes for everything else.

    Raises ValueError for a cut message.
    """
    fields: dict[int, Any] = {}
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            fields[number], position = _varint(message, position)
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(wire_type)
        if size is None:
            size, position = _varint(message, position)
        fields[number] = message[position : position + size]
        position += size
    if position > len(message):
        raise ValueError("a field is longer than its message")
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, of seven bits per byte, and the position after it."""
    value = shift = 0
    for byte in message[position : position + LONGEST_VARINT]:
        value, shift, position = value | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return value, position
    raise ValueError("a number has no end")
