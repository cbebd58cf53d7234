"""What the shell is answered after Tab."""

from __future__ import annotations

import pytest

from nmt_cli.cli.app import run


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nmt tran", ["translate"]),
        ("nmt impo", ["import"]),
        ("nmt train multi30k_en_de", ["multi30k_en_de", "multi30k_en_de_tok"]),
        ("nmt train mi", []),  # the shell completes names of files
        ("nmt translate --model ", []),
    ],
    ids=str,
)
def test_completion(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, expected: list[str]
) -> None:
    number = len(line.split(" ")) - 1
    for name, value in {"_NMT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(number)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        run()
    assert (ended.value.code, capsys.readouterr().out.split()) == (0, expected)
