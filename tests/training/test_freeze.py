"""`train.freeze`: the parameters it names keep their bits, the others get the gradients that they would get anyway."""

import pytest
import torch
from replicas import ALONE, V, batch_of, new_updater, recipe
from torch import Tensor

from nmt_cli.errors import TrainingError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import TrainSection
from nmt_cli.training.parameters import matching
from nmt_cli.training.schedule import concerns

NAMES = [name for name, _ in Transformer(recipe().model, V, V).named_parameters()]
FROZEN = [["encoder"], ["embeddings"], ["embeddings", "encoder.*"], ["*.feed_forward.*", "decoder.0"]]


def bits(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("pattern", "part"),
    [
        ("embeddings", "embeddings."),
        ("embeddings.shared", "embeddings.shared"),
        ("encoder", "encoder."),
        ("encoder.*", "encoder."),
        ("encoder.1", "encoder.1."),
        ("decoder.[01].cross_attention.*", ".cross_attention."),
        ("decoder.?.cross_attention", ""),
        ("Encoder", ""),
        ("", ""),
    ],
)
def test_a_pattern_without_wildcards_also_names_what_is_below_it(pattern: str, part: str) -> None:
    if part:
        assert matching(NAMES, [pattern]) == {name for name in NAMES if part in name}
    else:
        with pytest.raises(TrainingError, match="matches no parameter of this model"):
            matching(NAMES, [pattern])


@pytest.mark.parametrize(
    ("freeze", "said"),
    [
        (["encodr.*"], r"'encodr\.\*' matches no .* Did you mean 'encoder'\? .* embeddings, encoder, decoder\.$"),
        (["*"], r"= \['\*'\] leaves no parameter to train"),
        (["embeddings", "encoder", "decoder"], "leaves no parameter to train"),
    ],
)
def test_wrong_patterns_are_refused_with_the_nearest_part(freeze: list[str], said: str) -> None:
    with pytest.raises(TrainingError, match=rf"^train\.freeze.*{said}"):
        new_updater(freeze=freeze)


@pytest.mark.parametrize(
    ("freeze", "precision"),
    [*((freeze, "fp32") for freeze in FROZEN), (FROZEN[2], "bf16"), (FROZEN[3], "fp16")],
    ids=str,
)
def test_frozen_parameters_keep_their_bits_and_others_get_their_gradients(freeze: list[str], precision: str) -> None:
    for tied in (True, False):
        some, all_of_it = (new_updater(ALONE, precision, {"tie_embeddings": tied}, freeze=one) for one in (freeze, []))
        names = matching([name for name, _ in some.weights.model.named_parameters()], freeze)
        before, rounded = bits(some.weights.model), bits(some.weights.compute_model)
        batch = batch_of(128)
        for one in (some, all_of_it):
            one.accumulate(batch)
        ours, theirs = (one.weights.by_name(one.weights.main_grads) for one in (some, all_of_it))
        assert set(ours) == set(theirs) - names
        for name, gradient in ours.items():
            scale = 1e-6 if precision == "fp32" else 4e-2
            assert (gradient - theirs[name]).norm() <= scale * theirs[name].norm() + 1e-9, name
        for update in range(1, 4):
            some(batch, update)
        after = bits(some.weights.model)
        assert {name for name in after if torch.equal(after[name], before[name])} == names
        after = bits(some.weights.compute_model)
        assert all(torch.equal(after[name], rounded[name]) for name in names)
        assert all(parameter.grad is None for parameter in some.weights.compute_model.parameters())
        moments = {key.partition(".")[2] for key in some.optimizer_state() if key != "loss_scale"}
        assert moments == set(ours)


def test_the_norm_that_is_clipped_is_that_of_the_trained_parameters() -> None:
    some, all_of_it = new_updater(freeze=["encoder"], clip_norm=1e-3), new_updater()
    batch = batch_of(128)
    result = some(batch, 1)
    all_of_it.accumulate(batch)
    gradients = all_of_it.weights.by_name(all_of_it.weights.main_grads)
    trained = [gradient.flatten() for name, gradient in gradients.items() if not name.startswith("encoder.")]
    assert result.grad_norm.item() == pytest.approx(torch.cat(trained).norm().item(), rel=1e-5)
    moment = some.adam.state[some.weights.main_params]["exp_avg"] / (1 - some.recipe.train.adam_beta1)
    assert moment.norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_without_a_start_it_is_a_warning() -> None:
    [remark] = concerns(TrainSection(freeze=["encoder"]))
    assert "frozen parameters keep their random values" in remark
    assert not concerns(TrainSection(freeze=["encoder"], init="there"))
