"""What a user reports when nmt fails, and what nmt says when the fault is its own."""

import json
import re
import sys
from pathlib import Path

import numpy
import pytest
import torch
from forked import run
from untrained import write_untrained

RECIPE = '[data]\ntrain_source = ["secret.en"]\ntrain_target = ["secret.de"]\n[model]\nd_model = 64\nnum_heads = 4\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.toml").write_text(RECIPE, encoding="utf-8")
    write_untrained(tmp_path / "secret model")
    return tmp_path


def test_a_report_has_the_versions_and_the_sizes_but_no_name_and_no_path(folder: Path) -> None:
    reports = {what: run(folder, "info", "--report", what).stdout.decode() for what in ("secret.toml", "secret model")}
    for what, report in reports.items():
        for known in (sys.version.split()[0], torch.__version__, f"numpy {numpy.__version__}", "d_model ", "SHA-256 "):
            assert known in report, what
        for private in ("secret", str(folder), str(Path.home()), str(Path(__file__).parents[2])):
            assert private not in report, what
    assert "written by  nmt " in reports["secret model"]
    values = json.loads(run(folder, "info", "--report", "--json").stdout)
    assert values["given"] == "recipe"
    assert values["model"].startswith("encoder_layers 3, ")


def test_a_report_is_printed_whatever_is_broken(folder: Path) -> None:
    (folder / "secret model" / "config.json").write_text("{")
    broken = run(folder, "info", "--report", "secret model", prelude='os.environ["NMT_ENGINE"] = "secret"')
    assert re.search(r"^given +cannot be read: ModelError$", broken.stdout.decode(), re.MULTILINE)
    assert re.search(r"^engine +none: NMT_ENGINE is wrong$", broken.stdout.decode(), re.MULTILINE)
    assert "given       cannot be read: " in run(folder, "info", "--report", "nothing").stdout.decode()


def test_a_fault_of_nmt_says_that_it_is_one(tmp_path: Path) -> None:
    prelude = "from nmt_cli.interface import information\ninformation.info = lambda *_, **__: 1 // 0"
    done = run(tmp_path, "info", prelude=prelude)
    before, _, after = done.stderr.decode().partition("ZeroDivisionError: integer division or modulo by zero")
    assert done.returncode == 1
    assert before.startswith("Traceback")
    assert re.fullmatch(r"\nerror: this is a fault of nmt.* `nmt info --report`.*\n", after)
