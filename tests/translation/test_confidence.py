"""Words and their probabilities, features, and the regression that estimates quality."""

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from few_words import model, sentence, tokenizer
from in_memory import line_translator

from nmt_cli.data.tokenizer import BOS, EOS, PAD, UNK
from nmt_cli.errors import DataError
from nmt_cli.recipe import DecodeSection
from nmt_cli.storage.sealed_json import content_hash, to_json
from nmt_cli.translation.confidence import (
    DEFAULT,
    FEATURES,
    LINES,
    NEAREST,
    Calibration,
    features,
    not_a_calibration,
    rank_correlation,
    read_calibration,
    words,
)
from nmt_cli.translation.line import Candidate


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["▁the", "▁c", "at", "."], [("the", 0.5), ("cat.", 0.125)]),
        (["▁", "the", "▁", "▁cat"], [("the", 0.25), (" cat", 0.25)]),
        (["▁the", "▁", "▁"], [("the  ", 0.125)]),
        (["▁a", "<0xC3>", "<0xA9>", "▁b"], [("aé", 0.125), ("b", 0.5)]),
        (["▁a", "<0xA9>", "<0xC3>", "<0x0A>", "▁b"], [("a\ufffd\ufffd ", 0.0625), ("b", 0.5)]),
        (["<0x20>", "▁a"], [("  a", 0.25)]),
        (["▁a", "<unk>", "▁b"], [("a", 0.5), ("\u2047 ", 0.5), ("b", 0.5)]),
        ([], []),
    ],
)
def test_words_of_hand_made_pieces(pieces: list[str], expected: list[tuple[str, float]]) -> None:
    """Each piece has the probability 1/2; that of the end symbol belongs to no word."""
    half = math.log(0.5)
    found = words(pieces, [half] * len(pieces) + [-7.0], [len(pieces)])
    assert [word.text for word in found] == [text for text, _ in expected]
    assert [math.exp(word.log_prob) for word in found] == pytest.approx([value for _, value in expected])


@pytest.mark.parametrize("vocab_size", [330, 40])
def test_words_joined_by_spaces_are_the_text_of_any_tokens(vocab_size: int) -> None:
    """Random tokens of a real tokenizer, with bytes (330) and without (40): many of white space, of bytes and unknown ones."""
    of_text, rng = tokenizer(vocab_size), random.Random(3)
    table = of_text.table
    usual = [[number] for number in range(len(table)) if number not in (PAD, BOS, EOS)]
    pieces = {"▁", *(f"<0x{byte:02X}>" for byte in b" \n\xe2\x96\x81\xef\xbf\xbd\xc3\xa9")}
    odd = [ids for ids in usual if table[ids[0]] in pieces]
    if vocab_size > 256:
        odd += [[table.index(f"<0x{byte:02X}>") for byte in text.encode()] for text in ("é", "\ufffd", "▁", "😀")]
    assert [UNK] in usual
    for _ in range(3000):
        ids = [i for _ in range(rng.randint(0, 12)) for i in rng.choice(odd if rng.random() < 0.5 else usual)]
        [text] = of_text.decode([ids])
        numbers = [-rng.random() for _ in range(len(ids) + 1)]
        found = words([table[number] for number in ids], numbers, [len(ids)])
        assert " ".join(word.text for word in found) == text, (ids, text)
        if text:
            assert math.fsum(word.log_prob for word in found) == pytest.approx(math.fsum(numbers[:-1]))


@pytest.mark.parametrize(
    ("pieces", "log_probs", "lengths", "expected"),
    [
        (
            ["▁the", "▁c", "at", "▁a", "▁", "dog"],
            [-1, -2, -3, -50, -4, -5, -60, -6, -70],
            (3, 2, 1),
            [("the", -1), ("cat", -5), ("a ", -9), ("dog", -6)],
        ),
        (["▁", "▁a"], [-1, -9, -2, -9], (1, 1), [("a", -2)]),  # the first part has no text
        (["▁好", "。", "▁是", "。", "▁ok"], [-1, -2, -9, -3, -4, -9, -5, -9], (2, 2, 1), [("好。是。ok", -15)]),
    ],
)
def test_a_line_in_parts_has_an_end_symbol_after_each(
    pieces: list[str], log_probs: list[float], lengths: tuple[int, ...], expected: list[tuple[str, float]]
) -> None:
    assert words(pieces, log_probs, lengths) == expected


def test_words_and_end_symbols_of_a_translation_add_up_to_its_log_prob() -> None:
    """Also for lines in parts, and for all candidates."""
    rng = random.Random(5)
    options = DecodeSection(max_extra=3, beam=3, max_len_ratio=1.0)
    translator = line_translator(model(), tokenizer(), tokenizer(), options, nbest=3, longest=12, calibration=DEFAULT)
    lines = [sentence(rng, rng.choice([1, 3, 8, 30])) for _ in range(30)]
    parts = set()
    for result in translator.translate(lines):
        for candidate in result.nbest:
            found = words(candidate.tokens, candidate.token_log_probs, candidate.part_lengths)
            assert " ".join(word.text for word in found) == candidate.text
            ends = np.cumsum([length + 1 for length in candidate.part_lengths]) - 1
            total = math.fsum([*(word.log_prob for word in found), *(candidate.token_log_probs[end] for end in ends)])
            assert total == pytest.approx(candidate.log_prob, abs=1e-4)
            assert all(0 < word.probability <= 1 for word in candidate.words or [])
            parts.add(len(candidate.part_lengths))
    assert len(parts) > 1


def test_features() -> None:
    tokens, log_probs = ("▁the", "▁c", "at", "▁dog"), (-1.0, -0.5, -1.5, -0.2, -3.0, -1.8)
    candidate = Candidate("the cat dog", -3.0, -8.0, tokens, token_log_probs=log_probs, part_lengths=(3, 1))
    found = features(8, candidate)
    assert list(found.values()) == pytest.approx([-8 / 6, -(1.0 + 2.0 + 3.0) / 3, -3.0, math.log(6 / 10), math.log(6)])
    assert list(found) == list(FEATURES)
    assert features(2, Candidate("", -0.5, -0.5, token_log_probs=(-0.5,), part_lengths=(0,))) == pytest.approx(
        {"token": -0.5, "word": -0.5, "worst_word": -0.5, "length_ratio": math.log(1 / 3), "length": 0.0}
    )


TRUE = {"token": 1.5, "worst_word": 0.2, "length_ratio": -0.7}
INTERCEPT = 0.4


def drawn(lines: int, seed: int = 0, noise: float = 0.05) -> tuple[list[dict[str, float]], list[float]]:
    """Random features, and chrF that follows TRUE and INTERCEPT, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal([-1.0, -4.0, 0.0], [0.6, 2.0, 0.3], (lines, 3))
    rows = [dict(zip(TRUE, row, strict=True)) for row in x.tolist()]
    expected = 1 / (1 + np.exp(-(INTERCEPT + x @ np.array(list(TRUE.values())))))
    return rows, (100 * np.clip(expected + rng.normal(0, noise, lines), 0, 1)).tolist()


def test_the_regression_recovers_coefficients_and_needs_lines() -> None:
    rows, chrf = drawn(20_000, noise=0.01)
    found = Calibration.fit(rows, chrf)
    assert found.lines == 20_000
    assert found.intercept == pytest.approx(INTERCEPT, abs=0.05)
    assert found.coefficients == pytest.approx(TRUE, abs=0.03)
    rows, chrf = drawn(LINES - 1)
    with pytest.raises(DataError, match=f"needs {LINES} lines or more that are not blank, here are {LINES - 1}"):
        Calibration.fit(rows, chrf)


def test_estimates_are_calibrated_and_independent_of_scale() -> None:
    rows, chrf = drawn(500)
    found = Calibration.fit(rows, chrf)
    estimates = [found.estimate(row) for row in rows]
    targets = [min(max(value / 100, NEAREST), 1 - NEAREST) for value in chrf]
    assert sum(estimates) == pytest.approx(sum(targets))  # as for every regression with an intercept
    assert rank_correlation(estimates, chrf) > 0.8
    scaled = [{**row, "token": 1000 * row["token"] - 5} for row in rows]
    again = Calibration.fit(scaled, chrf)
    assert [again.estimate(row) for row in scaled] == pytest.approx(estimates, abs=1e-6)


def test_estimates_are_monotone() -> None:
    """The sign of a coefficient is the direction; extreme features stay within 0 and 1."""
    some = Calibration(format_version=2, lines=1, intercept=0.3, coefficients={"token": 2.0, "length": -1.0})
    by_length = [some.estimate({"token": -1.0, "length": value}) for value in np.linspace(0, 6, 50)]
    assert by_length == sorted(by_length, reverse=True)
    assert [some.estimate({"token": value, "length": 0.0}) for value in (-1e9, 1e9)] == pytest.approx([0, 1])
    steps = np.linspace(-5, 0, 50)
    rising = [DEFAULT.estimate(dict(zip(FEATURES, (x, 2 * x, 6 * x, 0.0, 2.5), strict=True))) for x in steps]
    assert rising == sorted(rising)
    assert rising[0] < 0.05
    assert rising[-1] > 0.7


def test_a_feature_that_never_varies_and_equal_targets_do_no_harm() -> None:
    rows, chrf = drawn(LINES)
    assert Calibration.fit([{**row, "length": 3.0} for row in rows], chrf).coefficients["length"] == 0
    for value in (0.0, 100.0):
        same = Calibration.fit(rows, [value] * LINES)
        assert [same.estimate(row) for row in rows] == pytest.approx([value / 100] * LINES, abs=0.002)


def test_rank_correlation() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(0.9486832980505138)  # scipy.stats.spearmanr
    assert math.isnan(rank_correlation([1, 1], [1, 2]))


def test_a_calibration_survives_its_file(tmp_path: Path) -> None:
    found = Calibration.fit(*drawn(100))
    path = tmp_path / "calibration.json"
    path.write_bytes(to_json(found))
    assert read_calibration(path) == found
    assert not_a_calibration(path) == ""
    assert Calibration.model_validate(DEFAULT.model_dump()) == DEFAULT


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "other"}, "is damaged: kind: input should be 'nmt calibration'"),
        ({"coefficients": {}}, "is damaged: coefficients: "),
        ({"coefficients": {"tokne": 1.0}}, "unknown feature 'tokne', expected token, word"),
        ({"content_sha256": "0"}, "was changed or damaged"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, change: dict[str, object], text: str) -> None:
    path = tmp_path / "calibration.json"
    values = {**json.loads(to_json(DEFAULT)), **change}
    path.write_text(json.dumps({**values, "content_sha256": content_hash(values), **change}))
    with pytest.raises(DataError) as error:
        read_calibration(path)
    assert text in str(error.value)
    assert repr(str(path)) in str(error.value)
    assert not_a_calibration(path) == (
        "nmt calibrate did not write it" if "kind" in change else "it was changed after nmt calibrate had written it"
    )
