r"""Protocols: BLEU as papers computed it from plain text, step by step, each step named in the signature.

    hypothesis, reference ──▶ punct ──▶ tok ──▶ compounds ──▶ multi-bleu: n-grams up to 4, no smoothing, closest length

`paper` is what "Attention Is All You Need" reports (arXiv 1706.03762, section 6.1; the script is tensor2tensor's
utils/get_ende_bleu.sh). Its steps are Perl scripts of Moses, here:

- punct: replace-unicode-punctuation.perl, as sacremoses has it;
- tok: tokenizer.perl -l LANGUAGE, as sacremoses has it: special characters escaped, hyphens left alone;
- compounds: `s{(\S)-(\S)}{$1 ##AT##-##AT## $2}g`, "rich-text" becoming three tokens;
- multi-bleu.perl: corpus BLEU of what stands between ASCII spaces, by sacrebleu.

Perl runs the last two on bytes, and so do we: "a-ö-b" is split at both hyphens, "a-o-b" at the first alone, as each of the
two (\S) takes a byte for itself; no-break spaces part no tokens; lower-casing is of A to Z.

A new protocol is a line of `PROTOCOLS`, a new step a function and a line of `STEPS`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import regex
from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.bleu import BLEU

from ..errors import UsageError
from .metrics import check_known

COMPOUND = re.compile(rb"(\S)-(\S)")
NOT_WORD = regex.compile(r"([^\p{Alphabetic}\p{Nd}\s.'`,\-])")
"""What tokenizer.perl sets apart. sacremoses has a list of characters instead, without Chinese, Japanese and Korean."""
CONTROL = dict.fromkeys(range(0x1C, 0x20))
"""Spaces to Python, to Perl junk that is removed."""
OTHER_SPACES = {
    ord(space): 0xFDD0 + number for number, space in enumerate("\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000")
}  # fmt: skip
"""Spaces to sacrebleu, to multi-bleu.perl parts of a token: noncharacters, which no text holds."""
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

Step = tuple[str, Callable[[str], str]]
"""What stands in the signature, and a line's way through."""


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


@dataclass(frozen=True)
class Protocol:
    """A protocol as it was asked for."""

    name: str
    """A key of PROTOCOLS."""
    language: str = "de"
    """What the text is in, for Moses: one of `languages()`."""
    compounds: bool = True
    """Split compounds, if the protocol does."""
    tokenized_references: bool = False
    """The references are tokenised already: of the steps they need `compounds` alone."""


def steps(protocol: Protocol) -> dict[str, Step]:
    """What is done to a line, in order, by name. Raises UsageError where sacremoses is missing."""
    return {name: STEPS[name](protocol.language) for name in PROTOCOLS[protocol.name] if protocol.compounds or name != "compounds"}


def languages() -> list[str]:
    """The languages that Moses tokenises, by their codes. Raises UsageError where sacremoses is missing."""
    return sorted(set(_sacremoses().corpus.NonbreakingPrefixes().available_langs.values()))


def build(protocol: Protocol, *, lowercase: bool = False) -> BLEU:
    """BLEU by `protocol`. Raises UsageError for an unknown protocol or language, and where sacremoses is missing."""
    check_known("protocol", protocol.name, PROTOCOLS)
    check_known("language", protocol.language, languages())
    return MultiBleu(protocol, lowercase)


class MultiBleu(BLEU):
    """BLEU as multi-bleu.perl counts it, of lines that have gone through a protocol's steps."""

    def __init__(self, protocol: Protocol, lowercase: bool) -> None:
        super().__init__(tokenize="none", smooth_method="none", force=True)
        self.protocol, self._ascii_lower = protocol, lowercase
        self._steps = steps(protocol)
        self._references_now = False

    def tokens(self, line: str, *, reference: bool = False) -> str:
        """`line` after all steps: tokens with ASCII spaces between them."""
        done_before = reference and self.protocol.tokenized_references
        for name, (_, step) in self._steps.items():
            if name == "compounds" or not done_before:
                line = step(line)
        return line.translate(OTHER_SPACES).translate(LOWER if self._ascii_lower else {})

    def get_signature(self) -> Signature:
        from importlib.metadata import version

        signature = Signature(self.__dict__)
        named = dict.fromkeys(PROTOCOLS[self.protocol.name], "no") | {name: label for name, (label, _) in self._steps.items()}
        more = {"refs": "tokenized"} if self.protocol.tokenized_references else {}
        for key, value in {
            "case": "lc-ascii" if self._ascii_lower else "mixed", "protocol": self.protocol.name, **named, **more,
            "bleu": "multi-bleu", "sacremoses": version("sacremoses"),
        }.items():  # fmt: skip
            signature.update(key, value)
        return signature

    def _preprocess_segment(self, sent: str) -> str:
        return self.tokens(sent, reference=self._references_now)

    def _cache_references(self, references: Sequence[Sequence[str]]) -> list[Any]:
        self._references_now = True
        try:
            return super()._cache_references(references)
        finally:
            self._references_now = False


def _sacremoses() -> Any:
    try:
        import sacremoses
    except ImportError as error:
        raise UsageError(f"--protocol needs the extra package sacremoses ({error}): pip install 'nmt-cli[moses]'.") from None
    return sacremoses
