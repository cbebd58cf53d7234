"""Sessions whose searches run in processes: forks on a CPU, and new processes for several devices (here "cpu" twice)."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broken_search import BrokenSearch
from held_search import held_until
from in_memory import line_translator
from untrained import sentence, write_untrained
from waiting import LIMIT, alive, wait_until

import nmt_cli.translation.device_processes as module
from nmt_cli.data.tokenizer import Vocabulary
from nmt_cli.errors import NmtError, UsageError
from nmt_cli.model.folder import load_model
from nmt_cli.recipe import DecodeSection
from nmt_cli.registry import SEARCHES
from nmt_cli.search.running import search_all
from nmt_cli.search.search import SamplingOptions
from nmt_cli.translation.confidence import DEFAULT
from nmt_cli.translation.device_processes import DeviceProcesses, Devices, Forks, WorkerDied
from nmt_cli.translation.line import Translation
from nmt_cli.translation.models import DeviceModels, Models, TorchModels, models_of, models_on
from nmt_cli.translation.pool import Client, PoolClosed
from nmt_cli.translation.translator import LineTranslator

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="processes search on Linux alone")]
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def few_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_SENTENCES", 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "one")


LINES = [sentence(random.Random(i), i % 14) if i % 9 else " " for i in range(60)]
LONG = [sentence(random.Random(1), 30)] * 500
SAMPLE: dict[str, Any] = {"search": "sample", "sampling": SamplingOptions(top_p=0.9)}


def over(models: Models, folder: Path, decode: dict[str, Any] | None = None, **more: Any) -> LineTranslator:
    vocabulary = Vocabulary.load(folder)
    options = DecodeSection.model_validate({"max_extra": 3, "batch_tokens": 200, **(decode or {})})
    return line_translator(models, vocabulary.source, vocabulary.target, options, **more)


def packed(folder: Path, workers: int) -> Models:
    return models_of([load_model(folder).model], "fp32", workers, workers)


def expected(folder: Path, **more: Any) -> list[Translation]:
    """By torch's decoder, in this thread."""
    some = over(TorchModels([load_model(folder).model], "fp32", 1, 1), folder, **more)
    prepared = some.prepare(LINES)
    return some.results(prepared, search_all(some.models, some.search, prepared.sentences))


def children() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid]


def gone(pids: list[int]) -> None:
    """Wait until these processes have ended."""
    wait_until(lambda: not any(map(alive, pids)))


KINDS: dict[str, Callable[[Path], Models]] = {
    "forks": lambda folder: TorchModels([load_model(folder).model], "fp32", 2, 2),
    "devices": lambda folder: DeviceModels([folder], "fp32", ["cpu", "cpu"]),
}
"""Workers that are processes, for any search."""


@pytest.fixture(params=KINDS)
def models(request: pytest.FixtureRequest, folder: Path) -> Iterator[Models]:
    with closing(KINDS[request.param](folder)) as one:
        yield one


@pytest.fixture(scope="module")
def devices(folder: Path) -> Iterator[DeviceModels]:
    """Two processes for many tests."""
    with closing(DeviceModels([folder], "fp32", ["cpu", "cpu"])) as one:
        yield one


def test_plain_beam_search_has_threads_and_what_runs_in_python_has_processes(folder: Path) -> None:
    for workers, more, kind in (
        (2, {}, Client),
        (1, {"search": "diverse"}, Client),
        (2, {"search": "diverse"}, Forks),
        (2, {"constraints": {"no_repeat_ngram": 2}}, Forks),
    ):
        some = over(packed(folder, workers), folder, **more)
        with closing(some.models.client(some.search)) as client:
            assert type(client) is kind


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "all that a result has": {"nbest": 2, "align": True, "calibration": DEFAULT},
    "samples": SAMPLE,
    "minimum Bayes risk": {"search": "mbr"},
    "constraints": {"constraints": {"banned_words": ["the", "cat"], "outputs": ["the big dog", "a cat", "then"]}},
}


@pytest.mark.parametrize("case", CASES)
def test_every_option_reaches_the_processes(case: str, folder: Path, devices: DeviceModels) -> None:
    one, two = (over(packed(folder, workers), folder, **CASES[case]) for workers in (1, 2))
    assert list(two.translate(iter(LINES * 3))) == list(one.translate(LINES)) * 3
    assert list(over(devices, folder, **CASES[case]).translate(iter(LINES))) == expected(folder, **CASES[case])


def test_processes_of_devices_are_kept(folder: Path, devices: DeviceModels) -> None:
    some = over(devices, folder)
    list(some.translate(LINES * 4))
    before = children()
    assert len(before) >= 2
    first, second = some.translate(iter(LINES)), some.translate(iter(LINES))
    assert [*first] == [*second] == expected(folder)
    assert children() == before


@pytest.mark.parametrize(
    ("search", "error", "said"),
    [
        ("BrokenSearch", ValueError, "cut"),
        ("UnsendableSearch", NmtError, "Unsendable: 1 and 2"),
        ("EndingSearch", SystemExit, "ended"),
    ],
)
def test_an_error_of_the_search_is_raised(
    search: str, error: type[BaseException], said: str, models: Models, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that cannot be sent, and one that would end a thread."""
    monkeypatch.setitem(SEARCHES, "broken", f"broken_search:{search}")
    with pytest.raises(error, match=said):
        list(over(models, folder, search="broken").translate(LINES))


def test_a_process_that_dies_is_named_and_replaced(
    models: Models, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = held_until(monkeypatch, tmp_path, "held")
    before = children()
    results = over(models, folder, search="held").translate(iter([" "] * 64 + LONG))
    next(results)  # of the first window, which has no sentence
    gate.begun()
    for pid in set(children()) - set(before):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match=r"a worker process died; perhaps the memory was full\. Give fewer --devices"):
        list(results)
    gate.open()  # a window that was read after the death is with the new processes
    assert list(over(models, folder).translate(LINES)) == expected(folder)


def test_closing_stops_it(models: Models, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = held_until(monkeypatch, tmp_path, "held")
    before = children()
    results = over(models, folder, search="held").translate(iter([" "] * 64 + LONG))
    next(results)
    gate.begun()
    results.close()
    if isinstance(models, DeviceModels):  # they go on with the group that they have
        gate.open()
    else:
        assert set(children()) <= set(before)
    assert list(over(models, folder).translate(LINES)) == expected(folder)


def test_a_process_that_dies_idle_ends_the_others(
    models: Models, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may have the lock for which the others wait."""
    gate, some = held_until(monkeypatch, tmp_path, "held"), over(models, folder, search="held")
    before, client = children(), models.client(some.search)
    client.submit(some.prepare(["the cat."] * 60).sentences).result(LIMIT)  # all processes are there
    own = set(children()) - set(before)
    found = client.submit(some.prepare(LONG[:3]).sentences)  # of one group
    [idle] = own - {gate.begun()}
    os.kill(idle, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        found.result(LIMIT)
    client.close()
    gone([*own])


def test_threads_that_close_at_once_take_turns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`concurrent.futures` would close its descriptors twice."""
    inside, most = list[int](), list[int]()
    shutdown = ProcessPoolExecutor.shutdown

    def slowly(self: ProcessPoolExecutor, *arguments: Any, **options: Any) -> None:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.1)
        shutdown(self, *arguments, **options)
        inside.pop()

    monkeypatch.setattr(ProcessPoolExecutor, "shutdown", slowly)
    with closing(KINDS["forks"](folder)) as models:
        some = over(models, folder, {"search": "diverse"})
        client = models.client(some.search)
        client.submit(some.prepare(LINES).sentences).result(LIMIT)
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(client.close) for _ in range(4)]:
                done.result(LIMIT)
    assert set(most) == {1}


def test_closing_in_another_thread_ends_who_waits_for_few_sentences(
    models: Models, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, some = held_until(monkeypatch, tmp_path, "held"), over(models, folder, search="held")
    client = models.client(some.search)
    found = client.submit(some.prepare(LONG[:2]).sentences)
    gate.begun()
    client.close()
    with pytest.raises(PoolClosed):
        found.result(LIMIT)
    with pytest.raises(PoolClosed):
        client.submit([])


def test_models_that_cannot_be_loaded_are_reported(folder: Path, devices: DeviceModels, tmp_path: Path) -> None:
    missing = DeviceProcesses(partial(models_on, [tmp_path / "missing"], "fp32"), ["cpu", "cpu"])
    client = Devices(devices.pool, devices, over(devices, folder).search, missing)
    with pytest.raises(NmtError, match=r"the worker process of 'cpu' cannot search: .*missing"), closing(client):
        client.submit(over(devices, folder).prepare(LINES).sentences).result()
    missing.close()


def test_what_cannot_be_sent_is_refused(folder: Path, devices: DeviceModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SEARCHES, "local", f"{__name__}:LOCAL_CLASS")
    with pytest.raises(UsageError, match=r"cannot be sent .* Define classes and functions of your own in a module"):
        list(over(devices, folder, search="local").translate(LINES))


LOCAL_CLASS = (lambda: type("Local", (BrokenSearch,), {}))()

SCRIPT = f"""
import sys
sys.path[:0] = [{str(TESTS / "translation")!r}, {str(TESTS / "support")!r}]
import pathlib
import test_processes as test
test.module.FEW_SENTENCES = 2

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    models = test.KINDS[sys.argv[2]](folder)
    some = test.over(models, folder)
    results = some.translate(iter(test.LINES * int(sys.argv[3])))
    print(next(results).source, flush=True)
    print(*test.children(), flush=True)
"""


@pytest.fixture
def script(tmp_path: Path, folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    programs: list[subprocess.Popen[str]] = []

    def start(kind: str, times: int, more: str, **options: Any) -> subprocess.Popen[str]:
        (tmp_path / "script.py").write_text(SCRIPT + more)
        command = [sys.executable, str(tmp_path / "script.py"), str(folder), kind, str(times)]
        programs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()
        program.communicate()


def pids_of(program: subprocess.Popen[str]) -> list[int]:
    assert program.stdout is not None
    assert program.stdout.readline() == f"{LINES[0]}\n"
    return [int(word) for word in program.stdout.readline().split()]


@pytest.mark.parametrize("ends", ["unread", "SIGINT", "SIGKILL"])
@pytest.mark.parametrize("kind", KINDS)
def test_processes_end_with_their_caller(kind: str, ends: str, script: Callable[..., subprocess.Popen[str]]) -> None:
    """Also where a script ends that keeps results unread."""
    unread = ends == "unread"
    program = script(kind, 400 if unread else 4000, "" if unread else "    list(results)", start_new_session=True)
    pids = pids_of(program)
    assert len(pids) == 2
    if unread:
        out, err = program.communicate(timeout=LIMIT)
        assert (program.returncode, out, err) == (0, "", "")
    elif ends == "SIGINT":  # as a terminal sends it: to all of them
        os.killpg(program.pid, signal.SIGINT)
        _, err = program.communicate(timeout=LIMIT)
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert err.count("Traceback") == 1
    else:
        program.kill()
    gone(pids)
