"""Texts from a model's files reach terminals and logs without acting on them: control characters and line ends are shown as numbers."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
import sealed
from untrained import write_untrained

from nmt_cli.serving import logs

STRANGE = "\x1b[2J\x1b]0;title\x07\r\n\u2028\x85\u202e\u2066fake"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def under(*path: str) -> Callable[[dict[str, Any], Any], None]:
    """Return a function that sets a value in config.json."""

    def change(config: dict[str, Any], value: Any) -> None:
        for part in path[:-1]:
            config = config[part]
        config[path[-1]] = value

    return change


def check(folder: Path, *arguments: str) -> str:
    """Run a command and return its output, in which no character acts and no line begins with the text's end."""
    done = forked.run(folder.parent, *arguments, text=b"the cat.\n")
    said = (done.stdout + done.stderr).decode()
    assert not ACTING.findall(said)
    assert not re.search(r"(?m)^fake", said)
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (under("recipe", "name"), STRANGE),
        (under("package_version"), STRANGE),
        (under("recipe", "data", STRANGE), 1),
        (under("recipe", STRANGE), 1),
        (under(STRANGE), 1),
        (under("sha256", STRANGE), "0"),
        (under("format_version"), STRANGE),
        (under("recipe", "decode", "constraints"), [STRANGE]),
    ],
    ids=["name", "version", "key", "section", "field", "file", "format", "value"],
)
def test_a_text_of_config_json_does_not_act(
    folder: Path, change: Callable[[dict[str, Any], Any], None], value: Any
) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config, value)
    sealed.write(folder / "config.json", config)
    for arguments in (["info", "model"], ["info", "model", "--json"]):
        assert re.search(r"\\(x1b|u001b)\[2J", check(folder, *arguments))
    check(folder, "translate", "--model", "model", "--devices", "1", "--precision", "fp32")


@pytest.mark.parametrize("scores", [{"bleu_signature": STRANGE}, {"averaged": [STRANGE]}, {STRANGE: {}}])
def test_a_text_of_metrics_json_is_shown_and_does_not_act(folder: Path, scores: dict[str, Any]) -> None:
    (folder / "metrics.json").write_text(json.dumps(scores))
    hashes = json.loads((folder / "config.json").read_text())["sha256"]
    digest = hashlib.sha256((folder / "metrics.json").read_bytes()).hexdigest()
    sealed.change(folder / "config.json", sha256={**hashes, "metrics.json": digest})
    assert r"\x1b[2J" in check(folder, "info", "model")


def test_a_long_key_is_cut(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["recipe"]["data"]["k" * 100_000] = 1
    sealed.write(folder / "config.json", config)
    assert len(check(folder, "info", "model")) < 1000


def test_languages_that_cannot_be_shown_are_not_served(folder: Path) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed: pip install '.[serve,dev]'")
    config = json.loads((folder / "config.json").read_text())
    for code in (STRANGE, "x" * 101):
        config["recipe"]["data"]["source_language"] = code
        sealed.write(folder / "config.json", config)
        said = check(folder, "serve", "--model", "model", "--port", "0", "--devices", "1", "--precision", "fp32")
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
    assert not ACTING.findall(written)
    assert not re.search(r"(?m)^fake", written)
    first, *others = written.splitlines()
    if form == "json":
        assert json.loads(first)["message"] == f"not loaded: {STRANGE}"  # a reader of JSON gets the text as it is
        assert not others
    else:
        assert re.match(r"\d{4}-\d\d-\d\d .* warning: not loaded: \\u001b\[2J", first)
        assert all(line.startswith("    ") for line in others)


def test_a_name_of_an_emoji_is_shown_as_it_is(folder: Path) -> None:
    assert "'a:x:b:bomb:'" in check(folder, "translate", "--model", "a:x:b:bomb:")
