"""Sentences whose pronoun "it" refers back to a thing. In German the noun's gender decides: er, sie or es."""

from __future__ import annotations

from dataclasses import replace

from demo_corpus import clauses as c
from demo_corpus import grammar, phrases, semantics, verbs
from demo_corpus import morphology as morph
from demo_corpus.clauses import Clause
from demo_corpus.draws import Draw
from demo_corpus.numbers import Text
from demo_corpus.subclauses import referent

# Adjective -> adjectives that can follow after "but". The entry "" is for all other adjectives.
_CONTRASTS: dict[str, tuple[str, ...]] = {
    "old": ("beautiful", "expensive", "good"),
    "new": ("cheap", "small"),
    "expensive": ("beautiful", "modern", "good"),
    "cheap": ("good", "beautiful", "modern"),
    "beautiful": ("cheap", "expensive", "old"),
    "small": ("expensive", "heavy"),
    "big": ("cheap", "beautiful"),
    "modern": ("cheap",),
    "": ("beautiful", "cheap", "expensive", "modern", "old", "new"),
}


def it_refers(draw: Draw) -> Text:
    """Draw a sentence with "it", such as: The lamp is old, but it is beautiful. (... aber sie ist schön.)"""
    kind = draw.below(3)
    if kind == 0:
        subject = phrases.common(
            draw, draw.pick(("the", "this", "my", "her")), phrases.noun_of(draw, "goods clothes"), describe=0.2
        )
        first = grammar.being(subject, False, grammar.adjective_of(draw, subject))
        contrast = semantics.ADJECTIVES[draw.pick(_CONTRASTS.get(first.complement.en, _CONTRASTS[""]))]
        second = grammar.being(phrases.pronoun_for(subject), False, Text(contrast.en, contrast.de))
        left, right, link = c.statement(first), c.statement(second), Text(", but", ", aber")
        return c.sentence(Text(f"{left.en}{link.en} {right.en}", f"{left.de}{link.de} {right.de}"))
    if kind == 1:
        return _where_is_it(draw)
    return _it_object(draw)


def _where_is_it(draw: Draw) -> Text:
    which = draw.below(3)
    clause = grammar.position(draw, None, which)
    while clause.mode.past:
        clause = grammar.position(draw, None, which)
    asked = c.sentence(Text(f"where is {clause.subject.english[0]}", f"wo ist {clause.subject.german[0]}"), "?")
    answer = c.sentence(c.statement(replace(clause, subject=phrases.pronoun_for(clause.subject))))
    return Text(f"{asked.en} {answer.en}", f"{asked.de} {answer.de}")


def _it_object(draw: Draw) -> Text:
    """Draw a sentence such as: Anna is looking for the key because she needs it."""
    person = referent(draw)
    name, classes, adjectives = draw.pick(_SEEKING)
    verb = next(verb for verb in verbs.ACCUSATIVE if verb.en == name)
    thing = phrases.common(
        draw,
        "the" if name == "look for" else draw.pick(("the", "a", "this")),
        phrases.noun_of(draw, classes),
        describe=0.2,
    )
    draw.note("verb+object", name, thing.lemma)
    past = draw.chance(0.5)
    main = c.statement(Clause(person, verb, c.PAST if past else c.WANT, accusative=thing))
    again, it = phrases.pronoun_for(person), phrases.pronoun_for(thing)
    if adjectives and draw.chance(0.6):
        adjective = semantics.ADJECTIVES[draw.pick(adjectives.split())]
        draw.note("adjective+noun", adjective.en, thing.lemma)
        minor = grammar.being(it, past, Text(adjective.en, adjective.de))
    else:
        need = next(verb for verb in verbs.ACCUSATIVE if verb.en == "need")
        minor = Clause(again, need, c.PAST if past else c.PRESENT, negated=name == "sell", accusative=it)
    behind = c.subordinate(minor, Text("because", "weil"))
    return c.sentence(Text(f"{main.en} {behind.en}", f"{main.de}, {behind.de}"))


# Verb, classes of its object, adjectives of the object that are a reason for the action.
_SEEKING: tuple[tuple[str, str, str], ...] = (
    ("look for", "small", ""),
    ("borrow", "lendable", ""),
    ("buy", "goods", "cheap beautiful new modern"),
    ("sell", "goods", "old expensive big small"),
)


def it_is_given(draw: Draw) -> Text:
    """Draw a sentence such as: Anna bought a coat and gave it to her brother.

    In German: Anna hat einen Mantel gekauft und ihn ihrem Bruder gegeben.
    """
    person = referent(draw)
    name = draw.pick(("buy", "find", "borrow"))
    first = next(verb for verb in verbs.ACCUSATIVE if verb.en == name)
    second = draw.pick(tuple(verb for verb in verbs.DITRANSITIVE if verb.en in ("give", "show", "send", "bring")))
    thing = phrases.common(draw, draw.pick(("the", "a", "a", "this")), phrases.noun_of(draw, "givable"), describe=0.3)
    for verb in (first, second):
        draw.note("verb+object", verb.en, thing.lemma)
    receiver = phrases.recipient(draw, "human family", person)
    main = c.statement(Clause(person, first, c.PAST, accusative=thing))
    second_clause = Clause(person, second, c.PAST, accusative=phrases.pronoun_for(thing), dative=receiver)
    en = c.english_statement(second_clause).removeprefix(second_clause.subject.english[0] + " ")
    haben = morph.PRESENT["haben"].split()[person.slot]
    de = c.german_subordinate(second_clause, "", subject=False).removesuffix(" " + haben)
    return c.sentence(Text(f"{main.en} and {en}", f"{main.de} und {de}"))
