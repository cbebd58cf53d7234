"""The coverage penalty against attention that is computed anew by a full pass over each output."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import small_models
import torch
from both_arrays import TORCH
from reference_decoder import KINDS, ReferenceDecoder
from run_search import over, plain_sentences, run_to_end, search_options
from small_models import needs_engine, section
from toy_decoder import ToyDecoder

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.errors import UsageError
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.beam_search import BeamSearch
from nmt_cli.search.coverage import Coverage
from nmt_cli.search.diverse_beam_search import DiverseBeamSearch
from nmt_cli.search.ensemble import EnsembleDecoder
from nmt_cli.search.length_penalties import gnmt
from nmt_cli.search.protocols import Decoder, GrowingDecoder, alignment_layer
from nmt_cli.search.running import search_all
from nmt_cli.search.search import UNLIMITED, SearchOptions
from nmt_cli.search.sentence import Hypothesis, Sentence
from nmt_cli.translation.alignment import cross_attention
from nmt_cli.translation.cached_decoder import CachedDecoder
from nmt_cli.translation.models import TorchModels, models_of
from nmt_cli.translation.torch_forced import TorchForced

FEATURES: list[dict[str, object]] = [
    {},
    {"residual": "pre", "positions": "learned", "d_k": 8, "d_v": 24},
    {"decoder_layers": 1, "num_heads": 1},
]


def make(seed: int = 0, vocabulary: int = 60, **features: object) -> Transformer:
    """An untrained model with sharper attention than usual, so that coverage differs between outputs."""
    torch.manual_seed(seed)
    config = section(**{"encoder_layers": 1, "decoder_layers": 3, "num_heads": 4, "max_positions": 64, **features})
    model = Transformer(config, vocabulary, vocabulary).eval()
    for name, parameter in model.named_parameters():
        if "cross_attention.query" in name:
            parameter.data *= 5
    return model


def sources(count: int, vocabulary: int = 60, longest: int = 30) -> list[list[int]]:
    rng = random.Random(1)
    return [[*(rng.randrange(4, vocabulary) for _ in range(rng.randint(1, longest))), EOS] for _ in range(count)]


def sentences(batch: list[list[int]], limit: int = 0) -> list[Sentence]:
    return plain_sentences([limit or 3 + len(source) for source in batch], None, [source[:-1] for source in batch])


def options(beam: int = 4, beta: float = 0.3, **more: Any) -> SearchOptions:
    return search_options(beam, **{"coverage_penalty": beta, **more})


@torch.inference_mode()
def searched(
    kind: Callable[..., Decoder],
    model: Transformer,
    batch: list[list[int]],
    opts: SearchOptions,
    search: type[BeamSearch] = BeamSearch,
    limit: int = 0,
) -> list[list[Hypothesis]]:
    return run_to_end(search(kind(model, batch, opts.beam), opts), sentences(batch, limit))


def log_coverage(model: Transformer, source: list[int], tokens: list[int]) -> float:
    """Equation 14 without β, from a pass over the whole output."""
    sums = torch.from_numpy(cross_attention(TorchForced(model), source, [BOS, *tokens])).double().sum(0)
    return sum(math.log(min(float(value), 1.0)) for value in sums[:-1])


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("search", [BeamSearch, DiverseBeamSearch])
def test_scores_have_the_coverage_of_a_pass_over_the_output(
    search: type[BeamSearch], kind: Callable[..., Decoder], features: dict[str, Any]
) -> None:
    model, batch = make(**features), sources(8)
    opts = options(diverse_groups=2)
    penalties = []
    for source, found in zip(batch, searched(kind, model, batch, opts, search), strict=True):
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        for h in found:
            penalties.append(0.3 * log_coverage(model, source, h.tokens))
            assert h.score == pytest.approx(h.log_prob / gnmt(len(h.tokens) + 1, 0.6) + penalties[-1], abs=2e-5)
    assert min(penalties) < -1 < max(penalties) <= 0


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.1, 1.0, 10.0])
def test_a_wide_beam_is_brute_force(beta: float) -> None:
    """Every output there can be, with log P and attention from a pass of its own."""
    model, batch = make(vocabulary=7), sources(4, 7, 6)
    outputs = [list(tokens) for n in range(4) for tokens in itertools.product(range(4, 7), repeat=n)]
    results = searched(CachedDecoder, model, batch, options(40, beta, nbest=5), limit=3)
    for source, found in zip(batch, results, strict=True):
        reads, nexts = [[BOS, *tokens] for tokens in outputs], [[*tokens, EOS] for tokens in outputs]
        log_probs, _ = TorchForced(model).forced([source] * len(outputs), reads, nexts)
        scores = [
            path.sum() / gnmt(len(path), 0.6) + beta * log_coverage(model, source, tokens)
            for path, tokens in zip(log_probs, outputs, strict=True)
        ]
        expected = sorted(zip(scores, outputs, strict=True), reverse=True)[:5]
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_sentences_that_join_others_are_searched_as_if_alone(kind: Callable[..., GrowingDecoder]) -> None:
    batch, model = sources(18), make()
    joining = over(lambda: kind(model, [], 4), options())
    entering = [(0, range(7)), (3, range(7, 9)), (11, range(9, 15)), (200, range(15, 18))]
    assert small_models.searched(joining, sentences(batch), entering) == searched(kind, model, batch, options())


@pytest.mark.parametrize("beta", [0.05, 0.5])
@pytest.mark.parametrize("nbest", [1, 3])
def test_stopping_early_loses_nothing(nbest: int, beta: float) -> None:
    model, batch = make(), sources(12)
    early, late = (
        searched(CachedDecoder, model, batch, options(4, beta, nbest=nbest, lookahead=ahead))
        for ahead in (UNLIMITED, 0)
    )
    assert early == late


def test_without_a_penalty_nothing_is_recorded() -> None:
    """A decoder that reports no attention will do."""
    BeamSearch(ToyDecoder([0], 4, 7, (4, 5)), options(beta=0.0))
    with pytest.raises(UsageError, match="ToyDecoder does not report its attention"):
        BeamSearch(ToyDecoder([0], 4, 7, (4, 5)), options())


@pytest.mark.parametrize("load", [TorchModels, pytest.param(models_of, marks=needs_engine)])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_searchers_use_the_attention_of_an_ensembles_first_model(beta: float, load: Any) -> None:
    opts = options(beta=beta)
    searcher = load([make(), make(1)], "fp32", 1, 1)
    found = search_all(searcher, replace(opts, search=BeamSearch), sentences(sources(5)))
    plain = EnsembleDecoder([ReferenceDecoder(model, sources(5), 4) for model in (make(), make(1))])
    with torch.inference_mode():
        expected = run_to_end(BeamSearch(plain, opts), sentences(sources(5)))
    assert [[h.tokens for h in result.hypotheses] for result in found] == [[h.tokens for h in row] for row in expected]
    for source, result in zip(sources(5), found, strict=True):
        for h in result.hypotheses:
            cover = beta * log_coverage(make(), source, h.tokens)
            assert h.score == pytest.approx(h.log_prob / gnmt(len(h.tokens) + 1, 0.6) + cover, abs=2e-5)


def test_the_attention_is_that_of_the_layer_before_the_last() -> None:
    assert [alignment_layer(section(decoder_layers=count)) for count in (1, 2, 6)] == [0, 0, 4]


def test_a_token_without_any_attention_costs_much_and_not_everything() -> None:
    """Padding and the end symbol's own column do not count."""
    state = Coverage.start([Sentence([5, 6], 4), Sentence([5, 6, 7], 4)], 2, TORCH)
    state.add(torch.tensor([0, 3]), torch.tensor([[0.25, 0.0, 0.75, 0.0], [0.5, 0.25, 0.25, 0.0]], dtype=torch.float64))
    state.add(torch.tensor([0, 3]), torch.tensor([[0.5, 0.0, 0.5, 0.0], [0.75, 0.25, 0.0, 0.0]], dtype=torch.float64))
    found = state.log_coverage(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[True, False], [True, False]]))
    assert found[0].tolist() == pytest.approx([math.log(0.75) + math.log(1e-30), 0.0])
    assert found[1].tolist() == pytest.approx([math.log(0.5) + math.log(0.25), 0.0])
