"""Draws noun phrases: persons, animals, things, places, with articles, adjectives, possessors and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from demo_corpus import lexicon, semantics
from demo_corpus import morphology as morph
from demo_corpus.clauses import NounPhrase
from demo_corpus.draws import Draw, first_name, number, surname
from demo_corpus.lexicon import COMPOUNDS, NOUNS, PARENTS, Noun
from demo_corpus.numbers import Text
from demo_corpus.semantics import CLASSES, MASS, PLACES
from demo_corpus.verbs import TRANSPORT

PRONOUNS: tuple[NounPhrase, ...] = (
    NounPhrase(("I", "me"), ("ich", "mich", "mir", ""), morph.ICH, back="I", pronoun=True),
    NounPhrase(("you", "you"), ("du", "dich", "dir", ""), morph.DU, back="you", pronoun=True),
    NounPhrase(("he", "him"), ("er", "ihn", "ihm", ""), morph.ER, "m", back="he", pronoun=True),
    NounPhrase(("she", "her"), ("sie", "sie", "ihr", ""), morph.ER, "f", back="she", pronoun=True),
    NounPhrase(("we", "us"), ("wir", "uns", "uns", ""), morph.WIR, back="we", pronoun=True),
    NounPhrase(("they", "them"), ("sie", "sie", "ihnen", ""), morph.SIE, back="they", pronoun=True),
)
_IT = {"m": ("er", "ihn", "ihm", ""), "f": ("sie", "sie", "ihr", ""), "n": ("es", "es", "ihm", "")}
POSSESSIVES = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}
WHO = NounPhrase(("who", "whom"), ("wer", "wen", "wem", "wessen"), pronoun=True)


def named(draw: Draw) -> NounPhrase:
    """Draw a person with a name: Anna, Mr. Berger."""
    female = draw.chance(0.5)
    gender, back = ("f", "she") if female else ("m", "he")
    if draw.chance(0.75):
        name = first_name(draw, female)
        return NounPhrase((name, name), (name, name, name, name + "s"), gender=gender, back=back)
    name = surname(draw)
    en = f"{'Mrs.' if female else 'Mr.'} {name}"
    if female:
        return NounPhrase((en, en), (f"Frau {name}",) * 3 + (f"Frau {name}s",), gender="f", back="she")
    cases = (f"Herr {name}", f"Herrn {name}", f"Herrn {name}", f"Herrn {name}s")
    return NounPhrase((en, en), cases, gender="m", back="he")


def pronoun_for(antecedent: NounPhrase) -> NounPhrase:
    """Return the pronoun that refers back to a noun phrase.

    The English noun decides between he, she and they. For "it" the German gender decides the German pronoun.
    """
    if antecedent.back == "it":
        return NounPhrase(("it", "it"), _IT[antecedent.gender], gender=antecedent.gender, back="it", pronoun=True)
    return next(pronoun for pronoun in PRONOUNS if pronoun.back == antecedent.back)


def adjectives_of(word: str) -> tuple[str, ...]:
    """Return the adjectives that a noun can take. The first class that lists the noun decides."""
    for name, adjectives in semantics.ADJECTIVES_BY_CLASS.items():
        if word in CLASSES[name]:
            return adjectives
    return semantics.THING_ADJECTIVES


def common(
    draw: Draw,
    determiner: str,
    word: Noun,
    *,
    plural: bool = False,
    describe: float = 0.25,
    back: str = "it",
    kein: bool = False,
) -> NounPhrase:
    """Draw a determiner, perhaps an adjective, and a noun. The determiner "" is for bare plurals and mass nouns.

    With `kein` the German phrase has the determiner kein, as the object of a negated clause.
    """
    head = word.en.rpartition(" ")[2] if word.en not in NOUNS else word.en
    adjectives: tuple[lexicon.Adjective, ...] = ()
    if draw.chance(describe):
        adjective = draw.pick(adjectives_of(head))
        draw.note("adjective+noun", adjective, head)
        adjectives = (semantics.ADJECTIVES[adjective],)
    german = morph.noun_phrase("no" if kein else determiner, adjectives, word, plural)
    words = [adjective.en for adjective in adjectives] + [morph.english_plural(word) if plural else word.en]
    english = {"a": morph.article(words[0]), "this": "these" if plural else "this"}.get(determiner, determiner)
    en = " ".join([english, *words]) if english else " ".join(words)
    slot, back = (morph.SIE, "they") if plural else (morph.ER, back)
    definite = determiner not in ("", "a")
    return NounPhrase((en, en), german, slot, word.gender, back, head, definite, kein=kein)


def counted(draw: Draw, value: int, word: Noun) -> NounPhrase:
    """Return a phrase of a number and a plural noun: "twenty-three books"."""
    plain = common(draw, "", word, plural=True, describe=0.0)
    count = number(draw, value)
    en = f"{count.en} {plain.english[0]}"
    cases = [f"{count.de} {form}" for form in plain.german]
    return replace(plain, english=(en, en), german=(cases[0], cases[1], cases[2], cases[3]))


def noun_of(draw: Draw, classes: str, compounds: float = 0.65) -> Noun:
    """Draw a noun from `classes`, a list of classes and nouns. A head of compounds may become a compound."""
    name = draw.pick(classes.split())
    return noun_called(draw, draw.pick(CLASSES[name]) if name in CLASSES else name, compounds)


def noun_called(draw: Draw, word: str, compounds: float) -> Noun:
    """Return the noun. If it is a head of compounds, it may become one of them (recorded)."""
    noun = NOUNS[word]
    if word in COMPOUNDS and draw.chance(compounds):
        modifier = draw.pick(COMPOUNDS[word])
        draw.note("compound", modifier, word)
        return lexicon.compound(modifier, noun)
    return noun


def is_mass(word: Noun) -> bool:
    """Return whether the noun is used without plural and without indefinite article."""
    return word.en in MASS or word.en.rpartition(" ")[2] in MASS


def thing(draw: Draw, classes: str, owner: str = "", negated: bool = False, describe: float = 0.25) -> NounPhrase:
    """Draw a thing as an object: definite, indefinite, plural or possessed. `owner` is the subject's pronoun."""
    word = noun_of(draw, classes)
    kind = draw.below(10)
    if is_mass(word):
        return common(draw, "the" if kind < 3 else "", word, describe=describe, kein=negated and kind >= 3)
    if kind < 4:
        return common(draw, "the", word, plural=draw.chance(0.2), describe=describe)
    if kind < 7 or not word.plural:
        return common(draw, "a", word, kein=negated, describe=describe)
    if kind == 7 and owner in POSSESSIVES and word.en.rpartition(" ")[2] not in CLASSES["public"]:
        return common(draw, POSSESSIVES[owner], word, describe=describe)
    if kind == 8:
        return common(draw, "this", word, plural=draw.chance(0.3), describe=describe)
    if negated or draw.chance(0.5):
        return common(draw, "", word, plural=True, kein=negated, describe=describe)
    return counted(draw, 2 + draw.below(9), word)


_MEN, _WOMEN = frozenset(CLASSES["man"]), frozenset(CLASSES["woman"])


def _back(word: str) -> str:
    if word in ("child", "girl"):
        return ""
    female = word in _WOMEN or word in ("mother", "sister", "daughter", "aunt", "grandmother")
    return "she" if female else "he"


def human(draw: Draw) -> NounPhrase:
    """Draw a person: with a name, or a noun such as a profession with the or this."""
    if draw.chance(0.35):
        return named(draw)
    word = NOUNS[draw.pick(CLASSES[draw.pick(("man", "man", "woman", "youth"))])]
    plural = draw.chance(0.15)
    determiner = "this" if draw.chance(0.12) else "the"
    return common(draw, determiner, word, plural=plural, describe=0.2, back=_back(word.en))


def family(draw: Draw, owner: str = "") -> NounPhrase:
    """Draw a relative: his aunt, Peter's sister, my parents. `owner` is the subject's pronoun, not always used."""
    if draw.chance(0.2):
        person = named(draw)
        word = NOUNS[draw.pick(CLASSES["relative"])]
        return possessed(person, word, _back(word.en))
    owners = ("my", "your", "his", "her")
    determiner = POSSESSIVES[owner] if owner in POSSESSIVES and draw.chance(0.8) else draw.pick(owners)
    if owner in ("I", "you", "we") and determiner in ("my", "our", "your"):
        determiner = POSSESSIVES[owner]
    if draw.chance(0.12):
        return common(draw, determiner, PARENTS, plural=True, describe=0.0)
    word = NOUNS[draw.pick(CLASSES["relative"])]
    return common(draw, determiner, word, describe=0.15, back=_back(word.en))


def possessed(owner: NounPhrase, word: Noun, back: str) -> NounPhrase:
    """Return a person's relative: Anna's sister (Annas Schwester), the teacher's sister (die Schwester des Lehrers)."""
    en = f"{owner.english[0]}'s {word.en}"
    if owner.lemma:
        cases = tuple(f"{form} {owner.german[3]}" for form in morph.noun_phrase("the", (), word, False))
    else:
        cases = tuple(f"{owner.german[3]} {morph.noun(word, False, case)}" for case in range(4))
    return NounPhrase((en, en), (cases[0], cases[1], cases[2], cases[3]), gender=word.gender, back=back, lemma=word.en)


def person(draw: Draw) -> NounPhrase:
    """Draw a person as a subject: pronoun, name, profession or relative."""
    kind = draw.below(20)
    if kind < 6:
        return draw.pick(PRONOUNS)
    if kind < 11:
        return named(draw)
    return human(draw) if kind < 16 else family(draw)


def _disjoint(object_slot: int, subject_slot: int) -> bool:
    """Return whether two persons can be subject and object of a verb. I and us cannot."""
    return {object_slot, subject_slot} != {morph.ICH, morph.WIR}


def recipient(draw: Draw, classes: str, subject: NounPhrase) -> NounPhrase:
    """Draw a person other than the subject as an object: a pronoun of another grammatical person, or a noun."""
    name = draw.pick(classes.split())
    if draw.chance(0.25):
        return draw.pick([p for p in PRONOUNS if p.slot != subject.slot and _disjoint(p.slot, subject.slot)])
    if name == "family":
        return family(draw, subject.back)
    if name in CLASSES:
        return common(draw, "the", NOUNS[draw.pick(CLASSES[name])], back="")
    receiver = human(draw)
    while (receiver.lemma and receiver.lemma == subject.lemma) or receiver.english == subject.english:
        receiver = human(draw)
    return receiver


def place_noun(draw: Draw, words: Sequence[str], determiner: str = "") -> tuple[NounPhrase, semantics.Place]:
    """Draw a place, mostly with the definite article, and its prepositions."""
    head = draw.pick(words)
    word = noun_called(draw, head, 0.35)
    determiner = determiner or ("a" if draw.chance(0.15) else "the")
    return common(draw, determiner, word, describe=0.15), PLACES[head]


def location(draw: Draw, words: Sequence[str]) -> Text:
    """Draw a location: in the kitchen, at the market."""
    phrase, place = place_noun(draw, words)
    return Text(f"{place.en} {phrase.english[1]}", morph.with_preposition(place.location, phrase.german[2]))


def direction(draw: Draw, words: Sequence[str]) -> Text:
    """Draw a direction: to the kitchen. German has the accusative, or zu with the dative."""
    phrase, place = place_noun(draw, words, "" if words is not semantics.ROOMS_AT_HOME else "the")
    case = 2 if place.direction == "zu" else 1
    return Text(f"to {phrase.english[1]}", morph.with_preposition(place.direction, phrase.german[case]))


def transport(draw: Draw) -> Text:
    """Draw a means of transport: by bus."""
    word = draw.pick(TRANSPORT)
    return Text(f"by {word.en}", f"mit {morph.noun_phrase('the', (), word, False)[2]}")
