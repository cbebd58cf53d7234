"""A model folder in int8 translates as the model does with precision int8; what it cannot do is refused by name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import in_process
import pytest
import sealed
import torch
from safetensors.torch import load_file, save_file

import nmt_cli as nmt
from nmt_cli.errors import ModelError, UsageError
from nmt_cli.model.folder import load_model
from nmt_cli.model.folder_files import CONFIG, WEIGHTS, read_config
from nmt_cli.model.precision import convert

Made = Callable[..., Path]

LINES = ["the dog sleeps .", "a small cat sees the house .", "", "zzz ß 漢"]
KINDS = [
    (True, {"residual": "post", "positions": "learned"}),
    (False, {"tie_embeddings": False}),
    (True, {"residual": "pre", "tie_embeddings": False, "activation": "gelu"}),
    (True, {"activation": "swiglu", "norm": "rms", "positions": "rotary"}),
]


@pytest.mark.parametrize(("joint", "features"), KINDS)
def test_it_is_the_model_that_int8_makes(joint: bool, features: dict[str, object], made: Made, tmp_path: Path) -> None:
    folder = made(joint=joint, **features)
    done = nmt.quantize(folder, tmp_path / "int8")
    ours, theirs = load_model(done.path, quantized=True).model, convert(load_model(folder).model, "int8")
    assert str(ours) == str(theirs)
    expected = dict(theirs.named_parameters())
    assert all(torch.equal(parameter, expected[name]) for name, parameter in ours.named_parameters())
    source, target = torch.randint(4, 300, (3, 9)), torch.randint(4, 300, (3, 7))
    with torch.inference_mode():
        assert torch.equal(ours.logits(ours(source, None, target)), theirs.logits(theirs(source, None, target)))


def test_it_translates_and_scores_as_the_model_does_with_precision_int8(made: Made, tmp_path: Path) -> None:
    trained = made()
    done = nmt.quantize(trained, tmp_path / "int8")
    assert (done.path, done.parameters) == (tmp_path / "int8", read_config(trained).parameters)
    assert read_config(done.path).parameters == done.parameters
    assert done.weights[1] < 0.35 * done.weights[0] == 0.35 * (trained / WEIGHTS).stat().st_size
    with nmt.load(trained, device="cpu", precision="int8") as model, nmt.load(done.path, device="cpu") as quantized:
        assert quantized.translate(LINES, nbest=2, beam=3, alignment=True) == model.translate(
            LINES, nbest=2, beam=3, alignment=True
        )
        pairs = [(line, "der Hund schläft .") for line in LINES[:2]]
        assert quantized.score(pairs) == model.score(pairs, precision="int8")
        with pytest.raises(UsageError, match="the model's weights are stored in int8, and fp32 was asked for"):
            quantized.score(pairs, precision="fp32")
    with nmt.load([done.path, trained], device="cpu") as ensemble:  # in int8 together
        assert all(one.text for one in ensemble.translate(LINES[:2]))


def test_the_input_scales_of_earlier_versions_are_not_used(made: Made, tmp_path: Path) -> None:
    trained = made()
    folder = nmt.quantize(trained, tmp_path / "int8").path
    assert read_config(folder).format_version == 4
    expected, weights = nmt.load(folder, device="cpu").translate(LINES), load_file(folder / WEIGHTS)
    maps = [name.removesuffix(".scales") for name in weights if name.endswith(".scales") and "embeddings" not in name]
    scales = {f"{name}.input_scale": torch.tensor(9.0).double() for name in (*maps, "output_projection")}
    save_file({**weights, **scales}, folder / WEIGHTS)
    sealed.again(folder, WEIGHTS)
    sealed.change(folder / CONFIG, format_version=3)
    assert nmt.info(folder)["parameters"] == read_config(trained).parameters
    assert nmt.load(folder, device="cpu").translate(LINES) == expected
    ours, theirs = load_model(folder, quantized=True).model, convert(load_model(trained).model, "int8")
    x = torch.randn(3, 32)
    assert torch.equal(ours.logits(x), theirs.logits(x))


def test_what_needs_fp32_refuses_it_by_name(made: Made, tmp_path: Path) -> None:
    trained = made()
    quantized = nmt.quantize(trained, tmp_path / "int8").path
    for use in (
        lambda: nmt.export(quantized, "ctranslate2", tmp_path / "out"),
        lambda: nmt.quantize(quantized, tmp_path / "twice"),
    ):
        with pytest.raises(ModelError, match="is in int8, which translates only: name the model that it was made from"):
            use()
    with pytest.raises(ModelError, match="average the models in fp32, and quantize the average"):
        nmt.average([quantized, trained], out=tmp_path / "out")
    with pytest.raises(UsageError, match="stored in int8, and bf16 was asked for"):
        nmt.load(quantized, device="cpu", precision="bf16").translate(LINES)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda weights, name: weights.pop(name), id="missing"),
        pytest.param(lambda weights, name: weights.update({name: weights[name][:-1]}), id="shape"),
        pytest.param(lambda weights, name: weights.update({name: weights[name].float()}), id="dtype"),
    ],
)
def test_damaged_integers_have_a_name(change: Any, made: Made, tmp_path: Path) -> None:
    folder = nmt.quantize(made(), tmp_path / "int8").path
    weights = load_file(folder / WEIGHTS)
    name = next(name for name in weights if name.endswith("output.weight"))
    change(weights, name)
    save_file(weights, folder / WEIGHTS)
    sealed.again(folder, WEIGHTS)
    for use in (nmt.info, lambda folder: nmt.load(folder, device="cpu")):
        with pytest.raises(ModelError, match=re.escape(name)):
            use(folder)


def test_the_command_says_what_it_wrote(made: Made, tmp_path: Path) -> None:
    model, out = made(), tmp_path / "int8"
    said = "\n".join(in_process.warnings("quantize", model, "--out", out))
    for part in (f"wrote {out}: ", "parameters in int8, ", f"nmt translate --model {out} < input"):
        assert part in said
    assert "weights     int8: for translation only" in in_process.printed("info", out)
    assert "precision" not in json.loads((model / CONFIG).read_text())  # in fp32 it is as earlier versions wrote it
    assert nmt.quantize(model, out).path == out  # an earlier result is replaced
