"""What the engine refuses, by name; nothing that is given to it ends the process."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_models import OPTIONS, VOCABULARY, needs_engine, section, small

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.engine.model import Bans, EngineModel, unsupported
from nmt_cli.errors import ModelError
from nmt_cli.model.folder import weights_of
from nmt_cli.model.precision import integers
from nmt_cli.registry import ACTIVATIONS
from nmt_cli.search.engine import EngineDecoder, EngineSearch
from nmt_cli.search.sentence import Sentence

pytestmark = needs_engine

REQUEST = replace(OPTIONS, nbest=2, textless=(4, 5), steps=10, compact_below=0.0)
WEIGHT, BIAS = "encoder.0.self_attention.output.weight", "encoder.0.self_attention.output.bias"


def packed(
    arrays: Mapping[str, NDArray[Any] | None] = MappingProxyType({}),
    precision: str = "fp32",
    stored: str = "fp32",
    vocabularies: tuple[int, int] = (VOCABULARY, VOCABULARY),
    **changes: Any,
) -> EngineModel:
    """The model with other arrays, or without those that are None; or with another configuration."""
    model = small()
    tensors = {**weights_of(model), **(integers(model) if stored == "int8" else {})}
    kept = {**{name: tensor.numpy() for name, tensor in tensors.items()}, **arrays}
    given = {name: array for name, array in kept.items() if array is not None}
    return EngineModel(section(**changes), vocabularies, given, precision)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (BIAS, None, "is missing"),
        ("more", np.ones(32, np.float32), "is not part of such a model"),
        (WEIGHT, np.ones((32, 9), np.float32), "has the dimensions (32, 9), expected (32, 32)"),
        (BIAS, np.ones(32, np.int8), "has the dtype int8, expected fp32 or bf16"),
        (WEIGHT, np.ones((32, 32), np.int8), "is in int8"),
        (WEIGHT, np.ones((32, 32)), "has the dtype float64"),
        (BIAS, np.ones((32, 0), np.float32), "has the dtype float32 and the shape (32, 0)"),
        (WEIGHT, np.ones((1, 32, 32), np.float32), "has the dtype float32 and the shape (1, 32, 32)"),
    ],
)
def test_arrays_that_are_not_the_models(name: str, array: NDArray[Any] | None, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(f"{name} {message}")):
        packed({name: array})


def test_integers_without_scales() -> None:
    packed(precision="int8", stored="int8")
    scales = WEIGHT.removesuffix(".weight") + ".scales"
    with pytest.raises(ModelError, match=f"{scales} is missing"):
        packed({scales: None}, "int8", "int8")
    with pytest.raises(ModelError, match=f"{WEIGHT} is in fp32 and has scales"):
        packed({scales: np.ones(32, np.float32)}, "int8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_layers": 3}, r"encoder\.2\.\S+ is missing"),
        ({"decoder_layers": 1}, r"decoder\.1\.\S+ is not part of such a model"),
        ({"vocabularies": (60, 50)}, "the vocabularies have 60 and 50 tokens"),
        ({"vocabularies": (0, 0)}, "source_vocab is 0, expected 1 to"),
    ],
)
def test_a_configuration_that_is_not_the_models(changes: dict[str, Any], message: str) -> None:
    """What each form needs: `model/test_parameters.py`."""
    with pytest.raises(ModelError, match=message):
        packed(**changes)


IN_FOURS = "the engine multiplies int8 in fours, and the model has a width of"


@pytest.mark.parametrize(
    ("changes", "precision", "reason"),
    [
        ({}, "fp32", ""),
        ({}, "int8", ""),
        ({}, "bf16", "the engine has no bf16"),
        ({"activation": "cube"}, "fp32", "the engine has no model.activation = 'cube'"),
        ({"d_ff": 62}, "fp32", ""),
        ({"d_ff": 62}, "int8", f"{IN_FOURS} 62"),
        ({"d_model": 34}, "int8", f"{IN_FOURS} 34"),
        ({"d_v": 5}, "int8", f"{IN_FOURS} 10"),
    ],
)
def test_forms_that_the_engine_does_not_have(
    changes: dict[str, Any], precision: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ACTIVATIONS, "cube", "torch.nn:Tanh")
    config = section(**changes)
    assert unsupported(config, precision) == reason
    if reason:
        with pytest.raises(ModelError, match=f"^{reason}.$"):
            EngineModel(config, (VOCABULARY, VOCABULARY), {}, precision)


def searching(model: EngineModel, **changes: Any) -> EngineSearch:
    return EngineSearch(model, replace(REQUEST, **changes))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [[60]], [3]), "a source has the token 60, expected 0 to 59"),
        (([0], [[5] * 71], [3]), "a source has 72 tokens, expected 1 to 71"),
        (([0], [[5]], [71]), "the longest output has 71 tokens, expected at most 70"),
        (([0], [[5]], [-1]), "the longest output has -1 tokens"),
        (([0], [[5], [6]], [3, 3]), "longer"),
    ],
)
def test_sentences_that_a_search_does_not_take(arguments: tuple[Any, ...], message: str) -> None:
    """The search goes on without them."""
    ids, sources, longest = arguments
    search = searching(packed())
    search.add([7], [Sentence([5], 3)])
    with pytest.raises((ModelError, ValueError), match=message):
        search.add(ids, list(map(Sentence, sources, longest)))
    assert search.sentences == 1
    assert [number for number, _ in search.step()] == [7]


def decoder(beam: int = 2) -> EngineDecoder:
    """A decoder with two sentences, after a step."""
    one = EngineDecoder(packed(), beam)
    one.add([[5, EOS], [6, 7, EOS]])
    one.step(np.full((2, beam), BOS), np.array([0, beam]))
    return one


def best(one: EngineDecoder, count: int = 4, **changes: Any) -> object:
    arguments = {"bans": Bans([0]), "only": None, "log_probs": np.zeros((2, 2)), "rows": [0, 2]}
    return one.best(np.full((2, 2), 5), count=count, **{**arguments, **changes})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.add([[5], []]), "a source has 0 tokens"),
        (lambda d: d.step(np.full((2, 2), 60), np.array([1])), "60, expected 0 to 59"),
        (lambda d: d.step(np.full((2, 2), 5), np.array([4])), "number 0 is 4, expected ascending numbers below 4"),
        (lambda d: d.step(np.full((2, 2), 5), np.array([-1])), "number 0 is -1"),
        (lambda d: d.step(np.full((2, 2), 5), np.array([2, 2])), "number 1 is 2"),
        (lambda d: d.step(np.full((3, 2), 5), np.array([1])), "expected"),
        (lambda d: d.reorder(np.array([[0, 1], [2, 0]])), "parent is 2"),
        (lambda d: d.reorder(np.array([[0, 1], [-1, 0]])), "parent is -1"),
        (lambda d: d.reorder(np.array([[0, 1]])), "expected"),
        (lambda d: d.keep(np.array([2])), "2, expected ascending numbers below 2"),
        (lambda d: d.keep(np.array([-1])), "-1, expected ascending numbers below 2"),
        (lambda d: d.keep(np.array([1, 0])), "0, expected ascending numbers below 2"),
        (lambda d: best(d, 0), "candidates is 0"),
        (lambda d: best(d, bans=Bans([60])), "60, expected 0 to 59"),
        (lambda d: best(d, bans=Bans([-300])), "-300, expected 0 to 59"),
        (lambda d: best(d, only=[60, -1]), "60"),
        (lambda d: best(d, only=[5]), "1, expected 2"),
        (lambda d: best(d, bans=Bans([0], [0, 2])), "2"),
        (lambda d: best(d, log_probs=np.zeros((1, 2))), "expected"),
        (lambda d: best(d, rows=[0, 9]), "number 1 is 9"),
    ],
)
def test_calls_that_a_decoder_does_not_take(call: Callable[[EngineDecoder], object], message: str) -> None:
    """Its state stays as it was: the next step is that of a decoder without the call."""
    ours, theirs = decoder(), decoder()
    with pytest.raises(ModelError, match=message):
        call(ours)
    tokens, rows = np.array([[8, 9], [10, 11]]), np.array([0, 2])
    assert np.array_equal(ours.step(tokens, rows), theirs.step(tokens, rows))


def test_too_long_outputs() -> None:
    one = EngineDecoder(packed(), 1)
    one.add([[5, EOS]])
    for _ in range(71):
        one.step(np.array([[5]]), np.array([0]))
    with pytest.raises(ModelError, match="an output has more than 71 tokens"):
        one.step(np.array([[5]]), np.array([0]))


def test_a_decoder_without_sentences() -> None:
    one = EngineDecoder(packed(), 3)
    nothing = np.empty((0, 3), np.int64)
    one.add([])
    assert one.step(nothing, nothing.ravel()).shape == (0, VOCABULARY)
    one.reorder(nothing)
    one.keep(nothing.ravel())
    one.add([[5, EOS]])
    assert one.step(np.full((1, 3), BOS), np.array([0])).shape == (1, VOCABULARY)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: searching(model, beam=0), "the beam is 0"),
        (lambda model: searching(model, beam=1 << 40), "the beam is 1099511627776"),
        (lambda model: searching(model, nbest=5), "nbest is 5, expected 1 to the beam of 4"),
        (lambda model: searching(model, lookahead=-1), "lookahead and min_length must not be negative"),
        (lambda model: searching(model, bos=60), "the token 60 is not in the vocabulary of 60"),
        (lambda model: searching(model, banned_tokens=(1, 99)), "the token 99 is not in the vocabulary of 60"),
        (lambda model: searching(model, textless=(-5,)), "the token -5 is not in the vocabulary of 60"),
        (lambda model: EngineDecoder(model, 0), "the beam is 0"),
        (lambda model: EngineDecoder(model, -1), "the beam is -1"),
        (lambda model: EngineDecoder(model, 1 << 40), "the beam is 1099511627776"),
        (lambda model: model.forced([[5]], [[-1]], [[3]]), "a translation has the token -1"),
        (lambda model: model.forced([[5]], [[2] * 72], [[3] * 72]), "a translation has 72 tokens, expected 1 to 71"),
        (lambda model: model.forced([[5]], [[2]], [[60]]), "a translation has the token 60"),
        (lambda model: model.forced([[5]], [[2]], [[3, 3]]), "expected"),
        (lambda model: model.forced([[5], [6]], [[2]], [[3]]), "expected"),
        (lambda model: model.forced([[5]], [[2], [2]], [[3], [3]]), "expected"),
        (lambda model: model.forced([[5], [6]], [[2], [2]], attention=["cross"]), "2, expected 1"),
    ],
)
def test_options_and_translations_that_a_model_refuses(call: Callable[[EngineModel], object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        call(packed())
