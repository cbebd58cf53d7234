"""Every search and constraint runs over the engine where importing torch is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_models import needs_engine
from untrained import write_untrained

LINES = ["the red cat sees a dog.", "", "a house", "the small dog likes the big house under a cat."]
CASES = {
    "beam": ["--set", "decode.min_length=3"],
    "samples": ["--sample", "--top-k", "20", "--temperature", "0.8"],
    "samples with cuts": ["--sample", "--top-p", "0.9", "--min-p", "0.01"],
    "diverse": ["--search", "diverse", "--beam", "4"],
    "mbr": ["--search", "mbr", "--mbr-samples", "6"],
    "mbr of a beam": ["--search", "mbr", "--mbr-samples", "6", "--mbr-candidates", "beam", "--mbr-utility", "bleu"],
    "no repeated n-grams": ["--no-repeat-ngram", "2", "--json"],
    "a repetition penalty": ["--repetition-penalty", "1.2"],
    "banned words": ["--banned-words", "words"],
    "outputs": ["--outputs", "words"],
    "prefixes": ["--prefix-column"],
    "terms": ["--terms-columns"],
    "an ensemble": ["-m", "model"],
}
CODE = """
import sys
sys.modules["torch"] = None
from nmt_cli.cli.app import run
sys.argv = ["nmt", "translate", "-m", "model", "--devices", "1", "--device", "cpu", *sys.argv[1:]]
sys.exit(run())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    write_untrained(folder / "model")
    (folder / "words").write_text("cat\nred dog\n", encoding="utf-8")
    return folder


@needs_engine
@pytest.mark.parametrize("case", CASES)
def test_no_search_and_no_constraint_needs_torch(case: str, place: Path) -> None:
    lines = [f"{line}\tthe cat" if "column" in CASES[case][0] else line for line in LINES]
    done = subprocess.run(
        [sys.executable, "-c", CODE, *CASES[case]],
        cwd=place,
        input="".join(line + "\n" for line in lines).encode(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == len(LINES)


def test_constraints_are_imported_without_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None
from nmt_cli.registry import CONSTRAINTS, SEARCHES, UTILITIES, load
for registry in (CONSTRAINTS, SEARCHES, UTILITIES):
    for name in registry:
        load(registry, name, "entry")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
