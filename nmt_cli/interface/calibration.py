"""`nmt calibrate` as a function: quality estimates fitted on translated lines with references.

    source    ──▶ translations with log-probabilities ──▶ features ─┐
    reference ──▶ sentence chrF of the translations ────────────────┴─▶ regression ──▶ Calibration ──▶ FILE

`translation.confidence` has the features and the regression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .. import console
from ..errors import UsageError
from .commands import Overrides, changes_of
from .loading import models_named
from .progress import ProgressOption, showing

if TYPE_CHECKING:
    from ..translation.confidence import Calibration
    from ..translation.translator import LineTranslator

WHAT = "the calibration"


@dataclass(frozen=True)
class Calibrated:
    """A calibration, and how well it fits the lines that it was fitted on."""

    calibration: Calibration
    """The value for the option `calibration` of `translate`."""
    lines: int
    """Number of lines that were used; blank lines are not counted."""
    mean_chrf: float
    """Mean sentence chrF, 0 to 100."""
    mean_estimate: float
    """Mean of the estimates, 0 to 100."""
    spearman: float
    """Rank correlation of estimates and chrF over the lines."""


def check_calibration_path(out: Path, inputs: Sequence[Path]) -> None:
    """Raise UsageError unless `out` can be written: a new file, or an earlier calibration that is none of `inputs`."""
    from ..storage.output_paths import check_output_file
    from ..translation.confidence import not_a_calibration

    check_output_file(out, WHAT, inputs)
    if out.is_file() and (reason := not_a_calibration(out)):
        raise UsageError(f"{str(out)!r} is not replaced: {reason}. Choose another output, or move it away.")


def calibrate(
    source: Sequence[str],
    reference: Sequence[str],
    *,
    model: str | Path | Sequence[str | Path] | None = None,
    out: str | Path | None = None,
    target_language: str | None = None,
    overrides: Overrides = (),
    device: str = "auto",
    devices: int | None = None,
    precision: str = "auto",
    chosen: Callable[[Path], None] = lambda _: None,
    progress: ProgressOption = None,
) -> Calibrated:
    """Translate lines, compare them with their references, and fit the estimates; write them to `out` if it is given.

    Use lines that the model was not trained on; 1,000 are enough. `nmt calibrate --help` describes the options;
    `overrides` change keys of [decode]. For each run folder, `chosen` is called with the model folder in it. Raises
    UsageError, ModelError, and DataError for too few lines.
    """
    from ..model.folder_files import find_model
    from .translator import load

    folders = models_named(model)
    if out is not None:
        check_calibration_path(Path(out), [find_model(folder) for folder in folders])
    if len(source) != len(reference):
        raise UsageError(
            f"calibrate was given {len(source):,} lines of source and {len(reference):,} of reference: they "
            "must be parallel, line by line."
        )
    with showing(progress):
        loaded = load(folders, device=device, devices=devices, precision=precision, chosen=chosen)
        translator = loaded.with_options({"confidence": True, "overrides": changes_of(overrides)})
        language = loaded.stored.tags.chosen(target_language)
        rows, chrf = measured(translator, source, reference, language)

    from ..storage.output_paths import output_file
    from ..storage.sealed_json import to_json
    from ..translation.confidence import Calibration, not_a_calibration, rank_correlation

    calibration = Calibration.fit(rows, chrf)
    if out is not None:
        with output_file(Path(out), WHAT, ours=not_a_calibration) as stream:
            stream.write(to_json(calibration))
    estimates = [calibration.estimate(row) for row in rows]
    return Calibrated(
        calibration,
        len(rows),
        sum(chrf) / len(rows),
        100 * sum(estimates) / len(rows),
        rank_correlation(estimates, chrf),
    )


def measured(
    translator: LineTranslator, source: Sequence[str], reference: Sequence[str], language: str = ""
) -> tuple[list[dict[str, float]], list[float]]:
    """Return the features of the translations of all lines that are not blank, and their sentence chrF, 0 to 100.

    `translator` must keep the log-probabilities of tokens; `language` is the code of a tag, see `LineTranslator`.
    """
    from ..evaluation.metrics import Scorer
    from ..translation.confidence import features

    rows: list[dict[str, float]] = []
    outputs, lines = list[str](), list[int]()
    with console.progress(len(source), "translating", " lines") as bar:
        for line, result in enumerate(translator.translate(source, language)):
            if result.source_tokens:
                rows.append(features(len(result.source_tokens), result))
                lines.append(line)
            outputs.append(result.text)
            bar.update(1)
    scorer = Scorer("chrf", [reference])
    return rows, [scorer.score(outputs, [line]).value for line in lines]
