"""Table 3 of "Attention Is All You Need", row by row: the paper's figures beside those of our recipes.

    table3.csv ──▶ ROWS ──▶ compare(hardware)
        ──▶ for each row: parameters (ours, the paper's), updates, tokens per update, estimated hours

The paper's perplexities and BLEU scores are on newstest2013, without averaging. The paper prints the parameters in
millions. It prints none for the rows A, D and E; ROWS has the number of base there. Its vocabulary has "about 37,000"
tokens; ours has 37,000, and the differences are those of some 4,000 tokens more.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any, NamedTuple

from ..device.hardware import Hardware
from ..recipe import Recipe, load_recipe
from .estimate import estimate


class PaperRow(NamedTuple):
    """A row of table3.csv: of the table, with the paper's figures."""

    block: str
    recipe: str
    what: str
    """The difference from base."""
    millions: int
    """Millions of parameters."""
    perplexity: float
    bleu: float


with resources.files(__package__).joinpath("table3.csv").open(encoding="utf-8") as _file:
    ROWS = tuple(
        PaperRow(block, recipe, what, int(millions), float(perplexity), float(bleu))
        for block, recipe, what, millions, perplexity, bleu in [*csv.reader(_file)][1:]
    )


def compare(
    hardware: Hardware, devices: int = 1, seconds: Callable[[Recipe], float] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the paper's and our figures of each row.

    `seconds` returns the measured seconds per update, for the estimated hours.
    """
    for row in ROWS:
        recipe = load_recipe(row.recipe)
        vocabulary = recipe.data.vocab_size
        ours = estimate(recipe, (vocabulary, vocabulary), hardware, devices)
        per_update = seconds(recipe) if seconds else None
        paper = row.millions * 1_000_000
        yield {
            "row": row.block,
            "recipe": row.recipe,
            "what": row.what,
            "parameters": ours["parameters"],
            "paper_parameters": paper,
            "difference": ours["parameters"] - paper,
            "vocabulary": vocabulary,
            "batch_tokens": ours["batch_tokens"],
            "updates": ours["updates"],
            "paper_perplexity": row.perplexity,
            "paper_bleu": row.bleu,
            "seconds_per_update": per_update,
            "hours": per_update * ours["updates"] / 3600 if per_update is not None else None,
        }
