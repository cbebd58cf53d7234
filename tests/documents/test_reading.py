"""What a document's lines are, what stays as it is, and what is refused."""

from __future__ import annotations

import sys

import pytest

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
        ("html", "a < b &lt; c &copy 1 &unknown; d", ["a < b < c © 1 &unknown; d"]),
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
