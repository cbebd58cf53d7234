"""Draws subordinate clauses: reasons, conditions, relative clauses with agreeing pronouns."""

from __future__ import annotations

from dataclasses import replace

from demo_corpus import clauses as c
from demo_corpus import grammar, phrases, semantics, verbs
from demo_corpus.clauses import Clause, NounPhrase
from demo_corpus.draws import Draw
from demo_corpus.lexicon import NOUNS
from demo_corpus.numbers import Text
from demo_corpus.semantics import CLASSES

# Relative pronouns per gender (p: plural) in the order of the cases.
RELATIVE: dict[str, tuple[str, str, str, str]] = {
    "m": ("der", "den", "dem", "dessen"),
    "f": ("die", "die", "der", "deren"),
    "n": ("das", "das", "dem", "dessen"),
    "p": ("die", "die", "denen", "deren"),
}
_STATES = ("tired", "sick", "happy")
_WEATHER = ("good", "bad", "cold", "warm")
_WEATHER_DE = {"good": "gut", "bad": "schlecht", "cold": "kalt", "warm": "warm"}
IMPERSONAL = NounPhrase(("it", "it"), ("es", "es", "ihm", ""), pronoun=True)


def referent(draw: Draw) -> NounPhrase:
    """Draw a person that a pronoun can refer back to."""
    while True:
        person = phrases.person(draw)
        if person.back:
            return person


def joined(front: Text, main: Clause) -> Text:
    """Return a sentence with the subordinate clause in front. The German finite verb follows the comma."""
    return c.sentence(Text(f"{front.en}, {c.english_statement(main)}", c.german_main(main, f"{front.de},")))


def weather(draw: Draw, past: bool) -> Clause:
    """Draw a clause about the weather: it rains, it snows, the weather is good."""
    kind = draw.below(5)
    if kind < 2:
        return Clause(IMPERSONAL, (verbs.RAIN, verbs.SNOW)[kind], c.PAST if past else c.PRESENT)
    subject = NounPhrase(("the weather", "the weather"), ("das Wetter", "das Wetter", "dem Wetter", "des Wetters"))
    en = draw.pick(_WEATHER)
    return grammar.being(subject, past, Text(en, _WEATHER_DE[en]))


def _state(draw: Draw, subject: NounPhrase, past: bool) -> Clause:
    adjective = semantics.ADJECTIVES[draw.pick(_STATES)]
    return grammar.being(subject, past, Text(adjective.en, adjective.de))


def _time_left(draw: Draw, subject: NounPhrase, past: bool) -> Clause:
    phrase = draw.pick((Text("no time", "keine Zeit"), Text("a lot of time", "viel Zeit")))
    return Clause(subject, verbs.HAVE, c.PAST if past else c.PRESENT, complement=phrase)


def reason(draw: Draw, subject: NounPhrase, past: bool) -> Clause:
    """Draw a reason: why, or despite which fact, the subject does something."""
    kind = draw.below(10)
    if kind < 2:
        return _state(draw, subject, past)
    if kind < 3:
        return _time_left(draw, subject, past)
    if kind < 5:
        return weather(draw, past)
    modes = (c.WANTED, c.HAD_TO, c.COULD, c.MIGHT) if past else (c.WANT, c.MUST, c.MAY, c.CAN)
    return grammar.action(draw, subject, modes, timed=False, negation=0.07)


def condition(draw: Draw, subject: NounPhrase, past: bool) -> Clause:
    """Draw a condition: when, or under which condition, the subject does something."""
    kind = draw.below(12)
    if kind < 3:
        return _state(draw, subject, past)
    if kind < 4:
        return weather(draw, past)
    if kind < 6:
        return grammar.being(subject, True, Text("young", "jung")) if past else _time_left(draw, subject, past)
    mode = c.PAST if past else c.PRESENT
    if kind < 9:
        return grammar.motion(draw, subject, mode)
    verb = draw.pick(tuple(verb for verb in verbs.INTRANSITIVE if verb.en in _EVENTS))
    return Clause(subject, verb, mode)


_EVENTS = ("get up", "wake up", "come back", "arrive", "go out")


def relative_person(draw: Draw) -> NounPhrase:
    """Draw a person with a relative clause. The pronoun is subject, object, dative, prepositional or genitive."""
    word = NOUNS[draw.pick(CLASSES[draw.pick(("man", "woman", "youth"))])]
    plural = draw.chance(0.2)
    person = phrases.common(draw, "the", word, plural=plural, describe=0.15, back="")
    pronouns = RELATIVE["p" if plural else word.gender]
    kind = draw.below(10)
    if kind < 4:
        return _with_relative(person, _subject_relative(draw, person, pronouns))
    if kind < 8:
        return _with_relative(person, _object_relative(draw, person, pronouns))
    relative = draw.pick(tuple(word for word in CLASSES["relative"] if word not in ("son", "daughter")))
    noun = NOUNS[relative]
    whose = NounPhrase((f"whose {relative}",) * 2, (f"{pronouns[3]} {noun.de}",) * 4, lemma=relative)
    clause = grammar.action(draw, whose, (c.PRESENT, c.PAST, c.WANT), timed=False, negation=0.0)
    return _with_relative(person, Text(c.english_statement(clause), c.german_subordinate(clause, "")))


def _with_relative(phrase: NounPhrase, clause: Text) -> NounPhrase:
    return replace(phrase, relative=Text(clause.en, f", {clause.de},"))


def _subject_relative(draw: Draw, person: NounPhrase, pronouns: tuple[str, ...]) -> Text:
    who = replace(person, english=("who", "who"), back="")
    clause = grammar.action(draw, who, (c.PRESENT, c.PAST, c.PAST, c.WANT), timed=draw.chance(0.2), negation=0.05)
    return Text(c.english_statement(clause), c.german_subordinate(clause, pronouns[0], subject=False))


def _object_relative(draw: Draw, person: NounPhrase, pronouns: tuple[str, ...]) -> Text:
    kind = draw.below(3)
    if kind == 0:
        verb = draw.pick(tuple(v for v in verbs.ACCUSATIVE if "human" in v.objects))
        opener = Text("whom", pronouns[1])
    elif kind == 1:
        verb, opener = draw.pick(verbs.DATIVE), Text("whom", pronouns[2])
    else:
        verb = draw.pick(tuple(v for v in verbs.PREPOSITIONAL if "human" in v.objects))
        opener = Text(f"{verb.english_preposition} whom", f"{verb.preposition} {pronouns[verb.case]}")
    mode = draw.pick((c.PRESENT, c.PAST)) if verb.modes in ("action", "state") else c.PAST
    subject = phrases.person(draw)
    while subject.lemma == person.lemma:
        subject = phrases.person(draw)
    clause = Clause(subject, verb, mode)
    return Text(f"{opener.en} {c.english_statement(clause)}", c.german_subordinate(clause, opener.de))


def relative_thing(draw: Draw, phrase: NounPhrase | None = None, main: verbs.Verb | None = None) -> NounPhrase:
    """Draw a thing with a relative clause: an action of somebody with the thing, or where or how the thing is.

    The action's verb differs from the verb `main` of the main clause if possible.
    """
    thing = phrase or phrases.common(draw, "the", phrases.noun_of(draw, "goods small sight"), describe=0.15)
    pronouns = RELATIVE[thing.gender]
    kind = draw.below(10)
    for number, (_, standing) in enumerate(verbs.PLACEMENT):
        if thing.lemma in CLASSES[standing.subjects] and kind < 3:
            which = replace(thing, english=("which", "which"))
            clause = grammar.position(draw, which, number)
            return _with_relative(
                thing, Text(c.english_statement(clause), c.german_subordinate(clause, pronouns[0], subject=False))
            )
    if phrase is not None and kind < 6 and phrase.english[0] == f"the {phrase.lemma}":
        which = replace(thing, english=("which", "which"))
        clause = grammar.being(which, draw.chance(0.3), grammar.adjective_of(draw, thing))
        return _with_relative(
            thing, Text(c.english_statement(clause), c.german_subordinate(clause, pronouns[0], subject=False))
        )
    if thing.lemma in _DWELLINGS and kind < 7:
        clause = Clause(phrases.person(draw), draw.pick((verbs.LIVE, verbs.LIVE, verbs.STAY)), c.PAST)
        return _with_relative(
            thing, Text(f"in which {c.english_statement(clause)}", c.german_subordinate(clause, f"in {pronouns[2]}"))
        )
    options = _verbs_with(thing.lemma)
    verb = draw.pick(tuple(verb for verb in options if verb is not main) or options)
    draw.note("verb+object", verb.en.replace("|", " "), thing.lemma)
    mode = c.PAST if verb.modes in ("event", "sense") else draw.pick((c.PAST, c.PAST, c.PRESENT))
    subject = phrases.person(draw)
    mode = c.PRESENT if verb.past == verb.en else mode
    clause = Clause(subject, verb, mode)
    return _with_relative(
        thing, Text(f"which {c.english_statement(clause)}", c.german_subordinate(clause, pronouns[1]))
    )


_DWELLINGS = ("house", "hotel", "castle")


def _verbs_with(lemma: str) -> tuple[verbs.Verb, ...]:
    """Return the verbs that can have the thing as their object."""
    return tuple(
        verb for verb in verbs.ACCUSATIVE if any(lemma in CLASSES.get(name, (name,)) for name in verb.objects.split())
    )
