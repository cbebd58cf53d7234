"""`nmt.preprocess`, `train`, `average`, `export` and `evaluate`: the path through all of them, what they report, and their options."""

import ast
import inspect
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from in_process import commands, printed, ran
from untrained import SMALLEST, sentence

import nmt_cli as nmt
from nmt_cli.cli.data import fetch
from nmt_cli.errors import ModelError, TrainingError
from nmt_cli.interface.evaluation_options import EvaluationOptions, Text
from nmt_cli.training.run import RunFolder
from nmt_cli.training.trainer import Trainer

TINY: dict[str, object] = {
    "data.generator": "",
    "data.vocab_size": 330,
    **{f"data.{kind}_source": [f"{name}.en"] for kind, name in (("train", "text"), ("valid", "valid"))},
    **{f"data.{kind}_target": [f"{name}.de"] for kind, name in (("train", "text"), ("valid", "valid"))},
    **{f"model.{key}": value for key, value in SMALLEST.items() if key != "max_positions"},
    **{"train.batch_tokens": 512, "train.updates": 4, "train.checkpoint_every": 1},
    **{"train.log_every": 2, "train.valid_every": 2},
}


WHERE: dict[str, Any] = {"data": "shards", "run": "run", "device": "cpu", "threads": 1}


@pytest.fixture
def here(workdir: Path) -> Path:
    """The working folder: text of both languages."""
    rng = random.Random(0)
    for name, count in (("text", 300), ("valid", 10)):
        for language in ("en", "de"):
            lines = [sentence(rng, rng.randint(2, 9)) + "\n" for _ in range(count)]
            Path(f"{name}.{language}").write_text("".join(lines), encoding="utf-8")
    return workdir


def preprocess(progress: Any = False) -> Any:
    return nmt.preprocess("demo", overrides=TINY, data_dirs=["."], out="shards", workers=1, progress=progress)


@pytest.mark.usefixtures("here")
def test_from_text_to_an_averaged_model() -> None:
    seen: list[nmt.Progress] = []
    assert preprocess(seen.append).fresh
    assert not preprocess().fresh
    assert {progress.what for progress in seen} >= {"encoding train", "encoding valid"}
    seen.clear()
    run = nmt.train("demo", overrides=TINY, progress=seen.append, precision="fp32", **WHERE)
    training = [progress for progress in seen if progress.what == "training"]
    assert (training[0].done, training[-1].done, training[-1].total, training[-1].unit) == (0, 4, 4, "updates")
    assert "validating" in {progress.what for progress in seen}
    assert [record["update"] for record in run.records if record["type"] == "train"] == [2, 4]
    assert run.validation is not None
    assert run.validation["update"] == 4
    averaged = nmt.average(run.path, last=2)
    assert (averaged.path, len(averaged.averaged)) == (Path("run/averaged"), 2)
    with nmt.load("run", device="cpu") as translator:
        assert translator.folders == (Path("run/averaged"),)
        hypotheses = [one.text for one in translator.translate(["the dog sleeps", "a cat"])]
    scores = nmt.evaluate(hypotheses, [["der hund schläft", "eine katze"]], metrics=["chrf"]).scores()
    assert 0 <= scores["chrf"].value <= 100


@pytest.mark.parametrize("named", ["", "/mine"])
def test_torch_keeps_its_code_in_the_run_folder(named: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none in a folder for temporary files, where others can have put some before."""
    preprocess()
    for name, value in (("CACHE_DIR", named), ("CPP_CACHE_PRECOMPILE_HEADERS", "")):
        monkeypatch.setenv(f"TORCHINDUCTOR_{name}", value)
        if not value:
            monkeypatch.delenv(f"TORCHINDUCTOR_{name}")
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(Trainer, "__init__", lambda *_: None)
    monkeypatch.setattr(Trainer, "train", lambda _: seen.append(dict(os.environ)))
    nmt.train("demo", overrides=TINY, data="shards", run="run", device="cpu", compiled=True)
    assert seen[0]["TORCHINDUCTOR_CACHE_DIR"] == (named or str(here / "run" / "compiled"))
    assert seen[0]["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] == "0"


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: nmt.preprocess("demo", overrides={"train.updates": object()}), "expected numbers, texts"),
        (lambda: nmt.average([]), "nothing to average"),
        (lambda: nmt.evaluate(["a"], "b"), "'b': expected a list"),
        (lambda: nmt.evaluate("a", [["b"]]), "'a': expected a list"),
        (lambda: nmt.evaluate(["a"], [["b"], ["b", "c"]]), "1 hypothesis lines.* 2 lines of reference 2"),
        (lambda: nmt.evaluate(["a"], [["b"]], source=["c", "d"]), "'hypothesis' has 1 lines and the source 2"),
        (lambda: nmt.evaluate({}, [["b"]]), "nothing to score"),
        (lambda: nmt.evaluate(["", " "], [["", " "]], metrics=["ter"]), "all lines of the references are blank"),
        (lambda: nmt.evaluate(["a"], [["b"]]).scores("x"), "'x'"),
        (lambda: nmt.Run(Path("nowhere")).records, "metrics.jsonl"),
        (lambda: nmt.info("demo", overrides={"train.update": 3}), "train.update"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_refused_is_named(call: Callable[[], object], named: str) -> None:
    with pytest.raises(nmt.NmtError, match=named):
        call()


def test_several_systems_and_files(tmp_path: Path) -> None:
    references = [f"the cat number {number} sees a dog." for number in range(30)]
    worse = [line.replace("cat", "dog") for line in references]
    file = tmp_path / "ref.txt"
    file.write_text("".join(line + "\n" for line in references), encoding="utf-8")
    found = nmt.evaluate({"good": references, "bad": worse}, [file], metrics=["bleu"], samples=100, source=references)
    assert found.scores("good")["bleu"].value == pytest.approx(100)
    assert found.scores("bad")["bleu"].value < 90
    good, bad = found.as_dicts()
    assert (good["scores"]["bleu"]["p_value"], bad["scores"]["bleu"]["p_value"] < 0.05) == (None, True)
    assert (good["outputs"]["lines"], good["outputs"]["empty"], len(good["outputs"]["worst"])) == (30, 0, 5)
    json.dumps([good, bad])


@pytest.mark.usefixtures("here")
def test_information_is_printed() -> None:
    preprocess()
    nmt.train("demo", overrides={**TINY, "train.updates": 2}, **WHERE)
    for what, options, given, kind in (
        ("demo", {"overrides": {"model.d_ff": 96}}, ["--set", "model.d_ff=96"], "recipe"),
        ("shards", {"verify": True}, ["--verify"], "shards"),
        ("run", {}, [], "run"),
        ("run/last", {"devices": 2}, ["--devices", "2"], "model"),
    ):
        values = nmt.info(what, device="cpu", **options)
        assert values["kind"] == kind
        said = json.loads(printed(f"info {what} --device cpu --json", *given))
        changing = {"memory_free_bytes", "memory_bytes", "micro_batch_tokens", "micro_batches_per_update"}
        same = {key: values[key] for key in changing & {*values}}  # they change with the memory that is free
        assert said | same == json.loads(json.dumps(values))
    with pytest.raises(nmt.NmtError, match="--set"):
        nmt.info("run", overrides=TINY)
    assert {"wmt14-en-de", "multi30k", "tatoeba-en-de"} <= set(nmt.datasets())
    assert nmt.datasets()["tatoeba-en-de"]["recipe"] == "tatoeba_en_de"


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


@pytest.mark.slow
def test_a_forecast_makes_the_checks_and_writes_nothing(here: Path) -> None:
    preprocess()
    before = sorted(str(path) for path in here.rglob("*"))
    longer = {**TINY, "train.updates": 40}
    first = nmt.forecast("demo", overrides=longer, **WHERE)
    assert (first.updates, first.updates_done, first.pairs, first.device, first.devices) == (40, 0, 300, "cpu", 1)
    assert 0 < 40 * first.speed.fastest < first.seconds[0] <= first.seconds[1]
    assert sorted(str(path) for path in here.rglob("*")) == before
    nmt.train("demo", overrides=TINY, **WHERE)
    assert nmt.forecast("demo", overrides=longer, **WHERE).updates_done == 4
    with closing(RunFolder(Path("run"))) as busy:
        busy.create()
        with pytest.raises(TrainingError, match="'run'"):
            nmt.forecast("demo", overrides=longer, **WHERE)
    with pytest.raises(ModelError, match=r"\n  - model\.d_ff"):
        nmt.forecast("demo", overrides={**TINY, "model.d_ff": 24}, **WHERE)
    options = [word for key, value in WHERE.items() for word in (f"--{key}", value)]
    options += [part for key, value in TINY.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    said = ran("train demo --dry-run", *options).stderr
    assert "4 updates, 4 of them done" in said
    assert "nothing was written" in said


OF_MODELS = {"model", "target_language", "batch_tokens", "device", "precision", "output", "resume"}
"""Of `nmt score --model`."""
ONLY_COMMANDS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "preprocess": (nmt.preprocess, {"as_json"}),
    "train": (nmt.train, {"tensorboard", "dry_run", "as_rank"}),  # a logger; `forecast`; one of several processes
    "average": (nmt.average, set()),
    "init": (nmt.init, set()),
    "info": (nmt.info, {"as_json", "report", "recipes"}),
    "export": (nmt.export, set()),
    "import": (nmt.import_model, set()),
    "score": (nmt.evaluate, {"as_json", "width", *OF_MODELS}),
}


def test_the_commands_have_no_option_that_the_functions_lack() -> None:
    there = commands()
    for name, (function, only) in ONLY_COMMANDS.items():
        assert parameters(there[name].callback) - parameters(function) == only, name
    assert parameters(fetch) - parameters(nmt.fetch) == {"as_json", "context"}
    assert parameters(nmt.train) == parameters(nmt.forecast)
    assert parameters(nmt.init) - parameters(there["init"].callback) == {"progress"}


def test_the_stub_declares_what_is_there() -> None:
    text = (Path(nmt.__file__).parent / "__init__.pyi").read_text(encoding="utf-8")
    declared = {line.split(" as ")[1] for line in text.splitlines() if " as " in line}
    assert declared | {"__version__"} == set(nmt.__all__)  # type: ignore[attr-defined]
    assert [name for name in declared if getattr(nmt, name).__name__ != name] == []
    keywords = next(node for node in ast.parse(text).body if getattr(node, "name", "") == "EvaluationKeywords")
    assert isinstance(keywords, ast.ClassDef)
    names = {"Path": Path, "Sequence": Sequence, "Text": Text}
    declarations = [line for line in keywords.body if isinstance(line, ast.AnnAssign)]
    found = {ast.unparse(line.target): eval(ast.unparse(line.annotation), names) for line in declarations}
    assert found == get_type_hints(EvaluationOptions)
    assert set(found) <= parameters(nmt.evaluate)


IMPORTING = """
import os, sys
before = dict(os.environ)
import nmt_cli as nmt
assert not {"torch", "numpy", "typer", "rich"} & set(sys.modules), sorted(sys.modules)
nmt.load, nmt.train, nmt.NmtError, nmt.Progress, nmt.evaluate
assert "torch" not in sys.modules
assert dict(os.environ) == before
assert set(dir(nmt)) == set(nmt.__all__)
nmt.lode
"""


def test_importing_loads_no_torch_and_changes_no_environment(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("AttributeError: module 'nmt_cli' has no attribute 'lode'\n")


GOOD = """
from pathlib import Path

import nmt_cli as nmt

def seen(progress: nmt.Progress) -> None:
    print(progress.what, progress.done)

run: nmt.Run = nmt.train("demo", overrides={"train.updates": 3}, progress=seen)
with nmt.load(Path("runs/demo"), precision="int8") as translator:
    texts: list[str] = [one.text for one in translator.translate(["a", nmt.Line("b", terms=["c"])], beam=3, nbest=2)]
    for one in translator.translate(iter(["a"])):
        print(one.score, one.alignment)
    log_prob: float | None = translator.score([("a", "b")])[0].log_prob
bleu: float = nmt.evaluate(texts, [["x"]], metrics=["bleu"]).scores()["bleu"].value
"""


@pytest.mark.slow
def test_mypy_accepts_a_users_file_and_finds_its_mistakes(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(
        'import nmt_cli as nmt\nnmt.load("x").translate(["a"], bean=3)\nnmt.train(update=3)\n'
    )
    check = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*check, "good.py", "bad.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    found = {":".join(line.split(":")[:2]) for line in done.stdout.splitlines() if "error:" in line}
    assert found == {"bad.py:2", "bad.py:3"}
