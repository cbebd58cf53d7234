"""Segments of .sgm files, on made-up ones and on WMT's own."""

from collections import Counter
from pathlib import Path

import pytest

from nmt_cli.corpora.sgm import segments
from nmt_cli.errors import DataError
from nmt_cli.text.lines import decoded_lines, open_binary

WMT = Path(__file__).parents[2] / "../shared/data/wmt-newstest"
originals = pytest.mark.skipif(
    not WMT.is_dir(), reason="the original test sets are not beside the project (../shared/data/wmt-newstest)"
)


def lines(text: str) -> list[str]:
    return list(segments(text.split("\n"), "made.sgm"))


def original(name: str) -> list[str]:
    with open_binary(WMT / "sgm" / f"{name}.sgm.gz") as stream:
        return list(segments(decoded_lines(stream, name, Counter()), name))


def test_the_text_of_each_segment_is_a_line() -> None:
    text = '<srcset setid="x" srclang="any">\n<doc docid="a">\n<hl>\n<seg id="1">One.</seg>\n</hl>\n<p>\n<seg id="2"> Two\u00a0\u2003 words \t</seg>\n<seg id="3"></seg>\n</p>\n</doc>\n</srcset>\n'
    assert lines(text) == ["One.", "Two words", ""]
    text = '<SEG id=1>a</SEG><seg id="2">b</seg> <seg>c\nd\n  e</seg>\n<seg id="4">f</seg>'
    assert lines(text) == ["a", "b", "c d e", "f"]
    assert lines('<seg id="1">R&D &amp; a < b <i>c</i> <segment></seg>') == ["R&D &amp; a < b <i>c</i> <segment>"]
    assert lines('<seg id="1">a\u2028b\x85c</seg>\r\n') == ["a b c"]


@pytest.mark.parametrize("text", ['<seg id="1">a\n<seg id="2">b</seg>', '<p>\n<seg id="1">a</seg>\n<seg id="2">b'])
def test_a_segment_that_is_not_closed_is_a_named_fault(text: str) -> None:
    with pytest.raises(DataError, match=r"'made.sgm': the <seg> of line \d is not closed"):
        lines(text)


def test_a_file_without_segments_is_a_named_fault() -> None:
    with pytest.raises(DataError, match=r"'made\.sgm' holds no <seg>"):
        lines("one\ntwo\n")


PLAIN = {
    "newstest2013-ref.fr": "newstest2013.fr",
    "newstest2014-deen-src.en": "newstest2014-ende-filtered.en",
    "newstest2014-fren-ref.fr": "newstest2014-enfr.fr",
}


@originals
@pytest.mark.parametrize("name", PLAIN)
def test_wmts_own_files_come_out_as_the_plain_text(name: str) -> None:
    found = original(name)
    assert found == (WMT / PLAIN[name]).read_text(encoding="utf-8").split("\n")[:-1]
    assert len(found) == (3000 if "2013" in name else 2737 if "filtered" in PLAIN[name] else 3003)


@originals
def test_the_english_of_all_3003_lines_is_that_of_the_full_set() -> None:
    """test-full's en-de direction has the documents of its de-en direction, whose English is here as the reference."""
    full, filtered = original("newstest2014-deen-ref.en"), original("newstest2014-deen-src.en")
    assert full == (WMT / "newstest2014-ende-full.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert set(filtered) <= set(full)
