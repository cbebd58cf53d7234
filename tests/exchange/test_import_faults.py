"""`nmt import` refuses what it cannot convert: by name, in one line, and nothing is left of it."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disks import entering, small_disk
from forked import nmt
from marian_models import SHARED, Marian, container, marian, needs_marian, npz, yaml

from nmt_cli.cli import app
from nmt_cli.errors import ModelError, NmtError, RecipeError, UsageError
from nmt_cli.exchange import importing
from nmt_cli.exchange.importer import ImportOptions, SourceFiles
from nmt_cli.exchange.importing import import_model
from nmt_cli.exchange.marian_files import weights_in

pytestmark = pytest.mark.usefixtures("few_lines")

LANGUAGES = ImportOptions("en", "de")
Change = Callable[[Path, Marian], Any]


@pytest.fixture(scope="module")
def model() -> Marian:
    return marian(layers=(1, 1))


def refused(source: Path, out: Path, by: str = "", options: ImportOptions = LANGUAGES) -> str:
    """What is said of a source that is refused, one line; nothing is left."""
    with pytest.raises(NmtError) as error:
        import_model(source, out, by, options)
    assert not out.exists()
    assert not [path for path in out.parent.iterdir() if path.name.startswith(".")]
    assert "\n" not in str(error.value) or isinstance(error.value, RecipeError)  # which lists all faults of a recipe
    return str(error.value)


# --- weights, options, vocabularies ---


def arrays(change: Callable[[dict[str, Any]], Any]) -> Change:
    def changed(folder: Path, model: Marian) -> None:
        stored = {**model.arrays, "special:model.yml": np.frombuffer(model.config, np.int8)}
        change(stored)
        (folder / "model.npz").write_bytes(npz(stored))

    return changed


def option(name: str, value: Any) -> Change:
    def changed(folder: Path, model: Marian) -> None:
        options = {**model.options, name: value}
        options = {key: kept for key, kept in options.items() if kept is not None}
        config = Marian(model.arrays, options, model.vocabularies, model.models).config
        stored = {**model.arrays, "special:model.yml": np.frombuffer(config, np.int8)}
        (folder / "model.npz").write_bytes(npz(stored))

    return changed


def text(name: str, content: str | bytes) -> Change:
    def changed(folder: Path, _: Marian) -> None:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return changed


def without(name: str) -> Change:
    return lambda folder, _: (folder / name).unlink()


def replaced(name: str, make: Callable[[Path], None]) -> Change:
    def changed(folder: Path, _: Marian) -> None:
        (folder / name).unlink()
        make(folder / name)

    return changed


def cut(folder: Path, model: Marian) -> None:
    content = (folder / "model.npz").read_bytes()
    (folder / "model.npz").write_bytes(content[: len(content) // 2])


def in_container(kind: int) -> Change:
    def changed(folder: Path, model: Marian) -> None:
        (folder / "model.npz").write_bytes(container(model.arrays, model.config, kind))

    return changed


def with_nan(stored: dict[str, Any]) -> None:
    stored["Wemb"] = stored["Wemb"].copy()
    stored["Wemb"][3, 3] = np.nan


def sparse(name: str) -> Change:
    return lambda folder, _: os.truncate(folder / name, 6 << 30)


def zeros(folder: Path, model: Marian) -> None:
    """Half a megabyte that stands for 512."""
    model.save(folder)
    with (
        zipfile.ZipFile(folder / "model.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("Wemb.npy", "w") as npy,
    ):
        form = {"descr": "<f4", "fortran_order": False, "shape": (2**23, 16)}
        np.lib.format.write_array_header_1_0(npy, form)
        for _ in range(64):
            npy.write(bytes(2**23))


def array_with(head: str) -> Change:
    """An array more, with this header."""

    def changed(folder: Path, _: Marian) -> None:
        content = head.ljust(117) + "\n"
        with zipfile.ZipFile(folder / "model.npz", "a") as archive:
            archive.writestr(
                "x.npy", b"\x93NUMPY\1\0" + len(content).to_bytes(2, "little") + content.encode() + bytes(64)
            )

    return changed


def many_zeros(folder: Path, _: Marian) -> None:
    """Two arrays that are not too large one by one."""
    with zipfile.ZipFile(folder / "model.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        for name in "xy":
            content = io.BytesIO()
            np.save(content, np.zeros(12_000_000, np.float32))
            archive.writestr(f"{name}.npy", content.getvalue())


def lying(folder: Path, model: Marian) -> None:
    """The last array has fewer numbers than its header and the zip say."""
    name = list(model.arrays)[-1]
    stored = {**model.arrays, "special:model.yml": np.frombuffer(model.config, np.int8)}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in [*(one for one in stored if one != name), name]:
            npy = io.BytesIO()
            np.save(npy, stored[one])
            archive.writestr(f"{one}.npy", npy.getvalue()[: -60 if one == name else None])
    changed = bytearray(content.getvalue())
    at = changed.rfind(b"PK\1\2") + 24
    changed[at : at + 4] = (int.from_bytes(changed[at : at + 4], "little") + 60).to_bytes(4, "little")
    (folder / "model.npz").write_bytes(changed)


def script(line: str) -> Change:
    return text("preprocess.sh", f"#!/bin/bash\n{line} |\n${{SPMENCODE}} --model $2\n")


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghijkl"))
FAULTS: dict[str, tuple[Change, str]] = {
    "unknown tensor": (arrays(lambda a: a.update(more=np.zeros(3, "f4"))), "1 arrays that nmt does not know.*'more'"),
    "missing tensor": (arrays(lambda a: a.pop("encoder_l1_ffn_W1")), "the weights lack encoder_l1_ffn_W1"),
    "wrong shape": (
        arrays(lambda a: a.update(encoder_l1_ffn_W1=np.zeros((5, 24), "f4"))),
        r"encoder_l1_ffn_W1 has the shape \(5, 24\), expected \(16, 24\)",
    ),
    "a vector": (arrays(lambda a: a.update(encoder_l1_ffn_W1=np.zeros(16, "f4"))), "encoder_l1_ffn_W1 has the shape"),
    "a number": (arrays(lambda a: a.update(encoder_l1_ffn_b1=np.float32(3))), "encoder_l1_ffn_b1 has the shape"),
    "too few tokens": (
        arrays(lambda a: a.update(Wemb=a["Wemb"][:-1])),
        r"Wemb has \d+ tokens, and the target vocabulary \d+",
    ),
    "NaN": (arrays(with_nan), "Wemb has numbers that are not finite"),
    "doubles": (arrays(lambda a: a.update(Wemb=a["Wemb"].astype("f8"))), "Wemb has the dtype float64, expected fp32"),
    "pickled": (arrays(lambda a: a.update(Wemb=np.array([{}, open], object))), "Object arrays cannot be loaded"),
    "a header that does not end": (array_with("{'descr': '<f4', ("), "it has something else than arrays of numbers"),
    "a dtype of one part": (
        array_with("{'descr': ('<f4',), 'fortran_order': False, 'shape': (1,)}"),
        "it has something else than arrays of numbers",
    ),
    "no dtype": (
        array_with("{'descr': '<f9', 'fortran_order': False, 'shape': (1,)}"),
        "neither an .npz nor a binary container of Marian's in fp32: data type '<f9' not understood",
    ),
    "arrays of any size together": (many_zeros, "it unpacks from .* to 96,.* bytes, which no weights do"),
    "a size that is not true": (lying, "it is cut: an array has fewer bytes than its form needs"),
    "no configuration": (arrays(lambda a: a.pop("special:model.yml")), "has no special:model.yml"),
    "configuration is no YAML": (
        arrays(lambda a: a.update({"special:model.yml": np.frombuffer(b"a: [\0", np.int8)})),
        "special:model.yml, line 1: expected a name with a value",
    ),
    "configuration is a list": (
        arrays(lambda a: a.update({"special:model.yml": np.frombuffer(b"- a\n\0", np.int8)})),
        "special:model.yml, line 1: expected a name with a value",
    ),
    "no numbers": (option("dim-emb", "wide"), "dim-emb = 'wide', expected a number"),
    "no heads": (option("transformer-heads", 0), "num_heads"),
    "minus one layer": (option("enc-depth", -1), "encoder_layers"),
    "no width": (option("dim-emb", None), "dim-emb = None, expected a number"),
    "two activations": (
        option("transformer-ffn-activation", ["swish"]),
        r"transformer-ffn-activation = \['swish'\], which nmt does not have: expected 'relu' or 'swish' or 'gelu'",
    ),
    "a script that leads nowhere": (
        replaced("preprocess.sh", lambda path: path.symlink_to("none")),
        "preprocess.sh of .* is no plain file",
    ),
    "weights that are a pipe": (replaced("model.npz", os.mkfifo), "model.npz of .* is no plain file"),
    "SSRU": (
        lambda f, m: option("transformer-decoder-autoreg", "rnn")(
            f, Marian(m.arrays, {**m.options, "dec-cell": "ssru"}, m.vocabularies, m.models)
        ),
        "the model has an SSRU decoder",
    ),
    "rnn": (option("type", "s2s"), "the model has type = 's2s', which nmt does not have: expected 'transformer'"),
    "tied layers": (option("transformer-tied-layers", [1, 1]), "transformer-tied-layers"),
    "two sizes": (option("transformer-decoder-dim-ffn", 32), "transformer-decoder-dim-ffn = '32', which nmt"),
    "factors": (option("factors-dim-emb", 8), "factors-dim-emb = '8'"),
    "unknown option": (option("transformer-new", "x"), "an option that nmt does not know: transformer-new = 'x'"),
    "gap in the vocabulary": (text("vocab.yml", "</s>: 0\n<unk>: 1\na: 3\n"), "are not those from 0 to 2, each once"),
    "twice in the vocabulary": (text("vocab.yml", "</s>: 0\n<unk>: 1\na: 1\n"), "are not those from 0 to 2"),
    "no vocabulary": (without("vocab.yml"), "lacks vocab.yml"),
    "a vocabulary that is a list": (
        text("vocab.yml", "- a\n- b\n"),
        "vocab.yml, line 1: expected a token and its number",
    ),
    "a vocabulary without </s>": (text("vocab.yml", "<unk>: 0\na: 1\n"), "vocab.yml has no </s>"),
    "a token without a text": (
        lambda f, m: text("vocab.yml", yaml([*m.vocabularies[0], ""]))(f, m),
        "has a token without a text",
    ),
    "a vocabulary of more tokens than weights": (
        text("vocab.yml", "".join(f"a{number}: {number}\n" for number in range(1000))),
        r"vocab.yml, line \d+: expected at most \d+ names",
    ),
    "a name twice": (text("decoder.yml", "beam-size: 1\nbeam-size: 2\n"), "decoder.yml, line 2: expected .* once"),
    "a token of any length": (
        text("vocab.yml", f"</s>: 0\n<unk>: 1\n? {'a' * 5000}\n: 2\n"),
        "has the token 'aaa.*a' of 5,000 characters, expected at most 256",
    ),
    "a vocabulary that is no YAML": (
        text("vocab.yml", '"a: 0\n\tb: ['),
        "vocab.yml, line 1: expected a token and its number",
    ),
    "an empty vocabulary": (text("vocab.yml", ""), "vocab.yml has no </s>"),
    "a nested vocabulary": (text("vocab.yml", "[" * 200_000), "vocab.yml, line 1: expected a token and its number"),
    "no source.spm": (without("source.spm"), "lacks source.spm"),
    "target.spm is a folder": (replaced("target.spm", Path.mkdir), "lacks target.spm"),
    "source.spm is damaged": (
        text("source.spm", b"\xff" * 99),
        "source.spm is not a SentencePiece model, or a damaged",
    ),
    "BPE": (lambda f, _: (f / "source.spm").rename(f / "source.bpe"), "BPE codes of subword-nmt"),
    "BPE in the script": (script("apply_bpe.py -c $2"), "preprocess.sh uses BPE codes of subword-nmt"),
    "an ensemble": (text("decoder.yml", "models: [model.npz, model2.npz]\nvocabs: [vocab.yml]\n"), "names 2 models"),
    "decoder.yml is a list": (text("decoder.yml", "- a\n"), "decoder.yml, line 1: expected a name with a value"),
    "decoder.yml stands for more than there is memory": (
        text("decoder.yml", BOMB),
        "decoder.yml, line 1: expected a name with a value",
    ),
    "weights of any size": (
        zeros,
        "container of Marian.s in fp32: it unpacks from .* to 536,871,040 bytes, which no weights do",
    ),
    "a README of any size": (sparse("README.md"), r"cannot read README.md of .*, expected at most 67,108,864"),
    "a script of any size": (text("preprocess.sh", " 'a'" * 20_000), "80,000 bytes, expected at most 32,768"),
    "a word penalty": (
        text("decoder.yml", "models: [model.npz]\nvocabs: [vocab.yml, vocab.yml]\nword-penalty: 0.2\n"),
        "word-penalty = '0.2', which nmt does not have",
    ),
    "a beam of words": (
        text("decoder.yml", "vocabs: [vocab.yml]\nbeam-size: many\n"),
        "beam-size = 'many', normalize = 0: expected numbers",
    ),
    "no beam": (text("decoder.yml", "vocabs: [vocab.yml]\nbeam-size: 0\n"), "beam"),
    "an empty model": (text("model.npz", b""), "model.npz is neither an .npz nor a binary container"),
    "half a model": (cut, "model.npz is neither an .npz nor a binary container"),
    "fp16": (in_container(0x402), "is in the type 0x402, and nmt reads fp32"),
    "a long name": (
        lambda f, m: text("model.npz", container({"x" * 2000: np.zeros(1)}, m.config))(f, m),
        "an array has a name of more than 1,000 bytes, or too many dimensions",
    ),
    "no arrays": (
        lambda f, m: text("model.npz", npz({"special:model.yml": np.frombuffer(m.config, np.int8)}))(f, m),
        "vocab.yml, line 2: expected at most 0 names",
    ),
    "intgemm": (in_container(0x10001), "is in int8 of intgemm, and nmt reads fp32"),
    "an unknown program": (
        script("sed -e 's/a/b/g' | tr a-z A-Z | perl -pe 's/x/y/'"),
        "a step that nmt does not know",
    ),
    "rules that build on each other": (script("sed -e 's/，/;/g' -e 's/;/x/g'"), "replaces ';', which an earlier step"),
    "no language": (text("README.md", ""), "do not say the source language: give --source-language"),
    "no code of a language": (
        text("README.md", "* source language(s): e\x1b[31m$(x)\n* target language(s): de\n"),
        r"the source language is '.*': expected the code of a language.* Give --source-language CODE\.",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_marian_model_is_named(fault: str, model: Marian, tmp_path: Path) -> None:
    change, said = FAULTS[fault]
    folder = model.save(tmp_path / "opus")
    change(folder, model)
    options = ImportOptions() if "language" in fault else LANGUAGES
    message = refused(folder, tmp_path / "out", options=options)
    assert re.search(said, message), message


# --- sources ---


def files(**contents: str | bytes) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        (folder / "model").mkdir()
        for name, content in contents.items():
            path = folder / "model" / name.replace("__", ".")
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return folder / "model"

    return made


def truncated_zip(folder: Path) -> Path:
    path = marian(layers=(1, 1)).zip(folder / "opus.zip")
    path.write_bytes(path.read_bytes()[:-400])
    return path


def damaged_zip(folder: Path) -> Path:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, stored in marian(layers=(1, 1)).files().items():
            archive.writestr(name, stored)
    damaged = bytearray(content.getvalue())
    with zipfile.ZipFile(content) as archive:
        start = archive.getinfo("vocab.yml").header_offset + 60
    damaged[start : start + 200] = b"\xff" * 200
    (folder / "opus.zip").write_bytes(damaged)
    return folder / "opus.zip"


def zip_with(change: Callable[[bytearray], None], method: int = zipfile.ZIP_STORED) -> Callable[[Path], Path]:
    """A zip whose bytes are changed."""

    def made(folder: Path) -> Path:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", method) as archive:
            for name, stored in marian(layers=(1, 1)).files().items():
                archive.writestr(name, stored)
        changed = bytearray(content.getvalue())
        change(changed)
        (folder / "opus.zip").write_bytes(changed)
        return folder / "opus.zip"

    return made


def damaged_lzma(content: bytearray) -> None:
    at = content.find(b"vocab.yml") + 30
    content[at : at + 90] = b"\xee" * 90


def name_of_other_bytes(content: bytearray) -> None:
    at = content.rfind(b"PK\1\2")
    content[at + 8 : at + 10] = b"\0\x08"  # the flag of UTF-8
    content[at + 46 : at + 48] = b"\xff\xfe"


def newer_version(content: bytearray) -> None:
    content[content.rfind(b"PK\1\2") + 6] = 99


def many_files(folder: Path) -> Path:
    path = marian(layers=(1, 1)).zip(folder / "opus.zip")
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(10_000):
            archive.writestr(f"{number}", b"")
    return path


def encrypted_zip(folder: Path) -> Path:
    path = marian(layers=(1, 1)).zip(folder / "opus.zip")
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(signature)
        while at >= 0:
            content[at + offset] |= 1  # the flag of an encrypted file
            at = content.find(signature, at + 1)
    path.write_bytes(content)
    return path


def repeated(folder: Path) -> Path:
    path = marian(layers=(1, 1)).zip(folder / "opus.zip", "one/")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("two/source.spm", b"")
    return path


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.npz")
    return folder / "pipe.npz"


@pytest.mark.parametrize("cache", [False, True])
def test_only_the_cache_of_hugging_face_has_texts_that_are_links(cache: bool, tmp_path: Path) -> None:
    folder = marian(layers=(1, 1)).save(tmp_path / "models--x" / "snapshots" / "1")
    elsewhere = tmp_path / ("models--x/blobs" if cache else "secrets") / "abc"
    elsewhere.parent.mkdir()
    for name in ("README.md", "LICENSE", "vocab.yml"):
        target = elsewhere.with_name(f"{name}-1")
        target.write_bytes((folder / name).read_bytes() if name[0] == "v" else b"what is private\n")
        (folder / name).unlink()
        (folder / name).symlink_to(target)
    done = import_model(folder, tmp_path / "out", "", LANGUAGES)
    assert ("what is private" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")) == cache
    assert done.model.license == "what is private" * cache


def test_what_files_name_is_a_line_of_the_card_each(tmp_path: Path) -> None:
    model = marian(layers=(1, 1))
    table = [*model.vocabularies[0][:-2], ">>de\n- Licence: none<<", ">>x\x1b[31m<<", ">>cmn_Hans<<"]
    model = marian(layers=(1, 1), tables=[table])
    model.about = f"license: {'MIT' * 10**6}\r- Note: \x1b[31msigned\n"
    done = import_model(model.save(tmp_path / "opus"), tmp_path / "out", "", LANGUAGES)
    assert list(done.model.tags) == ["cmn_Hans"]
    assert re.fullmatch(r"(MIT)+…[MIT]+\\r- Note: \\x1b\[31msigned", done.model.license)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8").partition("## What")[0]
    assert len(card) < 1000
    assert all(line.isprintable() for line in card.split("\n"))
    assert card.count("\n- ") == 2


CONFIG = json.dumps({"model_type": "m2m_100"})
SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing": (lambda folder: folder / "none", "there is no model at"),
    "a pipe": (pipe, "but a pipe or a device"),
    "a device": (lambda _: Path("/dev/zero"), "but a pipe or a device"),
    "an empty folder": (files(), "holds no model that nmt knows: expected a Marian or OPUS-MT model"),
    "a text": (lambda folder: files(text="x")(folder) / "text", "but another file: expected a folder, a zip"),
    "CTranslate2": (
        files(model__bin=b"\6\0\0\0", config__json="{}", shared_vocabulary__json="[]"),
        "is a model of CTranslate2, which nmt cannot import yet",
    ),
    "Argos": (files(metadata__json="{}", README__md="x"), "is a package of Argos Translate"),
    "M2M100": (
        files(config__json=CONFIG, model__safetensors=b"", sentencepiece__bpe__model=b""),
        "model_type = 'm2m_100', which nmt does not have",
    ),
    "M2M100 as pickle": (files(config__json=CONFIG, pytorch_model__bin=b""), "type 'm2m_100' of transformers"),
    "NLLB": (files(config__json=CONFIG, tokenizer__json="{}"), "type 'm2m_100' of transformers"),
    "pickle": (
        files(config__json='{"model_type": "marian"}', pytorch_model__bin=b"PK"),
        "which needs pickle to be read",
    ),
    "a file of pickle": (
        lambda folder: files(pytorch_model__bin=b"PK")(folder) / "pytorch_model.bin",
        "which needs pickle to be read",
    ),
    "a checkpoint": (files(model__pt=b"PK"), "has weights that need pickle to be read"),
    "Firefox": (
        files(**{"model.ende.intgemm.alphas.bin": b"", "lex.50.50.ende.s2t.bin": b""}),
        "int8 model of Marian's",
    ),
    "a truncated zip": (truncated_zip, "opus.zip"),
    "a damaged zip": (damaged_zip, "cannot read vocab.yml of .*opus.zip"),
    "LZMA that is damaged": (zip_with(damaged_lzma, zipfile.ZIP_LZMA), "cannot read vocab.yml of .*Corrupt input data"),
    "a name in a zip that is not UTF-8": (zip_with(name_of_other_bytes), "cannot read opus.zip of .*can't decode byte"),
    "a newer zip": (zip_with(newer_version), "cannot read opus.zip of .*zip file version 9.9"),
    "a zip of many files": (many_files, "it holds 10,008 files, expected at most 10,000"),
    "an encrypted zip": (encrypted_zip, "cannot read .*encrypted"),
    "several folders in a zip": (repeated, "has several files called source.spm"),
    "several models": (files(**{"a.npz": b"", "b.npz": b""}), "has several models: name one of them, such as 'a.npz'"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_no_model_for_us_is_named(source: str, tmp_path: Path) -> None:
    make, said = SOURCES[source]
    message = refused(make(tmp_path), tmp_path / "out")
    assert re.search(said, message), message


@needs_marian
def test_marians_own_files_in_int8_and_with_ssru_are_named(tmp_path: Path) -> None:
    assert "an SSRU decoder" in refused(SHARED / "ssru" / "model.npz", tmp_path / "out")
    assert "int8 of intgemm" in refused(SHARED / "ssru" / "model.intgemm8.bin", tmp_path / "out")
    assert "an SSRU decoder" in refused(SHARED / "ssru", tmp_path / "out")


def test_the_importer_that_is_asked_for_is_taken(model: Marian, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "opus")
    said = refused(folder, tmp_path / "out", by="hugging")
    assert "--from" in said
    assert "marian" in said
    assert "lacks config.json" in refused(folder, tmp_path / "out", by="huggingface")
    (tmp_path / "empty").mkdir()
    assert "no model of Marian's" in refused(tmp_path / "empty", tmp_path / "out", by="marian")


def test_damaged_weights_raise_nothing_else(model: Marian, tmp_path: Path) -> None:
    """Whatever bytes are changed, cut or added: arrays, or one error."""
    rng = random.Random(1)
    small = dict(list(model.arrays.items())[2:6])
    whole = [container(small, model.config), npz({**small, "special:model.yml": np.frombuffer(model.config, np.int8)})]
    for number in range(600):
        content = bytearray(whole[number % 2])
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(rng.choice([64, 400, len(content)]))
            content[at : at + rng.choice([1, 1, 4, 8])] = rng.randbytes(rng.choice([0, 1, 4, 8]))
        (tmp_path / "model.npz").write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        with suppress(ModelError):
            weights_in(SourceFiles(tmp_path / "model.npz"), "model.npz")


# --- the command ---


def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["nmt", "import", *map(str, arguments)])
    code = app.run()
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return code, " ".join(said.err.split())


def test_the_command_says_what_was_imported_and_what_is_wrong(
    model: Marian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = model.zip(tmp_path / "opus.zip"), tmp_path / "out"
    code, said = command(monkeypatch, capsys, path, "--out", out)
    assert code == 0, said
    assert f"wrote {out}: a model of Marian, en to de" in said
    assert "1 + 1 layers, d_model 16," in said
    assert "beam 6, score / length^1" in said
    assert "licence: " in said
    assert "translated in parts from 64 tokens on" in said
    assert "verified equal on " in said
    assert re.search(r"both tokenizers divide \d+ made-up lines of several scripts equally", said)
    assert f"next: nmt translate --model {out} < input" in said
    assert command(monkeypatch, capsys, path, "--out", out)[0] == 0  # an earlier result is replaced
    (out / "mine.txt").write_text("x")
    code, said = command(monkeypatch, capsys, path, "--out", out)
    assert (code, (out / "mine.txt").read_text()) == (2, "x")
    assert "is not replaced" in said
    code, said = command(monkeypatch, capsys, path, "--out", tmp_path / "new", "--positions", "other")
    assert code == 2
    assert "--positions 'other': expected marian or huggingface" in said
    code, said = command(monkeypatch, capsys, tmp_path / "none", "--out", tmp_path / "new")
    assert code == 1
    assert "there is no model at" in said
    assert command(monkeypatch, capsys, path)[0] == 2
    assert command(monkeypatch, capsys, path, "--out", path)[0] == 2
    assert not (tmp_path / "new").exists()


def test_another_model_is_not_replaced(model: Marian, tmp_path: Path, made: Any) -> None:
    folder = made()
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(UsageError, match="is not replaced"):
        import_model(model.save(tmp_path / "opus"), folder, "", LANGUAGES)
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("at", ["write_model", "write_named", "verify"])
@pytest.mark.parametrize("stops", [KeyboardInterrupt, MemoryError, OSError(28, "No space left on device")])
def test_an_import_that_ends_early_leaves_nothing(
    at: str, stops: Any, model: Marian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise stops

    source = model.save(tmp_path / "opus")
    monkeypatch.setattr(importing, at, stopped)
    (tmp_path / "results").mkdir()
    with pytest.raises((KeyboardInterrupt, MemoryError, ModelError)):
        import_model(source, tmp_path / "results" / "out", "", LANGUAGES)
    assert not [*(tmp_path / "results").iterdir()]


def test_a_tokenizer_or_model_that_differs_is_not_written(
    model: Marian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = model.save(tmp_path / "opus")
    from nmt_cli.exchange import marian as importer

    correct = importer.converted

    def spoiled(*arguments: Any) -> Any:
        weights = correct(*arguments)
        name = "encoder.0.feed_forward.inner.bias"
        return {**weights, name: weights[name].then(lambda bias: bias + np.float32(0.01))}

    monkeypatch.setattr(importer, "converted", spoiled)
    assert "is not equal to the model" in refused(source, tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(importing, "LINES", 300)
    monkeypatch.setattr(importer, "replacements_in", lambda _: ({}, False))
    assert "to our tokenizer, " in refused(source, tmp_path / "out")


@pytest.mark.slow
def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    source = marian(layers=(24, 24)).save(tmp_path / "opus")
    size = sum(path.stat().st_size for path in source.iterdir())
    with small_disk(tmp_path, 1) as disk:
        assert size > 2**20
        prelude, path = entering(disk)
        said = nmt(tmp_path, "import", source, "--out", path / "out", prelude=prelude, code=1)
        assert "the disk is full" in said
        assert "Traceback" not in said
        assert [one.name for one in disk.iterdir()] == ["taken"]
    shutil.rmtree(source)


def test_positions_that_files_of_marian_cannot_have_are_refused(model: Marian, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--positions huggingface is for models of Hugging Face"):
        import_model(model.save(tmp_path / "opus"), tmp_path / "out", "", ImportOptions("en", "de", "huggingface"))
    assert not (tmp_path / "out").exists()
