"""A web server on this machine with the page of `nmt serve`, whose answers and errors a test decides, and when they come.

It translates into capital letters. The attention of each word is 0.8 on the word at its own position, and 0.2 on the one before.
"""

import json
import re
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from website import serving

import nmt_cli

FOLDER = Path(nmt_cli.__file__).parent / "serving" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
SAFE = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
NAMES = {"de": "German", "en": "English", "fr": "French"}
GERMAN, ENGLISH, FRENCH = ({"code": code, "name": name, "targets": []} for code, name in NAMES.items())
ONE_PAIR = [ENGLISH | {"targets": ["de"]}, GERMAN]
THREE = [ENGLISH | {"targets": ["de", "fr"]}, GERMAN | {"targets": ["en"]}, FRENCH]


@dataclass
class Reply:
    """How one request is answered; without a body as the server does where nothing is wrong."""

    status: int = 200
    body: Any = None
    goes: threading.Event | None = None
    """It is answered when this is set; None: at once."""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Site:
    """What is served."""

    address: str = ""
    languages: list[dict[str, Any]] = field(default_factory=lambda: ONE_PAIR)
    settings: dict[str, Any] = field(default_factory=dict)
    """Changes of the settings."""
    alternatives: list[str] = field(default_factory=list)
    key: str = ""
    """Without it a request is refused."""
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    """By path; used up, one per request."""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Path and parameters of every request, but not of the page's files."""
    answered: list[str] = field(default_factory=list)
    """Path of every request whose answer was sent, or whose sender has gone."""

    def asked(self, path: str) -> list[dict[str, Any]]:
        """Parameters of the requests for a path."""
        return [parameters for one, parameters in self.requests if one == path]


def serve() -> AbstractContextManager[Site]:
    """A site that runs until the block ends."""
    return serving(Site(), answer)


def parameters(handler: BaseHTTPRequestHandler) -> dict[str, Any]:
    body, kind = handler.rfile.read(int(handler.headers["Content-Length"])), handler.headers["Content-Type"]
    if kind == "application/json":
        found = json.loads(body)
        assert isinstance(found, dict)
        return found
    form = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
    parts: Any = form.get_payload()
    return {str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True) for part in parts}


def answer(site: Site, handler: BaseHTTPRequestHandler) -> None:
    path = handler.path
    file = FOLDER / ("index.html" if path == "/" else path.removeprefix("/page/"))
    if file.is_file():
        return write(handler, 200, file.read_bytes(), {"Content-Type": TYPES[file.suffix], **SAFE})
    given = parameters(handler) if handler.command == "POST" else {}
    site.requests.append((path, given))
    queue = site.replies.get(path, [])
    reply = queue.pop(0) if queue else Reply()
    if reply.goes:
        reply.goes.wait()
    body = reply.body
    if site.key and given and given.get("api_key") not in (site.key, site.key.encode()):
        reply, body = Reply(403), {"error": "Please contact the server operator to get an API key"}
    if body is None:
        body = {"error": "refused"} if reply.status >= 400 else usual(site, path, given)
    try:
        write(handler, reply.status, json.dumps(body).encode(), {"Content-Type": "application/json", **reply.headers})
    finally:
        site.answered.append(path)


def write(handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def usual(site: Site, path: str, parameters: dict[str, Any]) -> Any:
    """What the server answers where nothing is wrong."""
    settings = {
        "charLimit": -1,
        "frontendTimeout": 50,
        "apiKeys": bool(site.key),
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": [".txt", ".html"],
        "language": {"source": {"code": "auto", "name": "Auto Detect"}, "target": {"code": "de", "name": "German"}},
    }
    if path == "/languages":
        return site.languages
    if path == "/frontend/settings":
        return settings | site.settings
    if path == "/translate":
        detected = (
            {"detectedLanguage": {"language": "en", "confidence": 90.0}} if parameters["source"] == "auto" else {}
        )
        return {"translatedText": parameters["q"].upper(), "alternatives": site.alternatives, **detected}
    if path == "/nmt/attention":
        return {"sentences": [sentence(text) for text in re.findall(r"[^.\n]+\.?", parameters["q"])]}
    if path == "/translate_file":
        return {"translatedFileUrl": f"{site.address}/download_file/abc"}
    return {"error": f"no such path: {path}"}


def sentence(text: str) -> dict[str, Any]:
    pieces = [f"▁{word}" for word in text.removesuffix(".").split()] + ["."] * text.endswith(".")
    size = len(pieces)
    weights = [[0.8 if i == j else 0.2 if i - 1 == j else 0.0 for j in range(size)] for i in range(size)]
    words = [[word.upper(), 0.25] for word in text.split()]
    return {
        "source": text.strip(),
        "translation": text.strip().upper(),
        "source_tokens": pieces,
        "tokens": [piece.upper() for piece in pieces],
        "weights": weights,
        "words": words,
    }
