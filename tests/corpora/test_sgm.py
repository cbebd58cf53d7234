"""Segments of .sgm files, on made-up ones and on WMT's own."""

from collections import Counter
from pathlib import Path

import pytest

from nmt_cli.corpora.sgm import segments
from nmt_cli.errors import DataError
from nmt_cli.text.lines import decoded_lines, open_binary

WMT = Path(__file__).parents[2] / "../shared/data/wmt-newstest"


def lines(text: str) -> list[str]:
    return list(segments(text.split("\n"), "made.sgm"))


def test_the_text_of_each_segment_is_a_line() -> None:
    text = '<srcset setid="x" srclang="any">\n<doc docid="a">\n<hl>\n<seg id="1">One.</seg>\n</hl>\n<p>\n<seg id="2"> Two\u00a0\u2003 words \t</seg>\n<seg id="3"></seg>\n</p>\n</doc>\n</srcset>\n'
    assert lines(text) == ["One.", "Two words", ""]
    text = '<SEG id=1>a</SEG><seg id="2">b</seg> <seg>c\nd\n  e</seg>\n<seg id="4">f</seg>'
    assert lines(text) == ["a", "b", "c d e", "f"]
    assert lines('<seg id="1">R&D &amp; a < b <i>c</i> <segment></seg>') == ["R&D &amp; a < b <i>c</i> <segment>"]
    assert lines('<seg id="1">a\u2028b\x85c</seg>\r\n') == ["a b c"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<seg id="1">a\n<seg id="2">b</seg>', "the <seg> of line 1 is not closed"),
        ('<p>\n<seg id="1">a</seg>\n<seg id="2">b', "the <seg> of line 3 is not closed"),
        ("one\ntwo\n", "holds no <seg>"),
    ],
)
def test_segments_that_are_not_closed_or_not_there_are_named(text: str, said: str) -> None:
    with pytest.raises(DataError, match=f"'made.sgm'.*{said}"):
        lines(text)


PLAIN = {
    "newstest2013-ref.fr": "newstest2013.fr",
    "newstest2014-deen-src.en": "newstest2014-ende-filtered.en",
    "newstest2014-fren-ref.fr": "newstest2014-enfr.fr",
}


@pytest.mark.skipif(not WMT.is_dir(), reason="the test sets are not beside the project (../shared/data/wmt-newstest)")
@pytest.mark.parametrize("name", PLAIN)
def test_wmts_own_files_come_out_as_the_plain_text(name: str) -> None:
    with open_binary(WMT / "sgm" / f"{name}.sgm.gz") as stream:
        found = list(segments(decoded_lines(stream, name, Counter()), name))
    assert found == (WMT / PLAIN[name]).read_text(encoding="utf-8").split("\n")[:-1]
