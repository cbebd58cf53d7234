"""The input of `nmt translate`: lines, and a prefix and terms for each line, from columns of the input or from parallel
files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import UsageError
from ..options import Option, flag
from ..recipe import RULES
from ..text.lines import open_binary, read_streams
from .inputs import entries, open_input

if TYPE_CHECKING:
    from ..interface.options import TranslateKeywords
    from ..translation.line import Line


_rule = partial(Option, heading=RULES)


@dataclass(frozen=True)
class LineRules:
    """The constraints of single lines, by columns of the input or by parallel files, and of all lines."""

    prefix_column: Annotated[
        bool,
        _rule(
            "Each input line is SOURCE, a tab, PREFIX: the translation begins with PREFIX. A line without a "
            "tab or PREFIX has no constraint."
        ),
    ] = False
    prefix_file: Annotated[
        Path | None,
        _rule(
            "Prefixes that the translations begin with, line by line parallel to the input; an empty line is "
            "no constraint.",
            "FILE",
        ),
    ] = None
    terms: Annotated[
        Path | None,
        _rule(
            "Words and phrases that the translations must contain, line by line parallel to the input, "
            "separated by tabs. A|B: one of several; A*: the word may go on.",
            "FILE",
        ),
    ] = None
    terms_columns: Annotated[
        bool,
        _rule(
            "Each input line is SOURCE, a tab, terms as in FILE of --terms; with --prefix-column, SOURCE, "
            "PREFIX, terms."
        ),
    ] = False
    banned_words: Annotated[
        Path | None, _rule("Words and phrases, one per line, that no translation may contain.", "FILE")
    ] = None
    outputs: Annotated[
        Path | None, _rule("All translations that are allowed, one per line: the best of them is printed.", "FILE")
    ] = None

    def __post_init__(self) -> None:
        """Raise UsageError if two options give prefixes, or two options give terms."""
        for column, path, what in (("prefix_column", "prefix_file", "prefixes"), ("terms_columns", "terms", "terms")):
            if getattr(self, column) and getattr(self, path):
                raise UsageError(
                    f"{flag(column)} and {flag(path)} were both given: give {what} either in the input or in a file."
                )

    @property
    def parallel(self) -> list[Path]:
        """The files that are parallel to the input."""
        return [path for path in (self.prefix_file, self.terms) if path]

    @property
    def files(self) -> list[Path]:
        """The files that are read."""
        return [*self.parallel, *filter(None, (self.banned_words, self.outputs))]

    def keywords(self) -> TranslateKeywords:
        """Return these options as a translator has them. Raises DataError for a file without entries."""
        return {
            "terms": self.terms_columns or self.terms is not None,
            "banned_words": entries(self.banned_words, "words or phrases"),
            "outputs": entries(self.outputs, "translations"),
        }


NO_RULES = LineRules()


def read_requests(file: Path | None, replaced: Counter[str], rules: LineRules = NO_RULES) -> Iterator[str | Line]:
    """Yield the lines to translate. `file` None: standard input. `replaced`: file → lines with invalid UTF-8.

    Raises DataError after the last line that all files have, if they have different numbers of lines.
    """
    with ExitStack() as stack:  # the streams are closed in the thread that reads them
        streams = [stack.enter_context(stream) for stream in (open_input(file), *map(open_binary, rules.parallel))]
        names = [str(file or "standard input"), *map(str, rules.parallel)]
        for row in read_streams(names, streams, replaced, any_bytes=True):
            yield _line(rules, row)


def _line(rules: LineRules, texts: tuple[str, ...]) -> str | Line:
    """Return a line with its prefix and terms; `texts` has its text in each file."""
    source, *columns = texts[0].split("\t") if rules.prefix_column or rules.terms_columns else [texts[0]]
    others = iter(texts[1:])
    prefix, terms = None, list[str]()
    if rules.prefix_file:
        prefix = next(others)
    elif rules.prefix_column and columns:
        prefix = columns.pop(0) if rules.terms_columns else "\t".join(columns)
    if rules.terms:
        terms = next(others).split("\t")
    elif rules.terms_columns and columns:
        terms = columns
    if prefix is None and not terms:
        return source

    from ..translation.line import Line

    return Line(source, prefix, terms)
