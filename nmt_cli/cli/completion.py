"""What a shell completes after Tab: names of recipes, folders of runs, models and shards.

`nmt --install-completion` teaches it to the shell. The shell then runs nmt with COMPLETE in the environment.
"""

from __future__ import annotations

import os
from pathlib import Path

COMPLETE = "_NMT_COMPLETE"
"""The variable that typer derives from the program's name."""


def recipes(incomplete: str) -> list[str]:
    """Return the recipes that begin so: those that ship, .toml files, and folders on the way to them."""
    from ..recipe_files import RECIPE_SUFFIX, recipe_names

    return [*(name for name in recipe_names() if name.startswith(incomplete)), *_paths(incomplete, RECIPE_SUFFIX)]


def runs(incomplete: str) -> list[str]:
    """Return the folders that begin so; at first those in runs/, if there is such a folder."""
    return _paths(incomplete or ("runs/" if Path("runs").is_dir() else ""), "/")


def _paths(incomplete: str, suffix: str) -> list[str]:
    """Return files with this suffix and folders, with a slash at the end, whose path begins so. Hidden ones are left out."""
    parent, slash, begin = incomplete.rpartition("/")
    try:
        names = sorted(os.listdir(parent or slash or "."))
    except OSError:
        return []
    paths = [f"{parent}{slash}{name}{'/' * os.path.isdir(f'{parent}{slash}{name}')}" for name in names if name.startswith(begin) and (begin or not name.startswith("."))]
    return [path for path in paths if path.endswith(("/", suffix))]
