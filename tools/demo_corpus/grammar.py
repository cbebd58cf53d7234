"""Draws clauses: a subject, a verb that goes with it, the verb's objects, a tense or modal verb, adverbials."""

from __future__ import annotations

from dataclasses import replace

from demo_corpus import clauses as c
from demo_corpus import draws, phrases, semantics, times, verbs
from demo_corpus import morphology as morph
from demo_corpus.clauses import Clause, Mode, NounPhrase
from demo_corpus.draws import Draw
from demo_corpus.lexicon import NOUNS
from demo_corpus.numbers import Text
from demo_corpus.semantics import CLASSES
from demo_corpus.verbs import Verb

PAST_MODES: tuple[Mode, ...] = (c.PAST, c.PAST, c.PAST, c.WANTED, c.HAD_TO, c.COULD, c.MIGHT)
PRESENT_MODES: tuple[Mode, ...] = (c.PRESENT, c.PRESENT, c.WANT, c.MUST, c.CAN)
ALL_MODES: tuple[Mode, ...] = (
    c.PRESENT,
    c.PRESENT,
    c.PRESENT,
    c.PROGRESSIVE,
    c.PROGRESSIVE,
    c.PROGRESSIVE,
    c.PAST,
    c.PAST,
    c.PAST,
    c.PAST,
    c.FUTURE,
    c.FUTURE,
    c.CAN,
    c.WANT,
    c.MUST,
    c.SHOULD,
    c.MAY,
    c.WOULD_LIKE,
    c.LIKES_TO,
    c.WANTED,
    c.HAD_TO,
    c.COULD,
    c.MIGHT,
)
REPORTED_MODES: tuple[Mode, ...] = tuple(mode for mode in ALL_MODES if mode is not c.WOULD_LIKE)
# Kind of verb -> the modes that it allows. A verb of the kind "action" allows all modes.
_MODES_OF_KIND: dict[str, tuple[Mode, ...]] = {
    "state": (c.PRESENT, c.PAST),
    "event": (c.PAST,),
    "sense": (c.PAST, c.CAN, c.COULD),
    "present": (c.PRESENT,),
    "happening": (c.PRESENT, c.PAST, c.FUTURE),
}
_NOT_HUMAN = frozenset(word for name in ("animal", "vehicle") for word in CLASSES[name])
_NEVER_NEGATED = (c.PROGRESSIVE, c.LIKES_TO, c.WOULD_LIKE)


def _mode(draw: Draw, verb: Verb, subject: NounPhrase, modes: tuple[Mode, ...]) -> Mode | None:
    allowed = _MODES_OF_KIND.get(verb.modes, modes)
    common = [mode for mode in modes if mode in allowed]
    if not common:
        return None
    if subject.lemma in _NOT_HUMAN:
        common = [mode for mode in common if mode in (c.PRESENT, c.PROGRESSIVE, c.PAST)] or common
    mode = draw.pick(common)
    if mode is c.PAST and verb.past == verb.en and subject.slot != morph.ER:
        return None  # "they read" would be ambiguous
    return mode


def subject_of(draw: Draw, verb: Verb) -> NounPhrase:
    """Draw a subject of one of the verb's classes."""
    name = draw.pick(verb.subjects.split())
    if name == "person":
        return phrases.person(draw)
    return phrases.common(draw, "the", NOUNS[draw.pick(CLASSES[name])], describe=0.2)


def _object(draw: Draw, verb: Verb, subject: NounPhrase, negated: bool) -> NounPhrase:
    """Draw the accusative object: a person or a thing."""
    name = draw.pick(verb.objects.split())
    if name in ("human", "family"):
        return phrases.recipient(draw, name, subject)
    thing = phrases.thing(draw, name, subject.back, negated, 0.0 if verb.en in ("cook", "bake") else 0.25)
    draw.note("verb+object", verb.en.replace("|", " "), thing.lemma)
    return thing


def _prepositional(draw: Draw, verb: Verb, subject: NounPhrase) -> Text:
    name = draw.pick(verb.objects.split())
    if name in ("human", "family"):
        phrase = phrases.recipient(draw, name, subject)
    else:
        owned = name in ("pet", "garden") and subject.back in phrases.POSSESSIVES and draw.chance(0.5)
        determiner = phrases.POSSESSIVES[subject.back] if owned else "the"
        phrase = phrases.common(draw, determiner, phrases.noun_of(draw, name, 0.0 if owned else 0.4), back="")
        draw.note("verb+object", verb.en, phrase.lemma)
    german = morph.with_preposition(verb.preposition, phrase.german[verb.case])
    return Text(f"{verb.english_preposition} {phrase.english[1]}", german)


def _frame(draw: Draw) -> Verb:
    """Draw a verb. The frames (accusative, dative, ...) are weighted."""
    kind = draw.below(100)
    if kind < 46:
        return draw.pick(verbs.ACCUSATIVE)
    if kind < 58:
        return draw.pick(verbs.DITRANSITIVE)
    if kind < 65:
        return draw.pick(verbs.DATIVE)
    if kind < 77:
        return draw.pick(verbs.PREPOSITIONAL)
    return draw.pick(verbs.INTRANSITIVE)


def _filled(draw: Draw, clause: Clause) -> Clause:
    """Return the clause with drawn objects for its verb."""
    verb, subject = clause.verb, clause.subject
    if verb.preposition:
        return replace(clause, complement=_prepositional(draw, verb, subject))
    if verb.recipients:
        clause = replace(clause, dative=phrases.recipient(draw, verb.recipients, subject))
    if verb.objects:
        accusative = _object(draw, verb, subject, clause.negated)
        clause = replace(clause, accusative=accusative)
    return clause


def _adverbials(draw: Draw, clause: Clause, timed: bool) -> Clause:
    """Return the clause, perhaps with a drawn manner, place, time or adverb of frequency."""
    verb, mode = clause.verb, clause.mode
    name = verb.en
    if name in semantics.MANNERS_OF_VERB and draw.chance(0.15):
        manner = draw.pick(semantics.MANNERS_OF_VERB[name].split())
        clause = replace(clause, manner=Text(manner, semantics.MANNERS[manner]))
    if name in semantics.PLACES_OF_VERB and draw.chance(0.3) and not clause.negated:
        clause = replace(clause, place=phrases.location(draw, semantics.PLACES_OF_VERB[name]))
    if not timed or verb.modes == "state" or not mode.time:
        return clause
    if mode is c.PRESENT and not clause.negated and draw.chance(0.25):
        return replace(clause, adverb=draw.pick(times.ADVERBS))
    if mode is not c.LIKES_TO and verb.modes != "present" and draw.chance(0.45):
        return replace(clause, time=_time(draw, clause))
    return clause


def _time(draw: Draw, clause: Clause) -> Text:
    """Draw a time that fits the clause's tense. It is a fixed one if a point in time would sound odd."""
    if clause.negated or clause.verb in (verbs.STAY, verbs.SIT):
        return draw.pick(times.FIXED[clause.mode.time])
    return times.time_for(draw, clause.mode.time)


def action(
    draw: Draw,
    subject: NounPhrase | None = None,
    modes: tuple[Mode, ...] = ALL_MODES,
    *,
    timed: bool = True,
    negation: float = 0.15,
    special: float = 0.3,
) -> Clause:
    """Draw a clause about an action of a person (or of `subject`). `special` is the share of `_special` clauses."""
    if draw.chance(special):
        return _special(draw, subject, modes, timed, negation)
    while True:
        verb = _frame(draw)
        if subject and "person" not in verb.subjects.split():
            continue
        actor = subject or subject_of(draw, verb)
        mode = _mode(draw, verb, actor, modes)
        if mode is None:
            continue
        negated = mode not in _NEVER_NEGATED and draw.chance(negation)
        if actor.lemma:
            draw.note("subject+verb", actor.lemma, verb.en.replace("|", " "))
        clause = _filled(draw, Clause(actor, verb, mode, negated))
        return _adverbials(draw, clause, timed)


def _special(draw: Draw, subject: NounPhrase | None, modes: tuple[Mode, ...], timed: bool, negation: float) -> Clause:
    """Draw a clause of motion, staying or placement, or with a bare complement."""
    subject = subject or phrases.person(draw)
    build = draw.pick((motion, motion, motion, staying, placement, placement, bare_complement))
    unfit = {staying: c.PROGRESSIVE, placement: c.LIKES_TO}.get(build)
    allowed = tuple(mode for mode in modes if mode is not unfit)
    mode = draw.pick(allowed or (c.PRESENT,))
    negated = mode not in _NEVER_NEGATED and draw.chance(negation)
    clause = build(draw, subject, mode, negated and build is not bare_complement)
    if subject.lemma:
        draw.note("subject+verb", subject.lemma, clause.verb.en)
    if timed and mode.time and mode is not c.LIKES_TO and clause.verb is not verbs.LIVE and draw.chance(0.45):
        clause = replace(clause, time=_time(draw, clause))
    return clause


def motion(draw: Draw, subject: NounPhrase, mode: Mode, negated: bool = False) -> Clause:
    """Draw a clause of going, driving, travelling or flying somewhere, perhaps with somebody or by some means."""
    kind = draw.below(10)
    manner = c.EMPTY
    if kind < 4:
        name = draws.town(draw)
        verb = draw.pick((verbs.TRAVEL, verbs.FLY, verbs.MOTION[2]))
        goal = Text(f"to {name}", f"nach {name}")
        if verb is verbs.TRAVEL and draw.chance(0.5):
            manner = phrases.transport(draw)
    elif kind < 8:
        verb = draw.pick(verbs.MOTION)
        words = semantics.ROOMS_AT_HOME if verb.en != "drive" and draw.chance(0.4) else semantics.PUBLIC_PLACES
        goal = phrases.direction(draw, words)
    elif kind == 8:
        verb, goal = draw.pick(verbs.MOTION), Text("home", "nach Hause")
    else:
        verb = draw.pick(verbs.MOTION[:1] + verbs.MOTION[2:])
        person = phrases.recipient(draw, "host family", subject)
        goal = Text(f"to {person.english[1]}", morph.with_preposition("zu", person.german[2]))
    if not manner.en and draw.chance(0.2):
        companion = phrases.family(draw, subject.back)
        manner = Text(f"with {companion.english[1]}", f"mit {companion.german[2]}")
    return Clause(subject, verb, mode, negated, complement=goal, manner=manner)


def staying(draw: Draw, subject: NounPhrase, mode: Mode, negated: bool = False) -> Clause:
    """Draw a clause of living, staying, sitting or waiting somewhere."""
    kind = draw.below(6)
    if kind < 3:
        verb = verbs.LIVE if kind < 2 else verbs.STAY
        name = draws.town(draw)
        where = Text(f"in {name}", f"in {name}")
    elif kind == 3:
        verb, where = verbs.STAY, Text("at home", "zu Hause")
    elif kind == 4:
        verb = draw.pick((verbs.LIVE, verbs.STAY))
        host = phrases.family(draw, subject.back)
        where = Text(f"with {host.english[1]}", f"bei {host.german[2]}")
    else:
        verb = draw.pick((verbs.SIT, verbs.WAIT))
        where = phrases.location(draw, semantics.PUBLIC_PLACES)
    return Clause(subject, verb, mode, negated, complement=where)


def _landmark(draw: Draw, moved: str, verb: Verb, case: int) -> Text:
    """Draw where a thing lies or goes: a two-way preposition with the dative or the accusative."""
    if verb.en == "hang":
        en, de, word = draw.pick(tuple(spot for spot in semantics.HANGING_SPOTS if spot[2] != moved))
        noun = phrases.noun_of(draw, word, 0.25)
    elif verb.en in ("lay", "lie") and draw.chance(0.3):
        en, de = "in", "in"
        noun = phrases.noun_of(draw, "container", 0.25)
    else:
        en, de = draw.pick(semantics.AROUND)
        noun = phrases.noun_of(draw, "support" if en != "on" else "surface", 0.25)
    phrase = phrases.common(draw, "the", noun, describe=0.15)
    return Text(f"{en} {phrase.english[1]}", morph.with_preposition(de, phrase.german[case]))


def placement(draw: Draw, subject: NounPhrase, mode: Mode, negated: bool = False) -> Clause:
    """Draw a clause of laying, placing or hanging a thing somewhere."""
    verb, _ = draw.pick(verbs.PLACEMENT)
    moved = phrases.thing(draw, verb.objects, subject.back, negated)
    draw.note("verb+object", verb.en, moved.lemma)
    where = _landmark(draw, moved.lemma, verb, morph.ACCUSATIVE)
    return Clause(subject, verb, mode, negated, accusative=moved, complement=where)


def position(draw: Draw, subject: NounPhrase | None = None, kind: int | None = None) -> Clause:
    """Draw a clause about a thing that lies, stands or hangs somewhere. `kind` is the verb's index in `PLACEMENT`."""
    _, verb = draw.pick(verbs.PLACEMENT) if kind is None else verbs.PLACEMENT[kind]
    lying = subject or phrases.common(draw, "the", NOUNS[draw.pick(CLASSES[verb.subjects])], describe=0.35)
    mode = c.PRESENT if verb.modes == "present" or draw.chance(0.7) else c.PAST
    draw.note("subject+verb", lying.lemma, verb.en)
    return Clause(lying, verb, mode, complement=_landmark(draw, lying.lemma, verb, morph.DATIVE))


def bare_complement(draw: Draw, subject: NounPhrase, mode: Mode, negated: bool = False) -> Clause:
    """Draw a clause with a bare complement: playing football, learning German."""
    verb, options = draw.pick(verbs.COMPLEMENTS)
    en, de = draw.pick(options)
    draw.note("verb+object", verb.en, en)
    return Clause(subject, verb, mode, negated, complement=Text(en, de))


def being(subject: NounPhrase, past: bool, predicate: Text, negated: bool = False) -> Clause:
    """Return a clause with to be and a predicate."""
    return Clause(subject, verbs.BE, c.PAST if past else c.PRESENT, negated, complement=predicate)


def adjective_of(draw: Draw, subject: NounPhrase) -> Text:
    """Draw a predicative adjective that goes with the subject's noun."""
    adjective = semantics.ADJECTIVES[draw.pick(phrases.adjectives_of(subject.lemma))]
    draw.note("adjective+noun", adjective.en, subject.lemma)
    return Text(adjective.en, adjective.de)
