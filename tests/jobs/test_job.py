"""A job gives what `nmt translate` gives, whatever the text is, and whatever happens to the files of its shards."""

import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from in_process import printed, ran, refused, warnings
from untrained import write_untrained

from nmt_cli import __version__
from nmt_cli.cli.translate_input import read_requests
from nmt_cli.errors import DataError
from nmt_cli.jobs import cutting, job
from nmt_cli.jobs.folder import at
from nmt_cli.storage.made_from import MadeFrom
from nmt_cli.text.compression import FORMATS

MODEL = "--model one --precision fp32"
HEADS = [b"\xff\xfe", b"PK\x03\x04", *(magic for one in FORMATS.values() for magic in one.magic)]
PARTS = ["\u2028|\x85|\v|ä|猫|\ufeff|the cat|a dog sees|| |\t".encode().split(b"|"), [b"\xff", b"\x00", b"\r", *HEADS]]
PACK: list[Callable[[bytes], bytes]] = [gzip.compress, zstd.compress, bytes]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    write_untrained(Path("one"), max_extra=4, beam=4)


def hostile(rng: random.Random) -> bytes:
    """Text with what other programs take for line ends, invalid UTF-8, and heads of other formats anywhere."""
    parts = rng.choices([*PARTS[0], *PARTS[1], *[b"\n", b"\r\n"] * 8], k=rng.choice((0, 1, 5, 60)))
    return b"".join([rng.choice([b"\xef\xbb\xbf", *PARTS[0]]), *parts])


def cut_up(files: list[Path], lines: int) -> list[str]:
    """The lines of all shards of a job."""
    made = MadeFrom(format_version=1, package_version="", input_sha256=[], model_sha256=[], options={})
    own: Any = {
        "folder": at("cut"),
        "made": made,
        "models": [],
        "inputs": [],
        "shard_lines": lines,
        "shards": [],
        "references": [],
    }
    cutting.create(job.Job(format_version=1, **own), files)
    done = job.Job.read("cut")
    texts = [list(done.lines(shard, Counter())) for shard in done.shards]
    assert [len(text) for text in texts] == [shard.lines for shard in done.shards]
    assert max(map(len, texts), default=0) <= lines
    assert (done.clean(), Path("cut").exists()) == ([], False)
    return [line for text in texts for line in text]


def test_shards_have_the_lines_that_nmt_translate_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = 0
    for seed in range(50):
        rng = random.Random(seed)
        monkeypatch.setattr(cutting, "BLOCK", rng.choice((4, 5, 16, 1 << 22)))
        files = [Path(f"{number}\udcff") for number in range(rng.randint(1, 3))]
        for path in files:
            path.write_bytes(rng.choice(PACK)(hostile(rng)))
        try:
            expected = [line for path in files for line in read_requests(path, Counter())]
        except DataError:  # it begins as an archive does, or as UTF-16
            with pytest.raises(DataError):
                cut_up(files, 1)
        else:
            assert cut_up(files, rng.choice((1, 2, 3, 7, 10**9))) == expected, seed
            lines += bool(expected)
    assert 20 < lines < 50


def created(form: str = "", lines: int = 9) -> tuple[int, bytes]:
    """Create a job; return its number of shards, and what nmt translate gives for its inputs."""
    rng = random.Random(1)
    Path("plain").write_bytes(b"the\x00\n" + b"\n".join(hostile(rng) for _ in range(4)) + b"\nthe dog\n" * 9)
    Path("packed.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfa \xe2\x80\xa8cat\r\nPK\x03\x04\nthe red dog"))
    ran(f"job create made {MODEL} --shard-lines {lines} --input plain packed.gz {form}")
    whole = [printed(f"translate {MODEL} --devices 1 --input {path} {form}") for path in ("plain", "packed.gz")]
    return len(job.Job.read("made").shards), "".join(whole).encode()


def join(count: int) -> bytes:
    for number in range(count)[::-1]:
        ran(f"job shard made {number} --devices 1")
    ran("job join made --output joined.zst")
    return zstd.decompress(Path("joined.zst").read_bytes())


@pytest.mark.parametrize("form", ["", "--nbest 2 --beam 2", "--json --alignment", "--sample --set decode.max_extra=2"])
def test_the_joined_outputs_are_those_of_nmt_translate(form: str) -> None:
    count, whole = created(form)
    assert count > 3
    assert join(count) == whole
    again = f"job create made {MODEL} --shard-lines 9 --input plain"
    assert "as before" in ran(f"{again} packed.gz {form}").stderr
    assert "other options" in refused(f"{again} packed.gz --beam 3")
    assert "other inputs, shards" in refused(f"{again} {form}")


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_job_with_references_scores_them_as_nmt_score_does(form: str) -> None:
    lines = [b"the cat", b"", b"a dog\xe2\x80\xa8", b"\xff", b"a big red house\r"] * 8
    for name, pack in (("source", bytes), ("target.zst", zstd.compress)):
        random.Random(name).shuffle(lines)
        Path(name).write_bytes(pack(b"\n".join(lines)))
    ran(f"job create made {MODEL} --shard-lines 9 --input source --ref target.zst {form}")
    assert join(5).decode() == printed(f"score {MODEL} --src source --ref target.zst {form}")
    Path("one.line").write_text("the cat")
    assert "40 lines, --ref has 1" in refused(f"job create x {MODEL} --input source --ref one.line", code=1)
    assert "--beam: not with --ref" in refused(f"job create x {MODEL} --input source --ref source --beam 3")
    ran(f"job create two {MODEL} --input one.line --ref one.line")
    for text in ("a cat\nthe dog", "", "the\n"):
        Path("one.line").write_text(text)
        assert "was changed after" in refused("job shard two 0", code=1)


HAPPENS: dict[str, Callable[[Path, Path], object]] = {
    "no output": lambda output, record: output.unlink(),
    "no record": lambda output, record: record.unlink(),
    "a cut output": lambda output, record: output.write_bytes(output.read_bytes()[:-2]),
    "another text": lambda output, record: output.write_bytes(zstd.compress(b"x\n" * 9)),
    "a changed record": lambda output, record: record.write_text(record.read_text().replace('"lines": ', '"lines": 1')),
    "a cut record": lambda output, record: record.write_text("{"),
    "that of another shard": lambda output, record: output.write_bytes(output.with_name("0.zst").read_bytes()),
}


def test_join_and_clean_take_whole_outputs_only_and_the_others_are_made_again() -> None:
    count, whole = created(lines=4)
    assert join(count) == whole
    numbers = random.Random(1).sample(range(1, count), len(HAPPENS))
    for number, happens in zip(numbers, HAPPENS.values(), strict=True):
        output = Path(f"made/output/0/{number}.zst")
        happens(output, Path(f"{output}.nmt.json"))
    Path("joined.zst").write_text("mine")
    assert f"damaged: {job.ranges(sorted(numbers))}." in refused("job join made --output joined.zst", code=1)
    assert Path("joined.zst").read_text() == "mine"
    there = Path("made/output/0/0.zst").stat().st_ino
    assert join(count) == whole
    assert Path("made/output/0/0.zst").stat().st_ino == there
    kept = {"output/0/1.zst": zstd.compress(b"mine"), f"input/0/{count - 1}.zst": b"mine", "output/notes": b""}
    for name, content in kept.items():
        Path("made", name).write_bytes(content)
    assert "made: 4 files stay" in warnings("job clean made")[0]
    left = {str(path.relative_to("made")) for path in Path("made").rglob("*") if path.is_file()}
    assert left == {*kept, "output/0/1.zst.nmt.json"}
    assert "'made' is not replaced: it has no job.json" in refused(f"job create made {MODEL} --input plain")


def test_what_a_shard_refuses_is_told_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    count, _ = created()
    text, config = Path("plain").read_bytes(), Path("one/config.json").read_bytes()
    cases: dict[str, Callable[[], object]] = {
        "plain' was changed after the job was created": lambda: Path("plain").write_bytes(text.replace(b"e", b"i")),
        "one' is not the model": lambda: Path("one/config.json").write_bytes(config + b" "),
        "nmt 9 is not the version": lambda: monkeypatch.setattr(job, "__version__", "9"),
        "cannot read": lambda: Path("plain").unlink(),
    }
    for words, change in cases.items():
        change()
        assert words in refused("job shard made 0", code=1)
        failed = json.loads(printed("job status made --json"))["failed"]
        assert [(one["shard"], one["exit_status"], words in one["why"]) for one in failed] == [(0, 1, True)]
        monkeypatch.setattr(job, "__version__", __version__)
        Path("plain").write_bytes(text)
        Path("one/config.json").write_bytes(config)
    for number, (scheduler, variable) in enumerate(job.NUMBERS.items()):
        assert f"expected a number below {count}" in refused(f"job shard made {scheduler}")
        monkeypatch.setenv(variable, str(number))
        ran(f"job shard made {scheduler}")
    told = json.loads(printed("job status made --json"))
    assert (told["done"], told["missing"], told["failed"]) == (2, [*range(2, count)], [])
