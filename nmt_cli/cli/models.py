"""`nmt models`: the models that --model finds by their names, and published ones to fetch.

Lists go to stdout, everything else to stderr. Nothing but `available` and `get` asks a server.
"""

from __future__ import annotations

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
UrlOption = option(
    "Ask this server of Remote Settings.  [default: https://firefox.settings.services.mozilla.com/v1]", "URL"
)
group = typer.Typer(
    name="models",
    cls=Group,
    help="List models, and fetch ones that Mozilla publishes.\n\nWithout a command, it lists the models that --model "
    "finds by their names.",
    add_completion=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings=CONTEXT,
)


@group.callback()
def _table(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        listing(as_json=False)


def listing(as_json: Json = False) -> None:
    """List the models that --model finds by their names.

    They are in $NMT_MODELS, by default ~/.local/share/nmt/models.
    """
    found = models.models()
    if as_json:
        output.write_json(found)
    elif found:
        rows = [[one["name"], *_row(one), one["license"], one["origin"]] for one in found if "error" not in one]
        output.write(printable(_shown(rows, "licence", "origin")))
    else:
        console.say(f"no models in {models_folder()}: `nmt models available` lists what can be fetched")
    for one in found:
        if "error" in one:
            console.warn(one["error"])


@options_from(models.available, url=UrlOption)
def available(*, options: Given, as_json: Json = False) -> None:
    """List the models that Mozilla publishes for Firefox.

    Of each direction the best one comes first. All are under MPL-2.0.
    """
    found = models.available(**options)
    if as_json:
        output.write_json(found)
        return
    rows = [[one["name"], *_row(one), one["architecture"], one["version"]] for one in found]
    output.write(printable(_shown(rows, "architecture", "version")))


def _row(one: dict[str, Any]) -> list[str]:
    languages = f"{name_of(one['source_language'])} to {name_of(one['target_language'])}"
    return [languages, f"{one['bytes'] / 1e6:.1f}"]


def _shown(rows: list[list[str]], *more: str) -> str:
    columns = [Column("name", left=True), Column("languages", left=True), Column("MB")]
    return Table("", [*columns, *(Column(name, left=True) for name in more)], rows).plain()


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
        fetched = models.get_model(**options)
    except KeyboardInterrupt as interrupt:
        raise Stopped(
            signal_of(interrupt), "interrupted. The downloaded part is kept; the same command resumes there."
        ) from None
    if fetched.imported:
        say_imported(fetched.imported, fetched.path.name)
    else:
        console.say(f"nothing to do: {fetched.path} is this model")
        console.say_next("nmt", "translate", "--model", fetched.path.name, end=" < input")


for name, command in {"list": listing, "available": available, "get": get}.items():
    group.command(name, cls=Command, context_settings=CONTEXT)(command)
