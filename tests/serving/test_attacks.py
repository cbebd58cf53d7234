"""Attacks on a server: each is refused in the form of the interface that it speaks, and the server translates afterwards."""

import itertools
import json
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import fuzz
import pytest
from held_search import held_until
from served import Served, get, post, running
from waiting import wait_until

import nmt_cli as nmt
from nmt_cli.serving import translating
from nmt_cli.serving.protocol import MOST_AROUND, TimedProtocol
from nmt_cli.serving.settings import Limits

TEXT = "the cat sees a dog."
PAIR = {"source": "en", "target": "de"}
INTERFACES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "/translate": ({"q": TEXT, **PAIR}, "q", "target", "error"),
    "/v2/translate": ({"text": TEXT, "target_lang": "DE"}, "text", "target_lang", "message"),
    "/nmt/attention": ({"q": TEXT, **PAIR}, "q", "target", "error"),
}
"""Path → a request, its parameters for the text and for the target language, and the name of the message in an error."""
every_interface = pytest.mark.parametrize("path", INTERFACES)


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The server's log has no traceback."""
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio", "nmt.serve")]
    for logger in loggers:
        logger.addHandler(caplog.handler)
    yield
    for logger in loggers:
        logger.removeHandler(caplog.handler)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.fixture(autouse=True)
def translates_afterwards(served: Served) -> Iterator[None]:
    yield
    for path in INTERFACES:
        assert answer_to(served, [whole(path, "Connection: close")])[0] == 200


def message_of(answer: Any, path: str, status: int = 400) -> str:
    """Return the message of a refusal, which has the form of the interface and is short."""
    assert answer.status_code == status, answer.text
    [(name, message)] = answer.json().items()
    assert name == INTERFACES[path][3]
    assert 0 < len(message) < 300
    return str(message)


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *lines]).encode("latin-1")


def whole(path: str, *lines: str, **values: Any) -> bytes:
    """Return a request with these headers, and these parameters besides the usual ones."""
    body = json.dumps({**INTERFACES[path][0], **values}).encode()
    return head(path, *lines, f"Content-Length: {len(body)}", "", "") + body


def answer_to(served: Served, sent: Iterable[bytes]) -> tuple[int, Any]:
    """Send until the server ends the connection. Return the status and the JSON of its answer."""
    with served.connect() as client:
        try:
            for data in sent:
                client.sendall(data)
        except ConnectionError:
            pass
        answer = HTTPResponse(client)
        answer.begin()
        return answer.status, json.loads(answer.read())


@every_interface
@pytest.mark.parametrize("where", ["target", "headers", "one header", "chunk extension", "trailers"])
def test_what_is_around_a_body_has_an_end(served: Served, path: str, where: str) -> None:
    chunked = head(path, "Transfer-Encoding: chunked", "", "")
    begin, endless = {
        "target": (b"POST " + path.encode() + b"?x=", b"a" * 10_000),
        "headers": (head(path), b"\r\nX: a" * 1000),
        "one header": (head(path, "X: a"), b"a" * 10_000),
        "chunk extension": (chunked + b"5", b";a=a" * 2500),
        "trailers": (chunked + b"2\r\n{}\r\n0\r\nX: a", b"\r\nX: a" * 1000),
    }[where]
    sent = 0

    def data() -> Iterator[bytes]:
        nonlocal sent
        yield begin
        while sent < 2**26:  # much more than the buffers of a connection hold
            yield endless
            sent += len(endless)

    status, answer = answer_to(served, data())
    assert (status, sent < 2**26) == (431, True)
    assert f"more than {MOST_AROUND:,} bytes" in answer[INTERFACES[path][3]]


@every_interface
@pytest.mark.parametrize(
    "line", ["Content-Length: -1", "Content-Length: 2\r\nContent-Length: 3", "a b: c", "X: \x00", "Host: y"]
)
def test_what_is_no_http(served: Served, path: str, line: str) -> None:
    expected = {INTERFACES[path][3]: "the request is not valid HTTP/1.1."}
    assert answer_to(served, [head(path, line, "", "{}")]) == (400, expected)
    assert answer_to(served, [head(path, "", "").replace(b" HTTP/1.1", b"")]) == (400, expected)
    both = head(path, "Content-Length: 4", "Transfer-Encoding: chunked", "", "0\r\n\r\n")
    for unclear in (head(path, "", "").replace(b" HTTP/1.1", b" HTTP/2.0"), both):
        assert answer_to(served, [unclear])[0] == 400


@every_interface
def test_a_client_that_asks_for_http_2_is_answered(served: Served, path: str) -> None:
    """Its body must not be taken for another request."""
    asked = whole(path, "Connection: close, Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    assert answer_to(served, [asked])[0] == 200
    smuggled = b"POST /translate HTTP/1.1\r\n"
    with served.connect() as client:
        client.sendall(b"CONNECT %s HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n%s" % (path.encode(), smuggled))
        answer = HTTPResponse(client)
        answer.begin()
        assert (answer.status, answer.headers["connection"]) == (400, "close")


@pytest.mark.parametrize("upgrade", [(), ("Connection: Upgrade, close", "Upgrade: h2c", "UPGRADE: x")])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_text_arrives_as_it_was_sent_however_it_is_cut(
    served: Served, translator: nmt.Translator, upgrade: tuple[str, ...], chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the client asks for another protocol, which the server does not speak."""
    lines = ["the cat.", "Upgrade: y"]
    body = b"source=en&target=de&q=the cat.\nUpgrade: y"
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    begin = head("/translate", length, *upgrade, "", "").replace(b"application/json", b"text/plain")
    request = begin + (b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
    received = TimedProtocol.data_received
    expected = "\n".join(found.text for found in translator.translate(lines))
    for cut in (*range(len(begin) - 4, len(begin) + 3), len(request)):
        ends = [*range(1, len(request) + 1)] if cut == len(request) else [cut, len(request)]

        def in_pieces(self: TimedProtocol, data: bytes, ends: list[int] = ends) -> None:
            assert data == request
            for start, end in itertools.pairwise([0, *ends]):
                received(self, data[start:end])

        with monkeypatch.context() as patched:
            patched.setattr(TimedProtocol, "data_received", in_pieces)
            with served.connect() as client:
                client.sendall(request)
                answer = HTTPResponse(client)
                answer.begin()
                assert (answer.status, json.loads(answer.read())) == (200, {"translatedText": expected})


@every_interface
@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-16", "x" * 500])
@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "application/json"])
def test_charsets(served: Served, path: str, charset: str, kind: str) -> None:
    body = b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\na\r\n--x--\r\n" if "form" in kind else b"{}"
    headers = {"Content-Type": f"{kind}; charset={charset}"}
    assert "expected utf-8" in message_of(post(served.url + path, content=body, headers=headers), path, 415)
    headers = {"Content-Type": f"{kind}; x={'a' * 5000}"}
    assert "longer than" in message_of(post(served.url + path, content=body, headers=headers), path)


@pytest.mark.parametrize("path", ["/translate", "/v2/translate"])
def test_empty_texts_count(model: Path, served: Served, path: str) -> None:
    values, text, *_ = INTERFACES[path]
    with running(model, limits=Limits(max_sentences=100)) as small:
        assert post(small.url + path, json={**values, text: [""] * 100}).status_code == 200
        for texts in ([""] * 101, [*[""] * 50, "a dog. " * 51]):
            assert "101 sentences" in message_of(post(small.url + path, json={**values, text: texts}), path, 413)


@every_interface
def test_the_number_of_values_is_limited(served: Served, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    for many in (b'{"x":[' + b"," * 1_000_001, b"[" * 1_000_001, b"{" * 1_000_001):
        assert "values" in message_of(post(served.url + path, content=many, headers=headers), path, 413)
    assert "parameters" in message_of(post(served.url + path, content=b"a&" * 100_001), path, 413)


@every_interface
def test_half_of_a_surrogate_pair(served: Served, path: str) -> None:
    _, text, target, _ = INTERFACES[path]
    assert answer_to(served, [whole(path, "Connection: close", **{text: "a \ud800 dog"})])[0] == 200
    assert answer_to(served, [whole(path, "Connection: close", **{target: "d\udc00"})])[0] == 400


@every_interface
@pytest.mark.parametrize("depth", [100, 900, 980, 1000, 50_000])
def test_nested_json(served: Served, path: str, depth: int) -> None:
    values = INTERFACES[path][0]
    names = [*values, "alternatives", "format", "api_key", "formality", "preserve_formatting", "ignore_tags", "x"]
    for name in names:
        for nested in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
            fields = {**{key: json.dumps(value) for key, value in values.items()}, name: nested}
            body = ("{" + ",".join(f'"{key}":{value}' for key, value in fields.items()) + "}").encode()
            status, answer = answer_to(
                served, [head(path, f"Content-Length: {len(body)}", "Connection: close", "", "") + body]
            )
            assert status == 200 or (status, [*answer]) == (400, [INTERFACES[path][3]])


@pytest.mark.parametrize("form", ["html", "xml"])
def test_nested_markup(served: Served, form: str) -> None:
    for depth, status in ((5000, 200), (20_000, 400)):
        text = "<b>" * depth + "a dog" + "</b>" * depth
        for path, option in {"/translate": "format", "/v2/translate": "tag_handling"}.items():
            values, name, *_ = INTERFACES[path]
            answer = post(served.url + path, json={**values, option: form, name: text})
            assert answer.status_code == status
            assert status == 200 or "nested 10,001 deep" in message_of(answer, path)


OF_DEEPL = ("tag_handling", "split_sentences", "formality", "ignore_tags", "non_splitting_tags", "target_lang")
NAMES = {"/v2/translate": OF_DEEPL, "/translate": ("format", "alternatives", "source", "target")}
STRANGE = [["xml"], {"tag": "xml"}, 1, True, 1.5, "XML!", "x" * 5000, "\ud800", "xml\0", "../../de", "\x1b[31mde", [[]]]


@pytest.mark.parametrize("value", STRANGE)
def test_values_of_other_types_and_codes(served: Served, value: Any) -> None:
    """Also those that DeepL's clients send as lists."""
    for path, names in NAMES.items():
        for name in names:
            status, answer = answer_to(served, [whole(path, "Connection: close", **{name: value})])
            number = isinstance(value, int | float) and name == "alternatives"
            if number or (name == "split_sentences" and str(value) in ("1", "True")):
                assert status == 200, (name, answer)
            else:
                assert (status, [*answer]) == (400, [INTERFACES[path][3]]), name
                assert 0 < len(*answer.values()) < 300


NOT_TEXTS = "q parameter is neither a text nor a list of texts"


@pytest.mark.parametrize(
    ("path", "values", "named"),
    [
        ("/translate", {"q": None}, "missing q"),
        ("/translate", {"source": None}, "missing source"),
        ("/translate", {"target": None}, "missing target"),
        ("/translate", {"source": "fr"}, "fr is not supported"),
        ("/translate", {"target": "xx"}, "xx is not supported"),
        ("/translate", {"target": "pt-BR"}, "Portuguese (BR) (pt-BR) is not available as a target language"),
        ("/translate", {"format": "pdf"}, "pdf format"),
        ("/translate", {"q": 3}, NOT_TEXTS),
        ("/translate", {"q": ["a", None]}, NOT_TEXTS),
        ("/translate", {"alternatives": "many"}, "not a number"),
        ("/translate", {"alternatives": 10}, "<= 9"),
        ("/v2/translate", {"text": None}, "'text' not specified"),
        ("/v2/translate", {"target_lang": None}, "'target_lang' not specified"),
        ("/v2/translate", {"target_lang": "FR"}, "'target_lang' not supported"),
        ("/v2/translate", {"source_lang": "FR"}, "'source_lang' not supported"),
        ("/v2/translate", {"source_lang": "EN", "target_lang": "PT"}, "from EN to PT"),
        ("/v2/translate", {"tag_handling": "md"}, "'tag_handling' not supported"),
        ("/v2/translate", {"split_sentences": "2"}, "'split_sentences' not supported"),
        ("/v2/translate", {"formality": "more"}, "'formality' is not supported"),
        ("/v2/translate", {"glossary_id": "x"}, "'glossary_id' is not supported"),
        ("/v2/translate", {"ignore_tags": ["x"]}, "'ignore_tags' is not supported"),
    ],
)
def test_what_is_wrong_is_named(served: Served, path: str, values: dict[str, object], named: str) -> None:
    assert named in message_of(post(served.url + path, json=INTERFACES[path][0] | values), path)


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000, b'"a"', b"\xff", b""])
@every_interface
def test_bodies_that_are_no_json_object(served: Served, path: str, body: bytes) -> None:
    answer = post(served.url + path, content=body, headers={"Content-Type": "application/json"})
    assert message_of(answer, path) == "Invalid JSON format"


def test_the_name_of_a_file_is_made_of_the_models_language(served: Served) -> None:
    """Whatever the client gives as a language and as a name, the file can be fetched, and has a name of its own."""
    for target, name, expected in (
        ("de-../../x", "a.txt", "a_de.txt"),
        ("de", "../../etc/a.html", "a_de.html"),
        ("de", "50% #1?.txt", "50% #1?_de.txt"),
        ("de", "a%2Fb.txt", "a%2Fb_de.txt"),
        ("de", "x" * 3000 + ".txt", "x" * 100 + "_de.txt"),
    ):
        sent = {"source": "en", "target": target}
        answer = post(f"{served.url}/translate_file", data=sent, files={"file": (name, b"the dog.")})
        fetched = get(answer.json()["translatedFileUrl"])
        assert fetched.status_code == 200
        assert fetched.headers["content-disposition"] == f"attachment; filename*=UTF-8''{quote(expected)}"


@pytest.mark.parametrize("below", ["/page/", "/download_file/", "/v2/"])
@pytest.mark.parametrize(
    "name", ["%00", "a%00b/c", "x" * 5000, "..%2f..%2fapp.py", "%2e%2e/%2e%2e/app.py", "%ff", "a/" * 500]
)
def test_paths(served: Served, below: str, name: str) -> None:
    request = f"GET {below}{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    status, answer = answer_to(served, [request.encode()])
    assert (status, [*answer]) == (404, ["message" if below == "/v2/" else "error"])


SPACES = " " * 5_000_000
"""A text whose translation is as long, and takes no time."""


@pytest.mark.slow
def test_who_does_not_read_loses_the_place(model: Path, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = TimedProtocol.within(1)
    monkeypatch.setattr(TimedProtocol, "within", lambda seconds: protocol)  # the body has no limit
    with (
        running(model, limits=Limits(max_characters=0, max_reading=0, max_connections=2)) as one,
        one.connect(4096) as greedy,
    ):
        greedy.sendall(whole("/translate", q=SPACES))
        assert greedy.recv(1)
        statuses = [get(f"{one.url}/languages").status_code]
        wait_until(lambda: statuses.append(get(f"{one.url}/languages").status_code) or statuses[-1] == 200)  # type: ignore[func-returns-value]
        assert statuses[0] == 503


@pytest.mark.slow
def test_a_client_that_does_not_read_does_not_hold_the_end_up(model: Path, served: Served) -> None:
    with running(model, limits=Limits(max_characters=0, max_reading=0), grace=1) as one:
        greedy = one.connect(4096)
        greedy.sendall(whole("/translate", q=SPACES))
        answer = HTTPResponse(greedy)
        answer.begin()
    with greedy, pytest.raises(IncompleteRead):  # the server did not wait for it
        answer.read()


def test_a_client_that_asks_twice_and_leaves(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = held_until(monkeypatch, tmp_path)
    monkeypatch.setattr(translating, "SOON", 0)  # it is looked from the beginning whether the client is there
    with running(model) as one:
        with one.connect() as client:
            client.sendall(whole("/translate", q="the cat sees a dog " * 8) + whole("/translate"))
            gate.begun()
        wait_until(one.idle)


@pytest.mark.filterwarnings("ignore:Unclosed file <tempfile")  # starlette's, of a form that is cut within a file
def test_random_requests(served: Served, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(fuzz, "READING", 0.2)
    with running(model, limits=Limits(max_reading=0.2)) as one, ThreadPoolExecutor(16) as clients:
        address = urlsplit(one.url)
        found = clients.map(
            lambda seed: fuzz.exchange((str(address.hostname), address.port or 0), f"test {seed}"), range(300)
        )
        answers = [(answer, data) for some, data in found for answer in some]
    assert not [one for one in answers if fuzz.failed(one[0])]
    assert {200, 400, 404, 405, "reset"} <= {answer for answer, _ in answers}
