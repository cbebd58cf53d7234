"""A model gives the same bits whether it is in memory or in a folder, and in int8 whether it is stored in fp32 or in int8."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_models import needs_engine, sources
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.engine.model import EngineModel
from nmt_cli.interface.loading import open_models
from nmt_cli.model.folder import load_model, weights_of
from nmt_cli.search.engine import EngineDecoder
from nmt_cli.translation.models import EngineModels, Models, models_of

pytestmark = needs_engine

FORMS: list[dict[str, Any]] = [
    {},
    {"residual": "pre", "tie_embeddings": False},
    {"positions": "learned", "activation": "gelu"},
    {"positions": "rotary", "activation": "swiglu", "norm": "rms"},
    {"activation": "silu", "d_k": 6, "d_v": 10},
    {"decoder": "ssru", "decoder_layers": 2},
]


def logits(models: Models) -> NDArray[Any]:
    """The logits of some steps."""
    assert isinstance(models, EngineModels)
    decoder = EngineDecoder(models.models[0], 1)
    decoder.add([[*source, EOS] for source in sources(3, 1, 20)])
    return np.stack([decoder.step(np.full((3, 1), token), np.arange(3)) for token in (BOS, 7, 30)])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_model_in_memory_or_in_a_folder_in_either_precision(form: dict[str, Any], tmp_path: Path) -> None:
    folder = write_untrained(tmp_path / "fp32", **form)
    small = nmt.quantize(folder, tmp_path / "int8").path
    live = load_model(folder).model
    found = {precision: logits(open_models([folder], device="cpu").models(precision)) for precision in ("fp32", "int8")}
    assert not np.array_equal(found["fp32"], found["int8"])
    for precision in ("fp32", "int8"):
        assert np.array_equal(found[precision], logits(models_of([live], precision, 1, 1)))
    assert np.array_equal(found["int8"], logits(open_models([small], device="cpu").models("auto")))


def test_a_packed_model_keeps_the_weights_that_it_was_given(tmp_path: Path) -> None:
    """Training changes a live model; its next translations are those of the new weights."""
    live = load_model(write_untrained(tmp_path / "model")).model
    packed = models_of([live], "fp32", 1, 1)
    before = logits(packed)
    with torch.no_grad():
        for parameter in live.parameters():
            parameter.mul_(1.5)
    assert np.array_equal(before, logits(packed))
    assert not np.array_equal(before, logits(models_of([live], "fp32", 1, 1)))


def test_arrays_in_bf16_are_the_same_numbers_in_fp32(tmp_path: Path) -> None:
    live = load_model(write_untrained(tmp_path / "model")).model
    rounded = {name: tensor.bfloat16() for name, tensor in weights_of(live).items()}
    forms = (
        {name: tensor.view(torch.uint16).numpy() for name, tensor in rounded.items()},
        {name: tensor.float().numpy() for name, tensor in rounded.items()},
    )
    for precision in ("fp32", "int8"):
        sizes = live.matrix("source").size(0), live.target_vocab
        ours, theirs = (logits(EngineModels([EngineModel(live.config, sizes, a, precision)], 1, 1)) for a in forms)
        assert np.array_equal(ours, theirs)
