"""The state of a server that every request can use: the settings, the models, the counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from .files import Files
from .keys import Key
from .metrics import Metrics
from .models import Pair, ServedModels
from .settings import Settings


@dataclass
class Context:
    """The state of a server."""

    settings: Settings
    models: ServedModels
    metrics: Metrics
    files: Files
    stopping: bool = False

    def note(self, request: Request, key: Key, done: Sequence[tuple[Pair, int, int]]) -> None:
        """Record a request's key, and the sentences and characters of each pair, for the log and the counters."""
        for pair, sentences, characters in done:
            self.metrics.sentences.labels("-".join(pair)).inc(sentences)
            self.metrics.characters.labels("-".join(pair)).inc(characters)
        request.scope["nmt"] = {
            "pair": ",".join("-".join(pair) for pair, _, _ in done),
            "sentences": sum(sentences for _, sentences, _ in done),
            "characters": sum(characters for _, _, characters in done),
            **({"key": key.name} if key.name else {}),
        }


def context_of(request: Request) -> Context:
    """Return the context of the server that received a request."""
    context: Context = request.app.state.context
    return context
