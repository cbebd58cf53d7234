"""The models that are served: one for each language pair, or for several pairs (`data.tags`). They can be reloaded.

folders ──▶ load_pairs ──▶ Pairs: (source, target) → Served: an interface.Translator whose workers are running
reload: new models are loaded and started beside the old ones; then they replace the old ones, which finish and close
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelError, NmtError, UsageError, listed, shown
from ..interface.loading import decode_changes
from ..interface.translator import Translator, load
from ..text.languages import find, normalized, short
from ..translation.line import Line, Translation
from .settings import Settings

Pair = tuple[str, str]
"""A source language and a target language, by their codes."""
PATIENCE = 600.0
"""Seconds that old models have to finish their requests."""
LISTED = 20
"""Largest number of target languages of a model that the log lists."""
LONGEST_CODE = 100
"""Largest number of characters in the code of a language."""


@dataclass(frozen=True)
class Served:
    """The model of a language pair."""

    pair: Pair
    translator: Translator
    options: Mapping[str, Any]
    """Options of `nmt serve` that apply to every translation, and the target language of a model of several; see
    `TranslateKeywords`."""

    @property
    def beam(self) -> int:
        """Number of hypotheses for each sentence."""
        return self.options.get("beam") or self.translator.recipe_beam

    def submit(self, lines: Sequence[str | Line], **options: Any) -> Future[list[Translation]]:
        return self.translator.submit(lines, **{**self.options, **options})


@dataclass(frozen=True, eq=False)
class Pairs:
    """Models by language pair."""

    models: Mapping[Pair, Served]

    @property
    def sources(self) -> list[str]:
        """Source languages, in the order of the models."""
        return list(dict.fromkeys(source for source, _ in self.models))

    @property
    def targets(self) -> list[str]:
        """Target languages."""
        return list(dict.fromkeys(target for _, target in self.models))

    @property
    def languages(self) -> list[str]:
        """All languages."""
        return list(dict.fromkeys(language for pair in self.models for language in pair))

    def into(self, target: str) -> dict[str, Served]:
        """Return the models that translate into the language with the code `target`, by their source languages."""
        return {source: model for source in self.sources if (model := self.find(source, target))}

    def targets_of(self, source: str) -> list[str]:
        """Return the target languages into which the language `source` can be translated."""
        return [target for language, target in self.models if language == source]

    def find(self, source: str, target: str) -> Served | None:
        """Return the model for two language codes, matched as in `languages.find`; None if the pair is not served."""
        served_source = find(source, self.sources)
        served_target = find(target, self.targets_of(served_source)) if served_source else None
        return self.models[served_source, served_target] if served_source and served_target else None

    @property
    def waiting(self) -> int:
        """Number of sentences that wait for a worker."""
        return sum(translator.pool.waiting for translator in self.translators)

    @property
    def translators(self) -> list[Translator]:
        """The translators, each once, in the order of the models."""
        return list(dict.fromkeys(model.translator for model in self.models.values()))

    def close(self, wait: float = 0.0) -> None:
        """Finish running requests within `wait` seconds, then end all workers."""
        until = time.monotonic() + wait
        for translator in self.translators:
            translator.finish(max(0.0, until - time.monotonic()))
            translator.close()


def load_pairs(settings: Settings, say: Callable[[str], None]) -> Pairs:
    """Load the models and start their workers.

    Raises ModelError, UsageError; after an error, no worker is left running.
    """
    options: dict[str, Any] = {"overrides": decode_changes(settings.overrides, {}), "beam": settings.beam}
    models: dict[Pair, Served] = {}
    try:
        for folder in settings.models:
            began = time.perf_counter()
            translator = load(folder, device=settings.device, devices=settings.devices, precision=settings.precision)
            pairs = pairs_of(translator)
            for pair, language in pairs.items():
                _check(pair, folder, models)
                models[pair] = Served(pair, translator, {**options, "target_language": language})
            translator.warm_up(**options)  # raises UsageError for wrong options
            targets = listed([target for _, target in pairs], LISTED)
            source = translator.source_language
            say(f"{source} → {targets}: {translator.folders[0]}, loaded in {time.perf_counter() - began:.1f} s")
        for served in {model.translator: model for model in models.values()}.values():
            served.submit(["."]).result()  # starts the workers
    except BaseException:
        Pairs(models).close()
        raise
    return Pairs(models)


def pairs_of(translator: Translator) -> dict[Pair, str | None]:
    """Return the pairs that a model translates, each with its `target_language`.

    Clients know languages by the codes of ISO 639-1: a tag has its code there, unless an earlier tag has the same. The
    language of the recipe is the first.
    """
    source, languages = translator.source_language, translator.target_languages
    if not translator.has_tags:
        return {(source, translator.target_language): None}
    default = find(translator.target_language, languages)
    targets: dict[str, str] = {}
    for language in sorted(languages, key=lambda language: language != default):
        targets[language if short(language) in targets else short(language)] = language
    return {(source, target): language for target, language in targets.items()}


def _check(pair: Pair, folder: Path, models: Mapping[Pair, Served]) -> None:
    """Raise UsageError if another model has this pair, ModelError if the model's languages cannot be shown."""
    if not all(code.isprintable() and 0 < len(code) <= LONGEST_CODE for code in pair):
        raise ModelError(
            f"the model at {str(folder)!r} translates {shown(pair[0])} → {shown(pair[1])}: expected the "
            "languages' codes in its recipe, as data.source_language and data.target_language, "
            f"of at most {LONGEST_CODE} characters that can be printed."
        )
    folders = {
        tuple(map(normalized, language_pair)): served.translator.folders[0] for language_pair, served in models.items()
    }
    if earlier := folders.get(tuple(map(normalized, pair))):
        raise UsageError(
            f"--model {str(folder)!r} translates {pair[0]} → {pair[1]}, as --model {str(earlier)!r} does: give "
            "one model for each language pair."
        )


class ServedModels:
    """The models that are served now."""

    def __init__(self, settings: Settings, say: Callable[[str], None], warn: Callable[[str], None]) -> None:
        """Load the models. Raises ModelError, UsageError."""
        self.settings, self.say, self.warn = settings, say, warn
        self.pairs = load_pairs(settings, say)
        self.reloads = self.failed_reloads = 0
        self._old: set[Pairs] = set()
        self._turn, self._reloading = threading.Lock(), threading.Lock()

    def reload(self) -> bool:
        """Load the models again.

        After any error, print a warning, keep the old models and return False. The call returns after loading, or at
        once if an earlier one waits for its turn: that one will load what is there now.
        """
        if not self._turn.acquire(blocking=False):
            return True
        with self._reloading:
            self._turn.release()
            try:
                new = load_pairs(self.settings, self.say)
            except BaseException as error:  # nobody would see it: this runs in a thread of its own
                self.failed_reloads += 1
                reason = str(error) if isinstance(error, NmtError) else f"{type(error).__name__}: {error}"
                self.warn(f"the models were not loaded anew, the old ones stay in service: {reason}")
                return False
            old, self.pairs = self.pairs, new
            self._old.add(old)
            self.reloads += 1
            self.say("the models were loaded anew")
        threading.Thread(target=self._retire, args=(old,), daemon=True, name="nmt-old-models").start()
        return True

    def close(self) -> None:
        """End all workers."""
        self.pairs.close()
        for old in list(self._old):
            old.close()

    def _retire(self, old: Pairs) -> None:
        """Let models that were replaced finish, then close them."""
        try:
            old.close(PATIENCE)
        except Exception as error:
            self.warn(f"the old models did not end well: {type(error).__name__}: {error}")
        self._old.discard(old)
