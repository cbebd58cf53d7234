"""The tokenizer that BLEU uses unless one is named: by the language of the text, or by its script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from ..text.languages import canonical
from ..text.scripts import IN_HAN, IN_KANA, IN_SCRIPT
from .metric import DEFAULT_TOKENIZER

CHINESE, CHARACTERS = "zh", "char"
"""sacrebleu's tokenizers that separate Chinese characters, and all characters."""
LANGUAGES = {
    CHINESE: ("zh", "yue", "wuu", "lzh"),
    CHARACTERS: ("ja", "th", "lo", "lao", "km", "my", "shn", "bo", "dz", "dzo"),
}
"""Tokenizer → canonical codes of languages that put no spaces between words."""
JAPANESE = 0.05
"""Share of kana in the letters of a text from which on it is Japanese. Chinese text has almost none, Japanese about
half."""


def default_tokenizer(language: str, lines: Iterable[str]) -> str:
    """Return the name of BLEU's default tokenizer for text in `language`: "zh", "char", or "13a".

    `language` is a code such as "zh", "zh-CN" or "zho_Hant". "zh" is for Chinese, "char" for Japanese, Thai, Lao,
    Khmer, Burmese and Tibetan. A code of none of these languages, or any other name, leaves the choice to the script of
    `lines`: more than half of all letters must be of a script without spaces. "13a" is for everything else.
    """
    code, *subtags = canonical(language).split("-")
    if "latn" not in subtags:
        for tokenizer, codes in LANGUAGES.items():
            if code in codes:
                return tokenizer
    return _by_script(lines)


def _by_script(lines: Iterable[str]) -> str:
    characters: Counter[str] = Counter()
    for line in lines:
        characters.update(line)
    letters = Counter({letter: count for letter, count in characters.items() if letter.isalpha()})
    unspaced, han, kana = (
        sum(count for letter, count in letters.items() if script.match(letter))
        for script in (IN_SCRIPT, IN_HAN, IN_KANA)
    )
    if 2 * unspaced <= letters.total():
        return DEFAULT_TOKENIZER
    return CHINESE if 2 * han > unspaced and kana < JAPANESE * unspaced else CHARACTERS


def unspaced(references: Sequence[Sequence[str]], metric: str, remedy: str = "") -> Iterator[str]:
    """Yield a remark on a metric of words between spaces, if the script of the references has no spaces.

    `remedy`: what to do, by default to give BLEU the right tokenizer.
    """
    better = default_tokenizer("", chain.from_iterable(references))
    if better != DEFAULT_TOKENIZER:
        script = "Chinese" if better == CHINESE else "in a script without spaces between words"
        yield (
            f"the references are {script}: {metric} takes a run of characters as one word, so it means little. "
            f"{remedy or f'Give --tokenize {better}.'}"
        )
