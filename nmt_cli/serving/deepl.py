"""DeepL's interface, version 2: https://developers.deepl.com/docs. Errors are {"message": message}.

honoured     text, source_lang, target_lang, tag_handling, split_sentences
ignored      context, show_billed_characters (billed_characters is always there, as DeepL's own client expects),
             preserve_formatting, outline_detection, model_type, enable_beta_languages, formality "default" and
             "prefer_…" (DeepL too gives no error if a language has no formality)
refused      what would change the translation: formality "more" and "less", glossaries, styles, ignore_tags, …
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse

from ..registry import FORMATS
from ..text.languages import VARIANTS, base, find, name_of
from .authorization import required_key
from .context import context_of
from .models import Pairs
from .parameters import Parameters, read_parameters, shown, text_of, texts_of
from .refusal import Refusal
from .routes import Detector, Route, named
from .schemas import body
from .translating import headers_of, translate

router = APIRouter(prefix="/v2", tags=["DeepL"])
UNLIMITED = 1_000_000_000_000
"""The limit of characters that DeepL reports if there is no limit."""
SPLIT_SENTENCES = ("0", "1", "nonewlines")
FORMALITIES = ("default", "less", "more", "prefer_less", "prefer_more")
REFUSED = (
    *("glossary_id", "style_id", "translation_memory_id", "translation_memory_threshold", "custom_instructions"),
    *("ignore_tags", "non_splitting_tags", "splitting_tags"),
)
"""Parameters that would change the translation."""


@router.get("/translate", include_in_schema=False)
@router.post(
    "/translate",
    openapi_extra=body("text target_lang", "source_lang tag_handling split_sentences show_billed_characters"),
)
async def translate_texts(request: Request) -> Response:
    """Translate texts."""
    values = await read_parameters(request, ["text"])
    key = required_key(request, values)
    texts = texts_of(values, "text")
    if not texts:
        raise Refusal(400, "Parameter 'text' not specified.")
    _check(values)
    target, source = text_of(values, "target_lang"), text_of(values, "source_lang")
    if not target:
        raise Refusal(400, "Parameter 'target_lang' not specified.")
    form = text_of(values, "tag_handling") or "text"
    if form not in FORMATS:
        raise Refusal(400, "Value for 'tag_handling' not supported.")
    route = _route(context_of(request).models.pairs, source, target)
    split_sentences = _split_sentences(values, form)
    answers = await translate(request, key, texts, route, form, split_sentences=split_sentences)
    if not isinstance(values["text"], list) and answers[0].route.refused:
        language = answers[0].route.language
        raise Refusal(400, f"Value for 'source_lang' not supported: the text is in {name_of(language)} ({language}).")
    translations = [
        {
            "detected_source_language": base(answer.route.language).upper(),
            "text": answer.versions[0],
            "billed_characters": len(text) if answer.route.model else 0,
        }
        for answer, text in zip(answers, texts, strict=True)
    ]
    return JSONResponse({"translations": translations}, headers=headers_of(answers))


@router.post("/languages", include_in_schema=False)
@router.get("/languages")
async def languages(request: Request) -> list[dict[str, Any]]:
    """List the source or target languages, by the parameter `type`."""
    values = await read_parameters(request)
    required_key(request, values)
    kind = text_of(values, "type") or "source"
    if kind not in ("source", "target"):
        raise Refusal(400, "Parameter 'type' is invalid. 'source' and 'target' are valid values.")
    pairs = context_of(request).models.pairs
    if kind == "source":
        return [{"language": code.upper(), "name": name_of(code)} for code in pairs.sources]
    return [
        {"language": code, "name": name, "supports_formality": False}
        for target in pairs.targets
        for code, name in (VARIANTS.get(target.lower()) or {target.upper(): name_of(target)}).items()
    ]


@router.post("/usage", include_in_schema=False)
@router.get("/usage")
async def usage(request: Request) -> dict[str, int]:
    """Return how many characters were translated with the key of the request since the server was started."""
    key = required_key(request, await read_parameters(request))
    limits = context_of(request).settings.limits
    return {"character_count": key.characters, "character_limit": limits.quota or UNLIMITED}


@router.get("/glossary-language-pairs")
async def glossary_language_pairs(request: Request) -> dict[str, list[Any]]:
    """Return an empty list: this server has no glossaries."""
    required_key(request, {})
    return {"supported_languages": []}


def _check(values: Parameters) -> None:
    """Raise Refusal for parameters that are wrong, or that this server cannot honour."""
    for name in REFUSED:
        if values.get(name) not in (None, "", []):
            raise Refusal(400, f"Parameter '{name}' is not supported by this server.")
    formality = text_of(values, "formality") or "default"
    if formality not in FORMALITIES:
        raise Refusal(400, "Value for 'formality' not supported.")
    if formality in ("less", "more"):
        raise Refusal(400, "'formality' is not supported for given 'target_lang'.")


def _split_sentences(values: Parameters, form: str) -> str:
    """Return the value of split_sentences.

    The default is DeepL's: "1" for text, "nonewlines" (no split at line ends) for HTML and XML.
    """
    value = text_of(values, "split_sentences").lower()
    value = {"true": "1", "false": "0"}.get(value, value) or ("1" if form == "text" else "nonewlines")
    if value not in SPLIT_SENTENCES:
        raise Refusal(400, "Value for 'split_sentences' not supported.")
    return value


def _route(pairs: Pairs, source: str, target: str) -> Route | Detector:
    """Return the route of texts of a language pair; a detector without a source language. Raises Refusal."""
    if find(target, pairs.targets) is None:
        raise Refusal(400, "Value for 'target_lang' not supported.")
    if not source:
        return Detector(pairs, target)
    if find(source, pairs.sources) is None:
        raise Refusal(400, "Value for 'source_lang' not supported.")
    route = named(pairs, source, target)
    if route.refused:
        raise Refusal(400, f"Translation from {shown(source.upper())} to {shown(target.upper())} is not supported.")
    return route
