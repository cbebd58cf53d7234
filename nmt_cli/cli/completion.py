"""Shell completion: names of recipes, folders of runs, models and shards.

`nmt --install-completion` installs it in the shell. On Tab, the shell then runs nmt with the variable COMPLETE in the
environment.
"""

from __future__ import annotations

import os
from pathlib import Path

COMPLETE = "_NMT_COMPLETE"
"""Name of the environment variable, which typer derives from the program's name."""


def recipes(incomplete: str) -> list[str]:
    """Return the completions of a recipe: names of recipes of the package, .toml files, and folders."""
    from ..recipe import RECIPE_SUFFIX, recipe_names

    return [*(name for name in recipe_names() if name.startswith(incomplete)), *_paths(incomplete, RECIPE_SUFFIX)]


def runs(incomplete: str) -> list[str]:
    """Return the folders whose path begins with `incomplete`.

    If that is empty, return the folders in runs/, if it exists.
    """
    return _paths(incomplete or ("runs/" if Path("runs").is_dir() else ""), "/")


def _paths(incomplete: str, suffix: str) -> list[str]:
    """Return files with `suffix`, and folders with a slash at the end, whose path begins with `incomplete`.

    Hidden names are returned only if the user typed the dot.
    """
    parent, slash, begin = incomplete.rpartition("/")
    try:
        names = sorted(os.listdir(parent or slash or "."))
    except OSError:
        return []
    paths = [
        f"{parent}{slash}{name}{'/' * os.path.isdir(f'{parent}{slash}{name}')}"
        for name in names
        if name.startswith(begin) and (begin or not name.startswith("."))
    ]
    return [path for path in paths if path.endswith(("/", suffix))]
