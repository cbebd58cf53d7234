"""The constructions. Every function draws one whole sentence of one kind. `CONSTRUCTIONS` has their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from demo_corpus import clauses as c
from demo_corpus import facts, grammar, phrases, questions, references, verbs
from demo_corpus import morphology as morph
from demo_corpus.clauses import Clause, NounPhrase
from demo_corpus.draws import Draw
from demo_corpus.numbers import Text
from demo_corpus.subclauses import condition, joined, reason, referent, relative_person, relative_thing


def plain(draw: Draw) -> Text:
    """Draw a main clause. The time may be in front, with inversion."""
    clause = grammar.action(draw)
    if clause.time.en and draw.chance(0.45):
        return c.sentence(c.fronted(clause))
    return c.sentence(c.statement(clause))


def because(draw: Draw) -> Text:
    """Draw a main clause and a clause with weil or obwohl, in either order."""
    past = draw.chance(0.5)
    modes = grammar.PAST_MODES if past else (*grammar.PRESENT_MODES, c.FUTURE)
    subject = referent(draw)
    conjunction = draw.pick((Text("because", "weil"), Text("although", "obwohl")))
    if draw.chance(0.35):
        front = reason(draw, subject, past)
        main = grammar.action(draw, phrases.pronoun_for(subject), modes, timed=False)
        return joined(c.subordinate(front, conjunction), main)
    main = grammar.action(draw, subject, modes, timed=draw.chance(0.3))
    behind = c.subordinate(reason(draw, phrases.pronoun_for(subject), past), conjunction)
    text = c.statement(main)
    return c.sentence(Text(f"{text.en} {behind.en}", f"{text.de}, {behind.de}"))


def if_when(draw: Draw) -> Text:
    """Draw a condition with wenn, or a past time with als, followed by a main clause."""
    kind = draw.below(3)
    past = kind == 0
    conjunction = Text("when", "als") if past else Text("if", "wenn") if kind == 1 else Text("when", "wenn")
    modes = (c.PAST,) if past else (c.FUTURE, c.FUTURE, c.CAN, c.WANT) if kind == 1 else (c.PRESENT, c.MUST, c.CAN)
    subject = referent(draw)
    front = condition(draw, subject, past)
    main = grammar.action(draw, phrases.pronoun_for(subject), modes, timed=False)
    return joined(c.subordinate(front, conjunction), main)


def before_while(draw: Draw) -> Text:
    """Draw a main clause and a clause with bevor or während, in either order."""
    subject = referent(draw)
    while_ = draw.chance(0.4)
    again = _another_person(draw, subject) if while_ else phrases.pronoun_for(subject)
    past = draw.chance(0.5)
    modes = (c.PAST,) if past else (c.PRESENT,)
    conjunction = Text("while", "während") if while_ else Text("before", "bevor")
    minor_of = main_of = _activity if while_ else _deed
    if draw.chance(0.5):
        minor = c.subordinate(minor_of(draw, subject, modes, timed=False, negation=0.0), conjunction)
        return joined(minor, main_of(draw, again, modes, timed=False, negation=0.0))
    main = c.statement(main_of(draw, subject, modes, timed=False, negation=0.0))
    minor = c.subordinate(minor_of(draw, again, modes, timed=False, negation=0.0), conjunction)
    return c.sentence(Text(f"{main.en} {minor.en}", f"{main.de}, {minor.de}"))


def _another_person(draw: Draw, subject: NounPhrase) -> NounPhrase:
    """Draw a person other than the subject. A pronoun that could mean the subject is not used."""
    while True:
        person = phrases.person(draw)
        if person.english != subject.english and not (person.pronoun and person.slot >= morph.ER):
            return person


def _deed(draw: Draw, subject: NounPhrase, modes: tuple[c.Mode, ...], *, timed: bool, negation: float) -> Clause:
    """Draw an action that comes to an end."""
    while True:
        before = list(draw.combinations)
        clause = grammar.action(draw, subject, modes, timed=timed, negation=negation, special=0.2)
        if clause.verb.modes == "action" and clause.verb is not verbs.STAY:
            return clause
        draw.combinations = before


_ACTIVITIES = ("sleep", "work", "dance", "sing", "cook", "wait", "eat", "read", "drink", "write", "talk", "swim")


def _activity(draw: Draw, subject: NounPhrase, modes: tuple[c.Mode, ...], *, timed: bool, negation: float) -> Clause:
    while True:
        before = list(draw.combinations)
        clause = grammar.action(draw, subject, modes, timed=timed, negation=negation)
        if clause.verb.en in _ACTIVITIES:
            return clause
        draw.combinations = before


def so_that(draw: Draw) -> Text:
    """Draw a main clause and a clause with damit and können, with another subject."""
    past = draw.chance(0.5)
    main = grammar.action(draw, None, (c.PAST,) if past else (c.PRESENT, c.MUST, c.FUTURE), timed=False, negation=0.0)
    subject = _another_person(draw, main.subject)
    goal = grammar.action(draw, subject, (c.COULD,) if past else (c.CAN,), timed=False, negation=0.0)
    text, minor = c.statement(main), c.subordinate(goal, Text("so that", "damit"))
    return c.sentence(Text(f"{text.en} {minor.en}", f"{text.de}, {minor.de}"))


def reported(draw: Draw) -> Text:
    """Draw a sentence such as: Anna says that ... I do not know whether (when, why) ..."""
    past = draw.chance(0.4)
    inner = grammar.action(draw, None, grammar.PAST_MODES if past else grammar.REPORTED_MODES, timed=draw.chance(0.4))
    speaker = phrases.person(draw)
    tense = c.PAST if past else c.PRESENT
    if draw.chance(0.6):
        verb = draw.pick((verbs.SAY, verbs.BELIEVE, verbs.KNOW_THAT, verbs.HOPE))
        minor, negated = c.subordinate(inner, Text("that", "dass")), False
    else:
        verb, negated = draw.pick(((verbs.ASK, False), (verbs.KNOW_THAT, True)))
        words = [Text("whether", "ob"), Text("why", "warum")]
        if not inner.time.en and not inner.negated and inner.mode.time in ("past", "future"):
            words.append(Text("when", "wann"))
        minor = c.subordinate(inner, draw.pick(words))
    main = c.statement(Clause(speaker, verb, tense, negated))
    return c.sentence(Text(f"{main.en} {minor.en}", f"{main.de}, {minor.de}"))


def infinitive(draw: Draw) -> Text:
    """Draw an infinitive clause with zu after a verb: tries to, hopes to, forgets to, decides to, promises him to."""
    subject = phrases.person(draw)
    inner = grammar.action(draw, subject, (c.FUTURE,), timed=draw.chance(0.3), negation=0.0, special=0.2)
    verb = draw.pick((verbs.TRY, verbs.HOPE, verbs.FORGET, verbs.DECIDE, verbs.PROMISE))
    mode = c.PRESENT if verb in (verbs.HOPE, verbs.PROMISE) and draw.chance(0.5) else c.PAST
    outer = Clause(subject, verb, mode, negated=verb is not verbs.DECIDE and draw.chance(0.1))
    if verb is verbs.PROMISE:
        outer = replace(outer, dative=phrases.recipient(draw, "human family", subject), negated=False)
    main = c.statement(outer)
    return c.sentence(Text(f"{main.en} to {c.english_infinitive(inner)}", f"{main.de}, {c.german_zu(inner)}"))


_EVALUATIONS = (
    Text("important", "wichtig"),
    Text("difficult", "schwierig"),
    Text("easy", "einfach"),
    Text("nice", "schön"),
    Text("possible", "möglich"),
)


def evaluation(draw: Draw) -> Text:
    """Draw a sentence such as: It is important to open the window. Es ist wichtig, das Fenster zu öffnen."""
    impersonal = NounPhrase(("it", "it"), ("es", "es", "ihm", ""), pronoun=True)
    inner = grammar.action(draw, impersonal, (c.FUTURE,), timed=False, negation=0.0)
    while inner.verb.reflexive:
        inner = grammar.action(draw, impersonal, (c.FUTURE,), timed=False, negation=0.0)
    judged = draw.pick(_EVALUATIONS)
    main = c.statement(grammar.being(impersonal, draw.chance(0.3), judged, draw.chance(0.25)))
    return c.sentence(Text(f"{main.en} to {c.english_infinitive(inner)}", f"{main.de}, {c.german_zu(inner)}"))


def purpose(draw: Draw) -> Text:
    """Draw a clause of motion with um ... zu, or an action with ohne ... zu."""
    subject = phrases.person(draw)
    mode = draw.pick((c.PRESENT, c.PAST, c.FUTURE, c.WANT, c.HAD_TO))
    if draw.chance(0.65):
        main = grammar.motion(draw, subject, mode)
        inner = grammar.action(draw, subject, (c.FUTURE,), timed=False, negation=0.0, special=0.0)
        while inner.verb in verbs.INTRANSITIVE and inner.verb.en not in ("work", "dance", "swim", "sing", "rest"):
            inner = grammar.action(draw, subject, (c.FUTURE,), timed=False, negation=0.0, special=0.0)
        en, opener = f"to {c.english_infinitive(inner)}", "um"
    else:
        main = _deed(draw, subject, (mode,), timed=False, negation=0.0)
        inner = _deed(draw, subject, (c.PRESENT,), timed=False, negation=0.0)
        en, opener = f"without {c.english_gerund(inner)}", "ohne"
    if subject.lemma:
        draw.note("subject+verb", subject.lemma, main.verb.en)
    text = c.statement(main)
    return c.sentence(Text(f"{text.en} {en}", f"{text.de}, {c.german_zu(inner, opener)}"))


def relative_subject(draw: Draw) -> Text:
    """Draw a sentence such as: The man who lives in Berlin reads a book. The lamp which ... is old."""
    if draw.chance(0.6):
        subject = relative_person(draw)
        clause = grammar.action(draw, subject, timed=draw.chance(0.3))
    else:
        subject = relative_thing(draw)
        clause = grammar.being(subject, draw.chance(0.4), grammar.adjective_of(draw, subject), draw.chance(0.2))
    return c.sentence(c.statement(clause))


def relative_object(draw: Draw) -> Text:
    """Draw a sentence with the relative clause at the end: Anna reads the book which lies on the table."""
    while True:
        draw.start()
        clause = grammar.action(draw, None, (c.PRESENT, c.PAST, c.PAST, c.WANT, c.FUTURE), negation=0.1)
        thing = clause.accusative
        plain_verb = clause.verb in verbs.ACCUSATIVE and not clause.place.en and not clause.manner.en
        if thing and plain_verb and thing.english[0].startswith("the ") and thing.back == "it":
            break
    early = clause.time if draw.chance(0.5) else c.EMPTY
    clause = replace(clause, time=c.EMPTY, accusative=relative_thing(draw, thing, clause.verb))
    text = c.fronted(replace(clause, time=early)) if early.en else c.statement(clause)
    return c.sentence(text)


def two_clauses(draw: Draw) -> Text:
    """Draw two main clauses with and or but."""
    left = grammar.action(draw, timed=False)
    right = grammar.action(draw, modes=(left.mode,) if left.verb.modes == "action" else (c.PAST,), timed=False)
    conjunction = Text("and", "und") if draw.chance(0.5) else Text("but", "aber")
    first, second = c.statement(left), c.statement(right)
    comma = "," if conjunction.en == "but" else ""
    en = f"{first.en}{comma} {conjunction.en} {second.en}"
    return c.sentence(Text(en, f"{first.de}{comma} {conjunction.de} {second.de}"))


_NO_REQUESTS = ("laugh", "cry", "dream", "look forward", "meet", "order", "learn", "paint", "build", "think", "play")


def imperative(draw: Draw) -> Text:
    """Draw a sentence such as: Please open the window! Öffne bitte das Fenster!"""
    you = phrases.PRONOUNS[1]
    clause = grammar.action(draw, you, (c.PRESENT,), timed=False, negation=0.0)
    while clause.verb.modes != "action" or clause.verb.en in _NO_REQUESTS:
        clause = grammar.action(draw, you, (c.PRESENT,), timed=False, negation=0.0)
    german = c.german_imperative(clause)
    return c.sentence(Text(f"please {c.english_infinitive(clause)}", german), "!")


def where_things_are(draw: Draw) -> Text:
    """Draw a sentence such as: The book lies on the table."""
    return c.sentence(c.statement(grammar.position(draw)))


_WEIGHTS: tuple[tuple[Callable[[Draw], Text], int], ...] = (
    (plain, 26),
    (questions.yes_no_question, 7),
    (questions.when_why_question, 5),
    (questions.where_question, 3),
    (questions.object_question, 3),
    (questions.who_question, 2),
    (because, 9),
    (if_when, 7),
    (before_while, 4),
    (so_that, 3),
    (reported, 8),
    (infinitive, 5),
    (evaluation, 3),
    (purpose, 5),
    (relative_subject, 7),
    (relative_object, 4),
    (two_clauses, 5),
    (references.it_refers, 5),
    (references.it_is_given, 2),
    (imperative, 3),
    (where_things_are, 3),
    (facts.age, 3),
    (facts.cost, 4),
    (facts.count, 4),
    (facts.dates, 4),
    (facts.clock, 3),
    (facts.comparison, 4),
    (facts.description, 8),
    (facts.passive, 5),
)

CONSTRUCTIONS: tuple[Callable[[Draw], Text], ...] = tuple(
    construction for construction, weight in _WEIGHTS for _ in range(weight)
)
"""The constructions, each repeated as often as its weight."""
