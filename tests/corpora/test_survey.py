"""What `nmt init` says about text, and what it holds out."""

import io
import random
from pathlib import Path

import pytest

from nmt_cli.corpora.survey import draw, survey, words, write_parts
from nmt_cli.errors import DataError


def write(folder: Path, pairs: list[tuple[str, str]]) -> tuple[list[Path], list[Path]]:
    for side, name in enumerate(("a.en", "a.de")):
        (folder / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return [folder / "a.en"], [folder / "a.de"]


def sentences(count: int) -> list[tuple[str, str]]:
    draw = random.Random(1)
    return [
        (f"the {number} cats see {draw.randint(1, 9)} dogs", f"die {number} Katzen sehen {draw.randint(1, 9)} Hunde")
        for number in range(count)
    ]


def test_what_the_text_is_like(tmp_path: Path) -> None:
    pairs = [*sentences(20), ("The 3 cats, see.", "x"), ("the 3 CATS see!", "x"), ("", "nichts"), (" ", "nichts")]
    pairs += [("...", "Punkte"), ("copied text", "copied text "), ("a b c d e f g h", "kurz ist"), ("привет", "Hallo")]
    text = survey(*write(tmp_path, pairs), str)
    assert (text.pairs, text.empty, text.copies, text.repeated, text.odd, text.useful) == (28, 2, 1, 1, 1, 24)
    assert (text.source.longest, text.target.longest) == (8, 6)
    assert list(text.source.scripts)[:2] == ["LATIN", "CYRILLIC"]
    assert set(text.target.scripts) == {"LATIN"}
    # the paraphrases share a side, the others have no letters, or are copied or odd
    assert set(text.alone) == {*range(20), 27}


def test_words_of_scripts_without_spaces_are_counted_by_letters() -> None:
    assert words("the cat  sees") == 3
    assert words("猫は犬を見る。") == 3
    assert words("") == words(" ") == 0


def test_held_out_sentences_occur_nowhere_else_and_are_always_the_same(tmp_path: Path) -> None:
    pairs = [*sentences(200), ("The 7 Cats, see 1 dogs", "ganz anders"), ("", "")]
    files = write(tmp_path, pairs)
    parts = []
    for _ in range(2):
        streams = {name: (io.BytesIO(), io.BytesIO()) for name in ("train", "valid", "test")}
        counts = write_parts(*files, draw(survey(*files, str), {"valid": 10, "test": 20}), streams)
        assert counts == {"train": 171, "valid": 10, "test": 20}
        parts.append(
            {name: [stream.getvalue().decode().split("\n")[:-1] for stream in both] for name, both in streams.items()}
        )
    assert parts[0] == parts[1]
    read = {name: list(zip(*sides, strict=True)) for name, sides in parts[0].items()}
    assert sorted(pair for name in read for pair in read[name]) == sorted(pairs[:-1])
    assert read["train"] == [pair for pair in pairs[:-1] if pair in set(read["train"])]  # in order
    for side in range(2):
        others = {pair[side].casefold().replace(",", "") for pair in read["train"]}
        assert not others & {pair[side].casefold() for name in ("valid", "test") for pair in read[name]}


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (sentences(30), "30 pairs, of which 30 have .* hold out 20"),
        ([("the same", f"etwas {number}") for number in range(200)], "200 pairs, of which 0 have"),
        ([], "have no lines: there is nothing to learn from"),
    ],
    ids=["few", "the same", "none"],
)
def test_too_few_pairs_to_hold_out(pairs: list[tuple[str, str]], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        draw(survey(*write(tmp_path, pairs), str), {"valid": 10, "test": 10})


def test_sentences_with_several_translations_are_held_out_together(tmp_path: Path) -> None:
    """Every source has two translations: no pair is alone. Two pairs of a third sentence are copies, which are never held out."""
    pairs = [pair for en, de in sentences(120) for pair in ((en, de), (en + "!", f"ja, {de}"))]
    text = survey(*write(tmp_path, [*pairs, ("copy", "copy"), ("copy", "Kopie")]), str)
    assert len(text.alone) == 0
    held_out = draw(text, {"valid": 11, "test": 10})
    assert {name: len(numbers) for name, numbers in held_out.items()} == {"valid": 12, "test": 10}
    drawn = {int(number) for numbers in held_out.values() for number in numbers}
    assert drawn == {number ^ 1 for number in drawn}
    assert max(drawn) < 240
