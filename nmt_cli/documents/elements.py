"""What elements do to the text in them: separate it, are part of a sentence, or stay as they are."""

from __future__ import annotations

import re

from .tokens import Token, attributes

BLOCKS = frozenset(
    ["address", "article", "aside", "audio", "base", "blockquote", "body", "br", "button", "canvas", "caption", "center", "col", "colgroup", "datalist", "dd", "details", "dialog", "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frame", "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "iframe", "legend", "li", "link", "main", "menu", "meta", "nav", "noembed", "noframes", "noscript", "object", "ol", "optgroup", "option", "p", "plaintext", "pre", "search", "section", "select", "summary", "table", "tbody", "td", "template", "textarea", "tfoot", "th", "thead", "title", "tr", "ul", "video", "xmp"]
)
"""HTML elements that separate text. All others, also unknown ones, are part of a sentence, as browsers show them."""
UNTRANSLATED = frozenset(["code", "kbd", "math", "pre", "samp", "script", "style", "svg", "textarea", "var", "xmp", "iframe", "noembed", "noframes", "plaintext"])
"""Elements that stay as they are, with all that is in them."""
INVISIBLE = frozenset(["script", "style", "svg"])
"""Those that stand for no word of a sentence."""
OPTIONAL_END = frozenset(["body", "colgroup", "dd", "dt", "head", "html", "li", "optgroup", "option", "p", "rp", "rt", "tbody", "td", "tfoot", "th", "thead", "tr"])
"""HTML elements that end without an end tag."""

_MARKS = re.compile("translate", re.IGNORECASE)


def untranslated(token: Token) -> bool:
    """Return whether the element of a start tag stays as it is: by its name, `translate="no"` or the class `notranslate`."""
    if token.name in UNTRANSLATED:
        return True
    if not _MARKS.search(token.raw):
        return False
    found = attributes(token.raw)
    translate = found.get("translate", found.get("its:translate", "")).strip().lower()
    return translate == "no" or "notranslate" in found.get("class", "").split()
