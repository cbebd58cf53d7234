"""The input of `nmt translate`: lines, and a prefix and terms for each line, from columns of the input or from parallel
files.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..console import warn
from ..errors import DataError, UsageError
from ..options import Option, flag
from ..recipe import RULES
from ..text.lines import decoded_lines, parallel
from ..text.scripts import IN_SCRIPT
from .arguments import STDIN
from .inputs import entries, open_input, shown

if TYPE_CHECKING:
    from ..interface.options import TranslateKeywords
    from ..translation.line import Line

SEPARATORS = ("\t", ";", ",", "=")
"""Characters between source and target, as in tables, CSV files and lists."""
CHECKED = 1000
"""The number of lines by which a glossary is recognised."""


@dataclass(frozen=True)
class LineRules:
    """The constraints of single lines, by columns of the input or by parallel files, and of all lines."""

    prefix_column: Annotated[
        bool,
        Option(
            "Each input line is SOURCE, a tab, PREFIX: the translation begins with PREFIX. A line without a "
            "tab or PREFIX has no constraint.",
            None,
            RULES,
        ),
    ] = False
    prefix_file: Annotated[
        Path | None,
        Option(
            "Prefixes that the translations begin with, line by line parallel to the input; an empty line is "
            "no constraint.",
            "FILE",
            RULES,
        ),
    ] = None
    terms: Annotated[
        Path | None,
        Option(
            "Words and phrases that the translations must contain, line by line parallel to the input, "
            "separated by tabs. A|B: one of several; A*: the word may go on.",
            "FILE",
            RULES,
        ),
    ] = None
    terms_columns: Annotated[
        bool,
        Option(
            "Each input line is SOURCE, a tab, terms as in FILE of --terms; with --prefix-column, SOURCE, "
            "PREFIX, terms.",
            None,
            RULES,
        ),
    ] = False
    banned_words: Annotated[
        Path | None, Option("Words and phrases, one per line, that no translation may contain.", "FILE", RULES)
    ] = None
    outputs: Annotated[
        Path | None,
        Option("All translations that are allowed, one per line: the best of them is printed.", "FILE", RULES),
    ] = None

    def __post_init__(self) -> None:
        """Raise UsageError if two options give prefixes, or two options give terms."""
        for column, path, what in (("prefix_column", "prefix_file", "prefixes"), ("terms_columns", "terms", "terms")):
            if getattr(self, column) and getattr(self, path):
                raise UsageError(
                    f"{flag(column)} and {flag(path)} were both given: give {what} either in the input or in a file."
                )

    @property
    def parallel(self) -> dict[str, Path]:
        """The files that are parallel to the input, by their options."""
        files = {"--prefix-file": self.prefix_file, "--terms": self.terms}
        return {option: path for option, path in files.items() if path}

    @property
    def files(self) -> list[Path]:
        """The files that are read."""
        return [*self.parallel.values(), *filter(None, (self.banned_words, self.outputs))]

    @property
    def has_columns(self) -> bool:
        """Whether the lines of the input have columns."""
        return self.prefix_column or self.terms_columns

    def keywords(self) -> TranslateKeywords:
        """Return these options as a translator has them. Raises DataError for a file without entries."""
        return {
            "terms": self.terms_columns or self.terms is not None,
            "banned_words": entries(self.banned_words, "words or phrases"),
            "outputs": entries(self.outputs, "translations"),
        }


NO_RULES = LineRules()


def _is_stored(file: Path | None) -> bool:
    """Return whether the lines can be read ahead: they come from a file, not from a pipe or a terminal."""
    if file and file != STDIN:
        return file.is_file()
    try:
        return stat.S_ISREG(os.fstat(0).st_mode)
    except OSError:
        return False


def read_requests(file: Path | None, replaced: Counter[str], rules: LineRules = NO_RULES) -> Iterator[str | Line]:
    """Yield the lines to translate. `file` None: standard input. `replaced`: file → lines with invalid UTF-8.

    If the files have different numbers of lines, raises DataError after the last line that all files have. Raises
    DataError if the prefixes or the terms are a glossary: before the first line, or for a pipe after some lines.
    """
    rows = _parallel(file, rules, replaced)
    if rules.parallel:
        rows = _checked(rows, lambda first: _refuse_glossaries(rules, first), _is_stored(file))
    for texts in rows:
        yield _line(rules, texts)


def _parallel(file: Path | None, rules: LineRules, replaced: Counter[str]) -> Iterator[tuple[str, ...]]:
    """Yield the parallel lines of all files, the input's first.

    Raises DataError as `read_requests` does for different numbers of lines.
    """
    with ExitStack() as stack:  # the streams are closed in the thread that reads them
        files = [file, *rules.parallel.values()]
        texts = [(shown(path), stack.enter_context(open_input(path))) for path in files]
        yield from parallel(*((name, decoded_lines(stream, name, replaced, any_bytes=True)) for name, stream in texts))


def _checked(
    rows: Iterator[tuple[str, ...]], check: Callable[[Sequence[tuple[str, ...]]], None], ahead: bool
) -> Iterator[tuple[str, ...]]:
    """Yield the rows, and call `check` with the first CHECKED ones: with `ahead` before the first is yielded, else
    after the last of them.
    """
    first: list[tuple[str, ...]] = []
    error: DataError | None = None
    try:
        for row in islice(rows, CHECKED):
            first.append(row)
            if not ahead:
                yield row
    except DataError as raised:
        error = raised
    check(first)
    if ahead:
        yield from first
    if error:
        raise error
    yield from rows


def _refuse_glossaries(rules: LineRules, rows: Sequence[tuple[str, ...]]) -> None:
    """Raise DataError if the prefixes or the terms of these rows are a glossary; for a single row, only warn."""
    lines = [texts[0].partition("\t")[0] if rules.has_columns else texts[0] for texts in rows]
    for number, (option, path) in enumerate(rules.parallel.items(), 1):
        is_terms = option == "--terms"
        column = [texts[number] for texts in rows]
        if not (pair := glossary_pair(column, lines, SEPARATORS if is_terms else "\t")):
            continue
        wanted = "the terms in its translation, separated by tabs" if is_terms else "the beginning of its translation"
        message = (
            f"{str(path)!r} is a glossary: it has pairs such as {pair[0]!r} and {pair[1]!r}, and the input "
            f"contains {pair[0]!r}. "
            f"{option} expects for each line of the input {wanted}. "
            "docs/translating.md shows how to write the terms of each line from a glossary."
        )
        if len(rows) > 1:
            raise DataError(message)
        warn(message)


def _line(rules: LineRules, texts: tuple[str, ...]) -> str | Line:
    """Return a line with its prefix and terms; `texts` has its text in each file."""
    source, *columns = texts[0].split("\t") if rules.has_columns else [texts[0]]
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


def glossary_pair(entries: Sequence[str], lines: Sequence[str], separators: Sequence[str] = SEPARATORS) -> list[str]:
    """Return a pair of the glossary that `entries` seem to be: [source, target]. Return [] if they are no glossary.

    In a glossary, all entries have the same number of columns, two or more, and none is blank. At least half of the
    sources occur in the input `lines`, and their targets do not. Terms are target text, so they rarely look like this.
    """
    for separator in separators:
        rows = [[cell.strip(' "') for cell in entry.split(separator)] for entry in entries]
        if all(len(row) == len(rows[0]) > 1 and row[0] and row[1] for row in rows):
            text = "\n".join(lines).casefold()
            pairs = [row[:2] for row in rows if _occurs(row[0], text) and not _occurs(row[1], text)]
            if pairs and 2 * len(pairs) >= len(rows):
                return pairs[0]
    return []


def _occurs(term: str, text: str) -> bool:
    """Return whether a word of the text begins with the term; in scripts without spaces, whether the text contains
    it.
    """
    begins = "" if IN_SCRIPT.match(term) else r"(?<!\w)"
    return re.search(begins + re.escape(term.casefold()), text) is not None
