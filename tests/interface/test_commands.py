"""`nmt.preprocess`, `train`, `average`, `export` and `evaluate`: the path through all of them, what they report, and their options."""

from __future__ import annotations

import ast
import inspect
import json
import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from untrained import SMALLEST, sentence

import nmt_cli as nmt
from nmt_cli.cli import app
from nmt_cli.cli import average as cli_average
from nmt_cli.cli import data as cli_data
from nmt_cli.cli import info as cli_info
from nmt_cli.cli import init as cli_init
from nmt_cli.cli import preprocess as cli_preprocess
from nmt_cli.cli import score as cli_score
from nmt_cli.cli import train as cli_train
from nmt_cli.cli.export import export as export_command
from nmt_cli.cli.import_model import import_model as import_command
from nmt_cli.errors import DataError, ModelError, TrainingError
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


def write_text() -> None:
    rng = random.Random(0)
    for name, count in (("text", 300), ("valid", 10)):
        for language in ("en", "de"):
            lines = [sentence(rng, rng.randint(2, 9)) + "\n" for _ in range(count)]
            Path(f"{name}.{language}").write_text("".join(lines), encoding="utf-8")


def test_from_text_to_an_averaged_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_text()
    seen: list[nmt.Progress] = []
    shards = nmt.preprocess("demo", overrides=TINY, data_dirs=["."], out="shards", workers=1, progress=seen.append)
    assert shards.fresh
    assert not nmt.preprocess("demo", overrides=TINY, data_dirs=["."], out="shards", workers=1, progress=False).fresh
    assert {progress.what for progress in seen} >= {"encoding train", "encoding valid"}
    seen.clear()
    where = {"data": "shards", "run": "run", "device": "cpu", "threads": 1, "precision": "fp32"}
    run = nmt.train("demo", overrides=TINY, progress=seen.append, **where)  # type: ignore[arg-type]
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
def test_torch_keeps_its_code_in_the_run_folder(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none in a folder for temporary files, where others can have put some before."""
    monkeypatch.chdir(tmp_path)
    write_text()
    nmt.preprocess("demo", overrides=TINY, data_dirs=["."], out="shards", workers=1, progress=False)
    for name, value in (("CACHE_DIR", named), ("CPP_CACHE_PRECOMPILE_HEADERS", "")):
        monkeypatch.setenv(f"TORCHINDUCTOR_{name}", value)
        if not value:
            monkeypatch.delenv(f"TORCHINDUCTOR_{name}")
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(Trainer, "__init__", lambda *_: None)
    monkeypatch.setattr(Trainer, "train", lambda _: seen.append(dict(os.environ)))
    nmt.train("demo", overrides=TINY, data="shards", run="run", device="cpu", compiled=True)
    [variables] = seen
    assert variables["TORCHINDUCTOR_CACHE_DIR"] == (named or str(tmp_path / "run" / "compiled"))
    assert variables["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] == "0"


def test_a_changed_option_is_an_error_as_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call, text in (
        (lambda: nmt.train("demo", precision="fp8"), "--precision 'fp8': expected"),
        (lambda: nmt.train("nothing"), "nothing"),
        (lambda: nmt.train("demo", data="nowhere"), "nowhere"),
        (lambda: nmt.preprocess("demo", overrides={"train.updates": object()}), "expected numbers, texts"),
        (lambda: nmt.preprocess("demo", overrides={"train.update": 3}), "train.update"),
        (lambda: nmt.average([]), "nothing to average"),
        (lambda: nmt.average(["a", "b"]), "give --out DIR"),
        (lambda: nmt.export("nowhere", "ctranslate2", "out"), "nowhere"),
        (lambda: nmt.import_model("nowhere", "out"), "nowhere"),
        (lambda: nmt.evaluate(["a"], "b"), "references 'b': expected a list of them."),
        (lambda: nmt.evaluate(["a"], ["b"]), "a reference is the text 'b'"),
        (lambda: nmt.evaluate("a", [["b"]]), "is the text 'a': expected a list of lines"),
        (lambda: nmt.evaluate(["a"], [["b"]], metrics=["blue"]), "Did you mean 'bleu'?"),
        (
            lambda: nmt.evaluate(["a"], [["b", "c"]]),
            "1 hypothesis lines cannot be scored against 2 lines of reference 1",
        ),
        (lambda: nmt.evaluate(["a"], [["b"]], source=["c", "d"]), "'hypothesis' has 1 lines and the source 2"),
        (lambda: nmt.evaluate({}, [["b"]]), "nothing to score"),
        (lambda: nmt.evaluate(["", " "], [["", " "]], metrics=["ter"]), "all lines of the references are blank"),
        (lambda: nmt.evaluate(["a"], [["b"]]).scores("x"), "there is no system 'x'"),
        (lambda: nmt.Run(Path("nowhere")).records, "has no metrics.jsonl"),
    ):
        with pytest.raises(nmt.NmtError) as error:
            call()
        assert text in str(error.value)


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


def test_information_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text()
    nmt.preprocess("demo", overrides=TINY, data_dirs=["."], out="shards", workers=1)
    nmt.train("demo", overrides={**TINY, "train.updates": 2}, data="shards", run="run", device="cpu", threads=1)
    for what, options, given, kind in (
        ("demo", {"overrides": {"model.d_ff": 96}}, ["--set", "model.d_ff=96"], "recipe"),
        ("shards", {"verify": True}, ["--verify"], "shards"),
        ("run", {}, [], "run"),
        ("run/last", {"devices": 2}, ["--devices", "2"], "model"),
    ):
        values = nmt.info(what, device="cpu", **options)
        assert values["kind"] == kind
        monkeypatch.setattr(sys, "argv", ["nmt", "info", what, "--device", "cpu", "--json", *given])
        assert app.run() == 0
        printed = json.loads(capsys.readouterr().out)
        # with the memory that is free
        changing = {"memory_free_bytes", "memory_bytes", "micro_batch_tokens", "micro_batches_per_update"}
        fixed, expected = (
            {key: value for key, value in each.items() if key not in changing}
            for each in (printed, json.loads(json.dumps(values)))
        )
        assert fixed == expected
    assert nmt.info("demo", probe=True, overrides=TINY, device="cpu")["hours"] > 0
    table = nmt.table3(device="cpu")
    assert (table["device"], len(table["rows"])) == ("cpu", 20)
    with pytest.raises(nmt.NmtError, match="--set changes a recipe"):
        nmt.info("run", overrides=TINY)


def test_what_can_be_fetched(tmp_path: Path) -> None:
    assert {"wmt14-en-de", "multi30k", "tatoeba-en-de"} <= set(nmt.datasets())
    assert nmt.datasets()["tatoeba-en-de"]["recipe"] == "tatoeba_en_de"
    with pytest.raises(nmt.NmtError, match=r"data set 'wmt14-en-da': expected .*Did you mean 'wmt14-en-de'"):
        nmt.fetch("wmt14-en-da")
    with pytest.raises(nmt.NmtError, match="--mirror 'ftp://x': expected an address"):
        nmt.fetch("tatoeba-en-de", out=tmp_path / "new", mirror=["ftp://x"])


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def test_a_forecast_makes_the_checks_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text()
    nmt.preprocess("demo", overrides=TINY, data_dirs=["."], out="shards", workers=1)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    where = {"data": "shards", "run": "run", "device": "cpu", "threads": 1}
    longer = {**TINY, "train.updates": 40}
    now = datetime.now()
    first = nmt.forecast("demo", overrides=longer, **where)  # type: ignore[arg-type]
    assert (first.updates, first.updates_done, first.pairs, first.device, first.devices) == (40, 0, 300, "cpu", 1)
    assert 0 < 40 * first.speed.fastest < first.seconds[0] <= first.seconds[1]
    assert first.end > now
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    nmt.train("demo", overrides=TINY, **where)  # type: ignore[arg-type]
    assert nmt.forecast("demo", overrides=longer, **where).updates_done == 4  # type: ignore[arg-type]
    busy = RunFolder(Path("run"))
    busy.create()
    with pytest.raises(TrainingError, match="another nmt train is using 'run'"):
        nmt.forecast("demo", overrides=longer, **where)  # type: ignore[arg-type]
    busy.close()
    with pytest.raises(ModelError, match=r"cannot resume with another recipe:\n  - model\.d_ff"):
        nmt.forecast("demo", overrides={**TINY, "model.d_ff": 24}, **where)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="nowhere"):
        nmt.forecast("demo", overrides=TINY, data="nowhere")
    settings = [part for key, value in TINY.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    options = [word for key, value in where.items() for word in (f"--{key}", str(value))]
    monkeypatch.setattr(sys, "argv", ["nmt", "train", "demo", "--dry-run", *options, *settings])
    assert app.run() == 0
    said = capsys.readouterr().err
    assert "4 updates, 4 of them done" in said
    assert "dry run: all checks passed, nothing was written" in said


def test_the_commands_have_no_option_that_the_functions_lack() -> None:
    assert parameters(cli_preprocess.preprocess) - parameters(nmt.preprocess) == {"as_json"}
    beside = {"tensorboard", "dry_run", "as_rank"}  # a logger; `forecast`; one of several processes
    assert parameters(cli_train.train) - parameters(nmt.train) == beside
    assert parameters(nmt.train) == parameters(nmt.forecast)
    assert parameters(cli_average.average) - parameters(nmt.average) == set()
    assert parameters(cli_init.init) ^ parameters(nmt.init) == {"progress"}
    assert parameters(cli_info.info) - parameters(nmt.info) == {"as_json", "table3", "report", "recipes"}
    assert parameters(nmt.table3) <= parameters(nmt.info)
    assert parameters(cli_data.fetch) - parameters(nmt.fetch) == {"as_json", "context"}
    assert parameters(export_command) - parameters(nmt.export) == set()
    assert parameters(import_command) - parameters(nmt.import_model) == set()
    of_models = {"model", "target_language", "batch_tokens", "device", "precision"}  # Translator.score
    assert parameters(cli_score.score) - parameters(nmt.evaluate) - of_models == {"as_json", "width"}


@pytest.mark.parametrize(("function", "typed", "keywords"), [(nmt.evaluate, EvaluationOptions, "EvaluationKeywords")])
def test_the_stub_declares_the_keywords_of_the_options(function: Any, typed: type, keywords: str) -> None:
    stub = ast.parse((Path(nmt.__file__).parent / "__init__.pyi").read_text(encoding="utf-8"))
    [declared] = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == keywords]
    hints = get_type_hints(typed)
    for line in (node for node in declared.body if isinstance(node, ast.AnnAssign)):
        assert isinstance(line.target, ast.Name)
        kind = eval(ast.unparse(line.annotation), {"Path": Path, "Sequence": Sequence, "Text": Text})
        assert kind == hints.pop(line.target.id)
        assert line.target.id in parameters(function)
    assert hints == {}


def python(code: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code)], cwd=folder, capture_output=True, text=True, check=False
    )


def test_importing_loads_no_torch_and_changes_no_environment(tmp_path: Path) -> None:
    done = python(
        """
        import os, sys
        before = dict(os.environ)
        import nmt_cli as nmt
        assert dict(os.environ) == before
        assert not {"torch", "numpy", "typer", "rich"} & set(sys.modules), sorted(sys.modules)
        nmt.load, nmt.train, nmt.NmtError, nmt.Progress, nmt.evaluate
        assert "torch" not in sys.modules
        assert dict(os.environ) == before
        try:
            nmt.lode
        except AttributeError as error:
            print(error)
        print(sorted(set(dir(nmt)) ^ set(nmt.__all__)))
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "module 'nmt_cli' has no attribute 'lode'\n[]\n"


def test_what_the_stub_declares_is_there() -> None:
    stub = (Path(nmt.__file__).parent / "__init__.pyi").read_text(encoding="utf-8")
    declared = {line.split(" as ")[1] for line in stub.splitlines() if " as " in line}
    assert declared | {"__version__"} == set(nmt.__all__)  # type: ignore[attr-defined]
    for name in declared:
        assert getattr(nmt, name).__name__ == name


@pytest.mark.slow
def test_mypy_accepts_a_users_file_and_finds_its_mistakes(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(
        textwrap.dedent(
            """
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
        )
    )
    (tmp_path / "bad.py").write_text(
        'import nmt_cli as nmt\nnmt.load("x").translate(["a"], bean=3)\nnmt.train(update=3)\n'
    )
    check = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    good = subprocess.run([*check, "good.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout) == (0, "")
    bad = subprocess.run([*check, "bad.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert {line.split(":")[1] for line in bad.stdout.splitlines() if "error:" in line} == {"2", "3"}
