"""`nmt score`: its output to the byte, its remarks and its errors."""

import gzip
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from nmt_cli.cli.score import score
from nmt_cli.errors import DataError, NmtError, UsageError

VERSION = version("sacrebleu")
BLEU = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{VERSION}"
CHRF = f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{VERSION}"
TER = f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{VERSION}"

app = typer.Typer()
app.command()(score)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("hyp").write_text("The cat sat on the mat.\nA dog barked loudly at the postman.\n")
    Path("other").write_text("A cat on a mat.\nThe postman barked at a dog.\n")
    Path("ref").write_text("The cat lay on the mat.\nThe dog barked loudly at a postman.\n")
    return tmp_path


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0, result.output
    return result


def fault(*arguments: str) -> NmtError:
    error = CliRunner().invoke(app, list(arguments)).exception
    assert isinstance(error, NmtError), error
    return error


def test_one_hypothesis_is_one_line_a_metric() -> None:
    result = run("hyp", "--ref", "ref")
    assert result.stdout == (
        f"BLEU    44.66  {BLEU}  80.0/61.5/36.4/22.2 (BP = 1.000 ratio = 1.000 hyp_len = 15 ref_len = 15)\n"
        f"chrF2   72.00  {CHRF}\n"
        f"TER     23.08  {TER}\n"
    )
    assert result.stderr == ""


def test_metrics_and_decimals_can_be_chosen() -> None:
    assert (
        run("hyp", "--ref", "ref", "--metric", "TER", "--metric", "chrf", "--width", "1").stdout
        == f"TER     23.1  {TER}\nchrF2   72.0  {CHRF}\n"
    )


def test_several_hypotheses_are_a_table_a_metric() -> None:
    result = run("hyp", "other", "--ref", "ref", "--metric", "bleu", "--metric", "ter")
    bleu, ter = result.stdout.removesuffix("\n").split("\n\n")
    lines = bleu.splitlines()
    assert lines[0] == f"BLEU  {BLEU.replace('nrefs:1|', 'nrefs:1|bs:1000|seed:12345|')}  (higher is better)"
    assert lines[1].split() == ["score", "mean", "ci95", "p", "system"]
    first, second = lines[2].split(), lines[3].split()
    assert (first[0], first[3], first[4]) == ("44.66", "-", "hyp")
    assert second[4] == "other"
    assert ter.splitlines()[0].endswith("(lower is better)")
    assert run("hyp", "other", "--ref", "ref", "--metric", "bleu", "--metric", "ter").stdout == result.stdout


def test_json_of_one_hypothesis() -> None:
    value = json.loads(run("hyp", "--ref", "ref", "--json").stdout)
    assert (value["hypothesis"], value["references"], value["lines"]) == ("hyp", ["ref"], 2)
    assert list(value["scores"]) == ["bleu", "chrf", "ter"]
    assert value["scores"]["ter"] == {
        "metric": "ter",
        "name": "TER",
        "score": pytest.approx(300 / 13),
        "signature": TER,
        "details": "",
        "higher_is_better": False,
    }


def test_json_of_several_hypotheses() -> None:
    first, second = json.loads(run("hyp", "hyp", "--ref", "ref", "--json", "--metric", "ter").stdout)
    assert first["scores"]["ter"]["p_value"] is None
    assert second["scores"]["ter"]["p_value"] == 1.0
    assert set(first["scores"]["ter"]) == {
        "metric",
        "name",
        "score",
        "signature",
        "details",
        "higher_is_better",
        "mean",
        "ci95",
        "p_value",
        "differing_lines",
    }


def test_standard_input_and_compressed_files() -> None:
    Path("ref.gz").write_bytes(gzip.compress(Path("ref").read_bytes()))
    assert run("-", "--ref", "ref.gz", stdin=Path("hyp").read_bytes()).stdout == run("hyp", "--ref", "ref").stdout


def test_several_references() -> None:
    Path("second").write_bytes(Path("hyp").read_bytes())
    assert run("hyp", "--ref", "ref", "--ref", "second", "--metric", "bleu").stdout.startswith(
        "BLEU   100.00  nrefs:2|"
    )


def test_lowercase_and_tokenizer_show_in_the_signature() -> None:
    Path("hyp").write_text(Path("ref").read_text().upper())
    assert run("hyp", "--ref", "ref", "--lowercase", "--tokenize", "intl", "--metric", "bleu").stdout.startswith(
        "BLEU   100.00  nrefs:1|case:lc|eff:no|tok:intl|"
    )


def test_blank_lines_count_and_odd_separators_do_not_split() -> None:
    Path("hyp").write_bytes("one\u2028two three four five\n\nsix\x85seven\x0beight\x0cnine ten\r\n".encode())
    Path("ref").write_bytes("one\u2028two three four five\nblank\nsix\x85seven\x0beight\x0cnine ten".encode())
    result = run("hyp", "--ref", "ref", "--json")
    assert json.loads(result.stdout)["lines"] == 3
    assert json.loads(result.stdout)["scores"]["ter"]["score"] == pytest.approx(100 / 11)


def test_unequal_counts_name_files_counts_and_what_ends_a_line() -> None:
    Path("hyp").write_text("one\ntwo\nthree\n")
    error = fault("other", "hyp", "--ref", "ref")
    assert isinstance(error, DataError)
    assert str(error) == (
        "'hyp' has 3 lines, the reference 'ref' has 2. They must be parallel, line by line. "
        "A line ends at \\n only: U+2028, \\r and the like are characters of a line."
    )


def test_missing_and_empty_files_are_named() -> None:
    assert "missing" in str(fault("missing", "--ref", "ref"))
    assert "missing" in str(fault("hyp", "--ref", "missing"))
    Path("void").touch()
    assert isinstance(fault("void", "--ref", "ref"), DataError)
    assert str(fault("void", "--ref", "void")) == "'void' is empty: expected one translation per line."


def test_wrong_names_are_usage_errors_told_before_files_are_read() -> None:
    for arguments in (["--metric", "blue"], ["--tokenize", "13b"]):
        error = fault("missing", "--ref", "missing", *arguments)
        assert isinstance(error, UsageError)
        assert ": expected " in str(error)
        assert "Did you mean" in str(error)


def test_standard_input_twice_is_a_usage_error() -> None:
    assert isinstance(fault("-", "-", "--ref", "ref"), UsageError)


def test_no_reference_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["hyp"]).exit_code == 2


def test_a_hypothesis_that_is_the_reference_is_remarked_on() -> None:
    Path("link").symlink_to("ref")
    result = run("link", "--ref", "ref", "--metric", "bleu")
    assert result.stdout.startswith("BLEU   100.00")
    assert "'link' and --ref 'ref' are the same file" in result.stderr


def test_invalid_utf8_is_replaced_and_counted() -> None:
    Path("hyp").write_bytes(b"caf\xe9\nfine\n")
    result = run("hyp", "--ref", "ref")
    assert "'hyp': 1 line held invalid UTF-8" in result.stderr


def test_text_that_looks_tokenised_is_remarked_on() -> None:
    Path("hyp").write_text("the cat sat .\n" * 100)
    Path("ref").write_text("the cat sat .\n" * 100)
    Path("copy").write_text("the cat sat .\n" * 100)
    assert "'copy': 100 lines end in a separate full stop" in run("copy", "--ref", "ref").stderr
    assert run("copy", "--ref", "ref", "--tokenize", "none").stderr == ""
    assert run("copy", "--ref", "ref", "--metric", "chrf").stderr == ""


def test_a_tokenizer_without_bleu_is_remarked_on() -> None:
    assert run("hyp", "--ref", "ref", "--metric", "ter", "--tokenize", "intl").stderr == (
        "warning: --tokenize intl has no effect: it acts on BLEU, which was not asked for.\n"
    )


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_the_metrics_and_imports_nothing_heavy(option: str) -> None:
    program = (
        "import sys\n"
        "from nmt_cli.registry import METRICS\n"
        "METRICS['of-my-own'] = 'my_package:SPEC'\n"
        "from nmt_cli.cli.app import run\n"
        f"sys.argv = ['nmt', 'score', {option!r}]\n"
        "code = run()\n"
        "heavy = {'torch', 'sacrebleu', 'numpy', 'sentencepiece', 'safetensors'} & set(sys.modules)\n"
        "assert not (code or heavy), (code, heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "One of bleu, chrf, ter, evalb, comet, of-my-own; evalb is for parses." in " ".join(done.stdout.split())


def test_torch_is_never_imported_and_importing_the_command_is_light() -> None:
    program = (
        "import sys, typer\n"
        "import nmt_cli.cli.score as command\n"
        "heavy = {'torch', 'sacrebleu', 'numpy', 'sentencepiece'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "app = typer.Typer()\n"
        "app.command()(command.score)\n"
        "app(['hyp', 'other', '--ref', 'ref'], standalone_mode=False)\n"
        "assert 'sacrebleu' in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("warning: ")) == (0, 1)  # two lines are few
    assert "chrF2" in done.stdout
