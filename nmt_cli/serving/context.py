"""The state of a server that every request can use: the settings, the models, the counters."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from .files import Files
from .keys import Key
from .metrics import Metrics
from .models import Served, ServedModels
from .settings import Settings


@dataclass
class Context:
    """The state of a server."""

    settings: Settings
    models: ServedModels
    metrics: Metrics
    files: Files
    stopping: bool = False

    def note(self, request: Request, model: Served, key: Key, sentences: int, characters: int) -> None:
        """Record the key, the sentences and the characters of a translated request, for the log and the counters."""
        pair = f"{model.pair[0]}-{model.pair[1]}"
        request.scope["nmt"] = {
            "pair": pair,
            "sentences": sentences,
            "characters": characters,
            **({"key": key.name} if key.name else {}),
        }
        self.metrics.sentences.labels(pair).inc(sentences)
        self.metrics.characters.labels(pair).inc(characters)


def context_of(request: Request) -> Context:
    """Return the context of the server that received a request."""
    context: Context = request.app.state.context
    return context
