"""`nmt models`: the models that --model finds by their names, and published ones to fetch.

Lists go to stdout, everything else to stderr. Nothing but `available` and `get` asks a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from .. import console
from ..errors import Stopped, printable
from ..interface import models
from ..model.folder_files import models_folder
from ..text.languages import name_of
from . import output
from .arguments import argument, option
from .command import CONTEXT, Command, Group
from .process import signal_of
from .table import Column, Table
from .typed_options import Given, options_from

Json = Annotated[bool, option("Print the list as JSON.", names=("--json",))]
UrlOption = option("Ask this server of Remote Settings.  [default: firefox.settings.services.mozilla.com]", "URL")
group = typer.Typer(
    name="models",
    cls=Group,
    help="List models, and fetch ones that Mozilla publishes.\n\nWithout a command, it lists those in $NMT_MODELS, by "
    "default ~/.local/share/nmt/models, where --model finds them by their names.",
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings=CONTEXT,
)


@group.callback()
def listing(context: typer.Context, as_json: Json = False) -> None:
    """Print the list, unless there is a command."""
    if context.invoked_subcommand:
        return
    if (found := models.models()) or as_json:
        _write(found, as_json, "license", "origin")
    else:
        console.say(f"no models in {models_folder()}: `nmt models available` lists what can be fetched")


@options_from(models.available, url=UrlOption)
def available(*, options: Given, as_json: Json = False) -> None:
    """List the models that Mozilla publishes for Firefox.

    Of each direction the best one comes first. All are under MPL-2.0.
    """
    _write(models.available(**options), as_json, "architecture", "version")


def _write(found: Sequence[dict[str, Any]], as_json: bool, *more: str) -> None:
    """Print descriptions of models, as a table with the keys `more`."""
    if as_json:
        output.write_json(found)
        return
    columns = [Column(key, left=key != "MB") for key in ("name", "source", "target", "MB", *more)]
    rows = [
        [
            one["name"],
            *(name_of(one[f"{side}_language"]) for side in ("source", "target")),
            f"{one['bytes'] / 1e6:.1f}",
            *(one[key] for key in more),
        ]
        for one in found
    ]
    output.write(printable(Table("", columns, rows).plain()))


@options_from(
    models.get_model,
    name=Annotated[str, argument("The languages of a published model, such as en-de.", "LANGUAGES")],
    architecture=option("tiny, base-memory or base.  [default: the best one]", "NAME"),
    url=UrlOption,
)
def get(options: Given) -> None:
    """Download a model that Mozilla publishes for Firefox, and import it.

    It goes to $NMT_MODELS/LANGUAGES, by default ~/.local/share/nmt/models, where --model LANGUAGES finds it.
    """
    from .import_model import say_imported

    try:
        if done := models.get_model(**options):
            say_imported(done, [done.path.name])
    except KeyboardInterrupt as interrupt:
        raise Stopped(
            signal_of(interrupt), "interrupted. The downloaded part is kept; the same command resumes there."
        ) from None


for command in (available, get):
    group.command(command.__name__, cls=Command, context_settings=CONTEXT)(command)
