r"""Protocols: BLEU as papers computed it from plain text, step by step, each step named in the signature.

    hypothesis, reference ──▶ punct ──▶ tok ──▶ compounds ──▶ multi-bleu: n-grams up to 4, no smoothing, closest length

`paper` is the protocol of "Attention Is All You Need" (arXiv 1706.03762, section 6.1; the script is tensor2tensor's
utils/get_ende_bleu.sh). Its steps are Perl scripts:

- punct: replace-unicode-punctuation.perl, in sacremoses' version;
- tok: tokenizer.perl -l LANGUAGE, in sacremoses' version: it escapes special characters and does not split hyphens;
- compounds: `s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g`: "rich-text" becomes three tokens;
- multi-bleu.perl: corpus BLEU by sacrebleu of the tokens between ASCII spaces.

Perl runs the last two steps on bytes, and so do we. So "a-ö-b" is split at both hyphens, but "a-o-b" only at the first,
because each (\S) consumes one byte and "ö" has two. No-break spaces do not separate tokens. Lower-casing changes A to Z
only.

To add a protocol, add a line to `PROTOCOLS`; to add a step, a function and a line to `STEPS`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import regex
from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.bleu import BLEU

from ..errors import check_choice, extra_module
from .metric import Protocol
from .sacrebleu_interface import SacrebleuMetric

COMPOUND = re.compile(rb"(\S)-(\S)")
NOT_WORD = regex.compile(r"([^\p{Alphabetic}\p{Nd}\s.'`,\-])")
"""Characters that tokenizer.perl separates. sacremoses has a list of characters instead, without Chinese, Japanese and
Korean."""
CONTROL = dict.fromkeys(range(0x1C, 0x20))
"""Characters that are spaces in Python. Perl removes them as junk."""
OTHER_SPACES = {
    ord(space): 0xFDD0 + number
    for number, space in enumerate(
        "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
    )
}
"""Characters that are spaces in sacrebleu, but parts of a token in multi-bleu.perl → noncharacters, which no text
contains."""
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

Step = tuple[str, Callable[[str], str]]
"""The step's label in the signature, and its function from line to line."""


def _punct(language: str) -> Step:
    return "unicode", _sacremoses().MosesPunctNormalizer(language).replace_unicode_punct


def _tok(language: str) -> Step:
    tokenizer = _sacremoses().MosesTokenizer(language)
    tokenizer.PAD_NOT_ISALNUM = NOT_WORD, r" \1 "
    return f"moses-{language}", lambda line: str(tokenizer.tokenize(line.translate(CONTROL), return_str=True))


def _compounds(language: str) -> Step:
    return "##AT##", lambda line: COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


STEPS: dict[str, Callable[[str], Step]] = {"punct": _punct, "tok": _tok, "compounds": _compounds}
PROTOCOLS: dict[str, tuple[str, ...]] = {"paper": ("punct", "tok", "compounds")}


def steps(protocol: Protocol) -> dict[str, Step]:
    """Return the protocol's steps in order, by name. Raises UsageError if sacremoses is not installed."""
    return {
        name: STEPS[name](protocol.language)
        for name in PROTOCOLS[protocol.name]
        if protocol.compounds or name != "compounds"
    }


def languages() -> list[str]:
    """Return the codes of the languages that Moses tokenises. Raises UsageError if sacremoses is not installed."""
    return sorted(set(_sacremoses().corpus.NonbreakingPrefixes().available_langs.values()))


class ProtocolBleu(SacrebleuMetric):
    """BLEU as multi-bleu.perl counts it, of lines after the steps of a protocol.

    Raises UsageError for an unknown protocol or language, and if sacremoses is not installed.
    """

    def __init__(self, protocol: Protocol, lowercase: bool = False) -> None:
        check_choice("protocol", protocol.name, PROTOCOLS)
        check_choice("language", protocol.language, languages())
        super().__init__(BLEU(tokenize="none", smooth_method="none", force=True), "BLEU by Moses")
        self.protocol, self._lowercase = protocol, lowercase
        self._steps = steps(protocol)

    def tokens(self, line: str, *, reference: bool = False) -> str:
        """Return `line` after all steps: tokens with ASCII spaces between them."""
        tokenized = reference and self.protocol.tokenized_references
        for name, (_, step) in self._steps.items():
            if name == "compounds" or not tokenized:
                line = step(line)
        return line.translate(OTHER_SPACES).translate(LOWER if self._lowercase else {})

    def signature(self, num_references: int) -> Signature:
        signature = Signature({"num_refs": num_references})
        labels = dict.fromkeys(PROTOCOLS[self.protocol.name], "no") | {
            name: label for name, (label, _) in self._steps.items()
        }
        references = {"refs": "tokenized"} if self.protocol.tokenized_references else {}
        for key, value in {
            "case": "lc-ascii" if self._lowercase else "mixed",
            "protocol": self.protocol.name,
            **labels,
            **references,
            "bleu": "multi-bleu",
            "sacremoses": version("sacremoses"),
        }.items():
            signature.update(key, value)
        return signature


def _sacremoses() -> Any:
    return extra_module("sacremoses", "moses", "--protocol")
