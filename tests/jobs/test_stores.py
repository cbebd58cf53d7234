"""The folder of a job in a store: S3, and one that kills its writers and shows old objects for a while."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

import pytest
from backports import zstd
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from in_process import printed, ran, refused, warnings
from moto.server import ThreadedMotoServer
from untrained import write_untrained

from nmt_cli.cli import job as command
from nmt_cli.errors import DataError, UsageError
from nmt_cli.jobs.folder import Folder, at
from nmt_cli.jobs.job import Job, Shard
from nmt_cli.storage.made_from import RECORD, MadeFrom


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    at("s3://bucket").files.mkdir("bucket")  # type: ignore[attr-defined]
    yield "s3://bucket/of/job"
    server.stop()


def test_a_job_in_s3(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_untrained(Path("one"), max_extra=4)
    Path("text").write_bytes(b"\xef\xbb\xbfthe cat\r\n\n\xff\xe2\x80\xa8a dog\n" * 5 + b"a house")
    whole = printed("translate --model one --precision fp32 --input text")
    create = f"job create {bucket} --model one --precision fp32 --input text --shard-lines"
    ran(f"{create} 6")
    assert "as before" in ran(f"{create} 6").stderr
    assert "other shard_lines, shards" in refused(f"{create} 7")
    Path("text").unlink()
    for number in (0, 2, 1):
        ran(f"job shard {bucket} {number}")
    assert "is done" in ran(f"job shard {bucket} 1").stderr
    assert json.loads(printed(f"job status {bucket} --json"))["done"] == 3
    assert printed(f"job join {bucket}") == whole
    store = at(bucket)
    with pytest.raises(UsageError, match="meanwhile"), store.writing("job.json", "the job", new=True):
        pass
    with store.writing("output/0/1.zst", "an output") as sink:
        sink.write(zstd.compress(b"another\n"))
    assert "damaged: 1." in refused(f"job join {bucket} --output joined", code=1)
    assert "2 files stay" in warnings(f"job clean {bucket}")[0]
    assert store.names() == ["output/0/1.zst", f"output/0/1.zst{RECORD}"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    at(bucket).files.clear_instance_cache()  # type: ignore[attr-defined]
    assert "Could not connect" in refused(f"job status {bucket}", code=75)


class Killed(BaseException):
    """The process has ended here."""


class Delayed(Folder):
    """A store in memory, which shows one of the last `lag` contents of each object. It kills the writer that `left` counts down to."""

    def __init__(self, random: Random) -> None:
        super().__init__(Path("/nowhere"))
        self.random, self.lag, self.left = random, 3, -1
        self.contents: dict[str, list[bytes | None]] = {}

    def open(self, name: str) -> BinaryIO:
        content = self.random.choice(self.contents.get(name, [None])[-self.lag :])
        if content is None:
            raise FileNotFoundError(name)
        return io.BytesIO(content)

    @contextmanager
    def writing(self, name: str, what: str, new: bool = False) -> Iterator[BinaryIO]:
        yield (sink := io.BytesIO())
        self.killed()
        self.contents.setdefault(name, [None]).append(sink.getvalue())
        self.killed()

    def killed(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def names(self) -> list[str]:
        return [name for name in self.contents if self.random.random() < 0.7 or self.lag == 1]


def upper(job: Job, one: Shard, translator: None, own: dict[str, Any], sink: BinaryIO) -> int:
    """The translation of a shard by a machine that is well, or has another nmt."""
    words = [f"{job.made.package_version} {one.number} {line}\n" for line in range(one.lines)]
    sink.write("".join(words).encode())
    return one.lines


@settings(
    max_examples=100, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
class Machines(RuleBasedStateMachine):
    """Machines that do the shards of a job, in any order, several times, and are killed."""

    numbers = st.integers(0, 3)

    @initialize(random=st.randoms(use_true_random=False))
    def start(self, random: Random) -> None:
        self.store = Delayed(random)
        made = MadeFrom(
            format_version=1, package_version="1", input_sha256=[], model_sha256=[], options={"precision": "fp32"}
        )
        parts = [
            Shard(number=n, file="/x", start=n, bytes=1, sha256=f"{n}", lines_before=2 * n, lines=2) for n in range(4)
        ]
        lists: dict[str, Any] = {"models": [], "inputs": [], "shards": parts, "references": []}
        self.job = Job(format_version=1, folder=self.store, made=made, shard_lines=2, **lists)
        sink = io.BytesIO()
        for one in parts:
            upper(self.job, one, None, {}, sink)
        self.whole = sink.getvalue()

    @rule(number=numbers, version=st.sampled_from(["1", "1", "1", "2"]), killed=st.sampled_from([-1, -1, 1, 2, 3, 4]))
    def do(self, number: int, version: str, killed: int) -> None:
        job = self.job.model_copy(update={"made": self.job.made.model_copy(update={"package_version": version})})
        self.store.left = killed
        with suppress(Killed), pytest.MonkeyPatch.context() as patch:
            patch.setattr(command, "_translate", upper)
            patch.setattr("nmt_cli.interface.translator.load", lambda *_, **__: None)
            command._make(job, job.shards[number], {"batch_tokens": None}, "cpu", None)
        self.store.left = -1

    @rule(number=numbers, other=numbers, record=st.booleans(), size=st.integers(0, 30))
    def damage(self, number: int, other: int, record: bool, size: int) -> None:
        names = [f"{self.job.shards[n].output}{RECORD * record}" for n in (number, other)]
        content = self.store.contents.get(names[1], [None])[-1]
        cut = content if number != other or content is None else content[:size] or None
        self.store.contents.setdefault(names[0], [None]).append(cut)

    @rule()
    def join(self) -> None:
        sink = io.BytesIO()
        try:
            self.job.join(sink)
        except DataError:
            assert self.whole.startswith(sink.getvalue())
        else:
            assert sink.getvalue() == self.whole

    def teardown(self) -> None:
        self.store.lag = 1
        for one in self.job.shards:
            if self.job.text(one) is None:
                self.do(one.number, "1", -1)
        sink = io.BytesIO()
        self.job.join(sink)
        assert sink.getvalue() == self.whole
        told = self.job.status()
        assert (told["done"], told["missing"], told["failed"]) == (4, [], [])


TestMachines = Machines.TestCase
