"""What Marian calls YAML: settings, as its configuration and decoder.yml are, and vocabularies.

    settings:    KEY: VALUE, KEY: [VALUE, …] or a list with a "- VALUE" in each line
    vocabulary:  TOKEN: NUMBER in each line, split at its last ": "; bytes, which need not be UTF-8

No other YAML is read. `marian-vocab` writes tokens as they come, also those that YAML does not allow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..data.sentencepiece_model import bytes_of
from ..errors import ModelError, shown, shown_name

MOST_KEYS = 1000
"""Largest number of settings, and of the values of a list."""
QUOTED = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^']|'')*'"
PLAIN = r"""(?![-?:](?: |$)|[][{}&*!|>%@`"'#,])[^\s:#](?:[^:#]|:(?! |$)|(?<! )\#)*?"""
ITEM = rf"(?:{QUOTED}|[^][{{}}\"',&*\s][^][{{}}\"',]*?)"
FLOW = rf"\[ *(?:{ITEM}(?: *, *{ITEM})* *)?\]"
SETTING = re.compile(
    rf"(?:(?P<key>[\w.-]+|{QUOTED}):(?: +(?P<value>{QUOTED}|{FLOW}|{PLAIN}))?| *- +(?P<item>{QUOTED}|{PLAIN})"
    rf"| +(?P<list>{FLOW})|---|)(?P<comment>(?:^| +)\#.*)? *"
)
ENTRY = re.compile(rb"(?s)(.*): +(\d{1,9}),?[ \t\r]*")
ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|\n[ \t]*|(.))", re.DOTALL)
ESCAPES = {
    **{bytes([letter]): bytes([code]) for letter, code in zip(b"0abtnvfre", b"\0\a\b\t\n\v\f\r\x1b", strict=True)},
    **{b"N": b"\xc2\x85", b"_": b"\xc2\xa0", b"L": b"\xe2\x80\xa8", b"P": b"\xe2\x80\xa9"},
}
"""What a letter after a backslash stands for, if it is not the letter."""


def settings(content: bytes | str, name: str) -> dict[str, Any]:
    """Return the keys of settings with their values, which are strings and lists of strings.

    Raises ModelError, also for other YAML, a key that comes twice, and more than MOST_KEYS keys or values of a list.
    """
    text = content if isinstance(content, str) else content.decode("utf-8", "replace")
    values, key = dict[str, Any](), ""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        found = SETTING.fullmatch(line.removesuffix("\r"))
        is_item = found and (found["item"] or found["list"])
        if not found or (is_item and (not key or not isinstance(values[key] or [], list))):
            raise ModelError(
                f"{shown_name(name)}, line {number}: expected a name with a value or a list of values, found "
                f"{shown(line[:80])}."
            )
        if found["key"]:
            key = _text(found["key"])
            if key in values:
                raise ModelError(f"{shown_name(name)}, line {number}: expected {shown(key)} once.")
            values[key] = _value(found["value"] or "")
        elif is_item:
            values[key] = [*values[key], _text(found["item"])] if found["item"] else _value(found["list"])
        if max(len(values), len(values[key]) if key else 0) > MOST_KEYS:
            raise ModelError(f"{shown_name(name)}, line {number}: expected at most {MOST_KEYS:,} names.")
    return values


def _value(value: str) -> str | list[str]:
    if not re.fullmatch(FLOW, value):
        return _text(value)
    return [_text(item.strip()) for item in re.findall(ITEM + r"(?= *[],])", value[1:])]


def _text(value: str) -> str:
    return unquoted(value.encode()).decode("utf-8", "replace")


def unquoted(value: bytes) -> bytes:
    """Return what a value of YAML stands for: without quotes and escapes."""
    if len(value) > 1 and value[:1] == value[-1:] == b"'":
        return value[1:-1].replace(b"''", b"'")
    if len(value) > 1 and value[:1] == value[-1:] == b'"':
        plain = ESCAPE.sub(_unescaped, value[1:-1])
        return re.sub(rb"\xed[\xa0-\xaf].\xed[\xb0-\xbf].", _pair, plain, flags=re.DOTALL) if b"\\u" in value else plain
    return value


def _unescaped(found: re.Match[bytes]) -> bytes:
    if digits := found[1] or found[2] or found[3]:
        return chr(min(int(digits, 16), 0x10FFFF)).encode("utf-8", "surrogatepass")
    letter: bytes = found[4] or b""
    return ESCAPES.get(letter, letter)


def _pair(found: re.Match[bytes]) -> bytes:
    """Return the character that two escapes of JSON spell."""
    return found[0].decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16").encode()


def numbered(content: bytes, name: str, most: int) -> Iterator[tuple[bytes, int]]:
    """Yield the tokens of a vocab.yml or vocab.json with their numbers.

    Raises ModelError for a line that has none, and for more than `most` tokens.
    """
    if content.lstrip()[:1] == b"{":
        try:
            tokens = json.loads(content, object_pairs_hook=list)
        except (ValueError, RecursionError):
            raise ModelError(f"{shown_name(name)} begins with a brace, and is not JSON.") from None
        content = b"\n".join(b"%s: %s" % tuple(json.dumps(part).encode() for part in token) for token in tokens)
    count, begun = 0, list[bytes]()
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if begun and not line.startswith(b": "):  # a token of several lines
            begun.append(line)
            continue
        if line.startswith(b"? "):
            begun = [line[2:]]
            continue
        if not begun and (line.strip() in (b"", b"---", b"...") or line.startswith(b"# ")):
            continue
        found, token, begun = ENTRY.fullmatch(line), re.sub(rb"(?<!\\)\n[ \t]*", b" ", b"\n".join(begun)), []
        if not found:
            raise ModelError(
                f"{shown_name(name)}, line {number}: expected a token and its number, found "
                f"{shown(line[:80].decode('utf-8', 'replace'))}."
            )
        if (count := count + 1) > most + 3:  # one more is told from the weights, and </s> and <unk> may come again
            raise ModelError(f"{shown_name(name)}, line {number}: expected at most {most:,} names.")
        yield unquoted(token or found[1]), int(found[2])
    if begun:
        raise ModelError(f"{shown_name(name)} ends within a token.")


def vocabulary_text(table: Sequence[str]) -> bytes:
    """Return a vocab.yml: a token and its number in each line."""
    tokens = (json.dumps(bytes_of(one).decode("utf-8", "surrogateescape"), ensure_ascii=False) for one in table)
    return b"".join(b"%s: %d\n" % (one.encode("utf-8", "surrogateescape"), number) for number, one in enumerate(tokens))


def tokens_in_lines(content: bytes, most: int) -> Iterator[tuple[bytes, int]]:
    """Yield the tokens of a vocabulary that has one in each line, with their numbers."""
    lines = content.removesuffix(b"\n").split(b"\n", most)
    return ((line.removesuffix(b"\r"), number) for number, line in enumerate(lines))
