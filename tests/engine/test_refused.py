"""What the engine refuses, by name; nothing that is given to it ends the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_models import SMALL, VOCABULARY, needs_engine, small
from torch import nn

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.engine.model import Bans, EngineModel, unsupported
from nmt_cli.errors import ModelError
from nmt_cli.model.folder import weights_of
from nmt_cli.model.precision import integers
from nmt_cli.recipe import ModelSection
from nmt_cli.registry import ACTIVATIONS
from nmt_cli.search.engine import EngineDecoder, EngineSearch
from nmt_cli.search.search import SearchOptions
from nmt_cli.search.sentence import Sentence

pytestmark = needs_engine

Arrays = dict[str, NDArray[Any]]
REQUEST = SearchOptions(
    beam=4, alpha=0.6, nbest=2, bos=BOS, eos=EOS, banned_tokens=(0, 1, 2), textless=(4, 5), steps=10, compact_below=0.0
)
WEIGHT, BIAS = "encoder.0.self_attention.output.weight", "encoder.0.self_attention.output.bias"


def packed(
    change: Callable[[Arrays], object] = lambda arrays: None,
    precision: str = "fp32",
    stored: str = "fp32",
    vocabularies: tuple[int, int] = (VOCABULARY, VOCABULARY),
    **changes: Any,
) -> EngineModel:
    """The model with changed arrays, or with another configuration."""
    model = small()
    tensors = {**weights_of(model), **(integers(model) if stored == "int8" else {})}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    change(arrays)
    return EngineModel(ModelSection(**{**SMALL, **changes}), vocabularies, arrays, precision)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop(BIAS), f"the array {BIAS} is missing."),
        (lambda a: a.clear(), "the array embeddings.shared is missing."),
        (lambda a: a.update(more=a[BIAS]), "the array more is not part of such a model."),
        (lambda a: a.update({WEIGHT: a[WEIGHT][:, :9]}), f"{WEIGHT} has the dimensions (32, 9), expected (32, 32)."),
        (lambda a: a.update({BIAS: a[BIAS].astype(np.int8)}), f"{BIAS} has the dtype int8, expected fp32 or bf16."),
        (lambda a: a.update({WEIGHT: a[WEIGHT].astype(np.int8)}), f"{WEIGHT} is in int8, and the model computes in fp32."),
        (
            lambda a: a.update({WEIGHT: a[WEIGHT].astype(np.float64)}),
            f"{WEIGHT} has the dtype float64 and the shape (32, 32): no model has such an array.",
        ),
        (
            lambda a: a.update({BIAS: np.ones((32, 0), np.float32)}),
            f"{BIAS} has the dtype float32 and the shape (32, 0): no model has such an array.",
        ),
        (
            lambda a: a.update({WEIGHT: a[WEIGHT][None]}),
            f"{WEIGHT} has the dtype float32 and the shape (1, 32, 32): no model has such an array.",
        ),
    ],
)  # fmt: skip
def test_arrays_that_are_not_the_models(change: Callable[[Arrays], object], message: str) -> None:
    with pytest.raises(ModelError) as refused:
        packed(change)
    assert str(refused.value) == message


def test_integers_without_scales() -> None:
    packed(precision="int8", stored="int8")
    scales = WEIGHT.removesuffix(".weight") + ".scales"
    with pytest.raises(ModelError, match=f"^the array {scales} is missing.$"):
        packed(lambda arrays: arrays.pop(scales), "int8", "int8")
    with pytest.raises(ModelError, match=f"^{WEIGHT} is in fp32 and has scales, expected int8.$"):
        packed(lambda arrays: arrays.update({scales: arrays[BIAS]}), "int8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3, "d_k": 16, "d_v": 16}, r"query_key_value.weight has the dimensions \(96, 32\), expected \(144,"),
        ({"encoder_layers": 3}, r"the array encoder\.2\.self_attention\.query_key_value\.weight is missing"),
        ({"decoder_layers": 1}, r"the array decoder\.1\.\S+ is not part of such a model"),
        ({"norm": "rms"}, r"the array \S+norm\.bias is not part of such a model"),
        ({"residual": "pre"}, r"the array encoder_norm\.weight is missing"),
        ({"positions": "learned"}, r"the array source_positions\.weight is missing"),
        ({"activation": "swiglu"}, r"inner\.weight has the dimensions \(64, 32\), expected \(128, 32\)"),
        ({"tie_embeddings": False}, r"the array embeddings\.source is missing"),
        ({"monotonic_attention": True}, r"the array next_word\.begins is missing"),
        ({"vocabularies": (60, 50)}, "embeddings are tied, and the vocabularies have 60 and 50 tokens"),
        ({"vocabularies": (0, 0)}, "source_vocab is 0, expected 1 to"),
    ],
)  # fmt: skip
def test_a_configuration_that_is_not_the_models(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        packed(**changes)


IN_FOURS = "the engine multiplies int8 in fours, and the model has a width of"


class Cube(nn.Module):
    """An activation that the engine does not have."""

    def __init__(self, config: ModelSection) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x**3


def test_forms_that_the_engine_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACTIVATIONS, "cube", f"{__name__}:Cube")
    config = ModelSection(**SMALL)
    for changed, precision, reason in [
        (config, "fp32", ""),
        (config, "int8", ""),
        (config, "bf16", "the engine has no bf16"),
        (ModelSection(**SMALL, activation="cube"), "fp32", "the engine has no model.activation = 'cube'"),
        (ModelSection(**{**SMALL, "d_ff": 62}), "fp32", ""),
        (ModelSection(**{**SMALL, "d_ff": 62}), "int8", f"{IN_FOURS} 62"),
        (ModelSection(**{**SMALL, "d_model": 34}), "int8", f"{IN_FOURS} 34"),
        (ModelSection(**{**SMALL, "d_v": 5}), "int8", f"{IN_FOURS} 10"),
    ]:
        assert unsupported(changed, precision) == reason
        if reason:
            with pytest.raises(ModelError, match=f"^{reason}.$"):
                EngineModel(changed, (VOCABULARY, VOCABULARY), {}, precision)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": 0}, "the beam is 0, expected 1 to"),
        ({"beam": 1 << 40}, "the beam is 1099511627776"),
        ({"nbest": 5}, "nbest is 5, expected 1 to the beam of 4"),
        ({"lookahead": -1}, "lookahead and min_length must not be negative"),
        ({"bos": 60}, "the token 60 is not in the vocabulary of 60"),
        ({"banned_tokens": (1, 99)}, "the token 99 is not in the vocabulary of 60"),
        ({"textless": (-5,)}, "the token -5 is not in the vocabulary of 60"),
    ],
    ids=str,
)
def test_options_of_a_search_that_are_out_of_range(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        EngineSearch(packed(), replace(REQUEST, **changes))


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
    search = EngineSearch(packed(), REQUEST)
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


def test_too_long_outputs_and_attention_of_several_pairs() -> None:
    one = EngineDecoder(packed(), 1)
    one.add([[5, EOS]])
    for _ in range(71):
        one.step(np.array([[5]]), np.array([0]))
    with pytest.raises(ModelError, match="an output has more than 71 tokens"):
        one.step(np.array([[5]]), np.array([0]))
    with pytest.raises(ModelError, match="2, expected 1"):
        packed().forced([[5], [6]], [[2], [2]], attention=["cross"])


def test_a_decoder_without_sentences() -> None:
    one = EngineDecoder(packed(), 3)
    nothing = np.empty((0, 3), np.int64)
    one.add([])
    assert one.step(nothing, nothing.ravel()).shape == (0, VOCABULARY)
    one.reorder(nothing)
    one.keep(nothing.ravel())
    one.add([[5, EOS]])
    assert one.step(np.full((1, 3), BOS), np.array([0])).shape == (1, VOCABULARY)
    for beam in (0, -1, 1 << 40):
        with pytest.raises(ModelError, match=f"the beam is {beam}"):
            EngineDecoder(packed(), beam)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[5]], [[-1]], [[3]]), "a translation has the token -1"),
        (([[5]], [[2] * 72], [[3] * 72]), "a translation has 72 tokens, expected 1 to 71"),
        (([[5]], [[2]], [[60]]), "a translation has the token 60"),
        (([[5]], [[2]], [[3, 3]]), "expected"),
        (([[5], [6]], [[2]], [[3]]), "expected"),
        (([[5]], [[2], [2]], [[3], [3]]), "expected"),
    ],
)
def test_translations_that_a_pass_does_not_take(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        packed().forced(*arguments)
