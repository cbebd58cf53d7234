"""Limits, load, clients that misbehave: what others get stays right."""

import itertools
import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from held_search import held_until
from served import Served, get, httpx, post, running
from untrained import sentence
from waiting import LIMIT, wait_until

import nmt_cli as nmt
from nmt_cli.errors import NmtError
from nmt_cli.serving import translating
from nmt_cli.serving.protocol import TimedProtocol
from nmt_cli.serving.settings import Limits

PAIR = {"source": "en", "target": "de"}
TEXT = "the cat sees a dog."


def translate(served: Served, text: str | list[str] = TEXT) -> httpx.Response:
    return post(f"{served.url}/translate", json={"q": text, **PAIR})


HEAD = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def request(text: str | list[str]) -> bytes:
    body = json.dumps({"q": text, **PAIR}).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def document(seed: int = 0, lines: int = 1500) -> list[str]:
    rng = random.Random(seed)
    return [sentence(rng, 35) for _ in range(lines)]


def closed(translator: nmt.Translator) -> bool:
    try:
        translator.submit([TEXT])
    except NmtError:
        return True
    return False


@pytest.mark.parametrize(
    ("limits", "texts", "status", "named"),
    [
        (Limits(max_characters=10), ["the cat sees."], 413, "13 characters, this server translates 10"),
        (Limits(max_sentences=2), ["a.", "b.", "c."], 413, "3 sentences, this server translates 2"),
        (Limits(max_bytes=100), ["a" * 200], 413, "100 bytes at most"),
        (Limits(max_queue=1), ["a.", "b."], 429, "more sentences are waiting"),
        (Limits(max_seconds=0.05), document(), 503, "longer than 0.05 seconds"),
    ],
)
def test_limits(
    model: Path, limits: Limits, texts: list[str], status: int, named: str, monkeypatch: Any, tmp_path: Path
) -> None:
    held_until(monkeypatch, tmp_path)
    with running(model, limits=limits) as served:
        answer = translate(served, texts)
        assert (answer.status_code, "retry-after" in answer.headers) == (status, status in (429, 503))
        assert named in answer.json()["error"]
        deepl = post(f"{served.url}/v2/translate", json={"text": texts, "target_lang": "DE"})
        assert (deepl.status_code, list(deepl.json())) == (status, ["message"])
        wait_until(served.idle)
        if status != 413 and limits.max_queue > 1:
            assert translate(served, "a.").status_code in (200, 503)


def test_a_closed_connection_cancels_its_work_and_single_sentences_do_not_wait(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = held_until(monkeypatch, tmp_path)
    with running(model) as served:
        with served.connect() as client:
            client.sendall(request(document()))
            gate.begun()
            for _ in range(3):
                assert translate(served).status_code == 200
            assert not served.idle()
        wait_until(served.idle)


def test_a_quota_holds_for_requests_at_once(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A request counts from its beginning, also if its client leaves, but not if it is refused."""
    gate, text = held_until(monkeypatch, tmp_path), "the cat sees a dog " * 8
    monkeypatch.setattr(translating, "SOON", 0)  # it is looked from the beginning whether the client is there
    limits = Limits(quota=2 * len(text), max_sentences=1)
    with running(model, limits=limits) as served, ThreadPoolExecutor(30) as clients:

        def used() -> object:
            return get(f"{served.url}/v2/usage").json()["character_count"]

        assert translate(served, ["a.", "b."]).status_code == 413
        assert used() == 0
        with served.connect() as client:
            client.sendall(request(text))
            gate.begun()
        wait_until(served.idle)
        assert used() == len(text)
        asked = [clients.submit(translate, served, text) for _ in range(30)]
        try:
            wait_until(lambda: sum(one.done() for one in asked) == 29)
        finally:
            gate.open()
        assert sorted(one.result().status_code for one in asked) == [200] + [456] * 29
        assert used() == 2 * len(text)


def test_serving_protocol_is_written_for_this_uvicorn() -> None:
    """With another minor version, look whether serving/protocol.py and supervisor.py still fit; then change this."""
    assert metadata.version("uvicorn").startswith("0.54."), "read the changes of uvicorn since 0.54"


def test_headers_that_do_not_arrive(model: Path) -> None:
    with running(model, limits=Limits(max_reading=0.5)) as served, served.connect() as silent, served.connect() as half:
        with suppress(OSError):  # it may be closed already
            half.sendall(HEAD)
            assert half.recv(1000) == b""
        assert silent.recv(1000) == b""


def test_a_body_that_does_not_arrive(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimedProtocol, "within", lambda seconds: TimedProtocol)  # headers have no limit
    with running(model, limits=Limits(max_reading=0.5)) as served:
        with served.connect() as slow:
            slow.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
            assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert get(f"{served.url}/health").status_code == 200


def test_a_body_in_chunks_has_the_limit_too(model: Path) -> None:
    with running(model, limits=Limits(max_bytes=100)) as served:
        for count, status in ((1, 400), (2, 413)):  # without a length that is known before
            assert post(f"{served.url}/translate", content=(b"x" * 60 for _ in range(count))).status_code == status


def test_counters_readiness_and_origins(model: Path) -> None:
    with running(model, cors=("https://example.org",)) as served:
        answer = post(f"{served.url}/translate", json={"q": TEXT, **PAIR}, headers={"Origin": "https://example.org"})
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        assert "access-control-allow-origin" not in get(served.url, headers={"Origin": "https://example.com"}).headers
        get(f"{served.url}/made-up-{TEXT}")
        text = get(f"{served.url}/metrics").text
        for line in (
            'nmt_requests_total{path="/translate",status="200"} 1.0',
            'nmt_requests_total{path="other",status="404"} 1.0',
            "nmt_queue_sentences",
            "nmt_tokens_total",
            "nmt_request_seconds_bucket",
        ):
            assert line in text
        assert "cat" not in text
        assert get(f"{served.url}/ready").json() == {"status": "ready", "pairs": ["en-de"], "waiting": 0}


def test_models_are_loaded_anew_again_and_again_under_constant_load(model: Path, translator: nmt.Translator) -> None:
    """Every client gets what a translator gives, whatever others send meanwhile."""
    texts = [sentence(random.Random(seed), 12) for seed in range(20)]
    with running(model, devices=2) as served:
        expected = [{"translatedText": one.text} for one in translator.translate(texts)]
        whole = translate(served, "\n".join(texts)).json()["translatedText"]
        assert [{"translatedText": line} for line in whole.split("\n")] == expected
        loaded, stop = [served.models.pairs], threading.Event()

        def ask(first: int) -> int:  # type: ignore[return]
            with httpx.Client(timeout=LIMIT) as client:
                for count in itertools.count(first):
                    if stop.is_set():
                        return count - first
                    answer = client.post(f"{served.url}/translate", json={"q": texts[count % len(texts)], **PAIR})
                    assert (answer.status_code, answer.json()) == (200, expected[count % len(texts)])

        with ThreadPoolExecutor(8) as clients:
            asked = [clients.submit(ask, first) for first in range(8)]
            try:
                for _ in range(3):
                    assert served.models.reload()
                    loaded.append(served.models.pairs)
                    wait_until(lambda: sum(one.done() for one in asked) or not served.idle())
            finally:
                stop.set()
            assert all(one.result() for one in asked)
        for pairs in loaded[:-1]:
            wait_until(lambda pairs=pairs: all(closed(old.translator) for old in pairs.models.values()))


ERRORS = RuntimeError("order"), SystemExit("order"), UnicodeDecodeError("utf-8", b"", 0, 1, "order"), NmtError("order")


@pytest.mark.parametrize("error", ERRORS)
def test_any_error_of_a_reload_is_said(error: BaseException, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    with running(model) as served:
        before = translate(served).json()
        with monkeypatch.context() as broken:
            broken.setattr("nmt_cli.serving.models.load", fails)
            assert not served.models.reload()
        assert "the old ones stay in service" in served.said[-1]
        assert isinstance(error, NmtError) or type(error).__name__ in served.said[-1]
        assert "order" in served.said[-1]
        assert translate(served).json() == before
        assert served.models.reload()
        assert translate(served).json() == before
        assert (served.models.reloads, served.models.failed_reloads) == (1, 1)


def test_several_reloads_that_wait_are_one(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(model) as served:
        begun, gate = threading.Event(), threading.Event()

        def held(*arguments: Any, **options: Any) -> Any:
            begun.set()
            assert gate.wait(LIMIT)
            return nmt.load(*arguments, **options)

        monkeypatch.setattr("nmt_cli.serving.models.load", held)
        first = threading.Thread(target=served.models.reload)
        first.start()
        assert begun.wait(LIMIT)
        more = [threading.Thread(target=served.models.reload) for _ in range(5)]
        try:
            for thread in more:
                thread.start()
            wait_until(lambda: sum(thread.is_alive() for thread in more) == 1)
        finally:
            gate.set()
        for thread in (first, *more):
            thread.join()
        assert served.models.reloads == 2


def test_attention(served: Served, translator: nmt.Translator) -> None:
    answer = post(f"{served.url}/nmt/attention", json={"q": "the cat sees. a dog.", **PAIR}).json()
    for line, found in zip(["the cat sees.", "a dog."], answer["sentences"], strict=True):
        [expected] = translator.translate([line], confidence=True)
        assert (found["source"], found["translation"]) == (line, expected.text)
        assert (tuple(found["tokens"]), tuple(found["source_tokens"])) == (expected.tokens, expected.source_tokens)
        assert [len(row) for row in found["weights"]] == [len(found["source_tokens"])] * len(found["tokens"])
        assert all(0 < sum(row) <= 1.001 for row in found["weights"])
        assert expected.words is not None
        assert [word for word, _ in found["words"]] == [word.word for word in expected.words]
    assert post(f"{served.url}/nmt/attention", json={"q": "a" * 3000, **PAIR}).status_code == 413
