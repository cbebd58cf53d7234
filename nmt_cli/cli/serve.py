"""`nmt serve`: translations over HTTP."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError, install_command
from ..interface.loading import check_precision, decode_changes, models_named
from .arguments import BeamSize, DecodeOverrides, Device
from .completion import runs
from .translate_options import Devices, Precision

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


def serve(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="DIR",
            autocompletion=runs,
            help="Model folder, or run folder (its averaged model, else the best, else the last); once for each language pair.  [env var: NMT_MODEL; default: runs/latest]",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0: on all of this machine.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0: any that is free.")
    ] = 8080,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            rich_help_panel=ACCESS,
            help="API keys, one per line, with a name behind it for the log: requests need one of them.",
            show_default=False,
        ),
    ] = None,
    no_keys: Annotated[
        bool, typer.Option("--no-keys", rich_help_panel=ACCESS, help="Let other machines use the server without a key.")
    ] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors",
            metavar="ORIGIN",
            rich_help_panel=ACCESS,
            help="Origin whose web pages may use the server, such as https://example.org; *: all. Repeatable.",
            show_default=False,
        ),
    ] = None,
    max_bytes: Annotated[
        int,
        typer.Option(
            "--max-bytes",
            metavar="N",
            min=0,
            max=MOST,
            rich_help_panel=LIMITS,
            help="Bytes of a request; 0, here and below: no limit.",
        ),
    ] = 10 * 2**20,
    max_characters: Annotated[
        int,
        typer.Option(
            "--max-characters",
            metavar="N",
            min=0,
            max=MOST,
            rich_help_panel=LIMITS,
            help="Characters of a request's texts.",
        ),
    ] = 500_000,
    max_sentences: Annotated[
        int,
        typer.Option(
            "--max-sentences", metavar="N", min=0, max=MOST, rich_help_panel=LIMITS, help="Sentences of a request."
        ),
    ] = 20_000,
    max_queue: Annotated[
        int,
        typer.Option(
            "--max-queue",
            metavar="N",
            min=0,
            max=MOST,
            rich_help_panel=LIMITS,
            help="Sentences that wait: with more, requests are refused.",
        ),
    ] = 50_000,
    max_seconds: Annotated[
        float,
        typer.Option(
            "--max-seconds",
            metavar="S",
            min=0,
            max=MOST_SECONDS,
            rich_help_panel=LIMITS,
            help="Time for the translation of a request.",
        ),
    ] = 120.0,
    max_reading: Annotated[
        float,
        typer.Option(
            "--max-reading",
            metavar="S",
            min=0,
            max=MOST_SECONDS,
            rich_help_panel=LIMITS,
            help="Time in which a request has to arrive, and its answer to be read.",
        ),
    ] = 30.0,
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections", metavar="N", min=0, max=MOST, rich_help_panel=LIMITS, help="Connections at once."
        ),
    ] = 1000,
    quota: Annotated[
        int,
        typer.Option(
            "--quota",
            metavar="N",
            min=0,
            max=MOST,
            rich_help_panel=LIMITS,
            help="Characters for each key, until the server ends.",
        ),
    ] = 0,
    grace: Annotated[
        float,
        typer.Option(
            "--grace",
            metavar="S",
            min=0,
            max=MOST_SECONDS,
            help="At the end: time for requests that are under way.",
        ),
    ] = 30.0,
    log: Annotated[
        str,
        typer.Option(
            "--log", metavar="FORMAT", help="Log on stderr: plain, or json for an object per line. Texts are not in it."
        ),
    ] = "plain",
    beam: BeamSize = None,
    overrides: DecodeOverrides = None,
    device: Device = "auto",
    devices: Devices = None,
    processes: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            max=256,
            help="Processes that serve, each with the models in memory and --devices workers: one that dies is replaced.",
        ),
    ] = 1,
    precision: Precision = "auto",
) -> None:
    """Serve translations over HTTP, as LibreTranslate (/translate) and DeepL (/v2/translate) do, and a page for people.

    Every translation is that of `nmt translate`. Sentences of all clients are translated together; none waits for a long document of another client.

    SIGHUP loads the models anew, without losing a request. SIGTERM and Ctrl-C answer what is under way, then end.
    """
    missing = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"nmt serve needs the extra package{'s' * (len(missing) > 1)} {', '.join(missing)}: {install_command('serve')}."
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
        beam=beam,
        log=log,
        grace=grace,
    )
    from ..hardware import keep_freed_memory
    from ..serving.server import serve as run

    keep_freed_memory()
    run(settings)
