"""`nmt init`: write a recipe for the user's own text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..console import say, say_next, spoken, spoken_range, warn_replaced
from ..interface.init import init as initialize
from .arguments import argument, option
from .typed_options import Given, options_from

if TYPE_CHECKING:
    from ..corpora.survey import Survey, SurveyedSide
    from ..interface.planning import Initialized


@options_from(
    initialize,
    name=argument("Name of the recipe: NAME.toml is written, and NAME-text, a folder for the sets.", "NAME"),
    source=option("Text to translate from (plain, .gz, .xz, .bz2 or .zst), one sentence per line; repeatable.", "FILE"),
    target=option("Its translation, parallel line by line; as many files as --source.", "FILE"),
    valid_source=option("Validation set. Without one, pairs of the text are held out.", "FILE"),
    valid_target=typer.Option(metavar="FILE"),
    test_source=option("Test set, likewise.", "FILE"),
    test_target=typer.Option(metavar="FILE"),
    source_language=option("Such as en.  [default: the ending of the file]", "CODE"),
    target_language=option("Such as de.  [default: the ending of the file]", "CODE"),
    from_model=option(
        "Model or run folder: the recipe adapts this model to the text, with its sizes and vocabulary.",
        "MODEL",
        names=("--from",),
    ),
    threads=option("CPU threads of the training; 0: all cores.", "N", min=0, max=1024),
    time=option("Longest training, such as 90m, 1h or 2d12h: fewer passes over the text, or a smaller model.", "TIME"),
)
def init(options: Given) -> None:
    """Write a recipe for your own text.

    It looks at the text and at this machine, holds out validation and test sets, and chooses the sizes by the rule in
    docs/presets.md.
    """
    done = initialize(**options)
    _say_text(done.survey)
    _say_recipe(done, "time" in options)


def _say_text(text: Survey) -> None:
    """Print statistics and warnings about the text."""
    warn_replaced(text.replaced)
    say(f"{text.pairs:,} pairs")
    for what, side in (("source", text.source), ("target", text.target)):
        say(f"  {what}      {side.words:.1f} words per line, up to {side.longest:,}; letters: {_scripts(side)}")
        if side.changed.lines:
            say(f"  normalised  {side.changed.described(what)}")
    for what, count, remark in (
        ("empty", text.empty, "one side has no words; left out"),
        ("copies", text.copies, "both sides are equal: not translated; many of them teach the model to copy"),
        ("repeated", text.repeated, "the same as an earlier pair but for case and punctuation"),
        ("odd", text.odd, "one side has four times the words of the other: are they parallel?"),
    ):
        if count:
            say(f"  {what:<10}  {count:,} ({100 * count / text.pairs:.1f} %): {remark}")


def _scripts(side: SurveyedSide) -> str:
    shown = [
        f"{name.capitalize()} {100 * share:.0f} %" for name, share in list(side.scripts.items())[:3] if share >= 0.005
    ]
    return ", ".join(shown) or "none"


def _say_recipe(done: Initialized, limited: bool) -> None:
    """Print the written files, the size and time of the training, and the next command."""
    chosen = done.settings
    if done.text:
        say(f"{done.text}: " + ", ".join(f"{kind} {count:,} pairs" for kind, count in done.pairs.items()))
    say(
        f"{done.recipe}: {chosen.size.described}, dropout {chosen.dropout}; {chosen.updates:,} updates of "
        f"{chosen.batch_tokens:,} tokens, which read the text {chosen.passes:.3g} times, in "
        f"{spoken_range(*done.seconds)} on this machine ({done.device})"
    )
    if limited and done.seconds[1] < 0.7 * done.usual_seconds:
        say(f"More time makes a better model: --time counts up to about {spoken(done.usual_seconds)}")
    elif not limited and done.seconds[1] > 86_400:
        say(
            "That is long: with --time, such as --time 12h, the model and its training get smaller. A GPU is "
            "much faster."
        )
    say_next("nmt", "preprocess", done.recipe)
