"""`nmt serve`: translations over HTTP."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from ..errors import UsageError, install_command
from ..interface.loading import check_precision, decode_changes, models_named
from ..recipe import DecodeOptions
from .arguments import DecodeOverrides, Device, Devices, Precision, option
from .completion import runs
from .typed_options import options_of

LIMITS, ACCESS = "Limits", "Access"
"""Headings in --help."""
MOST, MOST_SECONDS = 10**12, 10**7
"""Highest values of limits: numbers, and seconds, which a timer of the system can wait."""
PACKAGES = {
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "httptools": "httptools",
    "prometheus_client": "prometheus-client",
    "python_multipart": "python-multipart",
    "py3langid": "py3langid",
    "sentencex": "sentencex",
    "defusedxml": "defusedxml",
}
"""Modules that `nmt serve` needs → their packages, which the extra `serve` installs."""


@options_of(DecodeOptions, "beam")
def serve(
    model: Annotated[
        list[Path] | None,
        option(
            "Model folder, or run folder (its averaged model, else the best, else the last); once for each "
            "language pair.  [env var: NMT_MODEL; default: runs/latest]",
            "DIR",
            names=("--model", "-m"),
            autocompletion=runs,
        ),
    ] = None,
    host: Annotated[str, option("Address to listen on; 0.0.0.0: on all of this machine.", "ADDRESS")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0: any that is free.", "N", min=0, max=65535)] = 8080,
    keys: Annotated[
        Path | None,
        option("API keys, one per line, with a name behind it for the log: requests need one of them.", "FILE", ACCESS),
    ] = None,
    no_keys: Annotated[
        bool, option("Let other machines use the server without a key.", heading=ACCESS, names=("--no-keys",))
    ] = False,
    cors: Annotated[
        list[str] | None,
        option(
            "Origin whose web pages may use the server, such as https://example.org; *: all. Repeatable.",
            "ORIGIN",
            ACCESS,
        ),
    ] = None,
    max_bytes: Annotated[
        int, option("Bytes of a request; 0, here and below: no limit.", "N", LIMITS, min=0, max=MOST)
    ] = 10 * 2**20,
    max_characters: Annotated[int, option("Characters of a request's texts.", "N", LIMITS, min=0, max=MOST)] = 500_000,
    max_sentences: Annotated[int, option("Sentences of a request.", "N", LIMITS, min=0, max=MOST)] = 20_000,
    max_queue: Annotated[
        int, option("Sentences that wait: with more, requests are refused.", "N", LIMITS, min=0, max=MOST)
    ] = 50_000,
    max_seconds: Annotated[
        float, option("Time for the translation of a request.", "S", LIMITS, min=0, max=MOST_SECONDS)
    ] = 120.0,
    max_reading: Annotated[
        float,
        option(
            "Time in which a request has to arrive, and its answer to be read.", "S", LIMITS, min=0, max=MOST_SECONDS
        ),
    ] = 30.0,
    max_connections: Annotated[int, option("Connections at once.", "N", LIMITS, min=0, max=MOST)] = 1000,
    quota: Annotated[int, option("Characters for each key, until the server ends.", "N", LIMITS, min=0, max=MOST)] = 0,
    grace: Annotated[
        float, option("At the end: time for requests that are under way.", "S", min=0, max=MOST_SECONDS)
    ] = 30.0,
    log: Annotated[
        str, option("Log on stderr: plain, or json for an object per line. Texts are not in it.", "FORMAT")
    ] = "plain",
    options: DecodeOptions = {},  # noqa: B006  # it is replaced by its options
    overrides: DecodeOverrides = None,
    device: Device = "auto",
    devices: Devices = None,
    processes: Annotated[
        int,
        option(
            "Processes that serve, each with the models in memory and --devices workers: one that dies is replaced.",
            "N",
            min=1,
            max=256,
        ),
    ] = 1,
    precision: Precision = "auto",
) -> None:
    """Serve translations over HTTP, as LibreTranslate (/translate) and DeepL (/v2/translate) do, and a page for people.

    Every translation is that of `nmt translate`. Sentences of all clients are translated together; none waits for a
    long document of another client.

    SIGHUP loads the models anew, without losing a request. SIGTERM and Ctrl-C answer what is under way, then end.
    """
    missing = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"nmt serve needs the extra package{'s' * (len(missing) > 1)} {', '.join(missing)}: "
            f"{install_command('serve')}."
        )
    if log not in ("plain", "json"):
        raise UsageError(f"--log {log!r}: expected plain or json.")
    if keys and no_keys:
        raise UsageError("--keys and --no-keys were both given: with keys, requests need one. Give one of the two.")
    if quota and processes > 1:
        raise UsageError("--quota and --processes: each process would count by itself. Give one of the two.")
    check_precision(precision)
    decode_changes(overrides or [], {})
    from ..serving.keys import Keys, read_keys
    from ..serving.settings import Limits, Settings

    limits = Limits(
        body=max_bytes,
        characters=max_characters,
        sentences=max_sentences,
        queue=max_queue,
        seconds=max_seconds,
        reading=max_reading,
        connections=max_connections,
        quota=quota,
    )
    settings = Settings(
        models=tuple(models_named(model)),
        host=host,
        port=port,
        keys=read_keys(keys) if keys else Keys(),
        open_to_all=no_keys,
        limits=limits,
        cors=tuple(cors or ()),
        device=device,
        devices=devices,
        processes=processes,
        precision=precision,
        overrides=tuple(overrides or ()),
        beam=options["beam"],
        log=log,
        grace=grace,
    )
    from ..hardware import keep_freed_memory
    from ..serving.run import serve as run

    keep_freed_memory()
    run(settings)
