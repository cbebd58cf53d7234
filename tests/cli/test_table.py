"""Tables: plain columns into a pipe, to the byte; lines drawn on a terminal, with the same cells."""

import io
import re
import sys

import pytest

from nmt_cli.cli.table import Column, Table, show

TABLE = Table(
    "BLEU  nrefs:1  [x]",
    [Column("score", 6), Column("p", 7, left=True), Column("system", left=True)],
    [["28.98", "-", "a [b] c"], ["8.2", "0.0010*", "d"]],
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_columns_into_a_pipe(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show(["first", TABLE])
    assert capfdbinary.readouterr().out == (
        b"first\n\nBLEU  nrefs:1  [x]\n score  p        system\n 28.98  -        a [b] c\n   8.2  0.0010*  d\n"
    )


def test_names_that_are_not_utf8_do_not_stop_the_output(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table("t", [Column("system", left=True)], [["caf\udce9 ü"]])
    show([table])
    assert capfdbinary.readouterr().out == "t\nsystem\ncaf\\udce9 ü\n".encode()
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    show([table])
    assert "caf\\udce9 ü" in screen.getvalue()


@pytest.mark.parametrize("columns", [40, 120])
def test_lines_are_drawn_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    long = "very/long/path/of/a/system/" * 3
    show(["first [line]", Table(TABLE.title, TABLE.columns, [*TABLE.rows, ["12345.6", "1.0000", long]])])
    text = re.sub(r"\x1b\[[\d;]*m", "", screen.getvalue())  # without colours
    lines = text.splitlines()
    assert lines[0] == "first [line]"
    assert "BLEU  nrefs:1  [x]" in text
    assert any("│" in line for line in lines)
    for cell in ("score", "system", "28.98", "0.0010*", "a [b] c", "12345.6"):
        assert cell in text
    if columns == 120:
        assert long in text
    else:  # what does not fit goes on below: no number is cut
        assert "…" not in text
        assert "".join(line.split("│")[3].strip() for line in lines if line.count("│") == 4).endswith(long)
