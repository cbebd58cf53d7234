"""benchmarks/gpu.py in small, on the CPU."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, str(Path(__file__).parents[2] / "benchmarks" / "gpu.py"), "--device=cpu", "--tiny"]
UPDATE, STEP = ("attention", "optimizer, clipping", "products", "copies", "all"), ("attention", "products", "all")


@pytest.mark.timeout(3600)  # bf16 and fp16 are slow on a processor without them
def test_every_part_prints_its_table(tmp_path: Path) -> None:
    command = [*COMMAND, "--out", str(tmp_path), "--budget=3600"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = dict(re.findall(r"^(\w+): about .*\n((?:.+\n)+)\1: \d+ s$", done.stdout, re.MULTILINE))
    assert list(parts) == ["text", "model", "picture", "train", "decode", "two"]
    rows = {name: [re.split(r"  +", line) for line in text.splitlines()] for name, text in parts.items()}
    seconds = float(re.search(r"first update ([\d.]+) s", parts["model"])[1])  # type: ignore[index]
    assert seconds > 0
    pictures = [table.splitlines() for table in re.split(r"\n(?=\S.* ms +share)", parts["picture"])]
    for table, kinds in zip(pictures, (UPDATE, UPDATE, STEP), strict=True):
        spent = {cells[0]: float(cells[1]) for cells in (re.split(r"  +", line) for line in table[1:])}
        assert all(spent[kind] > 0 for kind in kinds)
    trained = ["base bf16", "base fp32", "big bf16", "big fp32", "base bf16 eager"]
    assert [row[0] for row in rows["train"][1:]] == trained
    assert all(float(row[1].replace(",", "")) > 0 and row[5].endswith("%") for row in rows["train"][1:])
    ours = [f"nmt {precision}, {batch}" for precision in ("bf16", "fp16") for batch in ("4,096", "16,384", "65,536")]
    assert [row[0] for row in rows["decode"][1:]][:6] == ours
    assert all(float(row[1].replace(",", "")) > 0 for row in rows["decode"][1:])
    assert [row[0] for row in rows["two"][1:]] == ["1", "2"]
    assert float(rows["two"][2][3]) < 1e-4


def test_parts_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    command = [*COMMAND, "--out", str(tmp_path), "--budget=1", "--only=two"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "without text, two")
