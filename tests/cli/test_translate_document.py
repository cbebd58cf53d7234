"""`nmt translate --format`: the whole input is one document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner, Result
from untrained import write_untrained

import nmt_cli
from nmt_cli.cli.translate import translate
from nmt_cli.errors import DocumentError, UsageError

app = typer.Typer()
app.command()(translate)
HTML = '<!doctype html>\r\n<p class="x">the <b>cat</b> sees.\r\n\r\n<p>a {name} dog<!-- c --><pre> x </pre>'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("run") / "best")


def invoke(model: Path, text: bytes, *arguments: str) -> Result:
    threads = torch.get_num_threads()
    result = CliRunner().invoke(
        app, ["--model", str(model), "--device", "cpu", "--precision", "fp32", *arguments], input=text
    )
    torch.set_num_threads(threads)
    return result


def test_html_comes_back_with_its_markup_as_from_python(model: Path) -> None:
    result = invoke(model, HTML.encode(), "--format", "html")
    assert result.exit_code == 0, result.exception
    assert re.findall(rb"<[^>]*>|\{name\}| x |\r\n\r\n", result.stdout_bytes) == re.findall(
        rb"<[^>]*>|\{name\}| x |\r\n\r\n", HTML.encode()
    )
    with nmt_cli.load(model, device="cpu", precision="fp32") as translator:
        assert translator.translate_document(HTML, "html").encode() == result.stdout_bytes
        with pytest.raises(UsageError, match="nbest=2 and a document do not go together"):
            translator.translate_document(HTML, "html", nbest=2)


@pytest.mark.parametrize("options", [[], ["--format", "text"], ["--format", "html"], ["--format", "xml"]])
def test_what_no_reader_sees_changes_no_translation(model: Path, options: list[str]) -> None:
    """A soft hyphen, a word joiner and a joiner inside words, and a no-break space between them, around markup too."""
    plain, odd = "the small <b>cat</b> sees.", "th\xade sm\u2060all\xa0<b>c\u200dat</b> s\ufeffees."
    if options[1:] not in (["html"], ["xml"]):
        plain, odd = (re.sub("</?b>", "", text) for text in (plain, odd))
    if options == ["--format", "xml"]:
        plain, odd = f"<p>{plain}</p>", f"<p>{odd}</p>"
    expected = invoke(model, plain.encode(), *options)
    assert expected.exit_code == 0, expected.exception
    assert invoke(model, odd.encode(), *options).stdout_bytes == expected.stdout_bytes


@pytest.mark.parametrize("text", [b"", b"\n \n", b"12\r\n"])
def test_a_document_without_words_stays_as_it_is(model: Path, text: bytes) -> None:
    assert invoke(model, text, "--format", "text").stdout_bytes == text


@pytest.mark.parametrize(
    "option",
    [
        ["--nbest", "2"],
        ["--json"],
        ["--scores"],
        ["--prefix-column"],
        ["--prefix-file", "x"],
        ["--terms", "x"],
        ["--terms-columns"],
    ],
)
def test_options_of_lines_are_refused_by_name(model: Path, option: list[str]) -> None:
    result = invoke(model, b"a", "--format", "text", *option)
    assert isinstance(result.exception, UsageError)
    assert f"--format text and {option[0]} do not go together" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "text", "error", "message"),
    [
        (["--format", "pdf"], b"a", UsageError, "--format 'pdf': expected text, html or xml"),
        (["--split-sentences", "1"], b"a", UsageError, "--split-sentences needs --format"),
        (["--format", "text"], b"a\n\xff", DocumentError, "standard input, line 2: byte 0xff at offset 2 is not UTF-8"),
        (["--format", "xml"], b"<a>", DocumentError, "line 1, column 4"),
        (
            ["--format", "xml"],
            b"<?xml version='1.0' encoding='latin1'?><a/>",
            DocumentError,
            "declares the encoding 'latin1': expected UTF-8",
        ),
    ],
)
def test_wrong_input_is_named(
    model: Path, arguments: list[str], text: bytes, error: type[Exception], message: str
) -> None:
    result = invoke(model, text, *arguments)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)
