"""Questions. Every function draws one. The German finite verb is first, or second after a question word."""

from __future__ import annotations

from dataclasses import replace

from demo_corpus import clauses as c
from demo_corpus import grammar, phrases, semantics, times, verbs
from demo_corpus.clauses import Clause
from demo_corpus.draws import Draw
from demo_corpus.numbers import Text


def yes_no_question(draw: Draw) -> Text:
    """Draw a question such as: Does Anna read the book? Liest Anna das Buch?"""
    clause = grammar.action(draw, negation=0.0)
    return c.sentence(Text(c.english_question(clause), c.german_question(clause)), "?")


def when_why_question(draw: Draw) -> Text:
    """Draw a question such as: When did the bus arrive? Why does Peter want to sell the car?"""
    en, de = draw.pick((("when", "wann"), ("why", "warum")))
    modes = (c.PAST, c.FUTURE, c.WANT, c.HAD_TO) if en == "why" else (c.PAST, c.PAST, c.FUTURE, c.CAN)
    clause = grammar.action(draw, modes=modes, timed=False, negation=0.15 if en == "why" else 0.0)
    return c.sentence(Text(f"{en} {c.english_question(clause)}", c.german_question(clause, de)), "?")


def where_question(draw: Draw) -> Text:
    """Draw a question such as: Where did Anna buy the bag? Where did she travel? (Wohin ist sie gereist?)"""
    mode = draw.pick((c.PAST, c.FUTURE, c.WANT, c.CAN))
    if draw.chance(0.3):
        clause = grammar.motion(draw, phrases.person(draw), mode)
        clause = replace(clause, complement=c.EMPTY, time=times.time_for(draw, mode.time))
        word = "wohin"
    else:
        clause = grammar.action(draw, modes=(mode,), negation=0.0)
        while clause.verb.en not in semantics.PLACES_OF_VERB or clause.verb not in verbs.ACCUSATIVE:
            draw.start()
            clause = grammar.action(draw, modes=(mode,), negation=0.0)
        clause = replace(clause, place=c.EMPTY)
        word = "wo"
    return c.sentence(Text(f"where {c.english_question(clause)}", c.german_question(clause, word)), "?")


def object_question(draw: Draw) -> Text:
    """Draw a question such as: What did Anna buy? Whom did Peter visit? Whom (wem) did he help?"""
    dative = draw.chance(0.25)
    verb = draw.pick(verbs.DATIVE if dative else verbs.ACCUSATIVE)
    subject = phrases.person(draw)
    mode = c.PAST if verb.modes != "action" else draw.pick((c.PAST, c.FUTURE, c.WANT, c.HAD_TO, c.PROGRESSIVE))
    if subject.lemma:
        draw.note("subject+verb", subject.lemma, verb.en.replace("|", " "))
    clause = Clause(subject, verb, mode)
    if mode.time and verb.modes != "state" and draw.chance(0.5):
        clause = replace(clause, time=times.time_for(draw, mode.time))
    personal = ("human" in verb.objects or "family" in verb.objects) and draw.chance(0.7)
    en, de = ("whom", "wem") if dative else ("whom", "wen") if personal else ("what", "was")
    if verb.objects in ("human", "human family"):
        en, de = "whom", "wen"
    return c.sentence(Text(f"{en} {c.english_question(clause)}", c.german_question(clause, de)), "?")


def who_question(draw: Draw) -> Text:
    """Draw a question such as: Who opened the door?"""
    clause = grammar.action(draw, phrases.WHO, (c.PAST, c.PAST, c.PRESENT, c.FUTURE, c.CAN, c.WANT), negation=0.0)
    return c.sentence(c.statement(replace(clause, adverb=c.EMPTY)), "?")
