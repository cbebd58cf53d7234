"""Where tags and untranslatable parts go, each rule by an example with its alignment."""

from __future__ import annotations

import re

import pytest
from random_documents import Scrambled

from nmt_cli.documents import read_document


def translate(text: str, target: str, alignment: str, format: str = "html") -> str:
    """Translate a document of one sentence; the alignment is of pairs of tokens: a word or a punctuation mark each."""
    document = read_document(text, format, "en", split_sentences="0")
    [line] = document.lines

    def pieces(text: str) -> tuple[str, ...]:
        return tuple(re.findall(r"\w+|[^\w\s]", text))

    pairs = tuple((int(source), int(place)) for source, place in (pair.split("-") for pair in alignment.split()))
    return document.write([Scrambled(target, pieces(target), pieces(line), pairs)])


IN_ORDER = "0-0 1-1 2-2 3-3 4-4 5-5"
A_RED_DOG = "a <a><b>red</b> <i>old</i></a> <u>dog</u> runs"


@pytest.mark.parametrize(
    ("source", "target", "alignment", "expected"),
    [
        ("Hello <b>world</b>!", "Hallo Welt!", "0-0 1-1 2-2", "Hallo <b>Welt</b>!"),
        ("a <b>red</b> dog", "ein roter Hund", IN_ORDER, "ein <b>roter</b> Hund"),
        ("the <b>big</b> <i>dog</i>", "le chien grand", "0-0 2-1 1-2", "le <i>chien</i> <b>grand</b>"),
        ("<b>he gives up</b> now", "er gibt jetzt auf", "0-0 1-1 3-2 2-3", "<b>er gibt jetzt auf</b>"),
        ("a <a x><b>red</b> dog</a> is", "ein roter Hund ist", IN_ORDER, "ein <a x><b>roter</b> Hund</a> ist"),
        ("a <b></b>red dog", "ein roter Hund", IN_ORDER, "ein <b></b>roter Hund"),
        ("a red<wbr> dog", "ein roter Hund", IN_ORDER, "ein roter<wbr> Hund"),
        ("a <!-- x -->red dog", "ein roter Hund", IN_ORDER, "ein <!-- x -->roter Hund"),
        ("a <b>red</b>, old dog", "ein roter, alter Hund", IN_ORDER, "ein <b>roter</b>, alter Hund"),
        ("a <b>r</b>ed dog", "ein roter Hund", "0-0 1-1 2-1 3-2", "ein <b>roter</b> Hund"),
        ("a </b>red <i>dog", "ein roter Hund", IN_ORDER, "ein</b> roter <i>Hund"),
        ("<b><i>a</b></i> dog", "ein Hund", IN_ORDER, "<b><i>ein</b></i> Hund"),
        # one wrong alignment far away
        ("a <b>red</b> dog is off", "ein roter Hund ist weg", f"{IN_ORDER} 1-4", "ein <b>roter</b> Hund ist weg"),
        # an element without aligned words has the nearest word
        ("a <b>red</b> dog", "ein roter Hund", "0-0 2-2", "ein <b>roter</b> Hund"),
        ("a <b>red</b> dog runs", "ein Hund rennt", "0-0 2-1 3-2", "ein <b>Hund</b> rennt"),
        ("he <a>runs</a>", "er", "0-0", "<a>er</a>"),
        ("a <b>red</b> <i>dog</i> runs", "ein Hund rennt", "0-0 2-1 3-2", "<b>ein</b> <i>Hund</i> rennt"),
        ("<b>red</b> <i>dogs run</i>", "Hunde rennen", "1-0 2-1", "<b>Hunde</b> <i>rennen</i>"),
        ("<b>red</b> <i>dogs</i>", "Hunde", "1-0", "<b></b><i>Hunde</i>"),
        ("a <b>red</b>, old dog", "ein, Hund", "0-0 4-2", "<b>ein</b>, Hund"),
        ("a <b><i>red</b> old</i> dog", "ein Hund", "0-0 3-1", "ein <b><i>Hund</b></i>"),
        ("see <b>{name}</b> now", "jetzt", "2-0", "<b>{name}</b>jetzt"),
        (A_RED_DOG, "ein roter Hund da", "0-0 1-1 3-2", "<a><i>ein</i> <b>roter</b></a> <u>Hund</u> da"),
        # untranslatable parts return: where their stand-in is
        ("Hi {name}, go", "Geh, 11", "", "Geh, {name}"),
        ("Hi <code>a<b></code> now", "Jetzt 11", "", "Jetzt <code>a<b></code>"),
        ("Hi {a}<b>{b}</b>5 now", "Jetzt 11", "", "Jetzt <b>{a}{b}5</b>"),  # they touch: one stand-in
        # a repeated stand-in is left out
        ("{n} red balls", "11 rote 11bälle", "", "{n} rote bälle"),
        ("{n} red balls", "11 rote 11 Bälle 11.", "", "{n} rote Bälle."),
        # without their stand-in: for the words aligned to it, or beside their neighbours' translation
        ("Hi {name} now", "Hallo Elf jetzt", "0-0 1-1 2-2", "Hallo {name} jetzt"),
        ("Hi {name} now", "Hallo jetzt", "0-0 2-1", "Hallo {name} jetzt"),
        ("{name} runs", "rennt", "1-0", "{name} rennt"),
        ("{name}s run", "rennen", "2-0", "{name}rennen"),
    ],
)
def test_tags_and_parts_follow_their_words(source: str, target: str, alignment: str, expected: str) -> None:
    assert translate(source, target, alignment) == expected


def test_characters_are_escaped_as_the_format_writes_them() -> None:
    html = "Tom &amp; Jerry &lt; <b>Max</b>"
    assert translate(html, "Tom & Jerry < Max", IN_ORDER) == html
    assert translate("<a>Tom &#38; Jerry</a>", "Tom & >Jerry", IN_ORDER, "xml") == "<a>Tom &amp; &gt;Jerry</a>"
    assert translate("fish", "x<script>", "0-0") == "x&lt;script&gt;"


def test_a_stand_in_is_no_number_of_the_line() -> None:
    assert read_document("{n} of 11 or 22", "text", "en").lines == ["33 of 11 or 22"]
