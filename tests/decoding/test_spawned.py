"""Workers in new processes, on the CPU: what several GPUs get."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from broken_search import BrokenSearch
from engine_switch import without_engine
from few_words import model, sentence, tokenizer
from held_search import held_until
from waiting import LIMIT, alive, wait_until

from nmt_cli.decoding import pool, spawned
from nmt_cli.decoding.batches import Batch, BatchQueue
from nmt_cli.decoding.model_workers import ConvertedModels
from nmt_cli.decoding.search import SamplingOptions
from nmt_cli.decoding.sending import SharedModels, tensors_of, with_weights
from nmt_cli.decoding.sentence import Sentence
from nmt_cli.decoding.spawned import ProcessPool, need_processes
from nmt_cli.decoding.translator import Result, Translator
from nmt_cli.errors import NmtError, UsageError
from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe import DecodeSection, ModelSection
from nmt_cli.registry import SEARCHES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes are started on Linux alone")
TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "cpu" twice are two devices that are not the host."""
    monkeypatch.setattr(spawned, "need_processes", lambda devices: len(devices) > 1)
    monkeypatch.setattr(pool, "FEW_SENTENCES", 2)
    without_engine(monkeypatch)


@cache
def lines() -> list[str]:
    rng = random.Random(7)
    return [sentence(rng, rng.choice([0, 1, 2, 3, 5, 8, 13])) if i % 9 else " " for i in range(60)]


@cache
def second_model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(
        ModelSection(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=64, num_heads=2, max_positions=64),
        tokenizer().vocab_size,
        tokenizer().vocab_size,
    ).eval()


@cache
def converted() -> ConvertedModels:
    """One pair of processes for many tests."""
    return ConvertedModels.of([model()], "fp32", ["cpu", "cpu"], 1)


def translator(devices: int = 2, models: Any = None, decode: dict[str, Any] | None = None, **more: Any) -> Translator:
    options = DecodeSection.model_validate({"max_extra": 3, "batch_tokens": 200, **(decode or {})})
    return Translator(models or model(), tokenizer(), tokenizer(), options, devices=["cpu"] * devices, **more)


def shared_translator(**more: Any) -> Translator:
    return translator(models=converted(), **more)


@cache
def expected() -> list[Result]:
    return list(translator(1).translate(lines()))


def processes(some: Translator) -> list[int]:
    assert some.pool.processes is not None
    return sorted(process.new.pid for process in some.pool.processes._running)


def gone(pids: list[int]) -> None:
    """Wait until these processes have ended."""
    wait_until(lambda: not any(map(alive, pids)))


def test_only_several_devices_that_are_not_the_host_need_processes() -> None:
    assert need_processes(["cuda:0", "cuda:1"])
    assert not need_processes(["cuda:0"])
    assert not need_processes(["cpu", "cpu"])
    assert not need_processes(["cuda:0", "cpu"])


def test_translations_are_the_same_and_processes_are_kept() -> None:
    some = shared_translator()
    assert list(some.translate(lines())) == expected()
    first = processes(some)
    assert len(first) == 2
    assert list(some.translate(iter(lines()))) == expected()
    assert processes(some) == first


CASES: dict[str, dict[str, Any]] = {
    "all that a result has": {"nbest": 2, "align": True, "token_log_probs": True},
    "samples": {"search": "sample", "sampling": SamplingOptions(top_p=0.9)},
    "minimum Bayes risk": {"search": "mbr"},
    "a coverage penalty": {"decode": {"coverage_penalty": 0.2}},
    "constraints": {"constraints": {"banned_words": ["the", "cat"], "outputs": ["the big dog", "a cat", "then"]}},
}


@pytest.mark.parametrize("case", CASES)
def test_every_option_reaches_the_processes(case: str) -> None:
    given = CASES[case]
    assert list(shared_translator(**given).translate(lines())) == list(translator(1, **given).translate(lines()))


def test_an_ensemble_in_int8_reaches_the_processes() -> None:
    given: dict[str, Any] = {"models": [model(), second_model()], "precision": "int8"}
    assert list(translator(**given).translate(lines())) == list(translator(1, **given).translate(lines()))


@pytest.mark.parametrize("stored", ["fp32", "int8"])
def test_models_arrive_whole(stored: str) -> None:
    models = [convert(model(), stored), convert(second_model(), stored)]
    shared = SharedModels(models)
    assert all(tensor.is_meta for one in shared.models for tensor in tensors_of(one).values())
    for there, here in zip(with_weights(shared.models, shared.descriptor), models, strict=True):
        assert tensors_of(there).keys() == tensors_of(here).keys()
        for name, tensor in tensors_of(here).items():
            assert torch.equal(tensors_of(there)[name], tensor)
        source = torch.tensor([[5, 6, 7, 3]])
        with torch.inference_mode():
            assert torch.equal(there.encode(source, None), here.encode(source, None))


def test_an_error_of_the_search_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SEARCHES, "broken", "broken_search:BrokenSearch")
    with pytest.raises(ValueError, match="cut"):
        list(shared_translator(search="broken").translate(lines()))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Translator, Iterator[Result]]:
    """A translator with processes of its own, and its results, of which one has come and the others are held."""
    gate = held_until(monkeypatch, tmp_path, "held")
    models = ConvertedModels.of([model()], "fp32", ["cpu", "cpu"], 1)
    long = "the cat sees the dog with the red house and the big cat finds a small dog under the house."
    results = translator(models=models, search="held").translate(iter([" "] * 64 + [long] * 500))
    next(results)  # of the first window, which has no sentence
    gate.begun()
    return translator(models=models), results


def test_a_process_that_dies_is_named_and_replaced(held: tuple[Translator, Iterator[Result]]) -> None:
    some, results = held
    for pid in (before := processes(some)):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(NmtError, match=r"a worker process died \(killed by signal 9\)"):
        list(results)
    gone(before)
    assert list(some.translate(lines())) == expected()
    assert not set(before) & set(processes(some))


def test_an_idle_process_that_died_is_replaced() -> None:
    some = translator()
    list(some.translate(lines()))
    os.kill(processes(some)[0], signal.SIGKILL)
    gone(processes(some)[:1])
    assert list(some.translate(lines())) == expected()


def test_closing_early_stops_the_search_and_keeps_the_processes(held: tuple[Translator, Iterator[Result]]) -> None:
    some, results = held
    before = processes(some)
    results.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("nmt-worker")]
    assert list(some.translate(lines())) == expected()
    assert processes(some) == before


def test_processes_that_are_still_starting_are_kept() -> None:
    """Closing does not wait for them; sessions that they missed do not confuse them."""
    some = translator()
    for number in range(3):
        with some.pool.session() as session:
            session.submit([Batch([Sentence([5, 6], 4)]), Batch([Sentence([5], 4)])])
            if not number:  # they cannot go on before the session is closed
                for pid in (before := processes(some)):
                    os.kill(pid, signal.SIGSTOP)
        if not number:
            assert not any(process.answered for process in some.pool.processes._idle)  # type: ignore[union-attr]
            for pid in before:
                os.kill(pid, signal.SIGCONT)
    assert len(before) == 2
    assert list(some.translate(lines())) == expected()
    assert processes(some) == before
    assert list(some.translate(lines() * 20)) == expected() * 20


def test_two_streams_at_once_have_processes_of_their_own() -> None:
    some = shared_translator()
    first = some.translate(iter(lines()))
    results = [next(first)]
    assert list(some.translate(lines())) == expected()
    assert [*results, *first] == expected()
    assert len(processes(some)) == 2  # the others ended


def test_a_stop_that_comes_late_does_no_harm() -> None:
    some = shared_translator()
    list(some.translate(lines()))
    assert some.pool.processes is not None
    for process in some.pool.processes._idle:
        process.pipe.send(spawned.Stop())
    assert list(some.translate(lines())) == expected()


def test_a_session_that_is_stopped_before_it_is_served_ends() -> None:
    some = shared_translator()
    list(some.translate(lines()))
    assert some.pool.processes is not None
    taken = some.pool.processes.take(some.pool.search)
    queue = BatchQueue()
    queue.stop()
    for process in taken:
        process.stop()
        process.serve(queue)
        assert process.idle
    some.pool.processes.give_back(taken)
    assert list(some.translate(lines())) == expected()


def test_models_that_cannot_be_loaded_are_reported() -> None:
    processes = ProcessPool([model()], "fp99", ["cpu"])
    [process] = processes.take(processes.session(translator(1).pool.workers[0]))
    queue, batch = BatchQueue(), Batch([Sentence([5, 6], 4)])
    queue.put(batch)
    server = threading.Thread(target=process.serve, args=(queue,))
    server.start()
    with pytest.raises(NmtError, match=r"worker process of 'cpu' cannot search: UsageError: precision 'fp99'"):
        batch.done.result(LIMIT)
    queue.stop()
    server.join()
    processes.give_back([process])


def test_what_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SEARCHES, "local", f"{__name__}:LOCAL_CLASS")
    with pytest.raises(
        UsageError,
        match=r"devices cpu, cpu: what they search with cannot be sent to their processes .*Define classes and functions of your own in a module",
    ):
        translator(search="local")


LOCAL_CLASS = (lambda: type("Local", (BrokenSearch,), {}))()


def test_a_pool_that_is_not_used_any_more_ends_its_processes() -> None:
    some = translator()
    list(some.translate(lines()))
    pids = processes(some)
    del some
    gone(pids)


SCRIPT = f"""
import sys
sys.path[:0] = [{str(TESTS / "decoding")!r}, {str(TESTS / "support")!r}]
from nmt_cli.decoding import pool, spawned
spawned.need_processes = lambda devices: len(devices) > 1
pool.FEW_SENTENCES = 2
import test_spawned as test
some = test.translator()
results = some.translate(iter(test.lines() * {{times}}))
print(next(results).source, flush=True)
"""


def script(times: int, more: str, **options: Any) -> subprocess.Popen[str]:
    """A program without `if __name__ == "__main__"`."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(times=times) + more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


SHOW = "print(*test.processes(some), flush=True)\n"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    programs: list[subprocess.Popen[str]] = []
    yield programs
    for program in programs:
        program.kill()
        program.communicate()


def pids_of(program: subprocess.Popen[str]) -> list[int]:
    assert program.stdout is not None
    assert program.stdout.readline() == f"{lines()[0]}\n"
    return [int(word) for word in program.stdout.readline().split()]


def test_a_script_ends_where_results_are_kept_unread(started: list[subprocess.Popen[str]]) -> None:
    started.append(script(400, SHOW))
    pids = pids_of(started[0])
    out, err = started[0].communicate(timeout=LIMIT)
    assert (started[0].returncode, out, err) == (0, "", "")
    assert len(pids) == 2
    gone(pids)


def test_an_interrupt_ends_all_processes(started: list[subprocess.Popen[str]]) -> None:
    started.append(script(4000, SHOW + "list(results)", start_new_session=True))
    pids = pids_of(started[0])
    os.killpg(started[0].pid, signal.SIGINT)
    _, err = started[0].communicate(timeout=LIMIT)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1
    gone(pids)


def test_processes_end_with_a_caller_that_is_killed(started: list[subprocess.Popen[str]]) -> None:
    started.append(script(4000, SHOW + "list(results)"))
    pids = pids_of(started[0])
    started[0].kill()
    gone(pids)


def test_a_search_of_the_script_itself_is_refused() -> None:
    more = """
from nmt_cli.decoding.beam_search import BeamSearch
from nmt_cli.registry import SEARCHES
class Own(BeamSearch): pass
SEARCHES["own"] = "__main__:Own"
try:
    list(test.translator(search="own").translate(test.lines()))
except test.NmtError as error:
    print(error)
"""
    out, err = script(1, more).communicate(timeout=LIMIT)
    assert err == ""
    assert "Can't get attribute 'Own' on <module '__main__'" in out
    assert "Define classes and functions of your own in a module" in out


def test_a_fork_of_the_caller_starts_processes_of_its_own() -> None:
    more = """
import os
results.close()
before = test.processes(some)
same = list(some.translate(test.lines()))
child = os.fork()
if not child:
    import torch
    torch.set_num_threads(1)
    ok = list(some.translate(test.lines())) == same and not set(test.processes(some)) & set(before)
    some.pool.processes = None
    os._exit(0 if ok else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), list(some.translate(test.lines())) == same and test.processes(some) == before)
"""
    program = script(1, more)
    out, err = program.communicate(timeout=LIMIT)
    assert out.splitlines()[1:] == ["0 True"]
    assert [line for line in err.splitlines() if "DeprecationWarning" not in line and "os.fork()" not in line] == []
