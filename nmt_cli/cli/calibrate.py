"""`nmt calibrate`: fit the quality estimates of `nmt translate --confidence` on translated lines with references.

This file has the options; `interface.calibration` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..console import say, say_next
from ..interface.loading import check_precision, models_named
from ..recipe import DecodeOptions
from .arguments import STDIN, DecodeOverrides, Device, Devices, Precision, option, output_path
from .completion import runs
from .typed_options import options_of


@options_of(DecodeOptions, "target_language")
def calibrate(
    *,
    src: Annotated[
        Path, option("Source text, one line per sentence: plain, .gz, .xz, .bz2 or .zst; - is stdin.", "SRC")
    ],
    ref: Annotated[Path, option("Reference translations, line by line parallel to SRC.", "REF")],
    out: Annotated[
        Path,
        option(
            "JSON file to write: a new one, or an earlier calibration.",
            "FILE",
            names=("--out", "-o"),
            parser=output_path,
        ),
    ],
    model: Annotated[
        list[Path] | None,
        option(
            "Model or run folder; repeat it for an ensemble.  [env var: NMT_MODEL; default: runs/latest]",
            "DIR",
            names=("--model", "-m"),
            autocompletion=runs,
        ),
    ] = None,
    options: DecodeOptions,
    overrides: DecodeOverrides = None,
    device: Device = "auto",
    devices: Devices = None,
    precision: Precision = "auto",
) -> None:
    """Fit the quality estimates of --confidence to your own data.

    Use lines that the model was not trained on, of the kind that it will translate, bad input included; 1,000 lines are
    enough.
    """
    from ..interface.calibration import calibrate as fit
    from ..interface.calibration import check_calibration_path
    from .inputs import read_parallel, say_model

    check_precision(precision)
    models = models_named(model)
    check_calibration_path(out, [path for path in (src, ref) if path != STDIN])
    _, [reference], source = read_parallel([], [ref], src)
    assert source is not None
    fitted = fit(
        source,
        reference,
        model=models,
        out=out,
        target_language=options["target_language"],
        overrides=overrides or [],
        device=device,
        devices=devices,
        precision=precision,
        chosen=say_model,
    )
    say(
        f"calibrated on {fitted.lines:,} lines: mean chrF {fitted.mean_chrf:.2f}, mean estimate "
        f"{fitted.mean_estimate:.2f}, Spearman {fitted.spearman:.3f}"
    )
    named = [word for folder in models for word in ("--model", folder)]
    say_next("nmt", "translate", *named, "--json", "--confidence", "--calibration", out, end=" < input")
