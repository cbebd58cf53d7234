"""`nmt info --report`: what a maintainer needs to know about a machine and a model on which something failed.

    failure_report(what) ──▶ {"nmt": "0.1.0", "processor": "…", "engine": "…", "torch": "…", "model": "…", …}

It holds versions, numbers and choices. It holds no path, no name of a file, a recipe or a user, and no text.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from .. import __version__
from ..device.hardware import loading_torch
from ..device.memory import free_memory
from ..device.processor import cores, cpu_flags
from ..engine import library
from ..errors import NmtError

VARIABLES = (library.VARIABLE, "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LANG")
"""Environment variables that change what is computed or printed."""


def failure_report(what: str | Path = "demo") -> dict[str, str]:
    """Return the facts by name. `what` is that of `nmt info`; of one that cannot be read, the kind of the error."""
    return {
        "nmt": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "processor": f"{_processor()}, {cores()} cores, {free_memory() / 2**30:.1f} GiB free",
        "engine": _engine(),
        "torch": _torch(),
        "packages": ", ".join(_packages()),
        "variables": ", ".join(f"{name}={value}" for name in VARIABLES if (value := os.environ.get(name))) or "none",
        **_described(what),
    }


def _processor() -> str:
    """Return the name of the processor, and those of its instruction sets by which the engine chooses a library."""
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    known = cpu_flags() & frozenset().union(*library.NEEDS.values())
    return f"{found[1] if found else platform.processor() or platform.machine()} ({' '.join(sorted(known)) or 'none'})"


def _engine() -> str:
    try:
        return library.summary().replace(f"{library.FOLDER}{os.sep}", "")
    except NmtError:
        return f"none: {library.VARIABLE} is wrong"


def _torch() -> str:
    """Return torch's version and GPUs. Loading it may itself be what fails."""
    try:
        with loading_torch("this line", shown=False):
            import torch

        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    except Exception as error:
        return f"cannot be loaded: {type(error).__name__}"
    return f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}, {', '.join(gpus) or 'no GPU'}"


def _packages() -> Iterator[str]:
    """Yield the versions of the packages that nmt uses, those of its extras too, as far as they are installed."""
    required = metadata.requires("nmt-cli") or ()
    names = {re.split(r"[^\w.-]", item)[0] for item in required if not re.search("extra == .(dev|docs)", item)}
    for name in sorted(names - {"torch"}):
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue


def _described(what: str | Path) -> dict[str, str]:
    """Return the kind of `what`, the hash of its recipe, the model's sizes and choices, and how the engine takes it."""
    from .information import info

    try:
        values = info(what)
    except Exception as error:
        return {"given": f"cannot be read: {type(error).__name__}"}
    described = {"given": values["kind"]}
    if "package_version" in values:
        described["written by"] = f"nmt {values['package_version']}, {values.get('weights', 'shards')}"
    if recipe := values.get("recipe") if values["kind"] != "shards" else None:
        text = json.dumps(recipe, sort_keys=True, ensure_ascii=False)
        described["recipe"] = f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"
        described["model"] = ", ".join(f"{key} {value}" for key, value in recipe["model"].items())
        described["vocabulary"] = f"{values['source_vocab']}, {values['target_vocab']}"
    return described
