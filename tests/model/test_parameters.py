"""The table of parameters is compared with torch's modules and with what the engine expects, over all norms, residuals,
activations, positions, ties and biases.
"""

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_models import FORMS, needs_engine

from nmt_cli.engine.model import EngineModel
from nmt_cli.errors import ModelError, NeedsTorch
from nmt_cli.model import weights as module
from nmt_cli.model.parameters import count_numbers, parameters
from nmt_cli.model.precision import forms_of_model, without_weights
from nmt_cli.model.transformer import count_parameters
from nmt_cli.model.weights import forms_of
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import NORMS

SIZES = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 8, "d_ff": 12, "num_heads": 2, "max_positions": 5}
SHAPES: list[dict[str, Any]] = [
    {},
    {"d_k": 6, "d_v": 2},
    {"tie_embeddings": False, "monotonic_attention": True},
    {"output_bias": True},
    {"output_bias": True, "tie_embeddings": False},
    {"decoder": "ssru"},
]


def configs(shape: dict[str, Any]) -> list[ModelSection]:
    return [ModelSection.model_validate({**SIZES, **form, **shape}) for form in FORMS]


def vocabularies_of(shape: dict[str, Any]) -> tuple[int, int]:
    return 20, 20 if shape.get("tie_embeddings", True) else 30


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_table_is_that_of_torchs_modules(shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    vocabularies = vocabularies_of(shape)
    models = [without_weights(config, *vocabularies) for config in configs(shape)]
    monkeypatch.setattr(module, "loading_torch", lambda _: pytest.fail("torch was asked"))
    assert len(models) > 20
    for model in models:
        forms = forms_of(model.config, vocabularies)
        assert forms == forms_of_model(model)
        matrices = [one for name, one in model.named_parameters() if one.dim() > 1 and "positions" not in name]
        assert model.config.parameters(*vocabularies) == sum(one.numel() for one in matrices)
        assert forms_of(model.config, vocabularies, "int8") == forms_of_model(model, quantized=True)
        assert count_numbers((name, shape) for name, (_, shape) in forms.items()) == count_parameters(model)


def arrays_of(config: ModelSection, vocabularies: tuple[int, int], precision: str) -> dict[str, NDArray[Any]]:
    kinds = {"F32": np.float32, "I8": np.int8}
    forms = forms_of(config, vocabularies, precision)
    return {name: np.ones(shape, kinds[dtype]) for name, (dtype, shape) in forms.items()}


@needs_engine
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_table_is_what_the_engine_expects(shape: dict[str, Any], precision: str) -> None:
    """It takes arrays of these names and shapes, and none less, more or of another shape."""
    vocabularies = vocabularies_of(shape)
    for config in configs(shape):
        arrays = arrays_of(config, vocabularies, precision)
        EngineModel(config, vocabularies, arrays, precision)
        with pytest.raises(ModelError, match="the array more is not part of such a model"):
            EngineModel(config, vocabularies, {**arrays, "more": np.ones(8, np.float32)}, precision)
    form = {"norm": "layer", "residual": "pre", "activation": "swiglu", "positions": "learned"}
    config = ModelSection.model_validate({**SIZES, **form, **shape})
    arrays = arrays_of(config, vocabularies, precision)
    for name, array in arrays.items():
        others = {other: one for other, one in arrays.items() if other != name}
        with pytest.raises(ModelError, match=re.escape(name)):
            EngineModel(config, vocabularies, others, precision)
        with pytest.raises(ModelError, match=re.escape(name)):
            EngineModel(config, vocabularies, {**others, name: array[:-1]}, precision)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_projections_of_a_linear_map_are_its_rows(shape: dict[str, Any]) -> None:
    for config in configs(shape):
        for name, one in parameters(config, vocabularies_of(shape)).items():
            assert sum(one.parts) == (one.shape[0] if one.parts else 0), name
            assert one.in_int8 == (len(one.shape) == 2 and "positions" not in name), name
            assert bool(one.vocabulary) == (name.startswith("embeddings.") or name == "output_bias"), name


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
