"""The parameters of a request as one dictionary, however they were sent: JSON, form, multipart form or query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request

from .refusal import Refusal

Parameters = dict[str, Any]
MOST_BYTES = 2**40
"""Largest size of a field, in bytes. It is no real limit: the middleware limits the whole request."""


async def read_parameters(request: Request, lists: Sequence[str] = ()) -> Parameters:
    """Return the parameters. In a form or query, a parameter in `lists` is a list if it was given more than once.

    With a JSON body, all other parameters are ignored, as LibreTranslate and DeepL do. Otherwise, parameters of the body have
    precedence over parameters of the query. Raises Refusal.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return _of_json(await request.body())
    values = _of_pairs(request.scope["query_string"], lists) if request.scope["query_string"] else {}
    if kind == "multipart/form-data":
        values |= await _of_multipart(request, lists)
    elif body := await request.body():  # a GET request may have a body too: DeepL's client for Python sends one
        values |= _of_pairs(body, lists)
    return values


def _of_json(body: bytes) -> Parameters:
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
            max_num_fields=100_000,
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
    try:
        async with request.form(max_files=10, max_part_size=MOST_BYTES) as form:
            for name in form:
                entries = [
                    Upload(entry.filename or "", await entry.read()) if isinstance(entry, UploadFile) else entry
                    for entry in form.getlist(name)
                ]
                values[name] = entries if name in lists and len(entries) > 1 else entries[-1]
    except (HTTPException, MultiPartException) as error:
        detail = error.message if isinstance(error, MultiPartException) else error.detail
        raise Refusal(400, f"the form cannot be read: {detail}") from None
    return values


def text_of(values: Parameters, name: str) -> str:
    """Return a parameter that is a text; "" if it is missing. Raises Refusal for another type."""
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str | int | float | bool):
        raise Refusal(400, f"Invalid request: {name} parameter is not a text")
    return value if isinstance(value, str) else str(value)


def texts_of(values: Parameters, name: str) -> list[str]:
    """Return a parameter that is a text or a list of texts. Raises Refusal for another type."""
    value = values.get(name)
    texts = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(text, str) for text in texts):
        raise Refusal(400, f"Invalid request: {name} parameter is neither a text nor a list of texts")
    return texts


def flag_of(values: Parameters, name: str) -> bool:
    """Return a parameter that is true or false, or 1 or 0. Raises Refusal for anything else."""
    value = values.get(name, False)
    text = str(value).strip().lower()
    if text not in ("", "0", "1", "true", "false"):
        raise Refusal(400, f"Value for '{name}' not supported.")
    return text in ("1", "true")
