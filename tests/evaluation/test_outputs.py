"""The checks of outputs: against brute force, on cases written by hand."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt_cli.evaluation.outputs import CHECKS, check_outputs, count_faults, is_copy, repeated, repetitions, worst_lines

SENTENCE = "The quick brown fox jumps over the lazy dog near the river bank today."


def faults(source: str, output: str, *references: str) -> tuple[str, ...]:
    """The faults of one line. Beside it are twenty good lines, from which lengths are estimated."""
    good = [f"{SENTENCE} {'na' * k}" for k in range(20)]
    good_outputs = [line.replace("quick", "schnell").replace("dog", "Hund").replace("river", "Fluss") for line in good]
    streams = [[*good_outputs, reference] for reference in references or ("Ein Text.",)]
    return check_outputs([*good, source], [*good_outputs, output], streams)[-1]


def brute_force(units: str | list[str], least: int) -> int:
    """Count the copies of every n-gram from every index. At the end, half of a third copy counts."""
    most = 1
    for size in range(1, len(units) + 1):
        for start in range(len(units)):
            ngram, count = units[start : start + size], 0
            while ngram and units[start + count * size : start + (count + 1) * size] == ngram:
                count += 1
            rest = units[start + count * size :]
            if count == 2 and size >= 3 and 2 * len(rest) >= size and rest == ngram[: len(rest)]:
                count = 3
            most = max(most, count)
    return most if most >= least else 1


def test_loops_are_those_of_brute_force() -> None:
    draw, counts = random.Random(3), set()
    for _ in range(500):
        letters = "ab" if draw.random() < 0.5 else "abc"
        text = "".join(draw.choice(letters) for _ in range(draw.randint(0, 18)))
        part = "".join(draw.choice(letters) for _ in range(draw.randint(1, 5)))
        text += part * draw.randint(0, 7) + draw.choice([text[::-1], part[:3]])
        for least in (2, 3, 4):
            enough: Callable[..., int] = lambda ngram, least=least: least  # noqa: E731
            assert repeated(text, enough) == brute_force(text, least), text
        counts.add(repeated(text, lambda ngram: 2))
    assert counts >= {2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("er sagte , er sagte , er sagte , er sagte , er", 5),
        (SENTENCE + SENTENCE, 1),  # "today.The" is one word
        ("the cat and the dog and the cat and the dog", 1),
        ("the cat and the dog, the cat and the dog, the cat and the", 3),  # cut off
        ("der Hund, der Mann, der Weg, der Baum, der", 5),  # half of the words
        ("der Hund, der Mann, der Weg, der Baum, ein Haus", 1),
        ("好。好。好。好。好。", 5),
        ("की का के की का", 1),  # words that differ in a vowel sign
        ("Aaaaaah!", 1),
        ("nnnnnnnnnnnnnnnnnnnn", 20),
        ("------------------------", 1),
        ("10 10 10", 1),
        ("1000000000000000000000", 1),
    ],
)
def test_repetitions(text: str, count: int) -> None:
    assert repetitions(text) == count


def test_a_source_or_a_reference_that_loops_excuses_up_to_twice_as_many_repetitions() -> None:
    assert faults("no no", "nein nein nein") == ("loops",)
    assert faults("no no no", "nö nö nö nö nö nö") == ()
    assert faults("no no no", "nö nö nö nö nö nö nö") == ("loops",)
    assert faults("no no", "nein nein nein", "nein nein", "nein nein nein") == ()
    assert faults("and so, and so, and so, and so,", "usw. usw. usw. usw. usw.") == ()


def test_long_loops_take_linear_time() -> None:
    assert repetitions("a b c d e f g " * 10_000) == 10_000
    assert repetitions("abcdefg" * 10_000) == 10_000
    assert repetitions(" ".join(map(str, range(50_000)))) == 1


@pytest.mark.parametrize(
    ("source", "output", "copied"),
    [
        (SENTENCE, SENTENCE, True),
        (SENTENCE, SENTENCE.replace("lazy", "faule"), True),  # 14 of 15 tokens
        (SENTENCE, SENTENCE.replace("lazy dog", "faule Hund"), False),  # 13 of 15
        (SENTENCE, "Near the river bank today the quick brown fox jumps over the lazy dog!", True),  # 14 of 15 tokens
        (SENTENCE, f"{SENTENCE} Das heißt auf Deutsch:", False),  # 15 of 20
        ("Hotel", "hotel", True),
        ("की", "का", False),
        ("1,234.56 - 2 000 = 17 / 4 (88 %)", "1,234.56 - 2 000 = 17 / 4 (88 %)", False),
        ("see https://example.org/a/b?c=d", "see https://example.org/a/b?c=d", True),
        ("", "", False),
    ],
)
def test_copies(source: str, output: str, copied: bool) -> None:
    assert is_copy(source, output) == copied


def test_what_a_reference_copies_or_lacks_too_is_no_fault() -> None:
    names = "Winston Churchill, Ava Gardner und Frank Sinatra"
    assert "copies" in faults(names, names, names.replace("Winston", "Sir").replace("und", "and"))
    assert faults(names, names, names) == ()
    assert faults(names, names, "Drei Menschen, deren Namen man kennt: kein Vergleich", names.upper()) == ()
    assert "copies" in faults("Barack Obama", "Barack Obama", "Der Präsident")
    assert "copies" in faults("A dog.", "A dog.", "A cat.")  # "a" is no name
    assert faults("Barack Obama", "Barack Obama", "Der Präsident", "Präsident Obama") == ()
    assert faults("In 1998, 250 of them", "Ein Text", "Ein Text von 1998", "Ein Text von 250") == ()
    assert faults("In 1998, 250 of them", "Ein Text von 250", "250 von 1998", "1998 und 250") == ("numbers",)
    # the first is missing
    assert faults("In 1998, 250 of them", "Ein Text von 250", "", "1998 und 250") == ("numbers",)
    assert faults("Go to {here} now", "Ein Text", "Ein Text", "Ein {here}") == ()
    assert faults("Go to {here} now", "Ein Text", "Nun {here}", "Ein {here}") == ("placeholders",)
    assert faults("{a} {a} %s", "{a} %s", "{a} {a} %s") == ("placeholders",)


@pytest.mark.parametrize("script", ["٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "๐๑๒๓๔๕๖๗๘๙", "0123456789"])
@pytest.mark.parametrize(
    ("output", "lost"), [("1.234,5", False), ("1 234,5", False), ("1234.5", False), ("1.243,5", True)]
)
def test_numbers_in_any_digits_and_with_any_separators(script: str, output: str, lost: bool) -> None:
    def written(text: str) -> str:
        return text.translate(dict(zip(map(ord, "0123456789"), script, strict=True)))

    assert faults("about 1,234.5 m", written(output), "1.234,5") == (("numbers",) if lost else ())
    assert faults(written("about 1,234.5 m"), output, written("1.234,5")) == (("numbers",) if lost else ())


@pytest.mark.parametrize("number", ["9" * 5000, "1." * 3000 + "5", "0", "00", "1,,5", "²³½", "1.2.3.4", "99.99.9999"])
def test_odd_numbers(number: str) -> None:
    assert "numbers" not in faults(f"It has {number} here", f"Es hat {number} hier", f"Es hat {number} hier")


LABELLED = [
    line.split("\t")
    for line in Path(__file__).with_name("labelled_outputs.tsv").read_text(encoding="utf-8").splitlines()
]
"""Fault or "-", source, output and references of lines written by hand."""


@pytest.mark.parametrize(("fault", "source", "output", "references"), [(*row[:3], row[3:]) for row in LABELLED])
def test_labelled_lines(fault: str, source: str, output: str, references: list[str]) -> None:
    """All but `length`, which needs many lines."""
    found = check_outputs([source], [output], [[line] for line in references])[0]
    assert set(found) - {"length"} == {fault} - {"-"}


@pytest.mark.parametrize(
    ("source", "output", "expected"),
    [("A dog.", " \t\u3000", ("empty",)), ("", "Ein Hund.", ("invented",)), (" ", "\u00a0", ())],
)
def test_blank_lines(source: str, output: str, expected: tuple[str, ...]) -> None:
    assert faults(source, output) == expected


def test_lengths_far_from_the_references_ratio() -> None:
    assert faults(SENTENCE, "Der schnelle braune Fuchs springt über den faulen Hund.") == ()
    assert faults(SENTENCE, "Der schnelle braune Fuchs.") == ("length",)
    looping = "Der Satz " + "lautet so, wie man ihn lange schon kennt, und " * 3 + "endet."
    assert faults(SENTENCE, looping) == ("loops", "length")
    assert faults(SENTENCE, f"Der Satz {' '.join(map(str, range(90)))} endet.") == ("length",)
    assert faults("Yes.", "Ja, so ist es wohl.") == ()  # far in ratio, near in characters
    assert faults("Yes.", "Ja, so ist es wohl, und so wird es auch bleiben.") == ("length",)


def test_the_usual_ratio_is_that_of_the_first_reference() -> None:
    source = [f"{'word ' * (10 + k % 7)}{k}" for k in range(40)]
    twice = [f"{line} {line[::-1]}" for line in source]
    assert count_faults(check_outputs(source, twice, [twice, source]))["length"] == 0
    assert count_faults(check_outputs(source, twice, [source, twice]))["length"] == 40
    assert check_outputs(["A dog."], ["Ein Hund " * 20], [[" "]]) == [("loops",)]
    assert check_outputs(["A dog barks."], ["Ein Hund bellt laut."], [["Ein Hund bellt."]]) == [()]


def test_faults_are_counted_by_name_and_a_line_can_have_several() -> None:
    found = check_outputs(["A dog.", "A cat.", ""], ["", "Katze " * 30, "x"], [["Ein Hund.", "Eine Katze.", ""]])
    assert found == [("empty",), ("loops", "length"), ("invented",)]
    assert count_faults(found) == {
        **{"empty": 1, "invented": 1, "loops": 1, "copies": 0, "length": 1},
        **{"numbers": 0, "placeholders": 0},
    }
    assert list(count_faults(found)) == list(CHECKS)


def test_worst_lines_have_faults_first_then_the_lowest_scores() -> None:
    faults = [(), ("empty",), (), ("loops", "length"), ()]
    assert worst_lines(faults, {0: 5.0, 1: 40.0, 2: 1.0, 3: 3.0, 4: 1.0}, 4) == [3, 1, 2, 4]
    assert worst_lines([(), ("empty",), ()], {0: 5.0, 2: 1.0}, 9) == [2, 0]
