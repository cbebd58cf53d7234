"""A second choice for short lines, where small models fail in ways that a reader sees at once.

A word alone, a heading or a number is unlike the sentences that a model learnt from. Small students then add what their
training text had there ("85.02 (em inglês)"), say a word twice or change a number. Such outputs are found without a
reference, and most often one of the next best has no such fault. `decode.second_choice` is the longest line for which
that is asked; docs/search.md has the counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..data.tokenizer import Tokenizer
from ..search.sentence import Sentence

MARK = re.compile(r"([(\[{（［【])|([,،，、])(?!\d)|([:;：；])(?!\d)")
"""Brackets, commas and colons: the group is the kind. One before a digit is a part of a number."""
BRACKETS = {1}
SENTENCE = re.compile(r"[.!?。！？…।][\W_]*$")
"""The end of a sentence, in which a translation may need other commas."""
WORD = re.compile(r"[^\W\d_]+")
LETTERS = 4
"""Shortest word that is doubled if an output has it twice: articles and the like may be there twice."""


@dataclass(frozen=True)
class SecondChoice:
    """Whether an output may stay the translation of a sentence. The tokenizers are those of the source and the target;
    `longest` is the largest number of source tokens for which outputs are looked at.
    """

    source: Tokenizer
    target: Tokenizer
    longest: int

    def accepts(self, sentence: Sentence, output: Sequence[int]) -> bool:
        """Return whether these tokens have no fault, or the sentence is longer, or has inputs of constraints."""
        if sentence.inputs or len(sentence.tokens) - sentence.first > self.longest:
            return True
        [text] = self.source.decode([list(sentence.tokens[sentence.first :])])
        [translation] = self.target.decode([list(output)])
        return not faulty(text, translation)


def faulty(source: str, output: str) -> bool:
    """Return whether the translation of a short text is empty, is far too long, has a mark of a kind that the source
    has not (in a sentence: brackets), says a word twice that stands there once, loops, or lacks a number.
    """
    from ..evaluation.outputs import loops, numbers

    words, own = ([word.casefold() for word in WORD.findall(text)] for text in (output, source))
    kinds, allowed = ({match.lastindex for match in MARK.finditer(text)} for text in (output, source))
    most = max(Counter(own).values(), default=1)
    doubled = any(count > most and len(word) >= LETTERS for word, count in Counter(words).items())
    added = (kinds - allowed) & (BRACKETS if SENTENCE.search(source) else kinds)
    if not output.strip() or len(words) > 2 * len(own) + 2 or added or doubled:
        return True
    return loops([source], [output], [[source]])[0] or numbers([source], [output], [[source]])[0]
