"""How HTML elements are treated: they separate text, are part of a sentence, or stay unchanged."""

from __future__ import annotations

import re

from .tokens import Token, attributes


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BLOCKS = _names("""
    address article aside audio base blockquote body br button canvas caption center col colgroup datalist dd
    details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head
    header hgroup hr html iframe legend li link main menu meta nav noembed noframes noscript object ol optgroup
    option p plaintext pre search section select summary table tbody td template textarea tfoot th thead title
    tr ul video xmp
""")
"""HTML elements that separate text. All others, also unknown ones, are part of a sentence, as in browsers."""
UNTRANSLATED = _names("""
    code kbd math pre samp script style svg textarea var xmp iframe noembed noframes plaintext
""")
"""Elements that stay unchanged, together with their content."""
VOID = _names("area base br col embed hr img input link meta param source track wbr")
"""Elements that have no end tag."""
RAW_TEXT = _names("script style xmp iframe noembed noframes textarea")
"""Elements whose content is not markup. The content of `<title>` is not markup either, but it is text to translate."""
INVISIBLE = _names("script style svg")
"""Elements of UNTRANSLATED that do not count as a word of a sentence."""
OPTIONAL_END = _names("""
    body colgroup dd dt head html li optgroup option p rp rt tbody td tfoot th thead tr
""")
"""HTML elements that may end without an end tag."""

_PLAIN = _names("code kbd pre samp var")
"""Elements of UNTRANSLATED whose content is text and elements, so that `translate="yes"` has an effect."""
_MARKS = re.compile("translate", re.IGNORECASE)


def translated(token: Token) -> bool | None:
    """Return whether a start tag has its element translated: True, False, or None if the surrounding text decides.

    The class `notranslate` has priority over the attribute `translate`, which has priority over the element's name.
    """
    by_name = False if token.name in UNTRANSLATED else None
    if not _MARKS.search(token.raw) or token.name in UNTRANSLATED - _PLAIN:
        return by_name
    values = attributes(token.raw)
    if "notranslate" in values.get("class", "").split():
        return False
    switch = values.get("translate", values.get("its:translate"))
    return by_name if switch is None else {"no": False, "yes": True, "": True}.get(switch.strip().lower(), by_name)
