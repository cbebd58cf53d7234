"""Translation of the texts of a request, for all interfaces.

    texts ──▶ read_document, Route ──▶ a Work for each model ──▶ Served.submit ──▶ futures
        ──▶ await: done, too late, or the client has gone ──▶ write ──▶ an Answer for each text

Short texts are read and written in the event loop. Long texts are read and written in a thread, so that other requests
need not wait for them. If the connection is closed, or the request takes too long, the futures are cancelled, and the
search for them stops. A text whose route has no model comes back as it is, and costs the key nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from starlette.requests import Request

from ..documents import Document, read_document
from ..errors import NmtError
from ..translation.line import Line, Translation
from ..translation.pool import PoolClosed
from .context import Context, context_of
from .keys import Key
from .models import Pair, Served
from .refusal import LATER, RESTORED, ClientGone, Refusal
from .routes import Detector, Route

SHORT = 4000
"""Texts of at most this number of characters are read and written in the event loop."""
DETECTION = 200
"""Characters that are read in the time that it takes to detect the language of a short text."""
SOON = 0.5
"""Seconds after which the server begins to check whether the connection is closed."""

T = TypeVar("T")


@dataclass(frozen=True)
class Work:
    """Lines for a model; `size`: the characters of their texts."""

    model: Served
    lines: Sequence[str | Line]
    size: int
    options: dict[str, object]


@dataclass(frozen=True)
class Answer:
    """A text that is translated, or that comes back as it is."""

    route: Route
    versions: Sequence[str]
    """The best translation, then others."""
    restored: int = 0
    """Placeholders that were put back into the best translation."""


@dataclass(frozen=True)
class _Text:
    """A text of a request."""

    text: str
    route: Route
    document: Document


def headers_of(answers: Sequence[Answer]) -> dict[str, str]:
    """Return the headers of a response: how many placeholders were put back."""
    return {RESTORED: str(sum(answer.restored for answer in answers))}


async def translate(
    request: Request,
    key: Key,
    texts: Sequence[str],
    route: Route | Detector,
    form: str = "text",
    *,
    split_sentences: str | None = None,
    alternatives: int = 0,
) -> list[Answer]:
    """Return an answer for each text, with up to `alternatives` other translations. Raises Refusal, ClientGone.

    `route` is that of all texts, or finds that of each; `form` and `split_sentences` are those of `read_document`.
    """
    limits, size = context_of(request).settings.limits, sum(map(len, texts))
    check_count("characters", size, limits.max_characters)
    check_count("sentences", len(texts), limits.max_sentences)

    def read(text: str) -> _Text:
        one = route if isinstance(route, Route) else route(read_document(text, form, split_sentences="0").lines)
        return _Text(text, one, read_document(text, form, one.language, split_sentences=split_sentences))

    work = size + DETECTION * len(texts) * isinstance(route, Detector)
    try:
        items = await _run(work, lambda: [read(text) for text in texts])
    except NmtError as error:
        raise Refusal(400, str(error)) from None
    check_count("sentences", sum(max(1, len(item.document.lines)) for item in items), limits.max_sentences)
    models = {item.route.model.pair: item.route.model for item in items if item.route.model}
    works = [
        _work(model, [item for item in items if item.route.model is model], alternatives) for model in models.values()
    ]
    found = await search(request, key, works)
    waiting = {pair: iter(translations) for pair, translations in zip(models, found, strict=True)}
    return await _run(size, lambda: [_written(item, waiting, alternatives) for item in items])


def _work(model: Served, items: Sequence[_Text], alternatives: int) -> Work:

    options: dict[str, object] = {"scores": False}
    if alternatives:
        options |= {"nbest": alternatives + 1, "beam": max(model.beam, alternatives + 1)}
    lines = [Line(part.line, aligned=part.aligned) for item in items for part in item.document.segments]
    return Work(model, lines, sum(len(item.text) for item in items), options)


def check_count(what: str, count: int, most: int) -> None:
    """Raise Refusal if a request has more than `most` characters or sentences; 0: no limit."""
    if most and count > most:
        raise Refusal(413, f"the request has {count:,} {what}, this server translates {most:,} at once. Divide it.")


async def search(request: Request, key: Key, works: Sequence[Work]) -> list[list[Translation]]:
    """Return the translations of the lines of each work; their characters count for the key.

    They do not count if the workers do not get them. Raises Refusal, ClientGone.
    """
    context = context_of(request)
    limits, size = context.settings.limits, sum(work.size for work in works)
    if limits.max_queue and context.models.pairs.waiting + sum(len(work.lines) for work in works) > limits.max_queue:
        raise Refusal(429, "Too many requests: more sentences are waiting than this server takes on.", LATER)
    if limits.quota and key.characters + size > limits.quota:
        raise Refusal(456, "Quota for this billing period has been exceeded.")
    key.characters += size  # from now on: other requests run beside this one
    futures: list[Future[list[Translation]]] = []
    try:
        for work in works:
            futures.append(await _submit(context, work.model, work))
    except BaseException:
        key.characters -= size
        for future in futures:
            future.cancel()
        raise
    translations = await _answer(request, futures, limits.max_seconds)
    context.note(request, key, [(work.model.pair, len(work.lines), work.size) for work in works])
    return translations


async def _submit(context: Context, model: Served, work: Work) -> Future[list[Translation]]:
    """Submit work to the workers of its model.

    If the model was replaced by a reload, submit it to the new model. Raises Refusal.
    """
    try:
        return await _run(work.size, lambda: model.submit(work.lines, **work.options))
    except NmtError as error:
        current = context.models.pairs.models.get(model.pair)
        if current is not None and current is not model:
            return await _submit(context, current, work)
        if isinstance(error, PoolClosed):
            raise Refusal(503, "The server is being stopped.", LATER) from None
        raise Refusal(400, str(error)) from None


async def _answer(request: Request, futures: Sequence[Future[T]], seconds: float) -> list[T]:
    """Return the results of futures.

    Raises Refusal if they take longer than `seconds` (0: no limit) or one fails, ClientGone if the client closes the
    connection.
    """
    waiting = asyncio.create_task(_results(futures))
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
        for future in futures:
            future.cancel()
        if watching:
            watching.cancel()


async def _results(futures: Sequence[Future[T]]) -> list[T]:
    return [await asyncio.wrap_future(future) for future in futures]


async def _until_closed(request: Request) -> None:
    """Wait until the client closes the connection. The body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _run(size: int, work: Callable[[], T]) -> T:
    """Return the result of `work`, whose time grows with the size of the text.

    A short text is handled at once, a long one in a thread.
    """
    return work() if size <= SHORT else await asyncio.to_thread(work)


def _written(item: _Text, waiting: Mapping[Pair, Iterator[Translation]], alternatives: int) -> Answer:
    """Return the answer for a text: its translation, of the next lines that its model has translated, then different
    versions, which consist of other hypotheses of its sentences.
    """
    if not item.route.model:
        return Answer(item.route, [item.text])
    mine = [next(waiting[item.route.model.pair]) for _ in item.document.lines]
    count = max((len(translation.nbest) for translation in mine), default=1) if alternatives else 1
    written = [item.document.write([_candidate(translation, rank) for translation in mine]) for rank in range(count)]
    return Answer(item.route, list(dict.fromkeys(one.text for one in written)), written[0].restored)


def _candidate(translation: Translation, rank: int) -> Translation:
    """Return a translation with the text of its hypothesis at `rank` (0: the best), or of its last if it has fewer."""
    if not rank:
        return translation
    candidate = translation.nbest[min(rank, len(translation.nbest) - 1)]
    return replace(translation, text=candidate.text, tokens=candidate.tokens, alignment=None)
