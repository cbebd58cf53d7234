"""Inflection: German declension and conjugation, English plurals and verb forms.

The cases are 0 nominative, 1 accusative, 2 dative, 3 genitive. The slots of agreement are 0 first, 1 second, 2 third
person singular, 3 first, 4 third person plural. Paradigms are tables; the functions only pick and join their entries.
"""

from __future__ import annotations

from functools import cache

from demo_corpus.lexicon import Adjective, Noun
from demo_corpus.verbs import Verb

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
ICH, DU, ER, WIR, SIE = range(5)

# Endings per gender (p: plural) in the order of the cases.
DEFINITE = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des", "p": "die die den der"}
DER_WORDS = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "p": "e e en er"}
EIN_WORDS = {"m": "- en em es", "f": "e e er er", "n": "- - em es", "p": "e e en er"}
WEAK = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
MIXED = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "p": "en en en en"}
STRONG = {"m": "er en em en", "f": "e e er er", "n": "es es em en", "p": "e e en er"}

# English determiner -> (German stem, its endings, declension of the following adjective).
DETERMINERS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "this": ("dies", DER_WORDS, WEAK),
    "every": ("jed", DER_WORDS, WEAK),
    "a": ("ein", EIN_WORDS, MIXED),
    "no": ("kein", EIN_WORDS, MIXED),
    "my": ("mein", EIN_WORDS, MIXED),
    "your": ("dein", EIN_WORDS, MIXED),
    "his": ("sein", EIN_WORDS, MIXED),
    "her": ("ihr", EIN_WORDS, MIXED),
    "our": ("unser", EIN_WORDS, MIXED),
    "their": ("ihr", EIN_WORDS, MIXED),
}

# German irregular verbs: their forms in the order of the slots.
PRESENT: dict[str, str] = {
    "sein": "bin bist ist sind sind",
    "haben": "habe hast hat haben haben",
    "werden": "werde wirst wird werden werden",
    "können": "kann kannst kann können können",
    "müssen": "muss musst muss müssen müssen",
    "wollen": "will willst will wollen wollen",
    "dürfen": "darf darfst darf dürfen dürfen",
    "sollen": "soll sollst soll sollen sollen",
    "möchten": "möchte möchtest möchte möchten möchten",
    "mögen": "mag magst mag mögen mögen",
    "wissen": "weiß weißt weiß wissen wissen",
}
PRETERITE: dict[str, str] = {
    "sein": "war warst war waren waren",
    "haben": "hatte hattest hatte hatten hatten",
    "werden": "wurde wurdest wurde wurden wurden",
    "können": "konnte konntest konnte konnten konnten",
    "müssen": "musste musstest musste mussten mussten",
    "wollen": "wollte wolltest wollte wollten wollten",
    "dürfen": "durfte durftest durfte durften durften",
}

ENGLISH_BE = ("am", "are", "is", "are", "are")
ENGLISH_WAS = ("was", "were", "was", "were", "were")
REFLEXIVE = ("mich", "dich", "sich", "uns", "sich")

_VOWELS = "aeiouyäöü"
_DOUBLING = frozenset({"run", "sit", "swim", "get", "put", "forget"})


def _form(table: str, index: int) -> str:
    return table.split()[index].strip("-")


def determiner(word: str, gender: str, case: int) -> str:
    """Return the German form of an English determiner, or "" if there is none. Gender "p" is the plural."""
    if word == "the":
        return _form(DEFINITE[gender], case)
    if word not in DETERMINERS:
        return ""
    stem, endings, _ = DETERMINERS[word]
    return stem + _form(endings[gender], case)


def adjective(word: Adjective, after: str, gender: str, case: int) -> str:
    """Return the adjective declined after the English determiner `after`: weak, mixed, or strong (no determiner)."""
    declension = WEAK if after == "the" else DETERMINERS[after][2] if after in DETERMINERS else STRONG
    return (word.stem or word.de) + _form(declension[gender], case)


def noun(word: Noun, plural: bool, case: int) -> str:
    """Return the noun in a case: with -n in the dative plural, -s or -es in the genitive, or the weak ending."""
    if plural:
        dative_n = case == DATIVE and word.plural[-1] not in "ns"
        return word.plural + ("n" if dative_n else "")
    if word.weak:
        return word.de + ("" if case == NOMINATIVE else word.weak)
    if case != GENITIVE or word.gender == "f":
        return word.de
    return word.de + (word.genitive or _genitive_ending(word.de))


def _genitive_ending(word: str) -> str:
    """Return "s" after a final vowel and after certain final syllables (-er, -en, -um, ...), "es" otherwise."""
    if word[-1] in _VOWELS or word.endswith(("er", "el", "en", "em", "chen", "ment", "or", "um", "al", "ant", "on")):
        return "s"
    return "es"


@cache
def noun_phrase(after: str, adjectives: tuple[Adjective, ...], word: Noun, plural: bool) -> tuple[str, str, str, str]:
    """Return determiner, adjectives and noun in the four cases."""
    gender = "p" if plural else word.gender
    cases = []
    for case in range(4):
        words = [determiner(after, gender, case), *(adjective(a, after, gender, case) for a in adjectives)]
        cases.append(" ".join(part for part in [*words, noun(word, plural, case)] if part))
    return cases[0], cases[1], cases[2], cases[3]


_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
    ("in", "das"): "ins",
    ("zu", "der"): "zur",
}


def with_preposition(preposition: str, phrase: str) -> str:
    """Return preposition and noun phrase. A definite article is contracted: im, ins, am, zum, zur, vom, beim."""
    first, _, rest = phrase.partition(" ")
    contracted = _CONTRACTIONS.get((preposition, first))
    return f"{contracted} {rest}" if contracted and rest else f"{preposition} {phrase}"


def _stem(infinitive: str) -> str:
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _inserts_e(stem: str) -> bool:
    """Return whether the endings -st and -t need an e: du arbeitest, er öffnet, but er lernt, er wohnt."""
    return stem[-1] in "dt" or (stem[-1] in "nm" and stem[-2] not in _VOWELS + "lrhnm")


@cache
def present(verb: Verb, slot: int) -> str:
    """Return the present tense without the separable prefix."""
    if verb.infinitive in PRESENT:
        return _form(PRESENT[verb.infinitive], slot)
    stem = _stem(verb.infinitive)
    if slot in (WIR, SIE):
        return verb.infinitive
    if slot == ICH:
        return stem + "e"
    linking = "e" if not verb.stem and _inserts_e(stem) else ""
    stem = verb.stem or stem
    return stem + linking + ("st" if slot == DU and stem[-1] not in "sßzx" else "t")


def zu_infinitive(verb: Verb) -> str:
    """Return the infinitive with zu. In a separable verb, zu is inside: aufzustehen."""
    return f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"


def imperative(verb: Verb) -> str:
    """Return the imperative of the second person singular without the prefix: lies, öffne, fahr."""
    if verb.stem and "i" in verb.stem:
        return verb.stem
    stem = _stem(verb.infinitive)
    return stem + ("e" if _inserts_e(stem) or verb.infinitive.endswith("ern") else "")


def comparative(word: Adjective) -> str:
    """Return the German comparative, undeclined."""
    return word.comparative or word.de + "er"


def english_comparative(word: Adjective) -> str:
    """Return the English comparative."""
    return word.en_comparative or word.en + ("r" if word.en.endswith("e") else "er")


def english_plural(word: Noun) -> str:
    """Return the English plural."""
    if word.en_plural:
        return word.en_plural
    if word.en.endswith(("s", "ch", "sh", "x")):
        return word.en + "es"
    if word.en.endswith("y") and word.en[-2] not in _VOWELS:
        return word.en[:-1] + "ies"
    return word.en + "s"


def _inflect_first(words: str, inflected: str) -> str:
    head = words.replace("|", " ").split(" ")[0]
    return inflected + words[len(head) :]


def english_present(base: str, slot: int) -> str:
    """Return the English present. `base` may have a particle: "turns|on"."""
    head = base.replace("|", " ").split(" ")[0]
    if slot != ER:
        return ENGLISH_BE[slot] if head == "be" else base
    if head in ("be", "have"):
        return _inflect_first(base, {"be": "is", "have": "has"}[head])
    if head.endswith(("s", "sh", "ch", "x", "go", "do")):
        return _inflect_first(base, head + "es")
    if head.endswith("y") and head[-2] not in _VOWELS:
        return _inflect_first(base, head[:-1] + "ies")
    return _inflect_first(base, head + "s")


def english_ing(base: str) -> str:
    """Return the English -ing form. `base` may have a particle."""
    head = base.replace("|", " ").split(" ")[0]
    if head.endswith("ie"):
        return _inflect_first(base, head[:-2] + "ying")
    if head in _DOUBLING:
        return _inflect_first(base, head + head[-1] + "ing")
    if head == "travel":
        return _inflect_first(base, "travelling")
    silent = head.endswith("e") and not head.endswith("ee") and head != "be"
    return _inflect_first(base, (head[:-1] if silent else head) + "ing")


def article(following: str) -> str:
    """Return "a" or "an", which the next word decides."""
    return "an" if following[0].lower() in "aeiou" else "a"
