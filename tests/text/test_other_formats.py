"""Files that are not lines of text are refused with a tool that makes text of them; text is never refused."""

import csv
import gzip
import io
import json
import random
import subprocess
from pathlib import Path

import pytest
from backports import zstd

from nmt_cli.errors import DataError
from nmt_cli.text.other_formats import check_replaced, check_text_files

PAIRS = [(f'The {n} cats, "see" <b> & dogs.', f"Die {n} Kätzchen; hören {n * n} Hunde.") for n in range(50)]
SENTENCES = "\n".join(f"This is the sentence of a café with the number {n}, and it is für zwei." for n in range(100))


def table(delimiter: str, *rows: tuple[str, str]) -> str:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows([*rows, *PAIRS])
    return stream.getvalue()


XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
XLIFF = "urn:oasis:names:tc:xliff:document"


def units(form: str) -> str:
    """The pairs in XML, one at a place of {} and {}."""
    return "\n".join(form.format(*(text.replace("&", "&amp;").replace("<", "&lt;") for text in pair)) for pair in PAIRS)


SEPARATED = {
    "TSV": "".join(f"{en}\t{de}\n" for en, de in PAIRS),
    "a table with |||": "".join(f"{en} ||| {de}\n" for en, de in PAIRS),
}
OTHERS = {
    "CSV": table(",", ("source", "target")),
    "CSV without a header": table(";"),
    "JSONL": "".join(json.dumps({"id": "1", "translation": {"en": en, "de": de}}) + "\n" for en, de in PAIRS),
    "JSON": json.dumps([{"source": en, "target": de} for en, de in PAIRS], indent=2),
    "JSON in one line": json.dumps([{"source": en, "target": de} for en, de in PAIRS]),
    "TMX": f'{XML}<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>One</seg></tuv></tu>'
    + units('<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg><b/>{}</seg></tuv></tu>')
    + "</body></tmx>",
    "XLIFF 1.2": f'{XML}<xliff version="1.2" xmlns="{XLIFF}:1.2"><file><body><trans-unit><source>One</source></trans-unit>'
    + units("<trans-unit><source>{}</source><target>{}</target><alt-trans><target>x</target></alt-trans></trans-unit>")
    + "</body></file></xliff>",
    "XLIFF 2.0": f'{XML}<!-- a comment -->\n<xliff xmlns="{XLIFF}:2.0" version="2.0"><file><unit>'
    + units("<segment><source>{}</source><target><pc>{}</pc></target></segment>")
    + "<segment><source>One</source></segment></unit></file></xliff>",
    "PO": '# comment\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n\n#: a.c:1\nmsgid "cat"\nmsgstr "Katze"\n',
    "SGML": '<srcset setid="x" srclang="any">\n<doc docid="a">\n<seg id="1">A cat.</seg>\n</doc></srcset>\n',
    "HTML": "<!DOCTYPE html>\n<html><body>cat</body></html>\n",
    "XML": f"{XML}<a>\n<b>cat</b>\n</a>\n",
    "a file of subtitles": "1\n00:00:01,000 --> 00:00:02,000\nA cat.\n\n2\n",
    "Parquet": "PAR1\x15\x04",
    "PDF": "%PDF-1.4\n%",
    "binary data": "\x00\x01\x02cat" * 100,
}


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as error:
        check_text_files([path])
    return str(error.value)


@pytest.mark.parametrize("name", SEPARATED)
def test_the_command_for_a_table_writes_a_side(tmp_path: Path, name: str) -> None:
    path = tmp_path / "my $text.txt"
    path.write_text(SEPARATED[name], encoding="utf-8")
    said = refusal(path)
    assert said.startswith(f"{str(path)!r} is {name}")
    command = said.split("for example with ")[1].removesuffix(".")
    written = subprocess.run(["bash", "-c", f"{command} < '{path}'"], check=True, stdout=subprocess.PIPE).stdout
    assert written.decode() == "".join(f"{source}\n" for source, _ in PAIRS)


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats(tmp_path: Path, name: str) -> None:
    path = tmp_path / ("text.csv.zst" if name.startswith("CSV") else "text.en")
    path.write_bytes(zstd.compress(OTHERS[name].encode()))
    kind = name if name[0].islower() else name.split()[0]
    assert refusal(path).startswith(f"{str(path)!r} is {kind}: expected text, one sentence per line. Write ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1\nA cat.\n",
        "A cat\twith a tab.\nA cat without one.\n",
        '{"a": 1}\nA cat.\n',
        "<html>A cat.</html>\nA dog.\n",
        '"A cat," she said.\n"A dog," he said.\n' * 20,
        "(S (NP XX XX )NP (VP XX )VP XX )S\n" * 20,
        "%s: \x1b[1mA cat\x1b[0m\x01\n" + "A longer line about a dog that has no such characters.\n" * 20,
    ],
)
def test_text_is_not_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "text.en").write_text(text, encoding="utf-8")
    check_text_files([tmp_path / "text.en"])


def test_all_files_are_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("A cat.\n" if name == "b" else SEPARATED["TSV"], encoding="utf-8")
    with pytest.raises(DataError, match=r"(?s)/a' is TSV.*\n.*/c' is TSV") as error:
        check_text_files([tmp_path / name for name in "abca"])
    assert str(error.value).count("\n") == 1


def test_another_encoding(tmp_path: Path) -> None:
    texts = {"WINDOWS-1252": "Die Straße", "KOI8-U": "Это дом", "EUC-JP": "私の家", "BIG5": "這是我的家"}
    for encoding, text in texts.items():
        path = tmp_path / "text.xx.gz"
        path.write_bytes(gzip.compress(f"{text}\n".encode(encoding) * 20 + b"ASCII\n" * 50))
        said = refusal(path)
        assert said.startswith(f"'{path}' is not UTF-8 text: 20 lines are invalid, such as b'")
        assert "iconv -f ENCODING -t UTF-8" in said
    (tmp_path / "text").write_bytes("猫\n".encode("iso-2022-jp") * 20)
    assert "iconv -f ISO-2022-JP -t UTF-8" in refusal(tmp_path / "text")


def test_random_bytes_are_refused_and_some_damaged_lines_are_not(tmp_path: Path) -> None:
    text, drawn = tmp_path / "text", random.Random(1)
    text.write_bytes(b"\n".join(bytes(drawn.choices(range(0x80, 0x100), k=20)) for _ in range(20)))
    assert "is not UTF-8 text" in refusal(text)
    lines = SENTENCES.encode().split(b"\n")
    text.write_bytes(b"\n".join([line.replace("é".encode(), b"\xc3") for line in lines[:40]] + lines[40:]))
    check_text_files([text])
    check_replaced({str(text): 40})
    text.write_bytes(b"This is the beginning.\n" * 60_000 + SENTENCES.encode("latin-1"))
    check_text_files([text])
    with pytest.raises(DataError, match="100 lines are invalid"):
        check_replaced({str(text): 100})
