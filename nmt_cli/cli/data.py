"""`nmt data`: corpora from their official addresses to the files that `nmt preprocess` reads, with one subcommand per data
set of `registry.DATASETS`; and trees to pairs (`trees`).

The table of data sets goes to stdout, everything else to stderr.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..registry import DATASETS, load
from . import output
from .arguments import output_path
from .trees import trees

if TYPE_CHECKING:
    from ..corpora.build import Summary
    from ..corpora.dataset import Dataset

HELP = {"help_option_names": ["-h", "--help"]}


class _Group(TyperGroup):
    """The commands of `nmt data`: those written here, and one per name in the registry at the time of the call."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *DATASETS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in DATASETS:
            return super().get_command(ctx, cmd_name)
        single = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        single.command(cmd_name, help=_help(cmd_name), context_settings=HELP)(fetch)
        return typer.main.get_command(single)


group = typer.Typer(
    name="data",
    cls=_Group,
    help="Fetch a corpus and lay it out for `nmt preprocess`, or turn treebanks into pairs. Without a name: the data sets there are.",
    invoke_without_command=True,
    context_settings=HELP,
)


@group.callback()
def _table(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        listing(as_json=False)


def listing(as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON, with every address.")] = False) -> None:
    """The data sets, their sizes, licences and addresses."""
    if as_json:
        _print_json({name: _described(_dataset(name)) for name in DATASETS})
        return
    width = max(map(len, DATASETS))
    datasets = {name: _dataset(name) for name in DATASETS}
    output.write("\n".join(f"{name:<{width}}  {dataset.size:>6}  {dataset.title}\n{'':<{width}}          licence: {dataset.licence}" for name, dataset in datasets.items()))


def _dataset(name: str) -> Dataset:
    dataset: Dataset = load(DATASETS, name, "data set")
    return dataset


def _described(dataset: Dataset) -> dict[str, Any]:
    from ..corpora.dataset import outputs

    return {
        "title": dataset.title,
        "languages": dataset.languages,
        "size": dataset.size,
        "licence": dataset.licence,
        "files": [file for text in dataset.texts for file in outputs(text, dataset.languages)],
        "archives": [[{"url": source.url, "digest": source.digest, "bytes": source.size} for source in archive.sources] for archive in dataset.archives],
        "recipe": dataset.recipe,
    }


def fetch(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option("--out", parser=output_path, metavar="DIR", help="Where the text goes.  [default: text/NAME]", show_default=False)] = None,
    downloads: Annotated[Path | None, typer.Option("--downloads", parser=output_path, metavar="DIR", help="Where the archives are kept; one that lies there is not fetched.  [default: OUT/downloads]", show_default=False)] = None,
    mirror: Annotated[list[str] | None, typer.Option("--mirror", metavar="URL", help="Try URL/ARCHIVE before the official address. Repeatable, tried in turn.", show_default=False)] = None,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Keep the archives once the text is there.")] = True,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Refuse an archive whose checksum is not the known one.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON on stdout.")] = False,
) -> None:
    """The subcommand of every data set, which is the name that it was called by."""
    _build(str(context.info_name), out, downloads, mirror or [], keep, verify, as_json)


def _help(name: str) -> str:
    dataset = _dataset(name)
    return (
        f"{dataset.title}.\n\nFetches {dataset.size}, checks it, and writes the files that the recipe {dataset.recipe} names. Licence: {dataset.licence}.\n\n"
        "Run again, it goes on where it stopped, and does nothing once all is there."
    )


def _build(name: str, out: Path | None, downloads: Path | None, mirrors: list[str], keep: bool, verify: bool, as_json: bool) -> None:
    import shlex

    from .. import console
    from ..corpora.build import build_dataset
    from ..errors import Stopped, UsageError
    from .edge import signal_of

    for mirror in mirrors:
        if not mirror.startswith(("http://", "https://")):
            raise UsageError(f"--mirror {mirror!r}: expected an address that begins with https:// or http://. Archives that you have go into --downloads DIR.")
    dataset, folder = _dataset(name), out or Path("text") / name
    console.say(f"{name}: {dataset.title}; licence: {dataset.licence}")
    try:
        summary = build_dataset(name, dataset, folder, downloads or folder / "downloads", mirrors, verify, keep)
    except KeyboardInterrupt as interrupt:
        raise Stopped(signal_of(interrupt), "interrupted. What was downloaded is kept; run the same command again to resume.") from None
    console.say(_said(summary))
    console.say("next: " + shlex.join(["nmt", "preprocess", dataset.recipe, "--data-dir", str(folder)]))
    if as_json:
        _print_json(summary.to_dict())


def _said(summary: Summary) -> str:
    """What was done, for people."""
    if not summary.fresh:
        return f"nothing to do: {summary.folder} already holds it all"
    files = [file for text in summary.manifest.texts for file in text.files]
    width = max(len(file.file) for file in files)
    return "\n".join([f"{summary.folder}: written in {summary.seconds:.1f} s", *(f"  {file.file:<{width}}  {file.lines:>12,} lines" for file in files)])


def _print_json(value: Any) -> None:
    import json

    output.write(json.dumps(value, indent=2, ensure_ascii=False))


group.command("list", context_settings=HELP)(listing)
group.command("trees", context_settings=HELP)(trees)
