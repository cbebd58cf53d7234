"""Tables: columns, to the byte."""

import pytest

from nmt_cli.cli.table import Column, Table, show

TABLE = Table(
    "BLEU  nrefs:1  [x]",
    [Column("score", 6), Column("p", 7, left=True), Column("system", left=True)],
    [["28.98", "-", "a [b] c"], ["8.2", "0.0010*", "d"]],
)


def test_columns(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show(["first", TABLE])
    assert capfdbinary.readouterr().out == (
        b"first\n\nBLEU  nrefs:1  [x]\n score  p        system\n 28.98  -        a [b] c\n   8.2  0.0010*  d\n"
    )


def test_names_that_are_not_utf8_do_not_stop_the_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    table = Table("t", [Column("system", left=True)], [["caf\udce9 ü"]])
    show([table])
    assert capfdbinary.readouterr().out == "t\nsystem\ncaf\\udce9 ü\n".encode()
