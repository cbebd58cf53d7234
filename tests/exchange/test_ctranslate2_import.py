"""Folders of CTranslate2 and packages of Argos Translate: those of the tools themselves, those of nmt, and damaged ones."""

import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import ctranslate2
import numpy as np
import pytest
import torch
from marian_models import pieces, spm
from safetensors.numpy import load_file
from transformers import MarianConfig, MarianMTModel

from nmt_cli.errors import ModelError, RecipeError
from nmt_cli.exchange.convert import export
from nmt_cli.exchange.ctranslate2_import import variables_in
from nmt_cli.exchange.importer import ImportOptions
from nmt_cli.exchange.importing import import_model
from nmt_cli.exchange.quantizing import quantize
from nmt_cli.recipe import Recipe
from nmt_cli.storage.files import write_named
from nmt_cli.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("few_lines")
LANGUAGES = ImportOptions("en", "de")
OWN: dict[str, dict[str, Any]] = {
    "pre-norm": {"residual": "pre"},
    "separate": {"joint": False, "tie_embeddings": False},
    "rotary": {"positions": "rotary", "norm": "rms", "activation": "swiglu", "residual": "pre"},
    "learned": {"positions": "learned", "activation": "gelu"},
    "without source end": {"source_end": False},
}
QUANTIZATIONS = [None, "float16", "bfloat16", "int8", "int8_float16", "int8_float32", "int16"]


@pytest.mark.parametrize("to", ["ctranslate2", "argos"])
@pytest.mark.parametrize("kind", OWN)
def test_our_own_export_comes_back_bit_for_bit(kind: str, to: str, made: Any, tmp_path: Path) -> None:
    model = made(**OWN[kind])
    export(model, to, tmp_path / "theirs")
    source = next((tmp_path / "theirs").glob("*.argosmodel"), tmp_path / "theirs")
    import_model(source, tmp_path / "out", "", LANGUAGES)
    ours, again = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out"))
    assert ours.keys() == again.keys()
    assert all(np.array_equal(ours[name], again[name]) for name in ours)
    if kind != "separate" or to == "ctranslate2":  # Argos Translate has one tokenizer
        for tokenizer in model.glob("tokenizer*"):
            assert tokenizer.read_bytes() == (tmp_path / "out" / tokenizer.name).read_bytes()


def converted(folder: Path, quantization: str | None = None) -> Path:
    """A MarianMT model of transformers with random weights, converted by CTranslate2 itself."""
    table = ["</s>", "<unk>", *pieces(spm(0)), "<pad>"]
    layers: dict[str, Any] = {
        f"{side}_{key}": 2 for side in ("encoder", "decoder") for key in ("layers", "attention_heads")
    }
    layers |= {f"{side}_ffn_dim": 48 for side in ("encoder", "decoder")}
    special: dict[str, Any] = dict.fromkeys(("pad_token_id", "decoder_start_token_id"), len(table) - 1)
    torch.manual_seed(1)
    config = MarianConfig(vocab_size=len(table), d_model=32, eos_token_id=0, scale_embedding=True, **layers, **special)
    model = MarianMTModel(config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    model.save_pretrained(folder / "hf")
    (folder / "hf" / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(table)}))
    (folder / "hf" / "tokenizer_config.json").write_text('{"tokenizer_class": "MarianTokenizer"}')
    for side in ("source", "target"):
        (folder / "hf" / f"{side}.spm").write_bytes(spm(0))
    converter = ctranslate2.converters.TransformersConverter(str(folder / "hf"))
    converter.convert(str(folder / "ct2"), quantization=quantization)
    for side in ("source", "target"):
        shutil.copy(folder / "hf" / f"{side}.spm", folder / "ct2")
    return folder / "ct2"


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_what_ctranslate2_converted_computes_the_same(quantization: str | None, tmp_path: Path) -> None:
    done = import_model(converted(tmp_path, quantization), tmp_path / "out", "", LANGUAGES)
    assert done.verification.largest["log-probabilities"] < 1e-5
    assert done.recipe.model.zero_start
    assert done.recipe.model.tie_embeddings
    if quantization == "int8":
        quantize(tmp_path / "out", tmp_path / "int8")
        stored = load_file(tmp_path / "int8" / "model.safetensors")["encoder.1.feed_forward.inner.weight"]
        theirs = np.asarray(variables_in(tmp_path / "ct2" / "model.bin")["encoder/layer_1/ffn/linear_0/weight"])
        scales = np.abs(theirs).max(1, keepdims=True) / 127
        assert np.array_equal(stored, np.rint(theirs / scales))


def test_what_ctranslate2_itself_refuses_is_named(tmp_path: Path) -> None:
    folder = converted(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "decoder_start_token": None}))
    with pytest.raises(ModelError, match=r"cannot run the model: .*start token"):
        import_model(folder, tmp_path / "out", "", LANGUAGES)
    assert not (tmp_path / "out").exists()


def test_an_unpacked_package_is_read_from_its_folders(made: Any, tmp_path: Path) -> None:
    export(made(), "argos", tmp_path / "argos")
    [package] = (tmp_path / "argos").glob("*.argosmodel")
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path / "unpacked")
    [folder] = (tmp_path / "unpacked").iterdir()
    done = import_model(folder, tmp_path / "out", "", ImportOptions())
    data = done.recipe.data
    assert (done.model.toolkit, data.source_language, data.target_language) == ("Argos Translate", "en", "de")
    assert (done.recipe.decode.beam, done.recipe.decode.alpha) == (4, 0.2)


def binary(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "model.bin").write_bytes(change((folder / "model.bin").read_bytes()))

    return damage


def setting(name: str, value: int) -> Callable[[Path], None]:
    """Another value of a setting of one byte."""
    stored = struct.pack("<H", len(name) + 1) + name.encode() + b"\0\0\1\1\0\0\0"
    return binary(
        lambda content: content.replace(
            stored + content[content.index(stored) + len(stored) :][:1], stored + bytes([value])
        )
    )


def configured(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def renamed(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "shared_vocabulary.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return damage


FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut": (binary(lambda content: content[:-2000]), "is not a model of CTranslate2, or a damaged one"),
    "another version": (binary(lambda content: b"\3" + content[1:]), "the format version 3, expected 4 to 6"),
    "another model": (binary(lambda content: content.replace(b"TransformerSpec", b"WhisperModelSpc")), "WhisperModel"),
    "many variables": (binary(lambda content: content[:26] + b"\xff\xff\xff\xff" + content[30:]), "at most 50,000"),
    "a large shape": (
        binary(lambda content: content.replace(struct.pack("<II", 800, 32), b"\0\0\0\x80" * 2, 1)),
        "is cut",
    ),
    "not finite": (
        binary(
            lambda content: content[: (at := content.index(b"layer_norm/beta")) + 40] + b"\xff" * 4 + content[at + 44 :]
        ),
        "numbers that are not finite",
    ),
    "an unknown variable": (binary(lambda content: content.replace(b"linear_1/bias", b"linear_1/bids")), "bids'"),
    "ALiBi": (setting("decoder/alibi", 1), "has decoder/alibi = 1, which nmt does not have"),
    "Marian's gelu": (setting("decoder/activation", 4), "other values of activation in encoder and decoder"),
    "another start": (configured(decoder_start_token="nowhere"), "decoder_start_token = 'nowhere', which the"),
    "a source begin": (configured(add_source_bos=True), "has add_source_bos = true"),
    "another type": (configured(unk_token=["<unk>"]), "is a damaged model of CTranslate2"),
    "no unk": (configured(unk_token="none"), "has no 'none', which a model of nmt needs"),
    "a token twice": (renamed(lambda pieces: [*pieces[:-1], pieces[-2]]), "expected each once"),
    "too few tokens": (renamed(lambda pieces: pieces[:-1]), "and the vocabulary 799 tokens"),
    "no list": (renamed(lambda pieces: cast(list[str], [1])), "is not a vocabulary: expected a list of tokens"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.model").unlink(), "has no SentencePiece model of the source"),
    "damaged tokenizer": (lambda folder: write_named(folder / "tokenizer.model", b"x", "it"), "not a SentencePiece"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_imported_is_refused_by_name(fault: str, made: Any, tmp_path: Path) -> None:
    export(made(), "ctranslate2", tmp_path / "ct2")
    damage, message = FAULTS[fault]
    damage(tmp_path / "ct2")
    with pytest.raises(ModelError, match=message):
        import_model(tmp_path / "ct2", tmp_path / "out", "", LANGUAGES)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [({"type": "sbd"}, "has type = 'sbd'"), ({"target_prefix": "__de__"}, "has target_prefix = '__de__'")],
)
def test_a_package_of_another_kind_is_refused(values: dict[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "argos").mkdir()
    (tmp_path / "argos" / "metadata.json").write_text(json.dumps({"from_code": "en", "to_code": "de", **values}))
    with pytest.raises(ModelError, match=message):
        import_model(tmp_path / "argos", tmp_path / "out", "", LANGUAGES)


def test_a_model_that_reads_no_end_symbol_is_not_trained(tmp_path: Path) -> None:
    recipe = Recipe.from_dict({"data": {"generator": "teaching"}, "model": {"source_end": False}}, "test")
    unused: Any = None
    with pytest.raises(RecipeError, match=r"model\.source_end = false: the model was imported"):
        Trainer(recipe, tmp_path, tmp_path / "run", unused, unused)
    assert not any(tmp_path.iterdir())
