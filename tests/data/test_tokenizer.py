"""Tokenizers: our ids, exact round trips, the same bytes from the same text, and errors in the recipe's terms."""

import io
import pickle
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import pytest
import sentencepiece
from pydantic import ValidationError

from nmt_cli.data.normalization import META_SPACE
from nmt_cli.data.tokenizer import (
    BOS,
    EOS,
    JOINT_FILE,
    PAD,
    SOURCE_FILE,
    TARGET_FILE,
    UNK,
    Tokenizer,
    Vocabulary,
    learn,
    learn_bpe,
    learn_from_words,
    learn_symbols,
)
from nmt_cli.data.words import WordEncoder, count_words
from nmt_cli.errors import DataError
from nmt_cli.recipe import DataSection
from nmt_cli.registry import TOKENIZERS

SENTENCES = [
    f"the {a} {b} sees {c} houses"
    for a, b, c in product(("small", "large", "old"), ("dog", "cat", "bird"), ("two", "no", "many"))
]
GERMAN = [
    f"der {a} {b} sieht {c} Häuser"
    for a, b, c in product(("kleine", "große", "alte"), ("Hund", "Kater", "Vogel"), ("zwei", "keine", "viele"))
]


def section(**changes: object) -> DataSection:
    return DataSection.model_validate({"train_source": ["s"], "train_target": ["t"], "vocab_size": 300, **changes})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn_bpe(SENTENCES + GERMAN, section(vocab_size=330))


@pytest.mark.parametrize(
    ("rule", "text", "back"),
    [
        ("nfc", "  the   small\tdog  ", "the small dog"),
        ("nfc", "unseen: Ж 日本 🙂 €", "unseen: Ж 日本 🙂 €"),
        ("nfc", "ﬁne ½ E=mc² ™ Ａ，。…", "ﬁne ½ E=mc² ™ Ａ，。…"),
        ("nfc", "a\u2028b", "a b"),
        ("nfc", " ", ""),
        ("nfc", "<s> </s> <pad> <unk> <0x41> ▁", "<s> </s> <pad> <unk> <0x41>"),
        ("identity", "ﬁne ² Ａ… cafe\u0301", "ﬁne ² Ａ… cafe\u0301"),
        ("identity", "a\u2028b\x0bc\rd\u0085e\x00f\xadg", "a b c d efg"),
        ("nmt_nfkc", "ﬁne ² Ａ…", "fine 2 A..."),
    ],
)
def test_round_trip_after_normalisation(rule: str, text: str, back: str) -> None:
    tokenizer = learn_bpe(SENTENCES, section(normalization=rule))
    [ids] = tokenizer.encode([text])
    assert not {PAD, UNK, BOS, EOS} & {*ids}
    assert tokenizer.decode([ids]) == [back]


def test_decoding_passes_over_specials_and_keeps_to_one_line(tokenizer: Tokenizer) -> None:
    [ids] = tokenizer.encode(["the small dog"])
    assert tokenizer.decode([[BOS, *ids, EOS, PAD, PAD], [], [PAD, EOS]]) == ["the small dog", "", ""]
    newline = next(i for i in range(tokenizer.vocab_size) if tokenizer._processor.id_to_piece(i) == "<0x0A>")
    assert "\n" not in tokenizer.decode([[*ids, newline, *ids]])[0]
    assert "⁇" in tokenizer.decode([[UNK]])[0]
    assert tokenizer.encode([]) == []
    assert tokenizer.decode([]) == []


def test_pieces_without_text_are_white_space_and_control_symbols(tokenizer: Tokenizer) -> None:
    """And whatever holds any other piece reads as text that is not blank; bytes of white-space characters do not count."""
    table = tokenizer.table
    without = {table[number] for number in tokenizer.textless}
    bytes_of_spaces = {f"<0x{byte:02X}>" for byte in b" \n\xc2\xa0\xe2\x80\xe3"}
    assert {"<pad>", "<s>", "</s>", META_SPACE, *bytes_of_spaces} <= without
    assert not {"<unk>", "<0x00>", "<0x41>", "<0xC3>", "<0xFF>", "s", f"{META_SPACE}the"} & without
    for space in ("\u00a0", "\u2003", "\u3000", "\x85"):
        spelled = [table.index(f"<0x{byte:02X}>") for byte in space.encode()]
        assert set(spelled) <= set(tokenizer.textless)
        assert not tokenizer.decode([spelled])[0].strip()
    blank = [PAD, BOS, EOS, table.index(META_SPACE), table.index("<0x20>")]
    for number in range(tokenizer.vocab_size):
        assert number in tokenizer.textless or tokenizer.decode([[*blank, number, *blank]])[0].strip()


def test_the_same_text_gives_the_same_bytes_which_are_kept(tokenizer: Tokenizer, tmp_path: Path) -> None:
    again = learn_bpe(iter(SENTENCES + GERMAN), section(vocab_size=330))
    assert again.model == tokenizer.model
    assert b"/tmp" not in tokenizer.model
    tokenizer.save(tmp_path / "t.model")
    for again in (Tokenizer.load(tmp_path / "t.model"), pickle.loads(pickle.dumps(tokenizer))):
        assert again.sha256 == tokenizer.sha256
        assert again.encode(["the old cat"]) == tokenizer.encode(["the old cat"])


def test_small_texts_get_their_pieces_and_small_vocabularies_are_refused() -> None:
    largest = learn_bpe(SENTENCES, section(vocab_size=5000))
    assert 300 < largest.vocab_size < 1000
    assert learn_bpe(SENTENCES, section(vocab_size=largest.vocab_size)).sha256 == largest.sha256
    words = count_words(SENTENCES).items()
    assert learn_from_words(words, section(vocab_size=5000)).table == largest.table
    with pytest.raises(DataError, match=r"data.vocab_size = 100 is too small: .* (\d+).* data.vocab_size=\1"):
        learn_bpe(SENTENCES, section(vocab_size=100))
    for nothing in ([], ["", " "]):
        with pytest.raises(DataError, match="the training text is empty"):
            learn_bpe(nothing, section())


def test_missing_damaged_and_other_models_are_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    other = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=other, vocab_size=60, model_type="bpe", minloglevel=2
    )
    named = "bad.model' is not a SentencePiece model"
    for data, said in (
        (b"", named),
        (b"words, no model" * 9, named),
        (tokenizer.model[: len(tokenizer.model) // 2], named),
        (other.getvalue(), "pad = -1, unk = 0, .* expected pad = 0, unk = 1, .*--pad_id=0"),
    ):
        (tmp_path / "bad.model").write_bytes(data)
        with pytest.raises(DataError, match=said):
            Tokenizer.load(tmp_path / "bad.model")
    with pytest.raises(DataError, match=r"cannot read '.*absent'"):
        Tokenizer.load(tmp_path / "absent")


def test_a_joint_vocabulary_is_one_tokenizer_separate_ones_are_two(tmp_path: Path) -> None:
    sides = [count_words(SENTENCES).items(), count_words(GERMAN).items()]
    joint = Vocabulary.learn([count_words(SENTENCES + GERMAN).items()], section())
    joint.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [JOINT_FILE]
    for vocabulary in (joint, Vocabulary.load(tmp_path), pickle.loads(pickle.dumps(joint))):
        assert vocabulary.joint
        assert vocabulary.source is vocabulary.target
        assert vocabulary.sha256 == joint.source.sha256
        assert vocabulary.source_size == vocabulary.target_size == 300
    (tmp_path / JOINT_FILE).unlink()
    two = Vocabulary.learn(sides, section(joint_vocab=False))
    two.save(tmp_path)
    again = Vocabulary.load(tmp_path)
    assert (again.joint, again.sha256) == (False, two.sha256)
    assert two.sha256 != two.source.sha256
    assert again.target.decode(again.target.encode(["der Hund"])) == ["der Hund"]
    for file, said in ((TARGET_FILE, "cannot read .*target"), (SOURCE_FILE, "no tokenizer; expected tokenizer.model")):
        (tmp_path / file).unlink()
        with pytest.raises(DataError, match=said):
            Vocabulary.load(tmp_path)


SYMBOLS = ["(S (NP XX )NP (VP XX )VP )S", "(S (VP XX (NP-SBJ=1 XX )NP-SBJ=1 )VP ﬁ İ )S", "(S XX )S"]


def test_each_symbol_is_a_piece_as_it_stands() -> None:
    words = learn_symbols(count_words(SYMBOLS).items(), section())
    pieces = {symbol for line in SYMBOLS for symbol in line.split()}
    assert set(words.table[4:]) == {f"▁{symbol}" for symbol in pieces}  # fewer than vocab_size = 300
    assert [words.table[number] for number in words.textless] == ["<pad>", "<s>", "</s>"]
    ids = words.encode(SYMBOLS)
    assert [len(row) for row in ids] == [len(line.split()) for line in SYMBOLS]
    assert words.decode(ids) == SYMBOLS  # nothing is normalised, no letter's case changed
    assert words.decode(words.encode(["  (S   XX )S "])) == ["(S XX )S"]
    some = {"normalization": "nfkc_cf", "character_coverage": 0.98}
    assert learn_symbols(count_words(SYMBOLS).items(), section(**some)).sha256 == words.sha256
    # SentencePiece joins unknown words that follow each other; a parse would then have too few
    known = [words.table.index(f"▁{symbol}") for symbol in ("(S", "XX", ")S")]
    assert words.encode(["(S foo bar  XX baz )S"]) == [[known[0], UNK, UNK, known[1], UNK, known[2]]]
    flat, sizes = WordEncoder(words).encode(["foo bar", "", "XX foo"])
    assert (flat.tolist(), sizes.tolist()) == ([UNK, UNK, known[1], UNK], [2, 0, 2])


def test_of_more_symbols_than_fit_the_most_frequent_are_kept() -> None:
    words = learn_symbols({"a": 1, "b": 2, "c": 3, "d": 2, "e": 1}.items(), section(vocab_size=8))
    assert words.table[4:] == ["▁c", "▁b", "▁d", "▁a"]
    assert f"▁({'LONG-' * 40}" in learn_symbols([("XX", 9), (f"({'LONG-' * 40}", 1)], section()).table


def test_a_parsers_subwords_have_each_bracket_and_tag_whole() -> None:
    """Both brackets of a label; other texts with brackets are words."""
    lines = ["(S (NP the /DT hounds /NNS )NP )S", ")P (SBAR barking /VBG )SBAR / ."] * 20
    for kind, tags in (("words", []), ("both", ["/DT", "/NNS", "/VBG"])):
        subwords = learn_from_words(count_words(lines).items(), section(terminals=kind, vocab_size=300))
        symbols = ["(NP", "(S", "(SBAR", ")NP", ")S", ")SBAR", *tags]
        assert {piece for piece in subwords.table if piece[1:] in symbols} == {f"▁{symbol}" for symbol in symbols}
        assert all(len(subwords.encode([symbol])[0]) == 1 for symbol in symbols)
        assert len(subwords.encode([")P"])[0]) > 1
        assert subwords.decode(subwords.encode(lines)) == lines


def test_the_targets_vocabulary_may_be_of_symbols_and_have_a_size_of_its_own() -> None:
    words = [count_words(SENTENCES).items(), count_words(SYMBOLS).items()]
    data = section(vocab_size=290, target_vocab_size=20, joint_vocab=False, target_tokenization="words")
    both = Vocabulary.learn(words, data)
    assert (both.source_size, both.target_size) == (290, 4 + 11)
    assert both.target.sha256 == learn_symbols(words[1], section(vocab_size=20)).sha256
    small = section(vocab_size=290, target_vocab_size=30, joint_vocab=False)
    with pytest.raises(DataError, match=r"data\.target_vocab_size = 30 is too small: .* data\.target_vocab_size="):
        Vocabulary.learn(words, small)


def letters(words: Iterable[tuple[str, int]], data: DataSection, side: str) -> Tokenizer:
    """A kind of tokenizer as of another package: of single characters."""
    return learn(words, data, side, model_type="char")


def test_a_kind_of_tokenizer_is_a_function_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOKENIZERS, "letters", f"{__name__}:letters")
    data = section(joint_vocab=False, target_tokenization="letters", vocab_size=290, target_vocab_size=20)
    learned = Vocabulary.learn([count_words(SENTENCES).items(), count_words(SYMBOLS).items()], data)
    assert learned.target.pieces("XX") == ["▁", "X", "X"]
    with pytest.raises(ValidationError, match=r'target_tokenization = "letters" needs joint_vocab = false'):
        section(target_tokenization="letters")


def test_each_side_may_leave_rare_characters_to_bytes() -> None:
    rare = "".join(chr(number) for number in range(0x4E00, 0x4E80))
    words = [[("one", 9), ("two", 9)], [(character * 20, 400) for character in "一二三"] + [(rare, 1)]]
    values = {"vocab_size": 290, "joint_vocab": False, "target_character_coverage": 0.98}
    both = Vocabulary.learn(words, section(**values))
    assert "二" in both.target.table
    assert rare[40] not in both.target.table
    assert both.target.decode(both.target.encode([rare])) == [rare]
    for coverage, key in ((0.0, "character_coverage"), (1.0, "target_character_coverage")):
        with pytest.raises(DataError, match=rf"vocab_size = 290 is too small: .* lower data\.{key}"):
            Vocabulary.learn(words, section(**values | {"target_character_coverage": coverage}))
