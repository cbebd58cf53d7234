"""Our own interface, in addition to those of LibreTranslate and DeepL: the attention of a translation, readiness, and
the counters.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from ..documents import read_document
from ..interface.attention import cross_attention_of
from ..translation.line import Translation
from .authorization import required_key
from .context import context_of
from .libretranslate import check, route_of
from .models import Served
from .parameters import read_parameters, text_of
from .refusal import Refusal
from .routes import Detector
from .schemas import body
from .translating import Work, check_count, search

router = APIRouter(tags=["nmt"])
MOST_CHARACTERS = 2000
"""Largest number of characters of a text for /nmt/attention: each weight is a number in the answer."""


@router.post("/nmt/attention", openapi_extra=body("q source target"))
async def attention(request: Request) -> dict[str, Any]:
    """Translate a short text; return the attention of each sentence's translation, and each word's probability."""
    values = await read_parameters(request)
    key = required_key(request, values)
    text = text_of(values, "q")
    if len(text) > MOST_CHARACTERS:
        raise Refusal(
            413, f"the text has {len(text):,} characters; attention is shown for {MOST_CHARACTERS:,} at most."
        )
    context = context_of(request)
    check_count("characters", len(text), context.settings.limits.max_characters)
    route = route_of(context, values)
    if isinstance(route, Detector):
        route = check(context, values, route([text]))
    if not (model := route.model):  # the text comes back as it is
        return {"sentences": []}
    lines = read_document(text, "text", model.pair[0]).lines
    [translations] = await search(request, key, [Work(model, lines, len(text), {"confidence": True})])
    return {"sentences": [await asyncio.to_thread(_sentence, model, translation) for translation in translations]}


def _sentence(model: Served, translation: Translation) -> dict[str, Any]:
    """Return a sentence with its attention for JSON; `weights` is empty if it is too long for the model."""
    weights = cross_attention_of(model.translator, translation)
    return {
        "source": translation.source,
        "translation": translation.text,
        "source_tokens": translation.source_tokens,
        "tokens": translation.tokens,
        "weights": [[round(weight, 4) for weight in row] for row in weights],
        "words": [[word, round(probability, 4)] for word, probability in translation.words or ()],
    }


@router.get("/ready")
async def ready(request: Request) -> dict[str, Any]:
    """Report that the server is ready. Raises Refusal (status 503) while the server is being stopped."""
    context = context_of(request)
    if context.stopping:
        raise Refusal(503, "The server is being stopped.")
    pairs = context.models.pairs
    return {
        "status": "ready",
        "pairs": [f"{source}-{target}" for source, target in pairs.models],
        "waiting": pairs.waiting,
    }


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return the counters in Prometheus' text format.

    Where keys are required, this needs one too, as a bearer token.
    """
    required_key(request, {})
    return Response(context_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
