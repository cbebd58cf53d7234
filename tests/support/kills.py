"""Training that is killed again and again ends as training that nobody touched: to the bit.

    prepare(folder)                    text of number words, the recipe numbers.toml and its shards
    killed_runs(folder, kills, seed)   ──▶ where kills hit, and every difference from the uninterrupted run
    differences(run, reference)        in what two finished runs differ
    run_errors(run)                    what is not whole in a run that was killed

A small model with dropout learns number words, first without interruption. The same command is then started and killed,
mostly by SIGKILL, else by SIGTERM or SIGINT, while it starts, trains, validates or saves. Every new start resumes where
the last one was killed. When a run has finished, another one begins. After each kill, links must lead to whole checkpoints.
At the end of a run its checkpoints, optimizer state, records and averaged model are compared with the uninterrupted run's.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt_cli.errors import NmtError
from nmt_cli.files import follow_links
from nmt_cli.training.checkpoint import Checkpoint

SOURCE = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TARGET = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
VALID_EVERY = 20
RECIPE = f"""
[data]
train_source = ["train.en"]
train_target = ["train.de"]
valid_source = ["valid.en"]
valid_target = ["valid.de"]
vocab_size = 80
byte_fallback = false
max_length = 40

[model]
encoder_layers = 1
decoder_layers = 1
d_model = 32
d_ff = 64
num_heads = 2
dropout = 0.1
norm = "pre"
max_positions = 64

[train]
batch_tokens = 512
updates = 1200
warmup = 60
lr_factor = 0.4
precision = "fp32"
log_every = 10
valid_every = {VALID_EVERY}
valid_bleu_sentences = 20
best_metric = "bleu"
patience = 1000
checkpoint_every = 15
keep = 4
keep_best = 3
average = 3
"""
PHASES = {"starting": 2, "training": 6, "validating": 4, "saving": 5}
"""Phases in which a kill is wished to hit, and how often; deleting old checkpoints, after a save, is hit by chance."""
SIGNALS = {signal.SIGKILL: 6, signal.SIGTERM: 2, signal.SIGINT: 2}
CODES = {signal.SIGKILL: (-9,), signal.SIGTERM: (143, -15), signal.SIGINT: (130,)}
CLOCKS = ("seconds", "tokens_per_second", "began")
HASHES = ("content_sha256", "metrics.json", "config.json")


def write_text(folder: Path) -> None:
    """Number words of both languages, the first two exchanged in the target's."""
    draw = random.Random(1)
    for split, count in (("train", 3000), ("valid", 60)):
        lines = [[draw.randrange(10) for _ in range(draw.randint(2, 7))] for _ in range(count)]
        for suffix, words, order in (("en", SOURCE, slice(None)), ("de", TARGET, slice(None, None, -1))):
            text = "".join(" ".join(words[d] for d in [*line[:2][order], *line[2:]]) + ".\n" for line in lines)
            (folder / f"{split}.{suffix}").write_text(text, encoding="utf-8")


def start(folder: Path, *arguments: str | Path, prelude: str = "") -> subprocess.Popen[bytes]:
    """Start `nmt` in `folder`; a `prelude` of Python code is run before it in the same process."""
    code = ["-m", "nmt_cli"] if not prelude else ["-c", f"{prelude}\nfrom nmt_cli.__main__ import main; main()"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, *code, *map(str, arguments)],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def nmt(folder: Path, *arguments: str | Path, prelude: str = "", code: int = 0) -> str:
    """Run `nmt` to its end, which must be `code` and without a traceback. Return its stderr."""
    process = start(folder, *arguments, prelude=prelude)
    stderr = process.communicate()[1].decode()
    if process.returncode != code or "Traceback" in stderr:
        command = " ".join(map(str, arguments))
        raise AssertionError(f"nmt {command}: exit {process.returncode}, expected {code}\n{stderr}")
    return stderr


def prepare(folder: Path) -> None:
    """Text, recipe and shards."""
    write_text(folder)
    (folder / "numbers.toml").write_text(RECIPE, encoding="utf-8")
    nmt(folder, "preprocess", "numbers.toml", "--data-dir", ".")


# --- what two runs must have in common ---


def timeless(value: Any) -> Any:
    """JSON without its clock fields, and without the hashes of files that have some."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in CLOCKS + HASHES}
    return value


def read_json(path: Path) -> Any:
    return timeless(json.loads(path.read_text(encoding="utf-8")))


def records(run: Path) -> list[Any]:
    """The lines of metrics.jsonl."""
    return [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def state(checkpoint: Path) -> Any:
    """state.json, with the records instead of the bytes that it had: clock fields are not always of one length."""
    values = read_json(checkpoint / "state.json")
    text = (checkpoint.parents[1] / "metrics.jsonl").read_bytes()[: values["progress"].pop("metrics_bytes")]
    return {**values, "records": text.count(b"\n"), "whole": text[-1:] in (b"", b"\n")}


def differences(run: Path, reference: Path) -> list[str]:
    """In what two finished runs differ: a line each."""
    differing = [] if records(run) == records(reference) else ["metrics.jsonl"]
    names = [sorted(path.name for path in (folder / "checkpoints").iterdir()) for folder in (run, reference)]
    if names[0] != names[1]:
        differing.append(f"checkpoints: {', '.join(names[0])} instead of {', '.join(names[1])}")
    differing += [link for link in ("last", "best") if os.readlink(run / link) != os.readlink(reference / link)]
    folders = [f"checkpoints/{name}" for name in names[1] if name in names[0]]
    if (reference / "averaged").is_dir():
        folders.append("averaged")
    for name in folders:
        for file in sorted((reference / name).iterdir()):
            read: Callable[[Path], Any] = Path.read_bytes
            if file.name == "state.json":
                read = lambda path: state(path.parent)  # noqa: E731
            elif file.suffix == ".json":
                read = read_json
            if read(run / name / file.name) != read(file):
                differing.append(f"{name}/{file.name}")
    return differing


def run_errors(run: Path) -> list[str]:
    """What a user would stumble over in a run that was killed: a checkpoint that is not whole, a link to nothing."""
    errors = []
    checkpoints = sorted((run / "checkpoints").glob("step-*"))
    links = [run / link for link in ("last", "best") if (run / link).is_symlink()]
    if checkpoints and run / "last" not in links and len(checkpoints) > 1:
        errors.append("last is missing")
    for folder in [*checkpoints, *links]:
        try:
            Checkpoint(folder, int(follow_links(folder).name.removeprefix("step-"))).verify()
        except (NmtError, OSError, ValueError, KeyError) as error:
            errors.append(f"{folder.name}: {error}")
    return errors


# --- the killing ---


def current_phase(run: Path) -> str:
    """What a training under way does just now, by what it has written."""
    hidden = [path.name for path in (run / "checkpoints").glob(".*")]
    if any(".partial-" in name for name in hidden):
        return "saving"
    if hidden:
        return "pruning"
    try:
        last = json.loads((run / "metrics.jsonl").read_bytes().splitlines()[-1])
    except (OSError, ValueError, IndexError):  # nothing, or no whole line yet
        return "training"
    return "validating" if last["type"] == "train" and last["update"] % VALID_EVERY == 0 else "training"


@dataclass
class Kills:
    """Kills training processes and counts where."""

    draw: random.Random
    startup: float
    """Seconds that a process takes before it trains."""
    pause: float
    """Seconds that it is let train at most before the moment to kill it is looked for."""
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By signal and phase."""
    complaints: list[str] = field(default_factory=list)

    def once(self, folder: Path, run: Path, *options: str) -> bool:
        """Start training and kill it; false when it has come to its end before."""
        log = run / "train.log"
        size = log.stat().st_size if log.exists() else 0
        process = start(folder, "train", "numbers.toml", "--run", run, *options)
        number = self.draw.choices(list(SIGNALS), list(SIGNALS.values()))[0]
        try:
            self._wait(process, run, lambda: log.exists() and log.stat().st_size > size)
            phase = current_phase(run) if log.exists() and log.stat().st_size > size else "starting"
            process.send_signal(number)
            stderr = process.communicate(timeout=120)[1].decode()
        finally:
            process.kill()
        if number == signal.SIGKILL and phase != "starting":
            phase = current_phase(run)  # as the dead left it
        if "finished at update" in stderr:
            return False
        self.hits[number.name, phase] += 1
        if process.returncode not in CODES[number] or "Traceback" in stderr:
            self.complaints.append(f"{number.name} while {phase}: exit {process.returncode}\n{stderr}")
        self.complaints += [f"{number.name} while {phase}: {error}" for error in run_errors(run)]
        return True

    def _wait(self, process: subprocess.Popen[bytes], run: Path, began: Callable[[], bool]) -> None:
        """Until the moment to kill, or until the process has ended."""
        wish = self.draw.choices(list(PHASES), list(PHASES.values()))[0]
        if wish == "starting":
            time.sleep(self.draw.uniform(0.2, self.startup))
            return
        for _ in _while(lambda: process.poll() is None and not began()):
            pass
        time.sleep(self.draw.uniform(0.0, self.pause))
        if wish != "training":
            for _ in _while(lambda: process.poll() is None and current_phase(run) != wish):
                pass
            time.sleep(self.draw.uniform(0.0, 0.004))


def _while(condition: Callable[[], bool], seconds: float = 120.0) -> Iterator[None]:
    """Look again and again, for so long at most."""
    deadline = time.monotonic() + seconds
    while condition() and time.monotonic() < deadline:
        yield
        time.sleep(0.0003)


def uninterrupted(folder: Path, *options: str) -> tuple[Path, float, float]:
    """The reference run, averaged; the seconds that its process took before it trained, and those that it trained."""
    run, began = folder / "runs/reference", time.monotonic()
    process = start(folder, "train", "numbers.toml", "--run", run, *options)
    for _ in _while(lambda: process.poll() is None and not (run / "train.log").exists()):
        pass
    trained = time.monotonic()
    stderr = process.communicate()[1].decode()
    ended = time.monotonic()
    if process.returncode:
        raise AssertionError(stderr)
    nmt(folder, "average", run)
    return run, trained - began, ended - trained


def killed_runs(folder: Path, kills: int, seed: int, *options: str) -> tuple[Kills, list[str]]:
    """Kill so many times, in as many runs as it takes; the account and every difference from the uninterrupted run."""
    reference, startup, training = uninterrupted(folder, *options)
    account, all_differences = Kills(random.Random(seed), startup, training / 5), list[str]()
    number = 0
    while account.hits.total() < kills:
        number += 1
        run = folder / f"runs/killed-{number}"
        before = account.hits.total()
        while account.hits.total() < kills and account.once(folder, run, *options):
            print(f"run {number}, kill {account.hits.total()}", file=sys.stderr, flush=True)
        nmt(folder, "train", "numbers.toml", "--run", run, *options)
        nmt(folder, "average", run)
        differ = differences(run, reference)
        print(
            f"run {number}: killed {account.hits.total() - before} times, then {'; '.join(differ) or 'equal'}",
            flush=True,
        )
        all_differences += differ
    return account, all_differences
