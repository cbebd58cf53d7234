"""`nmt serve --processes N`: processes that die are replaced, and clients lose only what those had."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from served import Command, get, httpx, post
from untrained import sentence, write_untrained
from waiting import LIMIT, alive, wait_until

import nmt_cli as nmt

KILLS = 4
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "en-de")


def servers(command: Command) -> list[int]:
    """The processes that serve."""
    tasks = Path(f"/proc/{command.process.pid}/task").glob("*/children")
    children = [int(number) for task in tasks for number in task.read_text(encoding="ascii").split()]
    return sorted(pid for pid in children if b"spawn_main" in command_line(pid))


def command_line(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def translate(url: str, text: str) -> httpx.Response:
    return post(f"{url}/translate", json={"q": text, "source": "en", "target": "de"})


def started(command: Command, processes: int) -> str:
    """Wait until all processes serve. Return the address."""
    url = command.url
    wait_until(lambda: sum("loaded in" in line for line in command.lines) >= processes)
    wait_until(lambda: get(f"{url}/health").status_code == 200)
    return url


def test_kills_under_load_lose_only_what_the_process_had(model: Path) -> None:
    """Clients see closed connections and send again; all answers are right."""
    rng = random.Random(1)
    lines = [sentence(rng, rng.randint(1, 20)) for _ in range(40)]
    with nmt.load(model, device="cpu", devices=1) as translator:
        expected = {line: found.text for line, found in zip(lines, translator.translate(lines), strict=True)}
    wrong: list[object] = []
    lost, answered, stop = [0], [0], threading.Event()

    def client(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            line = rng.choice(lines)
            try:
                answer = translate(url, line)
            except httpx.TransportError:  # the connection was closed
                lost[0] += 1
                continue
            if answer.status_code != 200 or answer.json()["translatedText"] != expected[line]:
                wrong.append((line, answer.text))
            answered[0] += 1

    with Command("--model", str(model), "--processes", "2") as command:
        url = started(command, 2)
        clients = [threading.Thread(target=client, args=(seed,)) for seed in range(4)]
        for thread in clients:
            thread.start()
        for kill in range(KILLS):
            before, goal = servers(command), answered[0] + 20
            wait_until(lambda goal=goal: answered[0] >= goal)
            os.kill(before[kill % 2], signal.SIGKILL)
            wait_until(lambda before=before: len(set(servers(command)) - set(before)) == 1)
            wait_until(lambda kill=kill: sum("loaded in" in line for line in command.lines) >= 3 + kill)
        stop.set()
        for thread in clients:
            thread.join(LIMIT)
        assert wrong == []
        assert lost[0] <= KILLS * len(clients)
        assert "nmt_processes 2.0" in get(f"{url}/metrics").text
        pids = servers(command)
        command.process.terminate()
        assert command.end() == 143
        assert not any(map(alive, pids))
        assert not any("Traceback" in line for line in command.lines)


def test_sighup_replaces_the_processes_one_after_another_and_clients_lose_nothing(model: Path) -> None:
    """Half of the clients open a connection for each request, the others keep theirs."""
    failed: list[object] = []
    stop = threading.Event()

    def client(number: int) -> None:
        with httpx.Client(timeout=LIMIT) as kept:
            while not stop.is_set():
                ask = post if number % 2 else kept.post
                try:
                    answer = ask(f"{url}/translate", json={"q": "the cat.", "source": "en", "target": "de"})
                except httpx.TransportError as error:
                    failed.append(error)
                    continue
                if answer.status_code != 200:
                    failed.append(answer.text)

    with Command("--model", str(model), "--processes", "2") as command:
        url = started(command, 2)
        clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
        for thread in clients:
            thread.start()
        before = servers(command)
        command.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(servers(command)) == 2 and not set(servers(command)) & set(before))
        stop.set()
        for thread in clients:
            thread.join(LIMIT)
        command.process.send_signal(signal.SIGINT)
        assert command.end() == 130
    assert failed == []


def test_processes_end_with_a_supervisor_that_is_killed(model: Path) -> None:
    with Command("--model", str(model), "--processes", "2") as command:
        started(command, 2)
        pids = servers(command)
        command.process.kill()
        for pid in pids:
            wait_until(lambda pid=pid: not alive(pid))


def test_a_file_that_one_process_translates_is_found_by_all_until_the_end(model: Path, tmp_path: Path) -> None:
    with Command("--model", str(model), "--processes", "2", environment={"TMPDIR": str(tmp_path)}) as command:
        url = started(command, 2)
        sent = {"source": "en", "target": "de"}
        answer = post(f"{url}/translate_file", data=sent, files={"file": ("a.txt", b"the cat.")})
        for pid in servers(command):
            with stopped(pid):
                found = get(answer.json()["translatedFileUrl"])
            assert found.text == translate(url, "the cat.").json()["translatedText"]
        command.process.terminate()
        assert command.end() == 143
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_several_reloads_that_wait_are_one_and_an_end_comes_before_them(model: Path, number: signal.Signals) -> None:
    @contextmanager
    def many_reloads() -> Iterator[list[int]]:
        """Ask for one, and for more while it waits for its first process, which is held. Yield all processes."""
        before = servers(command)
        command.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(servers(command)) == 3)
        [new] = set(servers(command)) - set(before)
        with stopped(new):
            for _ in range(20):
                command.process.send_signal(signal.SIGHUP)
                wait_until(lambda: all(int(mask, 16) == 0 for mask in pending(command)))
            yield [*before, new]

    def loaded() -> int:
        return sum("loaded in" in line for line in command.lines)

    with Command("--model", str(model), "--processes", "2") as command:
        started(command, 2)
        with many_reloads():
            pass
        wait_until(lambda: loaded() == 6 and len(servers(command)) == 2)
        with many_reloads() as pids:
            command.process.send_signal(number)
            assert command.end() == 128 + number
        assert loaded() <= 7
        assert not any(map(alive, pids))


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def pending(command: Command) -> list[str]:
    """The signals that a process was sent and has not taken."""
    status = Path(f"/proc/{command.process.pid}/status").read_text(encoding="ascii").splitlines()
    return [line.split()[1] for line in status if line.startswith(("SigPnd:", "ShdPnd:"))]
