"""The cut of Tatoeba's pairs: nothing held out is known from training, and the same export gives the same files."""

import pytest

from nmt_cli.corpora.split import cut, key, read_pairs, tidy
from nmt_cli.errors import DataError


def made(count: int = 400) -> list[tuple[str, str]]:
    """Pairs with paraphrases on both sides, and in other case and punctuation."""
    pairs = []
    for number in range(count):
        pairs.append((f"Sentence number {number}.", f"Satz Nummer {number}."))
        pairs += [(f"sentence number {number}!", f"Der Satz {number}.")] * (number % 6 == 1)
        pairs += [(f"The sentence {number}.", f"satz nummer, {number}")] * (number % 5 == 1)
    return pairs


def test_nothing_held_out_is_in_another_part_on_either_side() -> None:
    pairs = made()
    parts = cut(pairs, 40)
    assert [len(parts[name]) for name in ("train", "valid", "test")] == [len(pairs) - 80, 40, 40]
    assert sorted(pair for part in parts.values() for pair in part) == sorted(pairs)
    for side in (0, 1):
        keys = {name: {key(pair[side]) for pair in part} for name, part in parts.items()}
        assert not keys["train"] & keys["valid"]
        assert not keys["train"] & keys["test"]
        assert not keys["valid"] & keys["test"]
    twice = [("Hi!", "Hallo!"), ("hi", "Servus."), ("Good day.", "hallo")]
    parts = cut([*twice, *made(60)], 18)
    assert set(twice) <= set(parts["train"])


def test_the_same_pairs_are_cut_alike_and_train_is_shuffled() -> None:
    assert cut(made(), 40) == cut(made(), 40)
    assert cut(made(), 40) != cut(made(), 40, seed=1)
    train = cut(made(), 40)["train"]
    assert train != [pair for pair in made() if pair in set(train)]


def test_pairs_are_tidied_and_compared_without_case_and_punctuation() -> None:
    lines = [
        "Cafe\u0301\u202fnow.\tEin\u00a0 Café.\tCC-BY 2.0 (France)",
        "Café now.\t Ein Café. ",
        "",
        "Only this.\t \t",
        "Go.\tGeh.",
    ]
    assert read_pairs(lines, "deu.txt") == [("Café now.", "Ein Café."), ("Go.", "Geh.")]
    assert key("„Straße“, sagt er: 10 €!") == key("STRASSE sagt er 10")
    assert key("rock-'n'-roll") == "rock n roll"
    assert key("...") == ""
    assert tidy(" a\u3000b\n") == "a b"
    with pytest.raises(DataError, match=r"'deu.txt', line 2: 'no tab here' has no tab"):
        read_pairs(["Go.\tGeh.", "no tab here"], "deu.txt")


@pytest.mark.parametrize("pairs", [[], [("a", "b")], made(30)])
def test_too_few_pairs_are_told(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(DataError, match="too few to hold out 20 each"):
        cut(pairs, 20)
