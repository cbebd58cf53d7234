"""The verification finds what differs: a matrix, a norm, a token, an id. It does not delete the folder."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt_cli.errors import ModelError
from nmt_cli.exchange.convert import export
from nmt_cli.exchange.exporter import Exporter, Output, SourceModel
from nmt_cli.exchange.verification import TOLERANCE, ComparedSentence, Difference, Verification, compare
from nmt_cli.registry import EXPORTERS, load

Spoil = Callable[[Path], None]


def in_matrix(name: str, by: float) -> Spoil:
    """Change one number of a tensor."""

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensors[name].flatten()[-1] += by
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return spoil


def other_start(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "decoder_start_token": "</s>"}), encoding="utf-8")


def swapped_ids(folder: Path) -> None:
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    first, second = list(vocabulary)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")


def register(monkeypatch: pytest.MonkeyPatch, name: str, exporter: Exporter) -> None:
    """Let `name` be an exporter of this module."""
    monkeypatch.setattr(sys.modules[__name__], "SPOILED", exporter, raising=False)
    monkeypatch.setitem(EXPORTERS, name, f"{__name__}:SPOILED")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (other_start, "logits at step 1"),
        (in_matrix("model.encoder.layers.1.fc2.weight", 0.05), "encoder state at position"),
        (in_matrix("model.decoder.layers.0.encoder_attn.q_proj.weight", 0.5), "logits at step"),
        (in_matrix("model.decoder.layers.0.final_layer_norm.bias", 0.01), "logits at step 1: "),
        (swapped_ids, "to our tokenizer, "),
    ],
)
@pytest.mark.usefixtures("short")
def test_a_spoiled_folder_is_found_and_left(
    spoil: Spoil, said: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, file = ("ctranslate2", "model.bin") if spoil is other_start else ("huggingface", "model.safetensors")
    exporter = load(EXPORTERS, to, "--to")

    def write_and_spoil(source_model: SourceModel, folder: Path) -> None:
        exporter.write(source_model, folder)
        spoil(folder)

    register(monkeypatch, to, replace(exporter, write=write_and_spoil))
    with pytest.raises(ModelError, match=r"is not equal to the model: sentence \d+ ") as fault:
        export(made(residual="post"), to, tmp_path / "out")
    assert said in str(fault.value)
    assert repr(str(tmp_path / "out")) in str(fault.value)
    assert (tmp_path / "out" / file).is_file()
    assert fault.value.exit_code == 1


def output(tokens: list[int], best: list[float], second: list[float]) -> Output:
    """Step t's logits: `best` for the token 4 + t, `second` for 9, else -5."""
    logits = torch.full((len(best), 10), -5.0)
    for step, (a, b) in enumerate(zip(best, second, strict=True)):
        logits[step, 4 + step], logits[step, 9] = a, b
    return Output(tokens, logits, torch.zeros(len(best)))


SENTENCE = ComparedSentence(7, "some text", [5, 3])


def test_what_agrees_is_counted_and_what_may_not_be_generated_is_not() -> None:
    verification = Verification()
    ours = output([4, 5, 3], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    compare(SENTENCE, ours, replace(ours, logits=ours.logits + 5e-5), verification)
    assert (verification.steps, verification.ties) == (3, 0)
    assert verification.largest == pytest.approx({"logits": 5e-5, "log-probabilities": 0.0}, abs=1e-6)
    ours = output([4, 3], [1.0, 1.0], [0.0, 0.0])
    logits = ours.logits.clone()
    logits[:, :3] = float("-inf")
    compare(SENTENCE, ours, replace(ours, logits=logits), Verification())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2 * TOLERANCE])
def test_numbers_that_are_none_or_too_far_are_differences(value: float) -> None:
    ours = output([4, 5, 3], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    logits = ours.logits.clone()
    logits[1, 6] += value
    with pytest.raises(Difference, match=r"sentence 7 \('some text'\), logits at step 2: -5 here"):
        compare(SENTENCE, ours, replace(ours, logits=logits), Verification())


def test_other_tokens_and_lengths_are_differences_and_ties_are_not() -> None:
    ours = output([4, 5, 3], [1.0, 1.0, 1.0], [0.0, 0.5, 0.0])
    with pytest.raises(
        Difference, match=r"greedy output at step 2: token 5 here, 9 there \(0\.5 below in our logits\)"
    ):
        compare(SENTENCE, ours, replace(ours, tokens=[4, 9, 8, 3]), Verification())
    verification, tied = Verification(), output([4, 5, 3], [1.0, 1.0, 1.0], [0.0, 1.0 - 1e-6, 0.0])
    compare(SENTENCE, tied, replace(tied, tokens=[4, 9, 8, 3]), verification)
    assert (verification.steps, verification.ties) == (2, 1)
    ours = output([4, 5], [1.0, 1.0], [0.0, 0.0])
    with pytest.raises(Difference, match="greedy output has 2 tokens here, 3 there"):
        compare(SENTENCE, ours, replace(ours, tokens=[4, 5, 8]), Verification())
