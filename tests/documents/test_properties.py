"""Random documents: a copy is the document, byte for byte. In other translations the markup and its nesting survive, the
words are those of the plain translation, and nothing is lost."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from xml.sax import parseString
from xml.sax.handler import ContentHandler

import pytest
from random_documents import Scrambled, copied, html_document, scrambled, text_document, xml_document

from nmt_cli.documents import read_document
from nmt_cli.documents.document import Document
from nmt_cli.documents.html_tokens import tokens
from nmt_cli.documents.items import Kind, Markup, matched
from nmt_cli.documents.tokens import Type

SENTENCES = (
    "A zebra in a blue shirt is standing on a ladder.",
    "Two dogs run in the snow!",
    "She said: It is 3.5 km, isn't it?",
    "Mr. Smith has the red zebra and the red hat.",
    "Yes",
    "A small, old house & a tree",
)
SEEDS = range(300)


MADE: dict[str, Callable[..., str]] = {
    "html": html_document,
    "malformed": partial(html_document, malformed=True),
    "xml": xml_document,
    "xhtml": lambda *arguments: xml_document(*arguments).replace("root", "html"),
    "text": text_document,
}


def documents(form: str) -> Iterator[tuple[random.Random, str, Document]]:
    """Random documents, each with the generator that made it."""
    for seed in SEEDS:
        rng = random.Random(seed)
        text = MADE[form](rng, SENTENCES)
        yield rng, text, read_document(text, {"malformed": "html", "xhtml": "xml"}.get(form, form), "en")


@pytest.mark.parametrize("form", MADE)
def test_a_copy_is_the_document_byte_for_byte(form: str) -> None:
    """Whatever the tokens are. If a word of the copy is another one, only this word changes in the document."""
    changed = 0
    for rng, text, document in documents(form):
        assert document.write([copied(rng, line) for line in document.lines]).text == text
        alone = not any(re.search(r"[\w'’.,·-]zebra|zebra[-'’.,·]?\w", line) for line in document.lines)
        if alone and sum(line.count("zebra") for line in document.lines) == text.count("zebra"):
            output = document.write([copied(rng, line, "zebra", "quagga") for line in document.lines]).text
            assert output == text.replace("zebra", "quagga")
            changed += output != text
    assert changed > len(SEEDS) / 5


def moved(rng: random.Random, document: Document) -> str:
    """Its translation into the same words in capitals, in another order."""
    return document.write([scrambled(rng, line) for line in document.lines]).text


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


@pytest.mark.parametrize("form", ["html", "malformed"])
def test_html_keeps_its_tags_and_is_as_malformed_as_before(form: str) -> None:
    changed = 0
    for rng, text, document in documents(form):
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
        output = document.write([translation]).text
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
        output = document.write(translations).text
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
