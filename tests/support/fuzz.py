"""Random requests against a server, and documents of which the time is measured.

    exchange(address, seed) ──▶ the statuses of the answers, or what came instead
    SHAPES                      kinds of documents, by what is repeated in them

Valid requests are changed at random: methods, paths, queries, headers, lengths, chunks, encodings, JSON values, parts of
forms, single bytes. They arrive whole, in pieces, one behind another, or not to the end. The request of a seed is always the same.
"""

import json
import random
import socket
import struct
from collections.abc import Iterator, Sequence
from http.client import HTTPException, HTTPResponse

READING = 1.0
"""Seconds to wait for the answer to a further request on the same connection."""
LIMIT = 60.0
"""Seconds after which a connection without an answer or an end is a failure."""

# --- random requests ---

TEXTS: dict[str, object] = {"q": "the dog sleeps.", "text": "the dog sleeps."}
BODIES: dict[str, dict[str, object]] = {
    "/translate": {"q": "the dog sleeps.", "source": "en", "target": "de", "format": "html", "alternatives": 2},
    "/detect": {"q": "the dog sleeps."},
    "/v2/translate": {"text": ["the dog."], "target_lang": "DE", "tag_handling": "xml", "split_sentences": "1"},
    "/v2/languages": {"type": "target"},
    "/v2/usage": {},
    "/nmt/attention": {"q": "the dog sleeps.", "source": "auto", "target": "de"},
    "/translate_file": {"source": "en", "target": "de"},
}
OTHER_FIELDS = ("ignore_tags", "formality", "api_key", "preserve_formatting", "x")


def _choices(*lines: str) -> list[str]:
    """Return what stands between the marks " | "."""
    return " | ".join(lines).split(" | ")


PATHS = _choices(
    "/ | /languages | /frontend/settings | /suggest | /health | /ready | /metrics | /openapi.json | /page/page.js | /page/%00",
    "/v2/glossary-language-pairs | /v2/../translate | /translate/ | /page/..%2f..%2fapp.py | /download_file/x | // | *",
    f"http://[/ | http://x/translate | /%ff%c0%80 | /page/{'a/' * 200} | /v2/{'x' * 3000}",
)
METHODS = _choices("GET | HEAD | OPTIONS | PUT | DELETE | CONNECT | TRACE | PATCH | post | PRI | M-SEARCH | ")
VALUES = _choices(
    f'null | true | -1 | 1e999 | NaN | -Infinity | {"9" * 5000} | {"1" * 400}.5 | nul | [] | {{}} | [null] | [["a"]]',
    r'"" | "\ud800" | "\u0000" | "auto" | "EN-US" | "xml" | "nonewlines" | "de-../../x" | ["a", "b."] | "a | ' + "'a'",
    r'"<b>a</i> &#xd800; <c" | "{a} %s http://x" | ' + '"\t" | "&\udc00\ufffe\u202e"',
    f'"{"e" * 5000}" | {"[" * 900}{"]" * 900}',
    '["' + '", "' * 3000 + '"] | "' + "<b>" * 3000 + '" | ' + '{"a":' * 5000 + "1" + "}" * 5000,
)
"""Values of JSON, valid or not."""
TYPES = _choices(
    "application/json | application/x-www-form-urlencoded | multipart/form-data; boundary=x | text/plain |  | ;;=; | a/b+json",
    "application/json; charset=punycode | application/json; charset=utf-16 | multipart/form-data; charset=idna; boundary=x",
    f'multipart/form-data | multipart/form-data; boundary= | multipart/form-data; boundary="{"-" * 300}"',
)
HEADERS = _choices(
    "Host: [ | Host: a b | Host: | Host: \xff | Connection: close | Range: bytes=-0 | Range: bytes=0-1,3-4 | : x | X |  folded: x",
    "Connection: Upgrade\r\nUpgrade: websocket | Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: x | a b: c | Expect: x",
    "Expect: 100-continue | Authorization: Bearer \xe9 | Authorization: DeepL-Auth-Key | Content-Encoding: gzip | Origin: \x00",
    "Transfer-Encoding: gzip | Transfer-Encoding: chunked | Transfer-Encoding: chunked, identity | If-None-Match: *",
    "Content-Length: 5 | Content-Length: -1 | Content-Length: 1_0 | Content-Length: 12345678 | Content-Length: 99999999999999999999",
    f"If-Modified-Since: x | Range: {'1-' * 999} | X: {'a' * 70_000}",
    "\r\n".join(f"X{number}: a" for number in range(500)),
)
PARTS = _choices(
    """name="{}" | name="{}"; filename="a.txt" | name*=punycode''{} | name="{}"; filename*=utf-8''%00%ff.html | """,
    'name="{} | name="{}"\r\nContent-Type: text/plain; charset=punycode | name="{}"; filename="../../\x00#%2f.htm"',
    'name="{}"; filename=""',
)
NOISE = [b"\x00", b"\xff", b"\r\n", b"\n", b" ", b"0\r\n\r\n", b"\xed\xa0\x80", b"9" * 30, b"--x--"]
NOISE += b': % & ; " {'.split()


def request_of(rng: random.Random) -> bytes:
    """Return a request, changed at random."""
    path = rng.choice([*BODIES] if rng.random() < 0.7 else PATHS)
    fields = {name: json.dumps(value) for name, value in BODIES.get(path, TEXTS).items()}
    while rng.random() < 0.4:
        fields[rng.choice([*fields, *OTHER_FIELDS])] = rng.choice(VALUES)
    kind = rng.choice(TYPES[:3] if rng.random() < 0.8 else TYPES)
    body = _body(rng, kind if rng.random() < 0.95 else rng.choice(TYPES), fields)
    if rng.random() < 0.15:
        path += "?" + _form(rng, fields)
    method = "POST" if rng.random() < 0.85 else rng.choice(METHODS)
    headers = [f"{method} {path} HTTP/{'1.1' if rng.random() < 0.97 else rng.choice(['1.0', '2', '0.9', 'x'])}"]
    headers += ["Host: localhost"] * (rng.random() < 0.97) + ([f"Content-Type: {kind}"] if kind else [])
    if rng.random() < 0.15:
        headers.append("Transfer-Encoding: chunked")
        body = b"".join(_chunks(rng, body))
    elif rng.random() < 0.97:
        headers.append(f"Content-Length: {len(body) + (rng.choice([-1, 1, 1000]) if rng.random() < 0.03 else 0)}")
    while rng.random() < 0.12:
        headers.insert(rng.randint(1, len(headers)), rng.choice(HEADERS))
    data = "\r\n".join([*headers, "\r\n"]).encode("latin-1", "replace") + body
    while rng.random() < 0.08:
        at = rng.randrange(len(data))
        noise = rng.choice([*NOISE, data[at : at + 50], bytes([rng.randrange(256)])])
        data = data[:at] + noise + data[at + rng.choice([0, 1, 9]) :]
    return data


def _body(rng: random.Random, kind: str, fields: dict[str, str]) -> bytes:
    """Return the fields as JSON, as a form or as a multipart form."""
    if kind.startswith("multipart"):
        begin = "--x\r\nContent-Disposition: form-data;"
        parts = [f"{begin} {_part(rng, name)}\r\n\r\n{text}\r\n" for name, text in _plain(fields)]
        parts += [f"{begin} {_part(rng, 'file', 1)}\r\n\r\nthe dog.\r\n"] * rng.randint(0, 2)
        return ("".join(parts) + rng.choice(["--x--\r\n"] * 8 + ["--x", "--y--\r\n", ""])).encode("utf-8", "replace")
    if "form" in kind:
        return _form(rng, fields).encode("latin-1", "replace")
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
    return text.encode(rng.choice(["utf-8"] * 9 + ["utf-16"]), "surrogatepass")


def _part(rng: random.Random, name: str, usual: int = 0) -> str:
    return PARTS[usual if rng.random() < 0.8 else rng.randrange(len(PARTS))].format(name)


def _plain(fields: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each field."""
    for name, value in fields.items():
        texts = json.loads(value) if value.startswith('["') else [value.strip('"')]
        yield from ((name, text) for text in texts[:100])


def _form(rng: random.Random, fields: dict[str, str]) -> str:
    pairs = [f"{name}={text[:3000].replace(' ', '+').replace('&', '%26')}" for name, text in _plain(fields)]
    pairs += rng.choice([[]] * 9 + [["%zz=%", "=", "", "q=%00%ff%ed%a0%80"]])
    return "&".join(pairs).encode("ascii", "replace").decode()


def _chunks(rng: random.Random, body: bytes) -> Iterator[bytes]:
    size = rng.choice([1, 7, 1000])
    for start in range(0, len(body), size):
        chunk = body[start : start + size]
        wrong = rng.random() < 0.001
        length = rng.choice(["-1", "g", "f" * 17, "5;a=" + "b" * 9000]) if wrong else f"{len(chunk):x}"
        yield length.encode() + b"\r\n" + chunk + b"\r\n"
    yield rng.choice([b"0\r\n\r\n"] * 8 + [b"0\r\nTrailer: x\r\n\r\n", b""])


def exchange(address: tuple[str, int], seed: str) -> tuple[list[int | str], bytes]:
    """Send what a seed gives over a connection of its own. Return the statuses of the answers, or what came instead, and the bytes."""
    rng = random.Random(seed)
    requests = [request_of(rng) for _ in range(rng.randint(2, 5) if rng.random() < 0.1 else 1)]
    data = b"".join(requests)
    how = rng.choice(["whole"] * 12 + ["pieces", "pieces", "cut", "half-closed", "closed", "reset"])
    if how in ("cut", "half-closed"):
        data = data[: rng.randrange(1, len(data))]
    step = 1 + len(data) // (rng.randint(2, 9) if how == "pieces" else 1)
    with socket.create_connection(address, timeout=LIMIT) as client:
        try:
            for start in range(0, len(data), step):
                client.sendall(data[start : start + step])
            if how == "half-closed":
                client.shutdown(socket.SHUT_WR)
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if how in ("closed", "reset"):
                return [how], data
            return _answers(client, requests), data
        except ConnectionError:
            return ["closed by the server"], data


def failed(answer: int | str) -> bool:
    """Return whether what a connection gave is a failure of the server."""
    return answer == "no answer" if isinstance(answer, str) else answer >= 500


def _answers(client: socket.socket, requests: Sequence[bytes]) -> list[int | str]:
    """Return the statuses of the answers. The server may take several of the requests for one."""
    found: list[int | str] = []
    for request in requests:
        answer = HTTPResponse(client, method=request.partition(b" ")[0].decode("latin-1"))
        try:
            answer.begin()
            answer.read()
        except TimeoutError:
            return found or ["no answer"]
        except (HTTPException, ConnectionError):
            return found or ["closed by the server"]
        found.append(answer.status)
        client.settimeout(READING)
        if answer.will_close:
            break
    return found


# --- documents of a growing size ---

SHAPES = {
    "one word without spaces": ("text", "a"),
    "words without a sentence's end": ("text", "a dog sees "),
    "sentences of one word": ("text", "A. "),
    "sentences": ("text", "The dog sees a cat. "),
    "lines": ("text", "a\n"),
    "ideographs": ("text", "你好。"),
    "quotation marks": ("text", "„"),
    "apostrophes": ("text", "'a "),
    "full stops": ("text", "."),
    "opening brackets": ("text", "("),
    "placeholders": ("text", "{a} b "),
    "web addresses": ("text", "http://a.b "),
    "elements": ("html", "<b>x</b>"),
    "elements and spaces": ("html", "<b>x</b> "),
    "elements left open": ("html", "<b>x</b><p>"),
    "blocks": ("html", "<p>a b</p>"),
    "words that stay": ("html", "<code>x</code> a "),
    "entities": ("html", "&amp;"),
    "comments": ("html", "a<!-- x -->"),
    "tags without a name": ("html", "<"),
}
"""Name → format, what is repeated."""
