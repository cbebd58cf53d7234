"""Random documents for tests and figures: HTML as people write it, well-formed or not, XML, and translations with random alignments.

random.Random, sentences ──▶ html_document / … ──▶ a document
lines, random.Random     ──▶ scrambled ──▶ translations: the words in another order, some left out or repeated
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

INLINE = ("b", "i", "em", "strong", "a", "span", "u", "sub", "font", "x-word")
BLOCK = ("p", "div", "section", "blockquote", "h2", "ul", "table")


def _choices(*lines: str) -> tuple[str, ...]:
    """Return what stands between the marks " | "."""
    return tuple(" | ".join(lines).split(" | "))


POINTS = _choices(
    """<br> | <br/> | <img src='a>b.png' alt="two dogs"> | <!-- a <b>comment</b> --> | <wbr> | <hr> | <input disabled>""",
    "<?php echo 1 ?>",
)
STAYING = _choices(
    "<code>x = <b>1</b></code> | <kbd>Ctrl</kbd> | <span translate=no>Not this</span>",
    '<i class="a notranslate">nor <b>this</b></i> | <pre>\n  a\n  b </pre> | <style>p > b {}</style>',
    "<span translate=no>Not <b translate=yes>but this</b> and not <i>that</i></span>",
    "<script>if (a < b && c > d) '<p>'</script>",
)
WORDS = _choices(
    "&amp; | &lt;3 | &nbsp; | &#8364; | {name} | {0} | %s | %(count)d | ${x} | {{ y }} | me@example.org | caf\u00e9",
    "https://example.org/a?b=c&amp;d=1 | \u4f60\u597d | &copy 2020 | AT&T",
    "H<sub>2</sub>O | 5 m<sup>2</sup> | so<sup>[<a href=x>1</a>]</sup>. | un<b>believ</b>able | <b>W</b>ord | a<i></i>b",
    "<u>a</u><i>b</i>c | Donau<wbr>dampf | won&shy;der | caf&eacute; &quot;x&quot; | it&#39;s > \"I\" | <i></i> | <x a='b'/>",
    "{a}<b>{b}</b>{c} | <code>f</code><a>(x)</a> | {a}<i>1 so</i> | \u6f22\u5b57<b>\u3068</b>\u4eee\u540d\u3068 | \u0939<b>\u093f</b>\u0928\u094d\u0926\u0940",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647<b>\u0645</b> | \u0e44\u0e17\u0e22\u0e35\u0e48 | e\u0301t<b>e\u0301</b> | so &nbsp;\n <b> is\n</b> it",
)
ATTRIBUTES: tuple[str, ...] = (
    "",
    "",
    "",
    " class=x",
    ' id="a b"',
    " title='She said: \"Hi\" &amp; went'",
    " data-x=a>b",
    " href=/a/b",
)
ATTRIBUTES += (' a="1" a="2"', ' title="a > b"')
XML_ATTRIBUTES = ("", "", ' id="1"', " title='a > \"b\" &amp; c'", ' xml:lang="en"')
DAMAGES = _choices(
    """</b> | </p> | <b> | <i | < | </ | < b> | </ b> | <! | <!-- | & | &#x; | <a href=' | <p | <b title=" | >"""
)
XML_POINTS = _choices(
    "<!-- <a> & --> | <![CDATA[a < b & <c>]]> | <?pi x='>'?> | &#60; | {name} | https://a.org/?x&amp;y | H<b>2</b>O",
    "&quot;x&quot; | &#233;t<b>&#xe9;</b> | so<sup>1</sup> | <x id='3'/> | a<x/>b | so \n <b> is\n</b> it | \u4f60<b>\u597d</b>",
)


def html_document(rng: random.Random, sentences: Sequence[str], malformed: bool = False) -> str:
    """Return blocks of sentences with markup inside and around; `malformed`: some tags are missing, doubled or in the wrong place."""
    pieces = ["<!DOCTYPE html>\n<html><head><title>A dog</title></head><body>"] if rng.random() < 0.2 else []
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(BLOCK)
        pieces += [f"<{name}{_attribute(rng, malformed)}>", *_html_run(rng, sentences, 0, malformed)]
        pieces += [f"</{name}>", rng.choice(("", "\n", " \n\t"))]
    if malformed:
        for _ in range(rng.randint(1, 4)):
            _damage(rng, pieces)
    return "".join(pieces)


def _html_run(rng: random.Random, sentences: Sequence[str], depth: int, malformed: bool) -> list[str]:
    """Return sentences whose words have markup around and between them."""
    pieces: list[str] = []
    for _ in range(rng.randint(1, 3)):
        words = rng.choice(sentences).replace("&", "&amp;").replace("<", "&lt;").split()
        index = 0
        while index < len(words):
            chance = rng.random()
            length = rng.randint(1, 4)
            part = words[index : index + length]
            if chance < 0.2 and depth < 5:
                pieces += _element(rng, part, depth, ATTRIBUTES if malformed or rng.random() < 0.5 else ("",))
            elif chance < 0.25:
                pieces += [rng.choice(POINTS), *part]
            elif chance < 0.3:
                pieces += [rng.choice(STAYING), " ", *part]
            elif chance < 0.38:
                pieces += [rng.choice(WORDS), " ", " ".join(part)]
            else:
                pieces.append(" ".join(part))
            pieces.append(rng.choice((" ", " ", " ", " ", "\n    ", "  ", "&nbsp;", "")))
            index += length
    return pieces


def _element(rng: random.Random, words: Sequence[str], depth: int, attributes: Sequence[str]) -> list[str]:
    name = rng.choice(INLINE)
    inside = [" ".join(words)]
    if depth < 4 and rng.random() < 0.4:
        inside = [words[0], rng.choice((" ", "")), *_element(rng, words[1:] or [""], depth + 1, attributes)]
    elif rng.random() < 0.1:
        inside = []
    return [f"<{name}{rng.choice(attributes)}>", *inside, f"</{name}>"]


def _attribute(rng: random.Random, malformed: bool) -> str:
    return rng.choice(ATTRIBUTES) if malformed or rng.random() < 0.5 else ""


def _damage(rng: random.Random, pieces: list[str]) -> None:
    """Change a piece as people's mistakes do."""
    at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
    piece = pieces[at]
    changes: tuple[list[str], ...] = (
        [],
        [pieces[other], piece],
        [rng.choice(DAMAGES), piece],
        [piece.upper()],
        [piece[: len(piece) // 2]],
    )
    pieces[at : at + 1] = rng.choice(changes) if rng.random() < 0.8 else [pieces[other]]
    if not pieces:
        pieces.append("")


def xml_document(rng: random.Random, sentences: Sequence[str]) -> str:
    """Return a well-formed document."""

    def element(depth: int) -> str:
        name = rng.choice(("doc", "p", "b", "ns:x", "title", "li"))
        start = name + rng.choice(XML_ATTRIBUTES)
        if rng.random() < 0.1:
            return f"<{start}/>"
        content = []
        for _ in range(rng.randint(0, 4)):
            chance = rng.random()
            if chance < 0.35 and depth < 5:
                content.append(element(depth + 1))
            elif chance < 0.45:
                content.append(rng.choice(XML_POINTS))
            else:
                words = rng.choice(sentences).replace("&", "&amp;").replace("<", "&lt;").split()
                content.append(rng.choice((" ", "")) + " ".join(words[: rng.randint(1, len(words))]))
            content.append(rng.choice((" ", "", "\n  ")))
        return f"<{start}>{''.join(content)}</{name}>"

    return rng.choice(("", '<?xml version="1.0"?>\n', "<!DOCTYPE doc>\n")) + f'<root xmlns:ns="x">{element(0)}</root>\n'


def text_document(rng: random.Random, sentences: Sequence[str]) -> str:
    """Return lines with all kinds of white space and characters that no reader sees."""
    unseen = ("\n", "\r\n", "  ", "\t", "\n\n\n", "\u2028", "\ufeff", " \u200b ", "so\xadfar  {x}", "12 34", "---")
    pieces = (*sentences, *unseen)
    return "".join(rng.choice(pieces) + rng.choice(("\n", "\n  \n", "  ", " ")) for _ in range(12))


@dataclass(frozen=True)
class Scrambled:
    """A translation as `Document.write` reads it."""

    text: str
    tokens: tuple[str, ...]
    source_tokens: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]
    restored: int = 0


def copied(rng: random.Random, line: str, word: str = "\0", other: str = "") -> Scrambled:
    """Return a line as its own translation, in tokens of random lengths; but for `word`, which becomes `other`."""
    tokens: list[str] = []
    joined = rng.random()
    for atom in re.findall(rf" ?{word}| ?\S", line):
        alone = atom[0] == " " or word in (atom, tokens[-1].strip("\u2581")) if tokens else True
        if not alone and rng.random() < joined:
            tokens[-1] += atom
        else:
            tokens.append(atom.replace(" ", "\u2581"))
    target = tuple(token.replace(word, other) for token in tokens)
    return Scrambled(line.replace(word, other), target, tuple(tokens), tuple((at, at) for at in range(len(tokens))))


def scrambled(rng: random.Random, line: str) -> Scrambled:
    """Return the words of a line in upper case and another order, with some left out, repeated and added, aligned partly at random."""
    source = line.split(" ")
    order = [index for index in range(len(source)) for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 1, 2)))]
    for index in range(len(order) - 1):
        if rng.random() < 0.2:
            order[index], order[index + 1] = order[index + 1], order[index]
    words = [source[index].upper() for index in order]
    pairs = [
        (index if rng.random() < 0.9 else rng.randrange(len(source)), position)
        for position, index in enumerate(order)
        if rng.random() < 0.9
    ]
    return Scrambled(
        " ".join(words),
        tuple("\u2581" + word for word in words),
        tuple("\u2581" + word for word in source),
        tuple(pairs),
    )
