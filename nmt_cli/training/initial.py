"""Start a training from the weights of another model (`train.init`).

    folder of a model or run ──▶ the same vocabulary? the same sizes? ──▶ a Transformer of the new recipe

Only the weights come from the other model. Adam's moments, the schedule and the reading of the text start from the
beginning.
"""

from __future__ import annotations

from pathlib import Path

from ..data.tokenizer import Vocabulary
from ..errors import ModelError
from ..model.contents import find_model, read_config
from ..model.folder import build, load_model, weights_of
from ..model.transformer import Transformer
from ..recipe import Recipe


def initial_model(folder: Path, recipe: Recipe, vocabulary: Vocabulary) -> Transformer:
    """Return a model of `recipe` with the weights of the model in a model or run folder.

    Raises ModelError when they do not fit.
    """
    key = f"train.init = {str(folder)!r}"
    try:
        model_folder = find_model(folder)
        tokenizers = read_config(model_folder).tokenizers
        if tokenizers != {name: tokenizer.sha256 for name, tokenizer in vocabulary.files.items()}:
            raise ModelError(
                "its vocabulary is not that of the shards. Make these with the same one: nmt preprocess … "
                f"--set data.tokenizer={str(model_folder)!r}"
            )
        return build(recipe, vocabulary.source_size, vocabulary.target_size, weights_of(load_model(model_folder).model))
    except ModelError as error:
        raise ModelError(f"{key}: {error}") from None
