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

_PLAIN = frozenset(["code", "kbd", "pre", "samp", "var"])
"""Those of UNTRANSLATED that `translate="yes"` opens: their content is text and elements."""
_MARKS = re.compile("translate", re.IGNORECASE)


def translated(token: Token) -> bool | None:
    """Return what a start tag says of its element: True, translate it; False, it stays as it is; None: as what is around it.

    The class `notranslate` goes before the attribute `translate`, and that before what the element's name says.
    """
    by_name = False if token.name in UNTRANSLATED else None
    if not _MARKS.search(token.raw) or token.name in UNTRANSLATED - _PLAIN:
        return by_name
    values = attributes(token.raw)
    if "notranslate" in values.get("class", "").split():
        return False
    switch = values.get("translate", values.get("its:translate"))
    return by_name if switch is None else {"no": False, "yes": True, "": True}.get(switch.strip().lower(), by_name)
