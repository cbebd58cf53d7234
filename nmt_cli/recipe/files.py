"""Where recipes lie, and how one is read: the file, what it extends, and the keys that --set changes."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ..console import warn_once
from ..errors import RecipeError, did_you_mean, shown
from ..storage.files import read_bounded
from ..text.encodings import refused, wide_encoding
from .recipe import SECTIONS, Recipe, _too_deep, with_present_names
from .sections import no_language

RECIPE_SUFFIX = ".toml"


LARGEST = 2**20
"""Largest size of a recipe's file, in bytes."""


LONGEST_CHAIN = 32
"""Largest number of recipes in a chain of `extends`."""


def recipe_folder() -> Any:
    """Return the folder of the recipes that ship with the package (in a checkout: `recipes/` at its top)."""
    packaged = resources.files("nmt_cli") / "recipes"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "recipes"


WHERE_RECIPES = (
    "Give the path of a .toml file (nmt init writes one for your text), or a name: `nmt info --recipes` lists them."
)
"""What errors say about an unknown recipe."""


def recipe_names() -> list[str]:
    """Return the names of the recipes that ship with the package."""
    return sorted(
        item.name.removesuffix(RECIPE_SUFFIX) for item in recipe_folder().iterdir() if item.name.endswith(RECIPE_SUFFIX)
    )


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe by name (`demo`) or path (`my/own.toml`) and apply `section.key=value` overrides to it.

    `extends = "other"` at a file's head names another recipe, or a path beside the file. The recipe inherits each key
    of the other recipe that the file does not set. Raises `RecipeError` for an unknown name and for TOML that does not
    parse; errors of keys and values are reported together.
    """
    values, name, where = _read(name_or_path, [])
    apply_overrides(values, overrides)
    recipe = Recipe.from_dict({"name": name, **values}, where)
    for key in ("source_language", "target_language"):
        if reason := no_language(getattr(recipe.data, key)):
            raise RecipeError(f"{where}: data.{key} = {reason}")
    return recipe


def toml_value(value: object) -> str:
    """Return a text, number, boolean or a list of these as TOML on one line.

    Raises RecipeError for text that UTF-8 cannot hold, such as the name of a file in another encoding, and TypeError
    for other types.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RecipeError(f"{shown(value)} is not UTF-8, and a recipe is UTF-8 text: rename it.") from None
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return repr(value)
    raise TypeError(f"{type(value).__name__} is not a type of TOML")


def toml_comment(text: str) -> str:
    """Return a comment of TOML: "# text". Characters that cannot be printed are escaped, so it is one line of UTF-8."""
    return "# " + "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def _read(name_or_path: str, children: Sequence[str]) -> tuple[dict[str, Any], str, str]:
    """Return a recipe's plain dictionary with the inherited keys, its name, and its location for messages.

    `children`: the locations of the recipes that extend it, the outermost first.
    """
    text, name, where = _find(name_or_path)
    if len(children) >= LONGEST_CHAIN:
        raise RecipeError(
            f"more than {LONGEST_CHAIN} recipes extend each other: {children[0]} → {children[1]} → … → {where}. Remove "
            "one of these `extends`."
        )
    try:
        values = with_present_names(_parsed(text, where), where)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{where} is not valid TOML: {error}") from None
    if "name" in values:
        raise RecipeError(f"{where}: name is not a key; a recipe is called after its file. Remove it.")
    parent = values.pop("extends", "")
    if not isinstance(parent, str):
        raise RecipeError(f"{where}: extends = {parent!r}: expected the name of a recipe, or the path of a .toml file.")
    if not parent:
        return values, name, where
    beside = Path(name_or_path).parent / parent
    try:
        under, _, parent_location = _read(
            str(beside) if _is_path(name_or_path) and _is_path(parent) else parent, [*children, where]
        )
    except RecipeError as error:
        raise error if children else RecipeError(f"{where} extends {parent!r}: {error}") from None
    for section, keys in values.items():
        inherited = under.get(section)
        under[section] = {**inherited, **keys} if isinstance(inherited, dict) and isinstance(keys, dict) else keys
    return under, name, f"{where} (with {parent_location} under it)"


def _parsed(text: str, where: str) -> dict[str, Any]:
    """Return TOML as a dictionary. Raises TOMLDecodeError if it is not TOML, RecipeError if Python cannot read it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError:  # an integer with more digits than Python allows
        raise RecipeError(
            f"{where} holds a number of more than {sys.get_int_max_str_digits():,} digits: no key takes one."
        ) from None


def folder_beside(name_or_path: str) -> Path | None:
    """Return the folder of a recipe that is the user's own file; None for a recipe that ships with the package."""
    return Path(name_or_path).parent if _is_path(name_or_path) else None


def _is_path(name_or_path: str) -> bool:
    return name_or_path.endswith(RECIPE_SUFFIX) or "/" in name_or_path


def _find(name_or_path: str) -> tuple[str, str, str]:
    """Return the text, the name and the location of a recipe. Raises RecipeError if it cannot be read."""
    if not _is_path(name_or_path):
        names = recipe_names()
        if name_or_path in names:
            return (
                (recipe_folder() / f"{name_or_path}{RECIPE_SUFFIX}").read_text(encoding="utf-8"),
                name_or_path,
                f"recipe {name_or_path!r}",
            )
        beside = f"{name_or_path}{RECIPE_SUFFIX}"
        if os.path.isfile(beside):
            raise RecipeError(f"no recipe is called {shown(name_or_path)}. Did you mean the file {shown(beside)}?")
        raise RecipeError(
            f"no recipe is called {shown(name_or_path)}.{did_you_mean(name_or_path, names, most=3)} {WHERE_RECIPES}"
        )
    path = Path(name_or_path)
    where = f"recipe {shown(str(path))}"
    try:
        content = read_bounded(path, LARGEST)
        if encoding := wide_encoding(content):
            raise RecipeError(refused(where, encoding))
        return content.decode("utf-8-sig"), path.stem, where
    except UnicodeDecodeError as error:
        raise RecipeError(f"{where} is not UTF-8 text: {error}") from None
    except (OSError, ValueError) as error:  # a ValueError: a NUL in the file name
        reason = error.strerror if isinstance(error, OSError) else "a file name holds no NUL character"
        near = ""
        if isinstance(error, FileNotFoundError):
            near = did_you_mean(path.name, sorted(file.name for file in path.parent.glob(f"*{RECIPE_SUFFIX}")))
        raise RecipeError(f"cannot read {where}: {reason}.{near} {WHERE_RECIPES}") from None


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set keys in a recipe's plain dictionary; each override is section.key=value.

    If a key is given twice, the last value counts, and a warning names both. Raises RecipeError for another form.
    """
    given: dict[str, str] = {}
    for override in overrides:
        key, separator, text = override.partition("=")
        section, dot, name = (key := key.strip()).partition(".")
        if (before := given.get(key, override)) != override:
            warn_once(f"--set {shown(before)} has no effect, because {shown(override)} comes after it")
        given[key] = override
        where = f"--set {shown(override)}"
        if not (separator and dot and section and name):
            raise RecipeError(f"{where}: expected section.key=value, for example --set train.updates=1000.")
        try:
            value = _parsed(f"value = {text.strip()}", where)["value"]
        except tomllib.TOMLDecodeError:
            value = text.strip()  # a bare word is a string
        table = values.setdefault(section, {})
        if not isinstance(table, dict):
            raise RecipeError(f"{where}: {section!r} is not a section; sections are {', '.join(SECTIONS)}")
        [(section, keys)] = with_present_names({section: {name: value}}, where).items()
        table.update(keys)
