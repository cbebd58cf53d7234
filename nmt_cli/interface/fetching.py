"""`nmt data` as functions: list the data sets, and download one.

datasets() ──▶ by name: title, languages, size, licence, files, archives, recipe          fetch(name)
    ──▶ Built of the folder
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..registry import DATASETS, load
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    from ..corpora.build import Built
    from ..corpora.dataset import Dataset


def dataset_named(name: str) -> Dataset:
    """Return the data set that the registry lists under `name`. Raises UsageError for an unknown name."""
    dataset: Dataset = load(DATASETS, name, "data set")
    return dataset


def datasets() -> dict[str, dict[str, Any]]:
    """Return a description of each data set, by name, as `nmt data list --json` prints it."""
    return {name: _described(dataset_named(name)) for name in DATASETS}


def _described(dataset: Dataset) -> dict[str, Any]:
    from ..corpora.dataset import outputs

    return {
        "title": dataset.title,
        "languages": dataset.languages,
        "size": dataset.size,
        "licence": dataset.licence,
        "files": [file for text in dataset.texts for file in outputs(text, dataset.languages)],
        "archives": [
            [{"url": source.url, "digest": source.digest, "bytes": source.size} for source in archive.sources]
            for archive in dataset.archives
        ],
        "recipe": dataset.recipe,
    }


def fetch(
    name: str,
    *,
    out: str | Path | None = None,
    downloads: str | Path | None = None,
    mirror: Sequence[str] = (),
    keep: bool = True,
    verify: bool = True,
    progress: ProgressOption = None,
) -> Built:
    """Download a data set and write its text, by default into text/NAME; a second call resumes, or does nothing.

    After an interrupt, the downloaded part is kept. Raises UsageError, DataError.
    """
    from ..corpora.build import build_dataset

    for address in mirror:
        if not address.startswith(("http://", "https://")):
            raise UsageError(
                f"--mirror {address!r}: expected an address that begins with https:// or http://. Put archives "
                "that you already have into --downloads DIR."
            )
    dataset, folder = dataset_named(name), Path(out) if out else Path("text") / name
    with showing(progress):
        return build_dataset(
            name, dataset, folder, Path(downloads) if downloads else folder / "downloads", mirror, verify, keep
        )
