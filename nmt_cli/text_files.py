"""Recognises files that are not lines of UTF-8 text, by their content: nobody trains on markup, tables or noise.

    paths ── check_text_files ──▶ first bytes ──▶ format, encoding ──▶ DataError with the command to run
    lines with invalid UTF-8, counted while reading ── check_replaced ──▶ encoding ──▶ the same error

`nmt init` and `nmt preprocess` call both. A few damaged lines stay a warning.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .compression import FORMATS
from .encodings import UTF8_MARK, refused, wide_encoding
from .errors import DataError
from .function_words import LANGUAGES, function_word_shares
from .lines import NO_TEXT, iter_lines, open_binary

HEAD = 1 << 20
"""Number of first bytes, after decompression, by which formats are recognised."""
MOST_LINES = 1000
"""Most lines that are examined."""
BINARY = 0.01
"""Share of control characters from which a file is not text."""
FEW_INVALID, INVALID = 5, 0.5
"""Text is in another encoding if FEW_INVALID lines, and INVALID of the lines that are not ASCII, are invalid UTF-8."""
ENCODINGS = {
    "WINDOWS-1252": "en de fr es it pt nl sv da no fi id",
    "ISO-8859-2": "pl cs sk hu ro",
    "WINDOWS-1250": "pl cs sk hu ro",
    "WINDOWS-1254": "tr",
    "WINDOWS-1258": "vi",
    "WINDOWS-1251": "ru uk bg",
    "KOI8-U": "ru uk",
    "CP866": "ru",
    "WINDOWS-1253": "el",
    "WINDOWS-1255": "he",
    "WINDOWS-1256": "ar fa",
    "EUC-JP": "ja",
    "CP932": "ja",
    "CP949": "ko",
    "BIG5": "zh",
    "GB18030": "zh",
}
"""Encodings, by names that both Python and iconv know → languages. If two are as good, the first one counts."""
NAMED = 0.05
"""Smallest share of function words with which an encoding is named."""
DAMAGED, MOST_MIXED = 0.002, 0.1
"""Largest share of characters that an encoding does not have, and of words that mix scripts."""
OTHER_SCRIPT, SYMBOL = "\u0370-\u1dff\u2c00-\U0010ffff", "\u00a1-\u00aa\u00ac-\u00ba\u00bc-\u00bf\u2500-\u259f"
MIXED = re.compile(rf"[A-Za-z][{OTHER_SCRIPT}]|[{OTHER_SCRIPT}][A-Za-z]|[^\W\d_][{SYMBOL}]|[{SYMBOL}][^\W\d_]")
DAMAGE = re.compile("[\ufffd\u0080-\u009f]")

SEPARATED = {"TSV": ("\t", "cut -f{}"), "a table with |||": (" ||| ", "awk -F ' [|][|][|] ' '{{print ${}}}'")}
"""Formats → the separator of columns, and the command that prints a column."""
TOOLS = {
    **dict.fromkeys(("TMX", "XLIFF", "PO"), ", for example with Okapi's tikal -2tbl, which makes a table of it"),
    **dict.fromkeys(("JSON", "JSONL"), ", for example with jq"),
    "CSV": ", for example with csvcut of csvkit",
    "Parquet": ", for example with duckdb",
}
"""Formats → a tool that takes text out of them."""
FEWEST_ROWS = 10
"""Number of rows of CSV that has not .csv in its name."""
COLUMNS = {
    "id",
    "source",
    "target",
    "src",
    "tgt",
    "trg",
    "text",
    "translation",
    "sentence",
    "label",
    "score",
    "english",
}
"""Names of columns, in lower case."""
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
        advice = _advice(name, lines, path)
        return f"{str(path)!r} is {name}: expected text, one sentence per line. {advice}"
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
    for name, (separator, _) in SEPARATED.items():
        if all(separator in line for line in lines):
            return name
    return "CSV" if _delimiter(lines, path) else ""


def _parsed(text: str) -> Any:
    """Return the value of a text in JSON, or None."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _delimiter(lines: Sequence[str], path: Path) -> str:
    """Return the delimiter if the lines are CSV, else "".

    Then all rows have as many cells, and this is no chance: there is a header, a quoted delimiter, or the name says it.
    """
    for delimiter in ",;":
        with suppress(csv.Error):
            rows = list(csv.reader(lines, delimiter=delimiter, strict=True))
            whole = rows[:-1] if len(rows) >= FEWEST_ROWS else rows  # the last one may be cut
            if len({len(row) for row in whole}) == 1 < len(rows[0]):
                quoted = re.compile(rf'(^|{delimiter})"[^"]*{delimiter}[^"]*"({delimiter}|\r?$)')
                likely = len(rows) >= FEWEST_ROWS and (_is_header(rows[0]) or any(map(quoted.search, lines)))
                if likely or ".csv" in path.suffixes:
                    return delimiter
    return ""


def _is_header(cells: Sequence[str]) -> bool:
    """Return whether cells are names, two of which are usual ones for columns, or codes of languages."""
    usual = [cell for cell in cells if cell.lower() in COLUMNS or cell in LANGUAGES]
    return len(usual) >= 2 and all(re.fullmatch(r"\w[\w .-]{,30}", cell) for cell in cells)


def _advice(name: str, lines: Sequence[str], path: Path) -> str:
    """Return what to do with a file: the commands that write its two sides to new files, or the name of a tool."""
    if name == "SGML":
        command = r"sed -n 's:.*<seg[^>]*>\(.*\)</seg>.*:\1:p'"
        return f"Write its sentences to a file: {_from(path, command)} > {_new(path, '-text.en')}"
    if name not in SEPARATED:
        return f"Write each side to a file of its own{TOOLS.get(name, '')}."
    separator, command = SEPARATED[name]
    columns = _columns([line.split(separator) for line in lines])
    sides = (_new(path, ending) for ending in ("-text.en", "-text.de"))
    cuts = [f"{_from(path, command.format(column))} > {side}" for column, side in zip(columns, sides, strict=False)]
    return f"Write each side to a file of its own, such as: {'; '.join(cuts)}"


def _new(path: Path, ending: str) -> str:
    """Return the name of a file beside `path` that does not exist, quoted for a shell: the command replaces nothing."""
    stem = (path.with_suffix("") if path.suffix in FORMATS else path).with_suffix("")
    names = (stem.with_name(f"{stem.name}{number}{ending}") for number in ("", *range(2, 1000)))
    return shlex.quote(str(next((name for name in names if not name.exists()), f"FILE{ending}")))


def _columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the numbers of the first two columns that look like sentences, not like numbers or codes; else [1, 2]."""
    sentences = []
    for column in range(min(map(len, rows))):
        cells = [row[column] for row in rows]
        letters, digits = (sum(map(kind, "".join(cells))) for kind in (str.isalpha, str.isdigit))
        if letters > digits and len(set(cells)) > len(cells) / 2:
            sentences.append(column + 1)
    return sentences[:2] or [1, 2]


def _from(path: Path, command: str) -> str:
    """Return a shell command that gives the unpacked content of the file to `command`."""
    tools = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}
    file = shlex.quote(str(path))
    return f"{tools[path.suffix]} -dc {file} | {command}" if path.suffix in tools else f"{command} < {file}"


def _other_encoding(path: Path, limit: int | None) -> str:
    """Return what to do with a file that is not UTF-8, or "". `limit`: number of first bytes to examine; None: all."""
    invalid: list[bytes] = []
    others = count = size = 0
    with open_binary(path) as stream:
        for line in iter_lines(stream, any_bytes=True):
            size += len(line) + 1
            if limit is not None and size > limit:
                break
            if b"\x1b$B" in line:
                return _convert(path, "ISO-2022-JP", f"such as {line[:40]!r}")
            if not line.isascii():
                others += 1
                try:
                    line.decode()
                except UnicodeDecodeError:
                    count += 1
                    if len(invalid) < MOST_LINES:
                        invalid.append(line)
    if count < FEW_INVALID or count < INVALID * others:
        return ""
    return _convert(path, _encoding(invalid), f"{count:,} lines are invalid, such as {invalid[0][:40]!r}")


def _convert(path: Path, encoding: str, why: str) -> str:
    looks = f" It looks like {encoding}." if encoding else ""
    choice = "" if encoding else ", with the name of its encoding, such as WINDOWS-1252, KOI8-R or GB18030"
    command = _from(path, f"iconv -f {encoding or 'ENCODING'} -t UTF-8")
    ending = "".join([suffix for suffix in path.suffixes if suffix not in FORMATS][-1:])
    return (
        f"{str(path)!r} is not UTF-8 text: {why}.{looks} Convert it{choice}: {command} > {_new(path, f'.utf8{ending}')}"
    )


def _encoding(lines: Sequence[bytes]) -> str:
    """Return the encoding in which the text contains most function words of its languages, or "" if none is likely."""
    scores = {encoding: _score(b"\n".join(lines), encoding) for encoding in ENCODINGS}
    best = max(scores.values())
    return next(encoding for encoding in scores if scores[encoding] >= 0.95 * best) if best >= NAMED else ""


def _score(text: bytes, encoding: str) -> float:
    """Return the share of function words if the text is in this encoding, 0 to 1; 0 if it cannot be."""
    decoded = unicodedata.normalize("NFC", text.decode(encoding, errors="replace"))
    words = [word for word in decoded.split() if not word.isascii()]
    mixed = sum(MIXED.search(word) is not None for word in words)
    if len(DAMAGE.findall(decoded)) > DAMAGED * len(decoded) or mixed > MOST_MIXED * len(words):
        return 0.0
    shares = function_word_shares([decoded])
    return max(shares[language] for language in ENCODINGS[encoding].split())
