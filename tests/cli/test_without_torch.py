"""Commands in a Python that has no torch: what needs none gives what it gives with torch, what needs it says so by
name."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from small_models import needs_engine
from untrained import sentence, write_untrained

pytestmark = [pytest.mark.slow, needs_engine]

NO_TORCH = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
"""Let Python find no module torch."""
LIMIT = 120
NEEDED = "needs torch, which is not installed: pip install torch"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model `model`, the texts `source`, `target` and `words`, and the Python without torch in `no_torch`."""
    folder = tmp_path_factory.mktemp("folder")
    write_untrained(folder / "model", positions="learned", decoder_layers=2)
    (folder / "no_torch").mkdir()
    (folder / "no_torch" / "sitecustomize.py").write_text(NO_TORCH)
    (folder / "words").write_text("cat\nred dog\n")
    rng = random.Random(5)
    for name in ("source", "target"):
        (folder / name).write_text("".join(f"{sentence(rng, rng.randint(1, 9))}\n" for _ in range(60)))
    return folder


def nmt(
    folder: Path, line: str, torch: bool = False, text: str = "the cat sees a dog.\n\nthe red house.\n"
) -> subprocess.CompletedProcess[str]:
    path = {} if torch else {"PYTHONPATH": str(folder / "no_torch")}
    return subprocess.run(
        [sys.executable, "-m", "nmt_cli", *line.split()],
        cwd=folder,
        env={**os.environ, **path},
        input=text,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


OPTIONS = [
    "--set decode.min_length=3",
    "--sample --top-k 20 --temperature 0.8",
    "--sample --top-p 0.9 --min-p 0.01",
    "--search diverse --beam 4",
    "--search mbr --mbr-samples 6",
    "--search mbr --mbr-samples 6 --mbr-candidates beam --mbr-utility bleu",
    "--no-repeat-ngram 2 --json",
    "--repetition-penalty 1.2",
    "--banned-words words",
    "--outputs words",
    "--prefix-column",
    "--terms-columns",
    "-m model",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_no_search_and_no_constraint_needs_torch(options: str, folder: Path) -> None:
    column = "\tthe cat" * ("column" in options)
    lines = ["the red cat sees a dog.", "", "a house", "the small dog likes the big house under a cat."]
    text = "".join(f"{line}{column}\n" for line in lines)
    done = nmt(folder, f"translate -m model --devices 1 --device cpu {options}", text=text)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", len(lines))


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


SCORE = "score --model=model --src source --ref target --device cpu"


@pytest.mark.parametrize(
    "line",
    [
        "translate --model model --device cpu --json --alignment --confidence",
        SCORE,
        "attend cat --model model --device cpu --target dog --json",
        "calibrate --model model --device cpu --src source --ref target --out estimate",
    ],
)
def test_commands_give_the_same_as_with_torch(line: str, folder: Path) -> None:
    here, there = nmt(folder, line), nmt(folder, line, torch=True)
    assert (here.returncode, here.stdout, here.stderr) == (0, there.stdout, there.stderr)
    assert here.stdout or "estimate" in line


def test_info_says_that_training_needs_torch(folder: Path) -> None:
    here, there = (nmt(folder, "info model --device cpu --json", torch=torch) for torch in (False, True))
    without, complete = json.loads(here.stdout), json.loads(there.stdout)
    assert without["kernels"]["training"] == f"training: it {NEEDED}"
    assert without["kernels"]["decoding"].startswith("decoding: engine for ")
    same = without.keys() - {"kernels", "memory_free_bytes", "micro_batch_tokens", "memory_bytes"}
    assert {key: without[key] for key in same} == {key: complete[key] for key in same}
    damaged = folder / "damaged"
    write_untrained(damaged)
    (damaged / "model.safetensors").write_bytes(b"")
    assert "was changed or damaged" in nmt(folder, "info damaged").stderr


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("average model model --out out", "nmt average"),
        ("export model --to ctranslate2 --out out", "nmt export"),
        ("translate --model model --device cuda", "--device cuda"),
        ("translate --model model --precision bf16", "the model 'model' (the engine has no bf16)"),
        (f"{SCORE} --precision fp16", "the model 'model' (the engine has no fp16)"),
    ],
)
def test_what_needs_torch_says_so_by_name(line: str, what: str, folder: Path) -> None:
    done = nmt(folder, line)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {what} {NEEDED}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "out").exists()
