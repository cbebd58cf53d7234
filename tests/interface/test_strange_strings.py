"""Texts from a model's files reach terminals and logs without acting on them: control characters and line ends are shown as numbers."""

import hashlib
import json
import logging
import operator
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import sealed
from in_process import invoke
from untrained import write_untrained

from nmt_cli.errors import NmtError
from nmt_cli.serving import logs

STRANGE = "\x1b[2J\x1b]0;title\x07\r\n\u2028\x85\u202e\u2066fake"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def folder(workdir: Path) -> Path:
    return write_untrained(workdir / "model")


def nothing_acts(said: str) -> None:
    """No character acts and no line begins with the text's end."""
    assert not ACTING.findall(said)
    assert not re.search(r"(?m)^fake", said)


def put(folder: Path, path: list[str], value: Any) -> None:
    """Give a key of config.json this value."""
    config = json.loads((folder / "config.json").read_text())
    *above, last = path
    reduce(operator.getitem, above, config)[last] = value
    sealed.write(folder / "config.json", config)


def check(line: str) -> str:
    """Run a command and return its output or its error."""
    result = invoke(line, stdin=b"the cat.\n")
    assert result.exit_code == 0 or isinstance(result.exception, NmtError), result.exception
    said = result.output + (str(result.exception) if result.exit_code else "")
    nothing_acts(said)
    return said


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["recipe", "name"], STRANGE),
        (["recipe", "data", STRANGE], 1),
        (["recipe", STRANGE], 1),
        ([STRANGE], 1),
        (["sha256", STRANGE], "0"),
        (["format_version"], STRANGE),
        (["recipe", "decode", "constraints"], [STRANGE]),
    ],
    ids=["name", "key", "section", "field", "file", "format", "value"],
)
def test_a_text_of_config_json_does_not_act(folder: Path, path: list[str], value: Any) -> None:
    put(folder, path, value)
    for line in ("info model", "info model --json"):
        assert re.search(r"\\(x1b|u001b)\[2J", check(line))
    put(folder, [*path[:-1], "k" * 100_000], 1)
    assert len(check("info model")) < 1000
    check("translate --model model --devices 1 --precision fp32")


@pytest.mark.parametrize("scores", [{"bleu_signature": STRANGE}, {"averaged": [STRANGE]}, {STRANGE: {}}])
def test_a_text_of_metrics_json_is_shown_and_does_not_act(folder: Path, scores: dict[str, Any]) -> None:
    (folder / "metrics.json").write_text(json.dumps(scores))
    put(folder, ["sha256", "metrics.json"], hashlib.sha256((folder / "metrics.json").read_bytes()).hexdigest())
    assert r"\x1b[2J" in check("info model")


@pytest.mark.parametrize("code", [STRANGE, "x" * 101])
def test_languages_that_cannot_be_shown_are_not_served(code: str, folder: Path) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed: pip install '.[serve,dev]'")
    put(folder, ["recipe", "data", "source_language"], code)
    said = check("serve --model model --port 0 --devices 1 --precision fp32")
    assert "expected the languages' codes in its recipe" in " ".join(said.split())


@pytest.fixture
def restored_loggers() -> Any:
    """Give the loggers what they had before."""
    names = ("nmt.serve", "uvicorn", "asyncio")
    before = [(logging.getLogger(name), dict(vars(logging.getLogger(name)))) for name in names]
    raising = logging.raiseExceptions
    yield
    logging.raiseExceptions = raising
    for logger, values in before:
        vars(logger).update(values)


@pytest.mark.usefixtures("restored_loggers")
@pytest.mark.parametrize("form", ["plain", "json"])
def test_the_servers_log_has_one_beginning_for_each_record(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(form)
    logs.warn(f"not loaded: {STRANGE}", pair=STRANGE)
    written = capsys.readouterr().err
    nothing_acts(written)
    first, *others = written.splitlines()
    if form == "json":
        assert json.loads(first)["message"] == f"not loaded: {STRANGE}"  # a reader of JSON gets the text as it is
        assert not others
    else:
        assert re.match(r"\d{4}-\d\d-\d\d .* warning: not loaded: \\u001b\[2J", first)
        assert all(line.startswith("    ") for line in others)


def test_a_name_of_an_emoji_is_shown_as_it_is() -> None:
    assert "'a:x:b:bomb:'" in check("translate --model a:x:b:bomb:")
