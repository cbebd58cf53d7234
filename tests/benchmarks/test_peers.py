"""benchmarks/train.py --peers in small, with programs that print lines of the peers' logs in the place of the peers."""

from __future__ import annotations

import gzip
from pathlib import Path

import forked
import in_small
import pytest

from nmt_cli.data.demo_corpus import pairs as demo_pairs

pytestmark = pytest.mark.slow

PROGRAM = """#!/bin/sh
for word; do case "$word" in *.yaml) cp "$word" {folder}/{package}.yaml;; esac; done
for interval in 1 2 3; do echo 'Tokens per Sec: 300, 100/200 tok/s'; done
"""
CONFIGURED = {
    "eole": {"heads: 4", "encoder: {layers: 3}", "train_steps: 12", "dropout: [0.3]"},
    "joeynmt": {"num_heads: 4", "num_layers: 3", "updates: 12", "layer_norm: pre"},
}
"""Lines of the configurations, of the small model in small."""


def test_a_round_of_all_sides_runs(tmp_path: Path) -> None:
    pairs = demo_pairs(train=400, valid=20, test=1)
    for part, split in (("train", "train"), ("val", "valid")):
        for number, language in enumerate(("en", "de")):
            text = "".join(f"{pair[number]}\n" for pair in pairs[split]).encode()
            (tmp_path / f"{part}.{language}.gz").write_bytes(gzip.compress(text))
    for package in CONFIGURED:
        program = tmp_path / package / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text(PROGRAM.format(folder=tmp_path, package=package), encoding="utf-8")
        program.chmod(0o755)
        (tmp_path / package / ".complete").touch()
    options = ["--data-dir", ".", "--small", "--peers", ".", "--rounds", "1", "--threads", "1"]
    done = forked.run(tmp_path, "train.py", prelude=in_small.benchmark("train.py", ["train.py", *options]))
    assert done.returncode == 0, done.stderr.decode()
    rows = [line.split()[:-2] for line in done.stdout.decode().splitlines()[-5:]]
    assert [row[:-1] for row in rows[:2]] == [["nmt", "train,", "bf16"], ["nmt", "train,", "fp32"]]
    assert rows[2:] == [["eole,", "fp32", "200"], ["eole,", "bf16", "200"], ["joeynmt,", "fp32", "300"]]
    for package, expected in CONFIGURED.items():
        configured = (tmp_path / f"{package}.yaml").read_text(encoding="utf-8")
        assert "$" not in configured.partition("\n")[2]
        assert expected <= {line.strip() for line in configured.splitlines()}
