"""The examples of docs/python.md run, one after another, and print nothing that is empty. Those of docs/extending.md
are used by the commands beside them. docs/tour.ipynb runs in a Jupyter kernel.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import forked
import in_small
import pytest
import torch
from small_models import needs_engine
from untrained import write_untrained, write_untrained_parser

DOCS = Path(__file__).parents[2] / "docs" / "python.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL) if DOCS.exists() else []


@pytest.mark.slow
@pytest.mark.skipif(not EXAMPLES, reason="docs/python.md is not here")
def test_the_examples_run(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_untrained(workdir / "runs" / "demo", beam=8)
    write_untrained_parser(workdir / "runs" / "gum_parsing", "tags")
    (workdir / "input.txt").write_text("the cat sees a dog.\n\nthe small house.\n", encoding="utf-8")
    small = {"train.batch_tokens": 256, "model.encoder_layers": 1, "model.decoder_layers": 1}
    names: dict[str, object] = {"OVERRIDES": small}
    threads = torch.get_num_threads()
    short = {
        '"train.updates": 100': '**OVERRIDES, "train.updates": 2, "train.log_every": 1',
        '"train.valid_every": 50': '"train.valid_every": 2',
        "nmt.train(": "nmt.train(run='run', device='cpu', threads=1, recipe=",
        "nmt.average(run.path": "nmt.average('run'",
    }
    assert len(EXAMPLES) >= 8
    for example in EXAMPLES:
        if "nmt.train(" in example:
            for long, replacement in short.items():
                assert long in example
                example = example.replace(long, replacement)
        exec(compile(example, "docs/python.md", "exec"), names)
        assert capsys.readouterr().out.strip()
    torch.set_num_threads(threads)


EXTENDING = DOCS.with_name("extending.md")
EXTEND = """
import importlib, sys, types
from nmt_cli import registry


def add(file, code):  # what the example adds to a file, new or not
    name = file.removesuffix(".py").replace("/", ".")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        module = sys.modules[name] = types.ModuleType(name)
    exec(compile(code, file, "exec"), module.__dict__)


add("nmt_cli/model/norms.py", "import torch")
for file, code in {files!r}:
    add(file, code)
for name, key, value in {entries!r}:
    getattr(registry, name)[key] = value
"""


@pytest.mark.skipif(not EXTENDING.exists(), reason="docs/extending.md is not here")
@needs_engine  # it declines the examples, and says why
def test_the_examples_of_extensions_work(tmp_path: Path) -> None:
    text = EXTENDING.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n# (nmt_cli/\S+)\n(.*?)```", text, re.DOTALL)
    files = [(file, code) for file, code in blocks if file != "nmt_cli/registry.py"]
    entries = re.findall(r'^([A-Z_]+) = \{…, "(\w+)": "(\S+)"\}$', text, re.MULTILINE)
    assert len(files) == len(entries) >= 6
    names: dict[str, Any] = {}
    exec(dict(files)["nmt_cli/search/length_penalties.py"], names)
    for alpha in (0.0, 0.6, 5.0):  # the rule of the table: above 0, and it never falls
        penalties = [names["linear"](length, alpha) for length in range(300)]
        assert penalties[0] > 0
        assert penalties == sorted(penalties)
    prelude = in_small.SMALL + EXTEND.format(files=files, entries=entries)
    write_untrained(tmp_path / "runs" / "latest", beam=4)
    for name in ("source.en", "reference.de", "output.de"):
        (tmp_path / name).write_text("the cat sees a dog.\nthe small house.\n", encoding="utf-8")
    commands = [line for line in re.findall(r"`nmt ([^`]+)`", text) if any(key in line for _, key, _ in entries)]
    assert {key for _, key, _ in entries if any(key in line for line in commands)} == {key for _, key, _ in entries}
    for line in commands:
        words = [word.replace("RECIPE", "demo") for word in shlex.split(line)]
        if words[0] == "train":
            forked.nmt(tmp_path, "preprocess", "demo", prelude=prelude)
        done = forked.run(tmp_path, *words, text=b"the cat sees a dog.\n", prelude=prelude)
        assert done.returncode == 0, f"{line}: {done.stderr.decode()}"
        if words[0] == "score":
            assert done.stdout.startswith(b"Ratio    1.00  nrefs:1|version:1")
    without_source = ["score", "output.de", "--ref", "reference.de", "--metric", "ratio"]
    assert b"--src SRC" in forked.run(tmp_path, *without_source, prelude=prelude).stderr
    said = forked.run(tmp_path, "info", "runs/demo", prelude=prelude).stdout.decode()
    assert "the engine has no model.norm = 'scale'" in said


NOTEBOOK = Path(__file__).parents[2] / "docs" / "tour.ipynb"


@pytest.mark.slow
@pytest.mark.skipif(not NOTEBOOK.exists(), reason="docs/tour.ipynb is not here")
def test_the_notebook_runs(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before you commit the notebook"
    [parameters] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source = "updates = 4"
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = ["".join(_text(output) for output in cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert "30000" in shown[1]
    assert "training" in shown[2]
    assert "'update': 4" in shown[2]
    assert "bleu" in shown[-2]
    assert all(shown[1:-1])


def _text(output: dict[str, object]) -> str:
    data = output.get("data")
    return str(data.get("text/plain", "")) if isinstance(data, dict) else str(output.get("text", ""))
