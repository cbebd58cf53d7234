"""`nmt attend`: what it prints, what it writes, and its faults; where the process matters, in one of its own."""

from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner
from untrained import write_untrained
from waiting import LIMIT, wait_until, was_read

import nmt_cli as nmt
from nmt_cli.cli.attend import attend as command
from nmt_cli.errors import NmtError
from nmt_cli.translation.alignment import SMOOTHING

LINE = "the small cat sees a red house."


app = typer.Typer()
app.command()(command)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with an untrained model in it: two encoder layers, one decoder layer, two heads."""
    return write_untrained(tmp_path_factory.mktemp("run") / "best", encoder_layers=2).parent


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attend(
    *arguments: object, stdin: bytes = b"", prelude: str = "", **extra: Any
) -> subprocess.CompletedProcess[bytes]:
    return forked.run(Path.cwd(), "attend", *arguments, text=stdin, prelude=prelude, **extra)


def output(*arguments: object, stdin: bytes = b"") -> str:
    """What is printed, in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == 0, (result.exception, result.output)
    return result.stdout


def data_of(path: str) -> Any:
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', Path(path).read_text(encoding="utf-8"), re.S
    )
    assert found
    return json.loads(found[1])


def names(of: str = ".") -> list[str]:
    return sorted(path.name for path in Path(of).iterdir())


def test_the_translation_is_printed_and_a_page_written(folder: Path) -> None:
    done = attend(LINE, NMT_MODEL=str(folder))
    assert done.returncode == 0, done.stderr.decode()
    translated = forked.run(Path.cwd(), "translate", "-m", folder, "--precision", "fp32", text=LINE.encode())
    assert done.stdout == translated.stdout
    first, second = done.stderr.decode().splitlines()
    assert first == f"model: {folder / 'best'}"
    assert second == "wrote attention.html: open it in a browser"
    assert names() == ["attention.html"]
    text = Path("attention.html").read_text(encoding="utf-8")
    assert f'<dd dir="auto">{LINE}</dd>' in text
    assert f"model {folder / 'best'} · score -" in text
    kinds = data_of("attention.html")["kinds"]
    assert [(kind["name"], len(kind["layers"]), len(kind["heads"])) for kind in kinds] == [
        ("encoder", 2, 2),
        ("decoder", 1, 2),
        ("cross", 1, 2),
    ]


def test_json_has_all_numbers_and_writes_nothing(folder: Path) -> None:
    found = json.loads(output("-m", folder, "--json", LINE))
    assert names() == []
    assert list(found) == ["source", "translation", "score", "log_prob", "attention"]
    [by_translate] = [
        json.loads(line)
        for line in forked.run(
            Path.cwd(), "translate", "-m", folder, "--precision", "fp32", "--json", "--alignment", text=LINE.encode()
        ).stdout.splitlines()
    ]
    assert found["source"] == LINE
    assert found["translation"] == by_translate["translation"]
    assert found["log_prob"] == pytest.approx(by_translate["log_prob"], abs=1e-4)
    assert found["score"] == pytest.approx(by_translate["score"], abs=1e-4)
    heard, written = [*by_translate["source_tokens"], "</s>"], [*by_translate["tokens"], "</s>"]
    expected = {"encoder": (heard, heard), "decoder": (written, ["<s>", *written[:-1]]), "cross": (written, heard)}
    for view in found["attention"]:
        assert list(view) == ["kind", "rows", "columns", "layers", "heads", "weights"]
        assert (view["rows"], view["columns"]) == expected[view["kind"]]
        weights = torch.tensor(view["weights"], dtype=torch.float64)
        assert tuple(weights.shape) == (
            len(view["layers"]),
            len(view["heads"]),
            len(view["rows"]),
            len(view["columns"]),
        )
        assert (weights.sum(-1) - 1).abs().max() <= 1e-6
    # of one decoder layer the alignment is that of its heads' mean, each source token's share of it
    mean = torch.tensor(found["attention"][2]["weights"])[0].mean(0)[:-1]
    looked = (mean / (mean.sum(0) + SMOOTHING)).argmax(1).tolist()
    assert [[place, token] for token, place in enumerate(looked) if place < len(heard) - 1] == by_translate["alignment"]


def test_the_page_has_the_numbers_of_json_rounded(folder: Path) -> None:
    views = json.loads(output("-m", folder, "--json", "--out", "page.html", LINE))["attention"]
    data = data_of("page.html")
    for view, kind in zip(views, data["kinds"], strict=True):
        for of_heads, numbers in zip(view["weights"], kind["weights"], strict=True):
            for rows, whole in zip(of_heads, numbers, strict=True):
                seen = [weight for t, row in enumerate(rows) for weight in (row[: t + 1] if kind["causal"] else row)]
                assert [number / 10 ** data["digits"] for number in whole] == pytest.approx(
                    seen, abs=0.51 * 10 ** -data["digits"]
                )


def test_one_kind_one_layer_one_head(folder: Path) -> None:
    every = {view["kind"]: view for view in json.loads(output("-m", folder, "--json", LINE))["attention"]}
    [one] = json.loads(output("-m", folder, "--json", "--kind", "encoder", "--layer", 2, "--head", 1, LINE))[
        "attention"
    ]
    assert one == {**every["encoder"], "layers": [2], "heads": [1], "weights": [[every["encoder"]["weights"][1][0]]]}
    output("-m", folder, "--kind", "cross", "--out", "page.html", LINE)
    assert [kind["name"] for kind in data_of("page.html")["kinds"]] == ["cross"]


def test_a_given_translation_is_looked_at(folder: Path) -> None:
    found = json.loads(output("-m", folder, "--json", "--target", "a big dog", LINE))
    assert found["translation"] == "a big dog"
    assert "".join(found["attention"][2]["rows"]) == "▁a▁big▁dog</s>"
    Path("src").write_text(LINE)
    Path("ref").write_text("a big dog")
    scored = forked.run(Path.cwd(), "score", "-m", folder, "--src", "src", "--ref", "ref", "--json")
    assert found["log_prob"] == pytest.approx(json.loads(scored.stdout)["log_prob"], abs=1e-4)
    assert output("-m", folder, "--out", "page.html", "--target", "a big dog", LINE) == "a big dog\n"


def test_a_line_of_stdin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = output("-m", folder, LINE)
    monkeypatch.setenv("NMT_MODEL", str(folder))
    page = Path("attention.html").read_bytes()
    for given in (LINE.encode(), LINE.encode() + b"\r\n", LINE.encode() + b"\n\n \n"):
        assert output(stdin=given) == wanted
        assert Path("attention.html").read_bytes() == page


def test_options_reach_the_search(folder: Path) -> None:
    def tokens(*options: object) -> int:
        return len(json.loads(output("-m", folder, "--json", *options, LINE))["attention"][1]["rows"])

    heard = len(json.loads(output("-m", folder, "--json", LINE))["attention"][0]["rows"])
    assert tokens("--beam", 1, "--alpha", 5, "--max-extra", 9) <= heard + 9
    assert tokens("--set", "decode.max_extra=1", "--alpha", 5) <= heard + 1
    assert tokens("--min-length", 999, "--max-extra", 3) == heard + 3
    by_option = output("-m", folder, "--json", "--beam", 1, "--alpha", 0.0, "--min-length", 4, LINE)
    assert by_option == output(
        "-m",
        folder,
        "--json",
        "--set",
        "decode.beam=1",
        "--set",
        "decode.alpha=0.0",
        "--set",
        "decode.min_length=4",
        LINE,
    )
    found = json.loads(by_option)
    assert found["score"] == found["log_prob"]


@pytest.mark.slow
def test_pictures(folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib (the extra 'plots') is not installed")
    done = attend("-m", folder, "--png", "new/pictures", LINE)
    assert done.returncode == 0, done.stderr.decode()
    assert names() == ["new"]
    assert names("new/pictures") == ["cross.png", "decoder.png", "encoder.png"]
    assert len(done.stderr.splitlines()) == 4
    for kind, options in (("cross", []), ("encoder", ["--kind", "encoder"])):
        output("-m", folder, "--png", "one.png", "--out", "page.html", *options, LINE)
        assert Path("one.png").read_bytes() == Path(f"new/pictures/{kind}.png").read_bytes()
    assert names() == ["new", "one.png", "page.html"]


def test_a_sentence_cannot_leave_its_place_in_the_page(folder: Path) -> None:
    output("-m", folder, "the </script><script>alert(1)</script> & cat")
    text = Path("attention.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text
    assert "the &lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; cat" in text


def test_bytes_that_are_not_utf8_are_replaced(folder: Path) -> None:
    assert "�" in json.loads(output("-m", folder, "--json", "cat \udcff dog"))["source"]
    assert "�" in json.loads(output("-m", folder, "--json", stdin=b"cat \xff dog"))["source"]


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "words"),
    [
        ([""], b"", 1, "the sentence '' is empty"),
        (["  "], b"", 1, "the sentence '  ' is empty"),
        ([], b"", 1, "the sentence '' is empty"),
        ([], b"\nthe cat\n", 1, "more than one line"),
        ([], b"the cat\nthe dog\n", 1, "more than one line"),
        (["the cat\nthe dog"], b"", 1, "more than one line"),
        (
            ["the", "cat"],
            b"",
            2,
            "2 sentences were given, the second is 'cat': a page shows one. Put quotes around the words of a sentence.",
        ),
        (["\x01"], b"", 1, "the sentence '\\x01' has no characters that the model's tokenizer keeps"),
        (["cat " * 100], b"", 1, "the sentence has 100 tokens: nmt translate translates it in 3 parts"),
        (
            ["the cat", "--target", "cat " * 100],
            b"",
            1,
            "the translation has 100 pieces; the model takes 63 at once (model.max_positions",
        ),
        (["the cat", "--target", " "], b"", 2, "--target ' ' is empty: expected a translation."),
        (["the cat", "--model", "nowhere"], b"", 1, "no model at 'nowhere'"),
        (["the cat", "--out", "."], b"", 2, "--out '.' is a folder: expected a file, such as 'attention.html'."),
        (["the cat", "--out", "/proc/none/page.html"], b"", 1, "cannot write the page at '/proc/none/page.html'"),
        (
            ["the cat", "--png", "page.svg"],
            b"",
            2,
            "--png 'page.svg': expected a file whose name ends in .png, or a folder.",
        ),
        (["the cat", "--kind", "middle"], b"", 2, "--kind 'middle': expected encoder, decoder or cross."),
        (["the cat", "--layer", "3"], b"", 2, "--layer 3: expected 1 to 2; layers are counted from 1."),
        (["the cat", "--kind", "cross", "--layer", "2"], b"", 2, "--layer 2: expected 1 to 1"),
        (["the cat", "--head", "0"], b"", 2, "--head 0: expected 1 to 2"),
        (
            ["the cat", "--set", "train.seed=3"],
            b"",
            2,
            "--set 'train.seed=3': the recipe of a trained model cannot be changed",
        ),
        (["the cat", "--beam", "0"], b"", 2, "decode.beam = 0"),
        (["the cat", "--precision", "fp8"], b"", 2, "--precision 'fp8': expected auto, fp32, bf16, fp16 or int8."),
        (["the cat", "--device", "tpu"], b"", 2, "--device 'tpu': expected auto, cpu, cuda, cuda:N or mps."),
    ],
)
def test_faults(folder: Path, arguments: list[str], stdin: bytes, code: int, words: str) -> None:
    result = CliRunner().invoke(
        app, [*([] if "--model" in arguments else ["-m", str(folder)]), *arguments], input=stdin
    )
    assert isinstance(result.exception, NmtError), result.exception
    assert words in str(result.exception)
    assert (result.exception.exit_code, result.stdout) == (code, "")
    assert names() == []


def test_without_matplotlib_it_is_told_at_once() -> None:
    done = attend("-m", "nowhere", "--png", "one.png", "the cat", prelude="sys.modules['matplotlib'] = None")
    assert done.returncode == 2
    assert "--png needs the extra package matplotlib: pip install 'matplotlib>=3.8'." in done.stderr.decode()


def test_an_earlier_page_stays_when_a_later_one_fails(folder: Path) -> None:
    Path("attention.html").write_text("earlier")
    prelude = "from nmt_cli.reporting import attention_page; attention_page.LARGEST = 10"
    done = attend("-m", folder, LINE, prelude=prelude)
    assert done.returncode == 1
    assert "browsers open 10 at once" in done.stderr.decode()
    assert Path("attention.html").read_text() == "earlier"
    assert names() == ["attention.html"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(folder: Path) -> None:
    done = attend("-m", folder / "best", "--json", LINE, prelude="os.dup2(os.open('/dev/full', os.O_WRONLY), 1)")
    assert done.returncode == 1
    assert (
        done.stderr.decode()
        == "error: cannot write to standard output: the disk is full. Free some space, or send the output elsewhere.\n"
    )


def test_a_reader_that_leaves_is_no_fault(folder: Path) -> None:
    done = attend(
        "-m", folder / "best", "--json", LINE, prelude="read, write = os.pipe(); os.close(read); os.dup2(write, 1)"
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_interrupting_is_quiet() -> None:
    command = [sys.executable, "-m", "nmt_cli", "attend", "-m", "nowhere"]
    heeds = functools.partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # a shell's background jobs are started deaf to it
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heeds
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"the cat.\n")
        process.stdin.flush()
        wait_until(functools.partial(was_read, process.stdin.fileno()), by=process)  # it waits for the end of the input
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert process.stderr.read() == b"interrupted\n"


def test_help_is_quick() -> None:
    script = "import sys, nmt_cli.cli.attend; sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'matplotlib', 'sentencepiece')))"
    assert subprocess.run([sys.executable, "-c", script], timeout=LIMIT).returncode == 0
    assert b"--png FILE|DIR" in attend("--help").stdout


def test_python_gives_what_the_command_gives(folder: Path) -> None:
    printed = output(
        LINE, "--model", folder, "--kind", "cross", "--layer", 1, "--beam", 2, "--json", "--out", "command.html"
    )
    seen = nmt.attend(LINE, model=folder, kind="cross", layer=1, beam=2, out="python.html")
    assert seen.files == (Path("python.html"),)
    assert data_of("python.html") == data_of("command.html")
    values, [view] = json.loads(printed), seen.record.views
    assert (values["translation"], values["score"], values["log_prob"]) == (
        seen.record.translation,
        seen.record.score,
        seen.record.log_prob,
    )
    assert np.allclose(values["attention"][0]["weights"], view.weights)
    assert (values["attention"][0]["kind"], values["attention"][0]["layers"]) == (view.kind, list(view.layers))


@pytest.mark.parametrize("sentence", ["", " ", "one\ntwo"])
def test_python_wants_one_sentence(folder: Path, sentence: str) -> None:
    with pytest.raises(NmtError, match=r"the sentence .*(is empty|has more than one line)"):
        nmt.attend(sentence, model=folder)
