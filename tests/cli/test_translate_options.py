"""`nmt translate`: ensembles, prefixes, samples, JSON, alignments, precisions and workers, and their wrong use."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import forked
import pytest
import sealed
import torch
import typer
from small_models import needs_engine
from typer.testing import CliRunner, Result
from untrained import sentence, write_untrained

from nmt_cli.cli.translate import translate
from nmt_cli.data.tokenizer import Tokenizer
from nmt_cli.device.processor import cores
from nmt_cli.errors import DataError, NmtError, UsageError
from nmt_cli.interface.loading import workers_on

app = typer.Typer()
app.command()(translate)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained models: `one` and `two` share their vocabulary, `other` has another."""
    folder = tmp_path_factory.mktemp("models")
    for seed, (name, text) in enumerate([("one", 0), ("two", 0), ("other", 1)]):
        write_untrained(folder / name, seed, text)
    return folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each test works: the models, and 20 lines in `in`, the fifth of them blank."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "other"):
        Path(name).symlink_to(trained / name)
    rng = random.Random(1)
    Path("in").write_text(
        "".join((sentence(rng, rng.randint(1, 12)) if number != 4 else "") + "\n" for number in range(20))
    )
    return tmp_path


IN = ["--input", "in", "--device", "cpu", "--precision", "fp32"]
ONE = ["--model", "one", *IN]


def invoke(*arguments: object) -> Result:
    threads = torch.get_num_threads()
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    torch.set_num_threads(threads)
    return result


def run(*arguments: object) -> list[str]:
    """The lines on stdout."""
    result = invoke(*arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout.split("\n")[:-1]


def objects(*arguments: object) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in run(*arguments, "--json")]


def given() -> list[str]:
    return Path("in").read_text().split("\n")[:-1]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--precision", "fp8"], "--precision 'fp8': expected auto, fp32, bf16, fp16 or int8."),
        (["--alignment"], "--alignment needs --json"),
        (["--prefix-column", "--prefix-file", "in"], "--prefix-column and --prefix-file were both given"),
        (["--top-k", "3"], "--top-k: only with --sample or --search mbr."),
        (
            ["--top-p", "0.5", "--temperature", "1", "--seed", "0"],
            "--top-p, --temperature, --seed: only with --sample or --search mbr.",
        ),
        (
            ["--sample", "--beam", "4"],
            "--beam (decode.beam) was given with --sample, which keeps no beam: give --nbest N",
        ),
        (["--sample", "--set", "decode.beam=4"], "--beam (decode.beam) was given with --sample"),
        (["--sample", "--top-p", "0"], "--top-p 0.0: expected a number from 1e-09 to 1."),
        (["--sample", "--top-p", "1.01"], "--top-p 1.01: expected"),
        (["--sample", "--top-p", "nan"], "--top-p nan: expected"),
        (
            ["--sample", "--temperature", "0"],
            "--temperature 0.0: expected a number from 1e-30 to 1e+30. For the most probable tokens alone: --top-k 1.",
        ),
        (["--sample", "--temperature", "inf"], "--temperature inf: expected"),
        (
            ["--model", "other"],
            "--model 'one' and --model 'other' have different tokenizers (by SHA-256 in config.json)",
        ),
        (["--model", "nowhere"], "no model at 'nowhere'"),
        (["--prefix-file", "nowhere"], "cannot read 'nowhere'"),
    ],
)
def test_wrong_use(args: list[str], text: str) -> None:
    result = invoke(*ONE, *args)
    assert isinstance(result.exception, NmtError), result.exception
    assert result.exception.exit_code == (1 if "nowhere" in args else 2)
    assert text in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize(
    "args",
    [
        ["--devices", "0"],
        ["--sample", "--top-k", "-1"],
        ["--sample", "--seed", "-1"],
        ["--nbest", "0"],
        ["--sample", "--top-p", "x"],
    ],
)
def test_numbers_that_cannot_be_are_told_by_the_parser(args: list[str]) -> None:
    result = invoke(*ONE, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert args[-2] in result.stderr


def test_json_holds_all_that_is_known() -> None:
    found = objects(*ONE, "--nbest", 2, "--alignment")
    assert list(found[0]) == [
        "source",
        "translation",
        "score",
        "log_prob",
        "tokens",
        "source_tokens",
        "alignment",
        "nbest",
    ]
    assert list(objects(*ONE)[0]) == ["source", "translation", "score", "log_prob", "tokens", "nbest"]
    assert [o["source"] for o in found] == given()
    assert [o["translation"] for o in found] == run(*ONE)
    tokenizer = Tokenizer.load("one/tokenizer.model")
    table = {piece: number for number, piece in enumerate(tokenizer.table)}
    for o in found:
        assert {key: o[key] for key in ("translation", "score", "log_prob", "tokens")} == o["nbest"][0]
        assert o["source_tokens"] == tokenizer.pieces(o["source"])
        assert [tokenizer.decode([[table[piece] for piece in one["tokens"]]])[0] for one in o["nbest"]] == [
            one["translation"] for one in o["nbest"]
        ]
        assert [target for _, target in o["alignment"]] == sorted({target for _, target in o["alignment"]})
        assert all(0 <= i < len(o["source_tokens"]) and 0 <= j < len(o["tokens"]) for i, j in o["alignment"])
    assert sum(len(o["alignment"]) for o in found) > 20
    blank = found[4]
    assert blank == {
        "source": "",
        "translation": "",
        "score": 0.0,
        "log_prob": 0.0,
        "tokens": [],
        "source_tokens": [],
        "alignment": [],
        "nbest": [{"translation": "", "score": 0.0, "log_prob": 0.0, "tokens": []}],
    }


def test_an_ensemble_is_of_models_that_share_their_vocabulary() -> None:
    alone, twice, both = (
        objects(*models, *IN) for models in (["-m", "one"], ["-m", "one", "-m", "one"], ["-m", "one", "-m", "two"])
    )
    assert [o["translation"] for o in twice] == [o["translation"] for o in alone]
    assert [o["score"] for o in twice] == pytest.approx([o["score"] for o in alone], abs=1e-5)
    assert [o["translation"] for o in both] != [o["translation"] for o in alone]


def test_the_first_models_recipe_counts(tmp_path: Path, trained: Path) -> None:
    recipe = json.loads((trained / "two" / "config.json").read_text())["recipe"]
    recipe["decode"]["beam"] = 3
    Path("wider").mkdir()
    for file in (trained / "two").iterdir():
        (Path("wider") / file.name).write_bytes(file.read_bytes())
    sealed.change(Path("wider/config.json"), recipe=recipe)
    assert len(run("-m", "wider", "-m", "one", *IN, "--nbest", 3)) == 19 * 3 + 1
    result = invoke("-m", "one", "-m", "wider", *IN, "--nbest", 3)
    assert str(result.exception) == "--nbest 3 exceeds the beam of 2: give --beam 3 or more."


def test_the_environment_names_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a:b c").symlink_to("one")
    monkeypatch.setenv("NMT_MODEL", "a:b c")
    assert run(*IN) == run(*ONE)
    assert run("-m", "two", *IN) != run(*ONE)


def test_prefixes_stand_in_a_column_or_in_a_file_of_their_own() -> None:
    prefixes = ["the red" if number % 2 else "" for number in range(20)]
    Path("prefixes").write_text("".join(prefix + "\n" for prefix in prefixes))
    Path("columns").write_text(
        "".join(
            f"{line}\t{prefix}\n" if prefix else f"{line}\n" for line, prefix in zip(given(), prefixes, strict=True)
        )
    )
    by_file = objects(*ONE, "--prefix-file", "prefixes")
    assert objects("-m", "one", "--input", "columns", *IN[2:], "--prefix-column") == by_file
    free = run(*ONE)
    assert [o["source"] for o in by_file] == given()
    for number, o in enumerate(by_file):
        assert o["translation"].startswith("the red") if number % 2 else o["translation"] == free[number]
    assert all(
        o["translation"].startswith("the red") for o in objects(*ONE, "--prefix-file", "prefixes", "--sample")[1::2]
    )


@pytest.mark.parametrize("count", [19, 21])
def test_prefixes_are_parallel_to_the_input(count: int) -> None:
    Path("prefixes").write_text("a dog\n" * count)
    result = invoke(*ONE, "--prefix-file", "prefixes")
    assert isinstance(result.exception, DataError)
    first = 20 if count == 19 else 21
    longer = f"'in' reads {given()[19]!r}" if count == 19 else "'prefixes' reads 'a dog'"
    expected = f"'in' has 20 lines, 'prefixes' has {count} lines: they are not line by line parallel. They part at line {first}, where {longer}. (A line ends at \\n only.)"
    assert str(result.exception) == expected
    assert result.stdout.count("\n") == min(count, 20)  # those before are answered


def test_invalid_utf8_is_counted_for_each_file() -> None:
    Path("in").write_bytes(b"the \xff cat\na dog\n")
    Path("prefixes").write_bytes(b"\xfe\n\xff\n")
    remarks = invoke(*ONE, "--prefix-file", "prefixes").stderr
    assert "'in': 1 line held invalid UTF-8" in remarks
    assert "'prefixes': 2 lines held invalid UTF-8" in remarks


@pytest.mark.slow
def test_samples_are_those_of_line_and_seed() -> None:
    some = run(*ONE, "--sample", "--nbest", 3)
    assert len(some) == 19 * 3 + 1
    assert some[0].startswith("0 ||| ")
    assert (
        run(
            *ONE,
            "--sample",
            "--nbest",
            3,
            "--seed",
            1,
            "--batch-tokens",
            20,
            "--top-k",
            0,
            "--top-p",
            1,
            "--temperature",
            1,
        )
        == some
    )
    assert run(*ONE, "--sample", "--nbest", 3, "--seed", 2) != some
    backwards = given()[::-1]
    Path("in").write_text("".join(line + "\n" for line in backwards))
    assert [line.split(" ||| ", 1)[1] for line in run(*ONE, "--sample", "--nbest", 3)[-3:]] == [
        line.split(" ||| ", 1)[1] for line in some[:3]
    ]


def test_samples_of_the_one_most_probable_token_are_greedy() -> None:
    greedy = run(*ONE, "--beam", 1)
    assert run(*ONE, "--sample", "--top-k", 1) == greedy
    assert run(*ONE, "--sample", "--top-p", "1e-9") == greedy
    assert run(*ONE, "--sample", "--temperature", "1e-9") == greedy


def test_scores_of_samples_are_the_models() -> None:
    for o in objects(*ONE, "--sample", "--nbest", 2, "--temperature", 0.5):
        for one in o["nbest"]:
            assert one["score"] == pytest.approx(one["log_prob"] / ((5 + len(one["tokens"]) + 1) / 6) ** 0.6, rel=1e-6)


def test_precisions_are_near_each_other() -> None:
    exact = [o["score"] for o in objects(*ONE)]
    for precision in ("bf16", "int8"):
        result = invoke(*ONE, "--precision", precision, "--json")
        assert result.exit_code == 0
        assert result.stderr == ""
        near = [
            abs(json.loads(line)["score"] - score) < 0.5
            for line, score in zip(result.stdout.splitlines(), exact, strict=True)
        ]
        assert sum(near) >= 15  # elsewhere rounding has led to another output


@needs_engine
def test_the_fastest_precision_of_the_engine_is_int8() -> None:
    assert run(*ONE, "--scores", "--precision", "auto") == run(*ONE, "--scores", "--precision", "int8")


def in_a_process(**environment: str) -> tuple[list[tuple[float, str]], str, set[str]]:
    """Scores and texts of the first lines, stderr, and which of two packages were loaded, of nmt in a Python of its own."""
    code = (
        "import sys; from nmt_cli.__main__ import main\n"
        "try: main()\n"
        "finally: print('loaded', *{'torch', 'numpy'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "translate", *ONE, "--scores"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    said, _, loaded = done.stderr.rpartition("loaded")
    pairs = [line.split("\t", 1) for line in done.stdout.splitlines()]
    return [(float(score), text) for score, text in pairs], said, set(loaded.split())


@pytest.mark.slow
def test_the_engine_needs_no_torch_and_without_it_torch_translates_the_same() -> None:
    scored, said, loaded = in_a_process()
    assert (said, loaded) == ("", {"numpy"})
    by_torch, said, loaded = in_a_process(NMT_ENGINE="off")
    assert (said, "torch" in loaded) == ("", True)
    assert [text for _, text in by_torch] == [text for _, text in scored]
    assert [score for score, _ in by_torch] == pytest.approx([score for score, _ in scored], abs=1e-4)


def test_where_no_engine_is_built_a_warning_says_that_torch_translates() -> None:
    prelude = "from pathlib import Path; from nmt_cli.engine import library\n"
    prelude += "library.FOLDER = Path('nowhere'); library._found.cache_clear()"
    done = forked.run(Path.cwd(), "translate", *ONE, prelude=prelude, NMT_ENGINE="")
    assert done.returncode == 0
    said = done.stderr.decode()
    assert said.startswith("warning: translating with torch, which is slower: there is no nowhere/libnmt-portable.so, ")
    assert said.count("warning: ") == 1


def test_the_number_of_workers_changes_nothing() -> None:
    rng = random.Random(3)
    text = "".join(sentence(rng, rng.randint(1, 20)) + "\n" for _ in range(100)).encode()
    outputs = [
        forked.run(Path.cwd(), "translate", *ONE[:2], *IN[2:], "--scores", "--devices", number, text=text)
        for number in (1, 3)
    ]
    assert outputs[0].stdout == outputs[1].stdout
    assert outputs[0].stdout.count(b"\n") == 100
    assert [done.stderr for done in outputs] == [b"", b""]


def test_devices_are_cores_or_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert workers_on("cpu", "auto", None) == ["cpu"] * cores()
    assert workers_on("cpu", "cpu", 3) == ["cpu"] * 3
    assert workers_on("cuda:0", "auto", None) == workers_on("cuda:0", "cuda", 1) == ["cuda:0"]
    assert workers_on("cuda:1", "cuda:1", 1) == ["cuda:1"]
    assert workers_on("cuda:0", "auto", 2) == ["cuda:0", "cuda:1"]
    with pytest.raises(UsageError, match=r"--devices 3: torch sees 2 CUDA devices here. Give 2 or fewer"):
        workers_on("cuda:0", "cuda", 3)
    with pytest.raises(UsageError, match="--device 'cuda:1' is one GPU, --devices 2 are several"):
        workers_on("cuda:1", "cuda:1", 2)
