"""Decoding on a device that is not the host: nothing is mixed up, and nothing waits for it more often than needed."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from engine_switch import without_engine
from few_words import LIST, WORDS, lines, model, tokenizer
from in_memory import line_translator
from simulated_device import DEVICE, SimulatedDevice
from small_models import section

from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DecodeSection
from nmt_cli.search.beam_search import BeamSearch
from nmt_cli.search.running import search_all
from nmt_cli.search.search import MbrOptions, SamplingOptions
from nmt_cli.translation.confidence import DEFAULT
from nmt_cli.translation.line import Candidate, Line, Translation

pytestmark = pytest.mark.slow

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "all that a result has": {"nbest": 3, "align": True, "calibration": DEFAULT},
    "bf16": {"precision": "bf16"},
    "fp16": {"precision": "fp16"},
    "samples": {"search": "sample", "sampling": SamplingOptions(top_k=5, top_p=0.9, min_p=0.01, temperature=0.8)},
    "minimum Bayes risk": {"search": "mbr", "mbr": MbrOptions(utility="bleu")},
    "diverse": {"search": "diverse", "nbest": 2},
    "a shortest output": {"decode": {"min_length": 3}},
    "greedy": {"decode": {"beam": 1}},
    "no_repeat_ngram": {"constraints": {"no_repeat_ngram": 1}},
    "repetition_penalty": {"constraints": {"repetition_penalty": 1.7}},
    "banned_words": {"constraints": {"banned_words": WORDS[::2]}},
    "outputs": {"constraints": {"outputs": LIST}},
    "terms": {"constraints": {"terms": None}},
}


@pytest.fixture(autouse=True)
def plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engine(monkeypatch)


def translated(models: Any, given: list[Any], decode: dict[str, Any] | None = None, **more: Any) -> list[Translation]:
    """In this thread: the device is simulated there."""
    some = line_translator(models, tokenizer(), tokenizer(), DecodeSection(max_extra=3, **(decode or {})), **more)
    prepared = some.prepare(given)
    return some.results(prepared, search_all(some.models, some.search, prepared.sentences))


def assert_near(ours: Any, theirs: Any) -> None:
    """All is equal, numbers up to rounding: a device has a log-softmax of its own."""
    if isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-5)
    elif isinstance(theirs, (list, tuple)):
        for one, other in zip(ours, theirs, strict=True):
            assert_near(one, other)
    elif isinstance(theirs, Candidate):
        assert_near([*vars(ours).items()], [*vars(theirs).items()])
    else:
        assert ours == theirs


def on_device(some: Transformer) -> Transformer:
    return copy.deepcopy(some).to(DEVICE)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_translations_are_those_of_the_host(case: str) -> None:
    given: list[Any] = lines()[:24]
    if case == "terms":
        given = [Line(line.text, terms=["big dog|cat"]) for line in given]
    expected = translated(model(), given, **CASES[case])
    with SimulatedDevice() as device:
        assert_near(translated(on_device(model()), given, **CASES[case]), expected)
    assert device.operations > 1000


def formed(positions: str) -> Transformer:
    config = section(encoder_layers=1, decoder_layers=1, max_positions=64, positions=positions, d_v=8)
    return Transformer(config, tokenizer().vocab_size, tokenizer().vocab_size).eval()


MODELS: dict[str, Callable[[], list[Transformer]]] = {
    "an ensemble": lambda: [model(), model()],
    "learned positions": lambda: [formed("learned")],
    "rotary positions": lambda: [formed("rotary")],
    "stored in int8": lambda: [convert(model(), "int8")],
}


@pytest.mark.parametrize("form", MODELS)
@torch.no_grad()
def test_forms_of_the_model_are_on_the_device(form: str) -> None:
    models, precision = MODELS[form](), "int8" if "int8" in form else "fp32"
    expected = translated([model()] if precision == "int8" else models, lines()[:8], precision=precision)
    with SimulatedDevice():
        assert_near(translated([on_device(one) for one in models], lines()[:8], precision=precision), expected)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Counter[str]]]:
    """What each step of a search waited for in which no sentence left, none had its longest length, and none had joined."""
    counted: list[Counter[str]] = []
    step = BeamSearch.step

    def counting(self: BeamSearch) -> Any:
        before, sentences, complete = device.waits.copy(), len(self.unfinished), self.complete
        results = step(self)
        if not complete and len(self.unfinished) == sentences:
            counted.append(device.waits - before)
        return results

    device = SimulatedDevice()
    monkeypatch.setattr(BeamSearch, "step", counting)
    with device:
        yield counted


@pytest.mark.parametrize("decode", [{}, {"min_length": 4}, {"beam": 1}])
@torch.no_grad()
def test_a_step_waits_for_the_device_once(decode: dict[str, Any], waits: list[Counter[str]]) -> None:
    some = line_translator(on_device(model()), tokenizer(), tokenizer(), DecodeSection(max_extra=30, **decode))
    sentences = some.prepare([line for line in lines() if not line.inputs]).sentences
    search_all(some.models, some.search, sentences)
    assert len(waits) > 15
    assert all(one["to"] == 1 and not one.keys() - {"to", "item"} for one in waits)
    assert sum(one.total() for one in waits) <= 1.25 * len(waits)
