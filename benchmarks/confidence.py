"""How well `nmt translate --confidence` knows the quality of its translations.

    python benchmarks/confidence.py --model DIR --test multi30k SRC REF --test newstest SRC REF --lines 1000

For each test set: Spearman's rank correlation, over the lines, of sentence chrF (sacrebleu) with `quality`, with the mean
log-probability per token alone, and with the length alone (a shorter translation counts as better). Then the calibration:
ten bins of lines by their estimate, each with the mean estimate and the mean chrF / 100. Blank lines do not count. Precision
is fp32, one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from common import setup

from nmt_cli.interface.calibration import measured
from nmt_cli.interface.translator import load
from nmt_cli.lines import read_parallel
from nmt_cli.translation.confidence import DEFAULT, Calibration, rank_correlation, read_calibration

BINS = 10


def correlations(rows: Sequence[dict[str, float]], quality: Sequence[float], chrf: Sequence[float]) -> dict[str, float]:
    """Spearman's correlation with chrF, by what is correlated."""
    sides = {
        "quality": quality,
        "mean log-probability": [row["token"] for row in rows],
        "length": [-row["length"] for row in rows],
    }
    return {name: rank_correlation(values, chrf) for name, values in sides.items()}


def bins(quality: Sequence[float], chrf: Sequence[float]) -> list[tuple[int, float, float]]:
    """Lines, mean estimate and mean chrF / 100 of each bin: as many lines in one as in another, by rising estimate."""
    pairs = sorted(zip(quality, chrf, strict=True))
    summaries = []
    for number in range(BINS):
        part = pairs[number * len(pairs) // BINS : (number + 1) * len(pairs) // BINS]
        summaries.append(
            (
                len(part),
                sum(estimate for estimate, _ in part) / len(part),
                sum(value for _, value in part) / len(part) / 100,
            )
        )
    return summaries


def report(name: str, rows: Sequence[dict[str, float]], chrf: Sequence[float], calibration: Calibration) -> None:
    """Print the figures of one test set."""
    quality = [calibration.estimate(row) for row in rows]
    error = sum(abs(estimate - value / 100) for estimate, value in zip(quality, chrf, strict=True)) / len(rows)
    print(
        f"\n{name}: {len(rows):,} lines, mean chrF / 100 {sum(chrf) / len(rows) / 100:.3f}, mean estimate {sum(quality) / len(rows):.3f}, mean absolute error {error:.3f}"
    )
    for what, value in correlations(rows, quality, chrf).items():
        print(f"  Spearman, {what:<24} {value:>7.3f}")
    print(f"  {'bin':>5} {'lines':>7} {'estimate':>10} {'chrF / 100':>12}")
    for number, (count, estimate, value) in enumerate(bins(quality, chrf), 1):
        print(f"  {number:>5} {count:>7} {estimate:>10.3f} {value:>12.3f}")


def main() -> None:
    """Translate each test set and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="model or run folder")
    parser.add_argument(
        "--test",
        nargs=3,
        action="append",
        required=True,
        metavar=("NAME", "SRC", "REF"),
        help="a test set; repeat it for several",
    )
    parser.add_argument("--lines", type=int, default=1000, help="lines of each test set, from its beginning")
    parser.add_argument("--calibration", type=Path, help="a file of nmt calibrate; default: the default calibration")
    options = parser.parse_args()
    setup(1)
    calibration = read_calibration(options.calibration) if options.calibration else DEFAULT
    translator = load(options.model, device="cpu", devices=1, precision="fp32").with_options({"confidence": True})
    everything: tuple[list[dict[str, float]], list[float]] = [], []
    for name, source, reference in options.test:
        pairs = list(islice(read_parallel([source], [reference]), options.lines))
        rows, chrf = measured(translator, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        report(name, rows, chrf, calibration)
        everything[0].extend(rows)
        everything[1].extend(chrf)
    if len(options.test) > 1:
        report("all together", *everything, calibration)


if __name__ == "__main__":
    main()
