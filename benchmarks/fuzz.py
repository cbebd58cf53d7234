"""Random requests against `nmt serve`, and the time that documents of a growing size take.

    python benchmarks/fuzz.py requests --model DIR [--count 20000] [--seed 0] [--clients 32]
    python benchmarks/fuzz.py schema --model DIR [--count 300]         needs schemathesis
    python benchmarks/fuzz.py linear [--characters 50000] [--rounds 3]

`requests`: valid requests are changed at random: methods, paths, queries, headers, lengths, chunks, encodings, JSON values, parts of
forms, single bytes. They arrive whole, in pieces, one behind another, or not to the end. Request N of a seed is always the same.
Printed are the answers by status. Exit 1 after an answer with a status of 500 or more, after a connection without an answer or an
end, after a traceback in the log, or if the server translates otherwise or does not end as usual afterwards.
`schema`: schemathesis makes requests from the server's /openapi.json, so many for each path. Exit 1 as above.
`linear`: seconds of the processor to read and to write a document of 1, 2, 4 and 8 times the characters, the fastest of the rounds.
The translation has the words of the document in another order (`random_documents.scrambled`).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from common import print_rows
from random_documents import scrambled

from nmt_cli.documents import read_document

READING = 1.0
"""The server's `--max-reading`, in seconds: so long it waits for the rest of a request."""
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
NOISE = [
    b"\x00",
    b"\xff",
    b"\r\n",
    b"\n",
    b":",
    b"%",
    b"&",
    b";",
    b'"',
    b" ",
    b"0\r\n\r\n",
    b"\xed\xa0\x80",
    b"9" * 30,
    b"{",
    b"--x--",
]


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


# --- a server, and whether it works as before ---


class Server:
    """`nmt serve` in a process of its own, with its log."""

    def __init__(self, model: Path, log: Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "nmt_cli", "serve", "--model", str(model), "--port", "0", "--device", "cpu"]
        command += ["--devices", "1", "--max-reading", str(READING)]
        with log.open("w") as stream:
            self.process = subprocess.Popen(command, stderr=stream)
        while not (found := re.search(r"listening on (\S+)", self.said())):
            if self.process.poll() is not None:
                raise SystemExit(f"nmt serve ended: {self.said()}")
            time.sleep(0.1)
        self.url = found[1]
        address = urlsplit(self.url)
        self.address = str(address.hostname), int(address.port or 0)

    def said(self) -> str:
        """Return the log."""
        return self.log.read_text(encoding="utf-8")

    def translation(self) -> bytes:
        """Return the body of the answer to a usual request."""
        body = json.dumps(BODIES["/translate"]).encode()
        head = f"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(self.address, timeout=LIMIT) as client:
            client.sendall(head.encode() + body)
            answer = HTTPResponse(client)
            answer.begin()
            return answer.read()

    def end(self) -> int | None:
        """End the server. Return its exit status, None if it does not end."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(LIMIT)
        self.process.kill()
        self.process.wait()
        return None


@contextmanager
def checked(model: Path) -> Iterator[tuple[Server, list[str]]]:
    """Yield a server, and a list for failures. Raises SystemExit if there are any, or the server is not what it was."""
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(model, Path(folder) / "log")
        try:
            before = server.translation()
            yield server, failures
            if server.translation() != before:
                failures.append("a usual request gets another answer than before")
        finally:
            code = server.end()
        failures += [f"the server ended with exit status {code}, expected 143"] * (code != 143)
        log = server.said()
        failures += [f"traceback: {text}" for text in re.findall(r"Traceback .*?\n(?=\d{4}-|\Z)", log, re.DOTALL)]
        warned = Counter(re.findall(r"^\S+ \S+ ((?:warning|error): .*)", log, re.MULTILINE))
    print("".join(f"{count:>8,}  {text}\n" for text, count in warned.most_common()), end="")
    if failures:
        print("\n".join(failures[:20]), file=sys.stderr)
        raise SystemExit(f"{len(failures):,} failures")


def requests(options: argparse.Namespace) -> None:
    """Send random requests, and print the answers by status."""
    with checked(options.model) as (server, failures), ThreadPoolExecutor(options.clients) as clients:
        counts: Counter[int | str] = Counter()
        seeds = [f"{options.seed} {number}" for number in range(options.count)]
        found = clients.map(lambda seed: exchange(server.address, seed), seeds)
        for seed, (answers, data) in zip(seeds, found, strict=True):
            counts.update(answers)
            failures += [f"request {seed!r}: {answer}: {data[:500]!r}" for answer in answers if failed(answer)]
        for status, count in sorted(counts.items(), key=str):
            print(f"{count:>8,}  {status}")


def schema(options: argparse.Namespace) -> None:
    """Run schemathesis."""
    with checked(options.model) as (server, failures):
        command = ["schemathesis", "run", f"{server.url}/openapi.json", "--checks", "not_a_server_error", "--no-color"]
        command += ["--max-examples", str(options.count), "--seed", str(options.seed), "--generation-database", "none"]
        if code := subprocess.run(command, cwd=server.log.parent, check=False).returncode:
            failures.append(f"schemathesis: exit status {code}")


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
SIZES = (1, 2, 4, 8)


def linear(options: argparse.Namespace) -> None:
    """Print the table of seconds."""
    rows = [["", *(f"{options.characters * size:,}" for size in SIZES), "last ÷ first"]]
    for name, (form, piece) in SHAPES.items():
        seconds = [
            min(_seconds(form, piece * (options.characters * size // len(piece))) for _ in range(options.rounds))
            for size in SIZES
        ]
        rows.append(
            [f"{name}: `{piece.strip()}`", *(f"{one:.2f}" for one in seconds), f"{seconds[-1] / seconds[0]:.1f}"]
        )
    print_rows(rows, markdown=True)


def _seconds(form: str, text: str) -> float:
    rng, translations = random.Random(0), []
    began = time.process_time()
    document = read_document(text, form, "en")
    read = time.process_time() - began
    translations = [scrambled(rng, line) for line in document.lines]
    began = time.process_time()
    document.write(translations)
    return read + time.process_time() - began


def main() -> None:
    """Read the options and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds: dict[str, tuple[Callable[[argparse.Namespace], None], int]]
    kinds = {"requests": (requests, 20_000), "schema": (schema, 300), "linear": (linear, 0)}
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--characters", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    run, count = kinds[options.what]
    options.count = options.count or count
    if options.what != "linear" and options.model is None:
        parser.error("--model DIR is missing: the server needs a model")
    run(options)


if __name__ == "__main__":
    main()
