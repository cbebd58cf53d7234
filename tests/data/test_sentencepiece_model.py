"""A SentencePiece model over another vocabulary: the same subwords, the ids of the vocabulary, replacements, decoding."""

import random

import pytest
import sentencepiece
from marian_models import ODD, SCRIPT, pieces, spm

from nmt_cli.data.normalization import replacing
from nmt_cli.data.sentencepiece_model import Extension, pieces_of, settings_of, with_pieces
from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from nmt_cli.errors import DataError, ModelError
from nmt_cli.exchange.preprocess import MOSES, preprocess_script, replacements_in, steps_in

SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
UNKNOWN = ["漢", "漢字かな", "x漢y", "漢 字 漢字", "a漢b字c", "Ωmega привет мир", "🙂🙂", "dog漢dog"]


def reference(model: bytes, table: list[str], text: str) -> list[int]:
    """The ids of a text as Marian has them: the model's own pieces, looked up."""
    ids = {piece: number for number, piece in enumerate(table)}
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [ids.get(piece, UNK) for piece in processor.encode(text, out_type=str)]


def texts(table: list[str]) -> list[str]:
    rng = random.Random(1)
    words = [piece.replace("▁", " ") for piece in table[4:]] + UNKNOWN
    made = ["".join(rng.choice(words) for _ in range(rng.randint(1, 12))) for _ in range(400)]
    return [*made, *UNKNOWN, "", " ", "no y ~ : null 1", "</s> <unk> <s> <pad>", "▁▁ ▁x"]


@pytest.mark.parametrize("symbols", [(), ("no", "~", ":", '"')])
def test_every_text_has_the_same_subwords_with_the_ids_of_the_vocabulary(symbols: tuple[str, ...]) -> None:
    """The vocabulary has another order, pieces of the other side, and lacks every ninth piece."""
    model = spm(0, 200, symbols)
    own = pieces(model)
    table = [*SPECIALS, *dict.fromkeys([*pieces(spm(1, 230))[::-1], *ODD, *(own[n] for n in range(len(own)) if n % 9)])]
    tokenizer = Tokenizer(with_pieces(model, table, {}))
    assert tokenizer.vocab_size == len(table)
    assert tokenizer.table == table
    lines = texts(table)
    expected = [reference(model, table, line) for line in lines]
    assert tokenizer.encode(lines) == expected  # many at once
    assert [tokenizer.encode([line])[0] for line in lines] == expected  # and one by one
    assert any(UNK in row for row in expected)
    assert any(set(row) & set(range(4, len(table))) for row in expected)


def test_decoding_gives_the_pieces_text() -> None:
    table = [*SPECIALS, *dict.fromkeys([*pieces(spm(0)), *pieces(spm(1, 230)), *ODD])]
    tokenizer = Tokenizer(with_pieces(spm(1, 230), table, {}))
    ids = {piece: number for number, piece in enumerate(table)}
    row = [ids["▁"], ids["привет"], ids["▁"], ids["漢字"], ids["~"], ids[":"], EOS, PAD, BOS]
    assert tokenizer.decode([row]) == ["привет 漢字~:"]
    foreign = [ids[piece] for piece in pieces(spm(0)) if piece not in pieces(spm(1, 230))][:40]
    assert tokenizer.decode([[n] for n in foreign]) == [table[n].replace("▁", " ").strip() for n in foreign]


def test_a_tag_is_never_made_from_a_text() -> None:
    table = [*SPECIALS, *pieces(spm(0)), ">>deu<<", ">>fra<<"]
    tokenizer = Tokenizer(with_pieces(spm(0), table, {}))
    tags = {len(table) - 2, len(table) - 1}
    assert not tags & {*tokenizer.encode([">>deu<< the dog"])[0], *tokenizer.encode([">>fra<<"])[0]}


def test_the_new_model_keeps_scores_kinds_and_settings() -> None:
    model = spm(0, 200, ("no",))
    table = [*SPECIALS, "long" * 99, *pieces(model)[::-1], "other"]
    written = with_pieces(model, table, {"replacements": {"，": ","}, "controls": True})
    before, after = pieces_of(model), pieces_of(written)
    assert {piece: after[piece] for piece in pieces(model)} == {piece: before[piece] for piece in pieces(model)}
    assert after["other"][1] == 5  # unused
    assert settings_of(written).extension == Extension(len(table), {"，": ","}, True)
    assert settings_of(model).extension == Extension()
    again = with_pieces(written, table, {"replacements": {"，": ","}, "controls": True})
    assert again == written
    processor = sentencepiece.SentencePieceProcessor(model_proto=written)
    assert [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()] == [PAD, UNK, BOS, EOS]


def test_a_cut_model_is_refused() -> None:
    model = spm(0)
    whole = with_pieces(model, [*SPECIALS, *pieces(model)], {})
    for cut in (1, 7, 100, 3000):
        with pytest.raises((ValueError, KeyError)):
            with_pieces(model[: -cut - 1], SPECIALS, {})
        with pytest.raises(DataError):
            Tokenizer(whole[:-cut])


LONG = b'{"replacements": {"a": "%s"}}' % (b"b" * 33)


@pytest.mark.parametrize(
    "value",
    [b"{", b"[]", b'{"known": -1}', b'{"known": "3"}', b'{"more": 1}', b'{"replacements": {"ab": "c"}}', b"\xff", LONG],
)
def test_a_damaged_extension_is_refused(value: bytes) -> None:
    field = bytes([200 << 3 & 127 | 128 | 2, 200 >> 4]) + bytes([len(value)]) + value
    with pytest.raises(DataError, match="damaged"):
        Tokenizer(with_pieces(spm(0), [*SPECIALS, *pieces(spm(0))], {}) + field)


REPLACED = {
    "a，b。 c。   d、e": "a,b. c. d,e",
    "”x“ ∶ ：？《a》）！（；": '"x" : :?"a")!(;',
    "１２３４５６７８９０ 」「": '"234567890 ""',
    "～’…━〈〉【】％": "~'...-<>[]%",
    "x\x07y\x1bz": "x y z",
    "a\u200bb\u2060c\ufeffd": "a b c d",
    "so\xadft \u202ax": "so ft x",
    "‘a’ — „b“ ‚c‘": "‘a' — „b\" ‚c‘",
    "\U000e0001 g\u061ch": "g h",
    "plain & simple \\ / \xa0nb a\u3000b": "plain & simple \\ / \xa0nb a\u3000b",
    "\u0378 unassigned": "unassigned",
    "1．  2": "1. 2",
}
"""What bash, sed and perl make of lines with OPUS-MT's preprocess.sh."""


def read(script: str) -> tuple[dict[str, str], bool]:
    return replacements_in(steps_in(script)[0])


def replaced(script: str, line: str) -> str:
    change = replacing(*read(script))
    assert change is not None
    return " ".join(part for part in change(line).split(" ") if part)  # SentencePiece removes spaces


def test_replacements_are_those_of_sed_and_perl() -> None:
    script = "replace-unicode-punctuation.perl | remove-non-printing-char.perl | ${SPMENCODE} --model $2"
    assert {line: replaced(script, line) for line in REPLACED} == REPLACED


def test_rules_of_a_script_are_followed_in_order() -> None:
    assert replaced("sed -e 's/，/;/g' -e 's/，/!/g'", "a，b") == "a;b"  # the first one wins: no other is left
    with pytest.raises(ModelError, match="replaces ';', which an earlier step of it makes"):
        read("sed -e 's/，/;/g' -e 's/;/!/g'")
    values, controls = read(SCRIPT)
    assert read(preprocess_script(Extension(0, values, controls))) == (values, controls)
    assert read(preprocess_script(Extension(0, MOSES, False))) == (MOSES, False)


def test_a_tokenizer_replaces_before_it_encodes() -> None:
    table = [*SPECIALS, *pieces(spm(0)), "，"]
    values, controls = read(SCRIPT)
    tokenizer = Tokenizer(with_pieces(spm(0), table, {"replacements": values, "controls": controls}))
    plain = Tokenizer(with_pieces(spm(0), table, {}))
    assert tokenizer.encode(["the dog？  a\x07cat。 the"]) == plain.encode(["the dog? a cat. the"])
    assert tokenizer.encode(["the…dog’"]) == plain.encode(["the...dog'"]) != plain.encode(["the…dog’"])
    assert tokenizer.pieces("the１dog") == plain.pieces('the"dog')
    assert tokenizer.normalized("the１dog？") == 'the"dog?'
