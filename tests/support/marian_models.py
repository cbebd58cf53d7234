"""Small random models in the form of an OPUS-MT download, written by Marian's names without the code of the package."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import struct
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import sentencepiece

from nmt_cli.data.demo_corpus import pairs
from nmt_cli.exchange.importer import ImportOptions
from nmt_cli.exchange.importing import Imported, import_model

Array = npt.NDArray[Any]
SHARED = Path(os.environ.get("NMT_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "marian-model"
"""A model that Marian trained, with its own scores and translations."""
needs_marian = pytest.mark.skipif(not SHARED.is_dir(), reason="the model that Marian trained is not here")
D, HIDDEN, HEADS = 16, 24, 4
ODD = ["no", "y", "~", ":", '"', "'", "null", "1", "привет", "漢字", "- x", "a: b", "#", "\\", "{", "&"]
"""Pieces that YAML reads as something else if they are not quoted, or that have no Latin letter."""
OFF = [
    *("transformer-train-position-embeddings", "transformer-disable-position-embeddings", "transformer-no-affine"),
    *("transformer-no-bias", "transformer-no-projection", "transformer-pool", "transformer-rnn-projection"),
    *("transformer-alibi-trainable", "output-omit-bias", "right-left", "ulr"),
]
ABOUT = """\
# opus-2020-02-26.zip

* dataset: opus
* model: transformer-align
* source language(s): en
* target language(s): de
* license: none
"""
SCRIPT = r"""#!/bin/bash
# USAGE preprocess.sh langid spmodel < input > output
sed -e 's/，/,/g' \
    -e 's/。 */. /g' \
    -e 's/？/\?/g' \
    -e 's/１/"/g' \
    -e "s/’/\'/g" \
    -e 's/…/\.\.\./g' \
    -e 's/％/\%/g' |
perl -C -pe  's/(?!\n)\p{C}/ /g;' |
perl -CIOE -pe 's/[\x{2060}\x{200B}\x{feff}]//g' |\
sed 's/  */ /g;s/^ *//g;s/ *$//g' |
${SPMENCODE} --model $2
"""


@functools.cache
def spm(side: int, size: int = 200, more: tuple[str, ...] = ()) -> bytes:
    """A unigram model with SentencePiece's own ids, of one side of the teaching corpus. `more`: symbols of its own."""
    return _learned((side,), vocab_size=size, user_defined_symbols=list(more))


@functools.cache
def own_spm(size: int = 200, sides: tuple[int, ...] = (0, 1), symbols: tuple[str, ...] = ()) -> bytes:
    """As Marian trains it, from these sides: </s> is 0, <unk> is 1, and there is no <s>."""
    own: dict[str, Any] = {"bos_id": -1, "eos_id": 0, "unk_id": 1, "byte_fallback": True}
    return _learned(sides, vocab_size=size, user_defined_symbols=list(symbols), **own)


def _learned(sides: tuple[int, ...], **options: Any) -> bytes:
    text = [pair[side] for pair in pairs(train=600, valid=0, test=0)["train"] for side in sides]
    model, quiet = io.BytesIO(), dict[str, Any](hard_vocab_limit=False, minloglevel=2, num_threads=1)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=model, **quiet, **options)
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    """The pieces of a text's, without <unk>, <s> and </s>."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]


@dataclass
class Marian:
    """A model of Marian's; `save` writes its files."""

    arrays: dict[str, Array]
    options: dict[str, Any]
    vocabularies: list[list[str]]
    """The tokens of source and target by their ids; one list: a joint vocabulary."""
    models: list[bytes]
    script: str = SCRIPT
    about: str = ABOUT
    decoder: dict[str, Any] = field(default_factory=lambda: {"beam-size": 6, "normalize": 1, "word-penalty": 0})

    @property
    def config(self) -> bytes:
        """special:model.yml, which ends in NULs."""
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in self.options.items()).encode() + bytes(7)

    def files(self) -> dict[str, bytes]:
        names = ["vocab.yml"] if len(self.vocabularies) == 1 else ["src.vocab.yml", "trg.vocab.yml"]
        written = {name: yaml(table).encode() for name, table in zip(names, self.vocabularies, strict=True)}
        listed = {"models": ["model.npz"], "vocabs": names * (3 - len(names)), **self.decoder}
        written["decoder.yml"] = "".join(f"{key}: {json.dumps(value)}\n" for key, value in listed.items()).encode()
        written |= {f"{side}.spm": model for side, model in zip(("source", "target"), self.models, strict=True)}
        texts = {"preprocess.sh": self.script, "README.md": self.about, "LICENSE": "CC-BY 4.0\n"}
        written |= {name: text.encode() for name, text in texts.items() if text}
        return {**written, "model.npz": npz({**self.arrays, "special:model.yml": np.frombuffer(self.config, np.int8)})}

    def save(self, folder: Path) -> Path:
        return written(folder, self.files())

    def zip(self, path: Path, top: str = "") -> Path:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in self.files().items():
                archive.writestr(top + name, content)
        return path

    def tar(self, path: Path, entries: Iterable[tarfile.TarInfo] = (), top: str = "opus/") -> Path:
        return tarred(path, self.files(), entries, top)


def marian(
    activation: str = "swish",
    ties: str = "all",
    separate: bool = False,
    older: bool = False,
    layers: tuple[int, int] = (2, 1),
    tables: Sequence[list[str]] = (),
    models: Sequence[bytes] = (),
    seed: int = 1,
    ssru: bool = False,
    sizes: tuple[int, int, int] = (D, HIDDEN, HEADS),
    scale: float = 0.2,
    **changes: Any,
) -> Marian:
    """A model with random weights. `ties`: the embeddings that are one matrix: all, target (and output), src or none.
    `ssru`: with SSRUs in its decoder; `sizes`: d_model, d_ff and heads; `scale`: of the weights."""
    width, inner, heads = sizes
    random = np.random.default_rng(seed)
    models = list(models or (spm(0), spm(1, 230)))
    if not tables:
        sides = [pieces(model) for model in models]
        joint = list(dict.fromkeys([*sides[1][::-1], *ODD, *sides[0]]))
        tables = [["</s>", "<unk>", *side] for side in (sides if separate else [joint])]
    tokens = len(tables[0]), len(tables[-1])

    def matrix(*shape: int) -> Array:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    arrays = {"decoder_ff_logit_out_b": matrix(1, tokens[1])}
    if ties in ("all", "src"):
        arrays["Wemb"] = matrix(tokens[0], width)
    else:
        arrays |= {"encoder_Wemb": matrix(tokens[0], width), "decoder_Wemb": matrix(tokens[1], width)}
    if ties in ("src", "none"):
        name, shape = ("W", (width, tokens[1])) if older else ("Wt", (tokens[1], width))
        arrays[f"decoder_ff_logit_out_{name}"] = matrix(*shape)

    def norm(name: str) -> dict[str, Array]:
        return {f"{name}_ln_scale": 1 + matrix(1, width), f"{name}_ln_bias": matrix(1, width)}

    for side, depth in zip(("encoder", "decoder"), layers, strict=True):
        for layer in range(1, depth + 1):
            begin = f"{side}_l{layer}"
            if unit := ssru and side == "decoder":
                names = {"W": (width, width), "Wf": (width, width), "bf": (1, width)}
                arrays |= {f"{begin}_rnn_{name}": matrix(*shape) for name, shape in names.items()}
                arrays |= norm(f"{begin}_rnn_ffn")
            for kind in ("self", "context")[bool(unit) : 1 + (side == "decoder")]:
                for part in "qkvo":
                    arrays[f"{begin}_{kind}_W{part}"] = matrix(width, width)
                    arrays[f"{begin}_{kind}_b{part}"] = matrix(1, width)
                arrays |= norm(f"{begin}_{kind}_Wo")
            for part, rows, columns in (("1", width, inner), ("2", inner, width)):
                arrays[f"{begin}_ffn_W{part}"] = matrix(rows, columns)
                arrays[f"{begin}_ffn_b{part}"] = matrix(1, columns)
            arrays |= norm(f"{begin}_ffn_ffn")
    options = {
        **{"type": "transformer", "version": "v1.9.0 ba94c5b9 2020-05-17 10:42:17 +0100", "dim-emb": width},
        **{"dim-vocabs": list(tokens), "enc-depth": layers[0], "dec-depth": layers[1], "transformer-heads": heads},
        **{"transformer-dim-ffn": inner, "transformer-decoder-dim-ffn": 0, "transformer-ffn-depth": 2},
        **{"transformer-decoder-ffn-depth": 0, "transformer-ffn-activation": activation, "transformer-preprocess": ""},
        **{"transformer-postprocess": "dan", "transformer-postprocess-top": "", "transformer-postprocess-emb": "d"},
        **{"transformer-decoder-autoreg": "self-attention", "transformer-guided-alignment-layer": "last"},
        **{"transformer-tied-layers": [], "input-types": [], "lemma-dim-emb": 0, "factors-dim-emb": 0},
        **{"dec-cell": "gru", "dim-rnn": 1024, "skip": False, "tied-embeddings": ties == "target"},
        **{"tied-embeddings-all": ties == "all", "tied-embeddings-src": ties == "src"},
        **dict.fromkeys(OFF, False),
        **({"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"} if ssru else {}),
        **changes,
    }
    return Marian(arrays, options, list(tables), list(models))


def yaml(table: Sequence[str]) -> str:
    """A vocabulary as Marian writes it: plain keys where YAML takes them for what they are, else quoted ones."""
    plain = [piece in ("~", "</s>") or (piece.isalnum() and piece.isascii()) for piece in table]
    keys = [piece if bare else json.dumps(piece, ensure_ascii=False) for piece, bare in zip(table, plain, strict=True)]
    return "".join(f"{key}: {number}\n" for number, key in enumerate(keys))


def npz(arrays: Mapping[str, Array]) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def container(arrays: Mapping[str, Array], config: bytes, kind: int = 0x404) -> bytes:
    """Marian's binary container: the data of each array in multiples of 256 bytes. `kind`: the number of the type."""
    items = [(name, kind, array.shape, array.astype("<f4").tobytes()) for name, array in arrays.items()]
    return _container([*items, ("special:model.yml", 0x101, (len(config),), config)])


def of_integers(arrays: Mapping[str, Array], kind: int = 0x4101, embeddings: bool = True) -> dict[str, Integers]:
    """The matrices that Marian's converter rounds, each with one factor; `embeddings`: these too."""
    names = [name for name in arrays if re.search("_W.?.?$|Wemb" if embeddings else "_W.?.?$", name)]
    return {name: Integers.of(arrays[name], kind) for name in names}


class Integers(NamedTuple):
    """A matrix is integers / factor."""

    kind: int
    integers: Array
    factor: np.float32

    @classmethod
    def of(cls, matrix: Array, kind: int) -> Integers:
        largest = np.abs(matrix).max()
        factor = np.float32(127 / largest if kind & 1 else 1024)
        return cls(kind, np.rint(matrix * factor).astype("<i1" if kind & 1 else "<i2"), factor)

    @property
    def numbers(self) -> Array:
        return np.asarray(self.integers * (np.float32(1) / self.factor), np.float32)


def students_container(model: Marian, integers: Mapping[str, Integers], activations: bool = True) -> bytes:
    """The container that Firefox reads: what is rounded is stored transposed, but for the embeddings.

    `activations`: with the factors of what is multiplied with the matrices.
    """
    items = []
    for name, array in sorted(model.arrays.items()):
        if name not in integers:
            items.append((name, 0x404, array.shape, array.tobytes()))
            continue
        kind, rounded, factor = integers[name]
        stored = rounded if "Wemb" in name else np.ascontiguousarray(rounded.T)
        items.append((name, kind, array.shape, stored.tobytes() + factor.tobytes()))
        if activations:
            other = kind if "Wemb" in name else 0x404  # mistyped there
            items.append((f"{name}_QuantMultA", other, (1, 1), np.float32(9).tobytes() + b"\0\0\0"))
    return _container([*items, ("special:model.yml", 0x101, (len(model.config),), model.config)])


def student(vocabularies: Sequence[bytes] = (), **changes: Any) -> Marian:
    """A model as Firefox has: SSRUs, relu, and SentencePiece's own ids. `vocabularies`: one of both sides, or two."""
    models = list(vocabularies or [own_spm(400)])
    processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
    tables = [[one.id_to_piece(number) for number in range(one.get_piece_size())] for one in processors]
    ties = "all" if len(models) == 1 else "target"
    return marian(**{"activation": "relu", "ties": ties, "tables": tables, "models": models, "ssru": True, **changes})


def students_files(model: Marian, pair: str = "ende", kind: int = 0x4101, **more: str) -> dict[str, bytes]:
    """The files of a folder or an archive of Firefox's. `more`: texts of further files, `__` for a full stop."""
    names = ["vocab"] if len(model.models) == 1 else ["srcvocab", "trgvocab"]
    content = students_container(model, of_integers(model.arrays, kind))
    return {
        f"model.{pair}.intgemm.alphas.bin": content,
        f"lex.50.50.{pair}.s2t.bin": b"\xf1",
        **{f"{name}.{pair}.spm": spm for name, spm in zip(names, model.models, strict=True)},
        **{name.replace("__", "."): text.encode() for name, text in more.items()},
    }


def imported(source: Path, out: Path, **options: Any) -> Imported:
    return import_model(source, out, "", ImportOptions(**options))


def written(folder: Path, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def tarred(path: Path, files: Mapping[str, bytes], entries: Iterable[tarfile.TarInfo] = (), top: str = "") -> Path:
    """Files below the folder `top` of a tar. `entries` come first; each has zeros."""
    kind: Any = {".gz": "w:gz", ".xz": "w:xz"}.get(path.suffix, "w:")
    with tarfile.open(path, kind) as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))
        for name, content in files.items():
            entry = tarfile.TarInfo(top + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def _container(items: Sequence[tuple[str, int, tuple[int, ...], bytes]]) -> bytes:
    """Name, type, shape and data of each array."""
    names = [name.encode() + b"\0" for name, *_ in items]
    data = [content + bytes(-len(content) % 256) for *_, content in items]
    headers = [
        struct.pack("<4Q", len(name), of, len(shape), len(stored))
        for name, (_, of, shape, _), stored in zip(names, items, data, strict=True)
    ]
    shapes = [struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items]
    begin = b"".join([struct.pack("<QQ", 1, len(items)), *headers, *names, *shapes])
    padding = -(len(begin) + 8) % 256
    return begin + struct.pack("<Q", padding) + bytes(padding) + b"".join(data)
