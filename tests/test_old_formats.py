"""Folders that older versions wrote are read: they translate the same lines alike and resume to the same weights.

`fixtures/format_N` holds what the version with format N wrote (made by its make.py). Weights are compared with a tolerance:
another processor adds in another order. The biases of keys are not compared: softmax ignores them, so their gradients are
rounding noise, from which Adam makes whole steps.
"""

import json
import shutil
import tomllib
from pathlib import Path

import forked
import numpy as np
import pytest
from safetensors.numpy import load_file
from shared import records

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("format_*"))


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what an older version wrote."""
    return shutil.copytree(request.param, tmp_path / "old", symlinks=True)


def test_there_are_fixtures() -> None:
    assert [path.name for path in FIXTURES][:1] == ["format_1"]


def test_an_old_model_translates_the_same(old: Path) -> None:
    for folder in ("model", "run"):
        done = forked.run(
            old, "translate", "--model", folder, "--input", "test.en", "--precision", "fp32", "--devices", "1"
        )
        assert done.returncode == 0, done.stderr.decode()
        assert done.stdout == (old / "test.translated.de").read_bytes()


def test_an_old_model_and_run_are_described(old: Path) -> None:
    for folder in ("model", "run"):
        done = forked.run(old, "info", folder, "--json")
        assert done.returncode == 0, done.stderr.decode()
        said, model = json.loads(done.stdout), old / ("model" if folder == "model" else "run/best")
        assert said["scores"] == json.loads((model / "metrics.json").read_text())
        assert (said["kind"], said["source_vocab"], said["parameters"]) == (folder, 80, 6848)
        recipe = tomllib.loads((old / "count.toml").read_text())
        for section in ("model", "train"):
            assert {key: said["recipe"][section][key] for key in recipe[section]} == recipe[section]
        if folder == "run":
            assert (said["updates_done"], said["checkpoints"]) == (1500, ["step-00001500"])


def comparable(name: str, weights: np.ndarray) -> np.ndarray:
    """Return the weights without the biases of keys."""
    names = name.removesuffix(".bias").rpartition(".")[2].split("_")  # such as query, key, value: side by side
    if not name.endswith(".bias") or "key" not in names:
        return weights
    return np.concatenate(
        [part for one, part in zip(names, np.split(weights, len(names)), strict=True) if one != "key"]
    )


DROPOUT_THEN = """
import numpy as np, torch
from nmt_cli.model.residuals import DropoutAdd

def mask(like, p):  # 16 random bits per unit
    dropped = round(p * 65_536)
    words = np.random.SFC64(int(torch.randint(2**62, ()))).random_raw(like.numel() // 4 + 1)
    kept = torch.from_numpy(words).view(torch.int16)[: like.numel()] >= dropped - 32_768
    return kept.to(like.dtype).mul_(65_536 / (65_536 - dropped)).view(like.shape)

torch.nn.Dropout.forward = lambda self, x: x * mask(x, self.p) if self.training and self.p else x
DropoutAdd.forward = lambda self, x, y: x + self.dropout(y)
"""


@pytest.mark.slow
def test_an_old_run_resumes_to_the_same_weights(old: Path) -> None:
    command = ["train", "count.toml", "--run", "run", "--data", "shards"]
    # the engine draws other numbers for dropout, and with AVX-512 torch does
    drawn_as_then = {"ATEN_CPU_CAPABILITY": "avx2", "NMT_ENGINE": "off"}
    command += ["--threads", "1", "--set", "train.updates=1550"]
    done = forked.run(old, *command, prelude=DROPOUT_THEN, **drawn_as_then)
    assert done.returncode == 0, done.stderr.decode()
    ours, expected = (load_file(folder / "model.safetensors") for folder in (old / "run/last", old / "resumed"))
    assert ours.keys() == expected.keys()
    for name, weights in expected.items():
        found, wanted = comparable(name, ours[name]), comparable(name, weights)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-5, err_msg=name)
    resumed, then = records(old / "run"), records(old / "resumed")
    assert [(record["type"], record["update"]) for record in resumed] == [
        (record["type"], record["update"]) for record in then
    ]
    assert resumed[-1]["nll"] == pytest.approx(then[-1]["nll"], abs=1e-4)
    forked.nmt(old, "average", "run", "--last", "1")
    for folder in ("last", "averaged"):
        found = json.loads((old / "run" / folder / "config.json").read_text())
        assert found["safe_length"] == 11  # of 792 of its 800 lines


def test_an_old_run_is_averaged(old: Path) -> None:
    forked.nmt(old, "average", "run", "--last", "1", "--out", "averaged")
    ours, expected = (load_file(folder / "model.safetensors") for folder in (old / "averaged", old / "run/last"))
    for name, weights in expected.items():
        np.testing.assert_array_equal(ours[name], weights, err_msg=name)
