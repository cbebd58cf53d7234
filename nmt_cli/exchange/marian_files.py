"""The files of a Marian model: weights, configuration, vocabularies, decoder.yml.

model.npz, or Marian's binary container in fp32 ──▶ `weights_in` ──▶ arrays by name, special:model.yml
vocab.yml, vocab.json, a token in each line, or a SentencePiece model ──▶ token → id
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from ..data.sentencepiece_model import token_of
from ..errors import ModelError, shown, shown_name
from ..model.folder_files import MOST_TOKENS
from .importer import UNREADABLE, Array, LazyArray, SourceFiles, check_density
from .marian_yaml import numbered, settings, tokens_in_lines

DAMAGED = (*UNREADABLE, KeyError, TypeError, OverflowError, struct.error)
"""What NumPy and struct raise for what is not a model."""
LONGEST_NAME, MOST_DIMENSIONS = 1000, 8
"""Largest sizes in the binary container, whose file may have holes of any size."""
CONFIG = "special:model.yml"
"""The name of the configuration among the arrays."""
HEADER = re.compile(
    r"\{'descr': '([<>|=]?[a-zA-Z]\d*)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\),? ?\}\s*"
)
"""The form of an array in an .npz. NumPy reads any expression there."""
MOST_ARRAYS = 50_000
"""Largest number of arrays: a model of 1,000 + 1,000 layers has 42,000."""
TYPES = {0x404: "<f4", 0x101: "i1", 0x204: "<u4", 0x104: "<i4"}
"""Types of the binary container that are read: fp32 for weights, bytes for the configuration."""
OTHER_TYPES = {0x10000: "int8 of intgemm", 0x800: "the packed numbers of fbgemm"}
"""Bits of types that are not."""


def weights_in(files: SourceFiles, name: str) -> tuple[dict[str, LazyArray], dict[str, Any]]:
    """Return the arrays of a model file, fp32, and its configuration. Raises ModelError."""
    path = files.unpacked(name)
    try:
        with path.open("rb") as file:
            is_zip = file.read(2) == b"PK"
        arrays = _npz(path) if is_zip else _container(path)
        if CONFIG not in arrays:
            raise ModelError(f"{shown_name(name)} has no {CONFIG}: it is not a model that Marian saved.")
        options = arrays.pop(CONFIG).read().tobytes().split(b"\0")[0]
    except DAMAGED as error:
        raise ModelError(
            f"{shown_name(name)} is neither an .npz nor a binary container of Marian's in fp32: "
            f"{shown_name(str(error))}." + " Fetch it again." * isinstance(error, zipfile.BadZipFile)
        ) from None
    config = settings(options, CONFIG)
    for key, array in arrays.items():
        if array.dtype != np.float32:
            raise ModelError(f"{shown_name(key)} has the dtype {array.dtype}, expected fp32: take the original model.")
    return arrays, config


def _mapped(path: Path, dtype: Any, shape: tuple[int, ...], at: int, end: int, fortran: bool = False) -> LazyArray:
    """Return the array at the byte `at`, whose numbers must end before the byte `end`. Raises ValueError."""
    dtype = np.dtype(dtype)
    if min(shape, default=1) < 0 or at + math.prod(shape) * dtype.itemsize > end:
        raise ValueError("it is cut: an array has fewer bytes than its form needs")
    order: Literal["C", "F"] = "F" if fortran else "C"
    return LazyArray(shape, lambda: np.memmap(path, dtype, "r", at, shape, order), dtype)


def _npz(path: Path) -> dict[str, LazyArray]:
    """Return the arrays of an .npz. Those that are packed are unpacked each time they are read. Raises ValueError."""
    arrays, archive = {}, zipfile.ZipFile(path)
    entries = archive.infolist()
    check_density(sum(entry.file_size for entry in entries), path)
    _check_count(len(entries))
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
            array = _mapped(path, dtype, shape, start + header, start + size, fortran)
            packed = entry.compress_type != zipfile.ZIP_STORED
            read = partial(_unpacked, archive, entry) if packed else array.read
            arrays[entry.filename.removesuffix(".npy")] = replace(array, read=read)
    return arrays


def _check_count(arrays: int) -> None:
    if arrays > MOST_ARRAYS:
        raise ValueError(f"it has {arrays:,} arrays, expected at most {MOST_ARRAYS:,}")


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


def _container(path: Path) -> dict[str, LazyArray]:
    """Return the arrays of Marian's binary container.

    u64 version = 1, u64 n | n headers of 4 u64: name bytes, type, dimensions, data bytes | names | dimensions, i32 |
    u64 p, p bytes of padding | data. Raises ValueError.
    """
    content = np.memmap(path, np.uint8, "r").data
    version, count = struct.unpack_from("<QQ", content)
    if version != 1:
        raise ValueError(f"it begins with {shown(bytes(content[:24]))}")
    _check_count(count)
    headers = np.frombuffer(content, "<u8", 4 * count, 16).reshape(count, 4).tolist()
    if any(length > LONGEST_NAME or dimensions > MOST_DIMENSIONS for length, _, dimensions, _ in headers):
        raise ValueError(f"an array has a name of more than {LONGEST_NAME:,} bytes, or too many dimensions")
    at, names = 16 + 32 * count, []
    for length, *_ in headers:
        names.append(content[at : at + length].tobytes().rstrip(b"\0").decode())
        at += length
    shapes = []
    for _, _, dimensions, _ in headers:
        shapes.append(struct.unpack_from(f"<{dimensions}i", content, at))
        at += 4 * dimensions
    at += 8 + struct.unpack_from("<Q", content, at)[0]
    arrays = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        if kind not in TYPES:
            what = next((what for bit, what in OTHER_TYPES.items() if kind & bit), f"the type {kind:#x}")
            raise ValueError(f"{name} is in {what}, and nmt reads fp32: take the model that it was converted from")
        arrays[name] = _mapped(path, TYPES[kind], shape, at, len(content))
        at += size
    return arrays


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
