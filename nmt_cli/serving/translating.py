"""Translation of the texts of a request, for all interfaces.

    texts ──▶ read_document ──▶ lines ──▶ Served.submit ──▶ future
        ──▶ await: done, too late, or the client has gone ──▶ write ──▶ texts

Short texts are read and written in the event loop. Long texts are read and written in a thread, so that other requests
need not wait for them. If the connection is closed, or the request takes too long, the future is cancelled, and the
search for it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from starlette.requests import Request

from ..documents import Document, read_document
from ..errors import NmtError
from ..translation.line import Translation
from ..translation.pool import PoolClosed
from .context import Context, context_of
from .keys import Key
from .models import Served
from .refusal import LATER, ClientGone, Refusal

SHORT = 4000
"""Texts of at most this number of characters are read and written in the event loop."""
SOON = 0.5
"""Seconds after which the server begins to check whether the connection is closed."""

T = TypeVar("T")


async def translate(
    request: Request,
    key: Key,
    model: Served,
    texts: Sequence[str],
    form: str = "text",
    *,
    split_sentences: str | None = None,
    alternatives: int = 0,
) -> list[list[str]]:
    """Return for each text its translation and up to `alternatives` others. Raises Refusal, ClientGone.

    `form` is a name of the registry's FORMATS; `split_sentences`: see `read_document`.
    """
    limits, size = context_of(request).settings.limits, sum(map(len, texts))
    check_count("characters", size, limits.max_characters)
    check_count("sentences", len(texts), limits.max_sentences)

    def read() -> list[Document]:
        return [read_document(text, form, model.pair[0], split_sentences=split_sentences) for text in texts]

    try:
        documents = await _run(size, read)
    except NmtError as error:
        raise Refusal(400, str(error)) from None
    check_count("sentences", sum(max(1, len(document.lines)) for document in documents), limits.max_sentences)
    options: dict[str, object] = {"scores": False, "alignment": any(document.aligned for document in documents)}
    if alternatives:
        options |= {"nbest": alternatives + 1, "beam": max(model.beam, alternatives + 1)}
    lines = [line for document in documents for line in document.lines]
    translations = await search(request, key, model, lines, size, options)
    return await _run(size, lambda: _written(documents, translations, alternatives))


def check_count(what: str, count: int, most: int) -> None:
    """Raise Refusal if a request has more than `most` characters or sentences; 0: no limit."""
    if most and count > most:
        raise Refusal(413, f"the request has {count:,} {what}, this server translates {most:,} at once. Divide it.")


async def search(
    request: Request, key: Key, model: Served, lines: Sequence[str], size: int, options: dict[str, object]
) -> list[Translation]:
    """Return the translations of lines with `size` characters, which count for the key.

    They do not count if the workers do not get them. Raises Refusal, ClientGone.
    """
    context = context_of(request)
    limits = context.settings.limits
    if limits.max_queue and context.models.pairs.waiting + len(lines) > limits.max_queue:
        raise Refusal(429, "Too many requests: more sentences are waiting than this server takes on.", LATER)
    if limits.quota and key.characters + size > limits.quota:
        raise Refusal(456, "Quota for this billing period has been exceeded.")
    key.characters += size  # from now on: other requests run beside this one
    try:
        future = await _submit(size, context, model, lines, options)
    except BaseException:
        key.characters -= size
        raise
    translations = await _answer(request, future, limits.max_seconds)
    context.note(request, model, key, len(lines), size)
    return translations


async def _submit(
    size: int, context: Context, model: Served, lines: Sequence[str], options: dict[str, object]
) -> Future[list[Translation]]:
    """Submit lines with `size` characters to the workers.

    If the model was replaced by a reload, submit them to the new model. Raises Refusal.
    """
    try:
        return await _run(size, lambda: model.submit(lines, **options))
    except NmtError as error:
        current = context.models.pairs.models.get(model.pair)
        if current is not None and current is not model:
            return await _submit(size, context, current, lines, options)
        if isinstance(error, PoolClosed):
            raise Refusal(503, "The server is being stopped.", LATER) from None
        raise Refusal(400, str(error)) from None


async def _answer(request: Request, future: Future[T], seconds: float) -> T:
    """Return the result of a future.

    Raises Refusal if it takes longer than `seconds` (0: no limit) or fails, ClientGone if the client closes the
    connection.
    """
    waiting = asyncio.wrap_future(future)
    watching: asyncio.Task[None] | None = None
    try:
        await asyncio.wait([waiting], timeout=min(SOON, seconds) if seconds else SOON)
        if not waiting.done():
            watching = asyncio.create_task(_until_closed(request))
            both: set[asyncio.Future[Any]] = {waiting, watching}
            await asyncio.wait(both, timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            return waiting.result()
        if watching and watching.done():
            raise ClientGone
        raise Refusal(
            503, f"The translation takes longer than {seconds:g} seconds. Ask again later, or for less at once.", LATER
        )
    except (asyncio.CancelledError, PoolClosed) as error:
        if isinstance(error, asyncio.CancelledError) and not context_of(request).stopping:
            raise
        raise Refusal(503, "The server was stopped before the translation was done.", LATER) from None
    except NmtError as error:
        raise Refusal(500, str(error)) from None
    finally:
        waiting.cancel()
        if watching:
            watching.cancel()


async def _until_closed(request: Request) -> None:
    """Wait until the client closes the connection. The body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _run(size: int, work: Callable[[], T]) -> T:
    """Return the result of `work`, whose time grows with the size of the text.

    A short text is handled at once, a long one in a thread.
    """
    return work() if size <= SHORT else await asyncio.to_thread(work)


def _written(documents: Sequence[Document], translations: Sequence[Translation], alternatives: int) -> list[list[str]]:
    """Return the texts of each document: its translation, then different versions, which consist of other hypotheses of
    its sentences.
    """
    texts: list[list[str]] = []
    start = 0
    for document in documents:
        mine = translations[start : start + len(document.lines)]
        start += len(mine)
        count = max((len(translation.nbest) for translation in mine), default=1) if alternatives else 1
        versions = [document.write([_candidate(translation, rank) for translation in mine]) for rank in range(count)]
        texts.append(list(dict.fromkeys(versions)))
    return texts


def _candidate(translation: Translation, rank: int) -> Translation:
    """Return a translation with the text of its hypothesis at `rank` (0: the best), or of its last hypothesis if it has
    fewer.
    """
    if not rank:
        return translation
    candidate = translation.nbest[min(rank, len(translation.nbest) - 1)]
    return replace(translation, text=candidate.text, tokens=candidate.tokens, alignment=None)
