"""The demo corpus: correct paradigms, known sentences, and splits that hold combinations out."""

from __future__ import annotations

import pathlib
import re
import zlib
from collections import Counter

import demo_corpus as teaching
import pytest
from demo_corpus import clauses as c
from demo_corpus import corpus, lexicon, morphology, numbers, phrases, semantics, verbs
from demo_corpus.clauses import Clause, NounPhrase
from demo_corpus.draws import Draw
from demo_corpus.lexicon import NOUNS
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


@pytest.mark.slow
def test_deterministic_to_the_byte(splits: Splits) -> None:
    text = "\n".join(f"{name}\t{e.en}\t{e.de}" for name in corpus.SPLITS for e in splits[name])
    assert zlib.crc32(text.encode()) == CRC
    assert {name: len(found) for name, found in splits.items()} == {"train": 30_000, "valid": 500, "test": 1_000}


def test_generate_gives_the_pairs_of_the_examples() -> None:
    small = teaching.generate(seed=3, train=300, valid=10, test=20)
    assert {name: len(pairs) for name, pairs in small.items()} == {"train": 300, "valid": 10, "test": 20}
    assert small == teaching.generate(seed=3, train=300, valid=10, test=20)
    assert small != teaching.generate(seed=4, train=300, valid=10, test=20)


@pytest.mark.slow
def test_no_sentence_of_either_language_twice_and_of_average_length(splits: Splits) -> None:
    every = [example for found in splits.values() for example in found]
    assert len({e.en for e in every}) == len(every)
    assert len({e.de for e in every}) == len(every)
    for sides in zip(*((e.en, e.de) for e in splits["train"]), strict=True):
        average = sum(len(text.split()) for text in sides) / len(sides)
        assert 7 < average < 12


def test_held_out_combinations_are_in_every_test_sentence_and_no_training_sentence(splits: Splits) -> None:
    trained = {combination for e in splits["train"] for combination in e.combinations}
    assert not any(corpus.held_out(combination) for combination in trained)
    for name in ("valid", "test"):
        for example in splits[name]:
            assert any(corpus.held_out(combination) for combination in example.combinations), example
            assert set(example.combinations) - trained


@pytest.mark.slow
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


CONSTRUCTIONS = """
weil obwohl dass ob als wenn während bevor damit um ohne dessen deren aufzustehen aufgestanden aufsteht im ins am zum
zur vom kein nicht wurde wohin sich mich Herrn
"""


def test_mandatory_german_constructions_occur(splits: Splits) -> None:
    text = "\n".join(e.de for e in splits["train"])
    for word in CONSTRUCTIONS.split():
        assert re.search(rf"\b{word}\b", text, re.IGNORECASE), word


@pytest.mark.slow
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


# ---- Numbers, times, dates, prices


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
