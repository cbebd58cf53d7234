"""`nmt serve` as a process: signals, the log, and what it refuses before it serves."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from held_search import PRELUDE, Gate
from in_process import unnamed
from served import Command, httpx, post, running
from untrained import write_untrained
from waiting import LIMIT

TEXT = "the cat sees a secret dog."


@pytest.mark.slow
def test_the_log_has_no_texts_and_sighup_loads_anew(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-secret-key\tanna\n", encoding="utf-8")
    values = {"q": TEXT, "source": "en", "target": "de"}
    with Command("--model", str(model), "--log", "json", "--keys", str(keys)) as command:
        before = post(f"{command.url}/translate", params={**values, "api_key": "a-secret-key"})
        assert before.status_code == 200
        command.process.send_signal(signal.SIGHUP)
        command.wait_for("the models were loaded anew")
        assert post(f"{command.url}/translate", params=values).status_code == 400
        command.process.terminate()
        assert command.end() == 143
    *logged, last = command.lines
    assert last == "stopped by SIGTERM"
    records = [json.loads(line) for line in logged]
    [request] = [record for record in records if record.get("status") == 200]
    expected = {"method": "POST", "path": "/translate", "pair": "en-de", "sentences": 1, "key": "anna"}
    assert request == request | expected | {"characters": len(TEXT)}
    assert not any("secret" in line for line in command.lines)


@contextmanager
def held(model: Path, folder: Path, *options: str) -> Iterator[tuple[Command, Gate, list[httpx.Response]]]:
    """Start a server that has a request whose translation the gate holds; its answer, if one comes, is there at the end."""
    gate, answers = Gate(folder), list[httpx.Response]()
    lines = [f"the cat sees {'a dog and ' * 10}a house {index}." for index in range(300)]
    with Command("--model", str(model), *options, prelude=PRELUDE, environment=gate.environment) as command:
        url = command.url

        def ask() -> None:
            with suppress(httpx.TransportError):
                answers.append(post(f"{url}/translate", json={"q": lines, "source": "en", "target": "de"}))

        client = threading.Thread(target=ask)
        client.start()
        gate.begun()
        yield command, gate, answers
    client.join(LIMIT)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_is_begun_is_answered_at_the_end(model: Path, tmp_path: Path, number: signal.Signals, status: int) -> None:
    with held(model, tmp_path, "--grace", str(LIMIT)) as (command, gate, answers):
        command.process.send_signal(number)
        command.wait_for("ending: 1 requests are under way")
        gate.open()
        assert command.end() == status
    assert [(answer.status_code, len(answer.json()["translatedText"])) for answer in answers] == [(200, 300)]


def test_what_takes_longer_than_the_grace_is_refused(model: Path, tmp_path: Path) -> None:
    with held(model, tmp_path, "--grace", "1") as (command, _, answers):
        command.process.terminate()
        assert command.end() == 143
    assert [answer.status_code for answer in answers] in ([], [503])


def test_what_is_refused_before_serving(model: Path, workdir: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr("nmt_cli.serving.logs.configure", lambda form: None)  # loggers of the whole process
    for name, keys in {"short": "# a key\nabc\n", "twice": "long-enough\nlong-enough x\n", "empty": "\n"}.items():
        Path(name).write_text(keys, encoding="utf-8")
    write_untrained(workdir / "twin", seed=5)
    serve = f"serve --device cpu --model {model}"
    usage = """
        --model twin --port 0 → one model for each language pair
        --host 0.0.0.0 → other machines
        --keys short → 'short', line 2 & at least 8 characters
        --keys twice → 'twice', line 2
        --keys short --no-keys → both given
        --log xml → plain or json
        --set train.updates=3 → decode.KEY=VALUE
        --beam 0 --port 0 → beam
        --processes 2 --quota 5 → --quota and --processes"""
    data = """
        --model none → none
        --host 192.0.2.1 --no-keys → address of this machine
        --keys no-file → no-file
        --keys empty → 'empty'
        --beam 0 --port 0 --processes 2 → one of its processes could not start
        --model missing --port 0 --processes 2 → 'missing'"""
    assert unnamed(serve, usage) + unnamed(serve, data, code=1) == []
    assert "decode.beam = 0" in capfd.readouterr().err  # said by the process that could not start
    with running(model) as one:
        port = one.url.rpartition(":")[2]
        assert unnamed(serve, f"--port {port} → {port} is in use", code=1) == []


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt_cli.cli.serve.find_spec", lambda name: None if name == "fastapi" else name)
    assert unnamed("serve", "--model x → fastapi & pip install & 'fastapi>=0.115'") == []
