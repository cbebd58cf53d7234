"""The tensors that a model folder stores, listed without torch, are those of torch's model."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from nmt_cli.errors import NeedsTorch
from nmt_cli.model import weights as module
from nmt_cli.model.contents import count_numbers
from nmt_cli.model.precision import convert, forms_of_model, integers_of, without_weights
from nmt_cli.model.transformer import Transformer, count_parameters
from nmt_cli.model.weights import forms_of
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import ACTIVATIONS, NORMS, POSITIONS, RESIDUALS

SIZES = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 8, "d_ff": 12, "num_heads": 2, "max_positions": 5}
FORMS = [
    {"norm": norm, "residual": residual, "activation": activation, "positions": positions}
    for norm, residual, activation, positions in product(NORMS, RESIDUALS, ACTIVATIONS, POSITIONS)
]
SHAPES: list[dict[str, object]] = [{}, {"d_k": 3, "d_v": 7}, {"tie_embeddings": False, "monotonic_attention": True}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forms_are_those_of_the_model(shape: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    vocabularies = (20, 20 if shape.get("tie_embeddings", True) else 30)
    expected = {}
    for number, form in enumerate(FORMS):
        if form["positions"] == "rotary" and "d_k" in shape:
            continue
        config = ModelSection.model_validate({**SIZES, **form, **shape})
        model = without_weights(config, *vocabularies)
        expected[number] = config, model
    monkeypatch.setattr(module, "loading_torch", lambda _: pytest.fail("torch was asked"))
    assert len(expected) > 20
    for config, model in expected.values():
        assert forms_of(config, vocabularies) == forms_of_model(model)
        assert forms_of(config, vocabularies, "int8") == forms_of_model(model, quantized=True)
        forms = forms_of(config, vocabularies)
        assert count_numbers((name, shape) for name, (_, shape) in forms.items()) == count_parameters(model)


def test_an_entry_of_another_package_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NORMS, "scale", "torch_norm:scale")
    monkeypatch.setitem(NORMS, "layer", "nmt_cli.model.norms:layer_norm")
    config = ModelSection.model_validate({**SIZES, "norm": "scale"})

    def missing(what: str) -> None:
        raise NeedsTorch(what)

    monkeypatch.setattr(module, "loading_torch", missing)
    with pytest.raises(NeedsTorch, match=r"^model\.norm = 'scale' needs torch"):
        forms_of(config, (20, 20))
    monkeypatch.undo()
    monkeypatch.setitem(NORMS, "scale", "nmt_cli.model.norms:rms_norm")
    names = forms_of(config, (20, 20), "int8")
    rms = ModelSection.model_validate({**SIZES, "norm": "rms"})
    assert names == forms_of(rms, (20, 20), "int8")


def test_forms_are_what_int8_makes() -> None:
    config = ModelSection.model_validate(SIZES)
    torch.manual_seed(0)
    made = integers_of(convert(Transformer(config, 20, 20), "int8"))
    forms = forms_of(config, (20, 20), "int8")
    assert {name: tuple(tensor.shape) for name, tensor in made.items()}.items() <= {
        name: shape for name, (_, shape) in forms.items()
    }.items()
