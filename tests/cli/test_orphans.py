"""No process outlives the `nmt` that started it, even if that was killed by SIGKILL: workers end in the middle of their work, and
ranks that join too late end at once. Ranks that train are in test_endings.py.
"""

import signal
import sys
from pathlib import Path
from textwrap import dedent

import forked
import pytest
from forked_ranks import FORKED
from shared import number_words
from untrained import write_untrained
from waiting import LIMIT, alive, wait_until

pytestmark = pytest.mark.slow

HOLD = """
import os, signal, threading, time
from pathlib import Path

def hold(*_, **__):  # say which process this is, and never end
    Path(f"held-{os.getpid()}").touch()
    while True:
        time.sleep(3600)

def killed(count):  # as soon as so many processes are held
    while len(list(Path.cwd().glob("held-*"))) < count:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""
TRANSLATE = """
from nmt_cli.translation import device_processes
device_processes.search_all = hold
threading.Thread(target=killed, args=(2,)).start()
"""
PREPROCESS = """
import multiprocessing
from nmt_cli.data import workers
was = workers._submit

def submit(executor, item):
    future = was(executor, item)
    future.result()  # the worker runs, and waits for the next item
    for child in multiprocessing.active_children():
        Path(f"held-{child.pid}").touch()
    os.kill(os.getpid(), signal.SIGKILL)

workers._submit = submit
"""
LINES = "".join(f"the cat sees {'a big red dog and ' * (number % 5)}a house.\n" for number in range(200)).encode()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, workers of translate are threads")
@pytest.mark.parametrize(
    ("prelude", "line", "held"),
    [
        (TRANSLATE, "translate -m model --no-repeat-ngram 2 --devices 2", 2),
        (PREPROCESS, "preprocess numbers.toml --data-dir . --out new --workers 2", 1),
    ],
    ids=["translate", "preprocess"],
)
def test_workers_end_with_a_parent_that_is_killed(
    prelude: str, line: str, held: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    number_words(tmp_path_factory, tmp_path)
    write_untrained(tmp_path / "model")
    done = forked.run(tmp_path, *line.split(), text=LINES, prelude=HOLD + prelude)
    assert done.returncode == -signal.SIGKILL, done.stderr
    workers = [int(file.name.removeprefix("held-")) for file in tmp_path.glob("held-*")]
    assert len(workers) >= held
    wait_until(lambda: not any(map(alive, workers)), lambda: f"they run: {workers}")


TRAIN = ["train", "numbers.toml", "--devices", "2", "--run", "runs/one", "--set", "train.valid_bleu_sentences=0"]
TRAIN += ["--set", 'train.best_metric="nll"']


GONE = "error: the process that started the ranks is gone, so they end. Run the same command to resume from the last checkpoint."


def test_ranks_that_join_a_killed_launcher_end_at_once(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nobody answers at its store, where they would wait for ten minutes."""
    prelude = FORKED + dedent("""
        from nmt_cli.training import rendezvous
        Path = __import__("pathlib").Path
        was = rendezvous.started_by_torchrun
        def late():  # a rank joins when the launcher is gone
            if rank() >= 0:
                Path(f"rank-{os.getpid()}").touch()
                while os.getppid() == launcher:
                    time.sleep(0.01)
            return was()
        rendezvous.started_by_torchrun = late
        launcher = os.getpid()
        def kill():
            while len(list(Path.cwd().glob("rank-*"))) < 2:
                time.sleep(0.01)
            os.kill(launcher, signal.SIGKILL)
        threading.Thread(target=kill).start()
    """)
    number_words(tmp_path_factory, tmp_path)
    process = forked.start(tmp_path, *TRAIN, prelude=prelude)
    assert process.wait(LIMIT) == -signal.SIGKILL
    ranks = [int(file.name.removeprefix("rank-")) for file in tmp_path.glob("rank-*")]
    wait_until(lambda: not any(map(alive, ranks)), lambda: f"they run: {ranks}")
    said = process.communicate()[1].decode()
    assert said.splitlines()[-1] == GONE, said
    assert "frame #" not in said
