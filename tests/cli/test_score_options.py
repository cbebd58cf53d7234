"""`nmt score` with all its options, as a program: what it prints, its exit codes, and every message of wrong use."""

from __future__ import annotations

import importlib.util
import json
import math
from importlib.metadata import version
from pathlib import Path

import pytest
from forked import run

ENDS = f"bleu:multi-bleu|sacremoses:{version('sacremoses')}|version:{version('sacrebleu')}"
STEPS = "protocol:paper|punct:unicode|tok:moses-de|compounds:##AT##"
WITHOUT_COMET = """
import importlib.metadata as m
def version(name, found=m.version):
    if name == "unbabel-comet":
        raise m.PackageNotFoundError(name)
    return found(name)
m.version = version
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hyp").write_text("Das Rich-Text-Format ist alt.\nEin Hund bellt laut am Haus.\n")
    (tmp_path / "other").write_text("Das ist das Format.\nEin Hund, er bellt.\n")
    (tmp_path / "ref").write_text("Das Rich-Text-Format ist „neu“.\nEin Hund bellt laut am großen Haus.\n")
    (tmp_path / "src").write_text("The rich-text format is 'new'.\nA dog barks loudly at the big house.\n")
    return tmp_path


def score(folder: Path, *arguments: object, prelude: str = "") -> str:
    done = run(folder, "score", *arguments, prelude=prelude)
    said = [line for line in done.stderr.decode().splitlines() if "warning: 'other': too few lines differ" not in line]
    assert (done.returncode, said) == (0, [])
    return done.stdout.decode()


def fault(folder: Path, code: int, *arguments: object, prelude: str = "") -> str:
    done = run(folder, "score", *arguments, prelude=prelude)
    assert (done.returncode, done.stdout) == (code, b""), done.stderr.decode()
    said = done.stderr.decode()
    assert said.startswith("error: ")
    assert "Traceback" not in said
    return said.removeprefix("error: ").removesuffix("\n")


def test_the_papers_bleu_is_one_line_with_its_steps(folder: Path) -> None:
    """Line 1 as in tests/evaluation/test_protocols.py: 9 tokens against 11; matches 8/9, 6/8, 5/7, 4/6.

    Line 2, 7 tokens against 8, "großen" missing: 7/7, then all pairs but "am Haus": 5/6, 3/5 (Ein Hund bellt, Hund bellt
    laut, bellt laut am), 2/4. In all 15/16, 11/14, 8/12, 6/10, and exp(1 - 19/16).
    """
    value = 100 * math.exp(1 - 19 / 16) * (15 / 16 * 11 / 14 * 8 / 12 * 6 / 10) ** 0.25
    assert score(folder, "hyp", "--ref", "ref", "--protocol", "paper") == (
        f"BLEU    {value:.2f}  nrefs:1|case:mixed|{STEPS}|{ENDS}  93.8/78.6/66.7/60.0 (BP = 0.829 ratio = 0.842 hyp_len = 16 ref_len = 19)\n"
    )


def test_options_of_the_protocol_reach_it(folder: Path) -> None:
    plain = score(
        folder, "hyp", "--ref", "ref", "--protocol", "paper", "--no-compounds", "--language", "fre-FR", "--lowercase"
    )
    assert f"nrefs:1|case:lc-ascii|protocol:paper|punct:unicode|tok:moses-fr|compounds:no|{ENDS}" in plain
    assert "hyp_len = 12 ref_len = 15" in plain
    (folder / "tok").write_text("Das Rich-Text-Format ist alt .\nEin Hund bellt laut am Haus .\n")
    ready = score(folder, "hyp", "--ref", "tok", "--protocol", "paper", "--tokenized-ref")
    assert ready.startswith(f"BLEU   100.00  nrefs:1|case:mixed|{STEPS}|refs:tokenized|{ENDS}")


def test_other_metrics_can_stand_beside_the_protocol(folder: Path) -> None:
    lines = score(
        folder, "hyp", "--ref", "ref", "--protocol", "paper", "--metric", "bleu", "--metric", "chrf"
    ).splitlines()
    assert [line.split()[0] for line in lines] == ["BLEU", "chrF2"]
    assert ("protocol:paper" in lines[0], "protocol" in lines[1]) == (True, False)


def test_the_protocol_in_json_and_for_several_systems(folder: Path) -> None:
    value = json.loads(score(folder, "hyp", "--ref", "ref", "--protocol", "paper", "--json"))
    steps = {"punct": "unicode", "tok": "moses-de", "compounds": "##AT##", "bleu": "multi-bleu"}
    assert value["protocol"] == {"name": "paper", "language": "de", "steps": steps, "tokenized_references": False}
    assert list(value["scores"]) == ["bleu"]
    first, second = json.loads(
        score(
            folder, "hyp", "other", "--ref", "ref", "--protocol", "paper", "--no-compounds", "--json", "--samples", "20"
        )
    )
    assert (
        first["protocol"]["steps"]
        == second["protocol"]["steps"]
        == {"punct": "unicode", "tok": "moses-de", "bleu": "multi-bleu"}
    )
    assert (
        f"nrefs:1|bs:20|seed:12345|case:mixed|{STEPS.replace('##AT##', 'no')}|{ENDS}"
        == first["scores"]["bleu"]["signature"]
    )
    table = score(folder, "hyp", "other", "--ref", "ref", "--protocol", "paper", "--samples", "20")
    assert table.startswith(f"BLEU  nrefs:1|bs:20|seed:12345|case:mixed|{STEPS}|{ENDS}  (higher is better)\n")


def test_text_that_looks_tokenised_is_remarked_on_for_a_protocol_too(folder: Path) -> None:
    (folder / "tokenised").write_text("Das ist gut .\n" * 100)
    (folder / "plain").write_text("Das ist gut.\n" * 100)
    done = run(folder, "score", "tokenised", "--ref", "plain", "--protocol", "paper")
    assert (done.returncode, done.stderr.decode()) == (
        0,
        (
            "warning: 'tokenised': 100 lines end in a separate full stop (' .'), so the text looks tokenised. Detokenise it; the protocol tokenises plain text.\n"
        ),
    )


def test_confidence_of_one_system(folder: Path) -> None:
    line = score(folder, "hyp", "--ref", "ref", "--metric", "chrf", "--confidence", "--samples", "50", "--seed", "3")
    alone = json.loads(
        score(
            folder,
            "hyp",
            "--ref",
            "ref",
            "--metric",
            "chrf",
            "--confidence",
            "--samples",
            "50",
            "--seed",
            "3",
            "--json",
        )
    )
    chrf = alone["scores"]["chrf"]
    assert line.startswith(
        f"chrF2   {chrf['score']:.2f}  mean {chrf['mean']:.2f}  ci95 {chrf['ci95']:.2f}  nrefs:1|bs:50|seed:3|case:mixed|"
    )
    assert set(chrf) == {"metric", "name", "score", "signature", "details", "higher_is_better", "mean", "ci95"}
    assert "|bs:1000|seed:12345|" in score(folder, "hyp", "--ref", "ref", "--metric", "ter", "--confidence")


def test_randomisation(folder: Path) -> None:
    table = score(
        folder,
        "hyp",
        "other",
        "--ref",
        "ref",
        "--metric",
        "chrf",
        "--significance",
        "randomisation",
        "--samples",
        "99",
        "--seed",
        "7",
    )
    assert table.splitlines()[0].startswith("chrF2  nrefs:1|bs:1000|seed:7|")
    assert "|randomisation:99|version:" in table.splitlines()[0]
    # two lines have four exchanges: two of them give the observed difference, the others a smaller one
    p, system = table.splitlines()[3].split()[3:]
    assert float(p) == pytest.approx(0.5, abs=0.15)
    assert system == "other"


def test_by_length(folder: Path) -> None:
    text = score(folder, "hyp", "--ref", "ref", "--metric", "ter", "--lengths", "3,5,7")
    assert text.split("\n\n")[1] == (
        "hyp  by words of the reference\n"
        "words   lines  ratio     TER\n"
        "  1-3       0      -       -\n"
        "  4-5       1  1.000   25.00\n"
        "  6-7       1  0.857   14.29\n"
        "   8+       0      -       -\n"
    )
    several = score(
        folder,
        "hyp",
        "other",
        "--ref",
        "ref",
        "--by-length",
        "--metric",
        "chrf",
        "--metric",
        "ter",
        "--samples",
        "10",
        "--width",
        "1",
    ).split("\n\n")
    assert [block.splitlines()[0].split("  ")[0] for block in several] == ["chrF2", "TER", "hyp", "other"]
    assert several[3].splitlines()[1].split() == ["words", "lines", "ratio", "chrF2", "TER"]
    assert several[3].splitlines()[2].split()[:3] == ["1-10", "2", "0.727"]  # 8 words of 11


def test_by_length_in_json(folder: Path) -> None:
    value = json.loads(score(folder, "hyp", "--ref", "ref", "--by-length", "--metric", "ter", "--json"))
    assert [part["words"] for part in value["by_length"]] == ["1-10", "11-20", "21-30", "31-40", "41-50", "51+"]
    assert value["by_length"][0]["scores"]["ter"] == value["scores"]["ter"]["score"]
    assert (value["by_length"][5]["longest"], value["by_length"][5]["scores"]) == (None, {})
    first, _ = json.loads(
        score(folder, "hyp", "other", "--ref", "ref", "--lengths", "5", "--metric", "ter", "--json", "--samples", "5")
    )
    assert [(part["lines"], part["ratio"]) for part in first["by_length"]] == [(1, 1.0), (1, 6 / 7)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--language fr --no-compounds --tokenized-ref",
            "--language, --no-compounds, --tokenized-ref: only with --protocol, whose steps it changes. Give --protocol paper.",
        ),
        (
            "--protocol paper --tokenize intl",
            "--tokenize intl and --protocol paper were both given: a protocol has its own tokenizer. Give one of them.",
        ),
        (
            "--protocol paper --metric ter",
            "--protocol paper says how BLEU is computed, and BLEU is not asked for. Give --metric bleu too, or no --metric.",
        ),
        ("--protocol papr", "protocol 'papr': expected paper. Did you mean 'paper'?"),
        ("--protocol=", "protocol '': expected paper."),
        ("--protocol paper --language english", "language 'english': expected as, "),
        (
            "--significance bootstrap",
            "--significance bootstrap needs several HYP: it tests them against the first. Give two or more; for one, --confidence.",
        ),
        (
            "other --significance bootstraps",
            "test of significance 'bootstraps': expected bootstrap or randomisation. Did you mean 'bootstrap'?",
        ),
        (
            "--samples 10 --seed 3",
            "--samples, --seed: nothing is resampled for one HYP. Give --confidence, or several HYP.",
        ),
        (
            "--lengths 10,5",
            "the lengths '10,5' are no bounds: expected numbers of words, each larger than the one before, such as 10,20,30,40,50.",
        ),
        ("--comet-model x", "--comet-model: only with --metric comet."),
        ("--evalb-repair", "--evalb-repair: only with --metric evalb."),
        ("--metric comet", "--metric comet needs --src SRC, the text that HYP translates."),
        (
            "--metric comet --src src",
            "--metric comet needs --comet-model PATH, a COMET model on this disk; none is downloaded.",
        ),
        ("--metric comte --src src", "metric 'comte': expected bleu, chrf, ter, evalb or comet. Did you mean 'comet'?"),
        ("--device cpu --src src", "--device: only with --model DIR, which scores REF by a model's probability."),
        (
            "--metric evalb --src src",
            "--src: not with --metric evalb, which scores parses. With --src the outputs are checked as translations.",
        ),
        (
            "--worst 0",
            "--worst 0 needs --src SRC, the text that HYP translates: its lines are chosen by checks against SRC.",
        ),
    ],
)
def test_wrong_use_is_told_before_any_file_is_read(folder: Path, arguments: str, message: str) -> None:
    assert fault(folder, 2, "missing", "--ref", "missing", *arguments.split()).startswith(message)


def test_options_of_metrics_are_refused_with_a_model(folder: Path) -> None:
    options = [
        "--protocol",
        "paper",
        "--confidence",
        "--seed",
        "3",
        "--by-length",
        "--comet-model",
        "x",
        "--worst",
        "3",
    ]
    assert fault(folder, 2, "--model", "missing", "--src", "src", "--ref", "ref", *options) == (
        "--comet-model, --protocol, --confidence, --seed, --by-length, --worst: not with --model DIR, which scores REF by a model's probability."
    )


@pytest.mark.parametrize("option", ["--samples", "--seed"])
def test_numbers_start_at_1(folder: Path, option: str) -> None:
    done = run(folder, "score", "hyp", "--ref", "ref", "--confidence", option, "0")
    assert (done.returncode, done.stdout) == (2, b"")
    assert "greater than or equal to 1" in done.stderr.decode()


def test_missing_packages_are_named(folder: Path) -> None:
    hidden = "import sys; sys.modules['sacremoses'] = None"
    assert "pip install regex 'sacremoses>=0.1.1'" in fault(
        folder, 2, "hyp", "--ref", "ref", "--protocol", "paper", prelude=hidden
    )
    assert "pip install 'setuptools<81' 'unbabel-comet>=2.2'" in fault(
        folder,
        2,
        "hyp",
        "--ref",
        "ref",
        "--metric",
        "comet",
        "--src",
        "src",
        "--comet-model",
        "x",
        prelude=WITHOUT_COMET,
    )


def test_a_source_that_is_not_parallel_is_named(folder: Path) -> None:
    (folder / "short").write_text("one\n")
    found = "import nmt_cli.evaluation.comet as c; c.Comet.__init__ = lambda self, model, source: None"
    message = fault(
        folder, 1, "hyp", "--ref", "ref", "--metric", "comet", "--src", "short", "--comet-model", "x", prelude=found
    )
    assert message.startswith("'short' has 1 lines, the reference 'ref' has 2.")
    assert fault(
        folder, 2, "-", "--ref", "ref", "--metric", "comet", "--src", "-", "--comet-model", "x", prelude=found
    ).startswith("'-' (standard input) was given more than once")


@pytest.mark.skipif(importlib.util.find_spec("comet") is None, reason="needs unbabel-comet: pip install '.[comet]'")
def test_a_comet_model_that_is_not_there_is_named(folder: Path) -> None:
    assert fault(
        folder, 1, "hyp", "--ref", "ref", "--metric", "comet", "--src", "src", "--comet-model", "x"
    ).startswith("there is no COMET model at 'x'.")


def test_ctrl_c_ends_it_without_a_traceback(folder: Path) -> None:
    pressed = "import os, signal, nmt_cli.cli.metric_scoring as s; s.read_parallel = lambda *files: os.kill(os.getpid(), signal.SIGINT)"
    done = run(folder, "score", "hyp", "--ref", "ref", prelude=pressed)
    assert (done.returncode, done.stdout) == (130, b"")
    assert b"Traceback" not in done.stderr
