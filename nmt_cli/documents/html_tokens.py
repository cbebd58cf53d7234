"""Divides HTML into tokens as browsers do, and keeps every byte.

    "<p class=x>Hi &amp; <b>you"  ──▶  OPEN p, TEXT, OPEN b, TEXT

The rules are those of the tokenizer in the HTML standard (html.spec.whatwg.org, section 13.2.5). They define how a tag
begins, where attributes and comments end, and which elements contain no tags. No library fits: html5lib, lxml,
selectolax and BeautifulSoup return a tree, and do not write the same text that they read. html.parser of the standard
library needs quadratic time for unclosed constructs in many versions, and is less like browsers. The expressions below
do not backtrack (possessive quantifiers), so time is linear. The tests compare the tags with those of html.parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .elements import RAW_TEXT, VOID
from .tokens import Token, Type

_SPACE = r"\t\n\f\r "
_VALUE = rf"""(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^{_SPACE}>"'][^{_SPACE}>]*+)"""
_ATTRIBUTE = rf"[^{_SPACE}/>][^{_SPACE}/>=]*+(?:[{_SPACE}]*+=[{_SPACE}]*+{_VALUE}?+)?+"
TAG = re.compile(rf"<(/?)([A-Za-z][^{_SPACE}/>]*+)(?:[{_SPACE}/]++|{_ATTRIBUTE})*+(>?)")
COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))|<[!?/][^>]*+>?", re.DOTALL)
"""Comments, and other constructs that browsers read as comments: `<!…>`, `<?…>`, `</` without a name."""
TEXT = re.compile(r"(?:[^<]++|<(?![A-Za-z!?/])|</\Z)++")

_RAW_ENDS = {name: re.compile(rf"</{name}(?=[{_SPACE}/>])", re.IGNORECASE) for name in (*RAW_TEXT, "title")}


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a document."""
    done = 0
    while done < len(text):
        if match := TEXT.match(text, done):
            yield Token(Type.TEXT, match[0])
        elif match := TAG.match(text, done):
            token = _tag(match)
            yield token
            if token.type is Type.OPEN and (content := _raw_content(text, match.end(), token.name)):
                yield content
                done = match.end() + len(content.raw)
                continue
        else:
            match = COMMENT.match(text, done)
            assert match  # at every character, one of the three expressions matches
            yield Token(Type.OTHER, match[0])
        done = match.end()


def _tag(match: re.Match[str]) -> Token:
    slash, name, end = match.groups()
    if not end:  # the document ends inside the tag
        return Token(Type.OTHER, match[0])
    name = name.lower()
    return Token(Type.CLOSE if slash else Type.EMPTY if name in VOID else Type.OPEN, match[0], name)


def _raw_content(text: str, start: int, name: str) -> Token | None:
    """Return the content of an element that cannot contain tags; None for other elements, or without content."""
    if name == "plaintext":
        end = len(text)
    elif name in _RAW_ENDS:
        match = _RAW_ENDS[name].search(text, start)
        end = match.start() if match else len(text)
    else:
        return None
    return Token(Type.TEXT if name == "title" else Type.RAW, text[start:end]) if end > start else None
