"""The fast decoders against the plain one; and no bit of a sentence's result depends on its neighbours."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from nmt_cli.decoding.beam_search import MANY, BeamSearch, beam_search
from nmt_cli.decoding.cached_decoder import CachedDecoder
from nmt_cli.decoding.decoders import EnsembleDecoder, ReferenceDecoder
from nmt_cli.decoding.search import Hypothesis, SearchOptions, plain_sentences
from nmt_cli.kernels.choice import apply_kernels
from nmt_cli.kernels.cpu_decoding import whole_steps
from nmt_cli.kernels.cpu_decoding.decoder import NativeDecoder, NativeModel
from nmt_cli.kernels.cpu_decoding.linear import KernelLinear
from nmt_cli.kernels.cpu_decoding.on_tensors import extend_beam
from nmt_cli.kernels.cpu_decoding.whole_steps import WholeStepDecoder, WholeSteps
from nmt_cli.kernels.gpu_decoding.decoder import GraphDecoder, GraphModel, unsupported
from nmt_cli.kernels.protocols import BeamState
from nmt_cli.kernels.rows import padded_rows
from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import ModelSection

PAD, UNK, BOS, EOS = 0, 1, 2, 3
VOCABULARY = 150
FEATURES: list[dict[str, object]] = [
    {},
    {"residual": "pre", "positions": "learned"},
    {"d_k": 8, "d_v": 24},
    {"tie_embeddings": False},
]
SIZES: list[dict[str, object]] = [
    {"num_heads": 2},
    {"num_heads": 1, "residual": "pre"},
    {"num_heads": 2, "d_model": 256},
]
"""Heads of 32, 64 and 128 numbers, which have kernels of their own."""


def make(seed: int = 0, **features: object) -> Transformer:
    """An untrained model: its distribution is nearly flat, so that a rounding error would change the choice."""
    torch.manual_seed(seed)
    config = ModelSection.model_validate(
        {
            "encoder_layers": 2,
            "decoder_layers": 2,
            "d_model": 64,
            "d_ff": 128,
            "num_heads": 4,
            "max_positions": 128,
            **features,
        }
    )
    model = Transformer(config, VOCABULARY, VOCABULARY).eval()
    if model.next_word is not None:
        model.next_word.set(torch.rand(VOCABULARY) < 0.6, torch.rand(VOCABULARY) < 0.5)
    return model


def sources(count: int, longest: int = 40, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    return [[*(rng.randrange(4, VOCABULARY) for _ in range(rng.randint(1, longest))), EOS] for _ in range(count)]


Kind = Callable[[Transformer, list[list[int]], int], ReferenceDecoder | CachedDecoder | NativeDecoder | GraphDecoder]


def native(model: Transformer, batch: list[list[int]], beam: int) -> NativeDecoder:
    """Of a model from `made`."""
    if not isinstance(model.output_projection, KernelLinear):
        pytest.skip("torch has no operators for this precision and processor")
    return NativeDecoder(NativeModel(model), batch, beam)


def whole(model: Transformer, batch: list[list[int]], beam: int) -> NativeDecoder:
    """The same with compiled steps."""
    steps = native(model, batch, beam).model
    if not whole_steps.supports(steps):
        pytest.skip("this processor has no compiled products in this precision")
    return WholeStepDecoder(WholeSteps(steps), batch, beam)


def graph(model: Transformer, batch: list[list[int]], beam: int) -> GraphDecoder:
    """What CUDA graphs are made of, without graphs."""
    assert unsupported(model) == ""
    return GraphDecoder(GraphModel(model), batch, beam)


def made(precision: str | None, **features: object) -> Transformer:
    """In a precision, with kernels; None: in plain torch."""
    return apply_kernels(convert(make(**features), precision), "decoding").model if precision else make(**features)


DECODERS = [(CachedDecoder, None), (CachedDecoder, "fp32"), (native, "fp32"), (whole, "fp32")]
EXACT = [(kind, precision) for kind in (CachedDecoder, native, whole) for precision in ("fp32", "int8")]
"""Those whose results do not depend on neighbours."""


@torch.inference_mode()
def translate(
    kind: Kind, model: Transformer, batch: list[list[int]], beam: int = 4, nbest: int = 1
) -> list[list[Hypothesis]]:
    options = SearchOptions(beam=beam, alpha=0.6, nbest=nbest, bos=BOS, eos=EOS, banned_tokens=(PAD, UNK, BOS))
    limits = torch.tensor([len(source) + 4 for source in batch])
    return beam_search(kind(model, batch, beam), limits, options)


MONOTONIC: dict[str, object] = {"residual": "pre", "monotonic_attention": True}


@pytest.mark.parametrize(
    ("kind", "features", "beam"),
    [
        *[(CachedDecoder, features, beam) for features in [*FEATURES, MONOTONIC] for beam in (1, 3)],
        *[
            (kind, features, beam)
            for kind in (native, whole)
            for features in [*FEATURES, *SIZES, MONOTONIC]
            for beam in (1, 3, 4)
        ],
        (CachedDecoder, {}, 20),
        (native, {"num_heads": 1}, 20),
        *[(graph, features, beam) for features in FEATURES for beam in (1, 3, 20)],
    ],
)
@torch.inference_mode()
def test_fast_is_reference_step_by_step(kind: Kind, features: dict[str, object], beam: int) -> None:
    """Random tokens, parents, closed hypotheses and departures, beyond the caches' first room: log-probabilities equal to 1e-5."""
    model, generator = make(**features), torch.Generator().manual_seed(5)
    batch = sources(7)
    decoders = (
        ReferenceDecoder(model, batch, beam),
        kind(made("fp32", **features) if kind in (native, whole) else model, batch, beam),
    )
    count = 7
    opened = torch.ones(count, beam, dtype=torch.bool)
    for step in range(45):
        tokens = torch.randint(4, VOCABULARY, (count, beam), generator=generator)
        rows = opened.flatten().nonzero().flatten()
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
            stay = torch.arange(count)[torch.arange(count) != step // 10]
            count, opened = len(stay), opened[stay]
            for decoder in decoders:
                decoder.keep(stay)


@pytest.mark.parametrize(("kind", "precision"), [*EXACT, (CachedDecoder, None)])
def test_hard_monotonic_attention_is_the_same_for_sentences_alone_together_and_added_later(
    kind: Kind, precision: str | None
) -> None:
    model, batch = made(precision, **MONOTONIC), sources(9)
    alone = [translate(kind, model, [source])[0] for source in batch]
    assert alone == translate(kind, model, batch)
    if precision is None:
        assert [[h.tokens for h in hypotheses] for hypotheses in alone] == [
            [h.tokens for h in hypotheses] for hypotheses in translate(ReferenceDecoder, model, batch)
        ]
    assert alone != translate(kind, made(precision, residual="pre"), batch)
    options = SearchOptions(beam=3, alpha=0.6, bos=BOS, eos=EOS, banned_tokens=(PAD, UNK, BOS))
    search = BeamSearch(decoder := kind(model, batch[:4], 3), options)
    device, found = torch.device("cpu"), {}
    search.add(range(4), plain_sentences(torch.tensor([len(source) + 4 for source in batch[:4]])), device)
    for first in (4, 6, 9):
        for _ in range(3):
            found.update(search.step())
        if first < 9:
            later = batch[first : {4: 6, 6: 9}[first]]
            cast(CachedDecoder, decoder).add(later)
            search.add(
                range(first, first + len(later)),
                plain_sentences(torch.tensor([len(source) + 4 for source in later])),
                device,
            )
    while search.busy:
        found.update(search.step())
    assert [found[number] for number in range(9)] == [translate(kind, model, [source], beam=3)[0] for source in batch]


@pytest.mark.parametrize("features", [*FEATURES, *SIZES])
@pytest.mark.parametrize(("kind", "precision"), DECODERS)
def test_fast_search_is_reference_search(kind: Kind, precision: str | None, features: dict[str, object]) -> None:
    model, batch = make(**features), sources(9)
    plain = translate(ReferenceDecoder, model, batch, nbest=4)
    fast = translate(kind, made(precision, **features), batch, nbest=4)
    assert [[h.tokens for h in row] for row in fast] == [[h.tokens for h in row] for row in plain]
    for left, right in zip(fast, plain, strict=True):
        assert [h.log_prob for h in left] == pytest.approx([h.log_prob for h in right], abs=1e-3)


@pytest.mark.parametrize(("kind", "precision"), EXACT)
@pytest.mark.parametrize(
    ("beam", "features"), [(1, {}), (4, {}), (4, {"d_k": 8, "d_v": 24}), (4, {"num_heads": 1}), (5, {"num_heads": 2})]
)
def test_a_sentence_does_not_depend_on_its_neighbours(
    kind: Kind, precision: str | None, beam: int, features: dict[str, object]
) -> None:
    """Alone, in threes, all together, in another order, of all lengths: equal tokens, and equal scores to the last bit."""
    model, batch = made(precision, **features), sources(12)
    together = translate(kind, model, batch, beam)
    for size in (1, 3):
        parts = [translate(kind, model, batch[i : i + size], beam) for i in range(0, len(batch), size)]
        assert [row for part in parts for row in part] == together
    order = random.Random(3).sample(range(12), 12)
    shuffled = translate(kind, model, [batch[i] for i in order], beam)
    assert [shuffled[order.index(i)] for i in range(12)] == together


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@torch.inference_mode()
def test_rounded_precisions_are_near_the_model(precision: str) -> None:
    model, batch = make(num_heads=1), sources(6)
    rounded = native(made(precision, num_heads=1), batch, 4)
    plain = ReferenceDecoder(model, batch, 4)
    for step in range(6):
        tokens, rows = torch.full((6, 4), BOS + step), torch.arange(24)
        difference = rounded.step(tokens, rows).log_softmax(-1) - plain.step(tokens, rows).log_softmax(-1)
        assert 1e-4 < float(difference.abs().max()) < 0.2


def test_rows_come_in_few_numbers() -> None:
    sizes = {padded_rows(count, 4) for count in range(1, 1025)}
    assert len(sizes) < 70
    assert all(count <= padded_rows(count, 4) <= max(4, count * 9 / 8) for count in range(1, 1025))


@torch.inference_mode()
def test_an_ensemble_averages_probabilities() -> None:
    models, batch = [make(seed) for seed in (1, 2, 3)], sources(4)
    tokens, rows = torch.full((4, 2), BOS), torch.arange(8)
    alone = [CachedDecoder(model, batch, 2).step(tokens, rows).softmax(-1) for model in models]
    together = EnsembleDecoder([CachedDecoder(model, batch, 2) for model in models]).step(tokens, rows)
    torch.testing.assert_close(together.exp(), torch.stack(alone).mean(0))
    plain = translate(
        lambda model, *rest: EnsembleDecoder([ReferenceDecoder(m, *rest) for m in models]), models[0], batch
    )  # type: ignore[arg-type, return-value]
    for kind in (CachedDecoder, native, whole):
        of = [apply_kernels(convert(m, "fp32"), "decoding").model if kind in (native, whole) else m for m in models]
        fast = translate(lambda _, *rest: EnsembleDecoder([kind(m, *rest) for m in of]), models[0], batch)  # type: ignore[arg-type, return-value]  # noqa: B023
        assert [[h.tokens for h in row] for row in fast] == [[h.tokens for h in row] for row in plain]


@pytest.mark.parametrize(("kind", "precision"), EXACT)
@pytest.mark.parametrize("beam", [1, 4])
@torch.inference_mode()
def test_sentences_that_join_others_are_computed_as_if_alone(kind: Any, precision: str | None, beam: int) -> None:
    """To the last bit; also those that enter when all others have left."""
    model, batch = made(precision), sources(18)
    options = SearchOptions(beam=beam, alpha=0.6, nbest=1, bos=BOS, eos=EOS, banned_tokens=(PAD, UNK, BOS))
    limits = torch.tensor([len(source) + 4 for source in batch])
    decoder = kind(model, [], beam)
    search, found = BeamSearch(decoder, options), dict[int, list[Hypothesis]]()
    for step in range(300):
        entering = {0: range(7), 3: range(7, 9), 11: range(9, 15), 200: range(15, 18)}.get(step)
        if entering:
            decoder.add([batch[i] for i in entering])
            search.add(entering, plain_sentences(limits[list(entering)]), torch.device("cpu"))
        found.update(search.step())
    assert not search.busy
    assert [found[i] for i in range(18)] == translate(kind, model, batch, beam)


def whole_without_search(model: Transformer, batch: list[list[int]], beam: int) -> NativeDecoder:
    """Compiled steps, whose candidates are ranked in plain torch."""
    decoder = whole(model, batch, beam)
    decoder.__class__ = type("WithoutSearch", (WholeStepDecoder,), {"searches": False})
    return decoder


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize(
    "settings",
    [
        {"beam": 1},
        {"beam": 4, "nbest": 4},
        {"beam": 3, "nbest": 2, "alpha": 1.5, "lookahead": 3},
        {"beam": 4, "stop_early": False},
        {"beam": 5, "min_length": 6, "textless": (4, 5, 6, 7, 8, 9)},
        {"beam": 2, "min_length": 30, "textless": (*range(4, 149),)},
        {"beam": 2, "min_length": 5, "textless": (*range(4, 150),)},
    ],
    ids=str,
)
@torch.inference_mode()
def test_compiled_search_is_the_plain_one(precision: str, settings: dict[str, Any]) -> None:
    """Whole steps of the search in one function, one or several at a time, with sentences that join later and that are dropped: tokens and scores are equal to the last bit."""
    model, batch = made(precision), sources(14)
    common = {"alpha": 0.6, "bos": BOS, "eos": EOS, "banned_tokens": (PAD, UNK, BOS), **settings}
    limits = torch.tensor([len(source) + 4 for source in batch])

    def found(kind: Kind, **more: Any) -> dict[int, list[Hypothesis]]:
        decoder = kind(model, batch[:6], settings["beam"])
        search, results = BeamSearch(decoder, SearchOptions(**common, **more)), dict[int, list[Hypothesis]]()
        assert bool(search.searching) == (kind is whole)
        search.add(range(6), plain_sentences(limits[:6]), torch.device("cpu"))
        results.update(search.step())
        decoder.add(batch[6:])
        search.add(range(6, 14), plain_sentences(limits[6:]), torch.device("cpu"))
        results.update(search.step())
        search.drop([2, 9])
        while search.busy:
            results.update(search.step())
        return {number: hypotheses for number, hypotheses in results.items() if number not in (2, 9)}

    plain = found(whole_without_search)
    assert sorted(plain) == [0, 1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13]
    many: list[dict[str, Any]] = [
        {"steps": 1},
        {"steps": 3},
        {"steps": 1000},
        {"steps": 1, "compact_below": 1.0},
        {"steps": 1000, "compact_below": 1.0},
    ]
    for more in (
        *many,
        {"compact_below": 1.0, "seconds": 1e-9},
        {"compact_below": 1.0, "seconds": 0.01},
        {"steps": 1000, "compact_below": 1.0, "seconds": 1000.0},
    ):
        assert found(whole, extend_beam=extend_beam, **more) == plain


@pytest.mark.parametrize(
    ("count", "steps", "stay"),
    [(1, [1, 8], 1.0), (MANY - 1, [1, 14 // (MANY - 1)], 1.0), (MANY, [1, 14 // MANY], 0.0), (20, [1, 1], 0.0)],
)
def test_the_steps_of_a_call_fill_a_time_and_many_sentences_leave_together(
    count: int, steps: list[int], stay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, calls = [0.0], list[tuple[int, float]]()
    monkeypatch.setattr("nmt_cli.decoding.beam_search.time.perf_counter", lambda: now[0])

    def search_steps(state: BeamState, steps: int, stay: float) -> None:
        calls.append((steps, stay))
        now[0] += steps * count  # a second for each hypothesis; nothing else happens

    decoder = whole(made("fp32"), sources(count), 2)
    monkeypatch.setattr(decoder, "search", search_steps)
    options = SearchOptions(
        beam=2,
        alpha=0.6,
        bos=BOS,
        eos=EOS,
        banned_tokens=(PAD, UNK, BOS),
        extend_beam=extend_beam,
        compact_below=1.0,
        seconds=14.0,
    )
    search = BeamSearch(decoder, options)
    search.add(range(count), plain_sentences(torch.full((count,), 40)), torch.device("cpu"))
    assert search.step() == search.step() == []
    assert calls == [(number, stay) for number in steps]


@torch.inference_mode()
def test_sentences_with_a_prefix_are_searched_beside_others() -> None:
    model, batch = made("fp32"), sources(6)
    limits, prefixes = torch.tensor([len(source) + 4 for source in batch]), [[], [7, 8], [], [9], [], []]
    options = SearchOptions(beam=3, alpha=0.6, bos=BOS, eos=EOS, banned_tokens=(PAD, UNK, BOS), extend_beam=extend_beam)
    found = beam_search(whole(model, batch, 3), limits, options, prefixes)
    assert [h.tokens[: len(prefix)] for [h], prefix in zip(found, prefixes, strict=True)] == prefixes
    alone = [
        beam_search(whole(model, [source], 3), limits[i : i + 1], options, prefixes[i : i + 1])[0]
        for i, source in enumerate(batch)
    ]
    assert found == alone


@pytest.mark.parametrize(
    ("kind", "kernel"), [(CachedDecoder, None), (CachedDecoder, extend_beam), (whole, extend_beam)]
)
@torch.inference_mode()
def test_a_finished_sentence_stays_beside_others_for_any_time(kind: Any, kernel: Any) -> None:
    model, batch = made("fp32"), sources(30, longest=6)
    options = SearchOptions(
        beam=2,
        alpha=0.6,
        bos=BOS,
        eos=EOS,
        banned_tokens=(PAD, UNK, BOS),
        compact_below=0.0,
        extend_beam=kernel,
        steps=1,
    )
    limits = torch.tensor([len(source) + 1 for source in batch])
    decoder = kind(model, batch[:1], 2)
    search, found = BeamSearch(decoder, options), dict[int, list[Hypothesis]]()
    search.add([0], plain_sentences(limits[:1]), torch.device("cpu"))
    for number in range(1, 30):
        assert search.step() == []
        decoder.add([batch[number]])
        search.add([number], plain_sentences(limits[number : number + 1]), torch.device("cpu"))
    while search.busy:
        found.update(search.step())
    assert [found[i] for i in range(30)] == [
        beam_search(kind(model, [source], 2), limits[i : i + 1], options)[0] for i, source in enumerate(batch)
    ]


@pytest.mark.parametrize(("kind", "kernel"), [(CachedDecoder, None), (whole, extend_beam)])
@torch.inference_mode()
def test_finished_sentences_leave_when_the_last_open_one_is_dropped(kind: Any, kernel: Any) -> None:
    model, batch, limits = made("fp32"), sources(2), torch.tensor([2, 40])
    options = SearchOptions(
        beam=2,
        alpha=0.6,
        bos=BOS,
        eos=EOS,
        banned_tokens=(PAD, UNK, BOS),
        compact_below=0.0,
        extend_beam=kernel,
        steps=1,
    )
    search = BeamSearch(kind(model, batch, 2), options)
    search.add([0, 1], plain_sentences(limits), torch.device("cpu"))
    for _ in range(4):
        assert search.step() == []
    search.drop([1])
    assert search.open_hypotheses == 0
    assert search.busy
    assert search.step() == [(0, beam_search(kind(model, batch[:1], 2), limits[:1], options)[0])]
    assert not search.busy
