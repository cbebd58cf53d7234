"""Tags of target languages: a model of several languages reads the one to translate into as the first token of a line.

    line, language ──▶ split: the tag's code, the text ──▶ ids of the text, those of its tag before them

The tags are control tokens of the source's tokenizer, named >>CODE<< as in OPUS-MT's models (`Tokenizer.tags`); text
never gives them. A line that begins with >>CODE<< names its language itself. Any other line has the language of its
request, and without one the language of the recipe. A text without tokens has no tag either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from ..errors import UsageError, shown
from ..languages import find
from .tokenizer import Tokenizer

OWN = re.compile(r" *>>([^\s<>]{1,40})<< *")
"""The tag at the beginning of a line, with the spaces around it."""
LISTED = 20
"""Largest number of languages that a message lists."""


class Tags:
    """The tags of a model, false without any; `language` is the recipe's target language."""

    def __init__(self, source: Tokenizer, language: str) -> None:
        self.source, self.language, self.ids = source, language, source.tags

    def __bool__(self) -> bool:
        return bool(self.ids)

    @cached_property
    def default(self) -> str:
        """The code of the tag for the recipe's language, "" if there is none."""
        return find(self.language, self.ids) or ""

    def chosen(self, language: str | None) -> str:
        """Return the code of the tag for the language of a request; "" without tags, and without a language.

        Raises UsageError if the model does not translate into this language.
        """
        if language is None:
            return ""
        if (code := find(language, self.ids or [self.language])) is None:
            raise UsageError(
                f"--target-language {shown(language)}: the model translates into {self.listed()}"
                f"{'' if self else ' only'}. Give one of its languages or another --model."
            )
        return code if self else ""

    def split(self, line: str, code: str = "") -> tuple[str, str]:
        """Return the code of the tag of a line, and its text, without a tag of its own; `code`: that of its request.

        Raises UsageError if there is no tag for a line that is not blank.
        """
        if not self:
            return "", line
        if match := OWN.match(line):
            own = match[1] if match[1] in self.ids else find(match[1], self.ids)
            if own:
                return own, line[match.end() :]
        if not (code or self.default) and line.strip():
            raise UsageError(
                f"the model translates into several languages, and its recipe's data.target_language = "
                f"{shown(self.language)} is none of them. Give --target-language CODE, or begin each line with "
                f">>CODE<<. CODE is one of {self.listed()}."
            )
        return code or self.default, line

    def prefix(self, code: str) -> list[int]:
        """Return the ids before those of a text: the tag's, or nothing for the code ""."""
        return [self.ids[code]] if code else []

    def encode(self, lines: Sequence[str], code: str = "") -> list[list[int]]:
        """Return the ids of each line with those of its tag; `code` and errors: see `split`."""
        split = [self.split(line, code) for line in lines]
        encoded = self.source.encode([text for _, text in split])
        return [[*self.prefix(own), *ids] if ids else ids for (own, _), ids in zip(split, encoded, strict=True)]

    def listed(self) -> str:
        """Return the model's target languages for a message."""
        return listed(self.ids or [self.language])


def listed(languages: Iterable[str]) -> str:
    """Return languages for a message: all, or the first LISTED and an ellipsis."""
    names = list(languages)
    return ", ".join([*map(repr, names[:LISTED]), *(["…"] if len(names) > LISTED else [])])
