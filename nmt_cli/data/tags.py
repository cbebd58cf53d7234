"""Tags of target languages: a model of several languages reads the one to translate into as the first token of a line.

    line, language ──▶ split: the tag's code, the text ──▶ ids of the text, those of its tag before them

The tags are control tokens of the source's tokenizer, named >>CODE<< as in OPUS-MT's models (`Tokenizer.tags`); text
never gives them. A line that begins with >>CODE<< names its language itself. Any other line has the language of its
request, and without one the language of the recipe. A text without tokens has no tag either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from .. import console
from ..errors import UsageError, listed, shown
from ..text.languages import find
from .tokenizer import Tokenizer

OWN = re.compile(r" *>>([^\s<>]{1,40})<< *")
"""The tag at the beginning of a line, with the spaces around it."""
CODE = re.compile(r"[a-z]{2,3}([-_][a-z0-9]{2,8})*", re.IGNORECASE)
"""The code of a language; other text between the brackets of a tag is text."""
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
        if (match := OWN.match(line)) and (own := self._tag(match[1])):
            return own, line[match.end() :]
        if not (code or self.default) and line.strip():
            raise UsageError(
                f"the model translates into several languages, and its recipe's data.target_language = "
                f"{shown(self.language)} is none of them. Give --target-language CODE, or begin each line with "
                f">>CODE<<. CODE is one of {self.listed()}."
            )
        return code or self.default, line

    def _tag(self, code: str) -> str | None:
        return code if code in self.ids else find(code, self.ids)

    def lacks(self, line: str) -> str:
        """Return the tag of a line, such as ">>rus<<", if it is of a language that the model does not have, else ""."""
        match = OWN.match(line) if self else None
        return match[0].strip(" ") if match and CODE.fullmatch(match[1]) and not self._tag(match[1]) else ""

    def check(self, line: str) -> None:
        """Raise UsageError if a line begins with the tag of a language that the model does not have."""
        if tag := self.lacks(line):
            raise UsageError(
                f"a line begins with {shown(tag)}, and the model translates into {self.listed()}. "
                "Name one of its languages, or remove the tag."
            )

    def warn(self, lacking: Counter[str]) -> None:
        """Warn of the lines whose tags a model lacks, by tag, if there are any: they were translated as text."""
        if lacking:
            tags = ", ".join(map(shown, list(lacking)[:LISTED]))
            console.warn(
                f"{lacking.total():,} line(s) begin with a language that the model does not have ({tags}), and were "
                f"translated as text. It translates into {self.listed()}."
            )

    def encode(self, lines: Sequence[str], code: str = "") -> list[list[int]]:
        """Return the ids of each line with those of its tag; `code` and errors: see `split`."""
        split = [self.split(line, code) for line in lines]
        encoded = self.source.encode([text for _, text in split])
        return [[self.ids[own], *ids] if own and ids else ids for (own, _), ids in zip(split, encoded, strict=True)]

    def listed(self) -> str:
        """Return the model's target languages for a message."""
        return listed([*map(repr, self.ids or [self.language])], LISTED)
