"""`Translator.submit` over a `Service`: the translations of `translate`, whoever else asks; cancelled, killed and closed."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from engine_switch import without_engine
from held_search import PRELUDE, Gate, held_until
from untrained import sentence, write_untrained
from waiting import LIMIT, alive, wait_until

import nmt_cli as nmt
from nmt_cli.decoding import spawned
from nmt_cli.decoding.batches import Batch
from nmt_cli.decoding.service import ServiceClosed
from nmt_cli.decoding.service_worker import Drop, PipeInbox
from nmt_cli.decoding.workers import RunningSearch

OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 3, "nbest": 3},
    {"alignment": True},
    {"confidence": True},
    {"sample": True, "seed": 7},
    {"search": "mbr", "mbr_samples": 4},
]
forking = pytest.mark.skipif(sys.platform != "linux", reason="workers are processes on Linux only")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "one", max_extra=20)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    rng = random.Random(1)
    return [sentence(rng, rng.randint(1, 60)) if number % 9 != 4 else "" for number in range(24)]


@pytest.fixture(params=[("int8", 2), ("fp32", 2), ("fp32", 1)], ids=lambda values: f"{values[0]}-{values[1]}")
def translator(model: Path, request: pytest.FixtureRequest) -> Iterator[nmt.Translator]:
    precision, devices = request.param
    with nmt.load(model, precision=precision, device="cpu", devices=devices) as loaded:
        yield loaded


@pytest.fixture
def one(model: Path) -> Iterator[nmt.Translator]:
    with nmt.load(model, precision="fp32", device="cpu", devices=1) as loaded:
        yield loaded


def processes(translator: nmt.Translator) -> list[int]:
    """The process ids of the workers."""
    return [remote._process.process.pid for remote in translator.service._workers]  # type: ignore[attr-defined]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gate:
    """It holds the sentences of `long_work`, in models that are loaded after it."""
    return held_until(monkeypatch, tmp_path)


@pytest.fixture
def holding(gate: Gate, one: nmt.Translator) -> nmt.Translator:
    """One worker whose searches the gate holds."""
    return one


def long_work(translator: nmt.Translator, seed: int = 2) -> Future[list[nmt.Translation]]:
    """A request of more sentences than a worker takes at once. It is not done before the gate opens."""
    rng = random.Random(seed)
    return translator.submit([sentence(rng, 38) for _ in range(100)], beam=8, max_extra=20)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_translations_are_those_of_translate(
    translator: nmt.Translator, lines: list[str], options: dict[str, Any]
) -> None:
    assert translator.submit(lines, **options).result() == translator.translate(lines, **options)


def test_they_are_the_same_under_load(translator: nmt.Translator, lines: list[str]) -> None:
    expected = [translator.translate(lines, **options) for options in OPTIONS[:5]]
    wrong: list[object] = []

    def client(number: int) -> None:
        rng = random.Random(number)
        for _ in range(3):
            which, chosen = rng.randrange(5), rng.sample(range(len(lines)), rng.choice([1, 1, 2, 9]))
            found = translator.submit([lines[i] for i in chosen], **OPTIONS[which]).result(LIMIT)
            wrong.extend((which, i) for i, one in zip(chosen, found, strict=True) if one != expected[which][i])

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert wrong == []
    assert (translator.service.waiting, translator.service.running) == (0, 0)


def test_lines_without_sentences(one: nmt.Translator) -> None:
    assert [translation.text for translation in one.submit(["", "  "]).result()] == ["", ""]
    assert one.submit([]).result() == []


def test_prefixes_and_terms(one: nmt.Translator) -> None:
    given = [nmt.Line("the cat.", prefix="a dog"), nmt.Line("a house.", terms=["red"])]
    found = one.submit(given).result()
    assert found == one.translate(given)
    assert found[0].text.startswith("a dog")


def test_wrong_options_are_named_at_once(one: nmt.Translator) -> None:
    for call, text in (
        (lambda: one.submit("a text"), "expected a list of lines"),
        (lambda: one.submit(["a\nb"]), "contains a line end"),
        (lambda: one.submit(["a"], beam=0), "beam"),
    ):
        with pytest.raises(nmt.NmtError, match=text):
            call()


def test_a_single_sentence_does_not_wait_for_a_document(holding: nmt.Translator, gate: Gate) -> None:
    document = long_work(holding)
    gate.begun()
    for _ in range(3):
        holding.submit(["the cat sees a dog."], beam=8, max_extra=20).result(LIMIT)
        assert not document.done()
    gate.open()
    assert len(document.result(LIMIT)) == 100


def test_cancelled_work_is_dropped(holding: nmt.Translator, gate: Gate) -> None:
    one, document = holding, long_work(holding)
    gate.begun()
    assert document.cancel()
    assert (one.service.waiting, one.service.running) == (0, 0)
    with pytest.raises(CancelledError):
        document.result()
    before = one.service.counts.sentences
    [found] = one.submit(["the cat."]).result(LIMIT)
    assert found.text == "the cat."
    assert one.service.counts.sentences == before + 1


@forking
def test_a_worker_that_dies_is_replaced_and_its_work_is_done_again(model: Path, lines: list[str]) -> None:
    with nmt.load(model, precision="fp32", device="cpu", devices=2) as translator:
        expected = translator.translate(lines, beam=8)
        os.kill(processes(translator)[0], signal.SIGSTOP)  # what it gets it has until it is killed
        many = [translator.submit(lines, beam=8) for _ in range(10)]
        os.kill(processes(translator)[0], signal.SIGKILL)
        assert [future.result(LIMIT) for future in many] == [expected] * 10
        wait_until(lambda: translator.service.counts.restarts == 1)
        os.kill(processes(translator)[1], signal.SIGKILL)  # one that has nothing to do
        wait_until(lambda: translator.service.counts.restarts == 2)
        assert translator.submit(lines, beam=8).result(LIMIT) == expected


@forking
def test_what_kills_two_workers_fails(holding: nmt.Translator) -> None:
    one, document = holding, long_work(holding)
    for restarts in range(2):
        wait_until(lambda: one.service.counts.restarts == restarts and one.service.running)  # noqa: B023
        assert not document.done()
        os.kill(processes(one)[0], signal.SIGKILL)
    with pytest.raises(nmt.NmtError, match="killed by signal 9"):
        document.result(LIMIT)
    assert one.service.counts.restarts == 2
    assert one.submit(["the cat."]).result(LIMIT)


def test_closing_ends_what_is_not_done(holding: nmt.Translator) -> None:
    translator = holding
    document = long_work(translator)
    workers = processes(translator) if sys.platform == "linux" else []
    assert not translator.finish(0.05)
    with pytest.raises(ServiceClosed):
        document.result(LIMIT)
    with pytest.raises(ServiceClosed):
        translator.submit(["the cat."])
    translator.close()
    for pid in workers:
        wait_until(lambda: not alive(pid))  # noqa: B023


CALLER = f"""
import sys
{PRELUDE}
import nmt_cli as nmt
translator = nmt.load(sys.argv[1], precision="fp32", device="cpu", devices=2)
translator.submit(["the cat."]).result(600)
future = translator.submit(["the cat sees the dog " * 9] * 500, beam=30) if sys.argv[2] == "busy" else None
print(*[remote._process.process.pid for remote in translator.service._workers], flush=True)
sys.stdin.read()
"""


@forking
@pytest.mark.parametrize("state", ["idle", "busy"])
def test_workers_end_when_the_process_that_started_them_is_killed(model: Path, state: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, str(model), state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **gate.environment},
    ) as caller:
        assert caller.stdout
        workers = [int(pid) for pid in caller.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(alive, workers))
        if state == "busy":
            gate.begun()
        caller.kill()
    for pid in workers:
        wait_until(lambda: not alive(pid))  # noqa: B023


def test_finishing_waits_for_what_is_under_way(one: nmt.Translator, lines: list[str]) -> None:
    future = one.submit(lines)
    assert one.finish(LIMIT)
    assert len(future.result(0)) == len(lines)


@forking
def test_a_sentence_whose_search_fails_fails_alone(one: nmt.Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    add = RunningSearch.add

    def failing(self: RunningSearch, batch: Batch) -> None:
        add(self, batch)
        if any(len(sentence.tokens) > 12 for sentence in batch.sentences):
            raise ValueError("too long for this test")

    monkeypatch.setattr(RunningSearch, "add", failing)  # before the worker is forked
    rng = random.Random(0)
    good, bad = one.submit(["the cat."]), one.submit([sentence(rng, 20)])
    assert len(good.result(LIMIT)) == 1
    with pytest.raises((ValueError, nmt.NmtError), match="too long for this test"):
        bad.result(LIMIT)


def test_of_several_devices_with_processes_of_their_own_the_first_is_used(
    model: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawned, "need_processes", lambda devices: len(devices) > 1)
    without_engine(monkeypatch)
    with nmt.load(model, precision="fp32", device="cpu", devices=2) as loaded:
        assert loaded.submit(lines[:5]).result(LIMIT) == loaded.translate(lines[:5])
        assert len(loaded.service._workers) == 1


@forking
def test_messages_through_a_pipe_come_in_order_and_then_the_end() -> None:
    near, far = multiprocessing.Pipe()
    inbox = PipeInbox(far)
    with pytest.raises(Empty):
        inbox.get_nowait()
    for number in range(3):
        near.send(Drop([number]))
    assert [inbox.get(), inbox.get_nowait()] == [Drop([0]), Drop([1])]
    near.close()
    assert [inbox.get(), inbox.get(), inbox.get()] == [Drop([2]), None, None]


@forking
def test_who_sends_much_does_not_wait_for_the_end_of_a_long_step() -> None:
    near, far = multiprocessing.Pipe()
    inbox, much = PipeInbox(far), 100
    sender = threading.Thread(
        target=lambda: [near.send(Drop(list(range(20_000)))) for _ in range(much)], daemon=True
    )  # far more than a pipe holds
    sender.start()
    sender.join(LIMIT)
    assert not sender.is_alive()
    near.send(Drop([1]))
    messages = [inbox.get() for _ in range(much + 1)]
    assert messages[-1] == Drop([1])
    assert all(isinstance(message, Drop) and len(message.numbers) == 20_000 for message in messages[:-1])
