"""The decoders against the plain one; and no bit of a sentence's result depends on its neighbours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from reference_decoder import KINDS, ReferenceDecoder
from run_search import beam_search, over, search_options
from small_models import needs_engine, random_sources, searched, section

from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.engine import EngineSearch
from nmt_cli.search.search import Search, SearchOptions
from nmt_cli.search.sentence import Hypothesis, Sentence
from nmt_cli.translation.cached_decoder import MIN_ROWS, CachedDecoder, padded_rows
from nmt_cli.translation.models import engine_model

VOCABULARY = 150
MONOTONIC: dict[str, Any] = {"residual": "pre", "monotonic_attention": True}
FEATURES: list[dict[str, Any]] = [
    {},
    {"residual": "pre", "positions": "learned"},
    {"positions": "rotary", "num_heads": 1},
    {"d_k": 8, "d_v": 24},
    {"tie_embeddings": False},
    MONOTONIC,
]
SSRU = {"decoder": "ssru", "residual": "pre"}
Kind = Callable[[Transformer, list[list[int]], int], Any]


def make(seed: int = 0, **features: object) -> Transformer:
    """An untrained model: its distribution is nearly flat, so that a rounding error would change the choice."""
    torch.manual_seed(seed)
    config = section(**{"d_model": 64, "d_ff": 128, "num_heads": 4, "max_positions": 128, **features})
    model = Transformer(config, VOCABULARY, VOCABULARY).eval()
    if model.next_word is not None:
        model.next_word.set(torch.rand(VOCABULARY) < 0.6, torch.rand(VOCABULARY) < 0.5)
    return model


sources = partial(random_sources, longest=40, vocabulary=VOCABULARY)
options = partial(search_options, nbest=1)


@torch.inference_mode()
def translate(
    kind: Kind, model: Transformer, batch: list[list[int]], beam: int = 4, nbest: int = 1
) -> list[list[Hypothesis]]:
    limits = [len(source) + 4 for source in batch]
    return beam_search(kind(model, batch, beam), limits, options(beam, nbest=nbest))


@pytest.mark.parametrize(
    ("features", "beam"), [*((features, beam) for features in [*FEATURES, SSRU] for beam in (1, 3)), ({}, 20)]
)
@torch.inference_mode()
def test_a_decoder_with_caches_is_the_reference_step_by_step(features: dict[str, Any], beam: int) -> None:
    """Random tokens, parents, closed hypotheses and departures, beyond the caches' first room: log-probabilities equal to 1e-5."""
    model, generator = make(**features), torch.Generator().manual_seed(5)
    batch = sources(7)
    decoders = ReferenceDecoder(model, batch, beam), CachedDecoder(model, batch, beam)
    count = 7
    opened = torch.ones(count, beam, dtype=torch.bool)
    for step in range(45):
        tokens = torch.randint(4, VOCABULARY, (count, beam), generator=generator)
        rows = np.flatnonzero(opened)
        plain, fast = (s.step(tokens, rows).log_softmax(-1) for s in decoders)
        assert fast.shape == (len(rows), VOCABULARY)
        torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)
        # a hypothesis goes on from an open one
        weights = opened.double() + 1e-9
        parents = torch.multinomial(weights, beam, replacement=True, generator=generator)
        parents = torch.where(opened.gather(1, parents), parents, opened.byte().argmax(1, keepdim=True))
        opened = torch.rand(count, beam, generator=generator) < 0.8
        opened[:, 0] = True
        for decoder in decoders:
            decoder.reorder(parents)
        if step % 10 == 9:
            stay = np.delete(np.arange(count), step // 10)
            count, opened = len(stay), opened[stay]
            for decoder in decoders:
                decoder.keep(stay)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("kind", KINDS)
def test_searches_are_the_reference_search(kind: Kind, features: dict[str, Any]) -> None:
    model, batch = make(**features), sources(9)
    plain, fast = translate(ReferenceDecoder, model, batch, nbest=4), translate(kind, model, batch, nbest=4)
    assert [[h.tokens for h in row] for row in fast] == [[h.tokens for h in row] for row in plain]
    for left, right in zip(fast, plain, strict=True):
        assert [h.log_prob for h in left] == pytest.approx([h.log_prob for h in right], abs=1e-3)


def test_monotonic_attention_changes_outputs_and_rows_come_in_few_numbers() -> None:
    assert translate(CachedDecoder, make(**MONOTONIC), sources(9)) != translate(
        CachedDecoder, make(residual="pre"), sources(9)
    )
    sizes = {padded_rows(count) for count in range(1, 1025)}
    assert len(sizes) < 70
    assert all(count <= padded_rows(count) <= max(MIN_ROWS, count * 9 / 8) for count in range(1, 1025))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("beam", "features"), [(1, {}), (4, {"d_k": 8, "d_v": 24}), (5, {"num_heads": 1}), (3, MONOTONIC)]
)
@torch.inference_mode()
def test_a_sentence_alone_among_others_or_joining_them_has_one_result(
    kind: Kind, precision: str, beam: int, features: dict[str, Any]
) -> None:
    """To the last bit; also where one enters when all others have left."""
    model, batch = convert(make(**features), precision), sources(18)
    search = over(lambda: kind(model, [], beam), options(beam))
    entering = [(0, range(7)), (3, range(7, 9)), (11, range(9, 15)), (200, [15]), (400, range(16, 18))]
    found = searched(search, sentences(batch), entering)
    assert found == translate(kind, model, batch, beam)


def sentences(batch: list[list[int]], longer: int = 4) -> list[Sentence]:
    """Outputs may be `longer` than their sources."""
    return [Sentence(source[:-1], len(source) + longer) for source in batch]


def plain(chosen: SearchOptions) -> Search:
    """The search of the engine."""
    return EngineSearch(engine_model(make(), "fp32"), chosen)


KINDS_OF_SEARCH = [
    lambda chosen: over(lambda: CachedDecoder(make(), [], chosen.beam), chosen),
    pytest.param(plain, marks=needs_engine),
]


@pytest.mark.parametrize("kind", KINDS_OF_SEARCH)
@torch.inference_mode()
def test_finished_sentences_leave_when_the_last_open_one_is_dropped(kind: Callable[[SearchOptions], Search]) -> None:
    first, second = (Sentence(source[:-1], longest) for source, longest in zip(sources(2), (2, 40), strict=True))
    alone, search = kind(options(2)), kind(options(2, compact_below=0.0, steps=1))
    alone.add([0], [first])
    while alone.busy:
        results = alone.step()
    search.add([0, 1], [first, second])
    for _ in range(4):
        assert search.step() == []
    search.drop([1])
    assert search.open_hypotheses == 0
    assert search.busy
    assert search.step() == results
    assert not search.busy
