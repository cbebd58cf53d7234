"""Every library of the engine that this processor runs computes the same bits."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from engine_libraries import RUNNING
from small_models import OPTIONS, VOCABULARY, searched, small, sources

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.engine import library
from nmt_cli.engine.model import EngineModel
from nmt_cli.model.folder import weights_of
from nmt_cli.model.precision import integers
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.engine import EngineDecoder, EngineSearch
from nmt_cli.search.sentence import Sentence
from nmt_cli.translation.models import engine_model

FORMS: dict[str, dict[str, Any]] = {
    "paper": {},
    "learned": {"positions": "learned", "activation": "gelu", "residual": "pre"},
    "rotary": {"positions": "rotary", "activation": "swiglu", "norm": "rms", "tie_embeddings": False},
    "silu": {"activation": "silu", "norm": "rms", "residual": "pre", "monotonic_attention": True},
    "heads of 20": {"d_model": 40, "d_ff": 52, "d_k": 20, "d_v": 20},
    "ssru": {"decoder": "ssru", "positions": "marian"},
    "odd heads": {"d_model": 36, "num_heads": 3, "d_k": 7, "d_v": 4, "d_ff": 300},
    "large": {"d_model": 256, "num_heads": 4, "d_ff": 1024, "vocabulary": 1100},
}


needs_several = pytest.mark.skipif(len(RUNNING) < 2, reason="this processor runs at most one library of the engine")


def computed(model: EngineModel, vocabulary: int) -> list[Any]:
    """The hypotheses of a search, and the arrays of steps and of a pass."""
    some = sources(1, 6, 35, 2, 17, vocabulary=vocabulary)
    sentences = [Sentence(source, len(source) + 9) for source in some]
    options = replace(OPTIONS, nbest=4, token_log_probs=True)
    hypotheses = searched(EngineSearch(model, options), sentences, [(0, range(3)), (1, [3, 4])])
    decoder = EngineDecoder(model, 2)
    decoder.add([[*source, EOS] for source in some])
    steps = [decoder.step(np.full((5, 2), token), np.arange(10)) for token in (BOS, 9, 30)]
    log_probs, weights = model.forced(
        [[*some[2], EOS]], [[BOS, *some[4]]], [[*some[4], EOS]], attention=["encoder", "decoder", "cross"]
    )
    return [hypotheses, *steps, *log_probs, *weights.values()]


def with_small_integers(model: Transformer) -> EngineModel:
    """The model with int8 matrices most of whose numbers are small: libraries multiply those in another way."""
    arrays = {name: tensor.numpy() for name, tensor in {**weights_of(model), **integers(model)}.items()}
    for name, array in arrays.items():
        if array.dtype == np.int8:
            arrays[name] = (array.astype(np.int32) ** 3 // 127**2).astype(np.int8)
    return EngineModel(model.config, (VOCABULARY, VOCABULARY), arrays, "int8")


@needs_several
@pytest.mark.parametrize("decoder", ["self_attention", "ssru"])
def test_small_integers_give_the_same_bits(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(d_model=64, decoder=decoder)
    compare(monkeypatch, lambda: with_small_integers(model), VOCABULARY)


@needs_several
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("form", FORMS)
def test_every_instruction_set_gives_the_same_bits(form: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = partial(engine_model, small(**FORMS[form]), precision)
    compare(monkeypatch, make, FORMS[form].get("vocabulary", VOCABULARY))


def compare(monkeypatch: pytest.MonkeyPatch, make: Callable[[], EngineModel], vocabulary: int) -> None:
    """Every library computes the same numbers with the model that it makes."""
    found = []
    for name in RUNNING:
        monkeypatch.setattr(library, "_found", lambda name=name: library._loaded(library.path_of(name)))
        packed = make()
        assert packed.library.nmt_instructions().decode() == name
        found.append(computed(packed, vocabulary))
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs
