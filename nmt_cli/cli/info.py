"""`nmt info`: what a recipe, run or model folder is, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..recipe import Recipe


def info(
    what: Annotated[str, typer.Argument(metavar="RECIPE|RUN|MODEL", help="A recipe's name or path, a run folder or a model folder.")] = "demo",
    devices: Annotated[int, typer.Option(metavar="N", min=1, help="Devices to reckon with.")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key of the recipe; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object on stdout.")] = False,
) -> None:
    """Parameters, vocabulary, updates, tokens an update on this hardware and memory; checks a recipe without running it."""
    from ..errors import UsageError

    folder = Path(what)
    if folder.is_dir():
        if overrides:
            raise UsageError("--set changes a recipe; a run or model folder is what it is.")
        recipe, vocabularies, facts = _of_folder(folder)
    else:
        from ..recipe import load_recipe

        recipe = load_recipe(what, overrides or [])
        vocabularies, facts = (recipe.data.vocab_size, recipe.data.vocab_size), {"kind": "recipe"}

    from ..hardware import Hardware
    from ..training.estimate import estimate

    numbers = estimate(recipe, vocabularies, Hardware.find(device, recipe.train.precision), devices)
    values = {"name": recipe.name, **facts, **numbers, "recipe": recipe.to_dict()}
    if as_json:
        import json

        print(json.dumps(values, indent=2, ensure_ascii=False))
    else:
        print(_described(values, recipe))


def _of_folder(folder: Path) -> tuple[Recipe, tuple[int, int], dict[str, Any]]:
    """Recipe, vocabulary sizes and what is known of a run or model folder."""
    import json

    from ..model.contents import METRICS, check_files, find_model, read_config
    from ..recipe import Recipe
    from ..training.run import RunFolder

    model = find_model(folder)
    config = read_config(model)
    check_files(model, config)
    run = RunFolder(folder)
    checkpoints = run.checkpoints()
    facts: dict[str, Any] = {"kind": "run" if model != folder else "model", "model": str(model), "package_version": config["package_version"]}
    if checkpoints:
        facts |= {"updates_done": checkpoints[-1].update, "checkpoints": [c.folder.name for c in checkpoints]}
    metrics = model / METRICS
    facts["scores"] = json.loads(metrics.read_text(encoding="utf-8")) if metrics.is_file() else {}
    recipe = Recipe.from_dict(config["recipe"], str(model))
    return recipe, (config["source_vocab"], config["target_vocab"]), facts


def _described(values: dict[str, Any], recipe: Recipe) -> str:
    parts = values["parameters_by_part"]
    model, gigabyte = recipe.model, 2**30
    vocabulary = f"{values['source_vocab']:,} joint" if recipe.data.joint_vocab else f"{values['source_vocab']:,} source, {values['target_vocab']:,} target"
    lines = [
        f"{values['kind']} {values['name']}",
        f"  model       {model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, d_ff {model.d_ff}, {model.num_heads} heads, {model.norm}-norm, {model.positions} positions, dropout {model.dropout}",
        f"  parameters  {values['parameters']:,} ({', '.join(f'{name} {count:,}' for name, count in parts.items() if count)})",
        f"  vocabulary  {vocabulary}",
        f"  updates     {values['updates']:,} of {values['batch_tokens']:,} tokens a side, {values['cells_an_update']} × {values['cell_tokens']:,} of like length",
        f"  here        {values['devices']} × {values['device']} in {values['precision']}: about {values['micro_batches_an_update']} micro-batches an update, up to {values['micro_batch_tokens']:,} tokens each",
        f"  memory      about {values['memory_bytes'] / gigabyte:.1f} GiB to train, {values['memory_free_bytes'] / gigabyte:.1f} GiB free on a device",
    ]
    if values["kind"] != "recipe":
        lines.append(f"  files       whole and unchanged ({values['model']}, written by nmt {values['package_version']})")
    if "updates_done" in values:
        lines.append(f"  done        {values['updates_done']:,} updates; checkpoints {', '.join(values['checkpoints'])}")
    scores = {key: value for key, value in values.get("scores", {}).items() if key in ("update", "nll", "ppl", "bleu", "bleu_signature", "averaged") and value is not None}
    lines += [f"  {key:<10}  {value if not isinstance(value, float) else f'{value:.4g}'}" for key, value in scores.items()]
    return "\n".join(lines)
