"""What a document's lines are, what stays as it is, and what is refused. Where tags and untranslatable parts go, each
rule by an example with its alignment.
"""

import re
import sys

import pytest
from random_documents import Scrambled

from nmt_cli.documents import read_document
from nmt_cli.errors import DocumentError, UsageError

MANY = "".join(f"<p>A {number}<p translate=no><b>no {number}</b><div translate=yes>" for number in range(9))
ITS = "xmlns:its='http://www.w3.org/2005/11/its'"


@pytest.mark.parametrize(
    ("format", "text", "lines"),
    [
        ("text", "A dog. A cat.\nA man", ["A dog.", "A cat.", "A man"]),
        ("text", "Mr. Smith has 3.5 dogs.", ["Mr. Smith has 3.5 dogs."]),
        ("text", "A\tb\r\nc", ["A", "b", "c"]),
        ("text", "12 34\n---\n{x}", []),
        ("text", "See a.b@c.org. Go", ["See 11.", "Go"]),
        ("html", "A <b>dog.</b> A\ncat<br>A man", ["A dog.", "A cat", "A man"]),
        ("html", "<p>A<p>b<li>c<td>d", ["A", "b", "c", "d"]),
        ("html", "<title>A &amp; b</title>", ["A & b"]),
        ("html", "<b title='no'>A</b><x-y>b</x-y>", ["Ab"]),
        ("html", "<script>no</script><style>no</style><pre>no</pre><textarea>no</textarea><svg>no</svg>", []),
        ("html", "<code>no</code> <kbd>no</kbd> <span class='x notranslate'>no <b>no</b></span>", []),
        ("html", "<p translate=no>no <i>no</i></p><p translate=yes>A", ["A"]),
        ("html", "<li translate=no>no<li>A", ["A"]),
        ("html", "<ul translate=no>no<li translate=yes>A <i translate=no>no</i><li>no</ul>b", ["A 11", "b"]),
        ("html", "<p>A <i translate=no>no <b translate=yes>dog</b> no</i> b", ["A 11 dog 22 b"]),
        ("html", "<code translate=yes>A</code><script translate=yes>no</script>", ["A"]),
        ("html", "<b class=notranslate translate=yes>no</b> A", ["11 A"]),
        ("html", MANY, [f"A {number}" for number in range(5)]),
        ("xml", f"<d its:translate='no' {ITS}><p>no</p><p its:translate='yes'>A</p></d>", ["A"]),
        ("html", "<!-- no --><!doctype no><?no?>", []),
        ("html", "won&shy;der<wbr>ful<sup><a>[1]</a></sup> so<a>¶</a> H<sub>2</sub>O", ["wonderful so H2O"]),
        ("html", "a <sup>1</sup>b 1<sup>st</sup> <b>c</b><sup>*</sup>", ["a 1b 1st c"]),
        ("html", "a < b &lt; c &copy 1 &unknown; d", ["a < b < c © 1 11 d"]),
        ("xml", "<d><p>A <b>dog</b></p><p>b</p></d>", ["A dog", "b"]),
        ("xml", "<d>A <![CDATA[no <b>]]> dog<?no x?><!-- no --></d>", ["A 11 dog"]),
        ("xml", "<?xml version='1.0'?><d><t>A</t><t>b</t></d>", ["A", "b"]),
    ],
)
def test_lines(format: str, text: str, lines: list[str]) -> None:
    assert read_document(text, format, "en").lines == lines


def test_where_sentences_end_can_be_chosen() -> None:
    text = "A dog. A\ncat"
    for how, lines in {"1": ["A dog.", "A", "cat"], "nonewlines": ["A dog.", "A cat"], "0": ["A dog. A cat"]}.items():
        assert read_document(text, "text", "en", split_sentences=how).lines == lines
        assert read_document(text, "html", "en", split_sentences=how).lines == lines
    with pytest.raises(UsageError, match="split_sentences is 'x': expected '0'"):
        read_document(text, "text", split_sentences="x")


@pytest.mark.parametrize(
    ("languages", "text", "count"),
    [
        ("de deu ger de-AT", "Er kam am 3. Mai. Sie ging.", 2),  # every code has the language's abbreviations
        ("en de xx zh", "Er sagt: „Gut. Sie kam. Er ging.", 3),  # a mark without partner hides no sentence
    ],
)
def test_ends_of_sentences(languages: str, text: str, count: int) -> None:
    for language in languages.split():
        assert len(read_document(text, "text", language).lines) == count, language


def test_a_missing_library_and_an_unknown_format_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="'pdf'"):
        read_document("A", "pdf")
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(UsageError, match=r"pip install .*'sentencex>="):
        read_document("A", "text")


LAUGHS = "<!DOCTYPE l [<!ENTITY a 'ha'><!ENTITY b '&a;&a;'>]><l>&b;</l>"


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("xml", "<a>\n<b></a>", "line 2, column 6: mismatched tag"),
        ("xml", "<a>&nbsp;</a>", "line 1, column 4: undefined entity"),
        ("xml", "A", "line 1, column 1"),
        ("xml", LAUGHS, "declares the entity 'a'"),
        ("xml", "<!DOCTYPE l [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><l>&x;</l>", "declares the entity 'x'"),
        ("xml", "<b>" * 100_000 + "</b>" * 100_000, "nested 10,001 deep"),
        ("html", "<b>" * 100_000, "line 1, column 30,001: elements are nested 10,001 deep"),
        ("html", f"x\n<a title='{'x' * 2_000_000}'>", "line 2, column 1: the tag"),
        ("xml", f"<a title='{'x' * 2_000_000}'/>", "has 2,000,013 characters: expected at most"),
    ],
)
def test_what_is_not_safe_or_not_well_formed_is_refused(format: str, text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read_document(text, format)


def test_the_dtd_of_a_doctype_is_not_read_and_its_entities_stay() -> None:
    doctype = '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://localhost:1/x.dtd">'
    text = f'{doctype}<html xmlns="http://www.w3.org/1999/xhtml"><p>A&nbsp;<b>man</b> &own; b</p></html>'
    assert read_document(text, "xml", "en").lines == ["A man 11 b"]


PIECES = (
    r"""<|<a |<b>x</b> |a<!-- x -->|<!--|{a} b |a@|{|%|1|&|&amp;|"|a. | |a\n|x<wbr>|<code>x</code> a |http://|a-|</b>"""
)


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES.replace(r"\n", "\n").split("|"))
def test_time_is_linear(piece: str) -> None:
    """Quadratic time would be longer than the time limit of a test."""
    assert read_document(piece * (400_000 // len(piece)), "html", "en")


# Tags and parts of the translation


def translate(text: str, target: str, alignment: str, format: str = "html") -> str:
    """Translate a document of one sentence; the alignment is of pairs of tokens: a word or a punctuation mark each."""
    document = read_document(text, format, "en", split_sentences="0")
    [line] = document.lines

    def pieces(text: str) -> tuple[str, ...]:
        return tuple(re.findall(r"\w+|[^\w\s]", text))

    pairs = tuple((int(source), int(place)) for source, place in (pair.split("-") for pair in alignment.split()))
    return document.write([Scrambled(target, pieces(target), pieces(line), pairs)]).text


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
        ("a </b>red <i>dog", "ein roter Hund", IN_ORDER, "ein </b>roter <i>Hund"),
        ("<b><i>a</b></i> dog", "ein Hund", IN_ORDER, "<b><i>ein</b></i> Hund"),
        # one wrong alignment far away
        ("a <b>red</b> dog is off", "ein roter Hund ist weg", f"{IN_ORDER} 1-4", "ein <b>roter</b> Hund ist weg"),
        # inside a word: at the same place in the same word, else around the word
        ("<b>H</b>2<i>O</i> falls", "fällt H2O", "1-0 0-1", "fällt <b>H</b>2<i>O</i>"),
        ("un<b>believ</b>able news", "neu, unglaublich", "0-2 1-0", "neu, <b>unglaublich</b>"),
        ("a <b>r</b><i>e</i>d dog", "ein roter Hund", IN_ORDER, "ein <b>roter</b> <i></i>Hund"),
        ("a <b>r</b><i>e</i><u>d</u> dog", "ein Hund, rot", "0-0 1-3 2-1", "ein Hund, <b>rot</b><i></i><u></u>"),
        ("a ste<wbr>am ship", "ein Schiff", "0-0 2-1", "ein <wbr>Schiff"),
        ("so<sup>1</sup> it is", "es ist so", "1-0 2-1 0-2", "es ist so<sup>1</sup>"),
        ("Auto &brackets", "Suportes automáticos.", "0-0 0-1", "Suportes &automáticos."),
        # what has no words keeps its white space
        ("a <i></i> dog is <x/>red <u></u>", "rot, Hund", "3-0 1-2", "<x/>rot, <i></i> Hund <u></u>"),
        # an element without aligned words has the nearest word
        ("a <b>red</b> dog", "ein roter Hund", "0-0 2-2", "ein <b>roter</b> Hund"),
        ("a <b>red</b> dog runs", "ein Hund rennt", "0-0 2-1 3-2", "ein <b>Hund</b> rennt"),
        ("he <a>runs</a>", "er", "0-0", "<a>er</a>"),
        ("a <b>red</b> <i>dog</i> runs", "ein Hund rennt", "0-0 2-1 3-2", "<b>ein</b> <i>Hund</i> rennt"),
        ("<b>red</b> <i>dogs run</i>", "Hunde rennen", "1-0 2-1", "<b>Hunde</b> <i>rennen</i>"),
        ("<b>red</b> <i>dogs</i>", "Hunde", "1-0", "<b></b><i>Hunde</i>"),
        ("a <b>red</b>, old dog", "ein, Hund", "0-0 4-2", "<b>ein</b>, Hund"),
        ("a <b><i>red</b> old</i> dog", "ein Hund", "0-0 3-1", "ein <b><i>Hund</b></i>"),
        ("see <b>{name}</b> now", "jetzt", "2-0", "<b>{name}</b> jetzt"),
        (A_RED_DOG, "ein roter Hund da", "0-0 1-1 3-2", "<a><i>ein</i> <b>roter</b></a> <u>Hund</u> da"),
        # untranslatable parts return: where their stand-in is
        ("Hi {name}, go", "Geh, 11", "", "Geh, {name}"),
        ("Hi <code>a<b></code> now", "Jetzt 11", "", "Jetzt <code>a<b></code>"),
        ("Hi {a}<b>{b}</b>5 now", "Jetzt 101", "", "Jetzt {a}<b>{b}</b>5"),  # they touch: one stand-in
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
    assert translate("<a>Tom &#38; Jerry</a>", "Tom & >Jerry", IN_ORDER, "xml") == "<a>Tom &#38; &gt;Jerry</a>"
    assert translate("fish", "x<script>", "0-0") == "x&lt;script&gt;"


def test_a_stand_in_is_no_number_of_the_line() -> None:
    assert read_document("{n} of 11 or 22", "text", "en").lines == ["33 of 11 or 22"]
