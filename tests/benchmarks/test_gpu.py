"""benchmarks/gpu.py in small, on the CPU."""

import gzip
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from nmt_cli.data.demo_corpus import pairs as demo_pairs

pytestmark = pytest.mark.slow

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
FILES = ["tatoeba-en-de/train", *(f"wmt-newstest/newstest{year}" for year in range(2008, 2013)), "multi30k/train"]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that it reads, with sentences of the demo corpus."""
    folder = tmp_path_factory.mktemp("data")
    splits = demo_pairs(train=2100, valid=60, test=1)
    pairs = iter(splits["train"])
    for name in FILES:
        write(folder / f"{name}.en.gz", folder / f"{name}.de.gz", list(islice(pairs, 300)))
    write(folder / "wmt-newstest" / "newstest2013.en", folder / "wmt-newstest" / "newstest2013.de", splits["valid"])
    return folder


def write(source: Path, target: Path, pairs: list[tuple[str, str]]) -> None:
    source.parent.mkdir(exist_ok=True)
    for path, lines in ((source, [pair[0] for pair in pairs]), (target, [pair[1] for pair in pairs])):
        text = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.timeout(3600)  # bf16 and fp16 are slow on a processor without them
def test_every_part_prints_its_table(data_dir: Path, tmp_path: Path) -> None:
    options = ["--data-dir", str(data_dir), "--out", str(tmp_path), "--device", "cpu", "--tiny"]
    done = subprocess.run([sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = dict(re.findall(r"^(\w+): \d+ s\n((?:.+\n)+)", done.stdout, re.MULTILINE))
    assert list(parts) == ["train", "quality", "decode"]
    rows = {name: [re.split(r"  +", line) for line in text.splitlines()] for name, text in parts.items()}
    trained = [row[:2] for row in rows["train"][1:]]
    assert trained == [
        *([f"wmt14_en_de_{size}", precision] for size in ("base", "big") for precision in ("bf16", "fp32")),
        ["wmt14_en_de_base", "bf16, compiled"],
    ]
    assert all(float(row[2].replace(",", "")) > 0 and row[-1].endswith("%") for row in rows["train"][1:])
    assert float(rows["quality"][1][2]) >= 0
    assert [row[0] for row in rows["decode"][1:4]] == ["nmt bf16", "nmt fp16", "nmt fp32"]
    assert all(float(row[2].replace(",", "")) > 0 for row in rows["decode"][1:])
