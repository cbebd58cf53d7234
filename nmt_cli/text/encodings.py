"""Recognises UTF-16 and UTF-32 text by its first bytes, so that an error can name the encoding.

A byte-order mark leaves no doubt. Without one, the text is recognised by zero bytes, which UTF-16 and UTF-32 have in
Latin letters, digits and spaces, and UTF-8 text does not have.
"""

from __future__ import annotations

MARKS = {b"\xff\xfe\x00\x00": "UTF-32", b"\x00\x00\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
UTF8_MARK = b"\xef\xbb\xbf"
SAMPLE = 1024
"""Number of bytes that are examined."""


def marked_encoding(head: bytes) -> str:
    """Return "UTF-16" or "UTF-32" if `head` begins with its byte-order mark, else ""."""
    return next((name for mark, name in MARKS.items() if head.startswith(mark)), "")


def wide_encoding(head: bytes) -> str:
    """Return the encoding of `head` if it is UTF-16 or UTF-32, with or without a byte-order mark, else ""."""
    head = head[:SAMPLE]
    if name := marked_encoding(head):
        return name
    if len(head) < 4 or 0 not in head:
        return ""
    first, second, third, fourth = (head[offset::4].count(0) / len(head[offset::4]) for offset in range(4))
    even, odd = (head[offset::2].count(0) / len(head[offset::2]) for offset in range(2))
    few, most = 0.1, 0.5
    if fourth == 1 and third >= most and first < few:
        return "UTF-32LE"
    if first == 1 and second >= most and fourth < few:
        return "UTF-32BE"
    if odd >= most and even < few:
        return "UTF-16LE"
    return "UTF-16BE" if even >= most and odd < few else ""


def refused(what: str, encoding: str) -> str:
    """Return the error message for `what`, which is text in `encoding`."""
    return f"{what} is {encoding} text: expected UTF-8. Convert it: iconv -f {encoding} -t UTF-8 FILE > FILE.utf8"
