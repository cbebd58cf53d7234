"""The decoder of CUDA graphs, on the CPU: the same operations on the same memory, started one by one."""

from __future__ import annotations

import copy
import random
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from few_words import lines, model, tokenizer
from simulated_device import DEVICE, SimulatedDevice
from torch import Tensor

from nmt_cli.decoding.beam_search import BeamSearch, beam_search
from nmt_cli.decoding.cached_decoder import CachedDecoder
from nmt_cli.decoding.model_workers import ConvertedModels
from nmt_cli.decoding.search import Hypothesis, SearchOptions, plain_sentences
from nmt_cli.decoding.translator import Result, Translator
from nmt_cli.kernels.choice import KernelsInUse, apply_kernels
from nmt_cli.kernels.gpu_decoding import decoder as module
from nmt_cli.kernels.gpu_decoding import graphs
from nmt_cli.kernels.gpu_decoding.decoder import Arena, GraphDecoder, GraphModel, bucket, supports, unsupported
from nmt_cli.kernels.gpu_decoding.graphs import MOST_GRAPHS, Graphs
from nmt_cli.model.attention import record_attention
from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DecodeSection, ModelSection

BOS, EOS, VOCABULARY = 2, 3, 150
OPTIONS = SearchOptions(beam=4, alpha=0.6, nbest=2, bos=BOS, eos=EOS, banned_tokens=(0, 1, BOS))


def make(**features: object) -> Transformer:
    torch.manual_seed(0)
    values = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "d_model": 64,
        "d_ff": 128,
        "num_heads": 4,
        "max_positions": 128,
        **features,
    }
    return Transformer(ModelSection.model_validate(values), VOCABULARY, VOCABULARY).eval()


def sources(count: int, longest: int = 40, seed: int = 1) -> list[list[int]]:
    rng = random.Random(seed)
    return [[*(rng.randrange(4, VOCABULARY) for _ in range(rng.randint(1, longest))), EOS] for _ in range(count)]


@torch.inference_mode()
def found(decoder: Any, batch: list[list[int]]) -> list[list[Hypothesis]]:
    return beam_search(decoder, torch.tensor([len(source) + 4 for source in batch]), OPTIONS)


def same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]], tolerance: float = 1e-4) -> None:
    assert [[h.tokens for h in row] for row in ours] == [[h.tokens for h in row] for row in theirs]
    assert [h.score for row in ours for h in row] == pytest.approx(
        [h.score for row in theirs for h in row], abs=tolerance
    )


@pytest.fixture
def small_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    """That have to grow."""
    monkeypatch.setattr(module, "FIRST_STEPS", 16)
    monkeypatch.setattr(module, "FIRST_SOURCE", 16)


@pytest.mark.parametrize(
    "features",
    [{}, {"positions": "rotary", "residual": "pre"}, {"norm": "rms", "d_k": 8}, {"activation": "swiglu"}],
    ids=str,
)
@pytest.mark.usefixtures("small_arenas")
def test_beam_search_finds_the_same(features: dict[str, object]) -> None:
    some, batch = make(**features), sources(12)
    same(found(GraphDecoder(GraphModel(some), batch, 4), batch), found(CachedDecoder(some, batch, 4), batch))


@pytest.mark.parametrize("precision", ["bf16", "fp16", "int8"])
def test_in_other_precisions_scores_are_near(precision: str) -> None:
    some, batch = convert(make(), precision), sources(12)
    ours, theirs = found(GraphDecoder(GraphModel(some), batch, 4), batch), found(CachedDecoder(some, batch, 4), batch)
    assert [row[0].score for row in ours] == pytest.approx([row[0].score for row in theirs], abs=0.02)


@pytest.mark.usefixtures("small_arenas")
@torch.inference_mode()
def test_sentences_that_join_others_are_searched_as_alone() -> None:
    some, batch = make(), sources(18)
    limits = torch.tensor([len(source) + 4 for source in batch])
    decoder = GraphDecoder(GraphModel(some), [], 4)
    search, results = BeamSearch(decoder, OPTIONS), dict[int, list[Hypothesis]]()
    for step in range(300):
        entering = {0: range(7), 3: range(7, 9), 11: range(9, 15), 200: range(15, 18)}.get(step)
        if entering:
            decoder.add([batch[i] for i in entering])
            search.add(entering, plain_sentences(limits[list(entering)]), torch.device("cpu"))
        results.update(search.step())
    assert not search.busy
    same([results[i] for i in range(18)], found(CachedDecoder(some, batch, 4), batch))


def test_an_arena_serves_one_decoder_after_another() -> None:
    some, kept = make(), set[int]()
    graph_model = GraphModel(some)
    for count in (9, 3, 12):
        batch = sources(count, seed=count)
        decoder = GraphDecoder(graph_model, batch, 4)
        same(found(decoder, batch), found(CachedDecoder(some, batch, 4), batch))
        kept.add(id(decoder.arena))
        del decoder
        assert len(graph_model.free) == 1
    assert len(kept) == 1
    GraphDecoder(graph_model, sources(2), 5)
    assert {arena.beam for arena in graph_model.free} == {4, 5}


@torch.inference_mode()
def test_a_step_may_be_repeated() -> None:
    """Before a graph is recorded, its operations run a few times."""
    batch, tokens = sources(5), torch.randint(4, VOCABULARY, (5, 4))
    decoder = GraphDecoder(GraphModel(make()), batch, 4)
    for _ in range(3):
        decoder.step(tokens, torch.arange(20))
        decoder.reorder(torch.tensor([[1, 0, 0, 3]] * 5))
    first = decoder.arena._step(6, 16, 64).clone()
    before = copy.deepcopy((decoder.arena.caches, decoder.arena.ancestors))
    assert torch.equal(decoder.arena._step(6, 16, 64), first)
    torch.testing.assert_close((decoder.arena.caches, decoder.arena.ancestors), before, rtol=0, atol=0)


@torch.inference_mode()
def test_a_sentence_that_stays_after_its_end_does_no_harm() -> None:
    some, batch = make(max_positions=32), sources(2, longest=8)
    fast, plain = GraphDecoder(GraphModel(some), batch[:1], 2), CachedDecoder(some, batch[:1], 2)
    for step in range(40):
        if step == 25:
            fast.add(batch[1:])
            plain.add(batch[1:])
        rows, count = torch.arange(2) if step < 25 else torch.arange(2, 4), 1 if step < 25 else 2
        tokens = torch.full((count, 2), 5 + step)
        torch.testing.assert_close(fast.step(tokens, rows), plain.step(tokens, rows), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_steps_have_few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes, step = set[tuple[int, ...]](), Arena._step

    def counted(self: Arena, *sizes: int) -> Tensor:
        shapes.add(sizes)
        return step(self, *sizes)

    monkeypatch.setattr(Arena, "_step", counted)
    for count in range(1, 40, 3):
        batch = sources(count, longest=30, seed=count)
        found(GraphDecoder(GraphModel(make()), batch, 4), batch)
    assert len(shapes) <= MOST_GRAPHS


def test_buckets() -> None:
    assert [bucket(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 24, 25, 33, 48, 49)] == [
        1,
        2,
        3,
        4,
        6,
        6,
        8,
        8,
        12,
        12,
        16,
        24,
        32,
        48,
        48,
        64,
    ]
    assert all(n <= bucket(n) <= 1.5 * n for n in range(1, 5000))


def with_graphs(some: Transformer, device: str) -> ConvertedModels:
    return ConvertedModels([device], {device: [KernelsInUse(some, "decoding", graphs=GraphModel(some))]})


def translated(models: Any, decode: dict[str, Any]) -> list[Result]:
    return list(Translator(models, tokenizer(), tokenizer(), DecodeSection(max_extra=3, **decode)).translate(lines()))


@pytest.mark.parametrize("decode", [{}, {"beam": 1}, {"search": "diverse"}, {"coverage_penalty": 0.3}], ids=str)
def test_a_translator_with_graphs_translates_the_same(decode: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_KERNELS", "off")
    for ours, theirs in zip(translated(with_graphs(model(), "cpu"), decode), translated(model(), decode), strict=True):
        assert ours.translation == theirs.translation
        assert ours.best.score == pytest.approx(theirs.best.score, abs=1e-4)


@torch.no_grad()
def test_on_a_device_nothing_waits_for_its_steps() -> None:
    with SimulatedDevice() as device:
        batch = sources(6)
        decoder = GraphDecoder(GraphModel(copy.deepcopy(make()).to(DEVICE)), batch, 4)
        for step in range(20):
            tokens = torch.full((len(decoder.steps), 4), 4 + step).to(DEVICE)
            decoder.step(tokens, torch.arange(4 * len(decoder.steps)))
            decoder.reorder(torch.zeros(tokens.shape, dtype=torch.long).to(DEVICE))
            if step % 7 == 6:
                decoder.keep(torch.arange(1, len(decoder.steps)))
    assert device.waits == {}


def test_it_declines_what_it_does_not_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert supports(make()) == "device 'cpu' has no kernel"
    assert unsupported(make(monotonic_attention=True, residual="pre")) == "hard monotonic attention has no kernel"
    recorded = make()
    with record_attention(recorded.decoder[0].cross_attention):  # type: ignore[union-attr, arg-type]
        assert unsupported(recorded) == "attention 'CrossAttention' has no kernel"
    on_gpu = SimpleNamespace(device=torch.device("cuda:0"))
    monkeypatch.setattr(module, "unsupported", lambda _: "")
    assert supports(on_gpu) == "CUDA graphs are not measured yet: NMT_CUDA_GRAPHS=on uses them"  # type: ignore[arg-type]
    monkeypatch.setenv("NMT_CUDA_GRAPHS", "on")
    assert supports(on_gpu) == ""  # type: ignore[arg-type]


def test_attention_that_is_asked_for_has_no_graphs() -> None:
    kernels = with_graphs(model(), "cpu").kernels[0].without_compiled_decoder("why")
    assert kernels.native_decoder([[5, EOS]], 2) is None
    assert kernels.declined == {"decoder": "why"}


class Recorder:
    """What torch.cuda has for graphs: a recording runs the function again."""

    def __init__(self) -> None:
        self.replayed = 0

    def replay(self) -> None:
        self.replayed += 1

    def pool(self) -> tuple[int, int]:
        return 0, 7


def test_a_graph_is_recorded_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, pools, stream = list[tuple[int, ...]](), list[Any](), SimpleNamespace(wait_stream=lambda _: None)
    fake = SimpleNamespace(
        Stream=lambda _: stream,
        CUDAGraph=Recorder,
        current_stream=lambda _: stream,
        stream=lambda _: nullcontext(),
        graph=lambda graph, pool, stream, capture_error_mode: pools.append(pool) or nullcontext(),
    )
    monkeypatch.setattr(graphs.torch, "cuda", fake)

    def function(*sizes: int) -> Tensor:
        calls.append(sizes)
        return torch.tensor(sizes)

    made = Graphs(function, torch.device("cuda:0"))
    for sizes in [(1, 2), (1, 2), (3, 4), (1, 2)]:
        assert made(*sizes).tolist() == list(sizes)
    assert calls == [(1, 2)] * 3 + [(3, 4)] * 3
    assert pools == [None, (0, 7)]
    assert [graph.replayed for graph, _ in made.recorded.values()] == [3, 1]  # type: ignore[attr-defined]
    for number in range(MOST_GRAPHS):
        made(number, 9)
    assert len(made.recorded) == MOST_GRAPHS
    assert (1, 2) not in made.recorded


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_graphs_on_this_gpu(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NMT_CUDA_GRAPHS", "on")
    some, batch = convert(make().to("cuda:0"), precision), sources(12)
    kernels = apply_kernels(some, "decoding")
    assert "CUDA graphs" in kernels.used
    limits = torch.tensor([len(source) + 4 for source in batch], device="cuda:0")
    with torch.inference_mode():
        ours = beam_search(kernels.native_decoder(batch, 4), limits, OPTIONS)  # type: ignore[arg-type]
        theirs = beam_search(CachedDecoder(some, batch, 4), limits, OPTIONS)
    assert [row[0].score for row in ours] == pytest.approx([row[0].score for row in theirs], abs=0.02)
