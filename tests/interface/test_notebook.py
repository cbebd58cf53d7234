"""docs/tour.ipynb runs in a Jupyter kernel, from the first cell to the last, and shows bars."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tour.ipynb"


@pytest.mark.slow
@pytest.mark.skipif(not NOTEBOOK.exists(), reason="docs/tour.ipynb is not here")
def test_the_notebook_runs(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before you commit the notebook"
    [parameters] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source = "updates = 4"
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = ["".join(_text(output) for output in cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    assert "30000" in shown[1]
    assert "training" in shown[2]
    assert "'update': 4" in shown[2]
    assert "bleu" in shown[-2]
    assert all(shown[1:-1])


def _text(output: dict[str, object]) -> str:
    data = output.get("data")
    return str(data.get("text/plain", "")) if isinstance(data, dict) else str(output.get("text", ""))
