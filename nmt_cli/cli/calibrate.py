"""`nmt calibrate`: fit the quality estimates of `nmt translate --confidence` on translated lines with references.

    SRC ──▶ translations with log-probabilities ──▶ features ─┐
    REF ──▶ sentence chrF of the translations ────────────────┴─▶ regression ──▶ FILE

`decoding.confidence` has the features and the regression.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import console
from ..console import say
from ..errors import UsageError
from ..interface.loading import check_precision, decode_changes, load_translator, models_named
from .arguments import STDIN, DecodeOverrides, Device, output_path
from .completion import runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..decoding.translator import Translator

WHAT = "the calibration"


def calibrate(
    src: Annotated[Path, typer.Option("--src", metavar="SRC", help="Source text, one line per sentence: plain, .gz, .xz or .bz2; - is stdin.", show_default=False)],
    ref: Annotated[Path, typer.Option("--ref", metavar="REF", help="Reference translations, line by line parallel to SRC.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", parser=output_path, metavar="FILE", help="JSON file to write: a new one, or an earlier calibration.", show_default=False)],
    model: Annotated[list[Path] | None, typer.Option("--model", "-m", metavar="DIR", autocompletion=runs, help="Model or run folder; repeat it for an ensemble.  [env var: NMT_MODEL; default: runs/latest]", show_default=False)] = None,
    overrides: DecodeOverrides = None,
    device: Device = "auto",
    devices: Annotated[int | None, typer.Option("--devices", metavar="N", min=1, max=1024, help="Number of workers: CPU cores or GPUs.  [default: all cores that the process may use; 1 GPU]", show_default=False)] = None,
    precision: Annotated[str, typer.Option(metavar="P", help="fp32, bf16, fp16, int8 or auto (the fastest on this hardware).")] = "auto",
) -> None:
    """Fit the quality estimates of `nmt translate --confidence` on your own data.

    SRC is translated, and each translation is compared with its line of REF by sacrebleu's sentence chrF. A regression
    then learns the expected chrF / 100 from the model's log-probabilities. Use lines that the model was not trained on, of
    the kind that it will translate, bad input included; 1,000 lines are enough. Blank lines do not count.

    A summary goes to stderr: the mean chrF and the mean estimate, and Spearman's rank correlation of the two over the lines.
    """
    from ..model.contents import find_model
    from ..output_paths import check_output_file, output_file
    from .inputs import read_parallel, say_model

    check_precision(precision)
    changes = decode_changes(overrides or [], {})
    check_output_file(out, WHAT, [path for path in (src, ref) if path != STDIN] + [find_model(path) for path in models_named(model)])
    from ..decoding.confidence import Calibration, not_a_calibration, rank_correlation
    from ..records import to_json

    if out.is_file() and (reason := not_a_calibration(out)):
        raise UsageError(f"{str(out)!r} is not replaced: {reason}. Choose another output, or move it away.")
    _, [reference], source = read_parallel([], [ref], src)
    assert source is not None
    translator = load_translator(models_named(model), changes, nbest=1, device=device, devices=devices, precision=precision, chosen=say_model, token_log_probs=True)
    rows, chrf = measured(translator, source, reference)
    calibration = Calibration.fit(rows, chrf)
    with output_file(out, WHAT, ours=not_a_calibration) as stream:
        stream.write(to_json(calibration))
    estimates = [calibration.estimate(row) for row in rows]
    say(
        f"calibrated on {len(rows):,} lines: mean chrF {sum(chrf) / len(rows):.2f}, mean estimate {100 * sum(estimates) / len(rows):.2f}, "
        f"Spearman {rank_correlation(estimates, chrf):.3f}"
    )
    say(f"next: nmt translate --json --confidence --calibration {out} < input")


def measured(translator: Translator, source: Sequence[str], reference: Sequence[str]) -> tuple[list[dict[str, float]], list[float]]:
    """Return the features of the translations of all lines that are not blank, and their sentence chrF, 0 to 100.

    The translator keeps the log-probabilities of tokens.
    """
    from ..decoding.confidence import features
    from ..evaluation.metrics import Scorer

    rows: list[dict[str, float]] = []
    outputs, lines = list[str](), list[int]()
    with console.progress(len(source), "translating", " lines") as bar:
        for line, result in enumerate(translator.translate(source)):
            if result.source_pieces:
                rows.append(features(len(result.source_pieces), result.best))
                lines.append(line)
            outputs.append(result.translation)
            bar.update(1)
    scorer = Scorer("chrf", [reference])
    return rows, [scorer.score(outputs, [line]).value for line in lines]
