"""`Translator.submit` over a `Pool`: the translations of `translate`, whoever else asks; cancelled, failed, forked and closed."""

import gc
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import pytest
from engine_switch import without_engine
from held_search import Gate, held_until
from small_models import needs_engine
from untrained import sentence, write_untrained
from waiting import LIMIT, wait_until

import nmt_cli as nmt
from nmt_cli.interface import loading
from nmt_cli.search.running import RunningSearch
from nmt_cli.translation.models import EngineModels, TorchModels
from nmt_cli.translation.pool import PoolClosed

OPTIONS: list[dict[str, Any]] = [
    {},
    {"beam": 3, "nbest": 3},
    {"alignment": True},
    {"confidence": True},
    {"sample": True, "seed": 7},
    {"search": "mbr", "mbr_samples": 4},
]


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


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gate:
    """It holds the sentences of `long_work`, in models that are loaded after it."""
    return held_until(monkeypatch, tmp_path)


def long_work(translator: nmt.Translator, seed: int = 2) -> Future[list[nmt.Translation]]:
    """A request of more sentences than a worker takes at once. It is not done before the gate opens."""
    rng = random.Random(seed)
    return translator.submit([sentence(rng, 38) for _ in range(100)], beam=8, max_extra=20)


def test_they_are_those_of_translate_also_under_load(translator: nmt.Translator, lines: list[str]) -> None:
    expected = [translator.translate(lines, **options) for options in OPTIONS]
    assert [translator.submit(lines, **options).result(LIMIT) for options in OPTIONS] == expected
    wrong: list[object] = []

    def client(number: int) -> None:
        rng = random.Random(number)
        for _ in range(4):
            which, chosen = rng.randrange(5), rng.sample(range(len(lines)), rng.choice([1, 1, 2, 9]))
            given = [lines[i] for i in chosen]
            if number % 2 and which < 2:
                found = translator.translate(given, **OPTIONS[which])
            else:
                found = translator.submit(given, **OPTIONS[which]).result(LIMIT)
            wrong.extend((which, i) for i, one in zip(chosen, found, strict=True) if one != expected[which][i])

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert wrong == []
    wait_until(lambda: (translator.pool.waiting, translator.pool.running) == (0, 0))


def test_requests_without_sentences_with_prefixes_and_with_terms(one: nmt.Translator) -> None:
    assert [translation.text for translation in one.submit(["", "  "]).result()] == ["", ""]
    assert one.submit([]).result() == []
    given = [nmt.Line("the cat.", prefix="a dog"), nmt.Line("a house.", terms=["red"])]
    found = one.submit(given).result()
    assert found == one.translate(given)
    assert found[0].text.startswith("a dog")


@needs_engine
def test_a_single_sentence_does_not_wait_for_a_document(gate: Gate, one: nmt.Translator) -> None:
    document = long_work(one)
    gate.begun()
    for _ in range(3):
        one.submit(["the cat sees a dog."], beam=8, max_extra=20).result(LIMIT)
        assert not document.done()
    gate.open()
    assert len(document.result(LIMIT)) == 100


@needs_engine
def test_cancelled_work_is_dropped(gate: Gate, one: nmt.Translator) -> None:
    document = long_work(one)
    gate.begun()
    assert document.cancel()
    assert one.pool.waiting == 0
    wait_until(lambda: one.pool.running == 0)
    with pytest.raises(CancelledError):
        document.result()
    before = one.pool.tokens
    [found] = one.submit(["the cat."], beam=8, max_extra=20).result(LIMIT)
    assert found.text == "the cat."
    assert one.pool.tokens == before + found.length


@pytest.mark.usefixtures("gate")
def test_closing_ends_what_is_not_done(one: nmt.Translator) -> None:
    before = set(threads())
    document = long_work(one)
    assert not one.finish(0.05)
    with pytest.raises(PoolClosed):
        document.result(LIMIT)
    with pytest.raises(PoolClosed):
        one.submit(["the cat."])
    assert set(threads()) <= before


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "nmt-worker"]


def test_a_translator_that_nobody_has_ends_its_threads(model: Path) -> None:
    before = set(threads())
    translator = nmt.load(model, precision="fp32", device="cpu", devices=2)
    translator.submit(["the cat."]).result(LIMIT)
    assert len(set(threads()) - before) == 2
    del translator
    gc.collect()
    wait_until(lambda: set(threads()) <= before)  # a thread may have been the last that had the pool


CALLER = """
import sys
import nmt_cli as nmt
translator = nmt.load(sys.argv[1], device="cpu", devices=2)
print(translator.submit(["the cat."]).result(600)[0].text and "", flush=True)
future = translator.submit(["the cat sees the dog " * 9] * 500, beam=30)
"""


def test_python_ends_while_threads_work(model: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CALLER, str(model)], capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_finishing_waits_until_results_are_there(one: nmt.Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is done a moment before its result is set: `finish` in between must not take it away."""
    [expected] = one.translate(["a cat."])
    finished, begun = threading.Event(), threading.Event()

    class Late(Future[Any]):
        def set_result(self, result: Any) -> None:
            begun.set()
            finished.wait(0.3)
            super().set_result(result)

    monkeypatch.setattr("nmt_cli.translation.pool.Future", Late)
    found = one.submit(["a cat."])
    assert begun.wait(LIMIT)
    one.finish(LIMIT)
    finished.set()
    assert found.result(LIMIT) == [expected]


@pytest.mark.parametrize("method", ["add", "step"])
def test_a_sentence_that_fails_fails_alone(one: nmt.Translator, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Sentences that are searched with it are searched again, and have their results."""
    original, rng = getattr(RunningSearch, method), random.Random(0)

    def failing(self: RunningSearch[Any], *arguments: Any) -> Any:
        result = original(self, *arguments)
        if any(len(sentence.tokens) > 12 for sentence in self.sentences.values()):
            raise ValueError("too long for this test")
        return result

    good = [sentence(rng, rng.randint(1, 3)) for _ in range(20)]
    expected = one.translate(good)
    monkeypatch.setattr(RunningSearch, method, failing)
    futures = [one.submit([line]) for line in good[:10]]
    bad = one.submit([good[0], sentence(rng, 20), good[1]])
    futures += [one.submit([line]) for line in good[10:]]
    with pytest.raises(ValueError, match="too long for this test"):
        bad.result(LIMIT)
    assert [future.result(LIMIT)[0] for future in futures] == expected
    wait_until(lambda: (one.pool.waiting, one.pool.running) == (0, 0))


def test_a_search_that_cannot_be_made_fails_its_requests(one: nmt.Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no search")

    with monkeypatch.context() as patched:
        for models in (EngineModels, TorchModels):
            patched.setattr(models, "new_search", broken)
        with pytest.raises(ValueError, match="no search"):
            one.submit(["the cat.", "a dog."]).result(LIMIT)
        with pytest.raises(ValueError, match="no search"):
            one.translate(["the cat."])
    assert one.submit(["the cat."]).result(LIMIT)
    wait_until(lambda: (one.pool.waiting, one.pool.running) == (0, 0))


def test_of_several_devices_the_first_is_used(model: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "workers_on", lambda *_: ["cpu", "cpu:0"])
    without_engine(monkeypatch)
    with nmt.load(model, precision="fp32", device="cpu") as loaded:
        assert loaded.submit(lines[:5]).result(LIMIT) == loaded.translate(lines[:5])
        assert loaded.pool.workers == 1


def test_threads_that_the_system_does_not_start(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of two threads all is done; without any the error is named."""
    start, allowed = threading.Thread.start, [1]

    def scarce(self: threading.Thread) -> None:
        if self.name == "nmt-worker":
            if not allowed:
                raise RuntimeError("can't start new thread")
            allowed.pop()
        start(self)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    with nmt.load(model, precision="fp32", device="cpu", devices=2) as translator:
        given = ["the cat."] * 40
        assert translator.submit(given).result(LIMIT) == translator.translate(given)
    with nmt.load(model, precision="fp32", device="cpu", devices=2) as translator, pytest.raises(nmt.NmtError) as error:
        translator.submit(["the cat."])
    assert "the system starts no thread for the search" in str(error.value)
