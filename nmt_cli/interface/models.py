"""`nmt models` as functions: the models that have names, those that can be fetched, and fetching one.

models() ──▶ descriptions of the models in `model.folder_files.models_folder`, which --model finds by their names
available(url) ──▶ descriptions of published models ──▶ get_model(name): download, import ──▶ FetchedModel
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import console
from ..device.hardware import loading_torch
from ..device.processor import threads_by_default
from ..errors import DataError, ModelError, UsageError, check_choice, did_you_mean, listed, shown, writing
from ..model.folder_files import CONFIG, models_folder, not_fetched, read_config, read_metrics
from ..storage.files import Lock
from ..storage.output_paths import check_output_folder
from .commands import torch_threads
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    from ..corpora.published_models import PublishedModel
    from ..exchange.importing import Imported

WHAT = "the fetched model"
DOWNLOADS = ".downloads"
"""The folder, beside the models, of what is being downloaded."""
BY_HAND = (
    "Check the connection (a proxy is taken from https_proxy). Without a network, fetch the files of a model "
    "elsewhere: {page} lists them for a browser, and `nmt import FOLDER --license {license} --out {out}` imports them."
)


def models() -> list[dict[str, Any]]:
    """Return a description of each model that has a name, as `nmt models list --json` prints it. Raises DataError."""
    folder = models_folder()
    try:
        paths = sorted(path for path in folder.iterdir() if (path / CONFIG).is_file()) if folder.exists() else []
    except OSError as error:
        raise DataError(f"cannot read {str(folder)!r}: {error.strerror}. $NMT_MODELS names another folder.") from None
    return [_described(path) for path in paths]


def _described(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {"name": path.name, "folder": str(path)}
    try:
        config, metrics = read_config(path), read_metrics(path)
    except ModelError as error:
        return {**values, "error": str(error)}
    data = config.recipe.get("data", {})
    return {
        **values,
        "source_language": str(data.get("source_language", "")),
        "target_language": str(data.get("target_language", "")),
        "bytes": sum(file.stat().st_size for file in path.iterdir() if file.is_file()),
        "origin": str(metrics.get("published") or metrics.get("imported") or metrics.get("origin") or ""),
        "license": str(metrics.get("license") or ""),
    }


def available(url: str = "") -> list[dict[str, Any]]:
    """Return a description of each published model, as `nmt models available --json` prints it.

    `url` is a server of Remote Settings, by default Mozilla's. Raises DataError, UsageError.
    """
    return [
        {
            "name": model.name,
            "source_language": model.model.source_language,
            "target_language": model.model.target_language,
            "architecture": model.model.architecture,
            "version": model.model.version,
            "bytes": model.size,
            "files": [model.address(record) for record in model.files.values()],
        }
        for candidates in _catalogue(url).values()
        for model in candidates
    ]


def _catalogue(url: str, name: str = "LANGUAGES") -> dict[str, list[PublishedModel]]:
    from ..corpora.published_models import LICENSE, MOZILLA, REGISTRY, catalogue

    url = url.rstrip("/") or MOZILLA
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url!r}: expected an address that begins with https:// or http://.")
    try:
        with console.status("asking for the models"):
            return catalogue(url)
    except DataError as error:
        way_out = BY_HAND.format(page=REGISTRY, license=LICENSE, out=models_folder() / name)
        raise DataError(f"cannot learn which models are published: {error}\n{way_out}") from None


@dataclass(frozen=True)
class FetchedModel:
    """A model that was fetched. `imported` is None if it was there already."""

    path: Path
    imported: Imported | None


def get_model(name: str, *, architecture: str = "", url: str = "", progress: ProgressOption = None) -> FetchedModel:
    """Download a model that Mozilla publishes, such as "en-de", and import it into the folder of models under its name.

    `architecture` is "tiny", "base-memory" or "base", by default the best one. After an interrupt, the downloaded
    part is kept. Raises DataError, ModelError, UsageError.
    """
    with loading_torch("nmt models get"):  # before anything is downloaded
        from ..exchange.importer import ImportOptions
        from ..exchange.importing import import_model
    from ..corpora.published_models import LICENSE, fetch_files

    with showing(progress):
        model = _chosen(_catalogue(url, name), name, architecture)
        out = models_folder() / model.name
        check_output_folder(out, WHAT, not_fetched)
        if out.exists() and str(read_metrics(out).get("published", "")).endswith(model.model.decompressed_hash):
            return FetchedModel(out, None)
        downloads = models_folder() / DOWNLOADS / model.name
        folder = downloads / model.title
        with writing(folder, WHAT):
            folder.mkdir(parents=True, exist_ok=True)
            lock = Lock(downloads, DataError(f"another nmt models get fetches {name} just now: let it finish."))
        with lock, torch_threads(threads_by_default()):
            fetch_files(model, downloads, folder)
            options = ImportOptions(
                model.model.source_language, model.model.target_language, license=LICENSE, published=model.identity
            )
            imported = import_model(folder, out, "", options)
            shutil.rmtree(downloads, ignore_errors=True)
        return FetchedModel(out, imported)


def _chosen(published: dict[str, list[PublishedModel]], name: str, architecture: str) -> PublishedModel:
    """Return the model to fetch, and print what will be fetched. Raises UsageError if there is none."""
    from ..corpora.published_models import LICENSE

    known = {key.lower(): models for key, models in published.items()}
    candidates = known.get(name.lower().replace("_", "-"))
    if not candidates:
        raise UsageError(_unknown(name, published))
    by_architecture = {model.model.architecture: model for model in candidates}
    if architecture:
        check_choice("--architecture", architecture, by_architecture)
    model = by_architecture[architecture] if architecture else candidates[0]
    others = [one for one in by_architecture if one != model.model.architecture]
    console.say(f"{model.title}: {model.size / 1e6:.1f} MB, licence {LICENSE}")
    for record in model.files.values():
        console.say(f"  {record.name}, {record.attachment.size / 1e6:.1f} MB, from {model.address(record)}")
    if others and not architecture:
        console.say(f"also published: --architecture {listed(others)}")
    return model


def _unknown(name: str, published: Iterable[str]) -> str:
    """Return why there is no model of that name."""
    parts = name.lower().replace("_", "-").split("-")
    known = {key.lower(): key for key in published}
    for cut in range(1, len(parts)):
        pivots = [f"{'-'.join(parts[:cut])}-en", f"en-{'-'.join(parts[cut:])}"]
        if all(pivot in known for pivot in pivots):
            first, second = (known[pivot] for pivot in pivots)
            return (
                f"no model translates {name} directly: fetch {first} and {second} with `nmt models get`, and translate "
                "into English first."
            )
    return (
        f"no model {shown(name)} is published: expected languages, such as en-de.{did_you_mean(name, known)} "
        "`nmt models available` lists them."
    )
