"""Split lines that are longer than the model can translate safely, at the ends of their sentences.

    line ──▶ sentences ──▶ parts_of ──▶ token ids of each part ──▶ translations ──▶ joined: the translation of the line

A sentence is a part of its own, so its translation does not depend on its neighbours. A sentence that is too long for
the model is split at clause punctuation, a clause at white space, and a word between any two subwords; these parts are
about equally long. Nothing is lost: the texts of the parts, joined, are the text. The time is linear in the length of
the line.

The ends of sentences are found by rules for all scripts, without a library. The rules need not know the language.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

from ..text.scripts import HAN, KANA

Encode = Callable[[list[str]], list[list[int]]]

MARKS = ".!?…‼‽⁇⁈⁉․﹒﹖﹗"
"""Punctuation that ends a sentence if white space follows. Inside words, as in 3.14 and example.org, it does not."""
TERMINALS = (
    "։؝؞؟۔܀-܂߹࠷࠹࠽࠾।॥၊။።፧፨᙮᜵᜶។៕᠃᠉᥄᥅᪨-᪫᭎᭏᭚᭛᭞᭟᭽-᭿᰻᰼᱾᱿⳹-⳻⸮⸼⹓⹔⹠⹡。꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝-꩟꫰꫱꯫︒︕︖！？｡"
    "𐩖𐩗𐽕-𐽙𐾆-𐾉𑁇𑁈𑂾-𑃁𑅁-𑅃𑇅𑇆𑇍𑇞𑇟𑈸𑈹𑈻𑈼𑊩𑏔𑏕𑑋𑑌𑗂𑗃𑗉-𑗗𑙁𑙂𑜼-𑜾𑥄𑥆𑩂𑩃𑪛𑪜𑱁𑱂𑻷𑻸𑽃𑽄𖩮𖩯𖫵𖬷𖬸𖭄𖵮𖵯𖺘𛲟𝪈"
    "།༎༏༐༑༒\u037e\u2028\u2029\x85\v\f\r"
)
"""Characters that end a sentence wherever they are: those with Unicode's property Sentence_Terminal that are not in
MARKS, Tibetan shads, the Greek question mark with a code point of its own, and separators of lines and paragraphs."""
CLOSING = "\"'”’“‘»«›‹)\\]}⟩❯"
CLOSING_WIDE = "”’」』】〉》〕〗〙〛）］｝｣〞〟＂＇"
"""Quotation marks and brackets that may follow a terminal and belong to its sentence."""
OPENING = "\"'“„‘‚‟‛”»«›‹([{¿¡-–—"
END = re.compile(
    rf"(?<![{MARKS}])(?P<mark>[{MARKS}]++)(?:[{CLOSING}{CLOSING_WIDE}]|[ \u00a0\u202f]»(?=\s))*+"
    rf"(?:\s++|(?<=[!?])(?=[{HAN}{KANA}]))"
    rf"|(?:[{TERMINALS}]|．(?!\d))++[{TERMINALS}{MARKS}]*+(?P<closed>[{CLOSING_WIDE}]*+)\s*+"
    r"|(?<=[\u0e01-\u0e45\u0e47-\u0e4e\u0e81-\u0ec5\u0ec7-\u0ece])\s++"
    r"(?=[\u0e01-\u0e2e\u0e40-\u0e44\u0e81-\u0eae\u0ec0-\u0ec4])"
)
"""A possible end of a sentence, with the white space after it. Thai and Lao have no terminals: white space between
letters is an end there, but not beside the mark of repetition."""
WORD = re.compile(r"[^\W\d_]|\d\s+\d")
"""What every sentence has: a letter, or several numbers."""
DIGIT = re.compile(r"\d")
HIRAGANA = re.compile(r"[\u3041-\u309f]")
NOT_LAST = re.compile(
    r"[^\W\d_a]|[IVXLC]+|(?i:mr|mrs|ms|dr|prof|st|vs|approx|dept|gen|col|lt|capt|sgt|gov|sen|rep|rev|hon|fig|vol|eds"
    r"|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|okt|nov|dec|dez"
    r"|bzw|ca|evtl|ggf|inkl|vgl|str|abs|nr|ing|dipl|hr|tel|mio|mrd|bspw|sog"
    r"|mm|mme|mlle|mgr|sr|sra|srta|dra|dott|sig|avv|dhr|mevr|bijv|drs|ex|kl|np|tzn|tzw|ul|inż|hab|např|tzv|mudr"
    r"|им|ул|гр|см|стр|напр|проф|акад|डॉ|प्रो|श्री)"
)
"""What does not end a sentence before a full stop: an initial (but not the word a), a Roman number, a common
abbreviation that rarely ends one."""
BEFORE_NUMBER = re.compile(r"(?i:no|nos|pp|art|op)")
"""Abbreviations if a number follows."""
CLAUSES = (re.compile(r"(?<![,;:–—،؛፣፤])[,;:–—،؛፣፤]++\s++|\s[–—-]++\s|[、，；：]\s*+"), re.compile(r"\s++"))
"""The patterns after which a sentence may be split, best first."""
WIDE_END = re.compile(rf"[{HAN}\u3000-\u30ff\uff01-\uff9f][^\w\s]?\Z")
"""The end of a text in Chinese or Japanese writing."""


def parts_of(text: str, ids: list[int], encode: Encode, safe: int, longest: int) -> list[list[int]]:
    """Return the ids of the parts of a text, whose own ids are `ids`, in order; parts without ids are left out.

    A text of at most `safe` ids is one part. A longer text is split into its sentences, and a sentence of more than
    `longest` ids, which is not less than `safe`, into parts of at most `safe`.
    """
    if len(ids) <= safe:
        return [ids] if ids else []
    parts = [(text, ids)]
    for is_strict, limit in ((True, safe), (False, longest)):
        units = [sentences(unit, is_strict) if len(own) > limit else [unit] for unit, own in parts]
        parts = [pair for (_, own), split in zip(parts, units, strict=True) for pair in _encoded(split, own, encode)]
    return [
        part
        for unit, own in parts
        for part in _parts_of_sentence(unit, own, encode, len(own) if len(own) <= longest else safe)
    ]


def _encoded(units: list[str], ids: list[int], encode: Encode) -> Iterable[tuple[str, list[int]]]:
    """Return each unit with its ids; those of a single unit are `ids`."""
    return zip(units, encode(units) if len(units) > 1 else [ids], strict=True)


def sentences(text: str, is_strict: bool = True) -> list[str]:
    """Return the sentences of a text, without the white space around them; [text] if it has only one.

    If `is_strict` is false, a sentence may end with a number, and the next one may begin with a small letter.
    """
    cuts = [0, *_ends(text, is_strict), len(text)]
    return [text[left:right].strip() for left, right in itertools.pairwise(cuts)] if len(cuts) > 2 else [text]


def gap(text: str) -> str:
    """Return what stands between a translation and the next one: a space, or "" after Chinese and Japanese writing."""
    return "" if WIDE_END.search(text[-2:]) else " "


def joined(texts: Iterable[str]) -> str:
    """Return the translations of parts as one text. Empty ones are left out."""
    pieces: list[str] = []
    for text in filter(None, texts):
        pieces += [gap(pieces[-1]), text] if pieces else [text]
    return "".join(pieces)


def _ends(text: str, is_strict: bool = True) -> Iterator[int]:
    """Yield the positions where a sentence ends and another one begins; see `sentences`."""
    first = WORD.search(text)
    has_capitals = is_strict and not (first and _is_lower(first[0]))
    start, end, after_mark = 0, 0, False  # `end`: the latest position where a sentence may end; 0: none
    for match in itertools.chain(END.finditer(text), [None]):
        word = WORD.search(text, start, match.start() if match else len(text))
        if word and end and not (after_mark and has_capitals and _is_lower(word[0])):
            yield end
        if match:
            if word:
                end = match.end() if _may_end(text, start, match, is_strict) else 0
            elif end and not DIGIT.search(text, start, match.start()):
                end = match.end()  # punctuation alone belongs to the sentence before it, a number to the one after it
            start, after_mark = match.end(), bool(match["mark"])


def _may_end(text: str, start: int, match: re.Match[str], is_strict: bool) -> bool:
    """Return whether the words before this match of END, from `start` on, may end a sentence."""
    if match["mark"] != ".":
        return not (match["closed"] and HIRAGANA.match(text, match.end()))  # a quotation, and the sentence goes on
    before, word = ["", *text[start : match.start()].split()][-2:]
    word = word.rpartition(".")[2].lstrip(OPENING)
    is_ordinal = is_strict and word.isdecimal() and len(word) <= 2 and not before.isdecimal()
    is_before_number = text[match.end() : match.end() + 1].isdecimal() and BEFORE_NUMBER.fullmatch(word)
    return not (is_ordinal or NOT_LAST.fullmatch(word) or is_before_number)


def _is_lower(letter: str) -> bool:
    """Return whether a letter is small, in a script with small letters and capitals."""
    return letter.islower() and letter.title() != letter


def _parts_of_sentence(text: str, ids: list[int], encode: Encode, longest: int, level: int = 0) -> list[list[int]]:
    """Return the ids of the parts of a sentence: one part if it is short enough, none if it has no ids."""
    if len(ids) <= longest:
        return [ids] if ids else []
    while level < len(CLAUSES):
        units = _units(text, CLAUSES[level])
        if len(units) > 1:
            sizes = [len(unit_ids) for unit_ids in encode(units)]
            # a unit that is too long is split at the next level, as are joined units that have more ids than the sum of
            # their parts
            packed = _packed(units, sizes, longest)
            if len(packed) > 1:
                pairs = zip(packed, encode(packed), strict=True)
                return [part for pair in pairs for part in _parts_of_sentence(*pair, encode, longest, level)]
        level += 1
    count = -(-len(ids) // longest)
    return [ids[len(ids) * i // count : len(ids) * (i + 1) // count] for i in range(count)]


def _units(text: str, end: re.Pattern[str]) -> list[str]:
    """Return the text, split after each match of `end`."""
    cuts = [0, *(match.end() for match in end.finditer(text) if match.end() < len(text)), len(text)]
    return [text[left:right] for left, right in itertools.pairwise(cuts) if right > left]


def _packed(units: list[str], sizes: list[int], longest: int) -> list[str]:
    """Join neighbouring units into parts of at most `longest` ids, about equally long. Return the parts."""
    total = sum(sizes)
    enough = -(-total // -(-total // longest))  # the size at which a part is closed
    parts: list[str] = []
    size = longest + 1
    for unit, more in zip(units, sizes, strict=True):
        if size + more > longest or size >= enough:
            parts.append("")
            size = 0
        parts[-1] += unit
        size += more
    return parts
