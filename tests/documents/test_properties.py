"""Random documents: their markup and its nesting survive, their words are those of the plain translation, and nothing is lost."""

import html
import random
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.sax import parseString
from xml.sax.handler import ContentHandler

import pytest
from random_documents import Scrambled, html_document, scrambled, xml_document

from nmt_cli.documents import read_document
from nmt_cli.documents.document import Document
from nmt_cli.documents.html_tokens import tokens
from nmt_cli.documents.items import Kind, Markup, matched
from nmt_cli.documents.tokens import Type

SENTENCES = (
    "A man in a blue shirt is standing on a ladder.",
    "Two dogs run in the snow!",
    "She said: It is 3.5 km, isn't it?",
    "Mr. Smith has the red ball and the red hat.",
    "Yes",
    "A small, old house & a tree",
)
SEEDS = range(300)


def unchanged(line: str) -> Scrambled:
    """A translation into the same words."""
    words = tuple("\u2581" + word for word in line.split(" "))
    return Scrambled(line, words, words, tuple((index, index) for index in range(len(words))))


def documents(form: str, malformed: bool = False) -> Iterator[tuple[random.Random, str, Document]]:
    """Random documents, each with the generator that made it."""
    for seed in SEEDS:
        rng = random.Random(seed)
        text = xml_document(rng, SENTENCES) if form == "xml" else html_document(rng, SENTENCES, malformed)
        yield rng, text, read_document(text, form, "en")


def moved(rng: random.Random, document: Document) -> str:
    """Its translation into the same words in capitals, in another order."""
    return document.write([scrambled(rng, line) for line in document.lines])


def tags(text: str) -> Counter[str]:
    return Counter(token.raw for token in tokens(text) if token.type is not Type.TEXT)


def unpaired(text: str) -> list[str]:
    """Names of the tags without partner."""
    found = [token for token in tokens(text) if token.type in (Type.OPEN, Type.CLOSE)]
    partners = matched(
        [Markup(token.raw, Kind.OPEN if token.type is Type.OPEN else Kind.CLOSE, token.name) for token in found]
    )
    return sorted(token.name for token, partner in zip(found, partners, strict=True) if partner is None)


def parents(text: str) -> Counter[tuple[str, str]]:
    """Each element of well-formed XML with the one that it is in."""

    class Nesting(ContentHandler):
        def __init__(self) -> None:
            self.open, self.found = [""], Counter[tuple[str, str]]()

        def startElement(self, name: str, attrs: object) -> None:
            self.found[self.open[-1], name] += 1
            self.open.append(name)

        def endElement(self, name: str) -> None:
            self.open.pop()

    nesting = Nesting()
    parseString(text.encode(), nesting)
    return nesting.found


@pytest.mark.parametrize("malformed", [False, True])
def test_html_keeps_its_tags_and_is_as_malformed_as_before(malformed: bool) -> None:
    changed = 0
    for rng, text, document in documents("html", malformed):
        same = document.write([unchanged(line) for line in document.lines])
        assert characters(same) == characters(text), text  # places of tags and white space may change, nothing else
        output = moved(rng, document)
        assert tags(output) == tags(text), text
        assert unpaired(output) == unpaired(text), text
        changed += output.lower() != text.lower()
    assert changed > len(SEEDS) / 2  # the translations differ from their lines


def test_xml_stays_well_formed_and_elements_keep_their_parents() -> None:
    for rng, text, document in documents("xml"):
        output = moved(rng, document)
        assert parents(output) == parents(text), text
        assert tags(output) == tags(text)


def characters(text: str) -> str:
    """The text without markup and white space, entities as characters."""
    return "".join(html.unescape("".join(token.raw for token in tokens(text) if token.type is Type.TEXT)).split())


def test_the_words_are_those_of_the_plain_translation() -> None:
    """Nothing but tags is added to a translation, and not a space is lost."""
    seen = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        words = rng.choice(SENTENCES[:4]).replace("&", "and").split()
        marked = [rng.choice(("<b>", *[""] * 4)) + word + rng.choice(("</b>", *[""] * 4)) for word in words]
        text = " ".join(marked)
        document = read_document(text, "html", "en", split_sentences="0")
        [line] = document.lines
        translation = scrambled(rng, line)
        output = document.write([translation])
        assert re.sub(r"</?b>", "", output) == translation.text.strip(), text
        seen += "<b>" in text
    assert seen > 100


def nested(rng: random.Random, words: list[str], names: list[str]) -> str:
    """Return words in inline elements, at random, each with a name of its own."""
    pieces = []
    while words:
        count = rng.randint(1, len(words))
        part, words = words[:count], words[count:]
        if len(names) < 40 and rng.random() < 0.5:
            names.append(name := f"x-{len(names)}")
            pieces.append(f"<{name}>{nested(rng, part, names)}</{name}>")
        else:
            pieces.append(" ".join(part))
    return " ".join(pieces)


def test_no_element_that_had_words_is_empty_if_the_translation_has_enough_words() -> None:
    """Whatever the alignment is, also where the elements go over several sentences."""
    for seed in SEEDS:
        rng = random.Random(seed)
        names: list[str] = []
        words = [word.replace("&", "and") for sentence in rng.sample(SENTENCES, 2) for word in sentence.split()]
        words.insert(rng.randrange(len(words)), "{name}")
        text = nested(rng, words, names)
        document = read_document(text, "html", "en")
        translations = []
        for line in document.lines:
            source, count = line.split(" "), len(re.findall(r"<x-", text)) + rng.randint(0, 4)
            target = [rng.choice(("W", "W", "W,", "(W)")) for _ in range(count)] or ["W"]
            pairs = [(rng.randrange(len(source)), rng.randrange(len(target))) for _ in range(rng.randint(0, count))]
            translations.append(Scrambled(" ".join(target), tuple(target), tuple(source), tuple(sorted(pairs))))
        output = document.write(translations)
        for name in names:
            [inner] = re.findall(f"<{name}>(.*)</{name}>", output)
            assert re.search(r"\w", re.sub("<.*?>", "", inner)), (text, output, name)


@pytest.mark.parametrize("format", ["html", "text"])
def test_placeholders_come_back_once_each(format: str) -> None:
    parts = ["{name}", "{0}", "%s", "%(count)d", "${x}", "{{ y }}", "https://example.org/a?b=c", "me@example.org"]
    for seed in SEEDS:
        rng = random.Random(seed)
        words = rng.choice(SENTENCES[:4]).split()
        for part in rng.sample(parts, 3):
            words.insert(rng.randrange(len(words)), part)
        text = " ".join(words)
        document = read_document(text, format, "en")
        output = moved(rng, document)
        assert [output.count(part) for part in parts] == [text.count(part) for part in parts], (text, output)


def test_text_keeps_its_white_space() -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        pieces = (*SENTENCES, "\n", "\r\n", "  ", "\t", "\n\n\n", "\u2028", "12 34", "---")
        text = "".join(rng.choice(pieces) + rng.choice(("\n", "\n  \n")) for _ in range(6))
        document = read_document(text, "text", "en")
        assert document.write([unchanged(line) for line in document.lines]) == text
        assert all(line == line.strip() and line and "\n" not in line for line in document.lines)


class Tags(HTMLParser):
    """The tags that the standard library finds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.found.append("/" + tag)

    handle_startendtag = handle_starttag


def test_tokens_are_the_document_and_find_the_tags_that_the_standard_library_finds() -> None:
    for _, text, _ in documents("html"):
        found = list(tokens(text))
        assert "".join(token.raw for token in found) == text
        names = ["/" * (token.type is Type.CLOSE) + token.name for token in found if token.name]
        assert names == Tags(text).found
