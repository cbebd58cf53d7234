"""`nmt serve` as a process: signals, the log, and what it refuses before it serves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from held_search import PRELUDE, Gate
from served import Command, httpx, post
from untrained import write_untrained
from waiting import LIMIT

TEXT = "the cat sees a secret dog."


def translate(url: str, text: str = TEXT) -> httpx.Response:
    return post(f"{url}/translate", params={"q": text, "source": "en", "target": "de"})


def refused(*arguments: str) -> tuple[int, str]:
    """The exit status and stderr of a command that does not get as far as to serve."""
    done = subprocess.run(
        [sys.executable, "-m", "nmt_cli", "serve", "--device", "cpu", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, " ".join(done.stderr.split())


@pytest.mark.slow
def test_the_log_has_no_texts_and_sighup_loads_anew(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-secret-key\tanna\n", encoding="utf-8")
    with Command("--model", str(model), "--log", "json", "--keys", str(keys)) as command:
        before = post(
            f"{command.url}/translate", params={"q": TEXT, "source": "en", "target": "de", "api_key": "a-secret-key"}
        )
        assert before.status_code == 200
        command.process.send_signal(signal.SIGHUP)
        command.wait_for("the models were loaded anew")
        assert translate(command.url).status_code == 400
        command.process.terminate()
        assert command.end() == 143
    *logged, last = command.lines
    assert last == "stopped by SIGTERM"
    records = [json.loads(line) for line in logged]
    [request] = [record for record in records if record.get("status") == 200]
    assert {name: request[name] for name in ("method", "path", "pair", "sentences", "characters", "key")} == {
        "method": "POST",
        "path": "/translate",
        "pair": "en-de",
        "sentences": 1,
        "characters": len(TEXT),
        "key": "anna",
    }
    assert not any("secret" in line for line in command.lines)


@dataclass
class Held:
    """A server that has a request whose translation the gate holds, and its answer, if one comes."""

    command: Command
    gate: Gate
    answers: list[httpx.Response] = field(default_factory=list)


@contextmanager
def held(model: Path, folder: Path, *options: str) -> Iterator[Held]:
    """Start such a server, and wait at the end until its client has its answer."""
    gate = Gate(folder)
    lines = [f"the cat sees {'a dog and ' * 10}a house {index}." for index in range(300)]
    with Command("--model", str(model), *options, prelude=PRELUDE, environment=gate.environment) as command:
        url, one = command.url, Held(command, gate)

        def ask() -> None:
            with suppress(httpx.TransportError):
                one.answers.append(post(f"{url}/translate", json={"q": lines, "source": "en", "target": "de"}))

        client = threading.Thread(target=ask)
        client.start()
        gate.begun()
        yield one
    client.join(LIMIT)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_is_under_way_is_answered_at_the_end(
    model: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with held(model, tmp_path, "--grace", str(LIMIT)) as one:
        one.command.process.send_signal(number)
        one.command.wait_for("ending: 1 requests are under way")
        one.gate.open()
        assert one.command.end() == status
    assert [(answer.status_code, len(answer.json()["translatedText"])) for answer in one.answers] == [(200, 300)]


def test_what_takes_longer_than_the_grace_is_refused(model: Path, tmp_path: Path) -> None:
    with held(model, tmp_path, "--grace", "1") as one:
        one.command.process.terminate()
        assert one.command.end() == 143
    assert [answer.status_code for answer in one.answers] in ([], [503])


@pytest.mark.slow
def test_what_is_refused_before_serving(model: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("abc\n", encoding="utf-8")
    twin = write_untrained(tmp_path / "twin", seed=5)
    for arguments, status, text in (
        (["--model", str(tmp_path / "none")], 1, "none"),
        (["--model", str(model), "--model", str(twin), "--port", "0"], 2, "give one model for each language pair"),
        (["--model", str(model), "--host", "0.0.0.0"], 2, "can be reached from other machines"),
        (["--model", str(model), "--host", "192.0.2.1", "--no-keys"], 1, "Expected an address of this machine"),
        (["--model", str(model), "--keys", str(short)], 2, "at least 8 characters"),
        (["--model", str(model), "--keys", str(tmp_path / "no-file")], 1, "no-file"),
        (["--model", str(model), "--keys", str(short), "--no-keys"], 2, "both given"),
        (["--model", str(model), "--log", "xml"], 2, "expected plain or json"),
        (["--model", str(model), "--set", "train.updates=3"], 2, "only decode.KEY=VALUE can"),
        (["--model", str(model), "--beam", "0", "--port", "0"], 2, "beam"),
        (["--model", str(model), "--beam", "0", "--port", "0", "--processes", "2"], 1, "beam"),
        (["--model", "missing", "--port", "0", "--processes", "2"], 1, "no model at 'missing'"),
        (["--model", str(model), "--processes", "2", "--quota", "5"], 2, "--quota and --processes"),
    ):
        found, stderr = refused(*arguments)
        assert text in stderr
        assert found == status


def test_a_port_in_use(model: Path) -> None:
    with Command("--model", str(model)) as command:
        port = command.url.rpartition(":")[2]
        assert refused("--model", str(model), "--port", port) == (
            1,
            f"error: --port {port} is in use on 127.0.0.1: another server listens there. Give another one; 0 is any that is free.",
        )


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys, importlib.util as util; find = util.find_spec; util.find_spec = lambda name, *rest: None if name == 'fastapi' else find(name, *rest); sys.argv = ['nmt', 'serve']; from nmt_cli.cli.app import run; sys.exit(run())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == 2
    assert "nmt serve needs the extra package fastapi: pip install " in done.stderr
    assert "'fastapi>=0.115'" in done.stderr


def test_help_imports_no_server() -> None:
    code = "import sys; sys.argv = ['nmt', 'serve', '-h']; from nmt_cli.cli.app import run; run(); print([name for name in ('fastapi', 'uvicorn', 'torch', 'prometheus_client') if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True
    )
    assert done.stderr.strip() == "[]"
