"""One side of decode.py in a process of its own: nmt, or CTranslate2 with the same weights.

    Job ──▶ Process ──stdin: lists of lines──▶ python decode_side.py JOB ──stdout: texts, seconds of each list, peak memory──▶ Answer

A side does the whole job, text in and text out; loading is not timed. Processes of their own give each side its own threads,
environment and peak memory. While one translates the others sleep: it begins half a second after it was asked, when their
threads have stopped spinning. No side imports torch here.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

SETTLE = 0.5
"""Seconds that the threads of idle sides are given to fall asleep."""

Translate = Callable[[list[str]], list[str]]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a side is; `folder` holds the model in its library's format, `precision` is its library's word for one."""

    name: str
    kind: str
    """A key of `KINDS`."""
    folder: str
    precision: str
    workers: int
    threads: int
    """Of each worker."""
    batch: int = 0
    """Sentences of a batch, nmt: source tokens; 0: what it chooses."""
    device: str = "cpu"
    beam: int = 4
    length_penalty: float = 0.0
    max_extra: int = 50
    min_length: int = 0
    """The four as the export recommends them; nmt reads its own recipe."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> str:
        """The settings in words."""
        threads = f"{self.workers} worker{'s' * (self.workers > 1)} x {self.threads} thread{'s' * (self.threads > 1)}"
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return ", ".join([threads, *([f"batches of {self.batch}"] if self.batch else []), *variables])


@dataclass(frozen=True)
class Answer:
    """Translations, the seconds that each list of lines took, the process's peak memory in bytes so far."""

    texts: list[str]
    seconds: list[float]
    peak: int


def nmt(job: Job) -> Translate:
    """Translate as `nmt translate` does: workers of one thread; a batch that is alone has all of them."""
    from nmt_cli.cli.process import collect_garbage_rarely

    collect_garbage_rarely()
    from nmt_cli.interface.translator import load

    translator = load(job.folder, device=job.device, devices=job.workers * job.threads, precision=job.precision)
    plain = ["decode.placeholders=false", *[f"decode.batch_tokens={job.batch}"] * bool(job.batch)]
    return lambda lines: [result.text for result in translator.translate(lines, overrides=plain)]


def ctranslate2(job: Job) -> Translate:
    """Translate as the export's README says, with all sentences at once: CTranslate2 sorts them by length itself."""
    import ctranslate2
    from sentencepiece import SentencePieceProcessor

    from nmt_cli.data.tokenizer import BOS, PAD, UNK

    source, target = (SentencePieceProcessor(model_file=file) for file in tokenizers(job.folder))
    translator = ctranslate2.Translator(
        job.folder, device=job.device, compute_type=job.precision, inter_threads=job.workers, intra_threads=job.threads
    )
    search: dict[str, Any] = {"beam_size": job.beam, "length_penalty": job.length_penalty, "max_batch_size": job.batch}
    search |= {"min_decoding_length": job.min_length, "max_input_length": 0}
    never = [[target.id_to_piece(i)] for i in (PAD, UNK, BOS)]

    def translate(lines: list[str]) -> list[str]:
        pieces = source.encode(lines, out_type=str)
        results = translator.translate_batch(
            pieces, max_decoding_length=max(map(len, pieces)) + job.max_extra, suppress_sequences=never, **search
        )
        texts: list[str] = target.decode([result.hypotheses[0] for result in results])
        return texts

    return translate


KINDS: dict[str, Callable[[Job], Translate]] = {"nmt": nmt, "ctranslate2": ctranslate2}


def tokenizers(folder: str) -> tuple[str, str]:
    """Return the source's and the target's SentencePiece files; one and the same if the vocabulary is joint."""
    files = sorted(str(path) for path in Path(folder).glob("tokenizer*.model"))
    return files[0], files[-1]


def started(
    command: Sequence[str], threads: int, environment: Mapping[str, str], stderr: int | None = None
) -> subprocess.Popen[str]:
    """Start a command with pipes at both ends and so many threads, if it does not choose itself."""
    variables = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": str(threads), **environment}
    return subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8"
    )


def pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    """Return its stdin and stdout."""
    return cast(IO[str], process.stdin), cast(IO[str], process.stdout)


class Process:
    """A side, ready to translate. `script` serves it, run by `python`."""

    def __init__(self, job: Job, script: str = __file__, python: str = sys.executable) -> None:
        self.job = job
        command = [python, script, json.dumps(asdict(job))]
        self.process = started(command, job.workers * job.threads, job.environment)

    def __call__(self, lists: Sequence[Sequence[str]]) -> Answer:
        """Translate lists of lines, one after another. Raises SystemExit if the process has died."""
        questions, answers = pipes(self.process)
        questions.write(json.dumps(lists) + "\n")
        questions.flush()
        answer = answers.readline()
        if not answer:
            raise SystemExit(f"{self.job.name}: ended with status {self.process.wait()}")
        return Answer(**json.loads(answer))

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.process.kill()
        self.process.communicate()


def peak_memory() -> int:
    """Return the bytes that this process has held at once. Linux's own figure: `getrusage` counts what started the process."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def serve(kinds: Mapping[str, Callable[[Job], Translate]]) -> None:
    """Serve the job in the first argument: the other end of `Process`. What a library prints goes to stderr."""
    job = Job(**json.loads(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    translate = kinds[job.kind](job)
    for request in sys.stdin:
        texts: list[str] = []
        seconds: list[float] = []
        lists = json.loads(request)
        time.sleep(SETTLE)
        for lines in lists:
            began = time.perf_counter()
            texts += translate(lines)
            seconds.append(time.perf_counter() - began)
        print(json.dumps(asdict(Answer(texts, seconds, peak_memory()))), file=answers, flush=True)


def main() -> None:
    """Serve the job in the first argument."""
    serve(KINDS)


if __name__ == "__main__":
    main()
