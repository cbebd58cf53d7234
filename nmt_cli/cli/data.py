"""`nmt data`: download corpora and write the files that `nmt preprocess` reads, one subcommand per data set of
`registry.DATASETS`. It also turns trees into pairs (`trees`).

The list of data sets goes to stdout, everything else to stderr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import console
from ..errors import Stopped
from ..interface import fetching
from ..interface.fetching import dataset_named, datasets
from ..registry import DATASETS
from . import output
from .arguments import option, output_path
from .command import CONTEXT, Command, Group, command_of
from .process import signal_of
from .trees import trees
from .typed_options import Given, options_from

if TYPE_CHECKING:
    from ..corpora.build import Built


class _Group(Group):
    """The commands of `nmt data`: those in this file, and one per name in the registry at the time of the call."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *DATASETS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in DATASETS:
            return super().get_command(ctx, cmd_name)
        dataset = dataset_named(cmd_name)
        about = f"{dataset.title}.\n\n{dataset.size}, for the recipe {dataset.recipe}; `nmt data` shows the licence."
        return command_of(cmd_name, fetch, help=about)


group = typer.Typer(
    name="data",
    cls=_Group,
    help="Download a corpus, or turn treebanks into pairs.\n\nWithout a name, it lists the data sets.",
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings=CONTEXT,
)


@group.callback()
def _table(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        listing(as_json=False)


def listing(
    as_json: Annotated[bool, option("Print the list as JSON, with every address.", names=("--json",))] = False,
) -> None:
    """List the data sets with their sizes, licences and addresses."""
    if as_json:
        output.write_json(datasets())
        return
    width = max(map(len, DATASETS))
    by_name = {name: dataset_named(name) for name in DATASETS}
    output.write(
        "\n".join(
            f"{name:<{width}}  {dataset.size:>6}  {dataset.title}\n{'':<{width}}          licence: {dataset.licence}"
            for name, dataset in by_name.items()
        )
    )


@options_from(
    fetching.fetch,
    out=option("Folder for the text.  [default: text/NAME]", "DIR", parser=output_path),
    downloads=option(
        "Folder for the archives. An archive that is already there is not downloaded.  [default: OUT/downloads]",
        "DIR",
        parser=output_path,
    ),
    mirror=option("Try URL/ARCHIVE before the official address. Repeatable, tried in order.", "URL"),
    keep=option("Keep the archives after the text is written.", names=("--keep/--no-keep",)),
    verify=option("Refuse an archive with a wrong checksum.", names=("--verify/--no-verify",)),
)
def fetch(
    *,
    context: typer.Context,
    options: Given,
    as_json: Annotated[bool, option("Print a summary as JSON on stdout.", names=("--json",))] = False,
) -> None:
    """Download the data set that the subcommand is named after."""
    name = str(context.info_name)
    dataset = dataset_named(name)
    console.say(f"{name}: {dataset.title}; licence: {dataset.licence}")
    try:
        summary = fetching.fetch(name, **options)
    except KeyboardInterrupt as interrupt:
        raise Stopped(
            signal_of(interrupt), "interrupted. The downloaded part is kept; the same command resumes there."
        ) from None
    console.say(_summary(summary))
    console.say_next("nmt", "preprocess", dataset.recipe, "--data-dir", summary.folder)
    if as_json:
        output.write_json(summary.to_dict())


def _summary(summary: Built) -> str:

    if not summary.fresh:
        return f"nothing to do: {summary.folder} is complete"
    files = [file for text in summary.manifest.texts for file in text.files]
    width = max(len(file.file) for file in files)
    return "\n".join(
        [
            f"{summary.folder}: written in {summary.seconds:.1f} s",
            *(f"  {file.file:<{width}}  {file.lines:>12,} lines" for file in files),
        ]
    )


group.command("list", cls=Command, context_settings=CONTEXT)(listing)
group.command("trees", cls=Command, context_settings=CONTEXT)(trees)
