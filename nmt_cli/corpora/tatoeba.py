"""Tatoeba, short everyday sentences: manythings.org/anki. The files change over time, so no checksum is published."""

from __future__ import annotations

from .dataset import Dataset, Split, archive


def _paired_with_english(language: str, code: str, recipe: str) -> Dataset:
    return Dataset(
        title=f"Tatoeba {'English-German' if language == 'de' else 'English-French'}, short everyday sentences; "
        "cut into train, valid and test here",
        languages=("en", language),
        size="10 MB",
        licence="CC BY 2.0 FR, attribution: tatoeba.org and manythings.org/anki",
        texts=(Split(archive=archive(f"https://www.manythings.org/anki/{code}-eng.zip"), member=f"{code}.txt"),),
        recipe=recipe,
    )


EN_DE = _paired_with_english("de", "deu", "tatoeba_en_de")
EN_FR = _paired_with_english("fr", "fra", "tatoeba_en_fr")
