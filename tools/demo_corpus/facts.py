"""Sentences about facts: numbers, ages, prices, dates, comparisons, passives, existence, genitives."""

from __future__ import annotations

from dataclasses import replace

from demo_corpus import clauses as c
from demo_corpus import draws, grammar, numbers, phrases, semantics, times, verbs
from demo_corpus import morphology as morph
from demo_corpus.clauses import Clause, NounPhrase
from demo_corpus.draws import Draw
from demo_corpus.lexicon import NOUNS
from demo_corpus.numbers import Text
from demo_corpus.semantics import CLASSES

# Nouns with their lowest possible age, and the age that they stay below. Names and pronouns can have any age.
_AGES: tuple[tuple[tuple[str, ...], tuple[int, int]], ...] = (
    (CLASSES["youth"] + ("boy",), (3, 18)),
    (("grandfather", "grandmother"), (60, 99)),
    (("son", "daughter"), (2, 40)),
    (CLASSES["relative"] + CLASSES["man"] + CLASSES["woman"] + ("parents",), (18, 90)),
)


def age(draw: Draw) -> Text:
    """Draw a sentence such as: Anna is forty-two years old."""
    subject = phrases.person(draw)
    low, high = next((ages for words, ages in _AGES if subject.lemma in words), (5, 98))
    if subject.english[0].startswith("Mr"):
        low = 18
    count = draws.number(draw, low + draw.below(high - low))
    predicate = Text(f"{count.en} years old", f"{count.de} Jahre alt")
    return c.sentence(c.statement(grammar.being(subject, draw.chance(0.15), predicate)))


def cost(draw: Draw) -> Text:
    """Draw a sentence such as: The coat costs forty-two euros and fifty cents."""
    dear = draw.chance(0.5)
    word = phrases.noun_of(draw, "dear" if dear else "affordable")
    subject = phrases.common(draw, draw.pick(("the", "this")), word, describe=0.4)
    if draw.chance(0.1):
        question = Text(f"how much does {subject.english[0]} cost", f"wie viel kostet {subject.german[0]}")
        return c.sentence(question, "?")
    euros, cents = 20 + draw.below(79) if dear else 2 + draw.below(18), 5 * draw.below(20) if draw.chance(0.5) else 0
    for part in (euros, cents):
        draws.number(draw, part)
    draw.note("price", f"{euros}.{cents:02}")
    clause = Clause(subject, verbs.COST, c.PRESENT, complement=numbers.price(euros, cents))
    return c.sentence(c.statement(clause))


_COUNTS: tuple[tuple[str, str], ...] = (
    ("school", "child"),
    ("hotel", "guest"),
    ("village", "house"),
    ("museum", "picture"),
    ("library", "book"),
    ("restaurant", "table"),
    ("park", "tree"),
    ("church", "window"),
    ("castle", "door"),
    ("theatre", "chair"),
    ("hospital", "bed"),
    ("forest", "bird"),
    ("office", "computer"),
    ("garden", "flower"),
)


_SEEN = ("tree", "house", "horse", "cow", "bird")


def count(draw: Draw) -> Text:
    """Draw a sentence such as: There are fifty-three guests in the hotel. The novel has three hundred pages."""
    kind = draw.below(3)
    if kind == 0:
        place, word = draw.pick(_COUNTS)
        things = phrases.counted(draw, draws.some_number(draw), NOUNS[word])
        phrase, prepositions = phrases.place_noun(draw, (place,), "the")
        where = Text(
            f"{prepositions.en} {phrase.english[1]}", morph.with_preposition(prepositions.location, phrase.german[2])
        )
        return c.sentence(Text(f"there are {things.english[0]} {where.en}", f"{where.de} gibt es {things.german[1]}"))
    if kind == 1:
        word = draw.pick(("book", "novel", "report"))
        subject = phrases.common(draw, draw.pick(("the", "this", "my", "our")), NOUNS[word], describe=0.3)
        pages = phrases.counted(draw, 21 + draw.below(400), NOUNS["page"])
        return c.sentence(c.statement(Clause(subject, verbs.HAVE, c.PRESENT, accusative=pages)))
    subject = phrases.person(draw)
    word = draw.pick(CLASSES["countable"])
    things = phrases.counted(draw, draws.some_number(draw), NOUNS[word])
    names = ("see",) if word in _SEEN else ("buy", "sell", "find", "see")
    verb = draw.pick(tuple(v for v in verbs.ACCUSATIVE if v.en in names))
    clause = Clause(subject, verb, c.PAST, accusative=things)
    if draw.chance(0.4):
        clause = replace(clause, time=times.time_for(draw, "past"))
    return c.sentence(c.statement(clause))


def dates(draw: Draw) -> Text:
    """Draw a sentence such as: Today is the third of May. The house was built in nineteen sixty-three."""
    kind = draw.below(4)
    if kind == 0:
        day = times.date_value(draw, nominative=True)
        en, de = draw.pick((("today", "heute"), ("tomorrow", "morgen")))
        return c.sentence(Text(f"{en} is {day.en}", f"{de} ist {day.de}"))
    subject = phrases.person(draw)
    if kind == 1 and subject.back:
        day = times.date_value(draw)
        birthday = Text(f"{phrases.POSSESSIVES[subject.back]} birthday {day.en}", f"{day.de} Geburtstag")
        return c.sentence(c.statement(Clause(subject, verbs.HAVE, c.PRESENT, complement=birthday)))
    if kind in (1, 2):
        was = morph.ENGLISH_WAS[subject.slot]
        wurde = morph.PRETERITE["werden"].split()[subject.slot]
        birth = times.date_value(draw)
        if subject.lemma not in CLASSES["youth"] and draw.chance(0.5):
            in_year = times.year_value(draw)
            birth = Text(f"in {in_year.en}", in_year.de)
        german = f"{subject.german[0]} {wurde} {birth.de} geboren"
        return c.sentence(Text(f"{subject.english[0]} {was} born {birth.en}", german))
    built = phrases.common(draw, draw.pick(("the", "this")), phrases.noun_of(draw, "institution"), describe=0.25)
    in_year = times.year_value(draw)
    build = next(verb for verb in verbs.ACCUSATIVE if verb.en == "build")
    clause = Clause(built, build, c.PAST, passive=True, time=Text(f"in {in_year.en}", in_year.de))
    return c.sentence(c.statement(clause))


def clock(draw: Draw) -> Text:
    """Draw a sentence such as: It is half past seven. The bus to Bremen departs at ten past eight."""
    time = times.clock_value(draw)
    kind = draw.below(10)
    if kind == 0:
        return c.sentence(Text(f"it is {time.en}", f"es ist {time.de}"))
    at = Text(f"at {time.en}", f"um {time.de}")
    verb = draw.pick(tuple(v for v in verbs.INTRANSITIVE if v.en in ("depart", "arrive")))
    if kind < 7:
        word = NOUNS[draw.pick(CLASSES["vehicle"])]
        name = draws.town(draw)
        toward = ("to", "nach") if verb.en == "depart" else ("from", "aus")
        plain = phrases.common(draw, draw.pick(("the", "the", "this")), word, describe=0.15)
        subject = replace(
            plain,
            english=(f"{plain.english[0]} {toward[0]} {name}",) * 2,
            german=(f"{plain.german[0]} {toward[1]} {name}",) * 4,
        )
        draw.note("subject+verb", word.en, verb.en)
    else:
        subject = phrases.common(draw, draw.pick(("the", "this")), phrases.noun_of(draw, "film"), describe=0.5)
        verb = verbs.BEGIN
    mode = draw.pick((c.PRESENT, c.PAST, c.FUTURE))
    clause = Clause(subject, verb, mode, time=at)
    if mode is not c.PRESENT:
        day = times.weekday(draw)
        clause = replace(clause, time=Text(f"{day.en} {at.en}", f"{day.de} {at.de}"))
    return c.sentence(c.fronted(clause) if draw.chance(0.25) else c.statement(clause))


_COMPARED = tuple(name for name in CLASSES if name.startswith("compared "))
_COMPARABLE: tuple[str, ...] = ("old", "new", "big", "small", "expensive", "cheap", "beautiful", "modern")
_COMPARABLE_PEOPLE: tuple[str, ...] = (
    "old",
    "young",
    "friendly",
    "famous",
    "clever",
    "rich",
    "poor",
    "happy",
    "strong",
    "tall",
)


def comparison(draw: Draw) -> Text:
    """Draw a sentence such as: The castle is older than the church. Anna is as tall as her brother."""
    if draw.chance(0.5):
        left, adjectives = phrases.person(draw), _COMPARABLE_PEOPLE
        right = phrases.human(draw)
    else:
        group = draw.pick(_COMPARED)
        adjectives = _COMPARABLE
        determiners = ("the", "this") if group in ("compared buildings", "compared vehicles") else ("the", "this", "my")
        left, right = (
            phrases.common(
                draw, draw.pick(determiners), phrases.noun_called(draw, draw.pick(CLASSES[group]), 0.4), describe=0.0
            )
            for _ in range(2)
        )
    adjective = semantics.ADJECTIVES[draw.pick(adjectives)]
    if left.english[1] == right.english[1]:
        draw.start()
        return comparison(draw)
    if left.lemma:
        draw.note("adjective+noun", adjective.en, left.lemma)
    if draw.chance(0.6):
        predicate = Text(
            f"{morph.english_comparative(adjective)} than {right.english[1]}",
            f"{morph.comparative(adjective)} als {right.german[0]}",
        )
    else:
        predicate = Text(f"as {adjective.en} as {right.english[1]}", f"so {adjective.de} wie {right.german[0]}")
    return c.sentence(c.statement(grammar.being(left, draw.chance(0.2), predicate, draw.chance(0.2))))


def description(draw: Draw) -> Text:
    """Draw a sentence such as: The red coat is expensive. Her brother is a doctor. The door of the house is old."""
    kind = draw.below(4)
    past, negated = draw.chance(0.3), draw.chance(0.2)
    if kind == 0:
        word = phrases.noun_of(draw, "goods clothes readable room container")
        subject = phrases.common(draw, draw.pick(("the", "this", "my", "his", "her", "our")), word, describe=0.0)
        return c.sentence(c.statement(grammar.being(subject, past, grammar.adjective_of(draw, subject), negated)))
    if kind == 1:
        return _profession(draw)
    if kind == 2:
        subject = genitive(draw)
        return c.sentence(c.statement(grammar.being(subject, past, grammar.adjective_of(draw, subject), negated)))
    return existence(draw)


def _profession(draw: Draw) -> Text:
    word = draw.pick(("brother", "sister", "father", "mother", "son", "daughter", "uncle", "aunt"))
    male = word in ("brother", "father", "son", "uncle")
    job = draw.pick(
        ("teacher", "doctor", "farmer", "baker", "painter", "waiter", "pilot", "student")
        if male
        else ("nurse", "actress", "saleswoman", "waitress")
    )
    if draw.chance(0.4):
        subject = phrases.possessed(phrases.named(draw), NOUNS[word], "")
    else:
        subject = phrases.common(draw, draw.pick(tuple(phrases.POSSESSIVES.values())), NOUNS[word], describe=0.0)
    draw.note("profession", word, job)
    predicate = Text(f"{morph.article(job)} {job}", NOUNS[job].de)
    return c.sentence(c.statement(grammar.being(subject, draw.chance(0.3), predicate)))


def genitive(draw: Draw) -> NounPhrase:
    """Draw a part with its owner in the genitive: the door of the house."""
    determiner = draw.pick(("the", "this", "our"))
    owner = phrases.common(draw, determiner, phrases.noun_of(draw, "owner_of_parts"), describe=0.2)
    part = phrases.common(draw, "the", NOUNS[draw.pick(CLASSES["part"])], describe=0.0)
    en = f"{part.english[0]} of {owner.english[1]}"
    cases = [f"{form} {owner.german[3]}" for form in part.german]
    return replace(part, english=(en, en), german=(cases[0], cases[1], cases[2], cases[3]))


def existence(draw: Draw) -> Text:
    """Draw a sentence such as: There is an old castle in Bremen. In Bremen gibt es ein altes Schloss."""
    phrase = phrases.common(draw, "a", phrases.noun_of(draw, "institution", 0.0), describe=0.6)
    name = draws.town(draw)
    return c.sentence(Text(f"there is {phrase.english[0]} in {name}", f"in {name} gibt es {phrase.german[1]}"))


def passive(draw: Draw) -> Text:
    """Draw a sentence such as: The bridge is repaired by the farmer. The letter had to be written."""
    verb = draw.pick(tuple(v for v in verbs.ACCUSATIVE if v.en in _PASSIVE))
    names = [name for name in verb.objects.split() if name not in ("human", "family")]
    word = phrases.noun_of(draw, draw.pick(names))
    mass = phrases.is_mass(word)
    public = word.en.rpartition(" ")[2] in CLASSES["public"]
    determiners = ("the", "the", "this") if public else ("the", "the", "this", "my")
    describe = 0.0 if verb.en in ("cook", "bake") else 0.25
    plural = not mass and draw.chance(0.15)
    subject = phrases.common(draw, draw.pick(determiners), word, plural=plural, describe=describe)
    draw.note("verb+object", verb.en.replace("|", " "), subject.lemma)
    mode = draw.pick((c.PRESENT, c.PAST, c.PAST, c.MUST, c.HAD_TO, c.CAN, c.FUTURE))
    clause = Clause(subject, verb, mode, passive=True, negated=draw.chance(0.1))
    if mode in (c.PRESENT, c.PAST) and draw.chance(0.5):
        agent = phrases.human(draw) if draw.chance(0.5) else phrases.family(draw)
        by = Text(f"by {agent.english[1]}", morph.with_preposition("von", agent.german[2]))
        clause = replace(clause, manner=by)
    if verb.en != "build" and draw.chance(0.5):
        clause = replace(clause, time=times.time_for(draw, mode.time))
    return c.sentence(c.fronted(clause) if clause.time.en and draw.chance(0.3) else c.statement(clause))


_PASSIVE = frozenset(
    {
        "open",
        "close",
        "read",
        "write",
        "buy",
        "sell",
        "repair",
        "wash",
        "cook",
        "bake",
        "build",
        "clean",
        "borrow",
        "order",
        "tidy|up",
        "turn|on",
        "turn|off",
        "visit",
        "sing",
        "throw|away",
    }
)
