"""The parameters of a request as one dictionary, however they were sent: JSON, form, multipart form or query.

Texts are UTF-8; other encodings are refused. Half of a surrogate pair, which JSON can hold, becomes U+FFFD like other
invalid UTF-8. The number of parameters and items is limited before they are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.requests import Request

from ..text.lines import well_formed
from .refusal import Refusal

Parameters = dict[str, Any]
MOST_BYTES = 2**40
"""Largest size of a field, in bytes. It is no real limit: the middleware limits the whole request."""
MOST_ITEMS = 100_000
"""Largest number of parameters in a form or query."""
MOST_MARKS = 1_000_000
"""Largest number of commas and opening brackets in JSON. A value costs many times the memory of its characters."""
LONGEST_TYPE = 1000
"""Largest number of characters of the header Content-Type."""
LONGEST_SHOWN = 40
"""A message repeats at most so many characters of a parameter."""
UTF_8 = ("utf-8", "utf8", "us-ascii", "ascii")


async def read_parameters(request: Request, lists: Sequence[str] = ()) -> Parameters:
    """Return the parameters. In a form or query, a parameter in `lists` is a list if it was given more than once.

    With a JSON body, all other parameters are ignored, as LibreTranslate and DeepL do. Otherwise, parameters of the
    body have precedence over parameters of the query. Raises Refusal.
    """
    kind = _content_type(request)
    if kind == "application/json" or kind.endswith("+json"):
        return _of_json(await request.body())
    values = _of_pairs(request.scope["query_string"], lists) if request.scope["query_string"] else {}
    if kind == "multipart/form-data":
        values |= await _of_multipart(request, lists)
    elif body := await request.body():  # a GET request may have a body too: DeepL's client for Python sends one
        values |= _of_pairs(body, lists)
    return values


def _content_type(request: Request) -> str:
    """Return the media type of a request in lower case, "" if it has none.

    Raises Refusal for an encoding that is not UTF-8.
    """
    header = request.headers.get("content-type", "")
    if len(header) > LONGEST_TYPE:
        raise Refusal(400, f"the header Content-Type is longer than {LONGEST_TYPE:,} characters.")
    kind, options = parse_options_header(header)
    charset = options.get(b"charset", b"utf-8").decode("latin-1").strip().lower()
    if charset not in UTF_8:
        raise Refusal(
            415, f"the charset {shown(charset)!r} of the header Content-Type is not supported: expected utf-8."
        )
    return kind.decode("latin-1").strip()


def _of_json(body: bytes) -> Parameters:
    if sum(map(body.count, (b",", b"[", b"{"))) > MOST_MARKS:
        raise Refusal(413, "the request has too many values. Divide it.")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "Invalid JSON format") from None
    if not isinstance(values, dict):
        raise Refusal(400, "Invalid JSON format")
    return values


def _of_pairs(query: bytes, lists: Sequence[str]) -> Parameters:
    """Return the parameters in application/x-www-form-urlencoded."""
    try:
        pairs = parse_qs(
            query.decode("utf-8", "replace"),
            keep_blank_values=True,
            encoding="utf-8",
            errors="replace",
            max_num_fields=MOST_ITEMS,
        )
    except ValueError:
        raise Refusal(413, "the request has too many parameters") from None
    return {name: values if name in lists and len(values) > 1 else values[-1] for name, values in pairs.items()}


@dataclass(frozen=True)
class Upload:
    """A file of a multipart form."""

    name: str
    content: bytes


async def _of_multipart(request: Request, lists: Sequence[str]) -> Parameters:
    values: Parameters = {}
    async with request.form(max_files=10, max_part_size=MOST_BYTES) as form:  # its errors are Refusals
        for name in form:
            entries = [
                Upload(entry.filename or "", await entry.read()) if isinstance(entry, UploadFile) else entry
                for entry in form.getlist(name)
            ]
            values[name] = entries if name in lists and len(entries) > 1 else entries[-1]
    return values


def text_of(values: Parameters, name: str) -> str:
    """Return a parameter that is a text; "" if it is missing. Raises Refusal for another type."""
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str | int | float | bool):
        raise Refusal(400, f"Invalid request: {name} parameter is not a text")
    return well_formed(str(value))


def texts_of(values: Parameters, name: str) -> list[str]:
    """Return a parameter that is a text or a list of texts. Raises Refusal for another type."""
    value = values.get(name)
    texts = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(text, str) for text in texts):
        raise Refusal(400, f"Invalid request: {name} parameter is neither a text nor a list of texts")
    return [well_formed(text) for text in texts]


def shown(value: str) -> str:
    """Return the value of a parameter for a message: its beginning, if it is long."""
    return value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}…"
