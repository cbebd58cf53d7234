"""`nmt models` as functions: the models that have names, those that can be fetched, and fetching one.

models() ──▶ descriptions of the models in `model.folder_files.models_folder`, which --model finds by their names
available(url) ──▶ descriptions of published models ──▶ get_model(name): download, import ──▶ Imported
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from .. import console
from ..device.hardware import loading_torch
from ..device.processor import threads_by_default
from ..errors import DataError, ModelError, UsageError, check_choice, did_you_mean, reading, shown, writing
from ..model.folder_files import CONFIG, models_folder, not_fetched, read_config, read_metrics
from ..storage.files import Lock
from ..storage.output_paths import check_output_folder
from .commands import torch_threads
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    from ..corpora.published_models import PublishedModel
    from ..exchange.importing import Imported

WHAT = "the fetched model"


def models() -> list[dict[str, Any]]:
    """Return a description of each model that has a name, as `nmt models --json` prints it.

    Warn of damaged ones, which are left out. Raises DataError.
    """
    folder, found = models_folder(), []
    with reading(folder, " $NMT_MODELS names another folder."):
        for path in sorted(path.parent for path in folder.glob(f"*/{CONFIG}")):
            try:
                data, metrics = read_config(path).recipe.get("data", {}), read_metrics(path)
            except ModelError as error:
                console.warn(str(error))
                continue
            languages = {key: str(data.get(key, "")) for key in ("source_language", "target_language")}
            size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
            origin = next((str(metrics[key]) for key in ("published", "imported", "origin") if key in metrics), "")
            values = {"license": str(metrics.get("license", "")), "origin": origin, "folder": str(path)}
            found.append({"name": path.name, **languages, "bytes": size, **values})
    return found


def available(url: str = "") -> list[dict[str, Any]]:
    """Return a description of each published model, as `nmt models available --json` prints it.

    `url` is a server of Remote Settings, by default Mozilla's. Raises DataError, UsageError.
    """
    return [
        {
            "name": model.name,
            **model.weights.model_dump(include={"source_language", "target_language", "architecture", "version"}),
            "bytes": sum(record.attachment.size for record in model.files.values()),
            "files": [model.address(record) for record in model.files.values()],
        }
        for model in _catalogue(url)
    ]


def _catalogue(url: str, name: str = "LANGUAGES") -> list[PublishedModel]:
    from ..corpora.published_models import LICENSE, MOZILLA, catalogue

    url = url.rstrip("/") or MOZILLA
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url!r}: expected an address that begins with https:// or http://.")
    try:
        return catalogue(url)
    except DataError as error:
        raise DataError(
            f"cannot learn which models are published: {error}\nCheck the connection (a proxy is taken from "
            "https_proxy). Without a network, fetch the files of a model elsewhere: "
            "https://mozilla.github.io/translations/model-registry/ lists them for a browser, and "
            f"`nmt import FOLDER --license {LICENSE} --out {models_folder() / name}` imports them."
        ) from None


def get_model(name: str, *, architecture: str = "", url: str = "", progress: ProgressOption = None) -> Imported | None:
    """Download a model that Mozilla publishes, such as "en-de", and import it into the folder of models under its name.

    `architecture` is "tiny", "base-memory" or "base", by default the best one. After an interrupt, the downloaded
    part is kept. Return None if the model is there already. Raises DataError, ModelError, UsageError.
    """
    with loading_torch("nmt models get"):  # before anything is downloaded
        from ..exchange.importer import ImportOptions
        from ..exchange.importing import import_model
    from ..corpora.published_models import LICENSE, fetch_files

    with showing(progress):
        model = _chosen(_catalogue(url, name), name, architecture)
        weights, out = model.weights, models_folder() / model.name
        check_output_folder(out, WHAT, not_fetched)
        if out.exists() and str(read_metrics(out).get("published", "")).endswith(weights.decompressed_hash):
            console.say(f"nothing to do: {out} is this model")
            return None
        downloads = models_folder() / ".downloads" / model.name
        folder = downloads / f"{model.name}-{weights.architecture}-{weights.version}"
        with writing(folder, WHAT):
            folder.mkdir(parents=True, exist_ok=True)
            lock = Lock(downloads, DataError(f"another nmt models get fetches {model.name} now: let it finish."))
        with lock, torch_threads(threads_by_default()):
            fetch_files(model, downloads, folder)
            published = f"{model.address(weights)}#sha256={weights.decompressed_hash}"
            languages = (weights.source_language, weights.target_language)
            imported = import_model(folder, out, "", ImportOptions(*languages, license=LICENSE, published=published))
            shutil.rmtree(downloads, ignore_errors=True)
        return imported


def _chosen(published: list[PublishedModel], name: str, architecture: str) -> PublishedModel:
    """Return the model to fetch, and print what will be fetched. Raises UsageError if there is none."""
    from ..corpora.published_models import LICENSE

    wanted, names = name.lower().replace("_", "-"), {model.name.lower(): model.name for model in published}
    found = {model.weights.architecture: model for model in published if model.name.lower() == wanted}
    if not found:
        parts = wanted.split("-")
        pairs = [(f"{'-'.join(parts[:cut])}-en", f"en-{'-'.join(parts[cut:])}") for cut in range(1, len(parts))]
        pivots = [f"{names[one]} and {names[two]}" for one, two in pairs if one in names and two in names]
        other = f"expected languages as in en-de.{did_you_mean(name, names)}"
        hint = f"fetch {pivots[0]}, and translate into English first." if pivots else other
        raise UsageError(f"no model {shown(name)} is published: {hint} `nmt models available` lists them.")
    if architecture:
        check_choice("--architecture", architecture, found)
    model = found[architecture] if architecture else next(iter(found.values()))
    console.say(
        f"{model.name}, {model.weights.architecture} {model.weights.version}, licence {LICENSE}; "
        f"architectures that are published: {', '.join(found)}"
    )
    for record in model.files.values():
        console.say(f"  {record.name}, {record.attachment.size / 1e6:.1f} MB, from {model.address(record)}")
    return model
