"""BLEU of real systems' outputs against figures that others have published.

The outputs are WMT14's submissions on newstest2014. `scores-sacrebleu.tsv` holds the figures of sacrebleu's own code, two
decimals, in three settings; `scores.tsv` those of matrix.statmt.org, one decimal. The latter are mteval-v13a's four decimals
of a fraction, rounded once more: 0.27447 is printed as 0.2745, and shown as 27.5.
"""

import csv
import os
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from nmt_cli.evaluation.metric import MetricOptions
from nmt_cli.evaluation.metrics import Scorer
from nmt_cli.text.lines import decode_line, iter_lines, open_binary

SHARED = Path(os.environ.get("NMT_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
PUBLISHED = SHARED / "wmt-system-outputs"
REFERENCES = {"wmt14.de-en": "newstest2014-deen-full.en", "wmt14.en-fr": "newstest2014-enfr.fr"}
SETTINGS = {
    "bleu_13a_cased": MetricOptions(),
    "bleu_13a_lowercased": MetricOptions(lowercase=True),
    "bleu_intl_cased": MetricOptions(tokenize="intl"),
}
ON_MATRIX = {"bleu_13a_cased": "BLEU-cased", "bleu_13a_lowercased": "BLEU"}
FRENCH_WITHIN = 0.1
"""German to English is equal to the decimal; the matrix's figures for French are up to this much from sacrebleu's too."""

pytestmark = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason=f"needs the WMT system outputs below {SHARED} (set NMT_SHARED_DATA)"
)


def lines_of(path: Path) -> list[str]:
    with open_binary(path) as stream:
        return [decode_line(raw)[0] for raw in iter_lines(stream)]


def table(folder: str, name: str) -> dict[str, dict[str, str]]:
    with (PUBLISHED / folder / name).open(encoding="utf-8") as file:
        return {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("folder", REFERENCES)
def test_every_system_scores_what_is_published(folder: str, setting: str) -> None:
    by_sacrebleu, by_matrix = table(folder, "scores-sacrebleu.tsv"), table(folder, "scores.tsv")
    assert len(by_sacrebleu) == len(by_matrix) == 13
    reference = lines_of(SHARED / "wmt-newstest" / REFERENCES[folder])
    scorer, wrong, compared = Scorer("bleu", [reference], SETTINGS[setting]), [], 0
    for system, row in by_sacrebleu.items():
        [path] = (PUBLISHED / folder).glob(f"{system}.*.gz")
        value = scorer.score(lines_of(path)).value
        if abs(value - float(row[setting])) > 0.005:
            wrong.append(f"{system}: {value:.4f}, sacrebleu {row[setting]}")
        if setting in ON_MATRIX and (figure := by_matrix[system][ON_MATRIX[setting]]):
            compared += 1
            shown = Decimal(f"{value:.2f}").quantize(Decimal("0.1"), ROUND_HALF_UP)
            if abs(float(shown) - float(figure)) > (FRENCH_WITHIN if folder == "wmt14.en-fr" else 0) + 1e-9:
                wrong.append(f"{system}: {value:.4f}, matrix.statmt.org {figure}")
    assert wrong == []
    assert compared == 8 * (setting in ON_MATRIX)
