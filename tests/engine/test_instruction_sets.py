"""Every library of the engine that this processor runs computes the same bits, in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_libraries import RUNNING
from small_models import OPTIONS, VOCABULARY, searched, small, sources

from nmt_cli.data.tokenizer import BOS, EOS
from nmt_cli.engine.library import summary
from nmt_cli.engine.model import EngineModel
from nmt_cli.search.engine import EngineDecoder, EngineSearch
from nmt_cli.search.sentence import Sentence
from nmt_cli.translation.models import engine_model

FORMS: dict[str, dict[str, Any]] = {
    "paper": {},
    "learned": {"positions": "learned", "activation": "gelu", "residual": "pre"},
    "rotary": {"positions": "rotary", "activation": "swiglu", "norm": "rms", "tie_embeddings": False},
    "silu": {"activation": "silu", "norm": "rms", "residual": "pre", "monotonic_attention": True},
    "heads of 20": {"d_model": 40, "d_ff": 52, "d_k": 20, "d_v": 20},
    "odd heads": {"d_model": 36, "num_heads": 3, "d_k": 7, "d_v": 4, "d_ff": 300},
    "large": {"d_model": 256, "num_heads": 4, "d_ff": 1024, "vocabulary": 1100},
}


def computed(model: EngineModel, vocabulary: int) -> list[Any]:
    """The hypotheses of a search, and the arrays of steps and of a pass."""
    some = sources(1, 6, 35, 2, 17, vocabulary=vocabulary)
    sentences = [Sentence(source, len(source) + 9) for source in some]
    options = replace(OPTIONS, nbest=4, token_log_probs=True)
    hypotheses = searched(EngineSearch(model, options), sentences, [(0, range(3)), (1, [3, 4])])
    decoder = EngineDecoder(model, 2)
    decoder.add([[*source, EOS] for source in some])
    steps = [decoder.step(np.full((5, 2), token), np.arange(10)) for token in (BOS, 9, 30)]
    log_probs, weights = model.forced(
        [[*some[2], EOS]], [[BOS, *some[4]]], [[*some[4], EOS]], attention=["encoder", "decoder", "cross"]
    )
    return [hypotheses, *steps, *log_probs, *weights.values()]


def digests() -> dict[str, list[str]]:
    """The hash of each result, by model and precision."""
    found = {}
    for name, form in FORMS.items():
        vocabulary = form.get("vocabulary", VOCABULARY)
        for precision in ("fp32", "int8"):
            results = computed(engine_model(small(**form), precision), vocabulary)
            numbers = [repr(each).encode() if isinstance(each, list) else each.tobytes() for each in results]
            found[f"{name}, {precision}"] = [hashlib.sha256(part).hexdigest()[:8] for part in numbers]
    return found


def run(name: str) -> dict[str, Any]:
    """The digests of a process that uses this library."""
    environment = {**os.environ, "NMT_ENGINE": name, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    library, results = done.stdout.splitlines()
    assert library.split()[0] == name
    found: dict[str, Any] = json.loads(results)
    return found


@pytest.mark.skipif(len(RUNNING) < 2, reason="this processor runs at most one library of the engine")
def test_every_instruction_set_gives_the_same_bits() -> None:
    first, *others = map(run, RUNNING)
    assert len({tuple(results) for results in first.values()}) == 2 * len(FORMS)
    assert [other == first for other in others] == [True] * len(others), {
        key: [other[key] == first[key] for other in others] for key in first
    }


if __name__ == "__main__":
    print(summary(), json.dumps(digests()), sep="\n")
