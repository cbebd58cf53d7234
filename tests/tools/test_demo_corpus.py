"""The demo corpus: correct paradigms, known sentences, and splits that hold combinations out."""

from __future__ import annotations

import pathlib
import re
import zlib
from collections import Counter

import demo_corpus as teaching
import pytest
from demo_corpus import clauses as c
from demo_corpus import corpus, lexicon, morphology, numbers, phrases, semantics, subclauses, verbs
from demo_corpus.clauses import Clause, NounPhrase
from demo_corpus.draws import Draw
from demo_corpus.lexicon import NOUNS, Noun
from demo_corpus.numbers import Text
from demo_corpus.verbs import Verb

from nmt_cli.data.demo_corpus import pairs, write_corpus

Splits = dict[str, list[corpus.Example]]
ALL_VERBS = [
    *verbs.ACCUSATIVE,
    *verbs.DITRANSITIVE,
    *verbs.DATIVE,
    *verbs.PREPOSITIONAL,
    *verbs.INTRANSITIVE,
    *verbs.MOTION,
    *(verb for pair in verbs.PLACEMENT for verb in pair),
    *(verb for verb, _ in verbs.COMPLEMENTS),
    verbs.TRAVEL,
    verbs.FLY,
    verbs.LIVE,
    verbs.STAY,
]
ASKED = ("compound: carrot soup", "compound: apple cake", "number: 56", "number: 57", "name: Rodenheim")
CRC = 3550345301
HELD = ["compound: carrot soup", "number: 56"]


@pytest.fixture(scope="module")
def splits() -> Splits:
    return corpus.examples(teaching.SEED, teaching.TRAIN_PAIRS, teaching.VALID_PAIRS, teaching.TEST_PAIRS)


def verb(english: str) -> Verb:
    return next(verb for verb in ALL_VERBS if verb.en == english)


def np(determiner: str, word: str, *adjectives: str, plural: bool = False) -> NounPhrase:
    draw, noun = Draw(1), NOUNS[word]
    plain = phrases.common(draw, determiner, noun, plural=plural, describe=0.0)
    german = morphology.noun_phrase(determiner, tuple(semantics.ADJECTIVES[a] for a in adjectives), noun, plural)
    return NounPhrase(plain.english, german, plain.slot, plain.gender, plain.back, word, plain.definite)


ANNA = NounPhrase(("Anna", "Anna"), ("Anna", "Anna", "Anna", "Annas"), back="she")


# ---- The corpus as a whole


def test_deterministic_to_the_byte(splits: Splits) -> None:
    text = "\n".join(f"{name}\t{e.en}\t{e.de}" for name in corpus.SPLITS for e in splits[name])
    assert zlib.crc32(text.encode()) == CRC


def test_generate_gives_the_pairs_of_the_examples() -> None:
    small = teaching.generate(seed=3, train=300, valid=10, test=20)
    assert {name: len(pairs) for name, pairs in small.items()} == {"train": 300, "valid": 10, "test": 20}
    assert small == teaching.generate(seed=3, train=300, valid=10, test=20)
    assert small != teaching.generate(seed=4, train=300, valid=10, test=20)


def test_sizes(splits: Splits) -> None:
    assert {name: len(found) for name, found in splits.items()} == {"train": 30_000, "valid": 500, "test": 1_000}


def test_no_sentence_of_either_language_twice(splits: Splits) -> None:
    every = [example for found in splits.values() for example in found]
    assert len({e.en for e in every}) == len(every)
    assert len({e.de for e in every}) == len(every)


def test_held_out_combinations_are_in_every_test_sentence_and_no_training_sentence(splits: Splits) -> None:
    trained = {combination for e in splits["train"] for combination in e.combinations}
    assert not any(corpus.held_out(combination) for combination in trained)
    for name in ("valid", "test"):
        for example in splits[name]:
            assert any(corpus.held_out(combination) for combination in example.combinations), example
            assert set(example.combinations) - trained


def test_held_out_compounds_numbers_and_names_never_occur_as_text_in_training(splits: Splits) -> None:
    text = "\n".join(e.en for e in splits["train"])
    kinds = {"compound", "number", "name"}
    held = {x for e in splits["test"] for x in e.combinations if corpus.held_out(x) and x.split(":")[0] in kinds}
    assert {combination.split(":")[0] for combination in held} == kinds
    for combination in sorted(held):
        kind, _, value = combination.partition(": ")
        word = numbers.cardinal(int(value)).en if kind == "number" else value
        assert not re.search(rf"\b{word}\b(?!-)", text), combination


def test_test_sentences_hold_out_every_kind_and_unseen_names_are_few(splits: Splits) -> None:
    kinds = Counter(
        kind for e in splits["test"] for kind in {x.split(":")[0] for x in e.combinations if corpus.held_out(x)}
    )
    assert set(kinds) == set(corpus.HELD_OUT_ONE_IN)
    assert 30 <= kinds["name"] <= 200


def test_the_rule_does_not_depend_on_the_process() -> None:
    assert [x for x in ASKED if corpus.held_out(x)] == HELD


def test_form_of_the_sentences(splits: Splits) -> None:
    for example in (example for found in splits.values() for example in found):
        for side in (example.en, example.de):
            assert "  " not in side
            assert side == side.strip()
            assert side[0].isupper(), side
            assert side[-1] in ".?!", side
            assert not re.search(r" [,.?!]|,,|,[.?!]|\| ", side), side
        assert 2 <= len(example.en.split()) <= corpus.MAX_WORDS


def test_average_length(splits: Splits) -> None:
    for side in (0, 1):
        average = sum(len(str(e[side]).split()) for e in splits["train"]) / len(splits["train"])
        assert 7 < average < 12


def test_every_word_is_frequent_enough(splits: Splits) -> None:
    text = " " + " ".join(re.sub(r"[.,?!]", " ", e.en.lower()) for e in splits["train"]) + " "
    counts = Counter(text.split())

    def occurrences(phrase: str) -> int:
        return text.count(f" {phrase} ") if " " in phrase else counts[phrase]

    for noun in NOUNS.values():
        assert occurrences(noun.en) + occurrences(morphology.english_plural(noun)) >= 30, noun
    for adjective in semantics.ADJECTIVES.values():
        assert occurrences(adjective.en) >= 30, adjective
    for modifier in lexicon.MODIFIERS:
        assert occurrences(modifier) >= 30, modifier
    for entry in ALL_VERBS:
        forms = {entry.en, entry.past, entry.participle, morphology.english_ing(entry.en)}
        forms.add(morphology.english_present(entry.en, morphology.ER))
        heads = {form.replace("|", " ").split(" ")[0] for form in forms if form}
        assert sum(counts[head] for head in heads) >= 30, entry
    for name in (*semantics.MALE_NAMES, *semantics.FEMALE_NAMES, *semantics.TOWNS):
        assert counts[name.lower()] >= 30, name
    for value in (*range(2, 20), 20, 30, 40, 50, 60, 70, 80, 90):
        assert counts[numbers.cardinal(value).en] >= 30, value


def test_mandatory_german_constructions_occur(splits: Splits) -> None:
    text = "\n".join(e.de for e in splits["train"])
    for word in (
        "weil",
        "obwohl",
        "dass",
        "ob",
        "als",
        "wenn",
        "während",
        "bevor",
        "damit",
        "um",
        "ohne",
        "dessen",
        "deren",
        "aufzustehen",
        "aufgestanden",
        "aufsteht",
        "im",
        "ins",
        "am",
        "zum",
        "zur",
        "vom",
        "kein",
        "nicht",
        "wurde",
        "wohin",
        "sich",
        "mich",
        "Herrn",
    ):
        assert re.search(rf"\b{word}\b", text, re.IGNORECASE), word


def test_the_package_has_what_the_generator_writes(tmp_path: pathlib.Path) -> None:
    text = {language: text.decode("utf-8") for language, text in teaching.texts().items()}
    write_corpus(tmp_path)
    for language, whole in text.items():
        splits = [(tmp_path / f"{name}.{language}").read_text(encoding="utf-8") for name in corpus.SPLITS]
        assert "\n".join(splits) == whole


def test_the_first_pairs_of_each_split() -> None:
    some, every = pairs(300, 10, 20), pairs()
    assert {name: len(split) for name, split in some.items()} == {"train": 300, "valid": 10, "test": 20}
    assert all(split == every[name][: len(split)] for name, split in some.items())
    assert pairs(0, 0, 0) == {"train": [], "valid": [], "test": []}


# ---- Paradigms


@pytest.mark.parametrize(
    ("determiner", "word", "plural", "expected"),
    [
        ("the", "man", False, "der alte Mann|den alten Mann|dem alten Mann|des alten Mannes"),
        ("the", "woman", False, "die alte Frau|die alte Frau|der alten Frau|der alten Frau"),
        ("the", "child", False, "das alte Kind|das alte Kind|dem alten Kind|des alten Kindes"),
        ("the", "child", True, "die alten Kinder|die alten Kinder|den alten Kindern|der alten Kinder"),
        ("a", "man", False, "ein alter Mann|einen alten Mann|einem alten Mann|eines alten Mannes"),
        ("a", "woman", False, "eine alte Frau|eine alte Frau|einer alten Frau|einer alten Frau"),
        ("a", "child", False, "ein altes Kind|ein altes Kind|einem alten Kind|eines alten Kindes"),
        ("my", "woman", True, "meine alten Frauen|meine alten Frauen|meinen alten Frauen|meiner alten Frauen"),
        ("this", "house", False, "dieses alte Haus|dieses alte Haus|diesem alten Haus|dieses alten Hauses"),
        ("our", "garden", False, "unser alter Garten|unseren alten Garten|unserem alten Garten|unseres alten Gartens"),
        ("", "wine", False, "alter Wein|alten Wein|altem Wein|alten Weines"),
        ("", "milk", False, "alte Milch|alte Milch|alter Milch|alter Milch"),
        ("", "beer", False, "altes Bier|altes Bier|altem Bier|alten Biers"),
        ("", "table", True, "alte Tische|alte Tische|alten Tischen|alter Tische"),
        ("the", "boy", False, "der alte Junge|den alten Jungen|dem alten Jungen|des alten Jungen"),
        ("the", "student", False, "der alte Student|den alten Studenten|dem alten Studenten|des alten Studenten"),
        ("the", "neighbour", False, "der alte Nachbar|den alten Nachbarn|dem alten Nachbarn|des alten Nachbarn"),
        ("no", "car", False, "kein altes Auto|kein altes Auto|keinem alten Auto|keines alten Autos"),
        ("no", "car", True, "keine alten Autos|keine alten Autos|keinen alten Autos|keiner alten Autos"),
    ],
)
def test_declension(determiner: str, word: str, plural: bool, expected: str) -> None:
    old = (semantics.ADJECTIVES["old"],)
    assert "|".join(morphology.noun_phrase(determiner, old, NOUNS[word], plural)) == expected


def test_adjectives_that_drop_a_vowel() -> None:
    dear = (semantics.ADJECTIVES["expensive"],)
    assert morphology.noun_phrase("a", dear, NOUNS["car"], False)[0] == "ein teures Auto"


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        ("eat", "esse isst isst essen essen"),
        ("read", "lese liest liest lesen lesen"),
        ("work", "arbeite arbeitest arbeitet arbeiten arbeiten"),
        ("open", "öffne öffnest öffnet öffnen öffnen"),
        ("invite", "lade lädst lädt laden laden"),
        ("take care", "kümmere kümmerst kümmert kümmern kümmern"),
        ("run", "laufe läufst läuft laufen laufen"),
        ("wash", "wasche wäschst wäscht waschen waschen"),
        ("dance", "tanze tanzt tanzt tanzen tanzen"),
        ("learn", "lerne lernst lernt lernen lernen"),
        ("close", "schließe schließt schließt schließen schließen"),
        ("live", "wohne wohnst wohnt wohnen wohnen"),
    ],
)
def test_present_tense(english: str, expected: str) -> None:
    assert " ".join(morphology.present(verb(english), slot) for slot in range(5)) == expected


def test_separable_verb_in_all_positions() -> None:
    get_up = Clause(ANNA, verb("get up"), c.PRESENT, time=Text("today", "heute"))
    assert c.german_main(get_up) == "Anna steht heute auf"
    assert c.german_main(get_up, "dann") == "dann steht Anna heute auf"
    assert c.german_subordinate(get_up, "weil") == "weil Anna heute aufsteht"
    assert c.german_zu(get_up) == "heute aufzustehen"
    assert c.german_main(Clause(ANNA, verb("get up"), c.PAST)) == "Anna ist aufgestanden"
    assert c.german_main(Clause(ANNA, verb("get up"), c.MUST)) == "Anna muss aufstehen"
    assert c.german_imperative(Clause(phrases.PRONOUNS[1], verb("rest"), c.PRESENT)) == "ruh dich bitte aus"


@pytest.mark.parametrize(
    ("preposition", "phrase", "expected"),
    [
        ("in", "dem Haus", "im Haus"),
        ("in", "das alte Haus", "ins alte Haus"),
        ("in", "einem Haus", "in einem Haus"),
        ("an", "dem See", "am See"),
        ("zu", "dem Arzt", "zum Arzt"),
        ("zu", "der Tante", "zur Tante"),
        ("von", "dem Bäcker", "vom Bäcker"),
        ("bei", "dem Bäcker", "beim Bäcker"),
        ("auf", "dem Tisch", "auf dem Tisch"),
        ("von", "der Tante", "von der Tante"),
    ],
)
def test_contractions(preposition: str, phrase: str, expected: str) -> None:
    assert morphology.with_preposition(preposition, phrase) == expected


@pytest.mark.parametrize(
    ("modifier", "head", "english", "nominative", "dative_plural"),
    [
        ("apple", "juice", "apple juice", "der Apfelsaft", "den Apfelsäften"),
        ("kitchen", "table", "kitchen table", "der Küchentisch", "den Küchentischen"),
        ("living room", "lamp", "living room lamp", "die Wohnzimmerlampe", "den Wohnzimmerlampen"),
        ("wool", "dress", "wool dress", "das Wollkleid", "den Wollkleidern"),
        ("village", "church", "village church", "die Dorfkirche", "den Dorfkirchen"),
    ],
)
def test_compounds(modifier: str, head: str, english: str, nominative: str, dative_plural: str) -> None:
    word = lexicon.compound(modifier, NOUNS[head])
    assert word.en == english
    assert morphology.noun_phrase("the", (), word, False)[0] == nominative
    assert morphology.noun_phrase("the", (), word, True)[2] == dative_plural


def test_english_inflection() -> None:
    plurals = {"child": "children", "shelf": "shelves", "church": "churches", "library": "libraries", "key": "keys"}
    assert {word: morphology.english_plural(NOUNS[word]) for word in plurals} == plurals
    assert morphology.english_plural(Noun("kitchen shelf", "", "n", "", "kitchen shelves")) == "kitchen shelves"
    thirds = {"go": "goes", "carry": "carries", "play": "plays", "wash": "washes", "turn|on": "turns|on"}
    assert {base: morphology.english_present(base, morphology.ER) for base in thirds} == thirds
    ings = {"lie": "lying", "swim": "swimming", "write": "writing", "open": "opening", "travel": "travelling"}
    assert {base: morphology.english_ing(base) for base in ings} == ings


# ---- Numbers, times, dates, prices


@pytest.mark.parametrize(
    ("value", "english", "german"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (23, "twenty-three", "dreiundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (342, "three hundred and forty-two", "dreihundertzweiundvierzig"),
    ],
)
def test_cardinals(value: int, english: str, german: str) -> None:
    assert numbers.cardinal(value) == (english, german)


def test_cardinals_are_all_different() -> None:
    for side in (0, 1):
        assert len({numbers.cardinal(n)[side] for n in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (7, 30, "half past seven", "halb acht"),
        (12, 30, "half past twelve", "halb eins"),
        (8, 45, "a quarter to nine", "Viertel vor neun"),
        (12, 45, "a quarter to one", "Viertel vor eins"),
        (1, 15, "a quarter past one", "Viertel nach eins"),
        (1, 0, "one o'clock", "ein Uhr"),
        (10, 0, "ten o'clock", "zehn Uhr"),
        (3, 5, "five past three", "fünf nach drei"),
        (3, 40, "twenty to four", "zwanzig vor vier"),
        (12, 55, "five to one", "fünf vor eins"),
    ],
)
def test_clock(hour: int, minute: int, english: str, german: str) -> None:
    assert numbers.clock(hour, minute) == (english, german)


def test_dates_years_prices() -> None:
    assert numbers.date(3, 4) == ("on the third of May", "am dritten Mai")
    assert numbers.date(1, 0, nominative=True) == ("the first of January", "der erste Januar")
    assert numbers.date(7, 2) == ("on the seventh of March", "am siebten März")
    assert numbers.date(8, 7).de == "am achten August"
    assert numbers.date(20, 9) == ("on the twentieth of October", "am zwanzigsten Oktober")
    assert numbers.date(21, 11) == ("on the twenty-first of December", "am einundzwanzigsten Dezember")
    assert numbers.year(1963) == ("nineteen sixty-three", "neunzehnhundertdreiundsechzig")
    assert numbers.price(4, 50) == ("four euros and fifty cents", "vier Euro fünfzig")
    assert numbers.price(21, 0) == ("twenty-one euros", "einundzwanzig Euro")


# ---- Sentences


def both(clause: Clause) -> tuple[str, str]:
    return tuple(c.sentence(c.statement(clause)))  # type: ignore[return-value]


IT, HIM = phrases.pronoun_for(np("the", "coat")), phrases.PRONOUNS[2]


@pytest.mark.parametrize(
    ("clause", "english", "german"),
    [
        (
            Clause(ANNA, verb("read"), c.PAST, accusative=np("a", "book")),
            "Anna read a book.",
            "Anna hat ein Buch gelesen.",
        ),
        (
            Clause(ANNA, verb("go"), c.PAST, complement=Text("home", "nach Hause"), time=Text("today", "heute")),
            "Anna went home today.",
            "Anna ist heute nach Hause gegangen.",
        ),
        (
            Clause(ANNA, verb("read"), c.PAST, True, accusative=np("the", "book"), time=Text("yesterday", "gestern")),
            "Anna did not read the book yesterday.",
            "Anna hat das Buch gestern nicht gelesen.",
        ),
        (
            Clause(ANNA, verb("turn|on"), c.CAN, True, accusative=np("the", "lamp")),
            "Anna cannot turn on the lamp.",
            "Anna kann die Lampe nicht einschalten.",
        ),
        (Clause(ANNA, verb("take|off"), c.PRESENT, accusative=IT), "Anna takes it off.", "Anna zieht ihn aus."),
        (
            Clause(ANNA, verb("give"), c.PAST, accusative=IT, dative=np("the", "boy")),
            "Anna gave it to the boy.",
            "Anna hat ihn dem Jungen gegeben.",
        ),
        (
            Clause(ANNA, verb("give"), c.PRESENT, accusative=np("a", "key"), dative=HIM),
            "Anna gives him a key.",
            "Anna gibt ihm einen Schlüssel.",
        ),
        (
            Clause(ANNA, verb("read"), c.PROGRESSIVE, accusative=np("the", "book")),
            "Anna is reading the book.",
            "Anna liest gerade das Buch.",
        ),
        (Clause(ANNA, verb("swim"), c.LIKES_TO), "Anna likes to swim.", "Anna schwimmt gern."),
        (
            Clause(np("the", "door"), verb("open"), c.MUST, passive=True),
            "The door has to be opened.",
            "Die Tür muss geöffnet werden.",
        ),
        (
            Clause(np("the", "door"), verb("open"), c.PAST, passive=True),
            "The door was opened.",
            "Die Tür wurde geöffnet.",
        ),
    ],
)
def test_known_sentences(clause: Clause, english: str, german: str) -> None:
    assert both(clause) == (english, german)


def test_kein_stands_for_not_a() -> None:
    no_book = phrases.common(Draw(1), "a", NOUNS["book"], describe=0.0, kein=True)
    clause = Clause(ANNA, verb("buy"), c.PRESENT, True, accusative=no_book)
    assert both(clause) == ("Anna does not buy a book.", "Anna kauft kein Buch.")


def test_clauses_in_front_and_relative_clauses() -> None:
    tired = Clause(ANNA, verbs.BE, c.PAST, complement=Text("tired", "müde"))
    main = Clause(phrases.PRONOUNS[3], verb("rest"), c.PAST)
    text = subclauses.joined(c.subordinate(tired, Text("because", "weil")), main)
    assert text == ("Because Anna was tired, she rested.", "Weil Anna müde war, hat sie sich ausgeruht.")
    late = Clause(ANNA, verb("rest"), c.PAST, time=Text("yesterday", "gestern"))
    assert c.sentence(c.fronted(late)).de == "Gestern hat sich Anna ausgeruht."
    asked = Clause(phrases.PRONOUNS[1], verb("read"), c.WANT, accusative=np("the", "book"))
    assert c.english_question(asked) == "do you want to read the book"
    assert c.german_question(asked) == "willst du das Buch lesen"
    assert subclauses.RELATIVE["f"] == ("die", "die", "der", "deren")


def test_it_takes_the_german_gender() -> None:
    forms = {word: phrases.pronoun_for(np("the", word)).german[0] for word in ("coat", "lamp", "book")}
    assert forms == {"coat": "er", "lamp": "sie", "book": "es"}


def test_names_in_the_genitive() -> None:
    teacher = np("the", "teacher")
    assert phrases.possessed(ANNA, NOUNS["sister"], "she").german[2] == "Annas Schwester"
    theirs = phrases.possessed(teacher, NOUNS["brother"], "he")
    assert (theirs.english[0], theirs.german[2]) == ("the teacher's brother", "dem Bruder des Lehrers")
