"""The typed, strict recipe: one experiment, without settings of the machine.

    TOML text ──▶ load_recipe ──▶ Recipe(data, model, train, decode) ──▶ every command
                  keys of the recipe that it `extends` are added, --set section.key=value is applied, then all is
                  checked

A recipe is data. The whole recipe is checked before any work starts: unknown keys, wrong types and contradictions are
reported together, each with the nearest correct name. Every number has bounds, far beyond any model that was ever
trained, and so has the number of parameters (`MOST_PARAMETERS`). So a value that must be a mistake is refused before
memory is allocated. The recipe is stored in shards, runs and model folders (`Recipe.to_dict`), and every later command
reads it from there (`Recipe.from_dict`). The model's width and the vocabulary's size are keys of the recipe. Values
that depend on the machine (devices, micro-batches, precision) are derived elsewhere.

Sources of the defaults: "Attention Is All You Need", sections 3 and 5, table 3 (base).
"""

from .files import (
    RECIPE_SUFFIX,
    apply_overrides,
    folder_beside,
    load_recipe,
    recipe_folder,
    recipe_names,
    toml_comment,
    toml_value,
)
from .recipe import RETIRED, SECTIONS, Recipe, with_present_names
from .sections import (
    BYTES_PER_PARAMETER,
    RULES,
    TRAINING_PRECISIONS,
    DataSection,
    DecodeOptions,
    DecodeSection,
    ModelSection,
    TrainSection,
    no_language,
)

__all__ = [
    "BYTES_PER_PARAMETER",
    "RECIPE_SUFFIX",
    "RETIRED",
    "RULES",
    "SECTIONS",
    "TRAINING_PRECISIONS",
    "DataSection",
    "DecodeOptions",
    "DecodeSection",
    "ModelSection",
    "Recipe",
    "TrainSection",
    "apply_overrides",
    "folder_beside",
    "load_recipe",
    "no_language",
    "recipe_folder",
    "recipe_names",
    "toml_comment",
    "toml_value",
    "with_present_names",
]
