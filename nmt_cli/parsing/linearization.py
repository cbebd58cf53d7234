"""Linearisation: trees as sequences of symbols, for a model that turns sentences into parses (section 6.3), and back.

    The dog barks .   ◀──▶   (S (NP XX XX )NP (VP XX )VP XX )S

The format is that of Vinyals et al. (2015, "Grammar as a Foreign Language", section 2): depth first, a closing bracket
has its label. The root is not written. A word is written as a terminal, of one of these kinds (TERMINALS):

    xx      XX, whatever the word           (NP XX XX )NP
    tags    its part of speech              (NP DT NN )NP
    words   the word, brackets escaped      (NP The dog )NP
    both    the word, then `/` and its tag  (NP The /DT dog /NN )NP

Each bracket and tag is one token of the target vocabulary. With xx, the vocabulary has about twice as many symbols as
there are labels.

The output of a model may not be a tree. `delinearise` repairs it, and always returns a tree of exactly the sentence's
words. The words come from the sentence, by position, never from the line:

- text that is neither a bracket nor a terminal is dropped; with tags, words and both, all text without brackets is a
  terminal, also a wrong word;
- a closing bracket closes the innermost open bracket of its label, and all brackets that were opened after it; without
  such a bracket it is dropped;
- brackets that are open at the end are closed there;
- terminals beyond the sentence's words are dropped;
- words beyond the terminals are added at the end, to the outermost constituent if it spans all the words before, else
  beside the constituents; their tag is XX;
- with both, a tag that does not follow a word is dropped, and a word without its tag is tagged XX;
- constituents without words are dropped;
- several outermost constituents are siblings below the root.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .brackets import UNTAGGED, Leaf, Span, Tree, between_spaces, escaped

TERMINALS = ("xx", "tags", "words", "both")
"""The kinds of terminals."""
TAG_PREFIX = "/"
"""Prefix of tags with `both`, so that tags and words are different symbols."""
SYMBOL = re.compile(r"(?P<bracket>[()])(?P<label>[^()]+)")


class _Symbol(NamedTuple):
    """A symbol of a line: a bracket and its label, or a terminal.

    For a terminal `bracket` is "", and `label` is its tag in the line, or "".
    """

    bracket: str
    label: str


def terminal(leaf: Leaf, terminals: str = "xx") -> str:
    """Return the terminal of a word in a linearised tree: one symbol, or with `both` two and a space between them."""
    if terminals == "xx":
        return UNTAGGED
    if terminals == "tags":
        return leaf.tag
    word = escaped(leaf.word)
    return word if terminals == "words" else f"{word} {TAG_PREFIX}{leaf.tag}"


def has_bracket(text: str) -> bool:
    """Return whether a text is no terminal."""
    return "(" in text or ")" in text


def is_tag(text: str) -> bool:
    """Return whether a symbol is a tag of the kind `both`."""
    return text.startswith(TAG_PREFIX) and text != TAG_PREFIX


def tree_symbols(texts: Iterable[str], terminals: str) -> list[str]:
    """Return the texts that are brackets of a label, or tags of the kind `both`.

    Each of them is one token of a vocabulary of subwords.

    A label occurs with both brackets: other texts, such as ")P", are words.
    """
    distinct = sorted(set(texts))
    brackets = {(match["bracket"], match["label"]): text for text in distinct if (match := SYMBOL.fullmatch(text))}
    symbols = [text for (_, label), text in brackets.items() if ("(", label) in brackets and (")", label) in brackets]
    return symbols + [text for text in distinct if terminals == "both" and is_tag(text)]


def linearise(tree: Tree, terminals: str = "xx") -> str:
    """Return the symbols of a tree, separated by spaces. `terminals` is one of TERMINALS."""
    return " ".join(
        tree.walk(lambda label: f"({label}", lambda leaf: terminal(leaf, terminals), lambda label: f"){label}")
    )


def delinearise(line: str, words: Sequence[str], terminals: str = "xx") -> Tree:
    """Return the tree of `words` that a line of symbols describes, repaired as above. A word without a tag has XX."""
    open_spans: list[tuple[str, int, int]] = []  # label, start, index in `spans`
    open_labels = Counter[str]()  # the labels of `open_spans`, so that a deep tree takes time linear in its depth
    spans: list[Span | None] = []
    parsed = [UNTAGGED] * len(words)
    count = 0

    def close() -> None:
        label, start, index = open_spans.pop()
        open_labels[label] -= 1
        spans[index] = Span(label, start, count) if start < count else None

    for bracket, label in _read(line, words, terminals)[0]:
        if not bracket and count < len(words):
            parsed[count] = label or UNTAGGED
            count += 1
        elif bracket == "(":
            open_spans.append((label, count, len(spans)))
            open_labels[label] += 1
            spans.append(None)
        elif bracket == ")" and open_labels[label] > 0:
            while open_spans[-1][0] != label:
                close()
            close()
    while open_spans:
        close()
    kept = [span for span in spans if span]
    if kept and kept[0].start == 0 and kept[0].end == count:
        kept[0] = kept[0]._replace(end=len(words))
    leaves = (Leaf(tag, word) for tag, word in zip(parsed, words, strict=True))
    return Tree(tuple(leaves), tuple(kept))


def repaired(line: str, tree: Tree, terminals: str = "xx") -> bool:
    """Return whether `delinearise` had to repair the line to get `tree`.

    There was no repair if the line has the same brackets, and as many terminals in the same positions; with `both` also
    a tag for each word. A wrong word alone is no repair.
    """
    symbols, sound = _read(line, tree.words, terminals)
    return not sound or linearise(tree) != " ".join(
        f"{bracket}{label}" if bracket else UNTAGGED for bracket, label in symbols
    )


def _read(line: str, words: Sequence[str], terminals: str) -> tuple[list[_Symbol], bool]:
    """Return a line's symbols, and whether it is complete: no text was dropped, and with `both` no tag is missing."""
    symbols: list[_Symbol] = []
    sound, count = True, 0
    waiting = False  # with `both`: the last symbol is a word whose tag may follow
    for text in between_spaces(line):
        if match := SYMBOL.fullmatch(text):
            symbols.append(_Symbol(match["bracket"], match["label"]))
            waiting = False
        elif has_bracket(text) or (terminals == "xx" and text != UNTAGGED):
            sound = False
        elif waiting and is_tag(text):
            symbols[-1] = _Symbol("", text.removeprefix(TAG_PREFIX))
            waiting = False
        elif terminals == "both" and is_tag(text) and not (count < len(words) and words[count].startswith(TAG_PREFIX)):
            sound = False
        else:
            symbols.append(_Symbol("", text if terminals == "tags" else ""))
            count, waiting = count + 1, terminals == "both"
    return symbols, sound and (terminals != "both" or all(bracket or tag for bracket, tag in symbols))
