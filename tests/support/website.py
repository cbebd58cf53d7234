"""A web server on this machine that serves files and misbehaves as told: cuts, errors, no ranges, changed files."""

import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol, TypeVar


@dataclass
class Site:
    """What is served and how. Lists are used up, an entry a request; the rest of the requests are answered well."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """By name."""
    marks: dict[str, str] = field(default_factory=dict)
    """ETags by name; a file without one has none."""
    ranges: bool = True
    lengths: bool = True
    """Whether Content-Length is said."""
    cuts: list[int] = field(default_factory=list)
    """Bytes of a body after which the connection ends."""
    statuses: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    """Said with every error."""
    held: threading.Event | None = None
    """After the first 1,000 bytes of a .zst the rest comes when this is set; None: at once."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of every request, in lower case."""

    def asked(self, name: str, header: str) -> list[str | None]:
        """What the requests for a file said in a header."""
        return [headers.get(header) for path, headers in self.requests if path.rsplit("/", 1)[-1] == name]


def serve() -> AbstractContextManager[Site]:
    """A site that runs until the block ends."""
    return serving(Site(), answer)


class Addressed(Protocol):
    address: str


S = TypeVar("S", bound=Addressed)


@contextmanager
def serving(site: S, answer: Callable[[S, BaseHTTPRequestHandler], None]) -> Iterator[S]:
    """A server that answers requests so until the block ends; `site` gets its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(site, self)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Clients close connections whenever they like."""

    with Server(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def answer(site: Site, request: BaseHTTPRequestHandler) -> None:
    name = request.path.rsplit("/", 1)[-1]
    site.requests.append((request.path, {key.lower(): value for key, value in request.headers.items()}))
    status = site.statuses.pop(0) if site.statuses else 200
    if status != 200 or name not in site.files:
        error(site, request, status if status != 200 else 404)
        return
    content, mark = site.files[name], site.marks.get(name)
    begin = 0
    wanted = request.headers.get("Range")
    if wanted and site.ranges and request.headers.get("If-Range") in (None, mark):
        begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if begin >= len(content):
            site.headers["Content-Range"] = f"bytes */{len(content)}"
            error(site, request, 416)
            return
    request.send_response(206 if begin else 200)
    if begin:
        request.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
    if site.lengths:
        request.send_header("Content-Length", str(len(content) - begin))
    if mark:
        request.send_header("ETag", mark)
    request.end_headers()
    body = content[begin : begin + site.cuts.pop(0)] if site.cuts else content[begin:]
    try:
        if site.held and name.endswith(".zst"):
            request.wfile.write(body[:1000])
            body = body[1000:]
            site.held.wait()
        request.wfile.write(body)
    except OSError:  # who asked has gone
        pass


def error(site: Site, request: BaseHTTPRequestHandler, status: int) -> None:
    request.send_response(status)
    for key, value in site.headers.items():
        request.send_header(key, value)
    request.send_header("Content-Length", "0")
    request.end_headers()


def tgz(files: Mapping[str, bytes | str], mode: str = "w:gz") -> bytes:
    """A tar archive of files by name."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def zipped(files: Mapping[str, bytes | str]) -> bytes:
    """A zip archive of files by name."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def sgm(lines: list[str], kind: str = "srcset") -> str:
    """WMT's .sgm of lines, four a document."""
    documents = [lines[start : start + 4] for start in range(0, len(lines), 4)]
    told = [
        f'<doc docid="{number}" genre="news" origlang="en">\n<p>\n'
        + "".join(f'<seg id="{place}">{line}</seg>\n' for place, line in enumerate(document, 1))
        + "</p>\n</doc>\n"
        for number, document in enumerate(documents)
    ]
    return f'<{kind} setid="made" srclang="any">\n{"".join(told)}</{kind}>\n'
