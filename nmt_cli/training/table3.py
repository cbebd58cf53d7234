"""Table 3 of "Attention Is All You Need", row by row: the paper's figures beside those of our recipes.

    table3.csv ──▶ ROWS ──▶ compare(hardware)
        ──▶ for each row: parameters (ours, the paper's), updates, tokens per update, estimated hours

The paper's perplexities and BLEU scores are on newstest2013, without averaging. The paper prints the parameters in
millions. It prints none for the rows A, D and E; ROWS has the number of base there. Its vocabulary has "about 37,000"
tokens. For each row we compute which vocabulary sizes would give the paper's figure. The result is a range, because the
figure is rounded.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        width = recipe.model.d_model * (1 if recipe.model.tie_embeddings else 3)
        paper, non_embedding = row.millions * 1_000_000, ours["parameters"] - vocabulary * width
        yield {
            "row": row.block,
            "recipe": row.recipe,
            "what": row.what,
            "parameters": ours["parameters"],
            "paper_parameters": paper,
            "difference": ours["parameters"] - paper,
            "vocabulary": vocabulary,
            "vocabulary_of_paper": tuple(round((paper + half - non_embedding) / width) for half in (-500_000, 500_000)),
            "batch_tokens": ours["batch_tokens"],
            "updates": ours["updates"],
            "paper_perplexity": row.perplexity,
            "paper_bleu": row.bleu,
            "seconds_per_update": per_update,
            "hours": per_update * ours["updates"] / 3600 if per_update is not None else None,
        }


def common_vocabulary(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Return the smallest and the largest vocabulary size that fits all of `rows`; None if no size does."""
    smallest = max(row["vocabulary_of_paper"][0] for row in rows)
    largest = min(row["vocabulary_of_paper"][1] for row in rows)
    return (smallest, largest) if smallest <= largest else None
