"""Parsing with a loaded model: sentences in, trees out (docs/parsing.md).

line ──▶ words, separated as treebanks do ──▶ translator ──▶ linearised tree ──▶ delinearise
    ──▶ Parse: a tree of these words
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelError, extra_module
from ..parsing.brackets import Span, Tree, between_spaces
from ..parsing.linearization import TERMINALS, delinearise, repaired

if TYPE_CHECKING:
    from ..translation.line import Translation
    from ..translation.translator import LineTranslator

TREE = "tree"
"""Name of the constraint that makes every output a tree of the sentence."""
APOSTROPHE = re.compile(r"(?<=\w)’(?=\w)")
"""A typographic apostrophe inside a word. NLTK splits contractions only at the plain apostrophe (')."""

SplitWords = Callable[[str], list[str]]


@dataclass(frozen=True)
class Parse:
    """The tree of a line.

    `str` returns it in brackets, as (TOP (S (NP (DT The) (NN dog)) (VP (VBZ barks)))); "" for a blank line.
    """

    tree: Tree
    repaired: bool = False
    """Whether the tree was repaired, because the model's output was not a tree of the sentence."""
    too_long: str = ""
    """The reason why the sentence is too long for the model; then the tree is flat. "" if the model parsed it."""

    def __str__(self) -> str:
        return str(self.tree) if self.tree.leaves else ""

    @property
    def words(self) -> list[str]:
        """The words of the sentence. Brackets are plain here; only the text of the tree has -LRB- and -RRB-."""
        return self.tree.words

    @property
    def tags(self) -> list[str]:
        """The part of speech of each word; XX if the model predicts none."""
        return self.tree.tags

    @property
    def constituents(self) -> tuple[Span, ...]:
        """Label, start and end of each constituent: words[start:end]."""
        return tuple(self.tree.spans)


class Parses:
    """The state for one stream of lines.

    `sentences` yields the input of the translator; `parse` reads its results, in the same order.
    """

    def __init__(self, translator: LineTranslator, terminals: str, split: SplitWords | None = None) -> None:
        """`split` separates the words of a line, as `treebank_words` does; None: words are separated at spaces.

        `terminals`: see `terminals_of`.
        """
        self.translator, self.terminals = translator, terminals
        self.split = split or between_spaces
        if split is not None and not any("``" in piece for piece in translator.source.table):
            self.split = _with_plain_quotes(split)
        self._pending = deque[list[str]]()  # words of the sentences that are being parsed: the translator reads ahead

    @property
    def longest(self) -> int:
        """The largest number of tokens of a sentence.

        With the constraint `tree` this is the maximum of the model; longer sentences are never split.
        """
        reads_whole = TREE in self.translator.options.decode.constraints
        return self.translator.longest_output if reads_whole else self.translator.longest

    def sentences(self, lines: Iterable[object]) -> Iterator[str]:
        """Yield the sentence of each line, words between single spaces; "" if it certainly has too many tokens.

        A thread of the translator calls this, and may end with the process at any point. Therefore SentencePiece is
        not used here: it could crash.
        """
        for line in lines:
            words = self.split(str(line))
            self._pending.append(words)
            yield " ".join(words) if len(words) <= self.longest else ""

    def parse(self, result: Translation) -> Parse:
        """Return the parse of the next sentence."""
        words = self._pending.popleft()
        if not words:
            return Parse(Tree((), ()))
        if not result.length or len(result.source_tokens) > self.longest:  # not translated, or in parts: no trees
            length = len(self.translator.source.encode([" ".join(words)])[0])
            return Parse(
                delinearise("", words),
                too_long=f"it has {len(words):,} words, {length:,} tokens; the model reads up to {self.longest:,} "
                "tokens "
                f"and writes up to {self.translator.longest_output:,} "
                f"symbols{', two for each word' * (self.terminals == 'both')}",
            )
        tree = delinearise(result.text, words, self.terminals)
        return Parse(tree, repaired(result.text, tree, self.terminals))


def terminals_of(folder: Path) -> str:
    """Return the kind of terminals in the parser's linearised trees, one of `linearization.TERMINALS`.

    Raises ModelError if the model in `folder` is not a parser.
    """
    from ..model.folder_files import read_config

    data = read_config(folder).recipe.get("data")
    terminals = data.get("terminals") if isinstance(data, dict) else None
    if terminals in TERMINALS:
        return str(terminals)
    raise ModelError(
        f"the model {str(folder)!r} is not a parser: its recipe does not have data.terminals ({', '.join(TERMINALS)}), "
        "which names what a word is in the linearised trees. Train with it, as docs/parsing.md shows. For trees by a "
        "model that was trained without it: nmt translate, then nmt data trees --back."
    )


def treebank_words() -> SplitWords:
    """Return a function that splits a sentence into words as in the Penn Treebank.

    Raises UsageError if NLTK is not installed.
    """
    tokenizer = extra_module("nltk.tokenize", "parse", "nmt parse without --tokenized").NLTKWordTokenizer()
    return lambda line: [
        word for text in tokenizer.tokenize(APOSTROPHE.sub("'", line)) for word in between_spaces(text)
    ]


def _with_plain_quotes(split: SplitWords) -> SplitWords:
    return lambda line: ['"' if word in ("``", "''") else word for word in split(line)]
