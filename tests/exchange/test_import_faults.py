"""`nmt import` refuses what it cannot convert: by name, in one line, and nothing is left of it."""

import io
import json
import os
import random
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import in_process
import numpy as np
import pytest
from marian_models import Marian, container, marian, npz, of_integers, students_container, yaml

from nmt_cli.errors import ModelError, NmtError, RecipeError
from nmt_cli.exchange import importing
from nmt_cli.exchange import marian as importer
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


def arrays(change: Callable[[dict[str, Any]], Any]) -> Change:
    def changed(folder: Path, model: Marian) -> None:
        stored = {**model.arrays, "special:model.yml": np.frombuffer(model.config, np.int8)}
        change(stored)
        (folder / "model.npz").write_bytes(npz(stored))

    return changed


def put(**more: Any) -> Change:
    return arrays(lambda stored: stored.update(more))


def config(content: bytes) -> Change:
    return arrays(lambda stored: stored.update({"special:model.yml": np.frombuffer(content, np.int8)}))


def option(**values: Any) -> Change:
    """Options of the configuration; `_` for `-`."""

    def changed(folder: Path, model: Marian) -> None:
        options = {**model.options, **{name.replace("_", "-"): value for name, value in values.items()}}
        config(replace(model, options=options).config)(folder, model)

    return changed


def text(name: str, content: str | bytes) -> Change:
    return lambda folder, _: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def ensemble(decoder: str) -> Change:
    """Two models, and what decoder.yml says of them."""

    def changed(folder: Path, _: Marian) -> None:
        (folder / "copy.npz").write_bytes((folder / "model.npz").read_bytes())
        (folder / "decoder.yml").write_text(f"{decoder}\nvocabs: [vocab.yml]\n", encoding="utf-8")

    return changed


def damaged_member(folder: Path, model: Marian) -> None:
    ensemble("models: [model.npz, copy.npz]")(folder, model)
    os.truncate(folder / "copy.npz", 20_000)


def token(piece: str) -> Change:
    """A vocabulary with one token more."""
    return lambda folder, model: text("vocab.yml", yaml([*model.vocabularies[0], piece]))(folder, model)


def without(name: str) -> Change:
    return lambda folder, _: (folder / name).unlink()


def replaced(name: str, make: Callable[[Path], None]) -> Change:
    def changed(folder: Path, _: Marian) -> None:
        (folder / name).unlink()
        make(folder / name)

    return changed


def in_container(kind: int = 0x404, more: str = "more") -> Change:
    return lambda folder, model: text("model.npz", container({**model.arrays, more: np.zeros(1)}, model.config, kind))(
        folder, model
    )


def with_nan(stored: dict[str, Any]) -> None:
    stored["Wemb"] = stored["Wemb"].copy()
    stored["Wemb"][3, 3] = np.nan


def array_with(head: str) -> Change:
    """An array more, with this header."""

    def changed(folder: Path, _: Marian) -> None:
        content = (head.ljust(117) + "\n").encode()
        with zipfile.ZipFile(folder / "model.npz", "a") as archive:
            archive.writestr("x.npy", b"\x93NUMPY\1\0" + len(content).to_bytes(2, "little") + content + bytes(64))

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
    name, content = list(model.arrays)[-1], io.BytesIO()
    with zipfile.ZipFile(folder / "model.npz") as old, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as new:
        for one in sorted(old.namelist(), key=lambda one: one == f"{name}.npy"):
            new.writestr(one, old.read(one)[: -60 if one == f"{name}.npy" else None])
    changed = bytearray(content.getvalue())
    at = changed.rfind(b"PK\1\2") + 24
    changed[at : at + 4] = (int.from_bytes(changed[at : at + 4], "little") + 60).to_bytes(4, "little")
    (folder / "model.npz").write_bytes(changed)


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in pairwise("abcdefghijkl"))
FFN = "encoder_l1_ffn_W1"
NO_CODE = "* source language(s): e\x1b[31m$(x)\n* target language(s): de\n"
FAULTS: dict[str, tuple[Change, str]] = {
    "unknown tensor": (put(more=np.zeros(3, "f4")), "'more'"),
    "missing tensor": (arrays(lambda stored: stored.pop(FFN)), f"lack {FFN}"),
    "wrong shape": (put(**{FFN: np.zeros((5, 24), "f4")}), rf"{FFN} .*\(5, 24\), expected \(16, 24\)"),
    "a number": (put(**{FFN: np.float32(3)}), FFN),
    "too few tokens": (arrays(lambda stored: stored.update(Wemb=stored["Wemb"][:-1])), r"Wemb has \d+ tokens"),
    "NaN": (arrays(with_nan), "Wemb .*not finite"),
    "doubles": (arrays(lambda stored: stored.update(Wemb=stored["Wemb"].astype("f8"))), "Wemb .*float64"),
    "pickled": (put(Wemb=np.array([{}, open], object)), "Object arrays"),
    "a header that does not end": (array_with("{'descr': '<f4', ("), "something else than arrays of numbers"),
    "no dtype": (array_with("{'descr': '<f9', 'fortran_order': False, 'shape': (1,)}"), "'<f9'"),
    "arrays of any size together": (many_zeros, "unpacks from .* to 96,.* bytes"),
    "a size that is not true": (lying, "fewer bytes than its form needs"),
    "half a model": (lambda folder, _: os.truncate(folder / "model.npz", 20_000), "model.npz is neither"),
    "weights that are a pipe": (replaced("model.npz", os.mkfifo), "model.npz of .* is no plain file"),
    "fp16": (in_container(0x402), "type 0x402"),
    "a factor that is none": (in_container(0x10001), "has the factor .*, expected a positive number"),
    "intgemm for one kind of processor": (in_container(0x11001 + 0x4000), "integers of intgemm for one kind"),
    "a long name": (in_container(more="x" * 2000), "a name of more than 1,000 bytes"),
    "no configuration": (arrays(lambda stored: stored.pop("special:model.yml")), "no special:model.yml"),
    "configuration is no YAML": (config(b"a: [\0"), "special:model.yml, line 1"),
    "no numbers": (option(dim_emb="wide"), "dim-emb = 'wide', expected a number"),
    "no heads": (option(transformer_heads=0), "num_heads"),
    "two activations": (option(transformer_ffn_activation=["swish"]), r"transformer-ffn-activation = \['swish'\]"),
    "a GRU": (option(transformer_decoder_autoreg="rnn", dec_cell="gru"), "transformer-decoder-autoreg = 'rnn'"),
    "an SSRU that is not there": (option(transformer_decoder_autoreg="rnn", dec_cell="ssru"), "lack decoder_l1_rnn_W"),
    "an SSRU with a projection": (
        option(transformer_decoder_autoreg="rnn", dec_cell="ssru", transformer_rnn_projection=True),
        "transformer-rnn-projection = 'true'",
    ),
    "rnn": (option(type="s2s"), "type = 's2s'"),
    "tied layers": (option(transformer_tied_layers=[1, 1]), "transformer-tied-layers"),
    "two sizes": (option(transformer_decoder_dim_ffn=32), "transformer-decoder-dim-ffn = '32'"),
    "no layer": (option(transformer_guided_alignment_layer="first"), "alignment-layer = 'first', expected last or a"),
    "a layer that is not there": (option(transformer_guided_alignment_layer=2), "alignment-layer = '2', expected last"),
    "factors": (option(factors_dim_emb=8), "factors-dim-emb = '8'"),
    "unknown option": (option(transformer_new="x"), "does not know: transformer-new = 'x'"),
    "gap in the vocabulary": (text("vocab.yml", "</s>: 0\n<unk>: 1\na: 3\n"), "vocab.yml .*0 to 2"),
    "a vocabulary without </s>": (text("vocab.yml", "<unk>: 0\na: 1\n"), "vocab.yml has no </s>"),
    "a token without a text": (token(""), "a token without a text"),
    "a token of any length": (text("vocab.yml", f"</s>: 0\n<unk>: 1\n? {'a' * 5000}\n: 2\n"), "'aaa.*a' of 5,000"),
    "more tokens than weights": (text("vocab.yml", "".join(f"a{n}: {n}\n" for n in range(1000))), "vocab.yml, line"),
    "a vocabulary that is no YAML": (text("vocab.yml", '"a: 0\n\tb: ['), "vocab.yml, line 2"),
    "a nested vocabulary": (text("vocab.yml", "[" * 200_000), "vocab.yml, line 1"),
    "no vocabulary": (without("vocab.yml"), "lacks vocab.yml"),
    "no source.spm": (without("source.spm"), "lacks source.spm"),
    "target.spm is a folder": (replaced("target.spm", Path.mkdir), "lacks target.spm"),
    "source.spm is damaged": (text("source.spm", b"\xff" * 99), "source.spm is not a SentencePiece model"),
    "BPE": (lambda folder, _: (folder / "source.spm").rename(folder / "source.bpe"), "BPE codes of subword-nmt"),
    "BPE in the script": (text("preprocess.sh", "apply_bpe.py -c $2 |\n${SPMENCODE} --model $2\n"), "BPE codes"),
    "models elsewhere": (ensemble("models: [a/model.npz, b/model.npz]"), r"by its path, \['a/model.npz'"),
    "a missing model": (ensemble("models: [model.npz, model2.npz]"), "names 2 models, .* not all are .npz"),
    "weights of models": (ensemble("models: [model.npz, copy.npz]\nweights: [0.7, 0.3]"), r"\['0.7', '0.3'\]: .*equal"),
    "an ensemble's word penalty": (ensemble("models: [model.npz, copy.npz]\nword-penalty: 0.2"), "divided by their"),
    "a member that is damaged": (damaged_member, "copy.npz is neither an .npz"),
    "a member that is none": (ensemble("models: [model.npz, vocab.yml]"), "not all are .npz"),
    "a name twice": (text("decoder.yml", "beam-size: 1\nbeam-size: 2\n"), "decoder.yml, line 2: .*once"),
    "values of values": (text("decoder.yml", BOMB), "decoder.yml, line 1"),
    "a word penalty of words": (text("decoder.yml", "vocabs: [vocab.yml]\nword-penalty: a\n"), "word-penalty = 'a'"),
    "a word penalty of any size": (text("decoder.yml", "vocabs: [vocab.yml]\nword-penalty: 1e9\n"), "word_penalty"),
    "a beam of words": (text("decoder.yml", "vocabs: [vocab.yml]\nbeam-size: many\n"), "beam-size = 'many'"),
    "an infinite length": (text("decoder.yml", "vocabs: [vocab.yml]\nmax-length-factor: inf\n"), "factor = 'inf'"),
    "no beam": (text("decoder.yml", "vocabs: [vocab.yml]\nbeam-size: 0\n"), "beam"),
    "a README of any size": (lambda folder, _: os.truncate(folder / "README.md", 6 << 30), "README.md .*67,108,864"),
    "a script of any size": (text("preprocess.sh", " 'a'" * 20_000), "80,000 bytes, expected at most 32,768"),
    "a script that leads nowhere": (replaced("preprocess.sh", lambda path: path.symlink_to("none")), "preprocess.sh"),
    "rules that build on each other": (
        text("preprocess.sh", "sed -e 's/，/;/g' -e 's/;/x/g' |\n${SPMENCODE} --model $2\n"),
        "replaces ';', which an earlier step",
    ),
    "no language": (text("README.md", ""), "give --source-language"),
    "no code of a language": (text("README.md", NO_CODE), r"the source language is '[^\x1b]*--source-language CODE"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_marian_model_is_named(fault: str, model: Marian, tmp_path: Path) -> None:
    change, said = FAULTS[fault]
    folder = model.save(tmp_path / "opus")
    change(folder, model)
    message = refused(folder, tmp_path / "out", options=ImportOptions())
    assert re.search(said, message), message


def files(**contents: str | bytes) -> Callable[[Path], Path]:
    """A folder with these files; `__` for a full stop."""

    def made(folder: Path) -> Path:
        (folder / "model").mkdir()
        for name, content in contents.items():
            path = folder / "model" / name.replace("__", ".")
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return folder / "model"

    return made


def zip_with(change: Callable[[bytearray], object], method: int = zipfile.ZIP_STORED) -> Callable[[Path], Path]:
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


def damaged(content: bytearray) -> None:
    at = content.find(b"vocab.yml") + 30
    content[at : at + 90] = b"\xee" * 90


def name_of_other_bytes(content: bytearray) -> None:
    at = content.rfind(b"PK\1\2")
    content[at + 8 : at + 10] = b"\0\x08"  # the flag of UTF-8
    content[at + 46 : at + 48] = b"\xff\xfe"


def newer_version(content: bytearray) -> None:
    content[content.rfind(b"PK\1\2") + 6] = 99


def encrypted(content: bytearray) -> None:
    for signature, offset in ((rb"PK\x03\x04", 6), (rb"PK\x01\x02", 8)):
        for found in re.finditer(signature, bytes(content)):
            content[found.start() + offset] |= 1  # the flag of an encrypted file


def zip_and(top: str, *names: str) -> Callable[[Path], Path]:
    """A model in the folder `top` of a zip, and empty files of these names."""

    def made(folder: Path) -> Path:
        path = marian(layers=(1, 1)).zip(folder / "opus.zip", top)
        with zipfile.ZipFile(path, "a") as archive:
            for name in names:
                archive.writestr(name, b"")
        return path

    return made


def tar_and(
    *entries: tarfile.TarInfo, name: str = "opus.tar", change: Callable[[bytearray], object] = len
) -> Callable[[Path], Path]:
    """A tar of these entries and a model, whose bytes are changed."""

    def made(folder: Path) -> Path:
        path = marian(layers=(1, 1)).tar(folder / name, entries)
        content = bytearray(path.read_bytes())
        change(content)
        path.write_bytes(content)
        return path

    return made


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, to: str = "") -> tarfile.TarInfo:
    one = tarfile.TarInfo(name)
    one.type, one.size, one.linkname = kind, size, to
    return one


def flipped(after: bytes, offset: int) -> Callable[[bytearray], object]:
    def change(content: bytearray) -> None:
        content[content.find(after) + offset] ^= 1

    return change


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.npz")
    return folder / "pipe.npz"


def named(name: str, content: bytes) -> Callable[[Path], Path]:
    """A file of a folder."""
    return lambda folder: files(**{name.replace(".", "__"): content})(folder) / name


FIREFOX = {"model.ende.intgemm.alphas.bin": b"", "lex.50.50.ende.s2t.bin": b""}
M2M = json.dumps({"model_type": "m2m_100"})
PICKLE = "needs? pickle to be read"
SOURCES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "nothing": (lambda folder: folder / "none", "there is nothing at .*: expected a folder, a zip"),
    "a pipe": (pipe, "a pipe or a device"),
    "a device": (lambda _: Path("/dev/zero"), "a pipe or a device"),
    "an empty folder": (files(), "holds no model that nmt knows"),
    "a text": (lambda folder: files(text="x")(folder) / "text", "there is another or a damaged file at"),
    "M2M100": (files(config__json=M2M, model__safetensors=b"", sentencepiece__bpe__model=b""), "'m2m_100'"),
    "NLLB": (files(config__json=M2M, tokenizer__json="{}"), "'m2m_100' of transformers"),
    "pickle": (files(config__json='{"model_type": "marian"}', pytorch_model__bin=b"PK"), PICKLE),
    "a file of pickle": (lambda folder: files(pytorch_model__bin=b"PK")(folder) / "pytorch_model.bin", PICKLE),
    "OpenNMT-py": (files(model_step_1__pt=b"PK"), "ct2-opennmt-py-converter --model_path"),
    "a model.bin": (files(model__bin=b"PK"), "has weights as model.bin, .* If Marian saved it, give its path"),
    "ONNX": (named("model.onnx", b""), "is a model in ONNX"),
    "GGUF": (named("model.gguf", b"GGUF"), "is a model in GGUF"),
    "a pointer of Git LFS": (named("model.npz", b"version https://git-lfs.github.com/spec/v1"), "model.npz .* Git LFS"),
    "a page of the web": (named("model.npz", b"<!DOCTYPE html>" + bytes(99)), "it begins with b'<!DOCTYPE html>"),
    "only the optimizer": (files(model__npz__optimizer__npz=b""), "only the optimizer's numbers"),
    "the folder of folders": (
        lambda folder: marian(layers=(1, 1)).save(files(text="x")(folder) / "one").parent,
        "It holds .'one/', 'text'",
    ),
    "Firefox without weights": (files(**FIREFOX), "model.ende.intgemm.alphas.bin is neither"),
    "a truncated zip": (zip_with(lambda content: content.__delitem__(slice(-400, None))), "opus.zip"),
    "a damaged zip": (zip_with(damaged, zipfile.ZIP_DEFLATED), "cannot read vocab.yml of .*opus.zip"),
    "a name in a zip that is not UTF-8": (zip_with(name_of_other_bytes), "cannot read opus.zip of .*decode"),
    "a newer zip": (zip_with(newer_version), "cannot read opus.zip of .*version 9.9"),
    "an encrypted zip": (zip_with(encrypted), "cannot read .*encrypted"),
    "a zip of many files": (zip_and("", *map(str, range(10_000))), "10,008 files, expected at most 10,000"),
    "no tar": (lambda folder: zip_and("")(folder).rename(folder / "opus.tgz"), "cannot read opus.tgz of .*not a tar"),
    "a tar that ends after a file": (
        tar_and(entry("more"), change=lambda content: content.__delitem__(slice(512, None))),
        "damaged or cut one .empty header",
    ),
    "a tar.gz that is damaged": (tar_and(name="opus.tar.gz", change=flipped(b"", -6)), "opus.tar.gz .*incorrect data"),
    "a tar.xz that is cut": (tar_and(name="opus.tar.xz", change=bytearray.pop), "cannot read opus.tar.xz of .*ends"),
    "a link in a tar": (tar_and(entry("README.md", tarfile.SYMTYPE, to="/etc/passwd")), "README.md is not a plain"),
    "a second name in a tar": (tar_and(entry("x", tarfile.LNKTYPE, to="/etc/passwd")), "x is not a plain file: unpack"),
    "a device in a tar": (tar_and(entry("x", tarfile.CHRTYPE)), "x is not a plain file"),
    "a file with holes in a tar": (tar_and(entry("x", tarfile.GNUTYPE_SPARSE)), "x is not a plain file"),
    "a long name in a tar": (tar_and(entry("x", tarfile.GNUTYPE_LONGNAME, 2_000_000)), "a name of 2,000,000 bytes"),
    "a name that leads up": (tar_and(entry("..")), "cannot read opus.tar of"),
    "a tar of many files": (tar_and(*(entry(str(n)) for n in range(10_001))), "10,001 files, expected at most 10,000"),
    "a tar of zeros": (tar_and(entry("x", size=80_000_000), name="opus.tar.gz"), "unpacks from .* no weights do"),
    "several folders in a tar": (tar_and(entry("two/source.spm")), "several files called source.spm"),
    "several models": (files(**{"a.npz": b"", "b.npz": b""}), "several models: .*'a.npz'"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_no_model_for_us_is_named(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    make, said = SOURCES[source]
    message = refused(make(tmp_path), tmp_path / "out")
    assert re.search(said, message), message
    assert not [*(tmp_path / "temporary").iterdir()]


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


def test_options_that_do_not_fit_are_named(model: Marian, tmp_path: Path) -> None:
    folder, out = model.save(tmp_path / "opus"), tmp_path / "out"
    assert re.search("--from .*marian", refused(folder, out, by="hugging"))
    assert "lacks config.json" in refused(folder, out, by="huggingface")
    assert "--positions 'other'" in in_process.refused("import --positions other", folder, "--out", out)
    assert "--positions huggingface" in refused(folder, out, options=ImportOptions("en", "de", "huggingface"))
    (tmp_path / "empty").mkdir()
    assert "no model of Marian's" in refused(tmp_path / "empty", out, by="marian")


def test_damaged_weights_raise_nothing_else(model: Marian, tmp_path: Path) -> None:
    """Whatever bytes are changed, cut or added: arrays, or one error."""
    rng = random.Random(1)
    small = dict(list(model.arrays.items())[2:6])
    whole = [container(small, model.config), npz({**small, "special:model.yml": np.frombuffer(model.config, np.int8)})]
    whole.append(students_container(replace(model, arrays=small), of_integers(small)))
    for number in range(900):
        content = bytearray(whole[number % 3])
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(rng.choice([64, 400, len(content)]))
            content[at : at + rng.choice([1, 1, 4, 8])] = rng.randbytes(rng.choice([0, 1, 4, 8]))
        (tmp_path / "model.npz").write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        with suppress(ModelError):
            for array in weights_in(SourceFiles(tmp_path / "model.npz"), "model.npz")[0].values():
                assert np.asarray(array).dtype == np.float32


def test_the_command_says_what_was_imported_and_replaces_only_that(model: Marian, tmp_path: Path) -> None:
    path, out = model.zip(tmp_path / "opus.zip"), tmp_path / "out"
    said = " ".join(in_process.warnings("import", path, "--out", out))
    for part in (f"wrote {out}: ", " en to de", "1 + 1 layers, d_model 16,", "beam 6, score / length^1", "licence: "):
        assert part in said
    for part in ("from 64 tokens on", "verified equal on ", f"nmt translate --model {out} < input"):
        assert part in said
    in_process.warnings("import", path, "--out", out)
    (out / "mine.txt").write_text("x")
    with pytest.raises(NmtError, match="is not replaced"):
        import_model(path, out, "", LANGUAGES)
    assert (out / "mine.txt").read_text() == "x"


def test_what_differs_is_not_written(model: Marian, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, correct = model.save(tmp_path / "opus"), importer.converted

    def spoiled(*arguments: Any, **named: Any) -> Any:
        weights = correct(*arguments, **named)
        name = "encoder.0.feed_forward.inner.bias"
        return {**weights, name: weights[name].then(lambda bias: bias + np.float32(0.01))}

    with monkeypatch.context() as patch:
        patch.setattr(importer, "converted", spoiled)
        assert "is not equal to the model" in refused(source, tmp_path / "out")
    monkeypatch.setattr(importing, "LINES", 300)
    monkeypatch.setattr(importer, "replacements_in", lambda _: ({}, False))
    assert "to our tokenizer, " in refused(source, tmp_path / "out")
