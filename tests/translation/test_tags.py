"""A model of several target languages: which one a line has, and that its tag is in the source and nowhere else."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from untrained import write_untrained

import nmt_cli as nmt
from nmt_cli.data.tokenizer import EOS, Tokenizer
from nmt_cli.errors import UsageError
from nmt_cli.interface.attention import cross_attention_of
from nmt_cli.search.running import search_all
from nmt_cli.search.sentence import Sentence
from nmt_cli.translation.alignment import aligned

TAGS = ["deu", "fra", "cmn_Hans"]
LINE = "the small cat sees a red house."
OPTIONS: list[dict[str, Any]] = [
    {"search": "mbr", "mbr_samples": 4, "seed": 3},
    {"sample": True, "seed": 2},
    {"search": "diverse", "beam": 4, "diverse_groups": 2},
    {"terms": True},
    {"banned_words": ["cat"]},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained(tmp_path_factory.mktemp("models") / "many", max_extra=5, pair=("eng", "fra"), tags=TAGS)


@pytest.fixture(scope="module")
def several(folder: Path) -> Iterator[nmt.Translator]:
    with nmt.load(folder, device="cpu", devices=1, precision="fp32") as one:
        yield one


def tokenizer(translator: nmt.Translator) -> Tokenizer:
    return translator.stored.vocabulary.source


def test_the_tags_of_a_tokenizer_are_no_text(several: nmt.Translator) -> None:
    tagged = tokenizer(several)
    assert tagged.tags == pickle.loads(pickle.dumps(tagged)).tags == {"deu": 4, "fra": 5, "cmn_Hans": 6}
    assert not set(tagged.encode([">>deu<< the cat"])[0]) & set(tagged.tags.values())
    assert (several.target_languages, several.has_tags) == (TAGS, True)


def test_each_language_has_its_translation(several: nmt.Translator) -> None:
    of = {code: several.translate([LINE, "", LINE], target_language=code) for code in TAGS}
    assert len({translations[0].text for translations in of.values()}) == 3
    for code, (first, blank, last) in of.items():
        assert first == last
        assert (first.target_language, blank.target_language, blank.text) == (code, "", "")
        assert first.as_dict()["target_language"] == code
    for name, code in {"de": "deu", "ger-AT": "deu", "fr": "fra", "zh-hans": "cmn_Hans", "fr-CA": "fra"}.items():
        assert several.translate([LINE], target_language=name) == of[code][:1]
    assert several.translate([LINE]) == of["fra"][:1]  # the recipe's
    assert list(several.translate(iter([LINE]), target_language="de")) == of["deu"][:1]
    assert several.submit([LINE], target_language="de").result() == of["deu"][:1]
    assert several.translate([nmt.Line(LINE)], target_language="de") == of["deu"][:1]
    with pytest.raises(UsageError, match="--target-language 'ru': the model translates into 'deu', 'fra', 'cmn_Hans'"):
        several.translate([LINE], target_language="ru")
    with pytest.raises(UsageError, match="--target-language 'ru'"):
        several.warm_up(target_language="ru")


def test_a_line_names_its_language(several: nmt.Translator) -> None:
    lines = [f">>deu<< {LINE}", f">>fra<<{LINE}", f"  >>ZH-hans<<  {LINE}", f">>now!<< {LINE}", ">>deu<< ", LINE]
    found = several.translate(lines, target_language="fra")
    assert [one.target_language for one in found] == ["deu", "fra", "cmn_Hans", "fra", "", "fra"]
    assert [one.source for one in found] == lines
    for code, one in zip(["deu", "fra", "cmn_Hans"], found, strict=False):
        assert one.text == several.translate([LINE], target_language=code)[0].text
        assert "".join(one.source_tokens).replace("▁", " ") == f" {LINE}"
    assert found[3].text == several.translate([f">>now!<< {LINE}"])[0].text != found[5].text
    assert found[4].text == ""


@pytest.mark.parametrize("tag", [">>rus<<", ">>RU<<", ">>pt_BR<<", ">>cmn_Hant<<"])
def test_a_line_of_a_language_that_the_model_lacks(tag: str, several: nmt.Translator, folder: Path) -> None:
    """It is an error of a call."""
    line = f" {tag} {LINE}"
    for call in (
        lambda: several.translate([LINE, line]),
        lambda: list(several.translate(iter([line]))),
        lambda: several.submit([nmt.Line(line)]),
        lambda: nmt.attend(line, model=folder, device="cpu"),
    ):
        with pytest.raises(UsageError, match=f"begins with '{tag}', and the model translates into 'deu', 'fra'"):
            call()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_tag_is_in_every_search(several: nmt.Translator, options: dict[str, Any]) -> None:
    lines = [nmt.Line(LINE, terms=["dog"]) if options.get("terms") else LINE]
    of = {code: several.translate(lines, target_language=code, **options)[0] for code in TAGS}
    assert len({(one.text, one.log_prob) for one in of.values()}) == 3
    for one in of.values():
        assert not set(tokenizer(several).tags.values()) & {tokenizer(several).table.index(p) for p in one.tokens}


def test_the_source_is_the_tag_and_the_text(several: nmt.Translator) -> None:
    """Tokens, log P and alignment are those of a search of the tag's id and the ids of the text."""
    translator = several.with_options({"alignment": True})
    ids = tokenizer(several).encode([LINE])[0]
    for code, tag in tokenizer(several).tags.items():
        [one] = several.translate([LINE], target_language=code, alignment=True)
        [found] = search_all(translator.models, translator.search, [Sentence([tag, *ids], len(ids) + 1 + 5)])
        assert one.log_prob == found.hypotheses[0].log_prob
        assert one.tokens == tuple(tokenizer(several).table[token] for token in found.hypotheses[0].tokens)
        columns = aligned(several.stored.forced(), [tag, *ids, EOS], found.hypotheses[0].tokens)
        expected = [(column - 1, row) for row, column in enumerate(columns) if 1 <= column <= len(ids)]
        assert one.alignment == tuple(expected)
        assert expected


def test_every_part_of_a_long_line_has_the_tag(several: nmt.Translator) -> None:
    sentences = ["the small cat sees a red house.", "a dog likes the big red dog under the house with a cat."]
    line = " ".join(sentences * 3)
    assert len(tokenizer(several).encode([line])[0]) > 40
    for code in ("deu", "fra"):
        expected = several.translate(sentences * 3, target_language=code, alignment=True)
        [whole] = several.translate([line], target_language=code, alignment=True)
        [own] = several.translate([f">>{code}<< {line}"], alignment=True)
        assert whole.source_tokens == tuple(token for one in expected for token in one.source_tokens)
        assert whole.tokens == own.tokens == tuple(token for one in expected for token in one.tokens)
        pairs, source, target = list[tuple[int, int]](), 0, 0
        for one in expected:
            pairs += [(source + left, target + right) for left, right in one.alignment or ()]
            source, target = source + len(one.source_tokens), target + len(one.tokens)
        assert whole.alignment == own.alignment == tuple(pairs)
        assert len(whole.part_lengths) == 6


def test_a_tag_counts_in_the_length(tmp_path: Path) -> None:
    """A sentence and its tag and end symbol fit into the model; the longest sentence without a tag is split with one."""
    with nmt.load(
        write_untrained(tmp_path / "m", max_positions=42, tags=TAGS, pair=("en", "de")), device="cpu", devices=1
    ) as one:
        words = ["cat " * length for length in (38, 39, 40, 41)]
        assert [len(ids) for ids in tokenizer(one).encode(words)] == [38, 39, 40, 41]
        found = one.translate(words)
        assert [len(translation.part_lengths) for translation in found] == [1, 1, 2, 2]
        scored = one.score([(line, "cat") for line in words], target_language="fr")
        assert [score.log_prob is None for score in scored] == [False, False, False, True]


def test_scores(several: nmt.Translator) -> None:
    pairs = [(LINE, "the cat"), (f">>deu<< {LINE}", "the cat"), ("", ""), ("", "the cat"), (LINE, "")]
    first, own, blank, no_source, no_target = several.score(pairs)
    german = several.score(pairs, target_language="de")
    assert own.log_prob == german[0].log_prob != first.log_prob
    assert first.log_prob == several.score(pairs[:1], target_language="fra")[0].log_prob
    assert (blank.tokens, blank.log_prob, no_target.tokens) == (0, 0.0, 1)
    assert no_source.log_prob == german[3].log_prob
    with pytest.raises(UsageError, match="--target-language 'xx'"):
        several.score(pairs, target_language="xx")


def test_attention(folder: Path, several: nmt.Translator) -> None:
    for code in ("deu", "fra"):
        [one] = several.translate([LINE], target_language=code)
        record = nmt.attend(LINE, model=folder, device="cpu", target_language=code).record
        cross = next(view for view in record.views if view.kind == "cross")
        assert cross.columns == (f">>{code}<<", *one.source_tokens, "</s>")
        assert record.translation == one.text
        rows = cross.weights[0].mean(0)
        np.testing.assert_allclose(rows[:-1, 1:-1], cross_attention_of(several, one), atol=1e-6)
        own = nmt.attend(f">>{code}<< {LINE}", model=folder, device="cpu").record
        assert own.log_prob == record.log_prob


def test_a_recipe_with_another_language(tmp_path: Path) -> None:
    """Lines name their languages; one that does not is an error, after the lines before it."""
    folder = write_untrained(tmp_path / "m", tags=TAGS, pair=("en", "mul"))
    with nmt.load(folder, device="cpu", devices=1) as one:
        stream = one.translate(line for line in [f">>deu<< {LINE}"] * 64 + ["", f">>fra<< {LINE}", LINE])
        assert [next(stream).target_language for _ in range(64)] == ["deu"] * 64
        with pytest.raises(UsageError, match="'mul' is none of them") as error:
            list(stream)
        assert ">>CODE<<. CODE is one of 'deu', 'fra', 'cmn_Hans'." in str(error.value)
        assert one.translate([LINE], target_language="fr")[0].target_language == "fra"
        assert one.translate(["", " "])[1].text == ""


def test_a_model_without_tags_has_one_language(tmp_path: Path) -> None:
    with nmt.load(write_untrained(tmp_path / "m"), device="cpu", devices=1) as one:
        plain = one.translate([LINE])
        for same in ("de", "DE", "deu"):
            assert one.translate([LINE], target_language=same) == plain
        with pytest.raises(UsageError, match="--target-language 'fr': the model translates into 'de' only"):
            one.translate([LINE], target_language="fr")
        with pytest.raises(UsageError, match="into 'de' only"):
            one.score([(LINE, LINE)], target_language="fr")
        assert plain[0].target_language == ""
        assert "target_language" not in plain[0].as_dict()
        [tagged] = one.translate([f">>de<< {LINE}"])
        assert len(tagged.source_tokens) > len(plain[0].source_tokens)
