"""Translation of the texts of a request, for all interfaces.

    texts ──▶ read_document ──▶ lines ──▶ Served.submit ──▶ future
        ──▶ await: done, too late, or the client has gone ──▶ write ──▶ texts

Short texts are read and written in the event loop. Long texts are read and written in a thread, so that other requests
need not wait for them. If the connection is closed, or the request takes too long, the future is cancelled, and the
search for it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from starlette.requests import Request

from ..documents import Document, read_document
from ..errors import NmtError
from ..translation.line import Translation
from ..translation.pool import PoolClosed
from .context import Context, context_of
from .keys import Key
from .models import Served
from .refusal import ClientGone, Refusal
from .settings import Limits

SHORT = 4000
"""Texts of at most this number of characters are read and written in the event loop."""
SOON = 0.5
"""Seconds after which the server begins to check whether the connection is closed."""
RETRY_AFTER = 2
"""Seconds after which a client may repeat a refused request."""

T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """The texts of a request, their model and options."""

    texts: Sequence[str]
    model: Served
    format: str = "text"
    """A name of the registry's FORMATS."""
    split_sentences: str | None = None
    """See `read_document`."""
    alternatives: int = 0
    """Number of other translations of each text."""


async def translate(request: Request, context: Context, order: Order, key: Key) -> list[list[str]]:
    """Return for each text its translation and up to `alternatives` others. Raises Refusal, ClientGone."""
    limits, size = context.settings.limits, sum(map(len, order.texts))
    with charged(context, key, size):
        _check_sentences(limits, len(order.texts))
        documents = await _run(size, lambda: _read(order))
        lines = [line for document in documents for line in document.lines]
        _check_sentences(limits, sum(max(1, len(document.lines)) for document in documents))
        if limits.max_queue and context.models.pairs.waiting + len(lines) > limits.max_queue:
            raise Refusal(
                429, "Too many requests: more sentences are waiting than this server takes on.", retry_after=RETRY_AFTER
            )
        options: dict[str, object] = {"alignment": True} if any(document.aligned for document in documents) else {}
        if order.alternatives:
            options |= {"nbest": order.alternatives + 1, "beam": max(order.model.beam, order.alternatives + 1)}
        future = await submit(size, context, order.model, lines, options)
    translations = await answer(request, future, limits.max_seconds)
    context.note(request, order.model, key, len(lines), size)
    return await _run(size, lambda: _written(order, documents, translations))


def _check_sentences(limits: Limits, sentences: int) -> None:
    """Raise Refusal if a request has too many sentences."""
    if limits.max_sentences and sentences > limits.max_sentences:
        raise Refusal(
            413,
            f"the request has {sentences:,} sentences, this server translates {limits.max_sentences:,} at once. "
            "Divide it.",
        )


@contextmanager
def charged(context: Context, key: Key, size: int) -> Iterator[None]:
    """Count `size` characters for a key from now on: other requests run beside this one.

    They are given back if the block raises an error; at its end the workers have the text. Raises Refusal if they are
    more than the limit of this server or of this key.
    """
    limits = context.settings.limits
    if limits.max_characters and size > limits.max_characters:
        raise Refusal(
            413,
            f"the request has {size:,} characters, this server translates {limits.max_characters:,} at once. "
            "Divide it.",
        )
    if limits.quota and key.characters + size > limits.quota:
        raise Refusal(456, "Quota for this billing period has been exceeded.")
    key.characters += size
    try:
        yield
    except BaseException:
        key.characters -= size
        raise


async def submit(
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
            return await submit(size, context, current, lines, options)
        if isinstance(error, PoolClosed):
            raise Refusal(503, "The server is being stopped.", retry_after=RETRY_AFTER) from None
        raise Refusal(400, str(error)) from None


async def answer(request: Request, future: Future[T], seconds: float) -> T:
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
            503,
            f"The translation takes longer than {seconds:g} seconds. Ask again later, or for less at once.",
            retry_after=RETRY_AFTER,
        )
    except asyncio.CancelledError:
        if not context_of(request).stopping:
            raise
        raise Refusal(503, "The server was stopped before the translation was done.", retry_after=RETRY_AFTER) from None
    except PoolClosed:
        raise Refusal(503, "The server was stopped before the translation was done.", retry_after=RETRY_AFTER) from None
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


def _read(order: Order) -> list[Document]:
    try:
        return [
            read_document(text, order.format, order.model.pair[0], split_sentences=order.split_sentences)
            for text in order.texts
        ]
    except NmtError as error:
        raise Refusal(400, str(error)) from None


def _written(order: Order, documents: Sequence[Document], translations: Sequence[Translation]) -> list[list[str]]:
    """Return the texts of each document: its translation, then different versions, which consist of other hypotheses of
    its sentences.
    """
    texts: list[list[str]] = []
    start = 0
    for document in documents:
        mine = translations[start : start + len(document.lines)]
        start += len(mine)
        count = max((len(translation.nbest) for translation in mine), default=1) if order.alternatives else 1
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
