"""`nmt serve`: translations over HTTP."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from ..errors import UsageError, check_choice, install_command
from ..interface.loading import check_precision, decode_changes, models_named
from ..recipe import DecodeOptions
from ..serving.keys import Keys, read_keys
from ..serving.settings import MOST_SECONDS, Limits, Settings
from .arguments import DEFAULT_MODEL, MODEL_FOLDER, DecodeOverrides, Device, Devices, Precision, model_option, option
from .typed_options import Given, options_from, options_of

ACCESS = "Access"
"""A heading in --help."""
PACKAGES = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
    "sentencex": "sentencex",
    "defusedxml": "defusedxml",
}
"""Modules that `nmt serve` needs → their packages, which the extra `serve` installs."""


@options_from(
    Settings,
    host=option("Address to listen on; 0.0.0.0: on all of this machine.", "ADDRESS"),
    port=option("Port to listen on; 0: any that is free.", "N", min=0, max=65535),
    cors=option(
        "Origin whose web pages may use the server, such as https://example.org; *: all. Repeatable.", "ORIGIN", ACCESS
    ),
    grace=option("At the end: time for requests that are under way.", "S", min=0, max=MOST_SECONDS),
    log=option("Log on stderr: plain, or json for an object per line. Texts are not in it.", "FORMAT"),
    overrides=DecodeOverrides,
    device=Device,
    devices=Devices,
    processes=option(
        "Processes that serve, each with the models in memory and --devices workers: one that dies is replaced.",
        "N",
        min=1,
        max=256,
    ),
    precision=Precision,
)
@options_of(Limits, into="limits")
@options_of(DecodeOptions, "beam", into="search")
def serve(
    *,
    model: Annotated[
        list[Path] | None, model_option(f"{MODEL_FOLDER}; once for each language pair.{DEFAULT_MODEL}")
    ] = None,
    keys: Annotated[
        Path | None,
        option("API keys, one per line, with a name behind it for the log: requests need one of them.", "FILE", ACCESS),
    ] = None,
    no_keys: Annotated[
        bool, option("Let other machines use the server without a key.", heading=ACCESS, names=("--no-keys",))
    ] = False,
    options: Given,
    limits: Limits,
    search: Given,
) -> None:
    """Serve translations over HTTP, with a page for people.

    Its interfaces are those of LibreTranslate (/translate) and DeepL (/v2/translate): docs/serving.md. SIGHUP loads the
    models anew.
    """
    missing = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"nmt serve needs the extra package{'s' * (len(missing) > 1)} {', '.join(missing)}: "
            f"{install_command('serve')}."
        )
    check_choice("--log", options["log"], ("plain", "json"))
    if keys and no_keys:
        raise UsageError("--keys and --no-keys were both given: with keys, requests need one. Give one of the two.")
    if limits.quota and options["processes"] > 1:
        raise UsageError("--quota and --processes: each process would count by itself. Give one of the two.")
    check_precision(options["precision"])
    decode_changes(options.get("overrides", ()), {})
    several: Given = {name: tuple(options.pop(name, ())) for name in ("cors", "overrides")}
    settings = Settings(
        models=tuple(models_named(model)),
        keys=read_keys(keys) if keys else Keys(),
        open_to_all=no_keys,
        limits=limits,
        **options,
        **several,
        **search,
    )
    from ..device.memory import keep_freed_memory
    from ..serving.run import serve as run

    keep_freed_memory()
    run(settings)
