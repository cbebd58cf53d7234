"""benchmarks/train.py --peers: each peer is configured from any recipe, and a round of all sides runs.

The peers themselves cannot be installed here. In their place stands a program that prints lines of their logs.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import forked
import in_small
import pytest
from peers import Eole, JoeyNMT, Peer
from sides import Task

from nmt_cli.data.demo_corpus import pairs as demo_pairs
from nmt_cli.recipe import load_recipe, recipe_names

LOG = "#!/bin/sh\nfor interval in 1 2 3; do echo 'Tokens per Sec: 300, 100/200 tok/s'; done\n"
STAND_IN = "\nimport sys; sys.path.insert(0, {folder!r})\nimport peers\npeers.Peer.install = lambda self: None\n"


def sides(folder: Path) -> list[Peer]:
    return [Eole(folder, "fp32"), Eole(folder, "bf16"), Eole(folder, "bf16", gpu=True), JoeyNMT(folder)]


@pytest.mark.parametrize("name", recipe_names())
def test_every_peer_is_configured_from_every_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peers.Corpus", SimpleNamespace(open=lambda *_: [1, 2, 3]))
    recipe = load_recipe(name)
    for side in sides(tmp_path):
        side.data, side.task = tmp_path, Task(recipe, [], tmp_path)
        model = json.loads(json.dumps(side.configuration(tmp_path, 8)))["model"]
        layers = {"eole": "layers", "joeynmt": "num_layers"}[side.package]
        assert model["encoder"][layers] == recipe.model.encoder_layers
        assert model["decoder"][layers] == recipe.model.decoder_layers
        if side.package == "joeynmt":
            assert model["encoder"]["layer_norm"] == recipe.model.residual  # where the norm is: JoeyNMT's word


def test_a_round_of_all_sides_runs(tmp_path: Path) -> None:
    pairs = demo_pairs(train=400, valid=20, test=1)
    for part, split in (("train", "train"), ("val", "valid")):
        for number, language in enumerate(("en", "de")):
            text = "".join(f"{pair[number]}\n" for pair in pairs[split]).encode()
            (tmp_path / f"{part}.{language}.gz").write_bytes(gzip.compress(text))
    for package in ("eole", "joeynmt"):
        program = tmp_path / package / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text(LOG, encoding="utf-8")
        program.chmod(0o755)
    options = ["--data-dir", ".", "--small", "--peers", ".", "--rounds", "1", "--threads", "1"]
    prelude = in_small.benchmark(
        "train.py", ["train.py", *options], before=STAND_IN.format(folder=str(in_small.BENCHMARKS))
    )
    done = forked.run(tmp_path, "train.py", prelude=prelude)
    assert done.returncode == 0, done.stderr.decode()
    rows = [line.split()[:4] for line in done.stdout.decode().splitlines()[-5:]]
    assert [row[:3] for row in rows[:2]] == [["nmt", "train,", "bf16"], ["nmt", "train,", "fp32"]]
    assert rows[2:] == [
        ["eole,", "fp32", "200", rows[2][3]],
        ["eole,", "bf16", "200", rows[3][3]],
        ["JoeyNMT,", "fp32", "300", rows[4][3]],
    ]
