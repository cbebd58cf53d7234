"""`nmt calibrate`: fit the quality estimates of `nmt translate --confidence` on translated lines with references.

This file has the options; `interface.calibration` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..console import say, say_next
from ..interface.calibration import calibrate as fit
from ..interface.calibration import check_calibration_path
from ..interface.loading import models_named
from ..recipe import DecodeOptions
from .arguments import (
    DEFAULT_MODEL,
    STDIN,
    DecodeOverrides,
    Device,
    Devices,
    Precision,
    model_option,
    option,
    out_option,
)
from .inputs import read_parallel, say_model
from .typed_options import Given, options_from, options_of


@options_from(
    fit,
    out=Annotated[Path, out_option("JSON file to write: a new one, or an earlier calibration.", "FILE")],
    model=model_option(f"Model or run folder; repeat it for an ensemble.{DEFAULT_MODEL}"),
)
@options_of(DecodeOptions, "target_language", into="language")
@options_from(fit, into="machine", overrides=DecodeOverrides, device=Device, devices=Devices, precision=Precision)
def calibrate(
    *,
    src: Annotated[
        Path, option("Source text, one line per sentence: plain, .gz, .xz, .bz2 or .zst; - is stdin.", "SRC")
    ],
    ref: Annotated[Path, option("Reference translations, line by line parallel to SRC.", "REF")],
    options: Given,
    language: Given,
    machine: Given,
) -> None:
    """Fit the quality estimates of --confidence to your own data.

    Use lines that the model was not trained on, of the kind that it will translate, bad input included; 1,000 lines are
    enough.
    """
    out, models = options["out"], models_named(options.get("model"))
    check_calibration_path(out, [path for path in (src, ref) if path != STDIN])
    _, [reference], source = read_parallel([], [ref], src)
    assert source is not None
    fitted = fit(source, reference, **{**options, "model": models}, **language, **machine, chosen=say_model)
    say(
        f"calibrated on {fitted.lines:,} lines: mean chrF {fitted.mean_chrf:.2f}, mean estimate "
        f"{fitted.mean_estimate:.2f}, Spearman {fitted.spearman:.3f}"
    )
    named = [word for folder in models for word in ("--model", folder)]
    say_next("nmt", "translate", *named, "--json", "--confidence", "--calibration", out, end=" < input")
