"""The scores of a model before it is adapted, on the first pairs of the test set.

model folder, pairs ──▶ Translator, a few lines at a time, at most LIMIT seconds ──▶ evaluate ──▶ Baseline
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import console
from ..evaluation.metric import DEFAULT_TOKENIZER
from ..evaluation.metrics import Score
from ..evaluation.tokenizers import default_tokenizer
from .evaluation import evaluate
from .translator import load

MOST = 500
"""Most pairs that are translated."""
LIMIT = 60.0
"""Seconds after which no more lines are translated."""
AT_ONCE = 25
"""Lines that are translated between two looks at the clock."""
METRICS = ("bleu", "chrf")


@dataclass(frozen=True)
class Baseline:
    """The scores of a model on the first `lines` of the `pairs` pairs of a test set."""

    lines: int
    pairs: int
    scores: Mapping[str, Score]
    """BLEU and chrF by "bleu" and "chrf", as `nmt score` computes them."""
    tokenizer: str = DEFAULT_TOKENIZER
    """BLEU's tokenizer, which fits the target's script."""

    def __str__(self) -> str:
        scores = " and ".join(f"{score.name} {score.value:.1f}" for score in self.scores.values())
        return f"{scores} on {self.measured}"

    @property
    def measured(self) -> str:
        """The lines that were translated, in words."""
        first = f"the first {self.lines:,} of " if self.lines < self.pairs else "all "
        return f"{first}{self.pairs:,} lines of the test set"


def baseline(
    model: Path, language: str, pairs: Sequence[tuple[str, str]], total: int, workers: int | None = None
) -> Baseline | None:
    """Return the scores of the model in a folder on `pairs`, the first of `total` pairs; None if they hold no text.

    `language`: that of the translations. `workers`: how many translate on a CPU. Raises ModelError, UsageError.
    """
    chunks = [pairs[start : start + AT_ONCE] for start in range(0, len(pairs), AT_ONCE)]
    texts: list[str] = []
    started = time.monotonic()
    with (
        load(model, devices=workers) as translator,
        console.progress(len(pairs), "translating with the model as it is", " lines") as bar,
    ):
        for chunk in chunks:
            if texts and time.monotonic() - started > LIMIT:
                break
            found = translator.translate([source for source, _ in chunk], target_language=language)
            texts += [translation.text for translation in found]
            bar.update(len(chunk))
    references = [target for _, target in pairs[: len(texts)]]
    if not any(line.strip() for line in references):
        return None
    tokenizer = default_tokenizer(language, references)
    scores = evaluate(texts, [references], metrics=METRICS, tokenize=tokenizer).scores()
    return Baseline(len(texts), total, scores, tokenizer)
