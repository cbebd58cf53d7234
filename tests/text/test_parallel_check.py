"""Sides that do not fit together are warned of; sides that do are not."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import warnings

from nmt_cli.data.demo_corpus import write_corpus
from nmt_cli.errors import shown
from nmt_cli.text.parallel_check import BLOCK, MOST_BLOCKS, Pair, PairSample, remarks, sample_files


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    """6,000 pairs of the demo corpus."""
    folder = tmp_path_factory.mktemp("demo")
    write_corpus(folder)
    sides = [(folder / f"train.{code}").read_text(encoding="utf-8").split("\n")[:6000] for code in ("en", "de")]
    return list(zip(*sides, strict=True))


def write(folder: Path, pairs: list[Pair], codes: tuple[str, str] = ("en", "de")) -> list[list[Path]]:
    files = [[folder / f"text.{code}"] for code in codes]
    for side, (file,) in enumerate(files):
        file.write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return files


@pytest.fixture
def said(tmp_path: Path) -> Callable[[list[Pair], tuple[str, str]], str]:
    """What is said about pairs, without the name of the folder."""

    def warnings(pairs: list[Pair], languages: tuple[str, str] = ("en", "de")) -> str:
        files = write(tmp_path, pairs, languages)
        warned = (f"warning: {remark}\n" for remark in remarks(sample_files(*files), files, languages))
        return "".join(warned).replace(f"{tmp_path}/", "")

    return warnings


Said = Callable[..., str]


def shifted(pairs: list[Pair], lines: int, start: int = 0) -> list[Pair]:
    """The pairs; from `start` on a source belongs to the target `lines` further."""
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    del (sources if lines > 0 else targets)[start : start + abs(lines)]
    return list(zip(sources, targets, strict=False))


def test_a_sample_is_spread_over_the_text_and_is_small() -> None:
    for count in (0, 1, 100, BLOCK * MOST_BLOCKS, 100_000):
        sample, text = PairSample(), [(f"{number}", "") for number in range(count)]
        assert list(sample.over(text)) == text
        for first, block in sample.blocks.items():
            assert block == text[first : first + BLOCK]
        starts = list(sample.blocks)
        assert len(starts) <= MOST_BLOCKS
        assert len({after - before for before, after in itertools.pairwise(starts)}) <= 1
        assert count - (starts or [0])[-1] <= 2 * BLOCK * max(1, count // (BLOCK * MOST_BLOCKS) * 2)


def test_nothing_is_said_about_parallel_text(pairs: list[Pair], said: Said) -> None:
    assert said(pairs) == said(pairs[:300]) == said(pairs[:5]) == said([]) == ""
    assert said(sorted(pairs, key=lambda pair: len(pair[0]))) == ""
    assert said([("word", "Wort")] * 1000) == ""
    assert said([(target, source) for source, target in pairs], ("de", "en")) == ""


@pytest.mark.parametrize("lines", [1, -1, 3, -10])
def test_shifted_sides(pairs: list[Pair], said: Said, lines: int) -> None:
    source, target = 449 + max(0, -lines), 449 + max(0, lines)
    texts = [shown(text, 60) for text in pairs[448 + abs(lines)]]
    warning = said(shifted(pairs, lines)[:512])
    assert warning.startswith("warning: 'text.en' and 'text.de' are shifted against each other: ")
    assert f"line {source} of 'text.en' belongs to line {target} of 'text.de', such as {' to '.join(texts)}." in warning
    assert warning.count("\n") == 1


def test_sides_that_are_shifted_late_or_not_parallel(pairs: list[Pair], said: Said) -> None:
    assert (
        "are shifted against each other from about line 3,073 on: line 3,969 of 'text.en' belongs to line 3,970"
        in said(shifted(pairs, 1, start=3200))
    )
    targets = [target for _, target in pairs]
    random.Random(1).shuffle(targets)
    warning = said([(source, target) for (source, _), target in zip(pairs, targets, strict=True)])
    assert (
        "'text.en' and 'text.de' do not look parallel: the lengths of their lines are unrelated. Line 1 reads"
        in warning
    )


def test_languages(pairs: list[Pair], said: Said) -> None:
    swapped = [(target, source) for source, target in pairs]
    assert said(swapped) == (
        "warning: the sides look swapped: 'en' is in 'text.de' and 'de' is in 'text.en'. "
        "Exchange the files, or the language codes.\n"
    )
    assert "the sides look swapped: 'en' is in 'text.xx'." in said(swapped, ("en", "xx"))
    same = [(source, source.replace("cat", "dog")) for source, _ in pairs]
    assert "'text.en' and 'text.de' look like the same language, 'en', such as '" in said(same)
    assert said(same, ("en-GB", "en-US")) == ""
    french = [(source, "le chat et la maison sont dans une rue pour que " + source[::-1]) for source, _ in pairs]
    assert "'text.de' reads like 'fr', not 'de'. Check the file, or correct the language code." in said(french)
    assert "'text.ger' reads like 'fr', not 'ger'." in said(french, ("en", "ger"))
    assert said(french, ("en", "fre")) == ""


@pytest.mark.slow
def test_commands_warn(pairs: list[Pair], workdir: Path) -> None:
    write(workdir, shifted(pairs, 1, start=1000))
    for line in ("init mine --source text.en --target text.de --time 1s", "preprocess mine.toml --workers 1"):
        assert " ".join(warnings(line)).count("are shifted against each other from about line") == 1
