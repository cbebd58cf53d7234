"""Hard monotonic attention: where the next word is, in both layouts; it is stored with the weights, and only parsers may have it."""

from pathlib import Path

import pytest
import torch
from small_models import section

from nmt_cli.data.tokenizer import EOS, PAD, UNK, Vocabulary, learn_from_words, learn_symbols
from nmt_cli.errors import ModelError, RecipeError
from nmt_cli.exchange.exporter import check_form
from nmt_cli.exchange.quantizing import quantize
from nmt_cli.model.folder import build, load_model, weights_of
from nmt_cli.model.packing import Packing
from nmt_cli.model.precision import convert
from nmt_cli.model.transformer import Transformer, attention_mask
from nmt_cli.model.weights import write_model
from nmt_cli.parsing.word_tables import word_tables
from nmt_cli.recipe import Recipe

SIZE = 60
DATA = {"train_source": ["a"], "train_target": ["b"], "target_tokenization": "words"}
BEGINS = torch.arange(SIZE) % 3 == 0
ENDS = torch.arange(SIZE) % 4 == 1


def make(**changes: object) -> Transformer:
    torch.manual_seed(3)
    sizes = {"d_ff": 48, "num_heads": 4, "max_positions": 64, "monotonic_attention": True}
    model = Transformer(section(**{**sizes, **changes}), SIZE, SIZE).eval()
    if model.next_word is not None:
        model.next_word.set(BEGINS, ENDS)
    return model


def drawn(lengths: list[int], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = torch.randint(4, SIZE, (length,), generator=generator)
        row[length - 1] = EOS
    return rows


def next_word(src: list[int], target: list[int]) -> int:
    """The position where the first word begins that the target does not have, or that of the end symbol."""
    words = [position for position, token in enumerate(src) if BEGINS[token]]
    written = sum(bool(ENDS[token]) for token in target)
    return words[written] if written < len(words) else len(src) - 1


def test_both_layouts_find_the_next_word() -> None:
    lengths, targets = [7, 1, 12, 5], [9, 4, 30, 1]
    src, tgt = drawn(lengths, 1), drawn(targets, 2)
    expected = [
        [next_word(src[b, : lengths[b]].tolist(), tgt[b, : t + 1].tolist()) for t in range(targets[b])]
        for b in range(4)
    ]
    found = make().next_word
    assert found is not None
    padded = found.padded(src, torch.tensor(lengths), tgt)
    source, target = Packing(torch.tensor(lengths)), Packing(torch.tensor(targets))
    packed = found.packed(source.pack(src), source, target.pack(tgt), target)
    starts = [0, 7, 8, 20]
    assert [padded[b, : targets[b]].tolist() for b in range(4)] == expected
    assert packed[: sum(targets)].tolist() == [starts[b] + position for b in range(4) for position in expected[b]]
    assert int(packed.max()) < source.size


@pytest.mark.parametrize("residual", ["pre", "post"])
def test_a_pass_reads_the_next_word(residual: str) -> None:
    """Packed or padded: `test_packing.py`."""
    model, plain = (make(residual=residual, monotonic_attention=monotonic) for monotonic in (True, False))
    plain.load_state_dict(model.state_dict(), strict=False)  # it has no table of words
    given = drawn([7, 2, 12, 5], 1), attention_mask(torch.tensor([7, 2, 12, 5]), 12), drawn([9, 4, 30, 2], 2)
    assert not torch.allclose(plain(*given), model(*given), atol=1e-2)


def test_the_tables_are_stored_with_the_weights(tmp_path: Path) -> None:
    model = make()
    data = {**DATA, "terminals": "tags", "joint_vocab": False, "max_length": 60}
    recipe = Recipe.from_dict({"data": data, "model": {**model.config.model_dump(), "tie_embeddings": False}}, "test")
    torch.manual_seed(1)
    model = Transformer(recipe.model, SIZE, SIZE).eval()
    assert model.next_word is not None
    model.next_word.set(BEGINS, ENDS)
    (tmp_path / "fp32").mkdir()
    write_model(tmp_path / "fp32", weights_of(model), recipe, (SIZE, SIZE), {"tokenizer.model": b"-"}, {})
    loaded = load_model(tmp_path / "fp32")
    quantized = load_model(quantize(tmp_path / "fp32", tmp_path / "int8").path, quantized=True).model
    built = build(recipe, SIZE, SIZE, weights_of(model))
    for other in (loaded.model, built, quantized, convert(model, "int8"), convert(model, "bf16")):
        assert other.next_word is not None
        assert torch.equal(other.next_word.begins.bool(), BEGINS)
        assert torch.equal(other.next_word.ends.bool(), ENDS)
    with pytest.raises(ModelError, match="hard monotonic attention"):
        check_form(model.config, "a library")


@pytest.mark.parametrize(
    ("kind", "line", "ends"),
    [
        ("xx", "(S (NP XX XX )NP )S", "XX XX"),
        ("tags", "(S (NP DT NN )NP )S", "DT NN"),
        ("words", "(S (NP dog cat )NP )S", "dog cat"),
        ("both", "(S (NP dog /DT cat /NN )NP )S", "/DT /NN"),
    ],
)
def test_words_end_with_their_terminals(kind: str, line: str, ends: str) -> None:
    values = {**DATA, "vocab_size": 285, "joint_vocab": False, "terminals": kind}
    data = Recipe.from_dict({"data": values, "model": {"tie_embeddings": False}}, "t").data
    source = learn_from_words([("the", 9), ("small", 5), ("dogs", 4)], data)
    target = learn_symbols([(word, 3) for word in dict.fromkeys(line.split())], data)
    begins, ended = word_tables(Vocabulary(source, target), kind)
    ids = target.encode([line])[0]
    assert [target.table[i].removeprefix("\u2581") for i in ids if ended[i]] == ends.split()
    [sentence] = source.encode(["the smallest dogs"])
    assert int(begins[sentence].sum()) == 3
    assert bool(ended[UNK]) is (kind == "words")
    assert not ended[EOS]


@pytest.mark.parametrize(("terminals", "tokenization"), [("", "bpe"), ("words", "bpe")])
def test_only_parsers_may_have_it(terminals: str, tokenization: str) -> None:
    data = {**DATA, "terminals": terminals, "target_tokenization": tokenization}
    with pytest.raises(RecipeError, match="monotonic_attention = true with"):
        Recipe.from_dict({"data": data, "model": {"monotonic_attention": True}}, "test")
