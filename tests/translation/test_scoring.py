"""Forced scoring: equal to the training's NLL and to torch's cross-entropy, and no bit of it depends on the neighbours."""

import math
import random
from functools import cache
from typing import Any

import pytest
import torch
from few_words import WORDS, sentence, tokenizer
from small_models import needs_engine, section
from torch.nn import functional as F

from nmt_cli.data.tokenizer import BOS, EOS, Vocabulary
from nmt_cli.engine.model import EngineModel
from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.translation import scoring as module
from nmt_cli.translation.models import engine_model
from nmt_cli.translation.scoring import PairScorer, Scored, perplexity
from nmt_cli.translation.torch_forced import TorchForced
from nmt_cli.translation.windows import WindowSize

FEATURES: list[dict[str, object]] = [
    {},
    {"residual": "pre", "positions": "learned"},
    {"d_k": 8, "d_v": 24},
    {"tie_embeddings": False},
    {"max_positions": 51},
]

Pairs = list[tuple[str, str]]


def vocabulary(joint: bool = True) -> Vocabulary:
    return Vocabulary(tokenizer(), tokenizer() if joint else tokenizer(320, 1))


def model(**features: object) -> Transformer:
    torch.manual_seed(0)
    config = section(**{"encoder_layers": 1, "max_positions": 64, **features})
    words = vocabulary(config.tie_embeddings)
    return Transformer(config, words.source_size, words.target_size).eval()


@pytest.fixture(params=["torch", pytest.param("engine", marks=needs_engine)])
def by(request: pytest.FixtureRequest) -> str:
    """What computes."""
    return str(request.param)


def scorer(by: str, batch_tokens: int = 4096, **features: object) -> PairScorer:
    made = model(**features)
    forced = engine_model(made, "fp32") if by == "engine" else TorchForced(made, batch_tokens)
    return PairScorer(forced, vocabulary(bool(features.get("tie_embeddings", True))))


@cache
def pairs() -> Pairs:
    """Of all lengths, some with a blank side, two with two, one too long."""
    rng = random.Random(7)
    several = [sentence(rng, rng.choice([1, 2, 3, 5, 8, 13, 21])) for _ in range(180)]
    texts = list(zip(several[::2], several[1::2], strict=True))
    blank = [("", ""), (" \t", "\u3000"), ("", "the cat."), ("the cat.", "  ")]
    return texts[:40] + blank + [(sentence(rng, 200), "the cat."), ("x\u2028y\x00", "\ufffd 🐈")] + texts[40:]


@cache
def expected(by: str) -> list[Scored]:
    return list(scorer(by).score(pairs()))


def ids(pair: tuple[str, str], words: Vocabulary) -> tuple[list[int], list[int]]:
    [source], [target] = words.source.encode([pair[0]]), words.target.encode([pair[1]])
    return source, target


@pytest.mark.parametrize("features", FEATURES, ids=str)
@torch.no_grad()
def test_log_probs_equal_torchs_cross_entropy_of_each_pair_alone(by: str, features: dict[str, Any]) -> None:
    ours, reference = scorer(by, **features), model(**features)
    blank_side = pairs()[42:44]
    for result in ours.score(blank_side + [pair for pair in pairs() if any(map(str.strip, pair))][::3]):
        source, target = ids((result.source.strip(), result.target.strip()), ours.vocabulary)
        if result.log_prob is None:
            assert max(len(source), len(target)) >= ours.longest
            continue
        logits = reference.logits(reference(torch.tensor([[*source, EOS]]), None, torch.tensor([[BOS, *target]])))[0]
        nll = F.cross_entropy(logits, torch.tensor([*target, EOS]), reduction="sum")
        assert result.log_prob == pytest.approx(-float(nll), rel=1e-6, abs=1e-5)
        assert result.tokens == len(target) + 1
        assert result.perplexity == pytest.approx(math.exp(float(nll) / result.tokens), rel=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 64, 100_000])
def test_batches_neighbours_windows_change_nothing(by: str, batch_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    some = scorer(by, batch_tokens)
    assert list(some.score(pairs())) == expected(by)
    assert [(result.source, result.target) for result in expected(by)] == pairs()
    order = random.Random(1).sample(range(len(pairs())), len(pairs()))
    shuffled = list(some.score([pairs()[i] for i in order]))
    assert [shuffled[order.index(i)] for i in range(len(pairs()))] == expected(by)
    for number in (3, 42, 43, 60):
        assert list(some.score([pairs()[number]] * 70)) == [expected(by)[number]] * 70
        assert list(some.score([pairs()[number]])) == [expected(by)[number]]
    monkeypatch.setattr(module, "WINDOW", WindowSize(3, 20))
    windows = list(some.windows(iter(pairs())))
    assert [len(window) for window in windows] == [3, 6, 12, 20, 20, 20, 15]
    assert [result for window in windows for result in window] == expected(by)


def test_two_blank_lines_do_not_reach_the_model(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchForced, "forced", lambda *_: pytest.fail("the model was run"))
    monkeypatch.setattr(EngineModel, "forced", lambda *_: pytest.fail("the model was run"))
    blank = ["", " ", "\t", "\u3000", "\r", "\x85", "\u2028", "\v\f", "\u200b"]
    for result in scorer(by).score(list(zip(blank, reversed(blank), strict=True))):
        assert (result.tokens, result.log_prob, result.perplexity) == (0, 0.0, 1.0)
    assert list(scorer(by).score([])) == []


@pytest.mark.parametrize("longest", [48, 49, 50, 51])
def test_what_fits_is_scored_to_the_last_position_and_what_does_not_has_no_score(by: str, longest: int) -> None:
    words = " ".join(WORDS * 5)
    by_length = {
        len(ids((text, text), vocabulary())[0]): text for text in (words[:end].strip() for end in range(1, 200))
    }
    fits, over, short = by_length[longest - 1], by_length[longest], by_length[2]
    results = list(scorer(by, max_positions=longest).score([(fits, fits), (over, short), (short, over), (fits, short)]))
    assert [result.log_prob is None for result in results] == [False, True, True, False]
    assert [result.perplexity is None for result in results] == [False, True, True, False]
    assert [result.tokens for result in results] == [longest, 3, longest + 1, 3]
    assert list(scorer(by, max_positions=longest).score([(fits, fits)])) == results[:1]


def test_perplexity_is_always_a_number_and_bf16_near_fp32() -> None:
    assert perplexity(-4.0, 2) == pytest.approx(math.exp(2.0))
    assert perplexity(0.0, 0) == 1.0
    assert math.isfinite(perplexity(-1e30, 1))
    near = list(PairScorer(TorchForced(convert(model(), "bf16")), vocabulary()).score(pairs()))
    for ours, exact in zip(near, expected("torch"), strict=True):
        assert ours.tokens == exact.tokens
        assert ours.log_prob == (None if exact.log_prob is None else pytest.approx(exact.log_prob, rel=0.03))
