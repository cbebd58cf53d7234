"""Attention weights against what each module gives in the model's own pass."""

import random
from typing import Any

import numpy as np
import pytest
import small_models
import torch
from torch import Tensor, nn

from nmt_cli.data.tokenizer import BOS, EOS, Tokenizer, Vocabulary, learn_bpe
from nmt_cli.errors import DataError, UsageError
from nmt_cli.model.attention import attend, record_attention
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DataSection, ModelSection
from nmt_cli.translation.attention_maps import KINDS, check_selection, compute_attention, select_views
from nmt_cli.translation.scoring import PairScorer
from nmt_cli.translation.torch_forced import TorchForced

D, H, V = 24, 4, 50
SOURCE, TARGET = [9, 30, 8, 7, 41, EOS], [BOS, 20, 7, 33, 12]
S, T = len(SOURCE), len(TARGET)
NEXT = [*TARGET[1:], EOS]
FEATURES: list[dict[str, Any]] = [
    {},
    {"residual": "pre"},
    {"positions": "learned", "max_positions": 12},
    {"d_k": 5, "d_v": 9, "num_heads": 3},
    {"tie_embeddings": False, "num_heads": 1, "decoder_layers": 1},
]


def section(**features: Any) -> ModelSection:
    return small_models.section(
        **{"decoder_layers": 3, "d_model": D, "d_ff": 40, "num_heads": H, "max_positions": 64, **features}
    )


def make(source_vocab: int = V, target_vocab: int = V, **features: Any) -> Transformer:
    """A model whose biases and norms are random too, and whose heads are far from even."""
    torch.manual_seed(0)
    model = Transformer(section(**features), source_vocab, target_vocab)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(
                0.3 * torch.randn_like(parameter)
                if parameter.dim() == 1
                else 0.2 * torch.randn_like(parameter) * ("query" in name)
            )
    return model.eval()


def attention_maps(model: Transformer, source: list[int], target: list[int]) -> dict[str, Tensor]:
    _, weights = TorchForced(model).forced([source], [target], attention=list(KINDS))
    return {kind: torch.from_numpy(array) for kind, array in weights.items()}


def log_probs(model: Transformer, following: list[int]) -> Tensor:
    """Log P of these tokens after those of TARGET, from the pass that also returns weights."""
    [found], _ = TorchForced(model).forced([SOURCE], [TARGET], [following], attention=["cross"])
    return torch.from_numpy(found)


def modules_of(model: Transformer, kind: str) -> list[Any]:
    stack: Any = model.encoder if kind == "encoder" else model.decoder
    return [layer.cross_attention if kind == "cross" else layer.self_attention for layer in stack]


@pytest.mark.parametrize("features", FEATURES)
@torch.no_grad()
def test_weights_times_values_are_what_each_module_gives(features: dict[str, Any]) -> None:
    """In a pass by the fast kernel, which knows no weights, every attention gives out W (weights V) + b."""
    model = make(**features)
    given: dict[nn.Module, Any] = {}
    hooks = [
        module.register_forward_hook(lambda of, taken, made: given.update({of: (taken, made)}))
        for kind in KINDS
        for module in modules_of(model, kind)
    ]
    hidden = model(torch.tensor([SOURCE]), None, torch.tensor([TARGET]))
    for hook in hooks:
        hook.remove()
    maps = attention_maps(model, SOURCE, TARGET)
    values = model.config.num_heads * model.config.value_size
    for kind in KINDS:
        for layer, module in enumerate(modules_of(model, kind)):
            taken, made = given[module]
            value = (
                taken[1][1][0]
                if kind == "cross"
                else module.query_key_value(taken[0])[0, :, -values:]
                .unflatten(1, (model.config.num_heads, -1))
                .transpose(0, 1)
            )
            context = (maps[kind][layer] @ value).transpose(0, 1).flatten(1)  # (T, H * W)
            torch.testing.assert_close(module.output(context), made[0], atol=1e-5, rtol=1e-4)
    expected = model.logits(hidden)[0].log_softmax(-1)
    torch.testing.assert_close(log_probs(model, NEXT), expected[range(T), NEXT], atol=1e-5, rtol=1e-4)


def test_a_module_attends_as_before_afterwards() -> None:
    model = make()
    attention_maps(model, SOURCE, TARGET)
    module: Any = model.encoder[0].self_attention
    assert all(one.attend is attend for kind in KINDS for one in modules_of(model, kind))
    with record_attention(module), pytest.raises(RuntimeError):
        module(torch.randn(1, 3, D + 1), None)
    assert module.attend is attend


def vocabulary(joint: bool) -> Vocabulary:
    def learn(words: str, size: int) -> Tokenizer:
        rng = random.Random(0)
        return learn_bpe(
            [" ".join(rng.choices(words.split(), k=6)) for _ in range(100)],
            DataSection(generator="teaching", vocab_size=size),
        )

    source = learn("the cat dog sees likes house red small", 290)
    return Vocabulary(source, source if joint else learn("die Katze Hund sieht mag Haus rot klein", 300))


@pytest.mark.parametrize("joint", [True, False])
def test_pieces_and_probability_of_a_pair(joint: bool) -> None:
    both = vocabulary(joint)
    model = make(both.source_size, both.target_size, tie_embeddings=joint)
    lines = ("the cat sees", "red house likes" if joint else "die Katze sieht")
    source, target = both.source.encode([lines[0]])[0], both.target.encode([lines[1]])[0]
    views, log_prob = compute_attention(TorchForced(model), both, source, target)
    [scored] = PairScorer(TorchForced(model), both).score([lines])
    assert log_prob == pytest.approx(scored.log_prob, abs=1e-4)
    heard, written = both.source.pieces(lines[0]), both.target.pieces(lines[1])
    by_kind = {view.kind: (list(view.rows), list(view.columns), view.causal) for view in views}
    assert by_kind == {
        "encoder": ([*heard, "</s>"], [*heard, "</s>"], False),
        "decoder": ([*written, "</s>"], ["<s>", *written], True),
        "cross": ([*written, "</s>"], [*heard, "</s>"], False),
    }
    maps = attention_maps(model, [*source, EOS], [BOS, *target])
    assert all(np.array_equal(view.weights, maps[view.kind]) for view in views)


def test_sides_that_are_too_long_are_named() -> None:
    both = vocabulary(True)
    model = make(both.source_size, both.target_size, max_positions=6)
    assert len(compute_attention(TorchForced(model), both, [5] * 5, [5] * 5)[0]) == 3
    with pytest.raises(DataError, match="the sentence has 6 pieces; the model takes 5 at once"):
        compute_attention(TorchForced(model), both, [5] * 6, [5])
    with pytest.raises(DataError, match="the translation has 6 pieces; the model takes 5 at once"):
        compute_attention(TorchForced(model), both, [5], [5] * 6)


def test_a_decoder_without_self_attention_has_two_kinds() -> None:
    both = vocabulary(True)
    model = make(both.source_size, both.target_size, decoder="ssru")
    views, _ = compute_attention(TorchForced(model), both, [7, 8], [9])
    assert [view.kind for view in views] == ["encoder", "cross"]
    with pytest.raises(UsageError, match="--kind 'decoder': expected encoder or cross"):
        check_selection(model.config, "decoder", None, None)


def test_layers_and_heads_are_chosen_by_number() -> None:
    both = vocabulary(True)
    views, _ = compute_attention(TorchForced(make(both.source_size, both.target_size)), both, [7, 8], [9])
    [one] = select_views(views, "cross", 3, 2)
    assert (one.layers, one.heads, tuple(one.weights.shape)) == ((3,), (2,), (1, 1, 2, 3))
    assert np.array_equal(one.weights[0, 0], views[2].weights[2, 1])
    assert [view.kind for view in select_views(views, layer=3)] == ["decoder", "cross"]  # the encoder has two layers
    for view, all_heads in zip(select_views(views, head=4), views, strict=True):
        assert (view.layers, view.heads) == (all_heads.layers, (4,))
        assert np.array_equal(view.weights[:, 0], all_heads.weights[:, 3])
