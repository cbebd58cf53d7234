"""Export a model folder to another library, and verify that the result is equal.

    load ──▶ check that the library can express it ──▶ write aside, flush, rename ──▶ load it as a user does ──▶ verify

`registry.EXPORTERS` lists the exporters; `exporter` defines the interface of an exporter.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from ..console import status
from ..errors import ModelError, write_failed
from ..model.folder_files import CARD
from ..registry import EXPORTERS, load
from ..storage.files import system_error
from ..storage.output_paths import check_output_folder, output_folder
from .exporter import Exporter, SourceModel
from .sentences import sentences
from .verification import Verification, verify

WHAT = "the export"


def _not_free(_: Path) -> str:
    """Refuse every folder: users may have changed an earlier export, so it is never replaced."""
    return "it is not empty"


@dataclass(frozen=True)
class Export:
    """An export that was written, and its verification."""

    source_model: SourceModel
    verification: Verification


def export(model: Path, to: str, out: Path, text: Path | None = None) -> Export:
    """Write the model folder `model` to `out` for the library `to`, and verify the export.

    The lines of `text` are compared too.

    Raises UsageError for an unknown exporter, a folder that is not empty, or a library that is not installed. Raises
    ModelError for a model that the library cannot express, and for an export that differs from it, which is not
    deleted.
    """
    exporter: Exporter = load(EXPORTERS, to, "--to")
    check_output_folder(out, WHAT, _not_free, [model])
    source_model = SourceModel.load(model)
    exporter.check(source_model)
    try:
        with status("choosing sentences to verify the export"):
            texts = sentences(source_model, text)
        with status(f"converting for {to}"), output_folder(out, WHAT, _not_free, [model], ModelError) as aside:
            exporter.write(source_model, aside)
            if source_model.card and (aside / CARD).is_file():
                with (aside / CARD).open("a", encoding="utf-8") as readme:
                    readme.write("\n" + source_model.card)
    except SafetensorError as error:
        raise write_failed(system_error(error), out, WHAT, ModelError) from None
    return Export(source_model, verify(source_model, exporter.read(out), texts, f"the export in {str(out)!r}"))
