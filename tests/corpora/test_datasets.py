"""The data sets of the registry: they fit together, with the recipes and with sacrebleu's table."""

import re
from typing import Any

import pytest

from nmt_cli import registry
from nmt_cli.corpora.dataset import Dataset, Joined, outputs
from nmt_cli.corpora.wmt14 import TEST_FILTERED, TEST_FULL
from nmt_cli.recipe import load_recipe

DATASETS: dict[str, Dataset] = {name: registry.load(registry.DATASETS, name, "data set") for name in registry.DATASETS}


@pytest.mark.parametrize(
    ("name", "recipe"),
    [*((name, dataset.recipe) for name, dataset in DATASETS.items()), ("multi30k", "multi30k_en_de_tok")],
)
def test_every_file_that_the_recipe_names_is_written(name: str, recipe: str) -> None:
    dataset = DATASETS[name]
    files = [file for text in dataset.texts for file in outputs(text, dataset.languages)]
    data = load_recipe(recipe).data
    assert {*data.train_source, *data.train_target, *data.valid_source, *data.valid_target} <= set(files)
    assert (data.source_language, data.target_language) == dataset.languages
    assert len(files) == len(set(files))


def test_addresses_names_and_lengths_are_well_formed() -> None:
    for dataset in DATASETS.values():
        sources = [source for archive in dataset.archives for source in archive.sources]
        for source in sources:
            assert re.fullmatch(r"https://[\w.]+/[\w./-]+\.(tgz|tar|zip|gz|en|de)", source.url), source.url
            assert re.fullmatch(r"|sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", source.digest or ""), source.digest
        assert len({source.name for source in sources}) == len(sources)  # they lie in one folder
        for text in dataset.texts:
            if isinstance(text, Joined):
                assert text.training == (text.lines is None)
                for part in text.parts:
                    for (archive, member), language in zip((part.source, part.target), dataset.languages, strict=True):
                        assert re.findall(r"\.(en|de|fr)\b", member or archive.name)[-1] == language


def test_the_test_sets_checksums_are_sacrebleus() -> None:
    import sacrebleu.dataset

    theirs: dict[str, Any] = sacrebleu.dataset.DATASETS
    for archive, name in ((TEST_FULL, "wmt14/full"), (TEST_FILTERED, "wmt14")):
        assert archive.sources[0].digest == f"md5:{theirs[name].md5[0]}"
        assert archive.name == theirs[name].data[0].rsplit("/", 1)[-1]
    members = {
        part.source[1]
        for dataset in DATASETS.values()
        for text in dataset.texts
        if isinstance(text, Joined)
        for part in text.parts
        if part.source[0] == TEST_FULL
    }
    assert members == {theirs["wmt14/full"].langpairs[pair][0] for pair in ("en-de", "en-fr")}
