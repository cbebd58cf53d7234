"""`nmt data` itself, against a server on this machine: from the archives to `nmt preprocess`, and every named fault."""

import gzip
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import nmt, run
from website import Site, serve, sgm, tgz, zipped

from nmt_cli.registry import DATASETS

pytestmark = pytest.mark.usefixtures("offline")
QUICK = "import nmt_cli.corpora.download as download; download.PAUSE = 0.0"


@pytest.fixture
def site() -> Iterator[Site]:
    with serve() as site:
        yield site


def numbered(count: int, word: str) -> list[str]:
    return [f"{word} {number} {'abcdefghij'[number % 10]}" for number in range(count)]


@pytest.fixture(scope="module")
def wmt() -> dict[str, bytes]:
    """Small archives with the members of WMT's; the test sets have as many lines as the real ones."""

    def corpus(name: str, count: int) -> bytes:
        sides = {f"{name}.de-en.{one}": "".join(f"{line}\n" for line in numbered(count, one)) for one in ("de", "en")}
        return tgz({f"{name}.cs-en.cs": "not wanted\n", **sides})

    def sets(folder: str, count: int, *names: str) -> bytes:
        return tgz({f"{folder}/{name}.sgm": sgm(numbered(count, f"{folder} {name[-2:]}")) for name in names})

    names = ("newstest2014-deen-src.en", "newstest2014-deen-ref.de")
    return {
        "training-parallel-europarl-v7.tgz": corpus("training/europarl-v7", 300),
        "training-parallel-commoncrawl.tgz": corpus("commoncrawl", 200),
        "training-parallel-nc-v9.tgz": corpus("training/news-commentary-v9", 100),
        "dev.tgz": sets("dev", 3000, "newstest2013-src.en", "newstest2013-ref.de"),
        "test-full.tgz": sets("test-full", 3003, *names),
        "test-filtered.tgz": sets("test", 2737, *names),
    }


@pytest.mark.slow
def test_wmt14_from_a_mirror_to_preprocess(site: Site, wmt: dict[str, bytes], tmp_path: Path) -> None:
    site.files = dict(wmt)
    site.cuts, site.marks = [1000, 2000], {"dev.tgz": '"it"'}  # the first download is cut twice
    done = run(tmp_path, "data", "wmt14-en-de", "--mirror", site.address, "--no-verify", "--json", prelude=QUICK)
    said = done.stderr.decode()
    assert done.returncode == 0, said
    text = tmp_path / "text/wmt14-en-de"
    names = [
        f"{name}.{language}"
        for name in ("newstest2013", "newstest2014", "newstest2014-filtered")
        for language in ("en", "de")
    ]
    assert {path.name for path in text.iterdir()} == {
        *names,
        "train.en.gz",
        "train.de.gz",
        "manifest.json",
        "downloads",
    }
    assert [line.split()[1] for line in gzip.decompress((text / "train.de.gz").read_bytes()).decode().splitlines()] == [
        *map(str, [*range(300), *range(200), *range(100)])
    ]
    assert (text / "newstest2013.de").read_text().splitlines() == numbered(3000, "dev de")
    assert (text / "newstest2014.en").read_text().splitlines() == numbered(3003, "test-full en")
    assert (text / "newstest2014-filtered.de").read_text().splitlines() == numbered(2737, "test de")
    assert "expected sha256:0224c7c7" in said
    value = json.loads(done.stdout)
    assert (value["fresh"], value["complete"], value["dataset"]) == (True, True, "wmt14-en-de")
    assert (len(value["texts"]), len(value["archives"])) == (4, 6)
    assert site.asked("dev.tgz", "range") == [None, "bytes=1000-", "bytes=3000-"]

    again = run(tmp_path, "data", "wmt14-en-de", "--json")
    assert json.loads(again.stdout)["fresh"] is False
    assert "nothing to do" in again.stderr.decode()
    following = again.stderr.decode().splitlines()[-1]
    assert following == "next: nmt preprocess wmt14_en_de_base --data-dir text/wmt14-en-de"
    said = nmt(
        tmp_path, *shlex.split(following.removeprefix("next: nmt ")), "--set", "data.vocab_size=300", "--workers", 1
    )
    assert "600 of 600 pairs" in said
    assert "3,000 of 3,000 pairs" in said

    said = nmt(tmp_path, "data", "wmt14-en-de", "--mirror", site.address, "--out", "checked", prelude=QUICK, code=1)
    assert "wrong checksum" in " ".join(said.split())


def test_the_table_is_data() -> None:
    done = run(Path(), "data")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.split()[0] for line in done.stdout.decode().splitlines()[::2]] == list(DATASETS)
    assert run(Path(), "data", "list").stdout == done.stdout
    table = json.loads(run(Path(), "data", "list", "--json").stdout)
    assert list(table) == list(DATASETS)
    assert table["multi30k"]["archives"][0][0]["url"].endswith("/data/task1/raw/train.en.gz")
    assert table["wmt14-en-de"]["files"][-2:] == ["train.en.gz", "train.de.gz"]


OUTSIDE = """
import sys, types
from nmt_cli.corpora.dataset import Dataset, Split, archive
from nmt_cli.registry import DATASETS
module = types.ModuleType("theirs")
module.SMALL = Dataset(
    title="Somebody's pairs", languages=("en", "de"), size="1 kB", licence="free", recipe="demo",
    texts=(Split(archive=archive("https://nowhere.invalid/own.zip"), member="own.txt"),),
)
sys.modules["theirs"] = module
DATASETS["own"] = "theirs:SMALL"
"""


def test_a_data_set_from_outside_the_package_is_listed_and_fetched(site: Site, tmp_path: Path) -> None:
    site.files["own.zip"] = zipped({"own.txt": "".join(f"Line {number}.\tZeile {number}.\n" for number in range(4200))})
    assert (
        run(tmp_path, "data", prelude=OUTSIDE).stdout.decode().splitlines()[-2]
        == f"{'own':<{max(map(len, DATASETS))}}    1 kB  Somebody's pairs"
    )
    assert "1 kB, for the recipe demo" in run(tmp_path, "data", "own", "-h", prelude=OUTSIDE).stdout.decode()
    said = nmt(tmp_path, "data", "own", "--mirror", site.address, prelude=OUTSIDE)
    assert said.splitlines()[-1] == "next: nmt preprocess demo --data-dir text/own"
    assert (tmp_path / "text/own/test.de").read_bytes().count(b"\n") == 2000
