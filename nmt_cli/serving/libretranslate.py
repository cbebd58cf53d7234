"""LibreTranslate's interface: https://docs.libretranslate.com, version 1.6 and later.

Errors are {"error": message}. Parameters come as JSON, as a form, or in the query. There are no suggestions: /suggest
answers as a LibreTranslate server with disabled suggestions does.
"""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse

from ..documents.format import Format
from ..registry import FORMATS, load
from ..text import detection
from ..text.languages import find, name_of
from .authorization import required_key
from .context import Context, context_of
from .parameters import Parameters, Upload, read_parameters, shown, text_of, texts_of
from .refusal import Refusal
from .routes import Detector, Route, named
from .schemas import body
from .translating import headers_of, translate

router = APIRouter(tags=["LibreTranslate"])
AUTO = "auto"
MOST_ALTERNATIVES = 9
"""Other translations of a text, besides the best one."""
LONGEST_STEM = 100
"""The name of a translated file repeats at most so many characters of the file's name."""


@cache
def file_formats() -> dict[str, tuple[str, str]]:
    """Return the format and the media type by the ending of a file's name."""
    formats: dict[str, Format] = {name: load(FORMATS, name, "format") for name in FORMATS}
    return {
        ending: (name, f"{format.media_type}; charset=utf-8")
        for name, format in formats.items()
        for ending in format.endings
    }


@router.post("/translate", openapi_extra=body("q source target", "format alternatives api_key"))
async def translate_text(request: Request) -> Response:
    """Translate a text, or a list of texts."""
    context = context_of(request)
    values = await read_parameters(request, ["q"])
    key = required_key(request, values)
    batch, texts = isinstance(values.get("q"), list), texts_of(values, "q")
    if not texts or (not batch and not texts[0]):
        raise _missing("q")
    route = route_of(context, values)
    form = text_of(values, "format") or "text"
    alternatives = _alternatives(values)
    if form not in FORMATS:
        raise Refusal(400, f"{shown(form)} format is not supported")
    answers = await translate(request, key, texts, route, form, alternatives=alternatives if form == "text" else 0)
    if not batch:
        check(context, values, answers[0].route)
    fields: dict[str, list[Any]] = {"translatedText": [answer.versions[0] for answer in answers]}
    if isinstance(route, Detector):
        fields["detectedLanguage"] = [_detected(answer.route.language, answer.route.confidence) for answer in answers]
    if alternatives:
        fields["alternatives"] = [answer.versions[1:] for answer in answers]
    body = fields if batch else {name: values[0] for name, values in fields.items()}
    return JSONResponse(body, headers=headers_of(answers))


@router.get("/languages")
async def languages(request: Request) -> list[dict[str, Any]]:
    """List the languages, each with its target languages."""
    pairs = context_of(request).models.pairs
    return [
        {"code": code, "name": name_of(code), "targets": sorted(pairs.targets_of(code))} for code in pairs.languages
    ]


@router.post("/detect", openapi_extra=body("q"))
async def detect(request: Request) -> list[dict[str, Any]]:
    """Return the languages in which a text may be, the most probable first."""
    context = context_of(request)
    values = await read_parameters(request, ["q"])
    required_key(request, values)
    texts = texts_of(values, "q")
    if not any(texts):
        raise _missing("q")
    languages = context.models.pairs.languages
    found = detection.detect("\n".join(texts)) or {languages[0]: 0.0}
    candidates = [_detected(find(code, languages) or code, probability) for code, probability in found.items()]
    return [candidate for index, candidate in enumerate(candidates) if not index or candidate["confidence"] > 0]


@router.post("/translate_file", openapi_extra=body("file source target", kind="multipart/form-data"))
async def translate_file(request: Request) -> Response:
    """Translate a file: plain text or HTML, by its ending. Its translation can be fetched for half an hour."""
    context = context_of(request)
    values = await read_parameters(request)
    key = required_key(request, values)
    file = values.get("file")
    if not isinstance(file, Upload):
        raise _missing("file")
    route = route_of(context, values)
    if not file.name:
        raise Refusal(400, "Invalid request: empty file")
    path = PurePath(file.name.replace("\\", "/"))
    if path.suffix.lower() not in file_formats():
        raise Refusal(400, "Invalid request: file format not supported")
    form = file_formats()[path.suffix.lower()][0]
    text = file.content.decode("utf-8", "replace").removeprefix("\ufeff")
    [answer] = answers = await translate(request, key, [text], route, form)
    check(context, values, answer.route)
    language = find(text_of(values, "target"), context.models.pairs.languages)
    name = f"{path.stem[:LONGEST_STEM]}_{language}{path.suffix}"
    stored = await asyncio.to_thread(context.files.add, name, answer.versions[0].encode("utf-8", "replace"))
    url = str(request.url_for("download_file", filename=quote(stored)))
    return JSONResponse({"translatedFileUrl": url}, headers=headers_of(answers))


@router.get("/download_file/{filename}")
async def download_file(request: Request, filename: str) -> Response:
    """Return a translated file. Its name cannot be guessed, so no key is needed."""
    file = await asyncio.to_thread(context_of(request).files.get, filename)
    if file is None:
        raise Refusal(404, "There is no such file; translated files are kept for half an hour.")
    name, content = file
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
    }
    return Response(content, media_type=file_formats()[PurePath(name).suffix.lower()][1], headers=headers)


@router.get("/frontend/settings")
async def frontend_settings(request: Request) -> dict[str, Any]:
    """Return the settings of this server that a web page needs."""
    context = context_of(request)
    settings, pairs = context.settings, context.models.pairs
    target = pairs.targets[0]
    return {
        "charLimit": settings.limits.max_characters or -1,
        "frontendTimeout": 500,
        "apiKeys": settings.keys.required,
        "keyRequired": settings.keys.required,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": list(file_formats()),
        "language": {
            "source": {"code": AUTO, "name": "Auto Detect"},
            "target": {"code": target, "name": name_of(target)},
        },
    }


@router.post("/suggest")
async def suggest() -> None:
    """Refuse a suggestion."""
    raise Refusal(403, "Suggestions are disabled on this server.")


@router.get("/health")
async def health() -> dict[str, str]:
    """Report that the server runs."""
    return {"status": "ok"}


def _missing(name: str) -> Refusal:
    return Refusal(400, f"Invalid request: missing {name} parameter")


def route_of(context: Context, values: Parameters) -> Route | Detector:
    """Return the route of a request's texts; a detector if their language is "auto". Raises Refusal."""
    source, target = text_of(values, "source"), text_of(values, "target")
    if not source:
        raise _missing("source")
    if not target:
        raise _missing("target")
    pairs, auto = context.models.pairs, source.strip().lower() == AUTO
    for code in (target,) if auto else (source, target):
        if find(code, pairs.languages) is None:
            raise Refusal(400, f"{shown(code)} is not supported")
    return Detector(pairs, target) if auto else check(context, values, named(pairs, source, target))


def check(context: Context, values: Parameters, route: Route) -> Route:
    """Return a route, or raise Refusal if no model translates its language into that of the request."""
    target, language = text_of(values, "target"), f"{name_of(route.language)} ({route.language})"
    if route.refused and find(route.language, context.models.pairs.languages) is None:
        raise Refusal(400, f"{language} is not supported")
    if route.refused:
        raise Refusal(400, f"{name_of(target)} ({shown(target)}) is not available as a target language from {language}")
    return route


def _alternatives(values: Parameters) -> int:
    try:
        count = max(0, int(values.get("alternatives") or 0))
    except (TypeError, ValueError, OverflowError):
        raise Refusal(400, "Invalid request: alternatives parameter is not a number") from None
    if count > MOST_ALTERNATIVES:
        raise Refusal(400, f"Invalid request: alternatives parameter must be <= {MOST_ALTERNATIVES}")
    return count


def _detected(code: str, probability: float) -> dict[str, Any]:
    """Return a detected language for JSON, with its confidence, 0 to 100."""
    return {"confidence": round(100 * probability, 1), "language": code}
