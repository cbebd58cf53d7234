"""`nmt serve --processes N`: processes that die are replaced, and clients lose only what those had."""

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from served import Command, get, httpx, post
from untrained import sentence
from waiting import LIMIT, alive, wait_until

import nmt_cli as nmt

KILLS = 4
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")]


def servers(command: Command) -> list[int]:
    """The processes that serve."""
    tasks = Path(f"/proc/{command.process.pid}/task").glob("*/children")
    children = [int(number) for task in tasks for number in task.read_text(encoding="ascii").split()]
    found = []
    for pid in children:
        with suppress(OSError):  # it has ended
            found += [pid] * (b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return sorted(found)


def translate(url: str, text: str) -> httpx.Response:
    return post(f"{url}/translate", json={"q": text, "source": "en", "target": "de"})


@contextmanager
def started(model: Path, *options: str, **environment: str) -> Iterator[tuple[Command, str]]:
    """Two processes that serve, and their address."""
    with Command("--model", str(model), "--processes", "2", *options, environment=environment) as command:
        url = command.url
        wait_until(lambda: loaded(command) >= 2)
        wait_until(lambda: get(f"{url}/health").status_code == 200)
        yield command, url


def loaded(command: Command) -> int:
    return sum("loaded in" in line for line in command.lines)


@dataclass
class Seen:
    """What clients have seen."""

    answered: int = 0
    lost: int = 0
    wrong: list[object] = field(default_factory=list)


@contextmanager
def clients(url: str, expected: dict[str, str]) -> Iterator[Seen]:
    """Four clients send lines until the block ends. Two open a connection for each, the others keep theirs."""
    seen, stop = Seen(), threading.Event()

    def client(number: int) -> None:
        rng = random.Random(number)
        with httpx.Client(timeout=LIMIT) as kept:
            while not stop.is_set():
                line = rng.choice([*expected])
                values = {"q": line, "source": "en", "target": "de"}
                try:
                    answer = (post if number % 2 else kept.post)(f"{url}/translate", json=values)
                except httpx.TransportError:  # the connection was closed
                    seen.lost += 1
                    continue
                if answer.status_code != 200 or answer.json()["translatedText"] != expected[line]:
                    seen.wrong.append((line, answer.text))
                seen.answered += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    yield seen
    stop.set()
    for thread in threads:
        thread.join(LIMIT)


@pytest.fixture(scope="module")
def expected(translator: nmt.Translator) -> dict[str, str]:
    rng = random.Random(1)
    lines = [sentence(rng, rng.randint(1, 20)) for _ in range(40)]
    return {line: found.text for line, found in zip(lines, translator.translate(lines), strict=True)}


def test_kills_under_load_lose_only_what_the_process_had(model: Path, expected: dict[str, str]) -> None:
    """Clients see closed connections and send again; all answers are right."""
    with started(model, "--precision", "fp32") as (command, url):
        with clients(url, expected) as seen:
            for kill in range(KILLS):
                before, goal = servers(command), seen.answered + 20
                wait_until(lambda goal=goal: seen.answered >= goal)
                os.kill(before[kill % 2], signal.SIGKILL)
                wait_until(lambda before=before: len(set(servers(command)) - set(before)) == 1)
                wait_until(lambda kill=kill: loaded(command) >= 3 + kill)
        assert seen.wrong == []
        assert seen.lost <= 4 * KILLS
        assert "nmt_processes 2.0" in get(f"{url}/metrics").text
        pids = servers(command)
        command.process.terminate()
        assert command.end() == 143
        assert not any(map(alive, pids))
        assert not any("Traceback" in line for line in command.lines)


def test_sighup_replaces_processes_in_turn_and_clients_lose_nothing(model: Path, expected: dict[str, str]) -> None:
    with started(model, "--precision", "fp32") as (command, url):
        before = servers(command)
        with clients(url, expected) as seen:
            command.process.send_signal(signal.SIGHUP)
            wait_until(lambda: len(servers(command)) == 2 and not set(servers(command)) & set(before))
        command.process.send_signal(signal.SIGINT)
        assert command.end() == 130
    assert (seen.lost, seen.wrong) == (0, [])


def test_processes_end_with_a_supervisor_that_is_killed(model: Path) -> None:
    with started(model) as (command, _):
        pids = servers(command)
        command.process.kill()
        for pid in pids:
            wait_until(lambda pid=pid: not alive(pid))


def test_a_file_that_one_process_translates_is_found_by_all_until_the_end(model: Path, tmp_path: Path) -> None:
    with started(model, TMPDIR=str(tmp_path)) as (command, url):
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

    with started(model) as (command, _):
        with many_reloads():
            pass
        wait_until(lambda: loaded(command) == 6 and len(servers(command)) == 2)
        with many_reloads() as pids:
            command.process.send_signal(number)
            assert command.end() == 128 + number
        assert loaded(command) <= 7
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
