"""`nmt models` itself, against a server on this machine that answers as Mozilla's does."""

import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import run, start
from remote_settings import publish, settings_server
from website import Site

pytestmark = pytest.mark.usefixtures("offline")


@pytest.fixture
def site() -> Iterator[Site]:
    with settings_server() as site:
        publish(site, "en-de")
        yield site


def ran(folder: Path, *arguments: object, text: bytes = b"", code: int = 0) -> tuple[str, str]:
    """What a command prints and says."""
    done = run(folder, *arguments, text=text, NMT_MODELS="models")
    assert done.returncode == code, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done.stdout.decode(), done.stderr.decode()


def test_from_the_list_to_a_translation(site: Site, tmp_path: Path) -> None:
    printed, said = ran(tmp_path, "models")
    assert (printed, said) == ("", "no models in models: `nmt models available` lists what can be fetched\n")
    assert ran(tmp_path, "models", "--json") == ("[]\n", "")
    printed, _ = ran(tmp_path, "models", "available", "--url", site.address)
    assert [line.split() for line in printed.splitlines()] == [
        ["name", "source", "target", "MB", "architecture", "version"],
        ["en-de", "English", "German", "0.2", "tiny", "3.0"],
    ]
    printed, _ = ran(tmp_path, "models", "available", "--url", site.address, "--json")
    assert json.loads(printed)[0]["files"][0].startswith(site.address.removesuffix("v1"))
    assert not (tmp_path / "models").exists()
    printed, said = ran(tmp_path, "models", "get", "en-de", "--url", site.address)
    assert printed == ""
    assert said.startswith(
        "en-de, tiny 3.0, licence MPL-2.0; architectures that are published: tiny\n  model.ende.intgemm.alphas.bin, 0.0 MB, from http://127.0.0.1:"
    )
    assert "licence: MPL-2.0\n" in said
    assert said.endswith("next: nmt translate --model en-de < input\n")
    _, said = ran(tmp_path, "models", "get", "en-de", "--url", site.address)
    assert said.endswith("nothing to do: models/en-de is this model\n")
    printed, _ = ran(tmp_path, "models")
    assert re.fullmatch(r"en-de  English  German  0\.\d  MPL-2\.0  http://\S+", printed.splitlines()[1])
    printed, said = ran(tmp_path, "translate", "--model", "en-de", text=b"the dog\n")
    assert (printed.count("\n"), said.splitlines()[0]) == (1, "model: models/en-de")
    (tmp_path / "models/en-de/config.json").write_text("{}")
    printed, said = ran(tmp_path, "models")
    assert "en-de" not in printed
    assert said.startswith("warning: 'models/en-de/config.json' ")


def test_without_a_network(tmp_path: Path) -> None:
    for command in (["available"], ["get", "en-pt"]):
        printed, said = ran(tmp_path, "models", *command, code=1)
        assert printed == ""
        assert said.startswith("error: cannot learn which models are published: https://firefox.settings.services.")
    assert "`nmt import FOLDER --license MPL-2.0 --out models/en-pt` imports them" in " ".join(said.split())
    _, said = ran(tmp_path, "translate", "--model", "en-pt", code=1)
    assert "no model at 'en-pt' (nor at 'models/en-pt')" in said


@pytest.mark.slow
def test_an_interrupted_download_resumes(site: Site, tmp_path: Path) -> None:
    arguments = ("models", "get", "en-de", "--url", site.address)
    site.held = threading.Event()
    process = start(tmp_path, *arguments, NMT_MODELS="models")
    while not any(path.stat().st_size for path in (tmp_path / "models").rglob("*.part")):
        assert process.poll() is None
        time.sleep(0.01)
    _, said = ran(tmp_path, *arguments, code=1)
    assert "another nmt models get fetches en-de now" in said
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.wait(), error.decode().splitlines()[-1]) == (
        130,
        "error: interrupted. The downloaded part is kept; the same command resumes there.",
    )
    site.held.set()
    ran(tmp_path, *arguments)
    assert "bytes=1000-" in [headers.get("range") for _, headers in site.requests]
    assert ran(tmp_path, "models")[0].count("\n") == 2
