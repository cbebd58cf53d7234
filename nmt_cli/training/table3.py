"""Table 3 of "Attention Is All You Need", row by row: the paper's figures beside those of our recipes.

    ROWS ──▶ compare(hardware)
        ──▶ for each row: parameters (ours, the paper's), updates, tokens per update, estimated hours

The paper's perplexities and BLEU scores are on newstest2013, without averaging. The paper prints the parameters in
millions. It prints none for the rows A, D and E; ROWS has the number of base there. Its vocabulary has "about 37,000"
tokens. For each row we compute which vocabulary sizes would give the paper's figure. The result is a range, because the
figure is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..hardware import Hardware
from ..recipe import Recipe, load_recipe
from .estimate import estimate


@dataclass(frozen=True)
class Row:
    """A row of the table, with the paper's figures."""

    block: str
    recipe: str
    what: str
    """The difference from base."""
    millions: int
    """Millions of parameters."""
    perplexity: float
    bleu: float


ROWS = (
    Row("base", "wmt14_en_de_base", "6 + 6 layers, d_model 512, d_ff 2048, 8 heads", 65, 4.92, 25.8),
    Row("A", "table3_a_heads_1", "one head of 512", 65, 5.29, 24.9),
    Row("A", "table3_a_heads_4", "4 heads of 128", 65, 5.00, 25.5),
    Row("A", "table3_a_heads_16", "16 heads of 32", 65, 4.91, 25.8),
    Row("A", "table3_a_heads_32", "32 heads of 16", 65, 5.01, 25.4),
    Row("B", "table3_b_dk_16", "keys of 16", 58, 5.16, 25.1),
    Row("B", "table3_b_dk_32", "keys of 32", 60, 5.01, 25.4),
    Row("C", "table3_c_layers_2", "2 + 2 layers", 36, 6.11, 23.7),
    Row("C", "table3_c_layers_4", "4 + 4 layers", 50, 5.19, 25.3),
    Row("C", "table3_c_layers_8", "8 + 8 layers", 80, 4.88, 25.5),
    Row("C", "table3_c_dmodel_256", "d_model 256, keys and values of 32", 28, 5.75, 24.5),
    Row("C", "table3_c_dmodel_1024", "d_model 1024, keys and values of 128", 168, 4.66, 26.0),
    Row("C", "table3_c_dff_1024", "d_ff 1024", 53, 5.12, 25.4),
    Row("C", "table3_c_dff_4096", "d_ff 4096", 90, 4.75, 26.2),
    Row("D", "table3_d_dropout_00", "no dropout", 65, 5.77, 24.6),
    Row("D", "table3_d_dropout_02", "dropout 0.2", 65, 4.95, 25.5),
    Row("D", "table3_d_smoothing_00", "no label smoothing", 65, 4.67, 25.3),
    Row("D", "table3_d_smoothing_02", "label smoothing 0.2", 65, 5.47, 25.7),
    Row("E", "table3_e_learned", "learned positions", 65, 4.92, 25.7),
    Row("big", "wmt14_en_de_big", "d_model 1024, d_ff 4096, 16 heads, dropout 0.3, 300k updates", 213, 4.33, 26.4),
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
        yield {
            "row": row.block,
            "recipe": row.recipe,
            "what": row.what,
            "parameters": ours["parameters"],
            "paper_parameters": row.millions * 1_000_000,
            "difference": ours["parameters"] - row.millions * 1_000_000,
            "vocabulary": vocabulary,
            "vocabulary_of_paper": vocabulary_range(row, recipe, ours["parameters"]),
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


def vocabulary_range(row: Row, recipe: Recipe, parameters: int) -> tuple[int, int]:
    """Return the smallest and the largest vocabulary size with which our model has the paper's number of parameters,
    rounded to millions.
    """
    width = recipe.model.d_model * (1 if recipe.model.tie_embeddings else 3)
    non_embedding = parameters - recipe.data.vocab_size * width
    smallest, largest = ((row.millions * 1_000_000 + half - non_embedding) / width for half in (-500_000, 500_000))
    return round(smallest), round(largest)
