"""Characters of the scripts that put no spaces between words.

The regular expressions of the package use these tables.
"""

from __future__ import annotations

import re

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3041-\u3096\u30a1-\u30fa\uff66-\uff6f\uff71-\uff9d"
"""Without the marks that lengthen or repeat a kana: they may occur many times in a row."""
OTHERS = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecf\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3"
"""Thai, Lao, Tibetan, Burmese, Khmer."""
UNSPACED = HAN + KANA + OTHERS
"""Ranges for a character class of a regular expression."""
IN_HAN, IN_KANA, IN_SCRIPT = (re.compile(f"[{ranges}]") for ranges in (HAN, KANA, UNSPACED))
