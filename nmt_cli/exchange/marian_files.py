"""The files of a Marian model: weights, configuration, vocabularies, decoder.yml.

model.npz, or Marian's binary container ──▶ `weights_in` ──▶ arrays by name, special:model.yml
vocab.yml, vocab.json, a token in each line, or a SentencePiece model ──▶ token → id
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..data.sentencepiece_model import token_of
from ..errors import ModelError, shown, shown_name
from ..model.folder_files import MOST_TOKENS
from .importer import UNREADABLE, Array, LazyArray, SourceFiles, check_density
from .marian_container import check_count, container, mapped
from .marian_yaml import numbered, settings, tokens_in_lines

DAMAGED = (*UNREADABLE, KeyError, TypeError, OverflowError, struct.error)
"""What NumPy and struct raise for what is not a model."""
CONFIG = "special:model.yml"
"""The name of the configuration among the arrays."""
HEADER = re.compile(
    r"\{'descr': '([<>|=]?[a-zA-Z]\d*)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\),? ?\}\s*"
)
"""The form of an array in an .npz. NumPy reads any expression there."""


def weights_in(files: SourceFiles, name: str) -> tuple[dict[str, LazyArray], dict[str, Any]]:
    """Return the arrays of a model file, in fp32, and its configuration. Raises ModelError."""
    path = files.unpacked(name)
    try:
        with path.open("rb") as file:
            is_zip = file.read(2) == b"PK"
        arrays = _npz(path) if is_zip else container(path)
        if CONFIG not in arrays:
            raise ModelError(f"{shown_name(name)} has no {CONFIG}: it is not a model that Marian saved.")
        options = arrays.pop(CONFIG).read().tobytes().split(b"\0")[0]
    except DAMAGED as error:
        raise ModelError(
            f"{shown_name(name)} is neither an .npz nor a binary container of Marian's: "
            f"{shown_name(str(error))}." + " Fetch it again." * isinstance(error, zipfile.BadZipFile)
        ) from None
    config = settings(options, CONFIG)
    for key, array in arrays.items():
        if array.dtype != np.float32:
            raise ModelError(f"{shown_name(key)} has the dtype {array.dtype}, expected fp32: take the original model.")
    return arrays, config


def _npz(path: Path) -> dict[str, LazyArray]:
    """Return the arrays of an .npz. Those that are packed are unpacked each time they are read. Raises ValueError."""
    arrays, archive = {}, zipfile.ZipFile(path)
    entries = archive.infolist()
    check_density(sum(entry.file_size for entry in entries), path)
    check_count(len(entries))
    with path.open("rb") as file:
        for entry in entries:
            with archive.open(entry) as stream:
                shape, fortran, dtype = _form(stream)
                header = stream.tell()
                size = header + sum(map(len, iter(partial(stream.read, 1 << 20), b"")))  # not what the zip says
            if dtype.hasobject:
                raise ValueError(f"Object arrays cannot be loaded, and {entry.filename} is one")
            file.seek(entry.header_offset + 26)
            start = entry.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))
            array = mapped(path, dtype, shape, start + header, start + size, fortran)
            packed = entry.compress_type != zipfile.ZIP_STORED
            read = partial(_unpacked, archive, entry) if packed else array.read
            arrays[entry.filename.removesuffix(".npy")] = replace(array, read=read)
    return arrays


def _form(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, Fortran's order and dtype of an array of an .npz. Raises ValueError, TypeError."""
    magic = stream.read(8)
    size = int.from_bytes(stream.read(2 if magic[6:7] == b"\1" else 4), "little")
    found = HEADER.fullmatch(stream.read(min(size, 1000)).decode("latin-1"))
    if magic[:6] != b"\x93NUMPY" or not found:
        raise ValueError("it has something else than arrays of numbers")
    return tuple(int(one) for one in found[3].split(",") if one.strip()), found[2] == "True", np.dtype(found[1])


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    with archive.open(entry) as stream:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def vocabulary_in(files: SourceFiles, name: str, most: int = MOST_TOKENS) -> dict[str, int]:
    """Return the id of each token of a vocabulary: .yml, .json, a token in each line, or .spm, a SentencePiece model.

    Tokens have the strings of `token_of`. `marian-vocab` writes </s> and <unk> again if its text has them. Marian knows
    them by their first number then; it has a row for the second one only if another token follows.

    Raises ModelError, also for more than `most` tokens.
    """
    content, ids, repeated = files.read(name), dict[str, int](), set[str]()
    if name.endswith(".spm"):
        entries = iter(own_ids(content, name))
    elif name.endswith((".yml", ".yaml", ".json")):
        entries, repeated = numbered(content, name, most), {token_of(one, True) for one in (b"</s>", b"<unk>")}
    else:
        entries = tokens_in_lines(content, most)
    for spelled, number in entries:
        if (token := token_of(spelled)) in ids and repeated:
            token = token_of(spelled, again=True)
        if token in ids:
            raise ModelError(f"{shown_name(name)} has {shown(spelled.decode('utf-8', 'replace'))} twice.")
        ids[token] = number
    rows = 1 + max((number for token, number in ids.items() if token not in repeated), default=0)
    ids = {token: number for token, number in ids.items() if number < rows}
    if sorted(ids.values()) != list(range(len(ids))):
        raise ModelError(f"the numbers in {shown_name(name)} are not those from 0 to {len(ids) - 1}, each once.")
    for special in ("</s>", "<unk>"):
        if special not in ids:
            raise ModelError(f"{shown_name(name)} has no {special}.")
    return ids


def own_ids(model: bytes, name: str) -> list[tuple[bytes, int]]:
    """Return the tokens of a SentencePiece model with its own ids; its end symbol and unknown token get our names.

    Raises ModelError.
    """
    import sentencepiece

    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        tokens = [piece.encode() for piece in processor.id_to_piece(list(range(processor.get_piece_size())))]
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"{shown_name(name)} is not a SentencePiece model, or a damaged one ({error}).") from None
    for number, special in ((processor.eos_id(), b"</s>"), (processor.unk_id(), b"<unk>")):
        if number >= 0:
            tokens[number] = special
    return [(token, number) for number, token in enumerate(tokens)]


def decoding(
    values: Mapping[str, Any], beam: tuple[str, int], exponent: tuple[str, float], words: tuple[str, float] = ("", 0)
) -> dict[str, Any]:
    """Return the keys of [decode] for a toolkit that divides log P by |Y| ** exponent. `beam`, `exponent` and `words`,
    the word penalty, are its names, each with the value if there is none. Raises ModelError.
    """
    try:
        width, alpha, of_word = int(values.get(*beam)), float(values.get(*exponent)), float(values.get(*words))
    except (TypeError, ValueError):
        names = [(key, default) for key, default in (beam, exponent, words) if key]
        found = ", ".join(f"{key} = {shown(values.get(key, default))}" for key, default in names)
        raise ModelError(f"the model has {found}: expected numbers.") from None
    penalty = {"length_penalty": "power", "alpha": alpha} if alpha else {"length_penalty": "none"}
    return {"beam": width, **penalty, **({"word_penalty": of_word} if of_word else {})}
