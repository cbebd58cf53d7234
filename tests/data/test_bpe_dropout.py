"""BPE-dropout: SentencePiece's own segmentation without dropout, algorithm 1's probabilities with it, the same again after a stop."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from nmt_cli.data import bpe_dropout
from nmt_cli.data.bpe_dropout import DRAWS, BpeDropout, WordCutter
from nmt_cli.data.demo_corpus import pairs as demo_pairs
from nmt_cli.data.tokenizer import Tokenizer, Vocabulary, learn_from_words, learn_symbols
from nmt_cli.data.words import count_words
from nmt_cli.errors import UsageError
from nmt_cli.recipe import DataSection

DTYPE = np.uint16


def section(**changes: Any) -> DataSection:
    return DataSection.model_validate({"train_source": ["s"], "train_target": ["t"], "vocab_size": 900, **changes})


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [side for pair in demo_pairs(train=600, valid=1, test=1)["train"] for side in pair]


@pytest.fixture(scope="module")
def tokenizer(lines: list[str]) -> Tokenizer:
    return learn_from_words(count_words(lines).items(), section())


def ids_of(tokenizer: Tokenizer, text: str) -> np.ndarray[Any, Any]:
    return np.array(tokenizer.encode([text])[0], DTYPE)


def pairs_of(tokenizer: Tokenizer, lines: Iterable[str]) -> list[tuple[Any, Any]]:
    ids = [ids_of(tokenizer, line) for line in lines]
    return list(zip(ids[::2], ids[1::2], strict=True))


def test_without_dropout_cuts_are_sentencepieces_and_all_keep_the_text(tokenizer: Tokenizer, lines: list[str]) -> None:
    some = [*lines, "Zyxwvut unheard-of wörds…", "x", "日本 with bytes 🙂 in it", "and 🙂"]
    pairs = pairs_of(tokenizer, some)
    cutter, cut = WordCutter(tokenizer, 0.0), BpeDropout(Vocabulary(tokenizer, tokenizer), 0.5, seed=1, longest=1000)
    varied = [cut(pair, 0, number) for number, pair in enumerate(pairs)]
    for old, new in zip(pairs, varied, strict=True):
        for ids in old:
            assert np.array_equal(cutter.cut(ids, np.zeros(len(ids), np.uint8)), ids)
        assert tokenizer.decode(new) == tokenizer.decode(old)
    longer = sum(len(side) for pair in varied for side in pair) / sum(len(side) for pair in pairs for side in pair)
    assert 1.5 < longer < 5


def test_with_certain_dropout_words_are_characters_and_draws_differ(tokenizer: Tokenizer) -> None:
    ids = ids_of(tokenizer, "the old house")
    cut = WordCutter(tokenizer, 1.0).cut(ids, np.zeros(len(ids), np.uint8))
    assert [tokenizer.table[number] for number in cut] == list("▁the▁old▁house")
    ids = ids_of(tokenizer, "conversation")
    cutter = WordCutter(tokenizer, 0.3)
    assert len({cutter.cut(ids, np.full(len(ids), draw, np.uint8)).tobytes() for draw in range(DRAWS)}) > 5


def exact(tokenizer: Tokenizer, parts: tuple[str, ...], p: float) -> dict[tuple[str, ...], float]:
    """Return the probability of each result of algorithm 1, by following all its choices."""
    table = {piece: score for piece, score in zip(tokenizer.table, tokenizer.scores, strict=True) if len(piece) > 1}
    merges = sorted(
        (i for i in range(len(parts) - 1) if parts[i] + parts[i + 1] in table),
        key=lambda i: (-table[parts[i] + parts[i + 1]], i),
    )
    found: dict[tuple[str, ...], float] = {parts: p ** len(merges)}
    for rank, i in enumerate(merges):  # the first merge that is not left out
        for result, probability in exact(tokenizer, (*parts[:i], parts[i] + parts[i + 1], *parts[i + 2 :]), p).items():
            found[result] = found.get(result, 0.0) + p**rank * (1 - p) * probability
    return found


@pytest.mark.slow
def test_segmentations_are_those_of_algorithm_1(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_dropout, "DRAWS", 20_000)
    cutter, word = WordCutter(tokenizer, 0.3), "house"
    ids = ids_of(tokenizer, word).tolist()
    counts = Counter(
        tuple(tokenizer.table[number] for number in cutter._segmentation(ids, draw)) for draw in range(20_000)
    )
    expected = exact(tokenizer, tuple(f"▁{word}"), 0.3)
    assert sum(expected.values()) == pytest.approx(1.0)
    assert len(expected) >= 5
    for parts, probability in expected.items():
        deviation = (probability * (1 - probability) / 20_000) ** 0.5
        assert counts[parts] / 20_000 == pytest.approx(probability, abs=4.5 * deviation + 1e-9), parts


def test_a_pair_is_cut_differently_by_epoch_and_equally_by_process(
    tokenizer: Tokenizer, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = pairs_of(tokenizer, lines[:100])
    first, other = (BpeDropout(Vocabulary(tokenizer, tokenizer), 0.3, seed=1, longest=1000) for _ in range(2))
    in_order = {(epoch, number): first(pair, epoch, number) for epoch in range(3) for number, pair in enumerate(pairs)}
    for (epoch, number), expected in reversed(in_order.items()):  # as after a stop: in another order, with nothing kept
        assert all(map(np.array_equal, other(pairs[number], epoch, number), expected))
    changed = sum(not np.array_equal(in_order[0, number][0], in_order[1, number][0]) for number in range(len(pairs)))
    assert changed > 0.9 * len(pairs)
    seeded = BpeDropout(Vocabulary(tokenizer, tokenizer), 0.3, seed=2, longest=1000)
    assert any(not np.array_equal(seeded(pair, 0, n)[0], in_order[0, n][0]) for n, pair in enumerate(pairs))
    monkeypatch.setattr(bpe_dropout, "KEPT", 3)  # what is forgotten is cut alike
    forgetful = BpeDropout(Vocabulary(tokenizer, tokenizer), 0.3, seed=1, longest=1000)
    for number, pair in enumerate(pairs):
        assert all(map(np.array_equal, forgetful(pair, 0, number), in_order[0, number]))
        assert all(len(cutter._kept) <= 3 for cutter in forgetful._cutters if cutter)


def test_a_side_that_would_be_too_long_keeps_its_ids_and_an_empty_one_is_empty(tokenizer: Tokenizer) -> None:
    ids, empty, vocabulary = ids_of(tokenizer, "the old house"), np.array([], DTYPE), Vocabulary(tokenizer, tokenizer)
    cut = BpeDropout(vocabulary, 0.99, seed=1, longest=len(ids))
    assert all(side is ids for side in cut((ids, ids), 0, 0))
    source, target = BpeDropout(vocabulary, 0.5, seed=1, longest=9)((empty, ids), 0, 0)
    assert (len(source), len(target) > 0) == (0, True)


def test_symbols_stay_whole_and_symbols_alone_are_refused(tokenizer: Tokenizer, lines: list[str]) -> None:
    symbols = learn_symbols(count_words(lines).items(), section(joint_vocab=False))
    pair = ids_of(tokenizer, lines[0]), ids_of(symbols, lines[0])
    assert not symbols.by_words
    _, target = BpeDropout(Vocabulary(tokenizer, symbols), 0.9, seed=1, longest=1000)(pair, 0, 0)
    assert np.array_equal(target, pair[1])
    with pytest.raises(UsageError, match=r"train.bpe_dropout = 0.1.*not BPE"):
        BpeDropout(Vocabulary(symbols, symbols), 0.1, seed=1, longest=1000)
    words = count_words([*lines, *["(NP )NP ( N P )"] * 40])
    parser = learn_from_words(words.items(), section(terminals="words"))
    ids = ids_of(parser, f"(NP {lines[0]} )NP")
    cut = WordCutter(parser, 1.0).cut(ids, np.zeros(len(ids), np.uint8))
    assert (cut[0], cut[-1]) == (ids[0], ids[-1])  # brackets of trees, among subwords
    assert len(cut) > len(ids)
    assert parser.decode([cut]) == parser.decode([ids])
