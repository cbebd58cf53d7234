"""Scores: published figures to the printed decimal, signatures, and what a scorer can be handed by mistake."""

import csv
import gzip
import os
from pathlib import Path

import pytest

from nmt_cli.errors import DataError, UsageError
from nmt_cli.evaluation.metrics import METRICS, compute, tokenizers

SHARED = Path(os.environ.get("NMT_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
PUBLISHED = SHARED / "wmt-system-outputs"

HYPOTHESES = ["The cat sat on the mat .", "A dog barked loudly at the postman ."]
REFERENCES = ["The cat lay on the mat .", "The dog barked loudly at a postman ."]


def lines_of(path: Path) -> list[str]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode().removesuffix("\n").split("\n")


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"needs the WMT system outputs below {SHARED} (set NMT_SHARED_DATA)")
@pytest.mark.parametrize(
    ("folder", "reference", "systems"),
    [
        ("wmt14.de-en", "newstest2014-deen-full.en", ["CMU.3461", "rbmt4.0"]),
        ("wmt14.en-fr", "newstest2014-enfr.fr", ["UU-Docent.3517"]),
    ],
)
def test_bleu_of_wmt14_systems_matches_the_published_figures(folder: str, reference: str, systems: list[str]) -> None:
    with (PUBLISHED / folder / "scores-sacrebleu.tsv").open() as table:
        published = {row["file"]: row for row in csv.DictReader(table, delimiter="\t")}
    references = [lines_of(SHARED / "wmt-newstest" / reference)]
    for system in systems:
        (path,) = (PUBLISHED / folder).glob(f"{system}.*.gz")
        hypotheses, row = lines_of(path), published[system]
        assert len(hypotheses) == int(row["lines"])
        for column, lowercase, tokenize in [
            ("bleu_13a_cased", False, "13a"),
            ("bleu_13a_lowercased", True, "13a"),
            ("bleu_intl_cased", False, "intl"),
        ]:
            score = compute("bleu", hypotheses, references, lowercase=lowercase, tokenize=tokenize)
            assert f"{score.value:.2f}" == row[column], (system, column)


@pytest.mark.parametrize(("metric", "perfect"), [("bleu", 100.0), ("chrf", 100.0), ("ter", 0.0)])
def test_identical_text_is_perfect(metric: str, perfect: float) -> None:
    assert compute(metric, REFERENCES, [REFERENCES]).value == pytest.approx(perfect)


def test_a_score_carries_name_signature_and_details() -> None:
    bleu, chrf, ter = (compute(metric, HYPOTHESES, [REFERENCES]) for metric in METRICS)
    assert (bleu.name, chrf.name, ter.name) == ("BLEU", "chrF2", "TER")
    assert bleu.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert chrf.signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert ter.signature.startswith("nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:")
    assert bleu.details == "80.0/61.5/36.4/22.2 (BP = 1.000 ratio = 1.000 hyp_len = 15 ref_len = 15)"
    assert (chrf.details, ter.details) == ("", "")
    assert (bleu.higher_is_better, chrf.higher_is_better, ter.higher_is_better) == (True, True, False)
    assert list(bleu.as_dict()) == ["metric", "name", "score", "signature", "details", "higher_is_better"]
    assert bleu.as_dict()["score"] == bleu.value == pytest.approx(44.66, abs=0.005)


def test_a_second_reference_is_used() -> None:
    score = compute("bleu", HYPOTHESES, [REFERENCES, HYPOTHESES])
    assert score.value == pytest.approx(100.0)
    assert score.signature.startswith("nrefs:2|")
    assert compute("ter", HYPOTHESES, [REFERENCES, HYPOTHESES]).value == 0.0


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_case_counts_unless_it_is_asked_not_to(metric: str) -> None:
    shouted = [line.upper() for line in REFERENCES]
    cased, uncased = compute(metric, shouted, [REFERENCES]), compute(metric, shouted, [REFERENCES], lowercase=True)
    assert cased.value < 50
    assert uncased.value == pytest.approx(100.0)
    assert ("case:mixed" in cased.signature, "case:lc" in uncased.signature) == (True, True)


def test_ter_ignores_case() -> None:
    assert compute("ter", [line.upper() for line in REFERENCES], [REFERENCES]).value == 0.0


def test_tokenizer_none_leaves_tokenised_text_alone(capfd: pytest.CaptureFixture[str]) -> None:
    hypotheses, reference = ["well-known facts ."] * 200, ["well-known things ."] * 200
    score = compute("bleu", hypotheses, [reference], tokenize="none")
    assert "tok:none" in score.signature
    assert "hyp_len = 600" in score.details  # three tokens a line
    assert compute("bleu", ["a b, c d."], [["a b , c d ."]], tokenize="13a").value == pytest.approx(100.0)
    assert compute("bleu", ["a b, c d."], [["a b , c d ."]], tokenize="none").value < 50
    assert capfd.readouterr() == ("", "")


def test_blank_hypotheses_score_zero_and_do_not_fail() -> None:
    for blank in ("", "   "):
        assert compute("bleu", [blank, blank], [REFERENCES]).value == 0.0
        assert compute("chrf", [blank, blank], [REFERENCES]).value == 0.0
        assert compute("ter", [blank, blank], [REFERENCES]).value == 100.0


def test_unequal_counts_are_named() -> None:
    with pytest.raises(DataError, match="2 hypothesis lines cannot be scored against 1 lines of reference 2"):
        compute("bleu", HYPOTHESES, [REFERENCES, REFERENCES[:1]])


def test_nothing_to_score_is_named() -> None:
    with pytest.raises(DataError, match="no lines to score"):
        compute("bleu", [], [[]])
    with pytest.raises(UsageError, match="at least one reference"):
        compute("bleu", HYPOTHESES, [])


def test_an_unknown_metric_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown metric 'blue': expected one of bleu, chrf, ter\. Did you mean 'bleu'\?"):
        compute("blue", HYPOTHESES, [REFERENCES])


def test_an_unknown_tokenizer_names_those_of_sacrebleu() -> None:
    assert {"13a", "intl", "none", "char", "zh"} <= set(tokenizers())
    with pytest.raises(UsageError, match=r"unknown tokenizer '13b': expected one of none, zh, 13a.* Did you mean '13a'\?"):
        compute("bleu", HYPOTHESES, [REFERENCES], tokenize="13b")


def test_a_tokenizer_that_lacks_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sacrebleu.tokenizers.tokenizer_ja_mecab as ja

    monkeypatch.setattr(ja, "MeCab", None)
    with pytest.raises(DataError, match=r"the tokenizer 'ja-mecab' cannot be used here: .*pip install sacrebleu\[ja\]"):
        compute("bleu", HYPOTHESES, [REFERENCES], tokenize="ja-mecab")


def test_what_sacrebleu_logs_reaches_the_console_marked_as_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    import logging

    compute("bleu", HYPOTHESES, [REFERENCES])
    logging.getLogger("sacrebleu").warning("mind the [gap]")
    assert capfd.readouterr() == ("", "warning: mind the [gap]\n")
