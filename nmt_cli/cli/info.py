"""`nmt info`: describe a recipe, run, model folder or shards, without running anything."""

from __future__ import annotations

import json
import textwrap
from typing import Annotated, Any

from ..errors import UsageError, printable, shown_name
from ..interface import information
from ..interface.failure_report import failure_report
from ..recipe import recipe_folder, recipe_names
from . import arguments, output
from .arguments import Device, Overrides, argument, option
from .typed_options import Given, options_from


@options_from(
    information.info,
    what=Annotated[
        str,
        argument(
            "Name or path of a recipe, a run folder, a model folder, or a folder of shards.",
            "RECIPE|RUN|MODEL|SHARDS",
            autocompletion=arguments.recipes,
        ),
    ],
    devices=option("Number of devices to estimate for.", "N", min=1, max=1_000_000),
    device=Device,
    overrides=Overrides,
)
@options_from(
    information.info,
    into="reading",
    verify=option(
        "Also read all checkpoints of a run, and compare them with the recorded SHA-256.", names=("--verify",)
    ),
)
def info(
    *,
    options: Given,
    reading: Given,
    recipes: Annotated[
        bool, option("List the recipes that come with nmt instead: name, what it is.", names=("--recipes",))
    ] = False,
    report: Annotated[
        bool,
        option(
            "Print what a report of a failure needs instead: versions, processor, engine, the model's sizes. No "
            "paths, no names, no text.",
            names=("--report",),
        ),
    ] = False,
    as_json: Annotated[bool, option("Print a JSON object.", names=("--json",))] = False,
) -> None:
    """Describe a recipe, run, model folder or shards.

    It shows sizes, updates and memory on this machine, and checks the recipe, or the folder's files, without running
    anything.
    """
    what, changed = options["what"], options.get("overrides") or any(reading.values())
    if report:
        if changed:
            raise UsageError("--report prints facts about this machine: give no --verify or --set.")
        facts = failure_report(what)
        output.write(_json(facts) if as_json else printable("\n".join(f"{name:<10}  {facts[name]}" for name in facts)))
    elif recipes:
        if what != "demo" or changed:
            raise UsageError("--recipes lists the names of recipes: give nothing else but --json with it.")
        texts = {name: (recipe_folder() / f"{name}.toml").read_text(encoding="utf-8") for name in recipe_names()}
        heads = {name: text.partition("\n")[0].removeprefix("# ") for name, text in texts.items()}
        output.write(_json(heads) if as_json else "\n".join(f"{name:<24}  {head}" for name, head in heads.items()))
    else:
        values = information.info(**options, **reading)
        shown = _json if as_json else _of_shards if values["kind"] == "shards" else _described
        output.write(shown(values))


def _json(values: dict[str, Any]) -> str:
    return printable(json.dumps(values, indent=2, ensure_ascii=False))


def _of_shards(values: dict[str, Any]) -> str:
    sizes = _sizes(values["source_size"], values["target_size"], values["joint"])
    splits = ", ".join(
        f"{name} {split['pairs']:,} pairs ({split['source_tokens']:,} and {split['target_tokens']:,} tokens)"
        for name, split in values["splits"].items()
    )
    return (
        f"shards {shown_name(values['folder'])}\n  recipe      {shown_name(values['recipe'])}\n  "
        f"vocabulary  {sizes}\n  splits      {splits}\n"
        f"  files       {WHOLE} (written by nmt {shown_name(values['package_version'])})"
    )


def _sizes(source: int, target: int, is_joint: bool, most: str = "") -> str:
    return f"{source:,} joint" if is_joint else f"{source:,} source, {most}{target:,} target"


WHOLE = "whole and unchanged"
WIDTH = 100
"""Width of a list of languages, in characters."""


def _described(values: dict[str, Any]) -> str:
    parts = values["parameters_by_part"]
    model, data, gigabyte = values["recipe"]["model"], values["recipe"]["data"], 2**30
    # the final size of a vocabulary of words depends on the text
    most = "at most " if values["kind"] == "recipe" and data["target_tokenization"] == "words" else ""
    lines = [
        f"{values['kind']} {shown_name(values['name'])}",
        f"  model       {model['encoder_layers']} + {model['decoder_layers']} layers, d_model {model['d_model']}, d_ff "
        f"{model['d_ff']}, {model['num_heads']} heads, {model['residual']}-norm, {model['positions']} positions"
        + ", SSRU decoder" * (model["decoder"] == "ssru")
        + f", dropout {model['dropout']}" * ("updates" in values),
        f"  parameters  {values['parameters']:,} "
        f"({', '.join(f'{name} {count:,}' for name, count in parts.items() if count)})",
        f"  vocabulary  {_sizes(values['source_vocab'], values['target_vocab'], data['joint_vocab'], most)}",
        *_languages(values),
    ]
    if "updates" in values:
        lines += [
            f"  updates     {values['updates']:,} of {values['batch_tokens']:,} tokens per side, "
            f"{values['buckets_per_update']} × {values['bucket_tokens']:,} of like length",
            f"  here        {values['devices']} × {values['device']} in {values['precision']}: micro-batches of up to "
            f"{values['micro_batch_tokens']:,} tokens, about {values['micro_batches_per_update']} per update",
            f"  memory      about {values['memory_bytes'] / gigabyte:.1f} GiB to train, "
            f"{values['memory_free_bytes'] / gigabyte:.1f} GiB free on a device",
        ]
    lines += [
        f"  {'kernels' if number == 0 else '':<10}  {summary}"
        for number, summary in enumerate(values["kernels"].values())
    ]
    if values["kind"] != "recipe":
        read = f"; {len(values['verified'])} folders read" if "verified" in values else ""
        written = f"{shown_name(values['model'])}, written by nmt {shown_name(values['package_version'])}"
        lines.append(f"  files       {WHOLE} ({written}{read})")
    if values.get("weights", "fp32") != "fp32":
        only = ": for translation only" * ("quantized" in values["scores"])
        lines.append(f"  weights     {values['weights']}{only}")
    if "updates_done" in values:
        lines.append(
            f"  done        {values['updates_done']:,} updates; checkpoints {', '.join(values['checkpoints'])}"
        )
    scores = {key: value for key, value in values.get("scores", {}).items() if key in KNOWN and value not in (None, "")}
    lines += [f"  {key:<10}  {_shown(value)}" for key, value in scores.items()]
    return "\n".join(lines)


KNOWN = (
    *("imported", "origin", "toolkit", "license", "published", "update"),
    *("nll", "ppl", "chrf", "bleu", "bleu_signature", "averaged"),
)
"""Keys of metrics.json that are printed."""


def _languages(values: dict[str, Any]) -> list[str]:
    """Return the lines with the target languages of a model of several."""
    languages = values.get("target_languages", [])
    text = textwrap.wrap(", ".join(map(shown_name, languages)), WIDTH, break_on_hyphens=False)
    return [f"  {'' if number else f'into {len(languages)}':<10}  {line}" for number, line in enumerate(text)]


def _shown(score: Any) -> str:
    """Return an entry of metrics.json as text."""
    if isinstance(score, float):
        return f"{score:.4g}"
    return shown_name(", ".join(score) if isinstance(score, list) else str(score))
