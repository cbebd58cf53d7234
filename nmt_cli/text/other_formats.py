"""Recognises files that are not lines of UTF-8 text, by their content: nobody trains on markup, tables or noise.

    paths ── check_text_files ──▶ first bytes ──▶ format, encoding ──▶ DataError with a tool that makes text of it
    lines with invalid UTF-8, counted while reading ── check_replaced ──▶ the same error

`nmt init` and `nmt preprocess` call both. A few damaged lines stay a warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import DataError
from .encodings import UTF8_MARK, refused, wide_encoding
from .lines import NO_TEXT, decode_line, iter_lines, open_binary

HEAD = 1 << 20
"""Number of first bytes, after decompression, by which formats are recognised."""
MOST_LINES = 1000
"""Most lines that are examined."""
BINARY = 0.01
"""Share of control characters from which a file is not text."""
FEW_INVALID, INVALID = 5, 0.5
"""Text is in another encoding if FEW_INVALID lines, and INVALID of the lines that are not ASCII, are invalid UTF-8."""
SEPARATED = {"TSV": "\t", "a table with |||": " ||| "}
"""Formats → the separator of columns."""
TOOLS = {
    "TSV": ", for example with cut -f1",
    "a table with |||": ", for example with awk -F ' [|][|][|] ' '{print $1}'",
    **dict.fromkeys(("TMX", "XLIFF", "PO"), ", for example with Okapi's tikal -2tbl, which makes a table of it"),
    **dict.fromkeys(("JSON", "JSONL"), ", for example with jq"),
    "CSV": ", for example with csvcut of csvkit",
    "Parquet": ", for example with duckdb",
}
"""Formats → a tool that takes one side out of them."""
MAGIC = {b"PAR1": "Parquet", b"%PDF-": "PDF", b"{\\rtf": "RTF", b"\xd0\xcf\x11\xe0": "a Microsoft Office file"}
MARKUP = {
    "TMX": re.compile(r"<tmx[\s>]"),
    "XLIFF": re.compile(r"<xliff[\s>]"),
    "SGML": re.compile(r"<(srcset|refset|tstset|mteval|doc)\s[^>]*>\s*<"),
    "HTML": re.compile(r"<!doctype html|<html[\s>](?!.*</html>)", re.IGNORECASE),
}
"""Formats by their first element, after declarations and comments."""
BEFORE = re.compile(r"\s*(<\?.*?\?>\s*|<!--.*?-->\s*|<!doctype (?!html)[^>]*>\s*)*", re.DOTALL | re.IGNORECASE)
JSON_LINE = re.compile(r'\s*([\[{]\s*($|[\[\]{}"\d-])|[\]}"]|-?\d|true|false|null)')
PO_LINE = re.compile(r'#|msgid |msgid_plural |msgstr |msgstr\[|msgctxt |"|\s*$')
SUBTITLES = re.compile(r"(WEBVTT|\d+\r?\n)[^\0]{0,200}?\d\d:\d\d[,.]\d{3} --> \d\d")


def check_text_files(paths: Iterable[Path]) -> None:
    """Raise DataError if files are not lines of UTF-8 text, with all of them and what to do."""
    faults = [fault for path in dict.fromkeys(paths) if (fault := _fault(path))]
    if faults:
        raise DataError("\n".join(faults))


def check_replaced(replaced: Mapping[str, int]) -> None:
    """Raise DataError if files are in another encoding. `replaced`: number of lines with invalid UTF-8, by file."""
    faults = [_other_encoding(Path(path), None) for path, lines in replaced.items() if lines >= FEW_INVALID]
    if any(faults):
        raise DataError("\n".join(filter(None, faults)))


def _fault(path: Path) -> str:
    """Return what is wrong with a file and what to do, or ""."""
    with open_binary(path) as stream:
        head = stream.read(HEAD).removeprefix(UTF8_MARK)
    if encoding := wide_encoding(head):
        return refused(repr(str(path)), encoding)
    name = next((name for magic, name in MAGIC.items() if head.startswith(magic)), "")
    if not name and len(NO_TEXT.findall(head)) > BINARY * len(head):
        name = "binary data"
    text = head.decode(errors="replace")
    lines = text.split("\n")[: MOST_LINES + 1]
    lines = [line for line in lines[:-1] or lines if line.strip()]  # the last one may be cut
    if name := name or _format(text, lines, path):
        return (
            f"{str(path)!r} is {name}: expected text, one sentence per line. "
            f"Write each side to a file of its own{TOOLS.get(name, '')}."
        )
    return _other_encoding(path, HEAD)


def _format(text: str, lines: Sequence[str], path: Path) -> str:
    """Return the name of a format, or "" for text. `lines`: the first lines that are not blank."""
    if not lines:
        return ""
    start = text[BEFORE.match(text).end() :]  # type: ignore[union-attr]
    if name := next((name for name, element in MARKUP.items() if element.match(start)), ""):
        return name
    if text.startswith("<?xml") and sum("<" in line for line in lines) > len(lines) / 2:
        return "XML"
    if all(isinstance(_parsed(line), dict) for line in lines):
        return "JSONL"
    if re.match(r"\s*[\[{]", text) and all(map(JSON_LINE.match, lines)) and any('":' in line for line in lines):
        return "JSON"
    if {"msgid", "msgstr"} <= {line.split(" ")[0] for line in lines} and all(map(PO_LINE.match, lines)):
        return "PO"
    if SUBTITLES.match(text):
        return "a file of subtitles"
    for name, separator in SEPARATED.items():
        if all(separator in line for line in lines):
            return name
    is_table = ".csv" in path.suffixes and any(all(mark in line for line in lines) for mark in ",;")
    return "CSV" if is_table else ""


def _parsed(text: str) -> Any:
    """Return the value of a text in JSON, or None."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _other_encoding(path: Path, limit: int | None) -> str:
    """Return what to do with a file that is not UTF-8, or "". `limit`: number of first bytes to examine; None: all."""
    first, others, count, size = b"", 0, 0, 0
    with open_binary(path) as stream:
        for line in iter_lines(stream, any_bytes=True):
            size += len(line) + 1
            if limit is not None and size > limit:
                break
            if b"\x1b$B" in line:
                return refused(repr(str(path)), "ISO-2022-JP")
            if not line.isascii():
                others += 1
                if decode_line(line)[1]:
                    first, count = first or line, count + 1
    if count < FEW_INVALID or count < INVALID * others:
        return ""
    return (
        f"{str(path)!r} is not UTF-8 text: {count:,} lines are invalid, such as {first[:40]!r}. Convert it: iconv -f "
        "ENCODING -t UTF-8 FILE > FILE.utf8, with its encoding, such as WINDOWS-1252, KOI8-R or GB18030. The tool "
        "uchardet names it."
    )
