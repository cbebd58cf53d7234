"""Turns the parts of a clause into words: English word order, and German word order with its topological fields.

A `Clause` names subject, verb, mode and complements; the functions here put them in order. German middle field:
subject, reflexive, pronoun objects (accusative before dative), time, adverb, dative, definite accusative, nicht,
manner, place, indefinite accusative, complement, then the verbs of the end. Negated clauses put definite objects
before the time. A relative clause of an object goes to the end of the clause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from demo_corpus import morphology as morph
from demo_corpus.numbers import Text
from demo_corpus.verbs import BE, HAVE, Verb

EMPTY = Text("", "")


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase: English subject and object form, the four German cases and its agreement.

    `back` is the English subject pronoun that can refer back to the phrase ("" if the German pronoun is disputed).
    `lemma` is the English head noun. `kein` marks an indefinite object under negation. `relative` is a relative clause
    with its commas.
    """

    english: tuple[str, str]
    german: tuple[str, str, str, str]
    slot: int = morph.ER
    gender: str = "n"
    back: str = ""
    lemma: str = ""
    definite: bool = True
    pronoun: bool = False
    kein: bool = False
    relative: Text = EMPTY


@dataclass(frozen=True)
class Mode:
    """Tense or modal verb: the English auxiliary (or inflected head with `link`), the German finite verb, an adverb.

    `english` holds one auxiliary per slot, or nothing if the verb itself inflects; `head` is an inflected verb
    before an infinitive ("want", with link "to"). `german` is the infinitive of the finite auxiliary, or nothing.
    `time` names the time adverbials that go with the mode.
    """

    name: str
    time: str
    english: tuple[str, ...] = ()
    head: str = ""
    link: str = ""
    past: bool = False
    ing: bool = False
    german: str = ""
    adverb: str = ""


@dataclass(frozen=True)
class Clause:
    """The parts of a clause. Absent parts are None or empty."""

    subject: NounPhrase
    verb: Verb
    mode: Mode
    negated: bool = False
    passive: bool = False
    accusative: NounPhrase | None = None
    dative: NounPhrase | None = None
    complement: Text = EMPTY
    place: Text = EMPTY
    manner: Text = EMPTY
    time: Text = EMPTY
    adverb: Text = EMPTY


PRESENT = Mode("present", "present")
PROGRESSIVE = Mode("progressive", "", english=morph.ENGLISH_BE, ing=True, adverb="gerade")
PAST = Mode("past", "past", past=True)
FUTURE = Mode("future", "future", english=("will",) * 5, german="werden")
CAN = Mode("can", "future", english=("can",) * 5, german="können")
COULD = Mode("could", "past", english=("could",) * 5, german="können", past=True)
WANT = Mode("want", "future", head="want", link="to", german="wollen")
WANTED = Mode("wanted", "past", head="want", link="to", german="wollen", past=True)
MUST = Mode("must", "future", head="have", link="to", german="müssen")
HAD_TO = Mode("had to", "past", head="have", link="to", german="müssen", past=True)
SHOULD = Mode("should", "future", english=("should",) * 5, german="sollen")
MAY = Mode("may", "future", english=morph.ENGLISH_BE, link="allowed to", german="dürfen")
MIGHT = Mode("was allowed", "past", english=morph.ENGLISH_WAS, link="allowed to", german="dürfen", past=True)
WOULD_LIKE = Mode("would like", "future", english=("would",) * 5, link="like to", german="möchten")
LIKES_TO = Mode("likes to", "present", head="like", link="to", adverb="gern")


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _particle(base: str) -> tuple[str, str]:
    verb, _, particle = base.partition("|")
    return verb, particle


def _english_be(clause: Clause) -> str:
    return (morph.ENGLISH_WAS if clause.mode.past else morph.ENGLISH_BE)[clause.subject.slot]


def _english_verbs(clause: Clause, support: bool) -> tuple[str, str]:
    """Return the auxiliary and the main verb. With `support` (negation, question), do may be the auxiliary."""
    mode, verb, slot = clause.mode, clause.verb, clause.subject.slot
    base = f"be {verb.participle}" if clause.passive else verb.en
    if mode.english:
        return mode.english[slot], _join(mode.link, morph.english_ing(base) if mode.ing else base)
    if not mode.head and base.split(" ")[0] == "be":
        return _english_be(clause), base[3:]
    head, tail = (mode.head, _join(mode.link, base)) if mode.head else (base, "")
    if support:
        do = "did" if mode.past else "does" if slot == morph.ER else "do"
        return do, _join(head, tail)
    if mode.past:
        inflected = {"want": "wanted", "have": "had"}[head] if mode.head else verb.past
    else:
        inflected = morph.english_present(head, slot)
    return "", _join(inflected, tail)


def _english_tail(clause: Clause, main: str) -> str:
    """Return main verb, objects and adverbials. A pronoun is before a movable particle."""
    verb, particle = _particle(main)
    accusative, dative = clause.accusative, clause.dative
    obj = accusative.english[1] if accusative else ""
    recipient = dative.english[1] if dative else ""
    words = [verb]
    if accusative and dative:
        words += [obj, "to " + recipient] if accusative.pronoun else [recipient, obj]
    elif accusative and not accusative.pronoun:
        words += [particle, obj]
    else:
        words += [obj, recipient, particle]
    words += [clause.complement.en, clause.manner.en, clause.place.en]
    relative = accusative.relative.en if accusative else ""
    return _join(*words, clause.time.en, relative)


def english_statement(clause: Clause) -> str:
    """Return the English declarative clause."""
    aux, main = _english_verbs(clause, clause.negated)
    adverb = clause.adverb.en
    before = _join(clause.subject.english[0], clause.subject.relative.en)
    if aux:
        negation = "not" if clause.negated else ""
        return _join(before, aux, negation, adverb, _english_tail(clause, main)).replace(" can not ", " cannot ")
    return _join(before, adverb, _english_tail(clause, main))


def english_question(clause: Clause) -> str:
    """Return the English question without its question word: auxiliary, subject, the rest."""
    aux, main = _english_verbs(clause, True)
    negation = "not" if clause.negated else ""
    return _join(aux, clause.subject.english[0], negation, clause.adverb.en, _english_tail(clause, main))


def english_infinitive(clause: Clause) -> str:
    """Return the bare English infinitive with its complements."""
    return _english_tail(clause, clause.verb.en)


def english_gerund(clause: Clause) -> str:
    """Return the English -ing form with its complements."""
    return _english_tail(clause, morph.english_ing(clause.verb.en))


def _german_verbs(clause: Clause) -> tuple[str, list[str], str]:
    """Return the finite verb, the verbs at the clause's end, and the separable prefix ("" if an auxiliary is
    finite).
    """
    mode, verb, slot = clause.mode, clause.verb, clause.subject.slot
    if mode.german:
        table = morph.PRETERITE if mode.past else morph.PRESENT
        closing = [verb.perfect, "werden"] if clause.passive else [verb.prefix + verb.infinitive]
        return table[mode.german].split()[slot], closing, ""
    if clause.passive:
        table = morph.PRETERITE if mode.past else morph.PRESENT
        return table["werden"].split()[slot], [verb.perfect], ""
    if not mode.past:
        return morph.present(verb, slot), [], verb.prefix
    if verb in (BE, HAVE):
        return morph.PRETERITE[verb.infinitive].split()[slot], [], ""
    return morph.PRESENT[verb.aux].split()[slot], [verb.perfect], ""


def _middle_field(clause: Clause, subject: str) -> str:
    """Return the words between the finite verb (or conjunction) and the verbs at the end of the clause."""
    accusative, dative = clause.accusative, clause.dative
    early, dat, definite, late = "", "", "", ""
    if accusative and accusative.pronoun:
        early = accusative.german[1]
    elif accusative and accusative.definite:
        definite = accusative.german[1]
    elif accusative:
        late = accusative.german[1]
    if dative and dative.pronoun:
        early = _join(early, dative.german[2])
    elif dative:
        dat = dative.german[2]
    reflexive = morph.REFLEXIVE[clause.subject.slot] if clause.verb.reflexive else ""
    first = [subject, reflexive] if clause.subject.pronoun else [reflexive, subject]
    times = [clause.time.de, clause.adverb.de, clause.mode.adverb]
    nicht = "nicht" if clause.negated and not (accusative and accusative.kein) else ""
    objects = [*([dat, definite] if clause.negated else []), *times, *([] if clause.negated else [dat, definite])]
    return _join(*first, early, *objects, nicht, clause.manner.de, clause.place.de, late, clause.complement.de)


def _after_end(clause: Clause) -> str:
    return clause.accusative.relative.de if clause.accusative else ""


def german_main(clause: Clause, first: str = "") -> str:
    """Return the verb-second clause. `first` are words before the finite verb, in the position of the subject."""
    finite, closing, prefix = _german_verbs(clause)
    subject = _join(clause.subject.german[0], clause.subject.relative.de)
    if first:
        head, middle = first, _middle_field(clause, subject)
    else:
        head, middle = subject, _middle_field(clause, "")
    return _join(head, finite, middle, *closing, prefix, _after_end(clause))


def german_question(clause: Clause, word: str = "") -> str:
    """Return the German question: the verb is first, or second after a question word."""
    finite, closing, prefix = _german_verbs(clause)
    middle = _middle_field(clause, clause.subject.german[0])
    return _join(word, finite, middle, *closing, prefix, _after_end(clause))


def german_subordinate(clause: Clause, opener: str, subject: bool = True) -> str:
    """Return the verb-final clause after a conjunction, or (without subject) after a relative pronoun."""
    finite, closing, prefix = _german_verbs(clause)
    middle = _middle_field(clause, clause.subject.german[0] if subject else "")
    return _join(opener, middle, *closing, prefix + finite, _after_end(clause))


def german_zu(clause: Clause, opener: str = "") -> str:
    """Return the infinitive clause with zu."""
    return _join(opener, _middle_field(clause, ""), morph.zu_infinitive(clause.verb), _after_end(clause))


def german_imperative(clause: Clause) -> str:
    """Return the request with bitte: Öffne bitte die Tür, Gib mir bitte das Buch, Ruh dich bitte aus."""
    polite = replace(clause, adverb=Text("", "bitte"))
    return _join(morph.imperative(clause.verb), _middle_field(polite, ""), clause.verb.prefix)


def statement(clause: Clause) -> Text:
    """Return a main clause that begins with the subject."""
    return Text(english_statement(clause), german_main(clause))


def fronted(clause: Clause) -> Text:
    """Return a main clause that begins with the time. The German subject is after the verb."""
    rest = replace(clause, time=EMPTY)
    return Text(f"{clause.time.en} {english_statement(rest)}", german_main(rest, clause.time.de))


def subordinate(clause: Clause, conjunction: Text) -> Text:
    """Return a subordinate clause with its conjunction, without commas."""
    return Text(f"{conjunction.en} {english_statement(clause)}", german_subordinate(clause, conjunction.de))


def sentence(text: Text, end: str = ".") -> Text:
    """Return a finished sentence: with a capital letter and a final mark, without double commas."""
    return Text(_finish(text.en, end), _finish(text.de, end))


def _finish(words: str, end: str) -> str:
    words = words.replace(" ,", ",").replace(",,", ",").rstrip(",")
    for mark in ".?!":
        words = words.replace("," + mark, mark)
    return words[0].upper() + words[1:] + end
