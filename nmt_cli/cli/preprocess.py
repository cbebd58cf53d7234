"""`nmt preprocess`: learn the vocabulary from text and write the shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from .. import console
from ..interface import commands
from . import output
from .arguments import Overrides, RecipeName, option, output_path
from .typed_options import Given, options_from

if TYPE_CHECKING:
    from ..data.prepare import Summary


@options_from(
    commands.preprocess,
    recipe=RecipeName,
    data_dirs=option(
        "Folder with the text files of the recipe; repeatable: each file is taken from the first folder that has it.",
        "DIR",
        names=("--data-dir",),
    ),
    out=option("Folder for the shards.  [default: data/RECIPE]", "DIR", parser=output_path),
    overrides=Overrides,
    force=option(
        "Replace existing shards, if they are unchanged and the folder holds nothing else.", names=("--force",)
    ),
    workers=option("Number of encoding processes.  [default: one per core]", "N", min=1, max=1024),
)
def preprocess(
    *,
    options: Given,
    as_json: Annotated[bool, option("Print the summary as JSON on stdout.", names=("--json",))] = False,
) -> None:
    """Learn the subword vocabulary; write the shards for training.

    The text is plain, .gz, .xz, .bz2 or .zst: one sentence per line, both sides parallel. A second run with the same
    text and recipe does nothing.
    """
    summary = commands.preprocess(**options)
    console.say(_described(summary))
    more = ["--data", options["out"]] if "out" in options else []
    more += [word for override in options.get("overrides", []) for word in ("--set", override)]
    console.say_next("nmt", "train", options["recipe"], *more)
    if as_json:
        output.write_json(summary.to_dict())


def _described(summary: Summary) -> str:

    index, train = summary.index, summary.index.splits["train"]
    sizes = (
        f"{index.source_size:,} pieces, joint"
        if index.joint
        else f"{index.source_size:,} pieces, joint, with a tokenizer for each language"
        if index.data.get("separate_tokenizers")
        else f"{index.source_size:,} source and {index.target_size:,} target pieces"
    )
    most = index.data["vocab_size"], index.data.get("target_vocab_size") or index.data["vocab_size"]
    if not index.data["tokenizer"] and (index.source_size < most[0] or index.target_size < most[1]):
        sizes += f" ({' and '.join(f'{size:,}' for size in dict.fromkeys(most))} were allowed: the text has no more)"
    if not summary.fresh:
        return (
            f"nothing to do: {summary.folder} already holds these shards ({train.pairs:,} training pairs, "
            f"{sizes}); --force writes them again"
        )
    reasons = {
        "empty": "empty",
        "too_long": f"longer than {index.data['max_length']} tokens",
        "ratio": f"of lengths more than {index.data['max_ratio']:g} to 1",
    }
    lines = [f"{summary.folder}: written in {summary.seconds:.1f} s", f"  vocabulary  {sizes}"]
    for name, split in (("training", train), ("validation", index.splits["valid"])):
        dropped = (
            ", ".join(f"{count:,} {reasons[reason]}" for reason, count in split.dropped.items() if count) or "none"
        )
        tokens = (
            f"{split.source_tokens / max(split.pairs, 1):.1f} and "
            f"{split.target_tokens / max(split.pairs, 1):.1f} tokens per line"
        )
        lines.append(
            f"  {name:<10}  "
            + (f"{split.pairs:,} of {split.read:,} pairs; dropped: {dropped}; {tokens}" if split.read else "none")
        )
    for side, changed in summary.changed.items():
        if changed.lines:
            lines.append(
                f"  normalised  {changed.described(side)} (data.normalization = {index.data['normalization']!r})"
            )
    return "\n".join(lines)
